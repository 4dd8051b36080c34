"""Servers with a history that is lost, reset or parted from; mirrors that stand at some of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, run, source_of

from ingest.slices import SliceLimits
from lab.servers import Server

MakeServer = Callable[..., Server]
with_gtids = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
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


def a_second_later() -> None:
    """MariaDB's log has commit times in whole seconds."""
    time.sleep(1.1)
