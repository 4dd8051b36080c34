"""A holder that stands still at any step, and wakes at any later step of its successor."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ratchet.merge.maintain
import ratchet.store.delta.commits
import ratchet.store.delta.log
import ratchet.store.rounds
import ratchet.store.takeover
from ratchet.core.errors import TableFileError
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.removals import Removals
from tests.model import late as late_model
from tests.model.late import WrongError, copied, history, prepared, stepping

pytestmark = pytest.mark.slow

LATE = {
    "capture": ("orphans", "capture", "capture"),
    "merge": ("capture", "merge"),
    "dump": ("dump", "merge"),
    "resume": ("half", "resume", "merge"),
    "stop": ("stop", "capture"),
    "upkeep": ("upkeep", "capture"),
    "bundle": ("bundle", "bundle", "capture"),
    "heal": ("heal", "dump", "capture"),
    "repair": ("merge", "repair", "capture"),
    "alter": ("merge", "alter", "compute", "merge"),
    "redump": ("redump", "dump", "merge"),
    "add": ("add", "dump", "merge"),
    "drop": ("drop",),
    "remove": ("remove", "dump"),
    "damage": ("damage", "redump", "dump", "merge"),
}
OTHER = {
    "merge": ("capture", "merge"),
    "dump": ("capture", "dump", "capture", "merge"),
    "resume": ("capture", "resume", "capture", "merge"),
    "upkeep": ("merge", "upkeep", "capture", "merge"),
    "bundle": ("merge", "bundle", "capture", "bundle", "merge"),
    "heal": ("heal", "dump", "capture", "merge"),
    "repair": ("capture", "merge", "repair", "capture", "merge"),
    "alter": ("merge", "alter", "compute", "capture", "merge"),
    "redump": ("capture", "redump", "dump", "capture", "merge"),
    "add": ("add", "capture", "dump", "merge"),
    "drop": ("drop", "capture", "dump", "merge"),
    "remove": ("remove", "capture", "dump", "merge"),
    "damage": ("damage", "redump", "dump", "capture", "merge"),
}
# What a holder can do first of whose table the log is damaged: all else stops it by name.
CLEARS = {"dump", "heal", "redump", "add", "drop", "remove", "damage"}
PAIRS = [(late, other) for late in LATE for other in OTHER if late != "damage" or other in CLEARS]
SOME = 80  # histories of every run of the tests
ALL = 10_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return prepared(tmp_path_factory.mktemp("late") / "lake")


@pytest.fixture(autouse=True)
def _steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with stepping(monkeypatch):
        yield


_known: dict[str, dict[tuple[str, str], tuple[int, int]]] = {}


def lengths_of(source: Lake, folder: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """The lengths, found out once for all tests of a lake: that takes as long as 200 histories."""
    if source.root not in _known:
        _known[source.root] = lengths(source, folder)
    return _known[source.root]


def lengths(source: Lake, folder: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """How many steps both make when the late one is not halted before its end."""
    found = {}
    for late, other in PAIRS:
        lake = copied(source, folder / "probe")
        done = history(lake, LATE[late], OTHER[other], halt=10**9, wake=10**9)
        assert done.error is None, (late, other)
        found[late, other] = done.steps, done.after
        shutil.rmtree(lake.root)
    return found


def explore(source: Lake, folder: Path, count: int, seed: int = 1) -> int:
    """So many histories, drawn from all; how many ended the late one by an error."""
    rng = random.Random(seed)
    long = lengths_of(source, folder)
    refused = 0
    for number in range(count):
        (late, other), (steps, after) = rng.choice(list(long.items()))
        halt, wake = rng.randint(1, steps), rng.randint(1, after + 1)
        lake = copied(source, folder / "one")
        try:
            done = history(lake, LATE[late], OTHER[other], halt=halt, wake=wake)
        except WrongError as error:
            raise WrongError(f"{number}: {late}/{other}, {halt}, {wake}: {error}") from error
        refused += done.error is not None
        shutil.rmtree(lake.root)
    return refused


def test_some_halts(source: Lake, tmp_path: Path) -> None:
    assert explore(source, tmp_path, SOME) > SOME / 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_many_halts(source: Lake, tmp_path: Path, seed: int) -> None:
    assert explore(source, tmp_path, ALL // 10, seed=seed + 10) > ALL / 20


# --- each fence is needed -------------------------------------------------------------------------


def no_look_at_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """Late commits to the round log, the cuts and the tables."""
    patch.setattr(ratchet.store.delta.commits, "check_epoch", lambda *_: None)


def notes_are_shared(patch: pytest.MonkeyPatch) -> None:
    """One folder of states for all epochs."""
    patch.setattr(layout, "noted_path", lambda path, _: path)


def the_round_log_is_not_claimed(patch: pytest.MonkeyPatch) -> None:
    """Late rounds."""
    patch.setattr(ratchet.store.rounds.RoundLog, "claim", lambda *_: None)


def orphans_go_without_a_look(patch: pytest.MonkeyPatch) -> None:
    """Late removals of what the successor has written and not committed yet."""
    patch.setattr(ratchet.merge.maintain, "check_epoch", lambda *_: None)


@pytest.mark.long
def test_without_the_look_before_orphans_go_it_goes_wrong(
    source: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where it looks for them while the successor's file waits for its commit: few steps."""
    orphans_go_without_a_look(monkeypatch)
    with pytest.raises(WrongError, match="No such file"):
        halted_at_first(source, tmp_path)


@pytest.mark.long
def test_a_halt_before_orphans_are_looked_for(source: Lake, tmp_path: Path) -> None:
    """The very same histories, with the look."""
    halted_at_first(source, tmp_path)


def halted_at_first(source: Lake, folder: Path) -> None:
    """A halt before the first step, and each moment to wake."""
    wake, after = 0, 1
    while wake < after:
        wake += 1
        lake = copied(source, folder / "one")
        after = history(lake, LATE["capture"], OTHER["merge"], halt=1, wake=wake).after
        shutil.rmtree(lake.root)


@pytest.mark.long
@pytest.mark.parametrize("other", ["damage", "remove"])
def test_a_table_that_is_made_anew_while_the_late_one_merges(
    source: Lake, tmp_path: Path, other: str
) -> None:
    """Found on 2026-11-30: a commit behind the end of a log that a successor had begun anew; and
    one in its midst, by a late one that had read half of the old log and half of the new one."""
    halted_at_each_step(source, tmp_path, "merge", other)


@pytest.mark.long
@pytest.mark.parametrize("other", ["damage", "remove"])
def test_without_the_look_at_the_commit_before_it_goes_wrong(
    source: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """The very same histories, where the numbers of a log come again as well."""
    genuine = ratchet.store.delta.log.put_commit
    monkeypatch.setattr(late_model, "used_numbers", lambda *_: -1)

    def put(*args: Any, **_: Any) -> bool:
        return genuine(*args)

    monkeypatch.setattr(ratchet.store.delta.commits, "put_commit", put)
    with pytest.raises((WrongError, TableFileError)):
        halted_at_each_step(source, tmp_path, "merge", other)


@pytest.mark.long
@pytest.mark.parametrize("other", ["damage", "remove"])
def test_numbers_that_do_not_come_again_are_enough(
    source: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """As for Spark, which looks at no commit before its own."""
    genuine = ratchet.store.delta.log.put_commit
    monkeypatch.setattr(ratchet.store.delta.commits, "put_commit", lambda *a, **_: genuine(*a))
    halted_at_each_step(source, tmp_path, "merge", other)


@pytest.mark.long
@pytest.mark.parametrize("other", ["dump", "add"])
def test_a_table_that_is_added_again_while_the_late_one_removes_it(
    source: Lake, tmp_path: Path, other: str
) -> None:
    """Found on 2026-11-30: the new dump went on in the log that stood there whole."""
    halted_at_each_step(source, tmp_path, "remove", other)


@pytest.mark.long
def test_without_the_note_of_a_removal_it_goes_wrong(
    source: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very same histories."""
    monkeypatch.setattr(Removals, "begin", lambda *_, **__: None)
    with pytest.raises((WrongError, TableFileError)):
        halted_at_each_step(source, tmp_path, "remove", "add")


def halted_at_each_step(source: Lake, folder: Path, late: str, other: str) -> None:
    """A halt before each step of that one thing, awake when the successor has ended."""
    steps = history(copied(source, folder / "all"), (late,), (), halt=10**9, wake=1).steps
    for halt in range(1, steps + 1):
        lake = copied(source, folder / "one")
        history(lake, (late,), OTHER[other], halt=halt, wake=10**9)
        shutil.rmtree(lake.root)


@pytest.mark.long
@pytest.mark.parametrize(
    "out",
    [
        no_look_at_the_epoch,
        notes_are_shared,
        the_round_log_is_not_claimed,
    ],
)
def test_without_one_of_the_fences_it_goes_wrong(
    source: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    out: Callable[[pytest.MonkeyPatch], None],
) -> None:
    out(monkeypatch)
    with pytest.raises(WrongError):
        explore(source, tmp_path, 2_000)
