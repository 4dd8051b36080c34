"""Table patterns."""

from __future__ import annotations

import pytest

from ratchet.core.patterns import TablePatterns


@pytest.mark.parametrize(
    ("patterns", "yes", "no"),
    [
        (("*",), ("a", "_tmp", "ä b"), ()),
        (("*", "!tmp_*"), ("orders", "tmp"), ("tmp_", "tmp_1")),
        (("!tmp_*", "*"), ("orders",), ("tmp_1",)),
        (("!tmp_*",), ("orders",), ("tmp_1",)),
        (("orders", "item?"), ("orders", "items"), ("Orders", "item", "orders2")),
        (("[ab]*", "!ab*"), ("a", "ba"), ("abc", "c")),
    ],
)
def test_patterns(patterns: tuple[str, ...], yes: tuple[str, ...], no: tuple[str, ...]) -> None:
    value = TablePatterns(patterns)
    assert [t for t in yes if not value.matches(t)] == []
    assert [t for t in no if value.matches(t)] == []
