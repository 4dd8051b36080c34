"""Table patterns."""

from __future__ import annotations

import glob

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.patterns import TablePatterns, exclusion


@pytest.mark.parametrize(
    ("patterns", "yes", "no"),
    [
        (("*",), ("a", "_tmp", "ä b"), ()),
        (("*", "!tmp_*"), ("orders", "tmp"), ("tmp_", "tmp_1")),
        (("!tmp_*", "*"), ("orders",), ("tmp_1",)),
        (("!tmp_*",), ("orders",), ("tmp_1",)),
        (("orders", "item?"), ("orders", "items"), ("Orders", "item", "orders2")),
        (("[ab]*", "!ab*"), ("a", "ba"), ("abc", "c")),
        # The helper tables of gh-ost, pt-online-schema-change, spirit and Vitess.
        (
            ("*",),
            ("_a", "a_old", "_new", "_old_a", "_vt", "_a_gho_"),
            ("_a_gho", "_a_ghc", "_a_ghr", "_a_del", "_a_new", "__a_old", "_a_chkpnt", "_vt_hld_a"),
        ),
        (("?a_old", "[_]a_old", "*_old", "!_b_new"), ("a_old",), ("_a_old", "_b_new")),
        (("*", "_a_*"), ("_a_old", "b"), ("_b_old",)),
        (("_*", "!_b_new"), ("_a_old", "_x"), ("_b_new", "b")),
    ],
)
def test_patterns(patterns: tuple[str, ...], yes: tuple[str, ...], no: tuple[str, ...]) -> None:
    value = TablePatterns(patterns)
    assert [t for t in yes if not value.matches(t)] == []
    assert [t for t in no if value.matches(t)] == []


def test_copies_of_mirrored_tables_are_captured() -> None:
    value = TablePatterns(("*", "!b"), copies=True)
    captured = ("a", "_a_gho", "_a_new", "__a_new", "__________a_new", "_a_b_gho")
    assert [t for t in captured if not value.captures(t)] == []
    not_captured = ("b", "_b_gho", "_a_ghc", "_a_del", "_a_old", "_a_chkpnt", "_vt_a")
    assert [t for t in not_captured if value.captures(t)] == []
    assert [t for t in captured[1:] if TablePatterns().captures(t)] == []
    assert TablePatterns(("orders",), folded=True, copies=True).captures("_Orders_GHO") is False
    assert TablePatterns(("orders",), folded=True, copies=True).captures("_Orders_gho")


NAMES = (
    "fx\\",
    'a"b',
    "\\",
    '"',
    "a\\x41",
    "a'b",
    "\x00\x07\t\n\r\x1b\x7f\x80\x85\x9f\xa0\xad",
    "\u2028\u2029\u202e\u200c\ufeff\ufffe\uffff",
    "\U0001f600 \U000e0041 \U0010ffff",
    "*?[a]!#: - &x {y}",
    "Größe",
    " ",
)


@pytest.mark.parametrize("name", NAMES)
def test_an_exclusion_is_yaml(name: str) -> None:
    """It is copied into the config, also from JSON, where nothing else has escaped it."""
    printed = exclusion(name)
    assert printed.isprintable()
    assert yaml.safe_load(f"[{printed}]") == ["!" + glob.escape(name)]
    assert yaml.safe_load(f"tables:\n- {printed}\n") == {"tables": ["!" + glob.escape(name)]}
    (pattern,) = yaml.safe_load(f"[{printed}]")
    assert not TablePatterns(("*", pattern)).matches(name)
    assert TablePatterns(("*", pattern)).matches(f"{name}x")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_exclusion_of_any_name_is_yaml(name: str) -> None:
    printed = exclusion(name)
    assert printed.isprintable()
    (pattern,) = yaml.safe_load(f"[{printed}]")
    assert not TablePatterns((pattern,)).matches(name)
    assert pattern.replace("[$]{", "${") == "!" + glob.escape(name)
