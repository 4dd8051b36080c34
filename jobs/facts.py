"""What `ratchet check` wants to know of a server: the questions, and their answers as values.

Lives here: the statements. Does not live here: judging the answers (`fitness`).

Invariant: only reads, and nothing that a busy server feels. What the account may not ask is None,
never a guess.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from core.errors import SourceUnfitError
from core.patterns import TablePatterns
from core.shard import ShardId
from jobs.foreignkeys import NO_RULES, Rules, read_rules
from jobs.text import CORRECT_NAME, nearest
from wire.decode.catalog import unfit_tables

Rows = list[tuple[Any, ...]]

_TABLES: Final = (
    "SELECT TABLE_NAME, ENGINE, TABLE_ROWS, DATA_LENGTH FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_NAME"
)
_COLUMNS: Final = (
    "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS "
    "WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, ORDINAL_POSITION"
)
# Grouped here, not there: information_schema compares names without regard to letter case.
_KEYS: Final = (
    "SELECT TABLE_NAME, INDEX_NAME, "
    "NULLABLE = 'YES' OR SUB_PART IS NOT NULL OR COLUMN_NAME IS NULL "
    "FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND NON_UNIQUE = 0"
)


class Asks(Protocol):
    """The part of `wire.session.Session` that is used here."""

    version: str
    version_numbers: tuple[int, ...]
    flavor: Any

    @property
    def is_mariadb(self) -> bool:
        """Whether it is a MariaDB."""

    def query(self, sql: str, args: Any = None) -> Rows:
        """Run a statement."""


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
    """

    name: str
    engine: str
    rows: int
    bytes: int
    has_key: bool
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One server's answers.

    Attributes:
        shard: the shard it serves.
        host: as in the config.
        user: the account asked with, without its host.
        database: the database that is mirrored.
        mariadb: whether it is a MariaDB.
        version: as it says.
        numbers: the version's numbers.
        cipher: the TLS cipher of our connection, "" without TLS.
        variables: its global variables, names in lower case.
        grants: what SHOW GRANTS says, with the active roles' grants.
        binlog_filters: binlog_do_db and binlog_ignore_db; None if we may not ask.
        replicas: server ids of the connected replicas; None if we may not ask.
        follows: whether it is a replica itself; None if we may not ask.
        clock_ahead: its clock less ours, seconds.
        clock_error: how far off that may be, seconds.
        tables: the tables that the config mirrors.
        unfit: those that it names but no config can mirror, with the reason.
        missing: names in the config's `tables` that no table has, with a hint.
        rules: the foreign keys that change rows.
    """

    shard: ShardId
    host: str
    user: str
    database: str
    mariadb: bool
    version: str
    numbers: tuple[int, ...]
    cipher: str
    variables: Mapping[str, str]
    grants: tuple[str, ...]
    binlog_filters: tuple[str, str] | None
    replicas: frozenset[int] | None
    follows: bool | None
    clock_ahead: float
    clock_error: float
    tables: tuple[TableFacts, ...]
    unfit: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    rules: Rules = NO_RULES

    def on(self, variable: str) -> bool:
        """Whether a variable is switched on."""
        return self.variables.get(variable, "").upper() in {"ON", "1", "YES"}

    def value(self, *names: str) -> str:
        """The first of these variables that the server has, in upper case; "" if none."""
        return next((self.variables[n].upper() for n in names if n in self.variables), "")


def gather(
    session: Asks,
    *,
    shard: ShardId,
    host: str,
    user: str,
    database: str,
    patterns: TablePatterns,
    clock: Callable[[], float] = time.time,
) -> ServerFacts:
    """Ask a server everything.

    Raises:
        RetryableError: the connection broke.
    """
    ahead, error = _clock(session, clock)
    listed = session.query(_TABLES, (database,))
    names = [str(row[0]) for row in listed]
    cipher = session.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    return ServerFacts(
        shard=shard,
        host=host,
        user=user,
        database=database,
        mariadb=session.is_mariadb,
        version=session.version,
        numbers=session.version_numbers,
        cipher=str(cipher[0][1]) if cipher else "",
        variables={
            str(name).lower(): str(value) for name, value in session.query("SHOW GLOBAL VARIABLES")
        },
        grants=_grants(session),
        binlog_filters=_binlog_filters(session),
        replicas=_replicas(session),
        follows=_follows(session),
        clock_ahead=ahead,
        clock_error=error,
        tables=_tables(session, database, listed, patterns),
        unfit={
            name: reason
            for name, reason in unfit_tables(session.query, database=database).items()
            if patterns.matches(name)
        },
        missing={name: nearest(name, names, CORRECT_NAME) for name in patterns.missing(names)},
        rules=read_rules(session.query, database=database),
    )


def _clock(session: Asks, clock: Callable[[], float]) -> tuple[float, float]:
    """The quickest of three questions tells the most."""
    found = []
    for _ in range(3):
        before = clock()
        (there,) = session.query("SELECT UNIX_TIMESTAMP(NOW(6))")[0]
        after = clock()
        found.append(((after - before) / 2, float(there) - (before + after) / 2))
    error, ahead = min(found)
    return ahead, error


def _grants(session: Asks) -> tuple[str, ...]:
    rows = session.query("SHOW GRANTS")
    if not session.is_mariadb:
        (roles,) = session.query("SELECT CURRENT_ROLE()")[0]
        if roles and str(roles) != "NONE":
            rows = session.query(f"SHOW GRANTS FOR CURRENT_USER() USING {roles}")
    # MariaDB shows the hash of the password in the same line.
    return tuple(re.sub(r" IDENTIFIED .*", "", str(row[0]), flags=re.DOTALL) for row in rows)


def _binlog_filters(session: Asks) -> tuple[str, str] | None:
    new = not session.is_mariadb and session.version_numbers >= (8, 2)
    rows = _allowed(session, f"SHOW {'BINARY LOG' if new else 'MASTER'} STATUS")
    if rows is None:
        return None
    return (str(rows[0][2] or ""), str(rows[0][3] or "")) if rows else ("", "")


def _replicas(session: Asks) -> frozenset[int] | None:
    new = not session.is_mariadb and session.version_numbers >= (8, 0, 22)
    rows = _allowed(session, "SHOW REPLICAS" if new else "SHOW SLAVE HOSTS")
    return None if rows is None else frozenset(int(row[0]) for row in rows)


def _follows(session: Asks) -> bool | None:
    new = not session.is_mariadb and session.version_numbers >= (8, 0, 22)
    rows = _allowed(session, "SHOW REPLICA STATUS" if new else "SHOW SLAVE STATUS")
    if rows is None and session.is_mariadb:
        # Not empty once it has followed another server by GTID; anybody may read it.
        return True if session.query("SELECT @@GLOBAL.gtid_slave_pos")[0][0] else None
    return None if rows is None else bool(rows)


def _allowed(session: Asks, sql: str) -> Rows | None:
    try:
        return session.query(sql)
    except SourceUnfitError:  # a privilege is missing: fitness says which ones are needed
        return None


def _tables(
    session: Asks, database: str, listed: Rows, patterns: TablePatterns
) -> tuple[TableFacts, ...]:
    columns: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in session.query(_COLUMNS, (database,)):
        columns.setdefault(str(table), []).append((str(column), str(kind)))
    # A key tells every row from every other: no NULLs, no prefixes, no expressions.
    useless: dict[tuple[str, str], bool] = {}
    for table, index, odd in session.query(_KEYS, (database,)):
        name = (str(table), str(index))
        useless[name] = useless.get(name, False) or bool(odd)
    keyed = {table for (table, _), odd in useless.items() if not odd}
    return tuple(
        TableFacts(
            name=str(name),
            engine=str(engine or ""),
            rows=int(rows or 0),
            bytes=int(size or 0),
            has_key=str(name) in keyed,
            columns=tuple(columns.get(str(name), ())),
        )
        for name, engine, rows, size in listed
        if patterns.matches(str(name))
    )
