"""Tables in doubt whose rows get no verdict, or differ: what becomes of them.

The rest is tried for real.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ratchet.core.errors import TableStoppedError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.jobs.watch import doubts
from ratchet.jobs.watch.doubts import Doubts
from ratchet.jobs.watch.verdicts import TableVerdict
from ratchet.snapshot.errors import ShardsDifferError
from ratchet.snapshot.verify import Correction, Difference, VerifyResult
from ratchet.store.cuts import Cut, CutShard
from ratchet.store.dumpstates import DumpState
from ratchet.store.formats import open_lake
from ratchet.store.stops import Doubt
from ratchet.store.tables import TableState

SHARD = "shop/-"
HERE = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
STATE = TableState(
    keyspace="shop",
    table="t",
    schema=TableSchema(keyspace="shop", table="t", columns=(), key=()),
    key=(),
    phase="streaming",
    dump=DumpState(id="d", start_round=1, start={SHARD: HERE}),
    foreign_keys=(),
    doubts={SHARD: Doubt(message="why", statement="ALTER TABLE t ...", round=3)},
)
FOUND = DiscoveredTable(keyspace="shop", table="t", shards=(SHARD,), rows=9)
WHERE = CutShard(position=HERE, min_ts=1, max_ts=1, latest_ts=1, observed_at=1, generation=0)


class Busy:
    """A source that changes too fast: no comparison says anything of seven rows."""

    def __init__(self) -> None:
        self.looks = 0

    def once(self, cut: Cut, *_: object) -> VerifyResult:
        self.looks += 1
        return VerifyResult(
            table="shop.t", round=cut.round, positions={}, ends={}, source_rows=9, source_bytes=9,
            mirror_rows=9, chunks=1, columns=("id",), unsettled={"too busy": 7},
        )  # fmt: skip


class Given:
    """Takes verdicts."""

    def __init__(self) -> None:
        self.verdicts: list[TableVerdict] = []

    def hand_in(self, verdict: TableVerdict) -> None:
        self.verdicts.append(verdict)

    def waits(self, _: str) -> bool:
        return False

    def why_not_mended(self, _: str) -> str:
        return "its columns are others"


def judge_of(
    folder: Path,
    verifier: object,
    given: Given,
    *,
    look: Callable[[], list[DiscoveredTable]] = lambda: [FOUND],
    ends: bool = False,
) -> Any:
    """Decides about a lake's tables; who compares them and takes verdicts is given."""
    return Doubts(
        open_lake(str(folder), now=0),
        look,
        lambda _: True,
        reading=cast("Any", SimpleNamespace(shards={})),
        verifier=cast("Any", verifier),
        verdicts=cast("Any", given),
        ends=ends,
        observer=lambda _: None,
    )


def cut_of(number: int, *tables: str) -> Cut:
    """The cut of a round, with some tables."""
    return Cut(
        number=number,
        round=number,
        merged_at=1,
        shards={SHARD: WHERE},
        tables=dict.fromkeys(tables, 1),
    )


def judge_one(
    judge: Any, monkeypatch: pytest.MonkeyPatch, number: int, state: TableState = STATE
) -> float:
    """Look at the table at the cut of a round."""
    monkeypatch.setattr(judge._tables, "list", lambda: [state])
    monkeypatch.setattr(judge._cuts, "last", lambda: cut_of(number, "shop.t"))
    wait: float = judge.next_bite()
    return wait


def test_the_servers_are_asked_once_for_many_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ten seconds, and for no statement that came after they were asked."""
    monkeypatch.setattr(doubts, "unlike", lambda *_: "")
    monkeypatch.setattr(doubts, "newest_at", lambda *_: 1)
    clock = [100.0]
    monkeypatch.setattr(doubts.time, "monotonic", lambda: clock[0])
    names = [f"t{n}" for n in range(40)]
    asked: list[float] = []

    def look() -> list[DiscoveredTable]:
        asked.append(clock[0])
        return [
            DiscoveredTable(keyspace="shop", table=name, shards=(SHARD,), rows=9) for name in names
        ]

    compared: list[str] = []

    class Equal:
        def once(self, cut: Cut, chosen: Any, *_: object) -> VerifyResult:
            compared.append(chosen.state.table)
            return VerifyResult(
                table=chosen.state.name, round=cut.round, positions={}, ends={}, source_rows=9,
                source_bytes=9, mirror_rows=9, chunks=1, columns=("id",), unsettled={},
            )  # fmt: skip

    given = Given()
    judge = judge_of(tmp_path, Equal(), given, look=look)

    def decide(statement: int, round_number: int) -> None:
        """All tables are in doubt for a statement; a bite decides about each."""
        doubt = {SHARD: Doubt(message="why", statement=f"ALTER {statement}", round=statement)}
        left = [replace(STATE, table=name, doubts=doubt) for name in names]
        cut = cut_of(round_number, *(f"shop.{name}" for name in names))
        monkeypatch.setattr(judge._cuts, "last", lambda: cut)
        monkeypatch.setattr(judge._tables, "list", lambda: left)
        while left:
            assert judge.next_bite() == 0.0
            left.pop(0)

    decide(3, 3)
    assert (len(compared), asked) == (40, [100.0])
    clock[0] += 6  # within the time, but the statement came after the look
    decide(4, 4)
    assert (len(compared), asked) == (80, [100.0, 106.0])
    clock[0] += 11
    decide(4, 5)
    assert (len(compared), asked) == (120, [100.0, 106.0, 117.0])
    assert {verdict.outcome for verdict in given.verdicts} == {"right"}


@pytest.mark.parametrize("ends", [True, False])
def test_rows_that_never_get_a_verdict(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: bool,  # noqa: FBT001 - a case
) -> None:
    """A run that ends stops the table; one that goes on rests, and tries it again later."""
    monkeypatch.setattr(doubts, "unlike", lambda *_: "")
    monkeypatch.setattr(doubts, "newest_at", lambda *_: 1)
    clock = [100.0]
    monkeypatch.setattr(doubts.time, "monotonic", lambda: clock[0])
    source, given = Busy(), Given()
    judge = judge_of(tmp_path, source, given, ends=ends)
    for number in range(3, 20):
        judge_one(judge, monkeypatch, number)
        if given.verdicts:
            break
    assert source.looks == 5
    if ends:
        (verdict,) = given.verdicts
        assert verdict.outcome == "wrong"
        assert verdict.why is not None
        assert "cannot be compared with the source: 7 rows: too busy" in verdict.why.message
        assert "redump 'shop.t'" in verdict.why.hint
    else:
        assert given.verdicts == []
        clock[0] += 3600
        judge.next_bite()
        assert source.looks == 6


@pytest.mark.parametrize("moving", [0, 7])
@pytest.mark.parametrize(("count", "reason"), [(2, ""), (2, "it is contested"), (3, "")])
def test_rows_that_differ_are_mended_until_it_does_not_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moving: int, count: int, reason: str
) -> None:
    """Three times, also beside rows without a verdict; more than a run mends stop the table."""
    monkeypatch.setattr(doubts, "unlike", lambda *_: "")
    monkeypatch.setattr(doubts, "newest_at", lambda *_: 1)
    monkeypatch.setattr(doubts, "MOST_MENDED", 2)

    class Different:
        def once(self, cut: Cut, _: object, collect: Callable[[Correction], None]) -> VerifyResult:
            for key in range(count):
                found = Difference(key={"id": key}, shard=SHARD, kind="changed", columns=("v",))
                collect(Correction(difference=found, rows={SHARD: {"v": 1}}, reason=reason))
            return VerifyResult(
                table="shop.t", round=cut.round, positions={}, ends={}, source_rows=9,
                source_bytes=9, mirror_rows=9, chunks=1, columns=("id",),
                differences=count, kinds={"changed": count},
                unsettled={"too busy": moving} if moving else {},
            )  # fmt: skip

    given = Given()
    judge = judge_of(tmp_path, Different(), given)
    for number in range(3, 9):
        judge_one(judge, monkeypatch, number)
        if given.verdicts and given.verdicts[-1].outcome == "wrong":
            break
    mended = [] if reason or count > 2 else ["mend"] * 3
    assert [one.outcome for one in given.verdicts] == [*mended, "wrong"]
    assert all(len(one.places) == count for one in given.verdicts if one.outcome == "mend")
    why = given.verdicts[-1].why
    assert why is not None
    assert why.differs
    assert "found after ALTER TABLE t ...: " in why.message
    failed = "; they could not be corrected: its columns are others"
    assert why.message.endswith(failed) == bool(mended)


def test_a_table_that_is_not_listed_for_a_moment_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL does not list a MyISAM table while an ALTER swaps it; five looks without it count."""
    monkeypatch.setattr(doubts, "unlike", lambda *_: "")
    monkeypatch.setattr(doubts, "newest_at", lambda *_: 1)
    clock = [100.0]
    monkeypatch.setattr(doubts.time, "monotonic", lambda: clock[0])
    looks: list[list[DiscoveredTable]] = []
    source, given = Busy(), Given()
    judge = judge_of(tmp_path, source, given, look=lambda: looks.pop(0))
    looks[:] = [[], [], [], [], [FOUND]]
    waits = []
    for _ in range(5):
        waits.append(judge_one(judge, monkeypatch, 3))
        if looks:
            judge_one(judge, monkeypatch, 3)  # too early: it is not asked again
        clock[0] += doubts.LOOK_EVERY
    assert waits == [doubts.LOOK_EVERY] * 4 + [0.0]
    assert (source.looks, given.verdicts) == (1, [])
    monkeypatch.setattr(judge, "_looked", None)
    looks[:] = [[]] * 5
    for _ in range(5):
        judge_one(judge, monkeypatch, 4)
        clock[0] += doubts.LOOK_EVERY
    (verdict,) = given.verdicts
    assert verdict.why is not None
    assert verdict.why.message == "the source no longer has it"


@pytest.mark.parametrize("refusals", [2, 3])
def test_a_comparison_that_the_server_refuses_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    """An ALTER ends a read that had begun; what a server refuses three times stops the table."""
    monkeypatch.setattr(doubts, "unlike", lambda *_: "")
    monkeypatch.setattr(doubts, "newest_at", lambda *_: 1)
    left = [refusals]

    class Refused:
        def once(self, cut: Cut, *_: object) -> VerifyResult:
            left[0] -= 1
            if left[0] >= 0:
                raise TableStoppedError("its definition has changed (1412)", hint="redump TABLE")
            return VerifyResult(
                table="shop.t", round=cut.round, positions={}, ends={}, source_rows=9,
                source_bytes=9, mirror_rows=9, chunks=1, columns=("id",), unsettled={},
            )  # fmt: skip

    given = Given()
    judge = judge_of(tmp_path, Refused(), given)
    assert [judge_one(judge, monkeypatch, 3) for _ in range(3)] == [doubts.LOOK_EVERY] * 2 + [0.0]
    (verdict,) = given.verdicts
    assert verdict.outcome == ("right" if refusals == 2 else "wrong")


def test_shards_that_differ_are_dumped_again_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement goes from shard to shard, and no row has shown it. Such a table stayed stopped
    for good when the last shard had been altered."""
    monkeypatch.setattr(doubts, "unlike", lambda *_: "")
    monkeypatch.setattr(doubts, "newest_at", lambda *_: 1)
    monkeypatch.setattr(Doubts, "_may_yet_come", lambda *_: False)

    class Refused:
        def once(self, *_: object) -> VerifyResult:
            raise ShardsDifferError("the shards' columns differ: v", hint="redump TABLE")

    given = Given()
    assert judge_one(judge_of(tmp_path, Refused(), given), monkeypatch, 3) == 0.0
    (verdict,) = given.verdicts
    assert verdict.outcome == "wrong"
    assert verdict.why is not None
    assert verdict.why.altered


@pytest.mark.parametrize("ends", [False, True])
def test_a_statement_that_is_still_in_the_log_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    """The source has other columns. Only if all that it had executed explains none is that odd."""
    later = Position(executed=GtidSet.parse("mariadb", "0-1-6"))
    clock, given = [100.0], Given()
    monkeypatch.setattr(doubts, "unlike", lambda *_: "it has a column more")
    monkeypatch.setattr(doubts, "require_all_committed", lambda *_: None)
    monkeypatch.setattr(doubts, "seen_positions", lambda *_: {SHARD: later})
    monkeypatch.setattr(doubts.time, "monotonic", lambda: clock[0])
    judge = judge_of(tmp_path / "lake", Busy(), given, ends=ends)
    for number in range(3, 9):
        judge_one(judge, monkeypatch, number)
        clock[0] += 8
    assert given.verdicts == []
    if ends:  # a run that captures no more would wait for good
        clock[0] += 60
    else:
        cut = replace(cut_of(9, "shop.t"), shards={SHARD: replace(WHERE, position=later)})
        monkeypatch.setattr(judge._cuts, "last", lambda: cut)
    judge.next_bite()
    (verdict,) = given.verdicts
    assert verdict.why is not None
    assert verdict.why.altered


@pytest.mark.parametrize("between", ["another doubt", "another column", "compared"])
def test_columns_seen_before_another_statement_say_nothing_of_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """A table under one ALTER after the other was dumped again for a column that the log, a second
    later, told of: it had been seen with other columns before, and the log had gone past that."""
    told = ["it has a column more"]
    monkeypatch.setattr(doubts, "unlike", lambda *_: told[0])
    monkeypatch.setattr(doubts, "newest_at", lambda *_: 1)
    monkeypatch.setattr(doubts, "require_all_committed", lambda *_: None)
    far = [Position(executed=GtidSet.parse("mariadb", f"0-1-{n}")) for n in (6, 7)]
    seen = iter(far)
    monkeypatch.setattr(doubts, "seen_positions", lambda *_: {SHARD: next(seen)})
    given = Given()
    judge = judge_of(tmp_path / "lake", Busy(), given)
    judge_one(judge, monkeypatch, 3)
    state = STATE
    if between == "another doubt":
        again = Doubt(message="again", statement="ALTER TABLE t ...", round=3)
        state = replace(STATE, doubts={SHARD: again})
    elif between == "another column":
        come = Column(name="x", type=ColumnType(name="int"))
        state = replace(STATE, schema=replace(STATE.schema, columns=(come,)))
    else:
        told[0] = ""
        judge_one(judge, monkeypatch, 4)
        told[0] = "the source no longer has column x"
    monkeypatch.setattr(doubts.time, "monotonic", lambda: 1e9)  # a comparison rests
    monkeypatch.setattr(judge._tables, "list", lambda: [state])
    for number, position in ((5, far[0]), (6, far[1])):
        cut = replace(cut_of(number, "shop.t"), shards={SHARD: replace(WHERE, position=position)})
        monkeypatch.setattr(judge._cuts, "last", lambda at=cut: at)
        judge.next_bite()
        assert len(given.verdicts) == (number == 6)
