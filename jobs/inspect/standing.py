"""Where each shard and table stands, from the lake and a look at the servers.

Lives here: gathering, judging the state and the lag. Does not live here: telling it (`status`),
anything that needs Spark.

Invariant: a lag is an interval that holds the true value as long as the clocks are no further apart
than `merge.clock_bound_ms`; nothing is claimed when the server cannot be asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from ratchet.core.errors import (
    BehindError,
    LakeAwayError,
    LakeError,
    PositionLostError,
    RatchetError,
    SourceUnfitError,
)
from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.core.shard import ShardId
from ratchet.ingest.binlog.history import check_position
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.settings import SourceSection
from ratchet.jobs.config.sources import source_configs
from ratchet.jobs.config.spelling import with_noted_spelling
from ratchet.jobs.reporting.terminal import visible
from ratchet.jobs.reporting.text import one_line
from ratchet.jobs.topology.lag import seen_until, tables_lag
from ratchet.jobs.topology.tablets import with_live_shards
from ratchet.jobs.topology.vitess import with_shards
from ratchet.store.anew import is_readable
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.tables import open_delta, query
from ratchet.store.endings import Ending, Endings
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import Holder, is_alive, read_holder
from ratchet.store.leftout import LeftOutTable, LeftOutTables
from ratchet.store.logchecks import LogChecks, ShardLogChecks
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import StopReason
from ratchet.store.tables import Tables, TableState
from ratchet.wire.connect import SourceConfig
from ratchet.wire.continues import check_continues
from ratchet.wire.session import Session

if TYPE_CHECKING:
    from deltalake import DeltaTable

State = Literal["idle", "streaming", "disconnected", "behind", "lost", "aside", "stopped", "dead"]
Follower = Literal["running", "ended", "dead"]

# How many rounds back a shard's newest slice is looked for.
_ROUNDS_BACK = 50
_BY_ITSELF: Final = "a run tries by itself to bring it up to date (docs/schema-changes.md)"
_DAMAGED = "its log in the lake cannot be read"
_DAMAGED_HINT = (
    "the next run dumps it again if it was being dumped; otherwise it stops it, and says what to do"
)
_ASIDE = "the run continues without it, and tries again from time to time"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """One shard.

    Attributes:
        shard: keyspace/shard.
        state: idle (a run follows it, and there is nothing new), streaming (a run follows it),
            disconnected (the server does not answer), behind (it lacks what the mirror holds, and
            may still get it), lost (it cannot go on from where the mirror
            stands), stopped (no run follows it), dead (the one that did was killed).
        reason: why it is neither idle nor streaming.
        position: what the change log holds of it, in the server's notation; "" before the first
            round.
        file: binlog file of that position, "" if unknown.
        offset: offset in that file.
        observed_at: when it was last read, microseconds UTC; None before the first round.
        lag_min: seconds that the change log is behind the server at least; None if unknown.
        lag_max: and at most.
        held: whether its newest slice was held back, so that the other shards come as far.
        odd_ts: a commit time that its log had lately and that cannot be, microseconds UTC; None:
            none.
    """

    shard: str
    state: State
    reason: str
    position: str
    file: str
    offset: int
    observed_at: int | None
    lag_min: float | None
    lag_max: float | None
    held: bool = False
    odd_ts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One table.

    Attributes:
        keyspace: its keyspace.
        table: its name.
        phase: new, dumping, catching_up, streaming, doubtful (it streams, and is still to be
            compared with its source) or stopped; "excluded" if the config leaves it out and it is
            in the lake from before.
        rows: rows in the Delta table; None before there is one.
        version: its Delta version; None before there is one.
        round: it holds everything up to this round.
        last_change: when its newest Delta commit was made, microseconds UTC.
        stopped: why it is stopped, "" if it is not.
        hint: what to do about that.
        doubts: why it is doubtful: what happened, where, and since which round.
        compared: what its last comparison with the source came to; None if there was none since
            its dump.
    """

    keyspace: str
    table: str
    phase: str
    rows: int | None
    version: int | None
    round: int
    last_change: int | None
    stopped: str
    hint: str
    doubts: tuple[str, ...] = ()
    compared: Comparison | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Everything.

    Attributes:
        lake: where it lies.
        run: who runs on it: host, pid, command, started, and `last_sign` where it is on another
            machine, so that only that is known; None if nobody.
        round: the newest round in the change log.
        merged: the round of the newest cut; 0 before the first one.
        tables_lag_max: seconds that the streaming tables are behind the servers at most; None if
            unknown.
        shards: see ShardStatus.
        tables: see TableStatus.
        change_rounds: how many the change log has.
        change_bytes: the size of their change files.
        samples: per shard what samples of its log came to, that a second decoder read.
        left_out: tables that the config names and the run does not mirror, with the reason.
        ended: the error that ended the last run; None if none did, or one is there again.
    """

    lake: str
    run: Mapping[str, Any] | None
    round: int
    merged: int
    tables_lag_max: float | None
    shards: tuple[ShardStatus, ...]
    tables: tuple[TableStatus, ...]
    change_rounds: int
    change_bytes: int
    samples: tuple[ShardLogChecks, ...] = ()
    left_out: tuple[LeftOutTable, ...] = ()
    ended: Ending | None = None


def gather(config: Config) -> Status:
    """Ask the lake and the servers.

    Raises:
        LakeError: there is no lake, or it is not ours.
    """
    lake = open_lake(config.lake, now=0, create=False)
    config = with_noted_spelling(config, lake)
    holder = read_holder(lake)
    running = holder if holder is not None and is_alive(holder) is not False else None
    follower: Follower = "running" if running else "ended" if holder is None else "dead"
    rounds = RoundLog(lake)
    last = rounds.last_number()
    streams = rounds.streams()
    positions = {shard: stream.position for shard, stream in streams.items()}
    config = with_live_shards(with_shards(config, _shards_of(positions), {}), streams)
    recent = rounds.since(max(last - _ROUNDS_BACK, rounds.first_number() - 1)) if last else []
    slices = newest_slices(recent)
    heads = _heads(source_configs(config), positions, followed=running is not None)
    bound = config.merge.clock_bound_ms / 1000
    cut = Cuts(lake).last()
    merged = 0 if cut is None else cut.round
    asides = Endings(lake).aside() if running else {}
    now = time.time()
    odd = {p.shard: p.odd_ts for one in recent for p in one.slices if p.odd_ts is not None}
    shards = tuple(
        replace(
            judge_shard(
                str(shard),
                position=positions.get(str(shard)),
                newest=slices.get(str(shard)),
                read_until=streams[str(shard)].ts if str(shard) in streams else 0,
                head=heads[shard],
                follower=follower,
                now=now,
                bound=bound,
                aside=asides.get(shard.keyspace),
            ),
            odd_ts=odd.get(str(shard)),
        )
        for shard in config.shards
    )
    states = Tables(lake).list()
    kept, size = rounds.extent()
    return Status(
        lake=config.lake,
        run=_run(running),
        round=last,
        merged=merged,
        tables_lag_max=tables_lag(
            _largest([shard.lag_max for shard in shards]),
            rounds.earliest_above(merged),
            now=now + bound,
        )
        if merged
        else None,
        shards=shards,
        tables=tuple(found for state in states if (found := _table(lake, state, cut, config))),
        change_rounds=kept,
        change_bytes=size,
        samples=tuple(
            one for one in map(LogChecks(lake).of, map(str, config.shards)) if one.samples
        ),
        left_out=left_out(LeftOutTables(lake).list(), states, config.mirrors),
        ended=None if running else Endings(lake).last(),
    )


def left_out(
    noted: Sequence[LeftOutTable],
    states: Sequence[TableState],
    mirrors: Callable[[str, str], bool],
) -> tuple[LeftOutTable, ...]:
    """Those tables that the config still names, and that have not stopped with a reason of theirs.

    Args:
        noted: what the last look of a run left out.
        states: all tables' states.
        mirrors: whether the config names the table of that keyspace.
    """
    stopped = {state.name for state in states if state.phase == "stopped"}
    return tuple(
        one for one in noted if mirrors(one.keyspace, one.table) and one.name not in stopped
    )


def _shards_of(shards: Collection[str]) -> dict[str, list[str]]:
    """Keyspace -> the names of its shards in the lake."""
    found: dict[str, list[str]] = {}
    for shard in map(ShardId.parse, shards):
        found.setdefault(shard.keyspace, []).append(shard.shard)
    return found


def newest_slices(rounds: Sequence[Round]) -> dict[str, ShardSlice]:
    """Shard -> the last slice that was read from it."""
    return {piece.shard: piece for one in rounds for piece in one.slices}


def judge_shard(
    shard: str,
    *,
    position: Position | None,
    newest: ShardSlice | None,
    head: Position | RatchetError,
    follower: Follower,
    now: float,
    bound: float,
    read_until: int = 0,
    aside: Ending | None = None,
) -> ShardStatus:
    """State and lag of one shard.

    Args:
        shard: keyspace/shard.
        position: what the change log holds of it; None before the first round.
        newest: the newest slice, if it is among the recent rounds.
        head: the end of the server's log now; or why the server did not tell, or cannot go on.
        follower: what became of the run on the lake.
        now: our clock, seconds since the epoch.
        bound: how far clocks may be apart, seconds.
        read_until: see StreamState.ts; it tells the lag where `newest` does not.
        aside: why the run goes on without its source, if it does.
    """
    state: State = "streaming"
    reason = ""
    lag_min = lag_max = None
    if isinstance(head, PositionLostError):
        state, reason = "lost", f"{one_line(head.message)}\n  {visible(head.hint)}"
    elif isinstance(head, BehindError):
        state, reason = "behind", f"{one_line(head.message)}\n  {visible(head.hint)}"
    elif isinstance(head, RatchetError):
        state, reason = "disconnected", f"the server does not answer: {head}"
    elif aside is not None:
        state, reason = "aside", f"{_ASIDE}: {one_line(aside.message)}\n  {visible(aside.hint)}"
    elif follower == "dead":
        state, reason = "dead", "the process that ran on the lake was killed: start the run again"
    elif follower == "ended":
        state, reason = "stopped", "no run follows it"
    at_head = (
        position is not None
        and isinstance(head, Position)
        and position.flavor == head.flavor
        and position.executed.contains_all(head.executed)
    )
    if at_head:
        lag_min = lag_max = 0.0
        state = "idle" if state == "streaming" else state
    elif seen := (newest and seen_until(newest)) or read_until:
        lag_min, lag_max = 0.0, max(0.0, now - seen / 1e6 + bound)
    return ShardStatus(
        shard=shard,
        state=state,
        reason=reason,
        position="" if position is None else str(position.executed),
        file="" if position is None else position.file,
        offset=0 if position is None else position.offset,
        observed_at=None if newest is None else newest.observed_at,
        lag_min=lag_min,
        lag_max=lag_max,
        held=state == "streaming" and newest is not None and newest.held_ts is not None,
    )


def _heads(
    sources: Mapping[ShardId, SourceConfig], positions: Mapping[str, Position], *, followed: bool
) -> dict[ShardId, Position | RatchetError]:
    """Each server's end of its log; or why it does not tell, or cannot go on.

    Whether its history is still the same one a run that follows it has asked (`followed`).
    """
    look = check_continues if followed else check_position

    def ask(config: SourceConfig) -> Position | RatchetError:
        try:
            with Session.connect(config) as session:
                position = positions.get(str(config.shard))
                if position is not None:
                    with suppress(SourceUnfitError):
                        look(session, position)
                return session.head()
        except RatchetError as error:  # becomes the shard's state
            return error

    # All at once: each server that is away takes its whole time-out.
    with ThreadPoolExecutor(max_workers=max(1, min(16, len(sources)))) as pool:
        return dict(zip(sources, pool.map(ask, sources.values()), strict=True))


def _run(holder: Holder | None) -> Mapping[str, Any] | None:
    if holder is None:
        return None
    told = {name: getattr(holder, name) for name in ("host", "pid", "command", "started")}
    # Of another machine's run only its own word is known, by its own clock.
    return told if is_alive(holder) else {**told, "last_sign": holder.last_sign}


def _largest(lags: Sequence[float | None]) -> float | None:
    known = [lag for lag in lags if lag is not None]
    return max(known) if known and len(known) == len(lags) else None


def _table(lake: Lake, state: TableState, cut: Cut | None, config: Config) -> TableStatus | None:
    """None for a table of which the lake has nothing and the config wants nothing."""
    mirrored = config.mirrors(state.keyspace, state.table)
    delta, damaged = _opened(lake, state)
    if not mirrored and delta is None and not damaged:
        return None
    stopped = state.stopped if mirrored else None
    if mirrored and damaged and stopped is None:
        stopped = StopReason(message=_DAMAGED, hint=_DAMAGED_HINT, round=0)
    merged = state.merged_round
    if cut is not None and state.phase == "streaming" and cut.shows(state.name):
        merged = max(merged, cut.round)  # a state is not rewritten for rounds without changes
    rows = version = last = None
    if delta is not None:
        rows, version = _counted(delta, state), int(delta.version())
        commits = delta.history(1)  # none where the newest one is damaged
        last = int(commits[0]["timestamp"]) * 1000 if commits else None
    return TableStatus(
        keyspace=state.keyspace,
        table=state.table,
        phase=_phase(state) if mirrored else "excluded",
        rows=rows,
        version=version,
        round=merged,
        last_change=last,
        stopped="" if stopped is None else stopped.message,
        hint="" if stopped is None else _hint(stopped, config.sources[state.keyspace], state),
        doubts=tuple(
            f"{shard}, round {doubt.round}: {doubt.message}"
            f"{f' ({doubt.statement[:200]})' if doubt.statement else ''}"
            for shard, doubt in state.doubts.items()
            if mirrored and state.is_doubtful
        ),
        compared=Comparisons(lake).of(state) if mirrored else None,
    )


def _opened(lake: Lake, state: TableState) -> tuple[DeltaTable | None, bool]:
    """The table, if there is one, and whether its log is damaged."""
    try:
        return open_delta(lake, state.shown_path), False
    except LakeError:
        if is_readable(lake, state.shown_path):
            raise
        return None, True


def _hint(stopped: StopReason, source: SourceSection, state: TableState) -> str:
    if stopped.altered and source.follows(state.table):
        return f"{_BY_ITSELF}; or {stopped.hint}"
    return stopped.hint


def _counted(delta: DeltaTable, state: TableState) -> int | None:
    """Rows; None: nobody can tell of a table that stopped, or waits, since files of it are gone."""
    try:
        return count_rows(delta, state.shown_path)
    except LakeAwayError:
        raise
    except LakeError:
        if state.phase != "stopped" and state.standing is None:
            raise
        return None  # why it stopped is told anyway


def _phase(state: TableState) -> str:
    return "doubtful" if state.is_doubtful else state.phase


def count_rows(delta: DeltaTable, path: str) -> int:
    """Rows of a Delta table, from its log and deletion vectors; no data is read."""
    return sum(batch["n"][0].as_py() for batch in query(delta, path, "SELECT count(*) AS n FROM t"))
