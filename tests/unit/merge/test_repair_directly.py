"""Rows of one shard are repaired without Spark; what needs more is left to it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import ratchet.merge.repair
from ratchet.core.change import REPAIR_IDX
from ratchet.merge.repair import ExpectedRow, newest_repair, repair_table
from ratchet.store.cuts import Cut, Cuts
from tests.merge_kit import POLICY, Source, freeze, merger
from tests.model.reference import Register
from tests.unit.merge.test_directly import put, streaming


class AskedForSparkError(Exception):
    """There is none here."""


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: Any, **__: Any) -> None:
        raise AskedForSparkError

    monkeypatch.setattr(ratchet.merge.repair, "commit_session", ask)


def last_cut(source: Source) -> Cut:
    cut = Cuts(source.lake).last()
    assert cut is not None
    return cut


def mend(source: Source, *keys: int, number: int) -> int:
    """Repair those keys as the server has them now."""
    cut, (name,) = last_cut(source), source.names
    log = source.logs[name]
    truths = [
        ExpectedRow(key={"id": key}, shard="", rows={name: log.rows.get(key)}) for key in keys
    ]
    version = repair_table(
        None, source.lake, source.state, truths,  # type: ignore[arg-type]
        cut=cut, streams=source.rounds.streams(), policy=POLICY, now=source.clock,
    )  # fmt: skip
    place = cut.shards[name]
    for key in keys:
        row = log.rows.get(key)
        rank = (log.life.generation, place.position.seq, REPAIR_IDX + number)
        said = Register(rank, place.latest_ts, None if row is None else freeze(row))
        source.registers[key, name] = said
    return version


@pytest.mark.parametrize("seed", range(6))
def test_what_the_source_has_is_there_and_later_changes_win(tmp_path: Path, seed: int) -> None:
    """Rows that came, went and changed without a word in the log, repaired between rounds."""
    rng = random.Random(seed)
    source = streaming(tmp_path)
    rows = source.logs["shop/-"].rows
    with merger(None, source) as merging:
        for number in range(1, 7):
            for key in rng.sample(range(20), 6):
                source.tx(
                    "-", ("del", key) if key in rows and rng.random() < 0.4 else put(key, "x")
                )
            source.round()
            merging.step()
            source.assert_mirrored()
            keys = rng.sample(range(20), 5)
            for key in keys[:4]:  # the last one is right as it is
                if key in rows and rng.random() < 0.5:
                    del rows[key]
                else:
                    rows[key] = {"id": key, "v": f"unlogged {number}"}
            mend(source, *keys, number=number)
            source.assert_mirrored()
            source.assert_rows()
            merging.forget(source.state)
            assert newest_repair(source.lake, source.state) == last_cut(source).round


def test_a_row_that_is_newer_than_the_cut_is_left_to_spark(tmp_path: Path) -> None:
    """And so is anything else that a merge would not put right."""
    source = streaming(tmp_path)
    with merger(None, source) as merging:
        source.tx("-", put(1, "a"))
        source.round()
        merging.step()
        before = last_cut(source)
        source.tx("-", put(1, "later"))
        source.round()
        merging.step()
    truth = ExpectedRow(key={"id": 1}, shard="", rows={"shop/-": {"id": 1, "v": "b"}})
    options = {"streams": source.rounds.streams(), "policy": POLICY, "now": source.clock}
    cases: list[tuple[Cut, list[ExpectedRow]]] = [
        (before, [truth]),
        (last_cut(source), [ExpectedRow(key={"id": None}, shard="", rows={})]),
        (last_cut(source), [ExpectedRow(key={"id": 1}, shard="shop/-", rows=truth.rows)]),
    ]
    for cut, truths in cases:
        with pytest.raises(AskedForSparkError):
            repair_table(None, source.lake, source.state, truths, cut=cut, **options)  # type: ignore[arg-type]
    source.assert_mirrored()
