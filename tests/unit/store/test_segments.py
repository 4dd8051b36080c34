"""Segments: names of parts, one request for each, and what is gone or cut short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.errors import LakeError
from ratchet.core.rounds import Round
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.formats import PARTS_FORMAT, open_lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import (
    SegmentPart,
    missing,
    object_of,
    open_changes,
    part_of,
    read_changes,
)
from tests.unit.store.test_rounds import make_round

NAMES = st.text(min_size=1, max_size=8)
SHARDS = NAMES.filter(lambda name: "/" not in name)  # it stands between keyspace and shard


@given(NAMES, SHARDS, st.integers(0, 2**63), st.integers(1, 2**63))
def test_a_name_is_read_as_it_was_made(keyspace: str, shard: str, at: int, length: int) -> None:
    path = layout.segment_path(keyspace, round_number=7, shard=f"{keyspace}/{shard}", part=3)
    part = SegmentPart(path, at, length)
    assert part_of(str(part)) == part
    assert object_of(str(part)) == path


@given(NAMES, NAMES)
def test_files_of_their_own_are_no_parts(keyspace: str, table: str) -> None:
    """Also those of tables whose names look like parts: as all lakes of before have them."""
    for name in (table, f"{table}#1+2", f"{table}.segment#1+2", "@segments"):
        path = layout.change_file_path(
            keyspace, name, round_number=1, shard="-", schema="ab", part=0
        )
        assert part_of(path) is None
        assert object_of(path) == path
        assert "/@segments/" not in path


@pytest.mark.parametrize("name", ["a#", "a#1", "a#1+0", "a#-1+2", "a#1+2#3+4", "#1+2", "a#1+2 "])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(LakeError, match="impossible change file"):
        part_of(name)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


def written(lake: Lake) -> SegmentPart:
    path = layout.segment_path("shop", round_number=1, shard="shop/-", part=0)
    with lake.open_output(path) as sink:
        sink.write(b"before|the part|behind")
    return SegmentPart(path, 7, 8)


def test_a_part_is_read_alone(lake: Lake) -> None:
    part = written(lake)
    assert read_changes(lake, str(part)).to_pybytes() == b"the part"
    with open_changes(lake, str(part)) as stream:
        assert stream.size() == 8
        assert stream.read() == b"the part"
    assert read_changes(lake, part.path).size == 22, "a file of its own, whole"
    with open_changes(lake, part.path) as stream:
        assert stream.size() == 22


def test_what_is_cut_short_is_told(lake: Lake) -> None:
    part = written(lake)
    for late in (SegmentPart(part.path, 20, 3), SegmentPart(part.path, 30, 3)):
        with pytest.raises(LakeError, match="ends before its part"):
            read_changes(lake, str(late))


def test_what_is_gone_is_named_and_asked_for_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, asked, is_file = written(lake), [], Lake.is_file

    def counted(self: Lake, path: str) -> bool:
        asked.append(path)
        return is_file(self, path)

    monkeypatch.setattr(Lake, "is_file", counted)
    lost = [str(SegmentPart("gone.segment", at, 1)) for at in range(3)]
    assert missing(lake, [str(part), "gone.parquet", *lost]) == ["gone.parquet", *lost]
    assert asked == [part.path, "gone.parquet", "gone.segment"]
    with pytest.raises(LakeError):
        read_changes(lake, lost[0])


def test_the_first_part_raises_the_lakes_format(lake: Lake) -> None:
    """Earlier versions would call what is in segments gone, and have the tables dumped anew."""

    def form() -> object:
        return lake.read_json(layout.FORMAT_FILE)["format"]

    log = RoundLog(lake)
    log.append(make_round(1, "k/-", 1, 2))
    assert form() == 1
    log.append(_with_parts(make_round(2, "k/-", 2, 3)))
    assert form() == PARTS_FORMAT
    log.append(make_round(3, "k/-", 3, 4))
    assert form() == PARTS_FORMAT
    assert open_lake(lake.root, now=1, create=False) == lake


def _with_parts(value: Round) -> Round:
    return replace(value, files=tuple(replace(f, path="p.segment#0+1") for f in value.files))
