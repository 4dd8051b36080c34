"""Which part of the change log can be compared with a server's log, and with what.

Lives here: shards, moments and rounds as `verify --log` and a run's samples choose them. Does not
live here: the comparison (`ingest.logstretch`), the command (`logverify`), the samples
(`logsample`).

Invariant: what is not chosen is named, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal

from ratchet.core.errors import ConfigError, DecodeError
from ratchet.core.gtid import Flavor, Gtid, parse_gtid
from ratchet.core.patterns import TablePatterns
from ratchet.core.rounds import ShardSlice
from ratchet.core.shard import ShardId
from ratchet.core.types import InvalidValuePolicy
from ratchet.ingest.logstretch import RoundPart, Stretch, stretches
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import source_configs
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.store.tables import Tables
from ratchet.wire.connect import SourceConfig
from ratchet.wire.session import Session

NEWEST_BYTES: Final = 64 << 20  # of the binlog, that are compared where nothing is named
_NEWEST_ROUNDS: Final = 1000  # that are looked at for them

THROUGH_VTGATE: Final = (
    "it is read through a vtgate, and mysql-replication reads the binlogs of servers only"
)
TABLET: Final = (
    "its binlog is a Vitess tablet's, in which rows that a reshard has copied are left out"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReadOptions:
    """What the log of one shard is read again with.

    Attributes:
        lake: the lake.
        source: the shard's server.
        policy: the config's.
        since: see ingest.logstretch.check_stretch.
        tables: names of all tables that the lake knows of the keyspace.
        patterns: the config's for it.
    """

    lake: Lake
    source: SourceConfig
    policy: InvalidValuePolicy
    since: Mapping[str, int] = field(default_factory=dict)
    tables: frozenset[str] = frozenset()
    patterns: TablePatterns = field(default_factory=TablePatterns)

    def wants(self, table: str, *, copies: bool | None) -> bool:
        """Whether rows of the server's table are looked at: those that were captured count.

        Args:
            table: its name.
            copies: whether changes of tools' copies were captured: they have numbers in the same
                transactions.
        """
        patterns = replace(self.patterns, copies=bool(copies))
        return table in self.tables or patterns.captures(table)


@dataclass(frozen=True, slots=True)
class LogBoundary:
    """What --from and --to name.

    Attributes:
        kind: what it is.
        number: the round, or microseconds UTC.
        gtid: the transaction.
    """

    kind: Literal["round", "time", "gtid"]
    number: int = 0
    gtid: Gtid | None = None

    @classmethod
    def parse(cls, text: str, flavor: Flavor) -> LogBoundary:
        """Read `17`, `2026-03-01T12:00:00Z` or `gtid:0-1-100`.

        Raises:
            ConfigError: it is none of these.
        """
        plain = text.removeprefix("round:")
        if plain.isascii() and plain.isdigit():
            return cls("round", int(plain))
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            try:
                return cls("gtid", gtid=parse_gtid(flavor, text.removeprefix("gtid:")))
            except DecodeError as error:
                raise ConfigError(
                    f"{text!r} is no round, no time and no {flavor} GTID",
                    operation="verify --log",
                    hint="as in --from 17, --from 2026-03-01T12:00:00Z, --from gtid:0-1-100",
                ) from error
        stamp = found if found.tzinfo else found.replace(tzinfo=UTC)
        return cls("time", int(stamp.timestamp() * 1_000_000))

    def begins_in(self, number: int, piece: ShardSlice) -> bool:
        """Whether a round holds something at this moment or behind it."""
        if self.kind == "round":
            return number >= self.number
        if self.gtid is not None:
            return piece.end.executed.contains(self.gtid)
        return piece.max_ts is not None and piece.max_ts >= self.number

    def ends_in(self, number: int, piece: ShardSlice) -> bool:
        """Whether a round holds something at this moment or before it."""
        if self.kind == "round":
            return number <= self.number
        if self.gtid is not None:
            return not piece.start.executed.contains(self.gtid)
        return piece.min_ts is not None and piece.min_ts <= self.number


def choose_shards(
    config: Config, streams: Mapping[str, StreamState], names: Collection[str]
) -> tuple[list[ShardId], dict[str, str]]:
    """The shards whose log can be compared, and why others cannot.

    Raises:
        ConfigError: a name stands for no shard.
    """
    left: dict[str, str] = {}
    chosen = []
    for keyspace, source in config.sources.items():
        if source.vtgate is not None:
            if not names or any(ShardId.parse(name).keyspace == keyspace for name in names):
                left[keyspace] = THROUGH_VTGATE
            continue
        for name in source.shards:
            shard = ShardId(keyspace, name)
            if names and str(shard) not in names:
                continue
            if source.vitess:
                left[str(shard)] = TABLET
            elif str(shard) not in streams:
                left[str(shard)] = "nothing of it has been captured yet"
            else:
                chosen.append(shard)
    known = {*map(str, chosen), *left}
    if missing := [n for n in names if n not in known and ShardId.parse(n).keyspace not in known]:
        raise ConfigError(
            f"--shard {', '.join(missing)}: there is no such shard in the config",
            operation="verify --log",
            hint="a shard is named keyspace/shard, as `ratchet status` lists them",
        )
    return chosen, left


def log_reading(config: Config, lake: Lake, shard: ShardId) -> LogReadOptions:
    """What a shard's log is read again with."""
    states = Tables(lake).list(shard.keyspace)
    since = {
        state.table: state.dump.start_round
        for state in states
        if state.dump is not None and config.mirrors(shard.keyspace, state.table)
    }
    return LogReadOptions(
        lake=lake,
        source=source_configs(config)[shard],
        policy=config.policy,
        since=since,
        tables=frozenset(state.table for state in states),
        patterns=config.sources[shard.keyspace].tables,
    )


def stretch_of(
    rounds: RoundLog,
    shard: str,
    stream: StreamState,
    *,
    first: str | None,
    last: str | None,
    left: dict[str, str],
) -> Stretch | None:
    """The stretch of a shard's log that is asked for.

    Args:
        rounds: the round log.
        shard: ShardId as text.
        stream: where its stream stands.
        first: a moment; None with `last` as well: the newest rounds.
        last: a moment; None: up to the newest round.
        left: gets what cannot be compared, and why.

    Raises:
        ConfigError: a moment is none.
        LakeError: the round log cannot be read.
    """
    named = bool(first or last)
    newest, oldest = rounds.last_number(), rounds.first_number()
    begin = oldest if named else max(oldest, newest - _NEWEST_ROUNDS)
    pieces = stretches(rounds.since(begin - 1), shard)
    pieces = [one for one in (_cut(piece, first, last) for piece in pieces) if one.parts]
    if not pieces:
        left[shard] = "the lake's log has no such rounds of it"
        return None
    for one in pieces[:-1]:
        a, b = one.rounds
        left[f"{shard}, rounds {a} to {b}"] = (
            "a gap, another stream of the shard, or other tables follow them"
        )
    a, b = pieces[-1].rounds
    if pieces[-1].parts[-1].slice.generation != stream.generation:
        left[f"{shard}, rounds {a} to {b}"] = "they belong to a stream that has been abandoned"
        return None
    return pieces[-1] if named else _newest(pieces[-1])


def _cut(stretch: Stretch, first: str | None, last: str | None) -> Stretch:
    """From the first part to the last one that hold something between two moments."""
    parts = stretch.parts
    flavor = parts[0].slice.end.flavor
    if first is not None:
        moment = LogBoundary.parse(first, flavor)
        inside = [moment.begins_in(part.round, part.slice) for part in parts]
        parts = parts[inside.index(True) :] if any(inside) else []
    if last is not None:
        moment = LogBoundary.parse(last, flavor)
        inside = [moment.ends_in(part.round, part.slice) for part in parts]
        parts = parts[: len(inside) - inside[::-1].index(True)] if any(inside) else []
    return Stretch(parts)


def _newest(stretch: Stretch) -> Stretch:
    """The end of a stretch, with so many bytes of the binlog."""
    total, begin = 0, len(stretch.parts)
    while begin and (total == 0 or total < NEWEST_BYTES):
        begin -= 1
        total += stretch.parts[begin].slice.bytes
    return Stretch(stretch.parts[begin:])


def still_there(source: SourceConfig, parts: Sequence[RoundPart]) -> list[RoundPart]:
    """The parts of a stretch that the server's binlogs still hold: its end."""
    with Session.connect(source) as session:
        if session.flavor == "file":
            files = set(session.binlog_files())
            same = session.server_identity
            held = [
                part.slice.start.server != same or part.slice.start.file in files for part in parts
            ]
        else:
            purged = session.purged()
            held = [part.slice.start.executed.contains_all(purged) for part in parts]
    begin = next((n for n, here in enumerate(held) if here), len(parts))
    return list(parts[begin:])
