"""Tables as information_schema describes them, in the same form as the log does (`tablemap`).

Lives here: the queries and what their columns mean. Does not live here: the connection; a query
function comes in from outside.

Invariant: for a table that both know, the schema from here equals the one from its table map. (But
for labels of ENUM and SET beyond the Basic Multilingual Plane, which information_schema lacks.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ratchet.core.errors import DecodeError
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.types import network
from ratchet.wire.decode.answers import (
    as_count,
    as_is,
    as_name,
    as_text,
    or_null,
    refusal,
    settled,
    shaped,
)
from ratchet.wire.decode.views import beside_views

Key = tuple[str, ...]
Query = Callable[[str, Sequence[object]], Sequence[Sequence[Any]]]

# MariaDB compares names there without regard to letter case, and may have both `t` and `T`.
# It opens the tables of all databases, and waits for their locks, unless a condition names one: for
# each table of a join, with no condition that the two are one, and in the right column (it does not
# look for `trigger_schema`).
_COLUMNS: Final = """
SELECT c.table_name, c.column_name, c.is_nullable, c.data_type, c.column_type,
       c.character_octet_length, c.numeric_precision, c.numeric_scale, c.datetime_precision,
       c.character_set_name
  FROM information_schema.columns c
  JOIN information_schema.tables t
    ON {joined} CAST(t.table_name AS BINARY) = CAST(c.table_name AS BINARY)
 WHERE c.table_schema = %s AND t.table_schema = %s AND t.table_type = 'BASE TABLE'{only}
 ORDER BY c.table_name, c.ordinal_position
"""

# MariaDB's unique keys over long texts (HASH, but not in the MEMORY engine) are no keys to the
# server: they stand on a hidden column.
_KEYS: Final = """
SELECT s.table_name, s.index_name, s.column_name, s.nullable, s.sub_part
  FROM information_schema.statistics s
  JOIN information_schema.tables t
    ON {joined} CAST(t.table_name AS BINARY) = CAST(s.table_name AS BINARY)
 WHERE s.table_schema = %s AND t.table_schema = %s AND s.non_unique = 0
   AND (s.index_type <> 'HASH' OR t.engine = 'MEMORY'){only}
 ORDER BY s.table_name, s.index_name, s.seq_in_index
"""
_PAUSES: Final = (0.05, 0.5)  # seconds between tries
_SIZE: Final = or_null(as_count)
_DESCRIBED: Final = (
    as_name, as_name, as_text, as_text, as_text, _SIZE, _SIZE, _SIZE, _SIZE, or_null(as_text)
)  # fmt: skip
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
_ESCAPES: Final = {"''": "'", r"\\": "\\", r"\n": "\n", r"\r": "\r", r"\0": "\0"}
_ESCAPE: Final = re.compile(r"''|\\[\\nr0]")
_LEGACY_MARK: Final = "/* mariadb-5.3 */"
_HASH_COLUMN: Final = re.compile(r"DB_ROW_HASH_\d+")
_PRIMARY: Final = "PRIMARY"
_DIGITS: Final = 6  # of a fraction of a second
_WITH_LENGTH: Final = {"char", "varchar", "binary", "varbinary", "vector"}


def read_schemas(
    query: Query, *, keyspace: str, database: str, table: str | None = None
) -> dict[str, TableSchema]:
    """The schemas of all tables of a database that can be mirrored, by table name.

    See `unfit.unfit_tables` for those that cannot.

    Args:
        query: runs a statement with arguments (%s) and returns its rows.
        keyspace: the keyspace that the tables belong to.
        database: the database's name on the server.
        table: the one that is asked about; None: all.
    """
    found = read_declared(query, keyspace=keyspace, database=database, table=table)
    return {name: declared.schema for name, declared in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """A table with its columns' types as they were declared.

    Attributes:
        schema: its schema.
        types: COLUMN_TYPE of each column, as in "enum('a','b')".
    """

    schema: TableSchema
    types: tuple[str, ...]


def read_declared(
    query: Query, *, keyspace: str, database: str, table: str | None = None
) -> dict[str, DeclaredTable]:
    """As `read_schemas`, with the declarations.

    A table whose columns and keys do not fit each other, however often it is asked, is left out: it
    is being altered all the time.
    """
    try:
        return settled(
            lambda: _read_declared(query, keyspace, database, table),
            pauses=_PAUSES,
            unless=(DecodeError,),
        )
    except DecodeError:
        return _read_declared(query, keyspace, database, table, torn=True)


def _read_declared(
    query: Query, keyspace: str, database: str, only: str | None, *, torn: bool = False
) -> dict[str, DeclaredTable]:
    """`only`: one table; `torn`: tables that do not fit are left out, and not refused."""
    views = "" if only is not None else beside_views(query, database, "c.table_name")
    columns_of, keys_of = (
        sql.format(
            joined=f"t.table_name = {one}.table_name AND" if only is None else "",
            only=beside if only is None else f" AND {one}.table_name = %s AND t.table_name = %s",
        )
        for sql, one, beside in ((_COLUMNS, "c", views), (_KEYS, "s", ""))
    )
    names = [database, database, *(() if only is None else (only, only))]
    columns: dict[str, list[Column]] = {}
    types: dict[str, list[str]] = {}
    for table, *described in shaped(query(columns_of, names), *_DESCRIBED):
        columns.setdefault(table, []).append(_column(described))
        types.setdefault(table, []).append(described[3])
    indexed = query(keys_of, names)
    keys = _keys(indexed, lambda table: _index_order(query, database, table))
    for table, key in keys.items():
        if {column.name for column in columns.get(table, ())}.issuperset(key):
            continue
        if table in columns and not torn:
            raise refusal(f"the key {key} of {table[:60]} has columns that the table does not have")
        columns.pop(table, None)
    return {
        table: DeclaredTable(
            schema=TableSchema(
                keyspace=keyspace, table=table, columns=tuple(found), key=keys.get(table, ())
            ),
            types=tuple(types[table]),
        )
        for table, found in columns.items()
    }


def hints(schema: TableSchema) -> dict[str, str]:
    """What the log does not tell of a table's columns, by name, for `parse_table_map`.

    "uuid", "inet4", "inet6": what some bytes are. "year2": YEAR(2). "legacy:N": a temporal column
    in the format of MariaDB 5.3 with N digits of fraction. "plain": a column of the table's own
    whose name is like that of a hidden one.
    """
    found: dict[str, str] = {}
    for column in schema.columns:
        kind = column.type
        if kind.name in network.NAMES:
            found[column.name] = kind.name
        elif kind.name == "year" and kind.length == 2:
            found[column.name] = "year2"
        elif kind.legacy:
            found[column.name] = f"legacy:{kind.fraction}"
        elif _HASH_COLUMN.fullmatch(column.name):
            found[column.name] = "plain"
    return found


def _column(row: Sequence[Any]) -> Column:
    return Column(
        name=row[0],
        type=declared_type(row[2].lower(), row[3], *row[4:9]),
        nullable=row[1] == "YES",
    )


def declared_type(
    name: str,
    declared: str,
    octets: int | None,
    precision: int | None,
    scale: int | None,
    fraction: int | None,
    charset: str | None,
) -> ColumnType:
    """A column's type from its description in information_schema.columns.

    Args:
        name: DATA_TYPE in lower case.
        declared: COLUMN_TYPE.
        octets: CHARACTER_OCTET_LENGTH.
        precision: NUMERIC_PRECISION.
        scale: NUMERIC_SCALE.
        fraction: DATETIME_PRECISION.
        charset: CHARACTER_SET_NAME.

    Raises:
        DecodeError: no column has such a type.
    """
    if (
        (name == "decimal" and (precision is None or scale is None or scale > precision))
        or (name == "bit" and precision is None)
        or (fraction or 0) > _DIGITS
    ):
        raise refusal(f"a column of the type {declared[:60]}, {precision}, {scale}, {fraction}")
    unsigned = bool(re.search(r"\bunsigned\b", declared))
    if name in {"enum", "set"}:
        return ColumnType(name=name, charset=_utf8(charset), members=_labels(declared))
    if name == "decimal":
        return ColumnType(name=name, unsigned=unsigned, precision=precision, scale=scale)
    if name == "bit":
        return ColumnType(name=name, length=precision)
    if name == "year":
        return ColumnType(name=name, length=2 if declared.startswith("year(2)") else None)
    if name in {"time", "datetime", "timestamp"}:
        legacy = _LEGACY_MARK in declared
        return ColumnType(name=name, fraction=fraction or 0, legacy=legacy)
    if name in _WITH_LENGTH:
        return ColumnType(name=name, length=octets, charset=_utf8(charset))
    return ColumnType(name=name, unsigned=unsigned, charset=_utf8(charset))


def _utf8(charset: str | None) -> str | None:
    """Servers before MySQL 8.0.30 and MariaDB 10.6 called utf8mb3 by its old name."""
    return "utf8mb3" if charset == "utf8" else charset


def _labels(declared: str) -> tuple[str, ...]:
    """The labels in "enum('a','it''s')", which the server escapes in five ways.

    Characters outside of the Basic Multilingual Plane are "?" there; the log has them right.
    """
    return tuple(
        _ESCAPE.sub(lambda found: _ESCAPES[found[0]], label) for label in _LABEL.findall(declared)
    )


def _keys(rows: Sequence[Sequence[Any]], order: Callable[[str], list[str]]) -> dict[str, Key]:
    """The key of each table that has one: the key that the server itself takes, and logs.

    That is the primary key, else the first unique key in the server's order without NULLs, prefixes
    and expressions.

    Args:
        rows: of _KEYS.
        order: gives the names of a table's indexes in the server's order.
    """
    indexes: dict[str, dict[str, list[tuple[str, bool]]]] = {}
    for table, index, column, nullable, prefix in shaped(
        rows, as_name, as_name, or_null(as_name), or_null(as_text), or_null(as_count)
    ):
        parts = indexes.setdefault(table, {}).setdefault(index, [])
        # A part without a column is an expression (MySQL's functional indexes).
        usable = column is not None and nullable != "YES"
        whole = prefix is None or index == _PRIMARY
        parts.append((column or "", usable and whole))
    keys = {}
    for table_name, found in indexes.items():
        fit = {
            name: tuple(column for column, _ in parts)
            for name, parts in found.items()
            if all(usable for _, usable in parts)
        }
        if _PRIMARY in fit or len(fit) == 1:
            keys[table_name] = fit.get(_PRIMARY) or next(iter(fit.values()))
        elif fit:
            named = (fit[name] for name in order(table_name) if name in fit)
            keys[table_name] = next(named, ())  # it was dropped just now
    return keys


def _index_order(query: Query, database: str, table: str) -> list[str]:
    """The names of a table's indexes in the server's order, which information_schema lacks."""
    where = ".".join("`" + name.replace("`", "``") + "`" for name in (database, table))
    rows = shaped(query(f"SHOW INDEX FROM {where}", []), as_is, as_is, as_name, wider=True)
    return [name for _, _, name in rows]
