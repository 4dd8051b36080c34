"""Verdicts on tables: applied by the merging thread, and only on the doubts that were judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.errors import RetryableError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import TableSchema
from ratchet.jobs.reporting.observe import Record, StopReporter, TableStopped
from ratchet.jobs.watch.verdicts import Outcome, TableVerdict, Verdicts
from ratchet.snapshot.records import TableDumpRequest
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.stops import Doubt, StopReason
from ratchet.store.tables import Tables, TableState

SHARD = "shop/-"
HERE = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
DOUBT = Doubt(message="why", statement="ALTER TABLE t ...", round=3)
WHY = StopReason(message="its rows differ", hint="repair", round=7, differs=True)
WANTED = TableDumpRequest(keyspace="shop", table="t", shards=(SHARD,))


class Stage:
    """A lake with one table, and the verdicts on it."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.tables = lake, Tables(lake)
        self.told: list[Record] = []
        self.mended: list[TableVerdict] = []
        self.failure: RetryableError | None = None
        self.why_not = ""
        self.verdicts = Verdicts(lake, mend=self.mend, stops=StopReporter(self.told.append))
        self.save(doubts={SHARD: DOUBT})

    def mend(self, _: TableState, verdict: TableVerdict) -> str:
        if self.failure is not None:
            raise self.failure
        self.mended.append(verdict)
        return self.why_not

    def save(self, **changes: object) -> None:
        schema = TableSchema(keyspace="shop", table="t", columns=(), key=())
        dump = DumpState(id="d", start_round=1, start={SHARD: HERE})
        state = TableState(
            keyspace="shop", table="t", schema=schema, key=(), phase="streaming", dump=dump,
            merged_round=4,
        )  # fmt: skip
        self.tables.save(replace(state, **changes))  # type: ignore[arg-type]

    @property
    def state(self) -> TableState:
        found = self.tables.load("shop", "t")
        assert found is not None
        return found

    def judge(self, outcome: Outcome, judged: dict[str, Doubt] | None = None) -> None:
        doubts = {SHARD: DOUBT} if judged is None else judged
        why = WHY if outcome == "wrong" else None
        self.verdicts.hand_in(TableVerdict(wanted=WANTED, judged=doubts, outcome=outcome, why=why))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(open_lake(tmp_path / "lake", now=1))


def test_nothing_happens_before_it_is_applied(stage: Stage) -> None:
    stage.judge("right")
    assert stage.verdicts.waits("shop.t")
    assert stage.state.is_doubtful
    stage.verdicts.apply()
    assert not stage.verdicts.waits("shop.t")
    assert (stage.state.phase, stage.state.doubts) == ("streaming", {})


@pytest.mark.parametrize("outcome", ["right", "wrong", "mend"])
def test_a_verdict_on_other_doubts_is_dropped(stage: Stage, outcome: Outcome) -> None:
    """A second statement came, or the doubt came after a comparison that was just due."""
    news = {SHARD: replace(DOUBT, round=8)}
    for judged, doubts in (({SHARD: DOUBT}, news), ({}, {SHARD: DOUBT}), ({SHARD: DOUBT}, {})):
        stage.save(doubts=doubts)
        before = stage.state
        stage.judge(outcome, judged)
        stage.verdicts.apply()
        assert stage.state == before
        assert not stage.mended


@pytest.mark.parametrize("phase", ["new", "dumping", "catching_up", "stopped"])
def test_a_verdict_on_a_table_that_streams_no_more_is_dropped(stage: Stage, phase: str) -> None:
    stage.save(phase=phase, doubts={SHARD: DOUBT})
    before = stage.state
    stage.judge("right")
    stage.verdicts.apply()
    assert stage.state == before


def test_why_rows_were_not_mended_is_kept_until_they_are(stage: Stage) -> None:
    """The stop that follows names it."""
    for why in ("its columns are others", ""):
        stage.why_not = why
        stage.judge("mend")
        stage.verdicts.apply()
        assert stage.verdicts.why_not_mended("shop.t") == why


def test_a_table_that_is_gone(stage: Stage) -> None:
    stage.tables.remove(stage.state)
    stage.judge("wrong")
    stage.verdicts.apply()
    assert stage.tables.load("shop", "t") is None


def test_a_wrong_table_stops_where_the_cut_shows_it(stage: Stage) -> None:
    """The state lags behind the cut; a repair goes on from the round that is merged indeed."""
    Cuts(stage.lake).append(Cut(number=1, round=9, merged_at=1, shards={}, tables={"shop.t": 3}))
    stage.judge("wrong")
    stage.verdicts.apply()
    assert (stage.state.phase, stage.state.stopped) == ("stopped", WHY)
    assert stage.state.merged_round == 9
    assert stage.state.doubts == {SHARD: DOUBT}, "it does not count as right when it goes on"
    assert [one.table for one in stage.told if isinstance(one, TableStopped)] == ["shop.t"]


def test_a_wrong_table_that_was_not_in_doubt_is_from_now_on(stage: Stage) -> None:
    stage.save()
    stage.judge("wrong", {})
    stage.verdicts.apply()
    assert stage.state.doubts.keys() == {SHARD}
    assert stage.state.doubts[SHARD].round == WHY.round
    assert not stage.state.doubts[SHARD].by_shape


def test_mending_that_fails_is_judged_again(stage: Stage) -> None:
    stage.failure = RetryableError("away")
    stage.judge("mend")
    with pytest.raises(RetryableError):
        stage.verdicts.apply()
    assert not stage.verdicts.waits("shop.t")
    stage.failure = None
    stage.judge("mend")
    stage.verdicts.apply()
    assert len(stage.mended) == 1
    assert stage.state.is_doubtful, "until a comparison finds it right"
