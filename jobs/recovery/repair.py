"""`ratchet repair`: mends what `ratchet verify` finds, without a new dump.

Lives here: the order of a repair (merge what is captured, verify, mend, verify again, note the
cut), which tables are refused, the printing and the exit code. Does not live here: what differs and
what the source had at the cut (`snapshot.verify`), writing it (`merge.repair`).

All happens at the newest cut: what the source wrote after it comes by its log, as ever. So the
mirror shows no moment that it has not reached, and a later run needs to know nothing of a repair.

Invariant: a row is written only if the log and a read of the source agree on what it was at the
cut; "corrected" is said only of rows that a second comparison found to be right.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ratchet.core.errors import TableStoppedError
from ratchet.core.shell import redump
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import source_configs
from ratchet.jobs.config.spelling import with_spelling
from ratchet.jobs.engine.spark import spark_session
from ratchet.jobs.inspect.compared import record_of
from ratchet.jobs.inspect.likeness import unlike
from ratchet.jobs.inspect.reading import ReadOptions, reading_of
from ratchet.jobs.inspect.verify import (
    EXIT_DIFFERENT,
    Verifier,
    VerifyTarget,
    choose,
    describe,
    nothing_to,
)
from ratchet.jobs.recovery.holding import held_lake
from ratchet.jobs.reporting import logs
from ratchet.jobs.reporting.terminal import say
from ratchet.jobs.reporting.text import clock_time, counted, spellings
from ratchet.jobs.topology.begin import refuse_unfitting
from ratchet.jobs.topology.discover import look
from ratchet.jobs.topology.lineage import keyspace_of
from ratchet.jobs.topology.tablets import with_live_shards
from ratchet.jobs.topology.vitess import with_serving_shards
from ratchet.merge.lostparts import refuse_lost
from ratchet.merge.repair import ExpectedRow, repair_table
from ratchet.merge.rounds import Merger
from ratchet.merge.step import MergeOptions
from ratchet.snapshot.verify import Correction, VerifyResult
from ratchet.store.comparisons import Comparisons
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.tables import table_version
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("ratchet.jobs.recovery.repair")

_PASSES: Final = 10  # over one table
_KEYS: Final = 20_000  # that a pass mends: their rows are held in memory
_SHOWN: Final = 100  # rows of a table that --dry-run lists
_AGAIN: Final = "dump it again ({redump})"


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """What became of one table.

    Attributes:
        table: keyspace.table.
        cut: the newest cut afterwards.
        result: the last comparison; None if there was none.
        mended: kind of a difference -> rows that were mended; of a dry run, that would be.
        left: reason -> rows that could not be.
        rows: what a dry run would mend.
        refused: why nothing was done.
    """

    table: str
    cut: Cut
    result: VerifyResult | None = None
    mended: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    rows: list[Correction] = field(default_factory=list)
    refused: str = ""

    @property
    def right(self) -> bool:
        """Whether the table was found to be as its source."""
        return not self.refused and self.result is not None and self.result.same


def run_repair(config: Config, *, tables: Sequence[str], dry_run: bool) -> int:
    """Repair, or say what would be mended, and print; gives the exit code.

    Raises:
        LakeError: the lake is in use, or nothing was merged yet.
        TableStoppedError: no table can be repaired.
        RetryableError: a server stays away. What was mended until then stays.
    """
    lake = open_lake(config.lake, now=0, create=False)
    began = time.monotonic()
    with ExitStack() as stack:
        lake, check = stack.enter_context(
            held_lake(lake, f"ratchet repair {config.path}", dry_run=dry_run)
        )
        refuse_unfitting(config, lake)
        config = with_live_shards(with_serving_shards(config), RoundLog(lake).streams())
        config = with_spelling(config)
        found = look(config.sources, source_configs(config))
        spark = stack.enter_context(spark_session(config, "repair"))
        if not dry_run:
            resume(lake, tables, config.mirrors)
            merge_rest(spark, lake, config, check)
        cut, chosen, left = choose(lake, found, tables, config.mirrors)
        if not chosen:
            hint = "`ratchet status` shows which tables stream; a dump corrects the others"
            if dry_run:
                first = "one that stopped because its rows differ is corrected without --dry-run"
                hint = f"{first}; {hint}"
            raise nothing_to("repair", left, hint)
        reading = reading_of(config, RoundLog(lake).generations())
        repairer = Repairer(config, lake, spark, reading, check=check, dry_run=dry_run)
        outcomes = []
        for one in chosen:
            now = _now()
            outcomes.append(repairer.table(cut, one))
            cut, result = outcomes[-1].cut, outcomes[-1].result
            if result is not None and not dry_run:
                Comparisons(lake).save(record_of(one.state, result, since=now, until=_now()))
            if outcomes[-1].right and not dry_run:
                clear(lake, one, reading)
            _print_outcome(outcomes[-1], dry_run=dry_run)
    _print_summary(outcomes, left, time.monotonic() - began, dry_run=dry_run)
    missed = left if tables else ()
    return 0 if all(one.right for one in outcomes) and not missed else EXIT_DIFFERENT


def resume(
    lake: Lake, names: Collection[str], mirrors: Callable[[str, str], bool]
) -> Sequence[str]:
    """Let tables go on that are stopped because their rows differ, and for nothing else.

    They do not count as right by that: their doubts stay until a comparison finds them equal, by
    this repair or, if that is killed, by the next run.

    Args:
        lake: the lake, whose lease is ours.
        names: only these (table or keyspace.table); all if empty.
        mirrors: whether the config mirrors the table of that keyspace.

    Returns:
        keyspace.table of those that go on.
    """
    tables, rounds = Tables(lake), RoundLog(lake)
    streams, first = rounds.streams(), rounds.first_number()
    resumed = []
    for state in tables.list():
        named = not names or spellings(state.keyspace, state.table) & set(names)
        wanted = named and mirrors(state.keyspace, state.table)
        if not wanted or state.stopped is None or not state.stopped.differs:
            continue
        if not 0 < first <= state.merged_round or not _same_streams(
            state, rounds.streams_at(state.merged_round), streams
        ):
            log.warning(
                "%s stopped too long ago: %s",
                state.name,
                _AGAIN.format(redump=redump(state.name)),
            )
            continue
        tables.save(replace(state, phase="streaming", stopped=None))
        resumed.append(state.name)
    return resumed


def _same_streams(
    state: TableState, then: Mapping[str, StreamState], now: Mapping[str, StreamState]
) -> bool:
    """Whether a keyspace's streams are those of then: nothing between them is missing."""

    def generations(streams: Mapping[str, StreamState]) -> dict[str, int]:
        mine = {s: one for s, one in streams.items() if keyspace_of(s) == state.keyspace}
        return {shard: one.generation for shard, one in mine.items()}

    return generations(then) == generations(now)


def clear(lake: Lake, one: VerifyTarget, reading: ReadOptions) -> None:
    """A comparison found the table's rows as its source's: if it was in doubt, that is over.

    Not if its columns are others there: then it stays in doubt, and the next run says why.
    """
    tables = Tables(lake)
    state = tables.load(one.state.keyspace, one.state.table)
    if state is not None and state.is_doubtful and not unlike(state, one.wanted, reading):
        tables.save(replace(state, doubts={}))


def merge_rest(spark: SparkSession, lake: Lake, config: Config, check: Callable[[], None]) -> None:
    """Merge all that is captured: afterwards no table is ahead of the newest cut.

    A run that was killed in the midst of a step has left some that are.
    """
    options = MergeOptions(policy=config.policy, parallel=config.merge.parallel)
    with Merger(
        spark, lake, options, wanted=lambda state: config.mirrors(state.keyspace, state.table)
    ) as merger:
        worked = True
        while worked:
            check()
            result = merger.step()
            for table, error in result.stopped.items():
                log.warning("%s stops: %s", table, error.message)
            worked = result.worked


class Repairer:
    """Repairs tables in one Spark session.

    Args:
        config: with its live shards.
        lake: the lake.
        spark: the session.
        reading: how sources are read.
        check: raises when the lease is lost.
        dry_run: nothing is written.
    """

    def __init__(
        self,
        config: Config,
        lake: Lake,
        spark: SparkSession,
        reading: ReadOptions,
        *,
        check: Callable[[], None],
        dry_run: bool,
    ) -> None:
        self._policy = config.policy
        self._lake = lake
        self._spark = spark
        self._check = check
        self._dry_run = dry_run
        self._verifier = Verifier(config, lake, spark, reading=reading)

    def table(self, cut: Cut, one: VerifyTarget) -> _Outcome:
        """Repair one table, until a comparison finds it right or nothing more can be mended.

        Raises:
            RetryableError: a server stays away.
            LakeError: the lake cannot be written.
        """
        outcome = _Outcome(table=one.state.name, cut=cut)
        outcome.refused = self._refusal(cut, one)
        if outcome.refused:
            return outcome
        done: set[str] = set()
        log.info("comparing %s", one.state.name)
        for _ in range(_PASSES):
            found: list[Correction] = []
            try:
                outcome.result = self._verifier.once(cut, one, found.append, examined=_KEYS)
            except TableStoppedError as error:
                outcome.refused = f"{error.message}; {error.hint}"
                return outcome
            outcome.refused = _unlike(outcome.result)
            outcome.left = Counter(c.reason for c in found if c.reason)
            todo = [c for c in found if not c.reason and _place(c) not in done]
            if outcome.refused or not todo:
                break
            outcome.mended.update(c.difference.kind for c in todo)
            if self._dry_run:
                outcome.rows = todo
                return outcome
            done |= {_place(c) for c in todo}
            one = replace(one, version=self._mend(cut, one, todo))
            mended = counted(outcome.mended.total(), "row")
            log.info("%s: %s corrected, comparing again", one.state.name, mended)
        if not self._dry_run:
            self._check()
            outcome.cut = note(self._lake, cut, {one.state.name: one.version})
        return outcome

    def _refusal(self, cut: Cut, one: VerifyTarget) -> str:
        refuse_lost(self._lake, one.state, "repair")
        if one.state.phase != "streaming":
            return f"it is in phase {one.state.phase}: let `ratchet run` finish"
        strange = [shard for shard in one.wanted.shards if shard not in cut.shards]
        if strange:
            return (
                f"the newest cut is from before {', '.join(strange)} took over: let `ratchet "
                "run` continue until it has followed the reshard"
            )
        ahead = one.version != table_version(self._lake, one.state.path)
        if ahead and not self._dry_run:
            return "it is merged further than the newest cut: let `ratchet run` continue"
        return ""

    def _mend(self, cut: Cut, one: VerifyTarget, todo: Sequence[Correction]) -> int:
        rounds = RoundLog(self._lake)
        last = rounds.last_number() == cut.round
        self._check()
        return repair_table(
            self._spark,
            self._lake,
            one.state,
            [
                ExpectedRow(key=c.difference.key, shard=c.difference.shard, rows=c.rows)
                for c in todo
            ],
            cut=cut,
            streams=rounds.streams() if last else rounds.streams_at(cut.round),
            policy=self._policy,
            now=time.time_ns() // 1000,
        )


def note(lake: Lake, cut: Cut, versions: Mapping[str, int]) -> Cut:
    """The newest cut with these versions of tables: a new one if it has others.

    It is the same moment of the sources. The cut before goes on showing what it showed.
    """
    if all(cut.tables.get(name) == version for name, version in versions.items()):
        return cut
    after = replace(
        cut,
        number=cut.number + 1,
        merged_at=time.time_ns() // 1000,
        shards={s: replace(one, min_ts=None, max_ts=None) for s, one in cut.shards.items()},
        tables={**cut.tables, **versions},
    )
    Cuts(lake).append(after)
    return after


def _unlike(result: VerifyResult) -> str:
    """Why the rows of a table cannot be written: whole rows are not known."""
    again = _AGAIN.format(redump=redump(result.table))
    if result.columns_missing:
        return f"the mirror lacks columns {', '.join(result.columns_missing)}: {again}"
    if result.columns_extra and result.differences:
        return f"the source has no columns {', '.join(result.columns_extra)}: {again}"
    return ""


def _place(one: Correction) -> str:
    return repr((sorted(one.difference.key.items()), one.difference.shard))


def _now() -> int:
    return time.time_ns() // 1000


def _print_outcome(outcome: _Outcome, *, dry_run: bool) -> None:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(outcome.mended.items()))
    rows = f"{counted(outcome.mended.total(), 'row')} ({kinds})" if kinds else "nothing"
    would = "would correct" if dry_run else "corrected"
    if outcome.refused:
        verdict = "REFUSED"
    elif dry_run:
        verdict = "DIFFERENT" if not outcome.right else "identical"
    else:
        verdict = "identical" if outcome.right else "DIFFERENT"
    say(f"{verdict:<9}  {outcome.table}: {would} {rows}", flush=True)
    if outcome.refused:
        say(f"  {logs.clean(outcome.refused)}")
    for one in outcome.rows[:_SHOWN]:
        say(f"  {describe(one.difference)}")
    if len(outcome.rows) > _SHOWN:
        say(f"  and {len(outcome.rows) - _SHOWN:,} more")
    for reason, count in outcome.left.items():
        say(f"  {counted(count, 'row')} not to be corrected: {logs.clean(reason)}")
    if outcome.result is not None:
        for reason, count in outcome.result.unsettled.items():
            say(f"  {counted(count, 'row')} without a verdict: {logs.clean(reason)}")


def _print_summary(
    outcomes: Sequence[_Outcome], left: Mapping[str, str], seconds: float, *, dry_run: bool
) -> None:
    for name, why in left.items():
        say(f"not looked at: {name}: {why}")
    total = sum(one.mended.total() for one in outcomes)
    wrong = [one for one in outcomes if not one.right]
    tables = counted(len(outcomes), "table")
    if dry_run:
        say(f"{counted(total, 'row')} would be corrected; {tables} compared, nothing was written")
        return
    for one in wrong:
        say(f"what is left of {one.table}: {_advice(one)}")
    verdict = "NOT identical" if wrong else "identical"
    say(f"{verdict}: {counted(total, 'row')} corrected, {tables} compared, {clock_time(seconds)}")


def _advice(one: _Outcome) -> str:
    """What to do about a table that is not right yet."""
    if one.refused or one.result is None:
        return "see the reason above"
    if one.left or one.result.unsettled:
        again = _AGAIN.format(redump=redump(one.table))
        return f"`ratchet run CONFIG --until-caught-up`, then repair once more; else {again}"
    return "its source changes without an entry in the log, or too many rows differ: " + (
        _AGAIN.format(redump=redump(one.table))
    )
