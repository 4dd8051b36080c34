"""When a cut asks for the newest version of a table that rests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import ratchet.merge.progress
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge.rounds import Merger
from ratchet.merge.step import LOOK_AGAIN, MergeOptions
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.tables import TableState

SECOND = 10**6


def state(table: str) -> TableState:
    return TableState(
        keyspace="shop",
        table=table,
        schema=TableSchema(keyspace="shop", table=table, columns=(), key=("id",)),
        key=("id",),
        phase="streaming",
        dump=DumpState(id=f"d-{table}", start_round=1, start={}),
    )


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were looked at; each look finds a newer version."""
    seen: list[str] = []

    def newest(_: Lake, path: str, known: int | None) -> int:
        seen.append(path)
        return (known or 0) + 1

    monkeypatch.setattr(ratchet.merge.progress, "newest_version", newest)
    return seen


def versions(lake: Lake, looks: list[str], *moments: int) -> list[tuple[dict[str, int], list[str]]]:
    """What cuts at these moments (seconds) name, and which tables were looked at for them."""
    states = [state("a"), state("b")]
    found = []
    with Merger(cast("Any", None), lake, MergeOptions(policy=InvalidValuePolicy())) as merger:
        for moment in moments:
            looks.clear()
            named = merger._progress.newest(states, None, moment * SECOND)
            found.append((named, sorted(looks)))
            if moment == 1000 + LOOK_AGAIN:
                merger.forget(states[1])
    return found


def test_in_a_folder_each_time(tmp_path: Path, looks: list[str]) -> None:
    first, second = versions(Lake.at(tmp_path), looks, 1000, 1001)
    assert first == ({"shop.a": 1, "shop.b": 1}, ["shop/a", "shop/b"])
    assert second == ({"shop.a": 2, "shop.b": 2}, ["shop/a", "shop/b"])


def test_in_an_object_store_after_a_while_or_when_it_was_cleaned(looks: list[str]) -> None:
    moments = 1000, 1000 + LOOK_AGAIN - 1, 1000 + LOOK_AGAIN, 1001 + LOOK_AGAIN
    first, soon, late, cleaned = versions(Lake.at("s3://bucket/lake"), looks, *moments)
    assert first == ({"shop.a": 1, "shop.b": 1}, ["shop/a", "shop/b"])
    assert soon == ({"shop.a": 1, "shop.b": 1}, [])
    assert late == ({"shop.a": 2, "shop.b": 2}, ["shop/a", "shop/b"])
    assert cleaned == ({"shop.a": 2, "shop.b": 3}, ["shop/b"])
