"""Streams made by hand for the reader, and what it makes of them."""

from __future__ import annotations

import struct
from typing import Any

from event_kit import (
    SERVER,
    Collected,
    Log,
    feed,
    make_reader,
)

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange

IMAGE = b"\2\xff\0\1\0\0\0\1a"


def mysql(executed: str = "") -> Position:
    return Position(executed=GtidSet.parse("mysql", executed), server=SERVER)


def mariadb(executed: str = "") -> Position:
    return Position(executed=GtidSet.parse("mariadb", executed), server="1@h:1")


def in_file(offset: int = 4) -> Position:
    executed = GtidSet.parse("file", f"bin.000001:{offset}")
    return Position(executed=executed, server="s", file="bin.000001", offset=offset)


def opened() -> Log:
    return Log().rotate("bin.000001").format()


def read(
    start: Position, log: Log, **more: Any
) -> tuple[Collected, Position, tuple[GtidRange, ...]]:
    found = Collected()
    reader = make_reader(start, found, **more)
    feed(reader, log.events, checksum=log.checksum)
    reader.flush()
    return found, reader.position(), reader.runs


XA_PREPARE = b"\0" + struct.pack("<III", 1, 1, 0) + b"a"


def effects(found: Collected) -> list[tuple[str, str]]:
    return [(event.table, event.effect) for event in found.told]
