"""Sets a table aside whose batch ends the run again and again, so that the others go on.

Lives here: what counts as such an end, and when it has come too often. Does not live here: the
record in the lake (`store.attempts`), stopping a table (`rounds`).

A batch that needs more memory than there is ends a run in one of two ways. The process lives to
tell of it: that counts when the error is raised. Or it is killed, and tells nothing: so whoever
begins a batch large enough for that notes it in the lake before, and takes the note back when it is
done. A table with a note is tried again alone, behind all others: what ends the run then is that
table, whatever else was at work the first time.

Invariant: a table is set aside only where another one's merge went well since the last cut, or in
the same process: what ends every merge (a disk that fails, a fault of ours) is no table's fault. A
batch with nothing beside it in its rounds would hold up all other tables that way. So it gets twice
as many tries, and one table is set aside for all that; no second one before some merge goes well.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ratchet.core.errors import (
    BugError,
    EngineGoneError,
    LakeError,
    OperatorError,
    RatchetError,
    TableStoppedError,
)
from ratchet.core.shell import redump
from ratchet.merge.batch import MergeBatch
from ratchet.store.attempts import Attempt, read_attempts, write_attempts
from ratchet.store.crashpoints import reach
from ratchet.store.files import Lake

# Above these a merge takes much longer than a note in the lake, and memory that may not be there.
HEAVY_BYTES: Final = 16 << 20  # of change files
HEAVY_ROWS: Final = 100_000
_TOLD: Final = 2  # runs that a batch may end with an error
_UNTOLD: Final = 3  # that may end without a word: one of them may have been somebody's kill -9
_KILLED: Final = "each was killed, or Spark's JVM was"


class Attempts:
    """The attempts of one process at the merges of one lake. May be used by several threads."""

    def __init__(self, lake: Lake) -> None:
        """Nothing is read yet."""
        self._lake = lake
        self._lock = threading.Lock()
        self._known: dict[str, Attempt] | None = None
        self._tried: set[str] = set()
        self._went_well: set[str] = set()

    def is_suspect(self, key: str, above: int) -> bool:
        """Whether a run has ended at this batch.

        Args:
            key: app id of the table's merges.
            above: the round that the table holds.
        """
        with self._lock:
            return self._of(key, above).runs > 0

    def exhausted(
        self, key: str, above: int, *, table: str, alone: bool = False
    ) -> TableStoppedError | None:
        """Why a table is set aside; None: its batch is to be tried (again).

        Args:
            key: app id of the table's merges.
            above: the round that the table holds.
            table: keyspace.table.
            alone: whether no other table has anything to be merged with it.
        """
        with self._lock:
            before = self._of(key, above)
            most = _TOLD if before.error else _UNTOLD
            is_proved = bool(self._went_well - {key})
            if not is_proved:
                others = (one for name, one in self._all().items() if name != key)
                if not alone or any(one.aside for one in others):
                    return None
                most *= 2
            if before.runs < most:
                return None
            if not is_proved:
                self._note(key, replace(before, aside=True))
        return TableStoppedError(
            f"its changes have ended {before.runs} runs: {before.error or _KILLED}",
            operation="merge a table",
            table=table,
            hint="give the run more memory (spark.driver_memory, and the machine's own); then "
            f"{redump(table)} dumps it again, while the others continue",
        )

    def begin(self, key: str, above: int, batch: MergeBatch) -> None:
        """Note that a batch is tried, if it is one that may end the process."""
        with self._lock:
            if key in self._tried or not _is_heavy(batch):
                return
            before = self._of(key, above)
            self._note(key, replace(before, runs=before.runs + 1))
            self._tried.add(key)
        reach("merge.attempted")

    def went_well(self, key: str) -> None:
        """A table's batch is merged, by this process or since the last cut."""
        with self._lock:
            self._went_well.add(key)
            self._tried.discard(key)
            known = self._all()
            kept = {name: one for name, one in known.items() if name != key and not one.aside}
            if len(kept) < len(known):
                self._write(kept)

    def failed(self, key: str, above: int, error: RatchetError) -> None:
        """A batch has failed; whether it is to blame shows its error."""
        told = "" if isinstance(error, EngineGoneError) else error.message
        with self._lock:
            before = self._of(key, above)
            if not is_of_the_batch(error):
                if key in self._tried:
                    # Earlier runs ended there all the same: their number stays.
                    self._tried.discard(key)
                    self._note(key, replace(before, runs=before.runs - 1))
                return
            # A large one's attempt was counted when it was noted.
            runs = before.runs if key in self._tried else before.runs + 1
            self._note(key, replace(before, runs=runs, error=told))

    def keep(self, keys: Iterable[str]) -> None:
        """Forget tables, and dumps, that there are no more."""
        with self._lock:
            gone = self._all().keys() - set(keys)
            if gone:
                self._write({key: one for key, one in self._all().items() if key not in gone})
        self._went_well &= set(keys)

    def _all(self) -> dict[str, Attempt]:
        if self._known is None:
            self._known = read_attempts(self._lake)
        return self._known

    def _of(self, key: str, above: int) -> Attempt:
        known = self._all().get(key)
        return known if known is not None and known.above == above else Attempt(above=above)

    def _note(self, key: str, attempt: Attempt | None) -> None:
        """Note it; None, or no run: there is nothing to note."""
        others = {name: one for name, one in self._all().items() if name != key}
        self._write({**others, key: attempt} if attempt and attempt.runs else others)

    def _write(self, attempts: dict[str, Attempt]) -> None:
        write_attempts(self._lake, attempts)
        self._known = attempts


def is_of_the_batch(error: RatchetError) -> bool:
    """Whether a batch may bring an error about: no memory, no Spark left, a fault of ours."""
    if isinstance(error, OperatorError):
        return not isinstance(error, LakeError | TableStoppedError)
    return isinstance(error, BugError)


def _is_heavy(batch: MergeBatch) -> bool:
    rewrites = batch.collapse or bool(batch.truncated) or bool(batch.ancestry)
    return rewrites or batch.bytes > HEAVY_BYTES or batch.rows > HEAVY_ROWS
