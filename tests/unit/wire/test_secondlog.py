"""What the network made of events: the second reading of a log refuses it, and fails at nothing."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from ratchet.core.errors import DecodeError, PositionLostError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.wire.secondevents import HEADER
from ratchet.wire.secondlog import SecondLog, SecondTransaction, _Count
from ratchet.wire.secondrows import SecondDecoder
from tests.binlog_file import events

SEEDS = Path(__file__).parents[2] / "fuzz" / "seeds"
CHANGES = 6  # of each event


def whole(flavor: str) -> list[bytes]:
    """Each event that a real server wrote, without its checksum; each once."""
    found = {}
    for kind, body in events(SEEDS / f"{flavor}.binlog"):
        head = HEADER.pack(1, kind, 1, HEADER.size + len(body), 4, 0)
        found.setdefault((kind, body[:40]), head + body)
    return list(found.values())


def reading(flavor: str) -> SecondLog:
    """A log without a server, in the middle of a transaction."""
    log = object.__new__(SecondLog)
    mariadb = flavor == "mariadb"
    log._start = SimpleNamespace(flavor=flavor)  # type: ignore[assignment]
    log._end = SimpleNamespace(file="bin.000009", offset=4)  # type: ignore[assignment]
    log._config = SimpleNamespace(shard="shop/-")  # type: ignore[assignment]
    log._mariadb, log._to_place, log._largest, log._file = mariadb, True, 0, "bin.000001"
    log._decoder = SecondDecoder(database="shop", wants=lambda _: True, mariadb=mariadb)
    log._open, log._group = SecondTransaction(""), True
    return log


def changed(event: bytes, rng: random.Random) -> bytes:
    """The event, cut, or with other bytes behind its type."""
    if rng.random() < 0.5:
        return event[: rng.randint(HEADER.size, len(event))]
    made = bytearray(event)
    for _ in range(rng.randint(1, 4)):
        if len(made) > HEADER.size:
            made[rng.randrange(HEADER.size, len(made))] = rng.choice((0, 1, 0xFE, 0xFF, 250))
    return bytes(made)


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_changed_events_are_read_or_refused(flavor: str) -> None:
    rng, refused = random.Random(7), 0
    for event in whole(flavor):
        tries = [changed(event, rng) for _ in range(CHANGES)]
        for one in (event, event[: HEADER.size], event[: HEADER.size + 1], *tries):
            log = reading(flavor)
            try:
                for found in (*log._ended_by(one), log._open):
                    for rows in found.rows if found else ():
                        rows.changes()
                log._reached(one)
            except (DecodeError, PositionLostError):
                refused += 1
    assert refused


def test_an_event_that_ends_too_early_is_named() -> None:
    log = reading("mariadb")
    head = struct.pack("<IBIIIH", 1, 162, 1, 31, 4, 0)
    with pytest.raises(DecodeError, match="event of type 162 makes no sense") as caught:
        log._ended_by(head + bytes(12))
    assert caught.value.hint


def test_of_two_transactions_with_one_name_the_second_does_not_count() -> None:
    """MySQL 9.7 writes such, and capture leaves the second one out."""
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    start, end = (
        Position(executed=GtidSet.parse("mysql", f"{server}:1-{last}")) for last in (4, 7)
    )
    count = _Count(start, end)
    found = [SecondTransaction(f"{server}:{number}") for number in (5, 6, 5, 4, 7, 8)]
    assert [one.gtid[-1] for one in found if count.takes(one)] == ["5", "6", "7"]
    assert [one.seq for one in found] == [5, 6, 0, 0, 7, 0]
    assert count.complete
