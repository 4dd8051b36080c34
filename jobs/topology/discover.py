"""Which tables there are to mirror, and which of them need a dump.

Lives here: looking at the servers for tables that match the config, and comparing with the tables'
states in the lake. Does not live here: dumping them (`snapshot`).

Invariant: a table is dumped from every shard that has it, and never while it streams unless it was
asked for. Vitess's own tables are never mirrored, whatever the config's patterns say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ratchet.core.errors import LockedError
from ratchet.core.shard import ShardId
from ratchet.core.vitess import is_internal
from ratchet.jobs.config.settings import SourceSection
from ratchet.jobs.reporting.text import CORRECT_NAME, how_to_exclude, nearest
from ratchet.snapshot.records import TableDumpRequest
from ratchet.store.layout import table_path
from ratchet.store.tables import TableState
from ratchet.wire.decode.answers import as_count, as_name, or_null, shaped
from ratchet.wire.decode.unfit import unfit_tables
from ratchet.wire.decode.views import beside_views
from ratchet.wire.session import Session, SourceConfig

# Told of keyspace.table, why it is not mirrored, and what to do.
Tell = Callable[[str, str, str], None]

_TABLES: Final = (
    "SELECT TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredTable:
    """A table that the config mirrors.

    Attributes:
        keyspace: its keyspace.
        table: its name.
        shards: the shards that have it, as text, in the config's order.
        rows: the servers' estimate, over all shards.
    """

    keyspace: str
    table: str
    shards: tuple[str, ...]
    rows: int

    @property
    def name(self) -> str:
        """keyspace.table."""
        return f"{self.keyspace}.{self.table}"


def look(
    sources: Mapping[str, SourceSection],
    configs: Mapping[ShardId, SourceConfig],
    *,
    unfit: Tell = lambda *_: None,
    locked: Callable[[str], None] | None = None,
) -> list[DiscoveredTable]:
    """Ask every server for its tables.

    Args:
        sources: the config's sources, by keyspace.
        configs: how to connect to each shard.
        unfit: told of tables that the config names but nothing can mirror.
        locked: told of a keyspace of which nothing is known for now, as a server keeps a table
            locked; without it, that is an error.

    Raises:
        RetryableError: a server does not answer.
        SourceUnfitError: a server refuses us.
    """
    found: dict[tuple[str, str], tuple[list[str], int]] = {}
    names: dict[str, set[str]] = {}
    for shard, (rows, odd) in _answers(configs, locked).items():
        patterns = sources[shard.keyspace].tables
        for table, reason in odd.items():
            if patterns.matches(table):
                unfit(f"{shard.keyspace}.{table}", reason, how_to_exclude(table))
        names.setdefault(shard.keyspace, set()).update(table for table, _ in rows)
        for table, estimate in rows:
            if sources[shard.keyspace].is_vitess and is_internal(table):
                continue
            if patterns.matches(table) and table not in odd:
                shards, total = found.get((shard.keyspace, table), ([], 0))
                found[shard.keyspace, table] = (
                    [*shards, str(shard)],
                    total + (estimate or 0),
                )
    for (keyspace, table), why in sharing_folder(found).items():
        unfit(f"{keyspace}.{table}", why, how_to_exclude(table))
        del found[keyspace, table]
    for keyspace, known in names.items():
        for name in sources[keyspace].tables.missing(known):
            hint = nearest(name, known, CORRECT_NAME)
            unfit(f"{keyspace}.{name}", "there is no such table", hint)
    return [
        DiscoveredTable(keyspace=keyspace, table=table, shards=tuple(shards), rows=rows)
        for (keyspace, table), (shards, rows) in sorted(found.items())
    ]


_Answer = tuple[Sequence[tuple[str, int | None]], Mapping[str, str]]


def _answers(
    configs: Mapping[ShardId, SourceConfig], locked: Callable[[str], None] | None
) -> dict[ShardId, _Answer]:
    """What the servers say, of keyspaces that `locked` is not told of."""
    found: dict[ShardId, _Answer] = {}
    unknown: set[str] = set()
    for shard, config in configs.items():
        try:
            found[shard] = _asked(config)
        except LockedError:
            if locked is None:
                raise
            unknown.add(shard.keyspace)
            locked(shard.keyspace)
    return {shard: answer for shard, answer in found.items() if shard.keyspace not in unknown}


def _asked(config: SourceConfig) -> _Answer:
    """Names and estimated rows of a server's tables; table -> why it cannot be mirrored."""
    with Session.connect(config) as session:
        beside = beside_views(session.query, config.database, "TABLE_NAME")
        listed = session.query(_TABLES + beside, (config.database,))
        odd = unfit_tables(
            session.query, database=config.database, trusts_virtual=config.trusts_virtual
        )
    return shaped(listed, as_name, or_null(as_count)), odd


def sharing_folder(tables: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Keyspace and table that cannot be mirrored beside another table, and why.

    Long names are cut and end in 64 bits of a hash, of which somebody may make two alike.

    >>> sharing_folder([("shop", "orders"), ("shop", "items")])
    {}
    """
    first: dict[str, str] = {}
    return {
        (keyspace, table): f"its name gets the same folder in the lake as that of {first[path]}"
        for keyspace, table in sorted(tables)
        if first.setdefault(path := table_path(keyspace, table), table) != table
    }


def needing_dump(
    found: Collection[DiscoveredTable],
    states: Collection[TableState],
    sources: Mapping[str, SourceSection],
    again: Collection[str] = (),
) -> list[TableDumpRequest]:
    """The tables to dump: new ones, half-dumped ones, and those asked for.

    Args:
        found: the tables that there are.
        states: what the lake knows.
        sources: the config's.
        again: names of tables (keyspace.table) to dump whatever their phase.
    """
    phases = {state.name: state.phase for state in states}
    return [
        TableDumpRequest(
            keyspace=one.keyspace,
            table=one.table,
            shards=one.shards,
            shard_in_key=sources[one.keyspace].key == "shard+primary",
            again=one.name in again,
        )
        for one in found
        if one.name in again or phases.get(one.name, "new") in {"new", "dumping"}
    ]
