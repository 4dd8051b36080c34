"""Taking a lake over: what a late holder writes is refused, or lands where nobody reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from lease_kit import Passing, hold

from ratchet.core.errors import BugError, LakeError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.merge.ages import refuse_other_ages
from ratchet.merge.maintain import remove_orphans
from ratchet.merge.progress import Progress
from ratchet.store import layout, takeover
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.actions import AppTransaction, CommitInfo, rewrite_info
from ratchet.store.delta.commits import (
    CLOSED,
    EPOCH,
    LateError,
    commit_files,
    committed,
    fence,
    opened,
)
from ratchet.store.delta.log import TableFiles, replay
from ratchet.store.delta.tables import app_version, create_delta_table
from ratchet.store.files import Lake
from ratchet.store.formats import HELD_FORMAT, PARTS_FORMAT, need_format, open_lake
from ratchet.store.lease import Lease
from ratchet.store.notes import Notes, current_epoch, epochs
from ratchet.store.passes import Passes
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState
from ratchet.store.takeover import refuse_later_epoch
from ratchet.store.upkeeps import UpkeepRecord, read_upkeep, write_upkeep

SCHEMA = pa.schema([pa.field("id", pa.int64())])
AT = Position(executed=GtidSet.parse("mariadb", "0-1-5"))


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Each fences by its own means: a link that must be new, a put that depends on what is there.

    What a take-over of a store takes is requests, hundreds of them; so most of these are long.
    """
    if request.param == "folder":
        return open_lake(tmp_path / "lake", now=1)
    return open_lake(request.getfixturevalue("s3_root"), now=1)


def state(table: str, **more: object) -> TableState:
    columns = (Column(name="id", type=ColumnType(name="bigint")),)
    schema = TableSchema(keyspace="k", table=table, columns=columns, key=("id",))
    return replace(
        TableState(keyspace="k", table=table, schema=schema, key=("id",)),
        **more,  # type: ignore[arg-type]
    )


def make_round(number: int) -> Round:
    one = ShardSlice.beginning("k/-", AT, generation=0, now=1, ancestors={})
    return Round(number=number, committed_at=1, slices=(one,), files=(), events=())


def make_cut(number: int) -> Cut:
    return Cut(number=number, round=number, merged_at=1, shards={}, tables={}, stopped=())


def files_of(lake: Lake, path: str) -> TableFiles:
    found = replay(lake, path)
    assert found is not None
    return found


def info(files: TableFiles) -> CommitInfo:
    return rewrite_info("WRITE", read=files.version, now=1)


def test_a_late_round_and_a_late_cut_are_refused(root: Lake) -> None:
    """Also by a log that was opened long ago, and by one that is opened only now."""
    old = hold(root)
    rounds, cuts = RoundLog(old), Cuts(old)
    rounds.append(make_round(1))
    cuts.append(make_cut(1))
    new = hold(root)
    for late in (rounds, RoundLog(old)):
        with pytest.raises(LateError, match="taken this lake over while this one stood still"):
            late.append(make_round(2))
    for cut in (cuts, Cuts(old)):
        with pytest.raises(LateError):
            cut.append(make_cut(2))
    RoundLog(new).append(make_round(2))
    Cuts(new).append(make_cut(2))
    assert RoundLog(root).last_number() == 2
    for number in (2, 3):  # whichever it wanted to write: it is told why not
        with pytest.raises(LateError):
            rounds.append(make_round(number))
        with pytest.raises(LateError):
            cuts.append(make_cut(number))


def test_a_late_commit_to_a_table_is_refused(root: Lake) -> None:
    old = hold(root)
    Tables(old).save(state("t"))
    create_delta_table(old, "k/t", SCHEMA, name="t", description="", now=1)
    known = files_of(old, "k/t")
    new = hold(root)
    for files in (known, files_of(old, "k/t")):
        try:
            done = commit_files(old, "k/t", files, [info(files)])
        except LateError:
            continue
        assert done is None, "made for a version before the fence: another one is there"
    with pytest.raises(LateError):
        opened(old, "k/t", "app", now=1)
    with pytest.raises(LateError):
        fence(old, "k/t", now=1)
    assert files_of(new, "k/t").apps[EPOCH] == new.epoch


@pytest.mark.quick_on("folder")
def test_a_table_that_only_the_late_one_knew_is_fenced_by_the_first_commit(root: Lake) -> None:
    old, new = hold(root), hold(root)
    assert create_delta_table(old, "k/t", SCHEMA, name="t", description="", now=1)
    spark = opened(old, "k/t", "app", now=1)
    files = files_of(new, "k/t")
    assert files.apps == {EPOCH: old.epoch, spark: -1}
    assert commit_files(new, "k/t", files, [info(files)]) is not None
    assert files_of(new, "k/t").apps == {EPOCH: new.epoch, spark: CLOSED}
    with pytest.raises(LateError):
        opened(old, "k/t", "another", now=1)


@pytest.mark.quick_on("folder")
def test_how_far_spark_has_come_is_carried_over(root: Lake) -> None:
    """And what was opened and never used counts for nothing, as if it was not there."""
    old = hold(root)
    create_delta_table(old, "k/t", SCHEMA, name="t", description="", now=1)
    spark = opened(old, "k/t", "used", now=1)
    opened(old, "k/t", "unused", now=1)
    assert app_version(old, "k/t", "used") is None
    files = files_of(old, "k/t")
    done = AppTransaction(app_id=spark, version=7, updated_at=1)
    assert commit_files(old, "k/t", files, [info(files), done]) is not None
    assert app_version(root, "k/t", "used") == 7
    new = hold(root)
    for _ in range(2):
        files = files_of(new, "k/t")
        assert committed(files, "used") == app_version(root, "k/t", "used") == 7
        assert committed(files, "unused") is app_version(root, "k/t", "unused") is None
        fence(new, "k/t", now=1)
    assert files_of(new, "k/t").apps["used"] == 7


def test_what_a_late_one_notes_is_read_by_nobody(root: Lake) -> None:
    old = hold(root)
    tables, passes, comparisons = Tables(old), Passes(old), Comparisons(old)
    tables.save(state("t", merged_round=1))
    passes.save_schedule({"k.t": 1})
    comparison = Comparison(keyspace="k", table="t", dump="d", since=1, until=2, round=3)
    comparisons.save(comparison)
    old.write_json(Notes(old).own(layout.STARTS_FILE), {"k/-": 1})
    write_upkeep(old, UpkeepRecord(logs=1.0))
    new = hold(root)
    tables.save(state("t", merged_round=9))
    tables.save(state("ghost"))
    passes.save_schedule({})
    write_upkeep(old, UpkeepRecord(logs=9.0))
    comparisons.save(replace(comparison, round=9))
    Tables(old).remove(state("t"))
    for lake in (root, new):
        assert [s.merged_round for s in Tables(lake).list()] == [1]
        assert Passes(lake).schedule() == {"k.t": 1}
        assert read_upkeep(lake) == UpkeepRecord(logs=1.0)
        assert Comparisons(lake).last("k", "t") == comparison
        assert lake.read_json(Notes(lake).path(layout.STARTS_FILE)) == {"k/-": 1}


@pytest.mark.quick_on("folder")
def test_a_lake_that_nobody_holds_is_only_read(root: Lake) -> None:
    held = hold(root)
    create_delta_table(held, "k/t", SCHEMA, name="t", description="", now=1)
    files = files_of(root, "k/t")
    for write in (
        lambda: RoundLog(root).append(make_round(1)),
        lambda: Cuts(root).append(make_cut(1)),
        lambda: Tables(root).save(state("t")),
        lambda: commit_files(root, "k/t", files, [info(files)]),
    ):
        with pytest.raises(BugError, match="only read"):
            write()


@pytest.mark.quick_on("folder")
def test_a_lake_of_a_version_without_epochs_is_taken_over_as_it_is(root: Lake) -> None:
    """As it was written: states right below `_ratchet`, a lease without epoch, logs without any."""
    for name in ("a", "b"):
        root.write_json(layout.state_path("k", name), state(name, merged_round=3).to_json())
        create_delta_table(root, f"k/{name}", SCHEMA, name=name, description="", now=1)
        files = files_of(root, f"k/{name}")
        done = AppTransaction(app_id="app", version=3, updated_at=1)
        assert commit_files(root, f"k/{name}", files, [info(files), done]) is not None
    RoundLog(root).append(make_round(1))
    Cuts(root).append(make_cut(1))
    root.write_json(layout.UPKEEP_FILE, UpkeepRecord(logs=2.0).to_json())
    assert len(Tables(root).list()) == 2
    held = hold(root)
    assert [s.merged_round for s in Tables(held).list()] == [3, 3]
    assert app_version(held, "k/a", "app") == 3
    assert read_upkeep(held) == UpkeepRecord(logs=2.0)
    RoundLog(held).append(make_round(2))
    assert root.is_file(layout.state_path("k", "a")), "as long as it may be copied"
    hold(root)
    assert not root.is_file(layout.state_path("k", "a"))
    assert len(Tables(root).list()) == 2


@pytest.mark.quick_on("folder")
def test_versions_without_epochs_are_kept_out(root: Lake) -> None:
    """They would find no states, and dump all tables again."""
    open_lake(root.root, now=1)
    before = root.read_json(layout.FORMAT_FILE)
    hold(root)
    open_lake(root.root, now=1, create=False)
    assert root.read_json(layout.FORMAT_FILE) == {**before, "format": 2}


@pytest.mark.quick_on("folder")
def test_old_notes_go_when_nobody_can_need_them(root: Lake) -> None:
    for epoch in range(1, 5):
        held = hold(root)
        Tables(held).save(state(f"t{epoch}"))
    assert epochs(root) == [3, 4]
    first = root.list(layout.NOTES)[0].path
    assert first.startswith(f"{layout.NOTES}/{3:012d}/")
    assert len(Tables(root).list()) == 4


POINTS = ("before_claim", "after_claim", "after_fences", "before_marker", "after_marker")


class _Stop(BaseException):
    pass


@pytest.mark.quick_on("folder")
@pytest.mark.parametrize("point", POINTS)
def test_a_take_over_that_was_killed_is_done_by_the_next_one(
    root: Lake, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    old = hold(root)
    Tables(old).save(state("t"))
    create_delta_table(old, "k/t", SCHEMA, name="t", description="", now=1)

    def reach(name: str) -> None:
        if name == f"takeover.{point}":
            raise _Stop

    with monkeypatch.context() as patch:
        patch.setattr(takeover, "reach", reach)
        with pytest.raises(_Stop):
            hold(root)
    new = hold(root)
    assert new.epoch > old.epoch
    assert [s.table for s in Tables(root).list()] == ["t"]
    RoundLog(new).append(make_round(1))
    with pytest.raises(LateError):
        RoundLog(old).append(make_round(2))


@pytest.mark.quick_on("folder", "s3-before_claim")
@pytest.mark.parametrize("point", POINTS)
def test_a_take_over_that_is_overtaken_gets_nowhere(
    root: Lake, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """It stands still in the middle, and a third one takes over, works, and is taken over from."""
    old = hold(root)
    Tables(old).save(state("t", merged_round=1))
    create_delta_table(old, "k/t", SCHEMA, name="t", description="", now=1)
    lakes: list[Lake] = []

    def reach(name: str) -> None:
        if name == f"takeover.{point}" and not lakes:
            second = current_lease(root)
            root.write_json(layout.LEASE_FILE, {**second, "machine": "elsewhere"})
            lakes.append(root)
            for merged in (2, 3):
                lakes.append(hold(root))
                Tables(lakes[-1]).save(state("t", merged_round=merged))
            Tables(lakes[-1]).save(state("u"))

    monkeypatch.setattr(takeover, "reach", reach)
    with pytest.raises(LakeError, match=r"taken|lost its lease"):
        hold(root)
    third = lakes[-1]
    assert current_epoch(root) == third.epoch
    assert [(s.table, s.merged_round) for s in Tables(root).list()] == [("t", 3), ("u", 0)]
    RoundLog(third).append(make_round(1))
    RoundLog(third).append(make_round(2))


def current_lease(root: Lake) -> dict[str, object]:
    return root.read_json(layout.LEASE_FILE)


@pytest.mark.quick_on("folder")
def test_late_removals_leave_what_a_successor_has_made(
    root: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late one has looked for orphans, and stood still before it removed what it found."""
    old = hold(root)
    new: list[Lake] = []
    begun: list[int] = []
    change = f"{layout.CHANGES}/k/t/{1:012d}-x-y-1.parquet"
    real: Callable[..., object] = RoundLog.epoch

    def epoch(self: RoundLog) -> object:
        if not begun:
            begun.append(1)
            new.append(hold(root))
            new[0].create_file(change, b"")
            RoundLog(new[0]).append(make_round(1))
        return real(self)

    monkeypatch.setattr(RoundLog, "epoch", epoch)
    with pytest.raises(LateError):
        remove_orphans(old, RoundLog(old))
    assert root.is_file(change)


def test_the_format_is_not_lowered_by_one_that_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the format; before it changes it, its successor commits the first segment."""
    root = open_lake(tmp_path / "lake", now=1)
    late = True

    def halted(name: str) -> Callable[..., object]:
        real = getattr(Lake, name)

        def change(self: Lake, path: str, value: object) -> object:
            nonlocal late
            if late:
                late = False
                need_format(Lake.at(root.root), PARTS_FORMAT)
            return real(self, path, value)

        return change

    for name in ("write_json", "change_json"):
        monkeypatch.setattr(Lake, name, halted(name))
    need_format(root, HELD_FORMAT)
    assert not late
    assert root.read_json(layout.FORMAT_FILE)["format"] == PARTS_FORMAT


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_records_from_before_a_take_over_that_the_tables_know(tmp_path: Path, end: str) -> None:
    """No other run has taken the lake over: it says what is older, and what to do."""
    root = open_lake(tmp_path / "lake", now=1)
    first = Lease.acquire(root, "ratchet run", passing=Passing().time)
    table = first.lake
    create_delta_table(table, "k/t", SCHEMA, name="t", description="", now=1)
    Tables(table).save(state("t", phase="streaming"))
    if end == "clean":
        first.release()
    else:
        first.give_up()
    records = Path(root.absolute(layout.PRIVATE))
    shutil.copytree(records, tmp_path / "backup")
    hold(root)
    hold(root)
    shutil.rmtree(records)
    shutil.copytree(tmp_path / "backup", records)

    def begin() -> None:
        with Lease.acquire(root, "ratchet run", passing=Passing().time) as lease:
            refuse_other_ages(lease.lake, Progress(lease.lake))

    with pytest.raises(LakeError) as caught:
        begin()
    assert not isinstance(caught.value, LateError)
    assert "k/t knows a later take-over than the log of rounds" in caught.value.message
    assert "set `lake` in the config to a new folder" in caught.value.hint
    hold(open_lake(tmp_path / "new", now=1))


def test_one_that_is_overtaken_is_told_so(tmp_path: Path) -> None:
    root = open_lake(tmp_path / "lake", now=1)
    first = hold(root)
    hold(root)
    with pytest.raises(LateError):
        refuse_later_epoch(first, "shop/t")
