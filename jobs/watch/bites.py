"""A bite of a pass: a piece of the source, or a stretch of the mirror, and the keys that seem odd.

Lives here: reading one bite of either, and how far the pass has come with it. Does not live here:
comparing (`snapshot.piecewise`), whether an odd key differs (`secondlook`), when the next bite may
come and what is done about a difference (`background`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from ratchet.core.errors import TableStoppedError
from ratchet.jobs.engine.tempfolder import temporary_folder
from ratchet.jobs.inspect.reading import ReadOptions
from ratchet.jobs.watch.secondlook import SecondLook
from ratchet.jobs.watch.subject import Subject
from ratchet.snapshot.keys import ChunkRange
from ratchet.snapshot.piecewise import read_piece, strangers, suspects
from ratchet.store.files import Lake
from ratchet.store.passes import Pass, Passes

BITE_SECONDS: Final = 0.5  # of reading the source, or the mirror
_KEYS: Final = 4_000  # odd ones, that end a stretch of the mirror
_PART: Final = 16_000_000  # marks that are held in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Bite:
    """What came of a bite.

    Attributes:
        progress: the pass with it.
        odd: the key's columns of rows that seem to differ.
        seconds: how long it took of source and lake.
        last: whether the pass is over with it.
    """

    progress: Pass
    odd: pa.Table
    seconds: float
    last: bool = False


class Bites:
    """Takes the bites of one pass after the other. For one thread.

    Args:
        lake: the lake.
        reading: how sources are read.
        passes: where the marks of keys are kept.
        looks: gives the mirror at a cut.
        stop: set when the run ends.
        clock: seconds, rising.
    """

    def __init__(
        self,
        lake: Lake,
        reading: ReadOptions,
        passes: Passes,
        looks: SecondLook,
        *,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake, self._reading, self._passes, self._looks = lake, reading, passes, looks
        self._stop, self._clock = stop, clock
        self._strangers: Iterator[pa.Table] | None = None

    def begin_again(self) -> None:
        """The next stretch of the mirror is its first one."""
        self._strangers = None

    def next(self, table: Subject, progress: Pass) -> Bite:
        """The next bite.

        Raises:
            NewsError: the table is not any more what it was.
            TableStoppedError: the source has other columns.
            RetryableError: a server stays away, the merge does, or the run ends.
        """
        if progress.shard < len(progress.shards):
            return self._piece(table, progress)
        return self._stretch(table, progress)

    def _piece(self, table: Subject, progress: Pass) -> Bite:
        shard = progress.shards[progress.shard]
        self._reading.settings.throttle.wait(self._reading.shards[shard], self._stop)
        with temporary_folder() as folder:
            piece = read_piece(
                table.sources[shard],
                self._reading.shards,
                shard,
                ChunkRange(after=progress.after),
                compared=table.compared,
                columns=table.columns,
                settings=self._reading.settings,
                seconds=BITE_SECONDS,
                scratch=Lake.at(str(folder)),
            )
        cut = self._looks.cut({shard: piece.seen})
        began = self._clock()
        mirror = self._looks.mirror(table, cut)
        if piece.filled:
            raise TableStoppedError(
                f"the source has columns that the mirror lacks: {', '.join(piece.filled)}",
                operation="compare with the source",
                table=table.state.name,
            )
        odd = suspects(piece, mirror, table.compared)
        marked = self._passes.add(progress, piece.marks)
        after = None if piece.rest is None else piece.rest.after
        return Bite(
            progress=replace(marked, shard=progress.shard + (piece.rest is None), after=after),
            odd=odd,
            seconds=piece.seconds + self._clock() - began,
        )

    def _stretch(self, table: Subject, progress: Pass) -> Bite:
        """Of the mirror's keys, those that no piece had."""
        if self._strangers is None:
            mirror = self._looks.mirror(table, self._looks.cut({}))
            parts = 1 + progress.rows // _PART
            marks = _Marks(self._passes, progress)
            self._strangers = strangers(mirror, table.compared, marks, parts=parts)
        began, last = self._clock(), True
        types = table.compared.printer.types
        found = [pa.schema([types.field(name) for name in table.compared.key]).empty_table()]
        for keys in self._strangers:
            found.append(keys.cast(found[0].schema))
            if self._clock() - began >= BITE_SECONDS or sum(map(len, found)) >= _KEYS:
                last = False
                break
        odd = pa.concat_tables(found)
        return Bite(progress=progress, odd=odd, seconds=self._clock() - began, last=last)


class _Marks:
    """The marks of all pieces of a pass, read anew each time they are asked for."""

    def __init__(self, passes: Passes, progress: Pass) -> None:
        self._passes, self._progress = passes, progress

    def __iter__(self) -> Iterator[Any]:
        return self._passes.marks(self._progress)
