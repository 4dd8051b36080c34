"""What a run does about sources and tables that are not fit to be followed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ratchet.core.errors import RetryableError, SourceUnfitError
from ratchet.core.schema import TableSchema
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.preflight.restarts import Life
from ratchet.jobs.preflight.unfit import (
    FitnessResult,
    UnfitReason,
    UnfitRegister,
    begin_without,
    stop_refused,
)
from ratchet.jobs.reporting.observe import Record, StopReporter, TableStopped
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.tables import Phase, Tables, TableState

LOST = UnfitReason(message="binlog filters is changes of shop are not logged", mend="remove them")
SEEN = UnfitReason(message="binlog_row_image is MINIMAL", mend="SET GLOBAL x;", loses=False)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "ratchet.yaml"
    path.write_text(
        "lake: ./lake\nsources:\n"
        "  shop: {kind: binlog, shards: {'-': {host: a, user: u}}}\n"
        "  more: {kind: binlog, shards: {'-': {host: b, user: u}}}\n"
    )
    return load_config(path)


def save(lake: Lake, keyspace: str, table: str, phase: Phase = "streaming") -> None:
    schema = TableSchema(keyspace=keyspace, table=table, columns=(), key=("id",))
    state = TableState(
        keyspace=keyspace, table=table, schema=schema, key=("id",), phase=phase, merged_round=4
    )
    Tables(lake).save(state)


def phases(lake: Lake) -> dict[str, str]:
    return {state.name: state.phase for state in Tables(lake).list()}


def test_what_is_followed_stops_by_name(lake: Lake) -> None:
    save(lake, "shop", "a")
    save(lake, "shop", "b", "catching_up")
    save(lake, "shop", "c", "dumping")
    save(lake, "more", "mm")
    save(lake, "more", "x")
    engine = UnfitReason(message="its engine is MERGE", mend='exclude it: "!mm"')
    verdict = FitnessResult(sources={"shop": LOST}, tables={"more.mm": engine})
    stop_refused(Tables(lake), verdict)
    assert phases(lake) == {
        "shop.a": "stopped", "shop.b": "stopped", "shop.c": "dumping", "more.mm": "stopped",
        "more.x": "streaming",
    }  # fmt: skip
    state = Tables(lake).load("shop", "a")
    assert state is not None
    assert state.stopped is not None
    assert state.stopped.message == LOST.message
    assert "`ratchet table CONFIG redump 'shop.a'`" in state.stopped.hint
    assert state.stopped.round == 5


def test_a_run_with_no_source_left_does_not_begin(lake: Lake, config: Config) -> None:
    """What leaves no trace in the log stops the tables; what does leave one stops nothing."""
    save(lake, "shop", "a")
    save(lake, "more", "b")
    both = FitnessResult(sources={"shop": SEEN, "more": LOST})
    with pytest.raises(SourceUnfitError, match="binlog_row_image is MINIMAL") as caught:
        begin_without(config, Tables(lake), both)
    assert phases(lake) == {"shop.a": "streaming", "more.b": "stopped"}
    assert "`ratchet dump CONFIG --again 'more.*'`" in caught.value.hint


def test_a_fit_run_is_left_as_it_is(lake: Lake, config: Config) -> None:
    save(lake, "shop", "a")
    assert begin_without(config, Tables(lake), FitnessResult()) == config
    assert phases(lake) == {"shop.a": "streaming"}


def test_a_look_that_fails_leaves_what_was_found(lake: Lake) -> None:
    found = [FitnessResult(), FitnessResult(sources={"shop": LOST}), None]

    def look(_: Mapping[str, Life]) -> FitnessResult:
        verdict = found.pop(0)
        if verdict is None:
            raise RetryableError("away")
        return verdict

    told: list[Record] = []
    save(lake, "shop", "a")
    unfit = UnfitRegister(look, FitnessResult())
    stops = StopReporter(told.append)
    unfit.look()
    unfit.stop(Tables(lake), stops)
    assert phases(lake) == {"shop.a": "streaming"}
    unfit.look()
    unfit.look()
    unfit.stop(Tables(lake), stops)
    unfit.stop(Tables(lake), stops)
    assert phases(lake) == {"shop.a": "stopped"}
    assert [type(one) for one in told] == [TableStopped]
    assert unfit.of("shop", "new") == LOST
    assert unfit.of("more", "t") is None
