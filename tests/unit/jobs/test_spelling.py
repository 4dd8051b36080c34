"""Which of a server's databases a config means."""

from __future__ import annotations

import pytest

from ratchet.core.errors import SourceUnfitError
from ratchet.core.patterns import TablePatterns
from ratchet.core.shard import ShardId
from ratchet.jobs.config.spelling import Spelling, spelled
from ratchet.wire.session import SourceConfig


def source(database: str) -> SourceConfig:
    return SourceConfig(shard=ShardId("shop", "-"), host="h", user="u", database=database)


def test_the_servers_own_spelling_counts() -> None:
    """lower_case_table_names 0, 1 (names in lower case) and 2 (as they were created)."""
    assert spelled(source("Shop"), ["Shop", "shop"], folded=False) == Spelling("Shop", folded=False)
    assert spelled(source("Shop"), ["mysql", "shop"], folded=True) == Spelling("shop", folded=True)
    assert spelled(source("SHOP"), ["Shop"], folded=True) == Spelling("Shop", folded=True)


def test_another_case_is_another_database() -> None:
    with pytest.raises(SourceUnfitError, match="no such database") as raised:
        spelled(source("Shop"), ["shop"], folded=False)
    assert "did you mean 'shop'? Letter case matters" in raised.value.hint
    with pytest.raises(SourceUnfitError) as raised:
        spelled(source("shpo"), ["information_schema", "shop"], folded=True)
    assert "did you mean 'shop'?" in raised.value.hint


def test_patterns_are_compared_as_the_server_does() -> None:
    patterns = ("Orders", "TP*", "!tp_Old*")
    folded = TablePatterns(patterns, folded=True)
    assert [t for t in ("orders", "tp_1", "TP_NEW", "tp_older") if folded.matches(t)] == [
        "orders",
        "tp_1",
        "TP_NEW",
    ]
    assert folded.missing(["ORDERS"]) == []
    plain = TablePatterns(patterns)
    assert [t for t in ("orders", "tp_1", "TP_NEW") if plain.matches(t)] == ["TP_NEW"]
    assert plain.missing(["orders"]) == ["Orders"]
