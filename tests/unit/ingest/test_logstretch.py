"""Which rounds are compared with a server's log as one."""

from __future__ import annotations

from dataclasses import replace

from event_kit import SERVER

from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.logstretch import stretches
from ratchet.jobs.inspect.logrounds import LogReadOptions
from ratchet.store.files import Lake
from ratchet.wire.connect import SourceConfig


def at(number: int) -> Position:
    return Position(executed=GtidSet.parse("mysql", f"{SERVER}:1-{number}"))


def value(number: int, *copies: str, transactions: int = 1) -> Round:
    piece = ShardSlice.beginning("shop/a", at(number), generation=1, now=1)
    piece = replace(piece, end=at(number + 1), transactions=transactions)
    return Round(number=number, committed_at=1, slices=(piece,), files=(), events=(), copies=copies)


def test_rounds_with_changes_of_copies_and_without_them_are_apart() -> None:
    """The rows of a transaction are numbered over all tables that are captured."""
    rounds = [value(1), value(2), value(3, "shop/b"), value(4, "shop/a"), value(5, "shop/a")]
    found = stretches(rounds, "shop/a")
    assert [(one.rounds, one.copies) for one in found] == [((1, 3), False), ((4, 5), True)]


def test_a_round_without_transactions_goes_with_any() -> None:
    """As the one in which a stream begins."""
    quiet = {number: value(number, transactions=0) for number in (1, 3)}
    found = stretches([quiet[1], value(2, "shop/a"), quiet[3], value(4, "shop/a")], "shop/a")
    assert [(one.rounds, one.copies) for one in found] == [((1, 4), True)]
    assert [one.copies for one in stretches([quiet[1]], "shop/a")] == [None]


def test_copies_are_looked_at_where_they_were_captured() -> None:
    source = SourceConfig(shard=ShardId("shop", "a"), host="h", user="u", database="shop")
    reading = LogReadOptions(
        lake=Lake("/nowhere"),
        source=source,
        policy=InvalidValuePolicy(),
        patterns=TablePatterns(("t",), copies=True),
        tables=frozenset({"old"}),
    )
    names = ["t", "old", "_t_new", "_t_ghc", "u"]
    assert [n for n in names if reading.wants(n, copies=True)] == ["t", "old", "_t_new"]
    assert [n for n in names if reading.wants(n, copies=False)] == ["t", "old"]
