"""Before the loops of a run begin: bringing lake, config and servers into agreement.

Lives here: where the stream of a shard starts, tables that the config no longer mirrors or mirrors
from more shards than before, what `dump --again` names. Does not live here: the loops (`pipeline`).

Invariant: the start of every shard's stream is in the round log before anything is read from the
shard for a dump; so a kill can never lead to a stream that starts behind a dumped row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from ratchet.core.errors import ConfigError
from ratchet.core.position import Position
from ratchet.core.rounds import Round, ShardSlice
from ratchet.core.shard import ShardId
from ratchet.core.shell import shell_word
from ratchet.ingest.binlog.history import with_witness
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.settings import SourceSection
from ratchet.jobs.config.sources import source_configs
from ratchet.jobs.reporting.text import nearest
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.store.anew import to_be_dumped
from ratchet.store.databasenote import read_databases
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.store.tables import Tables, TableState
from ratchet.wire.session import Session, SourceConfig
from ratchet.wire.vitess import on_primary

log: Final = logging.getLogger("ratchet.jobs.run")


def record_starts(rounds: RoundLog, starts: Mapping[str, Position], *, now: int) -> None:
    """Commit a round without transactions, in which these shards stand at these positions.

    A stream that starts anew after a gap keeps its generation: its numbers go on.

    Args:
        rounds: the round log.
        starts: ShardId as text -> position that every later read is sure to contain.
        now: microseconds UTC.

    Raises:
        LakeError: the round cannot be committed.
    """
    if not starts:
        return
    known = rounds.streams()
    slices = tuple(
        ShardSlice.beginning(
            shard,
            position,
            generation=known[shard].generation if shard in known else 0,
            now=now,
        )
        for shard, position in starts.items()
    )
    number = begin_streams(rounds, slices, now=now)
    for shard, position in starts.items():
        log.info(
            "%s: the mirror starts at %s",
            shard,
            position.executed,
            extra={"fields": {"event": "stream_started", "source": shard, "round": number}},
        )


def begin_streams(rounds: RoundLog, slices: Collection[ShardSlice], *, now: int) -> int:
    """Commit a round of slices that begin streams; gives its number.

    Raises:
        LakeError: the round cannot be committed.
    """
    number = rounds.last_number() + 1
    rounds.append(Round(number=number, committed_at=now, slices=tuple(slices), files=(), events=()))
    return number


def executed(
    configs: Mapping[ShardId, SourceConfig], shards: Collection[str]
) -> dict[str, Position]:
    """For each of these shards where its stream begins; every read from now on contains that."""
    found = {}
    for shard, config in configs.items():
        if str(shard) in shards:
            # A read of any of the shard's tablets contains what its primary had executed
            # before: chunks wait for that (snapshot.reader).
            with Session.connect(on_primary(config)) as session:
                found[str(shard)] = with_witness(session, session.beginning())
    return found


def heads(configs: Mapping[ShardId, SourceConfig]) -> dict[str, Position]:
    """Where each server's log ends now."""
    found = {}
    for shard, config in configs.items():
        with Session.connect(on_primary(config)) as session:
            found[str(shard)] = session.head()
    return found


def fresh_shards(
    shards: Collection[str],
    known: Collection[str],
    again: Collection[str],
    found: Sequence[DiscoveredTable],
) -> set[str]:
    """The shards whose streams start now: those never read, and those given up for a new dump.

    A keyspace of which every table is dumped again needs nothing of the log before, so its streams
    start anew: that heals a lost position.
    """
    fresh = {shard for shard in shards if shard not in known}
    for keyspace in {one.keyspace for one in found}:
        if all(one.name in again for one in found if one.keyspace == keyspace):
            fresh |= {shard for shard in shards if ShardId.parse(shard).keyspace == keyspace}
    return fresh


def align(
    lake: Lake,
    found: Sequence[DiscoveredTable],
    mirrors: Callable[[str, str], bool],
    fresh: set[str],
    *,
    ended: Callable[[str], bool] = lambda _: False,
    was_left: Callable[[str, DumpState], bool] = lambda *_: False,
) -> list[TableState]:
    """Send tables back to phase new that the log does not cover; gives the states as they are now.

    Those are tables that the config does not mirror (any more): capture leaves their changes out,
    so if they come back they have to be dumped; tables with rows on a shard whose stream only
    starts now, or that the config lacked when they were dumped; and tables whose dump had begun on
    a shard that a reshard has ended since.

    Args:
        lake: the lake, which is held.
        found: the tables that the servers have.
        mirrors: whether the config mirrors the table of that keyspace.
        fresh: shards whose streams start now.
        ended: whether a shard's successors have taken over.
        was_left: whether a shard has not been read since a dump (`has_stood`).
    """
    known = {one.name: one for one in found}
    tables, states = Tables(lake), []
    for state in tables.list():
        mirrored = mirrors(state.keyspace, state.table)
        # One that the servers have no more counts as well: the statement that took it away stood in
        # what is not read. The dump finds that it is gone.
        read = known[state.name].shards if state.name in known else _dumped_from(state)
        behind = fresh & set(read)
        returned = sorted(
            shard
            for shard in set(read) - set(_dumped_from(state))
            if state.dump is not None and was_left(shard, state.dump)
        )
        torn = (
            state.phase in {"dumping", "catching_up"}
            and state.dump is not None
            and any(ended(shard) for shard in state.dump.start)
        )
        if state.phase in {"dumping", "catching_up", "streaming"} and (
            not mirrored or behind or torn or returned
        ):
            why = (
                "one of its shards starts from scratch" if mirrored else "the config leaves it out"
            )
            why = "a reshard ended one of its shards meanwhile" if torn else why
            why = f"it was dumped without {returned[0]}" if returned and not behind else why
            log.info("%s needs a new dump: %s", state.name, why)
            states.append(tables.save(to_be_dumped(lake, state)))
        elif state.change is not None and (behind or returned):
            # Not to be made from what the lake has: that is without the rows of these shards.
            states.append(tables.save(replace(state, change=None)))
        else:
            states.append(state)
    return states


def has_stood(shard: str, dump: DumpState, rounds: RoundLog) -> bool:
    """Whether a shard's stream stands where it stood when a table was dumped.

    Such a table that was dumped without that shard lacks its rows: the config lacked the shard. A
    shard that got the table later has moved since, by the statement that made it there.

    Args:
        shard: ShardId as text.
        dump: the table's, without that shard.
        rounds: the round log.
    """
    now = rounds.streams().get(shard)
    if now is None:
        return False
    number = min(max(dump.start_round, rounds.first_number()), rounds.last_number())
    return rounds.positions_at(number).get(shard) == now.position


def refuse_unfitting(config: Config, lake: Lake) -> None:
    """Refuse a config that a run would refuse for what is in the lake.

    A command that compares rows would take those of a shard that the config lacks for wrong ones,
    and `repair` would remove them.

    Raises:
        ConfigError: saying what does not fit.
        LakeError: the lake cannot be read.
    """
    states, streams = Tables(lake).list(), RoundLog(lake).streams()
    check_keys(states, config.sources)
    check_shards(states, config.sources, streams, {})
    check_databases(databases_of(config.sources, source_configs(config)), read_databases(lake))


def dumped_without(
    states: Collection[TableState],
    sources: Mapping[str, SourceSection],
    rounds: RoundLog,
) -> list[str]:
    """Shards of the config that no table of their source was dumped from, as it lacked them then.

    What stands in them is to be dumped again (`align`).

    Args:
        states: of all tables.
        sources: of the config.
        rounds: the round log.
    """
    found = []
    for keyspace, source in sources.items():
        if source.is_vitess or source.vitess:
            continue
        dumps = [one.dump for one in states if one.keyspace == keyspace and one.dump is not None]
        dumped = {shard for dump in dumps for shard in dump.start}
        listed = {str(ShardId(keyspace, name)) for name in source.shards}
        if dumps:
            newest = max(dumps, key=lambda dump: dump.start_round)
            found += [s for s in sorted(listed - dumped) if has_stood(s, newest, rounds)]
    return found


def _dumped_from(state: TableState) -> Collection[str]:
    return () if state.dump is None else state.dump.start


def check_keys(
    states: Collection[TableState],
    sources: Mapping[str, SourceSection],
    again: Collection[str] = (),
) -> None:
    """Refuse a `key` in the config that is not the one a table was dumped with.

    Raises:
        ConfigError: naming the table.
    """
    for state in states:
        source = sources.get(state.keyspace)
        if source is None or state.phase == "new" or state.name in again:
            continue
        if state.shard_in_key != (source.key == "shard+primary"):
            before = "shard+primary" if state.shard_in_key else "primary"
            every = shell_word(f"{state.keyspace}.*")
            raise ConfigError(
                f"sources.{state.keyspace}.key is {source.key}, but {state.name} was dumped with "
                f"{before}",
                operation="start",
                hint=f"set it back, or: ratchet dump CONFIG --again {every}",
            )


def databases_of(
    sources: Mapping[str, SourceSection], configs: Mapping[ShardId, SourceConfig]
) -> dict[str, str]:
    """ShardId as text -> its database; none of Vitess, where a reshard changes them."""
    return {
        str(shard): one.database
        for shard, one in configs.items()
        if not sources[shard.keyspace].is_vitess
    }


def check_databases(
    databases: Mapping[str, str], noted: Mapping[str, str], fresh: Collection[str] = ()
) -> None:
    """Refuse a `database` in the config that is not the one a shard was read from.

    Its tables may have the same names, and the rows of both would be taken for one table's.

    Args:
        databases: see databases_of.
        noted: the same, as the last run has noted it.
        fresh: shards whose tables are all dumped again.

    Raises:
        ConfigError: naming the shard.
    """
    for shard, now in databases.items():
        before = noted.get(shard, now)
        if shard in fresh or before.casefold() == now.casefold():
            continue
        every = shell_word(f"{ShardId.parse(shard).keyspace}.*")
        raise ConfigError(
            f"the database of {shard} is {now!r}, but the mirror's rows are those of {before!r}",
            operation="start",
            hint="set it back, or give the other database a source of its own; if it is to take "
            f"that one's place: ratchet dump CONFIG --again {every}",
        )


def check_shards(
    states: Collection[TableState],
    sources: Mapping[str, SourceSection],
    streams: Mapping[str, StreamState],
    read: Mapping[str, Collection[str]],
    again: Collection[str] = (),
) -> None:
    """Refuse a config without a shard whose rows are in the mirror: they would stay as they are.

    Not of Vitess, where a reshard ends shards (`reshard`, `tablets`).

    Args:
        states: of all tables.
        sources: of the config.
        streams: those of the lake, by shard.
        read: keyspace.table -> the shards that it is read from now; of others, all of its keyspace.
        again: tables that are dumped again.

    Raises:
        ConfigError: naming the shard and a table.
    """
    for state in states:
        source = sources.get(state.keyspace)
        if source is None or source.is_vitess or source.vitess or state.name in again:
            continue
        if state.phase not in {"dumping", "catching_up", "streaming"}:
            continue
        listed = {str(ShardId(state.keyspace, name)) for name in source.shards}
        if any(shard not in streams for shard in read.get(state.name, listed)):
            continue  # a shard is new, so it is dumped again
        for shard in _dumped_from(state):
            if shard in listed or shard not in streams or streams[shard].journal is not None:
                continue
            every = shell_word(f"{state.keyspace}.*")
            raise ConfigError(
                f"sources.{state.keyspace}.shards lacks {ShardId.parse(shard).shard}, whose rows "
                f"are in {state.name}: they would stay as they are",
                operation="start",
                hint="put it back; if its rows are to go, or lie in the other shards by now: "
                f"`ratchet dump CONFIG --again {every}`",
            )


def left_behind(
    states: Collection[TableState],
    found: Collection[DiscoveredTable],
    sources: Mapping[str, SourceSection],
) -> set[str]:
    """Tables that only shards had which the config lacks by now.

    Args:
        states: of all tables.
        found: the tables that the servers have.
        sources: of the config.
    """
    there = {one.name for one in found}
    listed = {
        keyspace: {str(ShardId(keyspace, name)) for name in source.shards}
        for keyspace, source in sources.items()
        if not (source.is_vitess or source.vitess)
    }
    return {
        state.name
        for state in states
        if state.keyspace in listed
        and state.name not in there
        and state.phase in {"dumping", "catching_up", "streaming"}
        and not set(_dumped_from(state)) <= listed[state.keyspace]
    }


def named_again(
    patterns: Sequence[str], found: Collection[DiscoveredTable], left: Collection[str] = ()
) -> set[str]:
    """The tables that `--again` names: by table, keyspace.table, or a pattern of either.

    Args:
        patterns: as given.
        found: the tables that the servers have.
        left: keyspace.table of further ones (`left_behind`).

    Raises:
        ConfigError: a pattern names no table.
    """
    named: set[str] = set()
    names = {one.name: one.table for one in found} | {one: one.partition(".")[2] for one in left}
    for pattern in patterns:
        hits = {
            name
            for name, table in names.items()
            if fnmatchcase(table, pattern) or fnmatchcase(name, pattern)
        }
        if not hits:
            raise ConfigError(
                f"--again {pattern}: there is no such table",
                operation="start",
                hint=nearest(pattern, [one.table for one in found], "see `tables` in the config"),
            )
        named |= hits
    return named


def again_of_stopped(states: Collection[TableState]) -> set[str]:
    """Tables that stopped before they were ever dumped: the cause may be mended by now."""
    return {state.name for state in states if state.phase == "stopped" and state.dump is None}
