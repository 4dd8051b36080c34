"""A source's tables as a dump or a verification needs them: schema, shape, plan, size.

Lives here: reading them so that they belong together. A table's shape is a few hex digits that
every chunk compares with the server's inside its own read: chunks of two shapes never mix.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ratchet.core.errors import (
    DatabaseGoneError,
    ServerRefusedError,
    SourceUnfitError,
    TableStoppedError,
)
from ratchet.core.schema import TableSchema
from ratchet.core.shell import redump
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.snapshot.chunks import TableSize, table_size
from ratchet.snapshot.damage import rows_without_keys
from ratchet.snapshot.errors import ShardsDifferError
from ratchet.snapshot.keys import KeyPlan, Query, find_plan, string_literal
from ratchet.snapshot.partitions import misplaced
from ratchet.snapshot.sessions import open_session
from ratchet.wire.decode.answers import (
    as_count,
    as_is,
    as_name,
    as_text,
    shaped,
    single,
    single_value,
)
from ratchet.wire.decode.catalog import DeclaredTable, read_declared
from ratchet.wire.decode.views import beside_views
from ratchet.wire.session import Session, SourceConfig, quoted

# Between looks at schemas that change meanwhile, seconds.
_PAUSES: Final = (0.0, 0.2, 0.5, 1.0, 2.0)

_Shown = list[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """A table on one server.

    Attributes:
        schema: its columns and key.
        shape: what `table_shapes` gave for exactly this schema.
        plan: how it is walked.
        size: the server's estimates.
        generated: whether it has generated columns.
        recomputed: whether some of them are STORED: a server that writes the rows anew computes
            them anew, by the settings of whoever makes it (seen: div_precision_increment).
    """

    schema: TableSchema
    shape: str
    plan: KeyPlan
    size: TableSize
    generated: bool
    recomputed: bool


def table_shapes(query: Query, database: str, table: str | None = None) -> dict[str, str]:
    """Table -> hex digits that change when its columns change; of all tables, or of one."""
    return {name: _shape(found) for name, found in _columns(query, database, table).items()}


def _literal(value: object) -> str:
    return string_literal(str(value))


def _shape(columns: _Shown) -> str:
    return hashlib.sha256(repr(columns).encode()).hexdigest()[:16]


def _columns(query: Query, database: str, table: str | None = None) -> dict[str, _Shown]:
    """Table -> what is shown of its columns, name and type first."""
    if table is None:
        only = beside_views(
            lambda sql, args: query(sql % (*map(_literal, args),)), database, "TABLE_NAME"
        )
    else:
        only = f" AND TABLE_NAME = {string_literal(table)}"
    rows = query(
        "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME,"
        " IS_NULLABLE, EXTRA FROM information_schema.COLUMNS"
        f" WHERE TABLE_SCHEMA = {string_literal(database)}{only}"
        " ORDER BY TABLE_NAME, ORDINAL_POSITION"
    )
    found: dict[str, _Shown] = {}
    for name, *rest in shaped(rows, as_name, *[as_is] * 6):
        found.setdefault(name, []).append(tuple(map(str, rest)))
    return found


def count_generated(query: Query, database: str, table: str) -> tuple[int, int]:
    """How many columns of a table are generated VIRTUAL, and how many STORED."""
    rows = query(
        "SELECT COUNT(CASE WHEN EXTRA LIKE '%VIRTUAL%' THEN 1 END),"
        " COUNT(CASE WHEN EXTRA LIKE '%STORED%' OR EXTRA LIKE '%PERSISTENT%' THEN 1 END)"
        " FROM information_schema.COLUMNS"
        f" WHERE TABLE_SCHEMA = {string_literal(database)} AND TABLE_NAME = {string_literal(table)}"
    )
    virtual, stored = single(rows, as_count, as_count)
    return virtual, stored


def made_at(session: Session, table: str) -> str:
    """Which server it is, and when it says that it made a table: another time after a rebuild."""
    if session.config.target:
        return ""  # each tablet has its own
    rows = session.query(
        "SELECT CONCAT_WS(' ', @@server_id, CREATE_TIME) FROM information_schema.TABLES"
        f" WHERE TABLE_SCHEMA = {string_literal(session.config.database)}"
        f" AND TABLE_NAME = {string_literal(table)}"
    )
    return single_value(rows, as_text) if rows else ""


class SourceCatalog:
    """The schemas of the shards' tables, read once for each shard; for several threads."""

    def __init__(self, shards: Mapping[str, SourceConfig], *, only: str | None = None) -> None:
        """Nothing is read yet.

        Args:
            shards: ShardId as text -> its server.
            only: the one table that is asked for; None: any may be.
        """
        self._shards = shards
        self._only = only
        self._lock = threading.Lock()
        self._found: dict[str, dict[str, tuple[TableSchema, str] | None]] = {}

    def forget(self) -> None:
        """Read everything anew: some table has changed."""
        with self._lock:
            self._found.clear()

    def table(self, shard: str, table: str) -> SourceTable:
        """A table of a shard.

        Raises:
            TableStoppedError: it is not there, or has no usable key.
        """
        config = self._shards[shard]
        with open_session(config, table=f"{config.shard.keyspace}.{table}") as session:
            with self._lock:
                if shard not in self._found:
                    self._found[shard] = _read_catalog(session, self._only)
                known = self._found[shard]
            found = known.get(table)
            if found is None and table in known:
                own = f"{config.shard.keyspace}.{table}"
                raise TableStoppedError(
                    "its columns change faster than they can be read",
                    operation="look at a table",
                    source=shard,
                    table=own,
                    hint=f"when its ALTERs have ended: {redump(own)}",
                )
            if found is None:
                raise TableStoppedError(
                    "the table does not exist on this shard",
                    operation="look at a table",
                    source=shard,
                    table=f"{config.shard.keyspace}.{table}",
                    hint="create it there, or exclude it in `tables` of the config; if it is "
                    "there, the account may not see it: `ratchet check CONFIG` names the GRANT",
                )
            schema, shape = found
            _refuse_hidden_columns(session, table)
            plan = find_plan(
                session.query,
                database=config.database,
                schema=schema,
                mariadb=session.is_mariadb,
            )
            _refuse_misplaced(session, plan)
            size = table_size(session.query, plan)
            _refuse_damaged(session, plan, size)
            virtual, stored = count_generated(session.query, config.database, table)
        return SourceTable(
            schema=schema,
            shape=shape,
            plan=plan,
            size=size,
            generated=bool(virtual or stored),
            recomputed=bool(stored),
        )


def _refuse_hidden_columns(session: Session, table: str) -> None:
    """A server does not show columns to an account that may not read them.

    Raises:
        TableStoppedError: the account may read some of the columns only.
    """
    config = session.config
    name = f"{quoted(config.database)}.{quoted(table)}"
    try:
        session.query(f"SELECT * FROM {name} LIMIT 0")
    except (DatabaseGoneError, ServerRefusedError):
        raise  # which says why
    except SourceUnfitError as error:
        own = f"{config.shard.keyspace}.{table}"
        raise TableStoppedError(
            "the account may not read all of its columns",
            operation="look at a table",
            source=session.source,
            table=own,
            hint=f"as an administrator: GRANT SELECT ON {name} TO '{config.user}'@'%'; "
            f"then {redump(own)}",
        ) from error


def _refuse_damaged(session: Session, plan: KeyPlan, size: TableSize) -> None:
    """Raises: TableStoppedError: the index lacks rows (`snapshot.damage`)."""
    if session.config.target:
        return  # a vtgate's tables are InnoDB's
    lacking = rows_without_keys(session.query, plan, size)
    if lacking:
        own = f"{session.config.shard.keyspace}.{plan.table}"
        raise TableStoppedError(
            f"its index {plan.index} is damaged: it has {abs(lacking):,} rows "
            f"{'fewer' if lacking > 0 else 'more'} than the table",
            operation="look at a table",
            source=session.source,
            table=own,
            hint=f"REPAIR TABLE {quoted(plan.table)}; then {redump(own)}",
        )


def _refuse_misplaced(session: Session, plan: KeyPlan) -> None:
    """Raises: TableStoppedError: some rows would not be read (`snapshot.partitions`)."""
    if session.config.target:
        return  # a vtgate tells nothing of partitions
    partition = misplaced(session.query, plan)
    if partition is not None:
        raise TableStoppedError(
            f"its partition {partition} holds rows of other partitions, where no read by key finds "
            "them",
            operation="look at a table",
            source=session.source,
            table=f"{session.config.shard.keyspace}.{plan.table}",
            hint=f"CHECK TABLE {quoted(plan.table)}; names them, and docs/operations.md says how "
            "to correct them (Two rows of the source have the same key); then `ratchet table "
            "CONFIG redump TABLE`, or exclude it in `tables` of the config",
        )


def _read_catalog(session: Session, only: str | None) -> dict[str, tuple[TableSchema, str] | None]:
    """The tables of a database with what is shown of them; None of one that changes all the time.

    Others' changes do not count: of a database that somebody always alters the rest can be read.
    """
    config = session.config
    before = _columns(session.query, config.database, only)
    for pause in _PAUSES:
        time.sleep(pause)
        declared = read_declared(
            session.query, keyspace=config.shard.keyspace, database=config.database, table=only
        )
        after = _columns(session.query, config.database, only)
        changing = {
            name
            for name in {*before, *declared, *after}
            if before.get(name) != after.get(name)
            # One that came and went between, or was altered and altered back, shows only here.
            or (name in declared and not _is_of(declared[name], after.get(name, [])))
        }
        if not changing:
            break
        before = after
    found: dict[str, tuple[TableSchema, str] | None] = dict.fromkeys(changing & set(after))
    for name, one in declared.items():
        if name not in changing:
            found[name] = one.schema, _shape(after[name])
    return found


def _is_of(declared: DeclaredTable, columns: _Shown) -> bool:
    names = [column.name for column in declared.schema.columns]
    return list(zip(names, declared.types, strict=True)) == [one[:2] for one in columns]


def common_columns(tables: Sequence[SourceTable], policy: InvalidValuePolicy) -> pa.Schema:
    """The lake's columns of a table that several shards have; the first shard's order.

    Raises:
        ShardsDifferError: their columns differ in name or lake type, or their keys do.
    """
    first = tables[0].schema
    columns = arrow_schema(first, policy)
    types = {field.name: field.type for field in columns}
    for other in (table.schema for table in tables[1:]):
        found = {field.name: field.type for field in arrow_schema(other, policy)}
        odd = sorted(name for name in {*types, *found} if types.get(name) != found.get(name))
        if odd or first.key != other.key:
            raise ShardsDifferError(
                f"the shards' columns differ: {', '.join(odd)}" if odd else "the keys differ",
                operation="compare the shards' tables",
                table=first.name,
                hint="give the table the same columns and the same key on all shards, then dump "
                "it again (`ratchet table CONFIG redump TABLE`)",
            )
    return columns
