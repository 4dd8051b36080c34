"""What `ratchet check` wants to know of a server: the questions, and their answers as values.

Lives here: the statements. Does not live here: judging the answers (`fitness`).

Invariant: only reads, and nothing that a busy server feels. What the account may not ask is None,
never a guess.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from ratchet.core.columnrules import UnfitColumn, unfit_column
from ratchet.core.errors import SourceUnfitError
from ratchet.core.patterns import TablePatterns
from ratchet.core.shard import ShardId
from ratchet.jobs.preflight.foreignkeys import NO_RULES, Rules, read_rules
from ratchet.jobs.preflight.replicafilters import ReplicaFilters, read_filters
from ratchet.jobs.reporting.text import CORRECT_NAME, nearest
from ratchet.jobs.topology.discover import sharing_folder
from ratchet.wire.connected import Verified
from ratchet.wire.decode.answers import (
    as_count,
    as_is,
    as_name,
    as_number,
    as_text,
    or_null,
    shaped,
    single,
    single_value,
)
from ratchet.wire.decode.catalog import read_schemas
from ratchet.wire.decode.unfit import unfit_tables
from ratchet.wire.decode.views import beside_views
from ratchet.wire.decode.volatile import volatile_columns
from ratchet.wire.session import quoted

Rows = list[tuple[Any, ...]]

# What `fitness.judge_log` goes by.
LOG_VARIABLES: Final = (
    "log_bin",
    "binlog_error_action",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "log_replica_updates",
    "log_slave_updates",
    "wsrep_on",
    "replicate_do_db",
    "replicate_ignore_db",
    "replicate_do_table",
    "replicate_ignore_table",
    "replicate_wild_do_table",
    "replicate_wild_ignore_table",
    "slave_run_triggers_for_rbr",
    "innodb_flush_log_at_trx_commit",
    "sync_binlog",
)

_ONE_ROLE: Final = r"`(?:[^`]|``)*`(?:@`(?:[^`]|``)*`)?"
_ROLE: Final = re.compile(_ONE_ROLE)
_GRANTS_ROLES: Final = re.compile(rf"GRANT ({_ONE_ROLE}(?:, ?{_ONE_ROLE})*) TO ")
_TABLES: Final = (
    "SELECT TABLE_NAME, ENGINE, TABLE_ROWS, DATA_LENGTH FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE'{} ORDER BY TABLE_NAME"
)
_COLUMNS: Final = (
    "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS "
    "WHERE TABLE_SCHEMA = %s{} ORDER BY TABLE_NAME, ORDINAL_POSITION"
)


class QuerySession(Protocol):
    """The part of `wire.session.Session` that is used here."""

    version: str
    version_numbers: tuple[int, ...]
    flavor: Any

    @property
    def cipher(self) -> str:
        """The TLS cipher, as our own end of the connection has it."""

    @property
    def verified(self) -> Verified:
        """What TLS has verified of the server."""

    @property
    def is_mariadb(self) -> bool:
        """Whether it is a MariaDB."""

    def query(self, sql: str, args: Any = None) -> Rows:
        """Run a statement."""

    def query_named(self, sql: str) -> list[dict[str, Any]]:
        """Run a statement; its rows by the columns' names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """One table that the config mirrors.

    Attributes:
        name: its name.
        engine: its storage engine.
        rows: the server's estimate.
        bytes: the server's estimate of the data's size.
        has_key: whether a primary or a unique key over NOT NULL columns identifies its rows.
        columns: name and type of each.
        odd: a column that it cannot be mirrored with; None: there is none.
    """

    name: str
    engine: str
    rows: int
    bytes: int
    has_key: bool
    columns: tuple[tuple[str, str], ...]
    odd: UnfitColumn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What decides whether a server's log has every change of the mirrored tables.

    Attributes:
        shard: the shard it serves.
        database: the database that is mirrored, in the server's own spelling.
        mariadb: whether it is a MariaDB.
        variables: its global variables, names in lower case: all, or those of `LOG_VARIABLES`.
        binlog_filters: binlog_do_db and binlog_ignore_db; None if we may not ask.
        writes_log: whether it writes its log, whatever its variables say; None if we may not ask.
        follows: whether it is a replica itself; None if we may not ask.
        replica_filters: the filters of each of its replication channels.
    """

    shard: ShardId
    database: str
    mariadb: bool
    variables: Mapping[str, str]
    binlog_filters: tuple[str, str] | None
    writes_log: bool | None
    follows: bool | None
    replica_filters: tuple[ReplicaFilters, ...] = ()

    def on(self, variable: str) -> bool:
        """Whether a variable is switched on."""
        return self.variables.get(variable, "").upper() in {"ON", "1", "YES"}

    def value(self, *names: str) -> str:
        """The first of these variables that the server has, in upper case; "" if none."""
        return next((self.variables[n].upper() for n in names if n in self.variables), "")

    def left_out(self, table: str) -> str:
        """Why the log lacks changes of this table of the database; empty if it does not."""
        found = (one.of_table(self.database, table) for one in self.replica_filters)
        name = next(filter(None, found), "") if self.follows else ""
        return f"the server is a replica, and its {name} leaves the table out" if name else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts(LogFacts):
    """One server's answers.

    Attributes:
        host: as in the config.
        user: the account asked with, without its host.
        version: as it says.
        numbers: the version's numbers.
        cipher: the TLS cipher of our end of the connection, "" without TLS.
        verified: what TLS has verified of the server.
        grants: what SHOW GRANTS says, with the active roles' grants.
        replicas: server ids of the connected replicas; None if we may not ask.
        clock_ahead: its clock less ours, seconds.
        clock_error: how far off that may be, seconds.
        tables: the tables that the config mirrors.
        unfit: those that it names but no config can mirror, with the reason.
        missing: names in the config's `tables` that no table has, with a hint.
        helpers: tables that only their name keeps out: schema change tools name theirs like it.
        rules: the foreign keys that change rows.
    """

    host: str
    user: str
    version: str
    numbers: tuple[int, ...]
    cipher: str
    verified: Verified
    grants: tuple[str, ...]
    replicas: frozenset[int] | None
    clock_ahead: float
    clock_error: float
    tables: tuple[TableFacts, ...]
    unfit: Mapping[str, str] = field(default_factory=dict)
    trusted: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    helpers: tuple[str, ...] = ()
    rules: Rules = NO_RULES


def gather(
    session: QuerySession,
    *,
    shard: ShardId,
    host: str,
    user: str,
    database: str,
    patterns: TablePatterns,
    trusts_virtual: bool = False,
    clock: Callable[[], float] = time.time,
) -> ServerFacts:
    """Ask a server everything.

    Raises:
        RetryableError: the connection broke.
    """
    ahead, error = _clock(session, clock)
    size = or_null(as_count)
    sql = _TABLES.format(beside_views(session.query, database, "TABLE_NAME"))
    listed = shaped(session.query(sql, (database,)), as_name, or_null(as_text), size, size)
    names = [row[0] for row in listed]
    variables = _variables(session, "SHOW GLOBAL VARIABLES")
    follows, filters = _following(session, variables)
    writes, left_out = _logging(session)
    odd = unfit_tables(session.query, database=database, trusts_virtual=trusts_virtual)
    trusted = volatile_columns(session.query, database=database) if trusts_virtual else {}
    fit = [row for row in listed if row[0] not in odd]
    facts = ServerFacts(
        shard=shard,
        host=host,
        user=user,
        database=database,
        mariadb=session.is_mariadb,
        version=session.version,
        numbers=session.version_numbers,
        cipher=session.cipher,
        verified=session.verified,
        variables=variables,
        grants=_grants(session),
        binlog_filters=left_out,
        writes_log=writes,
        replicas=_replicas(session),
        follows=follows,
        replica_filters=filters,
        clock_ahead=ahead,
        clock_error=error,
        tables=_tables(session, database, fit, patterns),
        unfit={name: reason for name, reason in odd.items() if patterns.matches(name)},
        trusted={name: reason for name, reason in trusted.items() if patterns.matches(name)},
        missing={name: nearest(name, names, CORRECT_NAME) for name in patterns.missing(names)},
        helpers=tuple(sorted(filter(patterns.leaves_to_tool, names))),
        rules=read_rules(session.query, database=database, trusts_virtual=trusts_virtual),
    )
    filtered = {
        name: why for name in filter(patterns.matches, names) if (why := facts.left_out(name))
    }
    mirrored = [one.name for one in facts.tables if one.name not in filtered]
    shared = sharing_folder((shard.keyspace, name) for name in mirrored)
    out = {**filtered, **{name: why for (_, name), why in shared.items()}}
    return replace(
        facts,
        tables=tuple(one for one in facts.tables if one.name not in out),
        unfit={**facts.unfit, **out},
    )


def gather_log(session: QuerySession, *, shard: ShardId, database: str) -> LogFacts:
    """Ask a server what its log has: some small questions that it does not feel.

    Raises:
        RetryableError: the connection broke.
    """
    names = ", ".join(f"'{name}'" for name in LOG_VARIABLES)
    variables = _variables(session, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    follows, filters = _following(session, variables)
    writes, left_out = _logging(session)
    return LogFacts(
        shard=shard,
        database=database,
        mariadb=session.is_mariadb,
        variables=variables,
        binlog_filters=left_out,
        writes_log=writes,
        follows=follows,
        replica_filters=filters,
    )


def _variables(session: QuerySession, sql: str) -> dict[str, str]:
    """Names in lower case -> values."""
    found = shaped(session.query(sql), as_name, or_null(as_text))
    return {name.lower(): str(value) for name, value in found}


def _clock(session: QuerySession, clock: Callable[[], float]) -> tuple[float, float]:
    """The quickest of three questions tells the most."""
    found = []
    for _ in range(3):
        before = clock()
        rows = session.query("SELECT UNIX_TIMESTAMP(NOW(6))")
        after = clock()
        there = single_value(rows, as_number)
        found.append(((after - before) / 2, there - (before + after) / 2))
    error, ahead = min(found)
    return ahead, error


def _grants(session: QuerySession) -> tuple[str, ...]:
    rows = session.query("SHOW GRANTS")
    roles = single_value(session.query("SELECT CURRENT_ROLE()"), or_null(as_text))
    if session.is_mariadb:  # one at most, and its grants are among them
        active = frozenset([quoted(roles)] if roles else ())
    else:
        active = frozenset(_ROLE.findall(roles or ""))
        if active:
            rows = session.query(f"SHOW GRANTS FOR CURRENT_USER() USING {roles}")
    # MariaDB shows the hash of the password in the same line.
    grants = (grant for (grant,) in shaped(rows, as_text))
    plain = (re.sub(r" IDENTIFIED .*", "", grant, flags=re.DOTALL) for grant in grants)
    return tuple(grant for grant in plain if not _grants_only(grant, active))


def _grants_only(grant: str, roles: frozenset[str]) -> bool:
    """Whether a line grants nothing but roles that are active: their own grants stand beside it."""
    named = _GRANTS_ROLES.match(grant)
    return named is not None and set(_ROLE.findall(named[1])) <= roles


def _logging(session: QuerySession) -> tuple[bool | None, tuple[str, str] | None]:
    """`writes_log` and `binlog_filters`."""
    new = not session.is_mariadb and session.version_numbers >= (8, 2)
    rows = _allowed(session, f"SHOW {'BINARY LOG' if new else 'MASTER'} STATUS")
    if rows is None:
        return None, None
    if not rows:
        return False, ("", "")
    listed = or_null(as_text)
    _, _, does, ignores = single(rows, as_is, as_is, listed, listed, wider=True)
    return True, (does or "", ignores or "")


def _replicas(session: QuerySession) -> frozenset[int] | None:
    new = not session.is_mariadb and session.version_numbers >= (8, 0, 22)
    rows = _allowed(session, "SHOW REPLICAS" if new else "SHOW SLAVE HOSTS")
    if rows is None:
        return None
    return frozenset(number for (number,) in shaped(rows, as_count, wider=True))


def _following(
    session: QuerySession, variables: Mapping[str, str]
) -> tuple[bool | None, tuple[ReplicaFilters, ...]]:
    """Whether the server is a replica, None if we may not ask, and what it leaves out as one."""
    if session.is_mariadb:
        status = "SHOW ALL SLAVES STATUS"
    else:
        new = session.version_numbers >= (8, 0, 22)
        status = f"SHOW {'REPLICA' if new else 'SLAVE'} STATUS"
    try:
        rows = session.query_named(status)
    except SourceUnfitError:  # a privilege is missing
        rows = None
    if rows is not None:
        return bool(rows), tuple(map(read_filters, rows))
    if not session.is_mariadb:
        return None, ()
    # Not empty once it has followed another server by GTID; anybody may read it, as the filters of
    # the connection without a name.
    position = session.query("SELECT @@GLOBAL.gtid_slave_pos")
    follows = True if single_value(position, or_null(as_text)) else None
    return follows, (read_filters(variables),)


def _allowed(session: QuerySession, sql: str) -> Rows | None:
    try:
        return session.query(sql)
    except SourceUnfitError:  # a privilege is missing: fitness says which ones are needed
        return None


def _tables(
    session: QuerySession, database: str, listed: Rows, patterns: TablePatterns
) -> tuple[TableFacts, ...]:
    columns: dict[str, list[tuple[str, str]]] = {}
    beside = beside_views(session.query, database, "TABLE_NAME")
    rows = session.query(_COLUMNS.format(beside), (database,))
    for table, column, kind in shaped(rows, as_name, as_name, as_text):
        columns.setdefault(table, []).append((column, kind))
    schemas = read_schemas(session.query, keyspace=database, database=database)
    return tuple(
        TableFacts(
            name=name,
            engine=engine or "",
            rows=count or 0,
            bytes=size or 0,
            has_key=name in schemas and bool(schemas[name].key),
            columns=tuple(columns.get(name, ())),
            odd=unfit_column(schemas[name]) if name in schemas else None,
        )
        for name, engine, count, size in listed
        if patterns.matches(name)
    )
