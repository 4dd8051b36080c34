"""Paths in the lake."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.store import layout

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)


def test_examples() -> None:
    assert doctest.testmod(layout).failed == 0


@given(NAMES)
def test_part_is_one_safe_path_part(name: str) -> None:
    part = layout.encode_part(name)
    assert len(part) <= 200
    assert part not in {"", ".", ".."}
    assert not part.startswith(("_", "."))
    assert not part.endswith(".")
    assert set(part) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$-.@")


@given(NAMES, NAMES)
def test_different_names_have_different_parts(a: str, b: str) -> None:
    assert (layout.encode_part(a) == layout.encode_part(b)) == (a == b)


def test_long_names_stay_apart() -> None:
    a, b = "表" * 63 + "a", "表" * 63 + "b"
    assert layout.encode_part(a) != layout.encode_part(b)
    assert layout.encode_part("@2F") != layout.encode_part("/")


def test_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        layout.encode_part("")


def test_change_file_path_names_round_shard_schema() -> None:
    path = layout.change_file_path(
        "shop", "orders", round_number=7, shard="shop/-80", schema="ab12", part=0
    )
    assert path == "_ratchet/changes/shop/orders/000000000007--80-ab12-0.parquet"


@given(keyspace=NAMES, table=NAMES, path=st.text())
def test_a_tables_name_is_read_from_its_path(keyspace: str, table: str, path: str) -> None:
    """Whole, or not at all; and no path is an error."""
    folders = [
        layout.table_path(keyspace, table),
        layout.side_path(keyspace, table, "d"),
        layout.staged_path(keyspace, table, "d"),
        layout.changes_path(keyspace, table),
    ]
    for folder in folders:
        assert layout.table_of(f"{folder}/x.parquet") in {f"{keyspace}.{table}", ""}
    layout.table_of(path)
