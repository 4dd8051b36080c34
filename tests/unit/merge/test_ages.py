"""A lake whose log of rounds is older than its tables: nothing of it streams on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ratchet.core.errors import LakeError
from ratchet.merge.ages import refuse_other_ages
from ratchet.merge.progress import Progress
from ratchet.store import anew, layout
from ratchet.store.anew import clear_place, standing_of
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.lease import Lease
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables
from ratchet.store.takeover import claim, take_over
from tests.direct_kit import put, streaming
from tests.merge_kit import Source, merger

pytestmark = pytest.mark.slow


def go_on(source: Source, key: int) -> None:
    source.tx(source.names[0], put(key, "a"))
    source.round()
    with merger(None, source) as merging:
        merging.step()


def folder(source: Source, path: str) -> Path:
    return Path(source.lake.root.removeprefix("file://"), path)


@pytest.fixture
def parted(tmp_path: Path) -> Source:
    """A lake of two ages: what `older` gives back was so two rounds before."""
    source = streaming(tmp_path / "now")
    go_on(source, 1)
    for path in (layout.ROUNDS, layout.CUTS):
        shutil.copytree(folder(source, path), tmp_path / path)
    go_on(source, 2)
    go_on(source, 3)
    return source


def older(source: Source, tmp_path: Path, *paths: str) -> None:
    for path in paths:
        shutil.rmtree(folder(source, path))
        shutil.copytree(tmp_path / path, folder(source, path))


def refuse(source: Source) -> None:
    refuse_other_ages(source.lake, Progress(source.lake))


def test_a_lake_of_one_age(parted: Source) -> None:
    before = parted.state
    refuse(parted)
    assert parted.state == before


def test_older_cuts_are_what_a_kill_leaves(parted: Source, tmp_path: Path) -> None:
    older(parted, tmp_path, layout.CUTS)
    before = parted.state
    refuse(parted)
    assert parted.state == before


@pytest.mark.parametrize("gone", [False, True])
def test_a_cut_that_is_ahead_ends_the_run(parted: Source, tmp_path: Path, *, gone: bool) -> None:
    """Before anything is changed: what is lost may be put back."""
    older(parted, tmp_path, layout.ROUNDS)
    if gone:
        shutil.rmtree(folder(parted, layout.ROUNDS))
    cut = Cuts(parted.lake).last()
    assert cut is not None
    before = RoundLog(parted.lake).epoch()
    with pytest.raises(LakeError, match=f"shows round {cut.round}, but the log") as refused:
        Lease.acquire(parted.lake, "ratchet run")
    assert RoundLog(parted.lake).epoch() == before
    assert "a copy that was made while no run worked" in refused.value.hint


def test_a_table_that_is_ahead_stops_by_name(parted: Source, tmp_path: Path) -> None:
    """The rows of the next rounds of those numbers would be left out."""
    held = RoundLog(parted.lake).last_number()
    older(parted, tmp_path, layout.ROUNDS, layout.CUTS)
    end = RoundLog(parted.lake).last_number()
    assert end < held
    refuse(parted)
    state = parted.state
    assert state.phase == "stopped"
    assert state.stopped is not None
    assert f"holds round {held}, but the log of rounds ends at {end}" in state.stopped.message
    assert f"`ratchet table CONFIG redump '{state.name}'`" in state.stopped.hint


def commits(source: Source) -> list[Path]:
    return sorted(folder(source, source.state.path).glob("_delta_log/*.json"))


def taken_over(source: Source) -> Lake:
    folder(source, layout.FORMAT_FILE).write_text('{"format": 1}')
    lake = claim(source.lake, 0, "another")
    take_over(lake, "another", lambda: None, now=1)
    return lake


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("lost", [1, 2])
def test_a_table_that_has_lost_its_newest_versions_stops_by_name(
    parted: Source, lost: int, *, fenced: bool
) -> None:
    """A power failure, or a copy of two rounds before: what they held was missing for good."""
    there = commits(parted)
    for path in there[-lost:]:
        path.unlink()
    # A fence would get the number of the first one that is gone.
    lake = taken_over(parted) if fenced else parted.lake
    refuse_other_ages(lake, Progress(lake))
    state = Tables(lake).list()[0]
    assert state.stopped is not None
    ends, shown = len(there) - 1 - lost, len(there) - 1
    assert f"ends at version {ends}, but the newest cut shows version {shown}" in (
        state.stopped.message
    )
    assert f"`ratchet table CONFIG redump '{state.name}'`" in state.stopped.hint


@pytest.mark.parametrize("fenced", [False, True])
def test_a_table_whose_log_is_damaged_stops_by_name(parted: Source, *, fenced: bool) -> None:
    commits(parted)[-1].write_bytes(b"{")
    lake = taken_over(parted) if fenced else parted.lake
    refuse_other_ages(lake, Progress(lake))
    state = Tables(lake).list()[0]
    assert state.stopped is not None
    assert "its log cannot be read" in state.stopped.message
    assert "\n" not in state.stopped.message
    assert f"`ratchet table CONFIG redump '{state.name}'`" in state.stopped.hint


@pytest.mark.parametrize("hurt", ["gone", "empty", "checkpointed"])
def test_a_table_whose_side_table_has_lost_its_newest_version_stops_by_name(
    parted: Source, hurt: str
) -> None:
    """Without its tombstones an older change could bring a row back."""
    parted.tx(parted.names[0], ("del", 2))
    parted.round()
    with merger(None, parted) as merging:
        merging.step()
    state = parted.state
    side = sorted(folder(parted, state.side_path).glob("_delta_log/*.json"))
    assert state.has_side
    assert state.side_version == len(side) - 1 > 0
    refuse(parted)
    assert parted.state.phase == "streaming"
    if hurt == "empty":
        side[-1].write_bytes(b"")
    elif hurt == "gone":
        side[-1].unlink()
    else:  # as the upkeep leaves it: what a checkpoint has needs no commits
        DeltaTable(folder(parted, state.side_path)).create_checkpoint()
        for one in side:
            one.unlink()
    refuse(parted)
    stopped = parted.state.stopped
    if hurt == "checkpointed":
        assert stopped is None
        return
    assert stopped is not None
    what = "its side table's log ends at" if hurt == "gone" else "its log cannot be read"
    assert what in stopped.message


@pytest.mark.parametrize("log", [layout.ROUNDS, layout.CUTS])
def test_an_empty_commit_of_rounds_or_cuts_ends_nothing(parted: Source, log: str) -> None:
    """A power failure: a lost cut is what a kill leaves, and of a round the tables tell."""
    max(folder(parted, log).glob("_delta_log/*.json")).write_bytes(b"")
    if log == layout.CUTS:
        refuse(parted)
        assert parted.state.phase == "streaming"
    else:
        with pytest.raises(LakeError, match="but the log of rounds ends at"):
            Lease.acquire(parted.lake, "ratchet run")


def test_a_new_dump_takes_the_place_of_what_cannot_be_read(parted: Source) -> None:
    state = parted.state
    lake = parted.lake
    assert not clear_place(lake, state.keyspace, state.table, state.path)
    newest = commits(parted)[-1]
    whole = newest.read_bytes()
    newest.unlink()
    shown = standing_of(lake, state)
    assert shown == len(commits(parted)) - 1  # it can be read, and older
    newest.write_bytes(whole[:9])
    assert standing_of(lake, state) is None
    assert clear_place(lake, state.keyspace, state.table, state.path)
    assert commits(parted) == []
    shutil.rmtree(folder(parted, state.path))
    folder(parted, state.path).write_text("somebody's")
    assert clear_place(lake, state.keyspace, state.table, state.path)
    assert not clear_place(lake, state.keyspace, state.table, state.path)


def test_a_damaged_log_that_is_removed_late_is_not_the_successors(
    parted: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stands still between its last look and the removal; another one dumps the table."""
    state, lake = parted.state, parted.lake
    last = commits(parted)[-1]
    whole = {path: path.read_bytes() for path in commits(parted)}
    last.write_bytes(b"{")
    check, looks = anew.check_epoch, iter((False, True))

    def late(*found: Any) -> None:
        check(*found)
        if next(looks, False):
            assert clear_place(lake, state.keyspace, state.table, state.path)
            last.parent.mkdir()
            for path, content in whole.items():
                path.write_bytes(content)

    monkeypatch.setattr(anew, "check_epoch", late)
    assert clear_place(lake, state.keyspace, state.table, state.path)
    assert {path: path.read_bytes() for path in commits(parted)} == whole
