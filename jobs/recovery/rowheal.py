"""Healing a mirror row by row, where a server has lost transactions that are mirrored.

Lives here: letting the streams go on at the parting, what of each table that leaves to be done,
and doing it. Does not live here: where the histories part (`parting`), which rows are touched
(`lostrows`), what is dumped where this does not do (`gaps`), writing rows (`merge.repair`).

The stream begins anew at the parting, one generation above. Every row that the mirror took from
behind it is read again and written as it was at the parting; from there the log goes on. All other
rows stand as they are, whatever their number.

Invariant: a table's state says that rows of it are to be read again before the stream begins, and
it streams on only when they have been. Killed in between, `ratchet heal` goes on; if the stream had
not begun, nothing has happened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ratchet.core.errors import TableStoppedError
from ratchet.core.rounds import ChangeFile, Round, ShardSlice
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import source_configs
from ratchet.jobs.inspect.verify import Verifier
from ratchet.jobs.recovery.repair import merge_rest
from ratchet.jobs.reporting.text import counted
from ratchet.jobs.topology.discover import look
from ratchet.jobs.topology.gaps import begin_after_a_gap, dump_of_heirs
from ratchet.jobs.topology.lineage import keyspace_of
from ratchet.jobs.topology.lostrows import Keys, lost_files, lost_keys, too_much, why_a_dump
from ratchet.jobs.topology.parting import DivergencePoint
from ratchet.merge.repair import ExpectedRow, repair_table
from ratchet.snapshot.compare import GROUP
from ratchet.snapshot.records import TableDumpRequest
from ratchet.snapshot.rows import frozen_row
from ratchet.snapshot.rowsat import KeyAt
from ratchet.store.anew import to_be_dumped
from ratchet.store.crashpoints import reach
from ratchet.store.cuts import Cut, Cuts, CutShard
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.store.stops import RowRecovery, StopReason
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("ratchet.jobs.run")

_WAITS: Final = "its source lost transactions, and the rows they touched are not read again yet"
_GO_ON: Final = "`ratchet heal CONFIG` continues with it"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealPlan:
    """What the partings of a keyspace's shards mean for its tables.

    Attributes:
        rows: keyspace.table -> how many rows are to be read again; none: the table streams on.
        dumps: keyspace.table -> why the shards' rows have to be dumped again instead.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    dumps: Mapping[str, str] = field(default_factory=dict)


def plan_heal(
    lake: Lake, rounds: RoundLog, partings: Sequence[DivergencePoint], policy: InvalidValuePolicy
) -> HealPlan:
    """What is to be done about the tables of one keyspace.

    Args:
        lake: the lake.
        rounds: its round log.
        partings: of all its shards that have one; at least one.
        policy: decides about the lake's types.

    Raises:
        LakeError: the lake cannot be read.
    """
    by_shard = {parting.shard: parting for parting in partings}
    behind = rounds.since(min(parting.round for parting in partings))
    rows, dumps = {}, {}
    for state in Tables(lake).list(keyspace_of(partings[0].shard)):
        if state.phase not in {"dumping", "catching_up", "streaming"}:
            continue
        if why := why_a_dump(lake, state, behind, by_shard, policy):
            dumps[state.name] = why
        else:
            rows[state.name] = _count(lost_keys(lake, state, _files(state, behind, by_shard)))
    return HealPlan(rows=rows, dumps=dumps)


def heal_rows(
    config: Config,
    lake: Lake,
    spark: SparkSession,
    partings: Sequence[DivergencePoint],
    *,
    check: Callable[[], None],
    now: Callable[[], int],
) -> Mapping[str, str]:
    """Let streams go on at their partings, with everything that this takes.

    Args:
        config: with its live shards.
        lake: the lake, whose lease is ours.
        spark: any session of the application.
        partings: of the shards; of a keyspace, all whose servers cannot go on.
        check: raises when the lease is lost.
        now: microseconds UTC.

    Returns:
        keyspace.table -> what has become of it, for people.

    Raises:
        RetryableError: a server stays away; what is left to do is in the tables' states.
        OperatorError: the lake cannot be written.
    """
    log.info("merging what is captured first")
    merge_rest(spark, lake, config, check)
    rounds, cut = RoundLog(lake), Cuts(lake).last()
    # Only of what is merged to the end it is known that nothing else is to come from behind.
    last = rounds.last_number()
    whole = set(filter(cut.shows, cut.tables)) if cut and cut.round == last else set()
    told: dict[str, str] = {}
    ordered = sorted(partings, key=lambda one: one.shard)
    for _, group in groupby(ordered, key=lambda one: keyspace_of(one.shard)):
        check()
        plan = plan_heal(lake, rounds, mine := list(group), config.policy)
        told |= _begin(lake, rounds, mine, plan, whole=whole, now=now())
    return {**told, **finish_healing(config, lake, spark, check=check)}


def undo_unbegun(lake: Lake) -> Mapping[str, str]:
    """Let the tables stream on of which a killed heal had only said that they wait.

    Returns:
        keyspace.table -> what has become of it, for people.

    Raises:
        LakeError: the lake cannot be written.
    """
    rounds = RoundLog(lake)
    tables = [_Table(lake, rounds, state) for state in waiting_tables(lake)]
    return {table.name: table.undo() for table in tables if not table.may_have_begun()}


def finish_healing(
    config: Config, lake: Lake, spark: SparkSession, *, check: Callable[[], None]
) -> Mapping[str, str]:
    """Heal the tables that wait for it; gives what has become of them.

    Raises:
        RetryableError: a server stays away.
        OperatorError: the lake cannot be written.
    """
    rounds, told = RoundLog(lake), {}
    waiting = waiting_tables(lake)
    if not waiting:
        return {}
    sources = {one.name: one for one in look(config.sources, source_configs(config))}
    verifier = Verifier(config, lake, spark)
    for state in waiting:
        check()
        found = sources.get(state.name)
        wanted = TableDumpRequest(
            keyspace=state.keyspace,
            table=state.table,
            shards=() if found is None else found.shards,
            shard_in_key=state.shard_in_key,
        )
        table = _Table(lake, rounds, state)
        told[state.name] = table.heal(verifier, wanted, _Writer(lake, spark, config.policy))
        log.info("%s: %s", state.name, told[state.name])
        reach("heal.after_table")
    merge_rest(spark, lake, config, check)
    return told


def waiting_tables(lake: Lake) -> list[TableState]:
    """The tables of which rows are still to be read again."""
    return [one for one in Tables(lake).list() if one.stopped and one.stopped.healing]


def _begin(
    lake: Lake,
    rounds: RoundLog,
    partings: Sequence[DivergencePoint],
    plan: HealPlan,
    *,
    whole: Collection[str],
    now: int,
) -> dict[str, str]:
    """Begin the streams of one keyspace's partings; the tables that are dumped by it, and why."""
    streams, number = rounds.streams(), rounds.last_number() + 1
    healing = RowRecovery(round=number, parted={one.shard: one.round for one in partings})
    waits = StopReason(message=_WAITS, hint=_GO_ON, round=number, healing=healing)
    unmerged = [name for name in plan.rows if name not in whole]
    dumps = {**dict.fromkeys(unmerged, "it is not merged completely"), **plan.dumps}
    slices = []
    for one in partings:
        stream = streams[one.shard]
        log.warning(
            "%s continues after round %d, where the server's history and the mirror's diverge",
            one.shard,
            one.round,
        )
        slices.append(
            ShardSlice.beginning(
                one.shard, one.position, generation=stream.generation + 1, now=now,
                ancestors=stream.ancestors, seen=stream.seen,
            )
        )  # fmt: skip
    begin_after_a_gap(
        lake,
        rounds,
        keyspace_of(partings[0].shard),
        slices,
        now=now,
        spared={name: waits if n else None for name, n in plan.rows.items() if name in whole},
    )
    reach("heal.begun")
    return {name: f"to be dumped again: {why}" for name, why in dumps.items()}


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes what rows were."""

    lake: Lake
    spark: SparkSession
    policy: InvalidValuePolicy

    def write(
        self,
        state: TableState,
        truths: Sequence[ExpectedRow],
        cut: Cut,
        streams: Mapping[str, StreamState],
    ) -> None:
        """See merge.repair."""
        repair_table(
            self.spark,
            self.lake,
            state,
            truths,
            cut=cut,
            streams=streams,
            policy=self.policy,
            now=time.time_ns() // 1000,
        )


class _Table:
    """One table that waits."""

    def __init__(self, lake: Lake, rounds: RoundLog, state: TableState) -> None:
        assert state.stopped is not None  # noqa: S101 - for the type checker
        assert state.stopped.healing is not None  # noqa: S101
        self._lake, self._rounds, self._state = lake, rounds, state
        self._tables = Tables(lake)
        self._healing = state.stopped.healing
        self._streams = rounds.streams()

    @property
    def name(self) -> str:
        """keyspace.table."""
        return self._state.name

    def may_have_begun(self) -> bool:
        """Whether the streams began anew, or that is not known any more."""
        kept = self._rounds.first_number() < self._healing.round
        return not kept or self.begun() is not None

    def begun(self) -> Mapping[str, StreamState] | None:
        """The streams as they began anew; None if they did not. The rounds must be kept."""
        number = self._healing.round
        if number > self._rounds.last_number():
            return None
        before, begun = (self._rounds.streams_at(n) for n in (number - 1, number))
        anew = all(begun[s].generation > before[s].generation for s in self._healing.parted)
        return begun if anew else None

    def undo(self) -> str:
        """The streams have not begun anew, so nothing has happened; what has become of it."""
        self._save(phase="streaming", stopped=None)
        return "continues to stream"

    def heal(self, verifier: Verifier, wanted: TableDumpRequest, writer: _Writer) -> str:
        """Read its rows again, or say that it is dumped; what has become of it."""
        number, parted = self._healing.round, self._healing.parted
        if self._rounds.first_number() > min(parted.values()):
            return self._dump_all("the rounds in question are no longer kept")
        begun = self.begun()
        if begun is None:
            return self.undo()
        mine = [shard for shard in begun if keyspace_of(shard) == self._state.keyspace]
        now = {shard: stream.generation for shard, stream in self._streams.items()}
        if any(now.get(shard) != begun[shard].generation for shard in mine):
            return self._dump_all("its shards have since begun from scratch")
        behind = [r for r in self._rounds.since(min(parted.values())) if r.number < number]
        try:
            return self._by_rows(verifier, wanted, writer, behind, begun)
        except TableStoppedError as error:
            return self._dump_shards(error.message, begun)

    def _by_rows(
        self,
        verifier: Verifier,
        wanted: TableDumpRequest,
        writer: _Writer,
        behind: Sequence[Round],
        begun: Mapping[str, StreamState],
    ) -> str:
        state, parted = self._state, self._healing.parted
        # Nothing that a parted stream held then was committed later, by its shard's clock.
        times = {s: self._rounds.streams_at(number)[s].ts for s, number in parted.items()}
        cut = _cut_at(self._healing.round, begun, times)
        if not wanted.shards:
            return self._dump_all("the sources do not have it")
        files = lost_files(state, behind, parted)
        if why := too_much(self._lake, files):
            return self._dump_shards(why, begun)
        by_shard = lost_keys(self._lake, state, files)
        log.info("%s: reading %s again", state.name, counted(_count(by_shard), "row"))
        groups = by_shard.items() if state.shard_in_key else [("", _all(state, by_shard))]
        for shard, keys in groups:
            for at in range(0, len(keys), GROUP):
                found = verifier.rows_at(cut, state, wanted, keys[at : at + GROUP])
                contested = not shard and any(one.is_contested for one in found.keys)
                if found.reason or contested:
                    why = found.reason or "one of its keys is on several shards"
                    return self._dump_shards(why, begun)
                writer.write(state, [_truth(one, shard) for one in found.keys], cut, begun)
        self._save(phase="streaming", merged_round=self._healing.round, stopped=None)
        return f"read again: {counted(_count(by_shard), 'row')}"

    def _dump_shards(self, why: str, begun: Mapping[str, StreamState]) -> str:
        """Have the rows of the shards that began anew dumped."""
        number, keyspace = self._healing.round, self._state.keyspace
        heirs = [
            ShardSlice.beginning(shard, begun[shard].position, generation=begun[shard].generation,
                                 now=0)
            for shard in self._healing.parted
        ]  # fmt: skip
        streams = {s: one for s, one in self._streams.items() if keyspace_of(s) == keyspace}
        streaming = replace(self._state, phase="streaming")
        dump = dump_of_heirs(streaming, streams, heirs, merged=number, then=begun)
        if dump is None:
            return self._dump_all(why)
        self._save(phase="dumping", dump=dump, stopped=None)
        return f"to be dumped again, only {', '.join(dump.read)}: {why}"

    def _dump_all(self, why: str) -> str:
        self._tables.save(to_be_dumped(self._lake, self._state))
        return f"to be dumped again: {why}"

    def _save(self, **changes: object) -> None:
        self._tables.save(replace(self._state, **changes))  # type: ignore[arg-type]


def _cut_at(number: int, streams: Mapping[str, StreamState], times: Mapping[str, int]) -> Cut:
    """The moment at which streams begin anew, as the cut that a repair asks for.

    Args:
        number: its round.
        streams: as they begin, or stand.
        times: shard -> commit time of its newest transaction, where a stream does not tell.
    """
    shards = {
        shard: CutShard(
            position=stream.position,
            min_ts=None,
            max_ts=None,
            latest_ts=times.get(shard, stream.ts),
            observed_at=stream.ts,
            generation=stream.generation,
        )
        for shard, stream in streams.items()
    }
    return Cut(number=0, round=number, merged_at=0, shards=shards, tables={})


def _truth(one: KeyAt, shard: str) -> ExpectedRow:
    """What a key of a shard, or of all shards if none is named, was at the cut."""
    rows = {shard: one.rows[shard]} if shard else one.rows
    return ExpectedRow(key=one.key, shard=shard, rows=rows)


def _files(
    state: TableState, behind: Sequence[Round], partings: Mapping[str, DivergencePoint]
) -> list[ChangeFile]:
    return lost_files(state, behind, {shard: one.round for shard, one in partings.items()})


def _all(state: TableState, keys: Keys) -> list[Mapping[str, object]]:
    """The keys of all shards, each once."""
    return list({frozen_row(k, state.key): k for found in keys.values() for k in found}.values())


def _count(keys: Keys) -> int:
    return sum(len(found) for found in keys.values())
