"""The object that a slice's small change files share.

Lives here: what goes into it, and what stays a file of its own. Does not live here: encoding
(`files`), what a round calls a part of it (`store.segments`).

Invariant: at most two files' bytes are held, and an object is put only behind all of its bytes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ratchet.core.errors import LakeError
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake
from ratchet.store.segments import LARGEST_PART, SegmentPart

LARGEST: Final = LARGEST_PART  # tests lower it for this process


@dataclass(frozen=True, slots=True)
class Place:
    """Where a change file came to lie.

    Attributes:
        path: as its round is to name it.
        size: bytes.
    """

    path: str
    size: int


class SegmentWriter:
    """The small change files of one slice, one behind the other.

    Args:
        lake: the lake.
        path: of the segment; it is made when there are two files for it.
    """

    def __init__(self, lake: Lake, path: str) -> None:
        self._lake, self._path = lake, path
        self._first: tuple[str, pa.Buffer] | None = None  # waits for a second one
        self._sink: pa.NativeFile | None = None
        self._end = 0
        self._written: list[str] = []
        self._places: dict[str, Place] = {}

    def add(self, content: pa.Buffer, path: str) -> None:
        """Write a change file.

        Args:
            content: all of it.
            path: where it lies if it stays alone.

        Raises:
            LakeError: it cannot be written.
        """
        if content.size > LARGEST:
            self._put_alone(path, content)
        elif self._first is None and self._sink is None:
            self._first = path, content
        else:
            if self._first is not None:
                (path_before, before), self._first = self._first, None
                self._append(path_before, before)
            self._append(path, content)

    def finish(self) -> dict[str, Place]:
        """Close all; the paths that were given, and where each of these files lies.

        Raises:
            LakeError: they cannot be written.
        """
        if self._first is not None:
            (path, content), self._first = self._first, None
            self._put_alone(path, content)
        self._close()
        return self._places

    def abandon(self) -> None:
        """Remove what was written.

        Raises:
            LakeError: it cannot be removed.
        """
        self._first = None
        with suppress(LakeError):  # what could not be written is removed all the same
            self._close()
        for path in self._written:
            self._lake.delete(path)

    def _append(self, path: str, content: pa.Buffer) -> None:
        with lake_errors("write change files", self._path):
            if self._sink is None:
                self._written.append(self._path)
                self._sink = self._lake.open_output(self._path)
            self._sink.write(content)
        part = SegmentPart(self._path, self._end, content.size)
        self._end += content.size
        self._places[path] = Place(str(part), content.size)

    def _put_alone(self, path: str, content: pa.Buffer) -> None:
        self._written.append(path)
        with lake_errors("write a change file", path), self._lake.open_output(path) as sink:
            sink.write(content)
        self._places[path] = Place(path, content.size)

    def _close(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            with lake_errors("write change files", self._path):
                sink.close()
