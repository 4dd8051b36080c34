"""Servers with a history that is lost, reset or parted from; mirrors that stand at some of it."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, run, source_of

from lab.servers import Server
from ratchet.ingest.slices import SliceLimits

MakeServer = Callable[..., Server]
with_gtids = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
_MYSQL_GTID, _MARIADB_GTID = 33, 162  # kinds of events
_COMMIT_TIMES = 1 + 16 + 8 + 1 + 16  # bytes before them in MySQL's
SHORT = SliceLimits(max_seconds=2, min_seconds=0)


def prepared(server: Server) -> Server:
    """The server with the table `d`.`t`."""
    server.execute("CREATE DATABASE IF NOT EXISTS d")
    run(server, "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
    return server


def write(server: Server, count: int = 5) -> None:
    """That many transactions."""
    run(server, *["INSERT INTO t (v) VALUES (1)"] * count)


def caught_up(server: Server, folder: Path) -> Capturer:
    """A mirror that holds some transactions, none of whose streams is open."""
    capture = Capturer(source_of(server, "d"), folder)
    write(server)
    capture.catch_up()
    close_streams()
    return capture


def reset(server: Server) -> None:
    """As if the server had never written anything."""
    mysql = server.flavor == "mysql"
    server.execute("RESET BINARY LOGS AND GTIDS" if mysql else "RESET MASTER")


def transactions(log: bytes) -> list[tuple[int, int]]:
    """The transactions in a file of a log: number, and when it was committed on its own server.

    Read from the events' documented bytes; MySQL: microseconds, MariaDB: seconds.
    """
    found, at = [], 4
    while at < len(log):
        (ts, kind), length = (
            struct.unpack_from("<IB", log, at),
            int.from_bytes(log[at + 9 : at + 13], "little"),
        )
        body = log[at + 19 : at + length]
        if kind == _MARIADB_GTID:
            found.append((int.from_bytes(body[:8], "little"), ts))
        elif kind == _MYSQL_GTID:
            times = body[_COMMIT_TIMES:]
            here = int.from_bytes(times[:7], "little")
            first = int.from_bytes(times[7:14], "little") if here >> 55 else here
            found.append((int.from_bytes(body[17:25], "little"), first & (1 << 55) - 1))
        at += length
    return found


def play_back(server: Server, number: int, committed: int, statement: str) -> None:
    """Execute a statement as the transaction of that number, as `mysqlbinlog | mysql` does it."""
    with server.connect(database="d") as connection, connection.cursor() as cursor:
        if server.flavor == "mysql":
            ((own,),) = server.execute("SELECT @@server_uuid")
            cursor.execute(f"SET original_commit_timestamp = {committed}")
            cursor.execute(f"SET gtid_next = '{own}:{number}'")
        else:
            cursor.execute(f"SET gtid_seq_no = {number}, timestamp = {committed}")
        cursor.execute(statement)
        connection.commit()


def a_second_later() -> None:
    """MariaDB's log has commit times in whole seconds."""
    time.sleep(1.1)
