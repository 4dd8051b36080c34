"""Writing rows as the source has them, by the run itself, between two of its merge steps.

Lives here: what those rows were at the newest cut, and writing them there. Does not live here:
which rows (`doubts`, `background`), `ratchet repair`, which compares as well (`repair`).

Invariant: nothing is merged meanwhile, as the thread that merges does it; rows are written only
where the table stands at the newest cut exactly, and the log and a read agree on what they were.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from ratchet.core.errors import TableStoppedError
from ratchet.jobs.inspect.verify import Verifier, newest_at
from ratchet.jobs.recovery.repair import note
from ratchet.jobs.reporting.text import counted
from ratchet.jobs.watch.verdicts import TableVerdict
from ratchet.merge.repair import ExpectedRow, repair_table
from ratchet.snapshot.compare import GROUP
from ratchet.store.cuts import Cuts
from ratchet.store.delta.tables import table_version
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ratchet.core.types import InvalidValuePolicy

log: Final = logging.getLogger("ratchet.jobs.run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mender:
    """Mends rows of a run's tables. For the thread that merges.

    Attributes:
        spark: any session of the application.
        lake: the lake.
        verifier: asks the sources.
        policy: decides about the lake's types.
        check: raises when the lease is lost.
        forget: told of a table that was written to.
    """

    spark: SparkSession
    lake: Lake
    verifier: Verifier
    policy: InvalidValuePolicy
    check: Callable[[], None]
    forget: Callable[[TableState], None]

    def mend(self, state: TableState, verdict: TableVerdict) -> str:
        """Write the rows; why that is not possible, "" if it is done.

        Raises:
            RetryableError: a server stays away, or capture does.
            LakeError: the lake cannot be written.
        """
        cut = Cuts(self.lake).last()
        if cut is None or not cut.shows(state.name):
            return "no cut shows the table"
        known = cut.tables[state.name]
        if newest_at(self.lake, cut, state, known) != table_version(self.lake, state.path):
            return "it is merged further than the newest cut"
        truths = []
        for shard, places in groupby(sorted(verdict.places, key=_shard), key=_shard):
            keys = [key for _, key in places]
            for at in range(0, len(keys), GROUP):
                try:
                    group = keys[at : at + GROUP]
                    found = self.verifier.rows_at(cut, state, verdict.wanted, group)
                except TableStoppedError as error:
                    return error.message
                if found.reason:
                    return found.reason
                if not shard and any(one.is_contested for one in found.keys):
                    return "one of its keys is on several shards"
                for one in found.keys:
                    rows = {shard: one.rows[shard]} if shard else one.rows
                    truths.append(ExpectedRow(key=one.key, shard=shard, rows=rows))
        rounds = RoundLog(self.lake)
        last = rounds.last_number() == cut.round
        self.check()
        version = repair_table(
            self.spark,
            self.lake,
            state,
            truths,
            cut=cut,
            streams=rounds.streams() if last else rounds.streams_at(cut.round),
            policy=self.policy,
            now=time.time_ns() // 1000,
        )
        self.forget(state)
        note(self.lake, cut, {state.name: version})
        log.info("%s: %s corrected", state.name, counted(len(truths), "row"))
        return ""


def _shard(place: tuple[str, Mapping[str, Any]]) -> str:
    return place[0]
