"""Objects of old rounds go together: every change file stays what it was, through every kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bundle_kit import (
    EVERY,
    HOUR,
    LIMITS,
    SHARDS,
    append,
    bundle,
    changes,
    contents,
    fill,
    named,
    objects,
    put,
    remove,
    rows,
    walk,
)
from lease_kit import hold

from ratchet.core.errors import LakeAwayError, LakeError
from ratchet.core.rounds import Round
from ratchet.merge.bundle import BundleLimits, BundleResult, groups
from ratchet.merge.maintain import prune_change_log, remove_orphans, remove_strays
from ratchet.store import layout
from ratchet.store.bundles import Bundles
from ratchet.store.delta import appendlog
from ratchet.store.delta.commits import LateError
from ratchet.store.files import Lake
from ratchet.store.formats import BUNDLES_FORMAT, HELD_FORMAT, open_lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import LARGEST_PART, object_of, part_of

ROOT = Path(__file__).resolve().parents[3]
ROUNDS = 36


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = hold(open_lake(tmp_path / "lake", now=1))
    fill(found, 1, ROUNDS)
    return found


# --- which rounds go together ---------------------------------------------------------------------


def plain(number: int, *sizes: int) -> Round:
    """A round with files of their own."""
    files = (
        changes("t", SHARDS[0], f"{number}-{at}.parquet", size, number)
        for at, size in enumerate(sizes)
    )
    return Round(number=number, committed_at=0, slices=(), files=tuple(files), events=())


def sizes_of(values: list[Round], **limits: int) -> list[tuple[int, int, int, int, bool]]:
    return [
        (one.first, one.last, one.holding, len(one.objects), one.full)
        for one in groups(values, BundleLimits(**limits))
    ]


def test_rounds_go_together_up_to_each_limit() -> None:
    five = [plain(number, 10, 10) for number in range(1, 6)]
    assert sizes_of(five) == [(1, 5, 5, 10, False)]
    assert sizes_of(five, rounds=2) == [
        (1, 2, 2, 4, True), (3, 4, 4, 4, True), (5, 5, 5, 2, False)
    ]  # fmt: skip
    assert sizes_of(five, objects=5) == sizes_of(five, rounds=2)
    assert sizes_of(five, bytes=59) == sizes_of(five, rounds=2)
    assert sizes_of(five, bytes=60) == [(1, 3, 3, 6, True), (4, 5, 5, 4, False)]
    assert sizes_of(five, bytes=1) == [(n, n, n, 2, n < 5) for n in range(1, 6)], "one at least"
    assert sizes_of([]) == []


def test_rounds_without_objects_count_as_rounds() -> None:
    """The name is that of the last one with an object in it."""
    some = [plain(1, 10), plain(2), plain(3)]
    assert sizes_of(some) == [(1, 3, 1, 1, False)]
    assert sizes_of([plain(1), plain(2)]) == [(1, 2, 0, 0, False)]


def test_large_files_stay() -> None:
    """One of its own is read column by column; as a part it would be read whole."""
    assert sizes_of([plain(1, LARGEST_PART), plain(2, LARGEST_PART + 1)]) == [(1, 2, 1, 1, False)]


def test_large_segments_stay(lake: Lake) -> None:
    number = ROUNDS + 1
    append(RoundLog(lake), number, put(lake, number, SHARDS[0], [b"a" * 200, b"b" * 100]))
    fill(lake, number + 1, number + 9)
    (large,) = {object_of(file.path) for file in walk(lake)[ROUNDS].files}
    before = contents(lake)
    assert bundle(lake, above=ROUNDS, limits=replace(LIMITS, largest=299))[-1].objects == 16
    assert large in named(lake)
    assert remove(lake, now=20 * HOUR) == 16
    assert contents(lake) == before
    assert bundle(lake, above=ROUNDS, limits=replace(LIMITS, largest=300, few=1))[-1].objects == 1
    assert large not in named(lake)
    assert contents(lake) == before


# --- what becomes of them -------------------------------------------------------------------------


def test_every_change_file_stays_what_it_was(lake: Lake) -> None:
    before, table, order = contents(lake), rows(lake), [value.number for value in walk(lake)]
    old = objects(lake)
    done = bundle(lake)
    assert [(one.last, one.objects, one.unread) for one in done] == [
        (10, 20, ()), (20, 20, ()), (30, 20, ()), (35, 10, ())
    ]  # fmt: skip
    assert contents(lake) == before
    assert rows(lake) == table
    assert [value.number for value in walk(lake)] == order == list(range(1, ROUNDS + 1))
    assert len(named(lake)) == 4 + 2, "the newest round is left alone"
    assert objects(lake) == old | named(lake), "readers may hold rounds of before"
    assert sum(one.bytes for one in done) == sum(
        lake.size(path) for path in named(lake) if path.startswith(layout.BUNDLED)
    )
    assert all(part_of(file.path) for value in walk(lake)[:-1] for file in value.files)
    assert remove(lake, now=11 * HOUR - 1) == 0
    assert remove(lake, now=11 * HOUR) == 70
    assert objects(lake) == named(lake)
    assert contents(lake) == before
    assert list(Bundles(lake).each()) == []


def test_a_second_pass_reads_and_does_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    last = bundle(lake)[-1].last
    version = len(lake.list(f"{layout.ROUNDS}/_delta_log"))
    read: list[tuple[int, int]] = []
    genuine = RoundLog._rows

    def noted(self: RoundLog, first: int, end: int) -> object:
        read.append((first, end))
        return genuine(self, first, end)

    monkeypatch.setattr(RoundLog, "_rows", noted)
    assert bundle(lake, above=last) == []
    assert read == []
    # A mark that was lost costs a look.
    assert [one.objects for one in bundle(lake)] == [0, 0, 0]
    assert len(lake.list(f"{layout.ROUNDS}/_delta_log")) == version


def test_young_rounds_and_those_somebody_needs_stay(lake: Lake) -> None:
    assert bundle(lake, now=HOUR + 20 * EVERY - 1, below=99)[-1].last == 19
    assert bundle(lake, above=19, below=25)[-1].last == 24
    assert {n for n, file, _ in contents(lake)} == set(range(1, ROUNDS + 1))
    young = [value for value in walk(lake) if value.number >= 25]
    assert not any(object_of(f.path).startswith(layout.BUNDLED) for r in young for f in r.files)


def test_few_objects_wait_for_more(lake: Lake) -> None:
    """Ten an hour would else be bundles of few, or never be put together."""
    assert [one.last for one in bundle(lake, below=32)] == [10, 20, 30], "two objects are left"
    assert [one.objects for one in bundle(lake, above=30, below=33)] == [4]


def test_a_full_group_with_few_objects_is_passed_over(lake: Lake) -> None:
    log = RoundLog(lake)
    for number in range(ROUNDS + 1, ROUNDS + 30):
        append(log, number, [])
    done = bundle(lake, above=ROUNDS - 1)
    assert [(one.last, one.objects) for one in done] == [(45, 0), (55, 0)]


def test_objects_that_are_gone_or_cut_short_stay_named(lake: Lake) -> None:
    """They end no run, and who needs one is told as before."""
    gone, short = sorted(objects(lake))[:2]
    lake.delete(gone)
    Path(lake.absolute(short)).write_bytes(b"x")
    done = bundle(lake)
    assert sorted(one for group in done for one in group.unread) == [gone, short]
    assert {gone, short} <= named(lake)
    remove(lake, now=20 * HOUR)
    assert short in objects(lake)
    for path in objects(lake):
        if not path.startswith(layout.BUNDLED):
            lake.delete(path)
    fill(lake, ROUNDS + 1, ROUNDS + 4)
    lost = [path for path in objects(lake) if not path.startswith(layout.BUNDLED)]
    for path in lost:
        lake.delete(path)
    kept = objects(lake)
    done = bundle(lake, above=ROUNDS)
    assert done == [BundleResult(last=ROUNDS + 3, unread=done[0].unread)]
    assert len(done[0].unread) == 6
    assert (objects(lake), list(Bundles(lake).each())) == (kept, [])


def test_a_store_that_is_away_is_waited_for(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(lake)

    def away(_self: Lake, path: str) -> bytes | None:
        if path.startswith(layout.CHANGES):
            raise LakeAwayError("timed out")
        return genuine(_self, path)

    genuine = Lake.read_file
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "read_file", away)
        with pytest.raises(LakeAwayError):
            bundle(lake)
    assert remove(lake, now=10 * HOUR) == 0
    assert named(lake) == objects(lake), "what there was of the bundle is gone"
    bundle(lake)
    assert contents(lake) == before


def test_a_lake_of_before_is_read_and_raised(tmp_path: Path) -> None:
    """Earlier versions would remove a bundle with the first of its rounds."""
    root = open_lake(tmp_path / "lake", now=1)
    lake = hold(root)
    fill(lake, 1, 12)

    def form() -> object:
        return lake.read_json(layout.FORMAT_FILE)["format"]

    before = form()
    assert HELD_FORMAT < int(str(before)) < BUNDLES_FORMAT
    bundle(lake, below=2)
    assert form() == before
    bundle(lake)
    assert form() == BUNDLES_FORMAT
    assert open_lake(lake.root, now=1, create=False).root == lake.root


# --- with the rounds' end -------------------------------------------------------------------------


def prune(lake: Lake, number: int) -> None:
    """All rounds below a number."""
    log = RoundLog(lake)
    prune_change_log(lake, log, [], now=number * EVERY, keep=0)
    assert log.first_number() == number


@pytest.mark.parametrize("at_once", [5000, 3])
def test_a_bundle_goes_with_the_last_of_its_rounds(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("ratchet.merge.maintain._ROUNDS_AT_ONCE", at_once)
    bundle(lake)
    remove(lake, now=20 * HOUR)
    before = contents(lake)
    for number in (4, 10, 11, 25, 35, 36):
        prune(lake, number)
        assert contents(lake) == [one for one in before if one[0] >= number]
        assert objects(lake) == named(lake)
        assert remove_strays(lake, RoundLog(lake)) == 0
        assert remove_orphans(lake, RoundLog(lake)) == 0
    assert len(objects(lake)) == 2


def test_rounds_without_files_behind_a_bundle(tmp_path: Path) -> None:
    """It goes with the last round that names it, not with the last that was looked at."""
    lake = hold(open_lake(tmp_path / "lake", now=1))
    fill(lake, 1, 4)
    for number in range(5, 12):
        append(RoundLog(lake), number, [])
    assert [one.objects for one in bundle(lake)] == [8]
    remove(lake, now=20 * HOUR)
    prune(lake, 4)
    assert len(objects(lake)) == 1
    prune(lake, 5)
    assert objects(lake) == set()


# --- kills and late writers -----------------------------------------------------------------------

PROGRAM = """
import sys
from bundle_kit import bundle, remove
from ratchet.store.files import Lake
lake = Lake(sys.argv[1], int(sys.argv[2]))
bundle(lake)
remove(lake, now=12 * 3_600_000_000)
"""


def killed(lake: Lake, point: str) -> None:
    env = {**os.environ, "RATCHET_CRASH_AT": point, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, lake.root, str(lake.epoch)],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr


POINTS = (
    "bundle.copying", "bundle.copying:25", "bundle.before_commit", "bundle.before_commit:2",
    "bundle.after_commit", "bundle.after_commit:4", "bundle.before_removal",
    "bundle.after_removal:2",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_loses_nothing_and_leaves_nothing(
    lake: Lake, point: str, *, taken_over: bool
) -> None:
    before, table = contents(lake), rows(lake)
    killed(lake, point)
    assert contents(lake) == before
    if taken_over:
        lake = hold(lake)
        remove_orphans(lake, RoundLog(lake))
    remove(lake, now=12 * HOUR)
    assert contents(lake) == before
    bundle(lake, now=12 * HOUR)
    remove(lake, now=13 * HOUR)
    assert (contents(lake), rows(lake)) == (before, table)
    assert objects(lake) == named(lake)
    assert len(objects(lake)) == 6
    assert list(Bundles(lake).each()) == []


@pytest.mark.parametrize("point", ["bundle.before_commit", "bundle.after_commit"])
def test_what_a_lost_note_leaves_goes_with_its_rounds(lake: Lake, point: str) -> None:
    """A take-over that copies the notes of one that stands still may miss its last one."""
    before = contents(lake)
    killed(lake, point)
    for one in list(Bundles(lake).each()):
        Bundles(lake).remove(one)
    remove(lake, now=20 * HOUR)
    assert contents(lake) == before
    assert objects(lake) > named(lake)
    prune(lake, 11)
    remove_strays(lake, RoundLog(lake))
    assert objects(lake) == named(lake)


@pytest.mark.parametrize(
    "point", ["bundle.copying:7", "bundle.before_commit", "bundle.after_commit"]
)
def test_one_that_is_late_changes_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """It stands still, another run takes the lake over and does all of it; then it wakes."""
    before = contents(lake)
    name, _, nth = point.partition(":")
    count = [int(nth or 1)]
    heir: list[Lake] = []

    def stand_still(reached: str) -> None:
        count[0] -= reached == name
        if not count[0] and not heir:
            heir.append(hold(lake))
            monkeypatch.undo()
            remove(heir[0], now=12 * HOUR)
            bundle(heir[0], now=12 * HOUR)

    monkeypatch.setattr("ratchet.merge.bundle.reach", stand_still)
    with pytest.raises(LateError):
        bundle(lake)
    assert contents(lake) == before
    with pytest.raises(LateError):
        remove(lake, now=20 * HOUR)
    assert contents(lake) == before
    remove(heir[0], now=13 * HOUR)
    assert contents(lake) == before
    prune(heir[0], ROUNDS)
    remove_strays(heir[0], RoundLog(heir[0]))
    assert objects(lake) == named(lake)


def test_rounds_that_come_meanwhile_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture commits all the time, and now and then puts the log's own files together."""
    before, numbers = contents(lake), iter(range(ROUNDS + 1, 999))

    def written(*args: object, **more: object) -> object:
        made = write(*args, **more)
        number = next(numbers, 0)
        if number < ROUNDS + 4:
            monkeypatch.setattr("ratchet.store.delta.appendlog.write_data_file", write)
            fill(lake, number, number)
            if number == ROUNDS + 2:
                RoundLog(lake)._table.compact()
            monkeypatch.setattr("ratchet.store.delta.appendlog.write_data_file", written)
        return made

    write = appendlog.write_data_file
    monkeypatch.setattr(appendlog, "write_data_file", written)
    bundle(lake, below=ROUNDS)
    monkeypatch.undo()
    assert contents(lake)[: len(before)] == before
    assert [value.number for value in walk(lake)] == list(range(1, ROUNDS + 4))
    assert len(named(lake)) == 4 + 2 * 4


def test_a_log_that_does_not_take_the_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratchet.store.delta.appendlog.commit_files", lambda *_: None)
    with pytest.raises(LakeError, match="at the same moment"):
        bundle(lake)
