"""A lake whose log of rounds is older than its tables: nothing of it streams on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ratchet.core.errors import LakeError
from ratchet.merge.ages import refuse_other_ages
from ratchet.merge.progress import Progress
from ratchet.store import layout
from ratchet.store.cuts import Cuts
from ratchet.store.rounds import RoundLog
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


def test_a_cut_that_is_ahead_ends_the_run(parted: Source, tmp_path: Path) -> None:
    older(parted, tmp_path, layout.ROUNDS)
    cut = Cuts(parted.lake).last()
    assert cut is not None
    with pytest.raises(LakeError, match=f"shows round {cut.round}, but the log") as refused:
        refuse(parted)
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
