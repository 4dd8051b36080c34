"""Change files that lie together in one object: a segment, and what a round calls its parts.

Lives here: `SegmentPart`, the only place that makes and reads such a name; and the ways to read a
change file, whether it lies alone or in a segment. Does not live here: writing them
(`ingest.files`), putting those of many rounds together (`merge.bundle`).

A segment is nothing but complete Parquet files, one behind the other. Its index is the record of
the round: `<segment>#<offset>+<length>` in the place of a file's path. No path of ours has a `#` in
it (`layout.encode_part`), so what has none is a file of its own, as all were once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ratchet.core.errors import LakeError, TableFileError
from ratchet.store.files import Lake

# A request for a part costs as much as reading some 4 MB. A larger file is worth one of its own:
# Spark splits it, and only the columns that are asked for are read of it.
LARGEST_PART: Final = 4 << 20
_PART: Final = re.compile(r"([^#]+)#(\d+)\+([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A change file inside a segment.

    Attributes:
        path: the segment's, relative to the lake's root.
        offset: of its first byte.
        length: bytes; at least one.
    """

    path: str
    offset: int
    length: int

    def __str__(self) -> str:
        """What a round calls it."""
        return f"{self.path}#{self.offset}+{self.length}"


def part_of(path: str) -> SegmentPart | None:
    """Where in a segment a change file lies; None: it is a file of its own.

    >>> part_of("a.segment#10+5"), part_of("a.parquet")
    (SegmentPart(path='a.segment', offset=10, length=5), None)

    Args:
        path: as its round has it.

    Raises:
        LakeError: it is neither.
    """
    if "#" not in path:
        return None
    found = _PART.fullmatch(path)
    if found is None:
        raise LakeError(
            f"a round names an impossible change file: {path}",
            operation="read a change file",
            hint="the lake was written by a later version of Ratchet, or is damaged",
        )
    return SegmentPart(found[1], int(found[2]), int(found[3]))


def object_of(path: str) -> str:
    """The object that a change file lies in: the segment, or the file itself.

    Raises:
        LakeError: see part_of.
    """
    part = part_of(path)
    return path if part is None else part.path


def moved(path: str, places: Mapping[str, SegmentPart]) -> str:
    """What a round calls a change file, once the object that it lies in was copied.

    >>> moved("a.segment#10+5", {"a.segment": SegmentPart("b.segment", 100, 20)})
    'b.segment#110+5'

    Args:
        path: as its round had it.
        places: object -> where its copy lies; the others stay where they are.

    Raises:
        LakeError: see part_of.
    """
    part = part_of(path)
    place = places.get(path if part is None else part.path)
    if place is None:
        return path
    if part is None:
        return str(place)
    return str(SegmentPart(place.path, place.offset + part.offset, part.length))


def open_changes(lake: Lake, path: str) -> pa.NativeFile:
    """A change file, to be read at any offset. Of a segment its part is read, by one request.

    Call within `lake_errors` while reading from it.

    Raises:
        LakeError: it is missing, cut short, or cannot be read.
    """
    if part_of(path) is None:
        return lake.open_input(path)
    return pa.BufferReader(read_changes(lake, path))


def read_changes(lake: Lake, path: str) -> pa.Buffer:
    """A change file, whole. Of an object store that is one request.

    Raises:
        LakeError: it is missing, cut short, or cannot be read.
    """
    part = part_of(path)
    if part is None:
        return lake.read_buffer(path)
    found = lake.read_range(part.path, part.offset, part.length)
    if len(found) != part.length:
        raise TableFileError(
            f"{part.path} ends before its part {part.offset}+{part.length}",
            operation="read a change file",
            hint="dump the tables again whose changes were in it: "
            "`ratchet table CONFIG redump TABLE`",
        )
    return pa.py_buffer(found)


def missing(lake: Lake, paths: Iterable[str]) -> list[str]:
    """Those of some change files that are not there any more; each object is asked for once.

    Raises:
        LakeError: the lake cannot be read.
    """
    paths = list(paths)
    there = {path: lake.is_file(path) for path in dict.fromkeys(map(object_of, paths))}
    return [path for path in paths if not there[object_of(path)]]
