"""What of the change log is removed, and when: segments and files of their own alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.core.rounds import Round
from ratchet.merge.maintain import prune_change_log, remove_orphans, remove_strays
from ratchet.store import layout
from ratchet.store.segments import object_of, part_of
from ratchet.store.tables import Tables
from tests.merge_kit import Source, merger
from tests.unit.merge.test_directly import streaming

IN_SEGMENTS = pytest.mark.parametrize("in_segments", [0.0, 1.0])


def rounds(root: Path, in_segments: float, count: int = 4) -> Source:
    """A source whose change log has that many rounds with changes."""
    source = streaming(root)
    source.in_segments = in_segments
    for number in range(count):
        row = {column.name: None for column in source.schema.columns}
        source.tx("-", ("put", {**row, "id": number}))
        source.round()
    return source


def objects(source: Source) -> list[str]:
    return [file.path for file in source.lake.list(layout.CHANGES)]


def merged_rounds(root: Path, in_segments: float) -> tuple[Source, Round]:
    """The same, merged; and its newest round."""
    source = rounds(root, in_segments)
    with merger(None, source) as merging:
        while merging.step().worked:
            pass
    last = source.rounds.last()
    assert last is not None
    return source, last


@IN_SEGMENTS
def test_what_no_round_names_is_removed(tmp_path: Path, in_segments: float) -> None:
    """As a kill between a slice's files and its round leaves it."""
    source = rounds(tmp_path, in_segments)
    named, last = objects(source), source.rounds.last_number()
    about = {"round_number": last + 1, "shard": "shop/-", "part": 5}
    for path in (
        layout.segment_path("shop", **about),  # type: ignore[arg-type]
        layout.change_file_path("shop", "t", schema="ab", **about),  # type: ignore[arg-type]
    ):
        source.lake.create_file(path, b"x")
    assert len(objects(source)) == len(named) + 2
    assert remove_orphans(source.lake, source.rounds) == 2
    assert objects(source) == named


@IN_SEGMENTS
def test_what_is_old_and_merged_is_removed(tmp_path: Path, in_segments: float) -> None:
    source, last = merged_rounds(tmp_path, in_segments)
    held = [file.path for file in last.files]
    assert [part_of(path) is not None for path in held] == [bool(in_segments)]
    before = source.lake.list(layout.CHANGES)
    named = [file for one in source.rounds.since(0)[:-1] for file in one.files]
    done = prune_change_log(
        source.lake, source.rounds, Tables(source.lake).list(), now=last.committed_at, keep=0
    )
    assert objects(source) == [object_of(path) for path in held]
    kept = source.lake.list(layout.CHANGES)
    assert done.files == len(before) - len(kept) > 2
    assert done.bytes == sum(file.bytes for file in named)


@IN_SEGMENTS
def test_what_a_slice_that_failed_has_left_is_removed(tmp_path: Path, in_segments: float) -> None:
    """Its number became another round's; with the rounds of its age it goes, and not before."""
    source, last = merged_rounds(tmp_path, in_segments)
    named = objects(source)
    for number in (1, last.number):
        about = {"round_number": number, "shard": "shop/-", "part": 5}
        path = layout.segment_path("shop", **about)  # type: ignore[arg-type]
        source.lake.create_file(path, b"x")
    assert remove_strays(source.lake, source.rounds) == 0
    states = Tables(source.lake).list()
    prune_change_log(source.lake, source.rounds, states, now=last.committed_at, keep=0)
    assert remove_strays(source.lake, source.rounds) == 1
    assert objects(source) == sorted([*named[-1:], path])
