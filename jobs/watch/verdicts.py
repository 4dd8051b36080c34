"""What a run's verification decided, done by the thread that merges: nothing of it meets a merge.

Lives here: `TableVerdict`, and `Verdicts`, which carries them from one thread to the other and
applies them. Does not live here: deciding (`doubts`, `background`), mending rows (`mending`).

Invariant: a verdict is about the doubts that were judged. If a table's state has others by the time
it is applied, or has gone on to another phase, nothing happens and it is judged again. A verdict
that a kill kept from being applied is judged again too: the doubts are in the states.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from ratchet.jobs.reporting.observe import StopReporter
from ratchet.snapshot.records import TableDumpRequest
from ratchet.store.crashpoints import reach
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.stops import Doubt, StopReason
from ratchet.store.tables import Tables, TableState

log: Final = logging.getLogger("ratchet.jobs.run")

Outcome = Literal["right", "wrong", "mend"]
# Shard, or "" for all, and the values of a key.
Place = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVerdict:
    """What is to become of a table.

    Attributes:
        wanted: the table.
        judged: its doubts when it was judged; none: it was compared because that was due.
        outcome: "right": the doubts go; "wrong": it stops; "mend": some rows are written as the
            source has them, and the doubts stay.
        why: wrong: the reason.
        places: mend: the rows.
    """

    wanted: TableDumpRequest
    judged: Mapping[str, Doubt]
    outcome: Outcome
    why: StopReason | None = None
    places: Sequence[Place] = field(default=())


Mend = Callable[[TableState, TableVerdict], str]


class Verdicts:
    """The verdicts that wait. `hand_in` and `waits` for any thread, `apply` for the merging one.

    Args:
        lake: the lake.
        mend: writes rows as the source has them; gives why it could not, "" if it could.
        stops: told of tables that stop.
        ring: called when verdicts were applied.
        goes_on: whether a stopped table is dumped again by itself.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        mend: Mend,
        stops: StopReporter,
        ring: Callable[[], None] = lambda: None,
        goes_on: Callable[[TableState], bool] = lambda _: False,
    ) -> None:
        self._tables, self._cuts = Tables(lake), Cuts(lake)
        self._mend, self._stops, self._ring, self._goes_on = mend, stops, ring, goes_on
        self._lock = threading.Lock()
        self._waiting: dict[str, TableVerdict] = {}
        self._failed: dict[str, str] = {}  # table -> why its rows were not written

    def hand_in(self, verdict: TableVerdict) -> None:
        """Have it applied between two merge steps."""
        with self._lock:
            self._waiting[verdict.wanted.name] = verdict
        self._ring()

    def waits(self, table: str) -> bool:
        """Whether a verdict about a table (keyspace.table) is still to be applied."""
        with self._lock:
            return table in self._waiting

    def why_not_mended(self, table: str) -> str:
        """Why the rows of a table were not written when that was last tried; "" if they were."""
        with self._lock:
            return self._failed.get(table, "")

    @property
    def any_waits(self) -> bool:
        """Whether any verdict is still to be applied."""
        with self._lock:
            return bool(self._waiting)

    def apply(self) -> None:
        """Apply all that wait.

        Raises:
            RetryableError: a server stays away while rows are mended; it is tried again.
            LakeError: the lake cannot be written.
        """
        with self._lock:
            verdicts = list(self._waiting.values())
        for verdict in verdicts:
            try:
                self._one(verdict)
            finally:
                with self._lock:
                    self._waiting.pop(verdict.wanted.name, None)
                self._ring()

    def _one(self, verdict: TableVerdict) -> None:
        wanted = verdict.wanted
        reach("verify.before_verdict")
        state = self._tables.load(wanted.keyspace, wanted.table)
        if state is None or state.phase != "streaming" or state.doubts != dict(verdict.judged):
            log.debug(
                "%s: it has changed since it was compared, so it is compared again", wanted.name
            )
        elif verdict.outcome == "right":
            self._tables.save(replace(state, doubts={}))
        elif verdict.outcome == "wrong" and verdict.why is not None:
            self._stop(state, verdict.why)
        else:
            why = self._mend(state, verdict)
            with self._lock:
                self._failed[wanted.name] = why
            if why:
                log.warning("%s: its rows are not corrected: %s", wanted.name, why)

    def _stop(self, state: TableState, why: StopReason) -> None:
        cut = self._cuts.last()
        # The state of a table that nothing happens to lags behind the cut that it is in.
        shown = cut.round if cut is not None and cut.shows(state.name) else 0
        doubt = Doubt(message="its rows were found to differ", statement="", round=why.round)
        shards = state.dump.start if state.dump else {}
        stopped = self._tables.save(
            replace(
                state,
                phase="stopped",
                stopped=why,
                merged_round=max(state.merged_round, shown),
                doubts=state.doubts or dict.fromkeys(shards, doubt),
            )
        )
        if self._goes_on(stopped):
            how = "it is dumped again by itself, and can be read as it was meanwhile"
            log.warning("%s: %s; %s", state.name, why.message, how)
        else:
            self._stops.tell(state.name, why.message, why.hint)
