"""A table's key as the server orders it, and SQL that walks along it.

Lives here: which index a table is walked along, how a key value is written down ("bound"), and the
conditions that select the rows between two bounds. Does not live here: where to cut (`chunks`),
reading rows (`reader`).

Invariant: keys are compared and ordered by the server alone. A bound is a tuple of texts that the
server gave for the key's columns (or for the first few of them), and comes back to the server
as literals of exactly the same values: numbers as digits, strings as the bytes of their own charset
with introducer and collation, ENUM, SET and BIT as numbers.

Measured on MySQL 9.7 and MariaDB 10.11 (EXPLAIN and the handler counters,
tests/integration/test_chunks.py):
- `(a > x) OR (a = x AND b > y)` is read as index ranges by both; the nested form
  `a >= x AND (a > x OR b > y)` reads all rows with `a = x` first; row constructors do not use the
  index at all.
- `enum > x` compares labels, and `enum + 0 > x` scans the index from its beginning. A list of
  numbers, `enum IN (3, 4)`, is read as ranges. Behind the last member stands a number that no
  ENUM has: without it the server takes `enum = 4 AND b > y` for rows that it has to sort.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ratchet.core.columnrules import unfit_key
from ratchet.core.errors import TableStoppedError
from ratchet.core.patterns import exclusion
from ratchet.core.schema import Column, TableSchema
from ratchet.core.types import network
from ratchet.snapshot.errors import ShapeChangedError
from ratchet.wire.decode.answers import as_name, as_text, or_null, refusal, shaped
from ratchet.wire.session import quoted

Query = Callable[[str], list[tuple[Any, ...]]]
Bound = tuple[str, ...]

KeyKind = Literal["integer", "decimal", "temporal", "text", "bytes", "enum", "number", "address"]

_KINDS: Final[Mapping[str, KeyKind]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), "integer"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "bytes"),
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), "temporal"),
    **dict.fromkeys(("set", "bit", "year"), "number"),
    **dict.fromkeys(network.NAMES, "address"),
    "decimal": "decimal",
    "enum": "enum",
}
# Charsets whose text arrives unchanged over our connection (utf8mb4), so that a decoded string's
# UTF-8 bytes are the stored ones.
_SAME_BYTES: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
# How a server writes a key's values. They go back to it within statements, as they are.
_TEXTS: Final[Mapping[KeyKind, re.Pattern[str]]] = {
    "integer": re.compile(r"-?[0-9]{1,255}"),  # ZEROFILL gives a number up to 255 digits
    "decimal": re.compile(r"-?(?=[0-9.])[0-9]{0,65}(?:\.[0-9]{1,38})?"),
    "number": re.compile(r"[0-9]{1,20}"),
    "enum": re.compile(r"[0-9]{1,5}"),
    "text": re.compile(r"(?:[0-9A-F]{2})*"),
    "bytes": re.compile(r"(?:[0-9A-F]{2})*"),
    "temporal": re.compile(r"-?[0-9][0-9:. -]{0,31}"),
    "address": re.compile(r"[0-9A-Fa-f:.-]{1,64}"),
}
_NO_ENUM: Final = 70000  # an ENUM has at most 65,535 members


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumn:
    """One column of the index that a table is walked along.

    Attributes:
        name: its name.
        kind: how its values are written down and compared; "number" is for SET, BIT and YEAR.
        descending: whether the index has it in falling order.
        charset: charset of a "text" column, as the introducer names it.
        collation: its collation.
        members: how many members an ENUM has.
        searchable: False if the server cannot use the index for `>` on this column (SET).
    """

    name: str
    kind: KeyKind
    descending: bool = False
    charset: str = ""
    collation: str = ""
    members: int = 0
    searchable: bool = True

    @property
    def sql(self) -> str:
        """The quoted name."""
        return quoted(self.name)

    @property
    def text(self) -> str:
        """SQL for the value as a bound has it."""
        if self.kind in {"text", "bytes"}:
            return f"HEX({self.sql})"
        if self.kind in {"enum", "number"}:
            return f"CAST({self.sql} + 0 AS CHAR)"
        return f"CAST({self.sql} AS CHAR)"

    @property
    def raw(self) -> str:
        """SQL for the value's bytes, for `text_of`; half as long as `text` for strings."""
        return f"CAST({self.sql} AS BINARY)" if self.kind == "text" else self.text

    @property
    def native(self) -> bool:
        """Whether a value decoded for the lake says as much as `raw` does."""
        if self.kind == "text":
            return self.charset in _SAME_BYTES
        return self.kind in {"integer", "bytes"}

    def text_of(self, value: object) -> str:
        """A bound's text from the bytes of `raw`, or from a decoded value if it is `native`.

        Raises:
            DecodeError: no value of this column is written so.
        """
        if self.kind in {"text", "bytes"}:
            raw = value.encode() if isinstance(value, str) else value
            if not isinstance(raw, bytes):
                raise refusal(f"{raw!r} as a value of the key column {self.name}")
            return raw.hex().upper()
        return self.checked(value.decode("ascii", "replace") if isinstance(value, bytes) else value)

    def checked(self, value: object) -> str:
        """A bound's text as `text` gives it.

        Raises:
            DecodeError: no value of this column is written so.
        """
        text = f"{value}"
        fits = _TEXTS[self.kind].fullmatch(text) is not None
        if not fits or (self.kind == "enum" and int(text) > self.members):
            raise refusal(f"{text[:60]!r} as a value of the key column {self.name}")
        return text

    def literal(self, text: str) -> str:
        """A bound's text as an SQL literal of exactly that value."""
        if self.kind in {"integer", "decimal", "enum", "number"}:
            return text
        if self.kind == "bytes":
            return f"x'{text}'"
        if self.kind == "text":
            return f"_{self.charset} x'{text}' COLLATE {self.collation}"
        return f"'{text}'"  # a date, a time or an address: it holds no quotes

    def equal(self, text: str) -> str:
        """The condition: equal to this value."""
        return f"{self.sql} = {self.literal(text)}"

    def behind(self, text: str) -> str:
        """The condition: behind this value in the index's order."""
        return self._compare(text, greater=not self.descending, same=False)

    def before(self, text: str, *, same: bool) -> str:
        """The condition: before this value in the index's order, or `same`: equal to it."""
        return self._compare(text, greater=self.descending, same=same)

    def _compare(self, text: str, *, greater: bool, same: bool) -> str:
        if self.kind == "enum":
            number = int(text)
            first = number + (not same)
            found = range(first, self.members + 1) if greater else range(number + same)
            return f"{self.sql} IN ({', '.join(str(n) for n in found or (_NO_ENUM,))})"
        column = self.sql if self.searchable else f"{self.sql} + 0"
        return f"{column} {'>' if greater else '<'}{'=' if same else ''} {self.literal(text)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRange:
    """The rows behind `after` up to and including `upto`; None: from the beginning, to the end.

    A bound of fewer texts than the key has columns stands for all rows that begin with them:
    they are all inside as `upto`, and all outside as `after`.
    """

    after: Bound | None = None
    upto: Bound | None = None

    def to_json(self) -> list[Any]:
        """As plain JSON values; `from_json` reads it back."""
        return [self.after and list(self.after), self.upto and list(self.upto)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> ChunkRange:
        """Read what `to_json` wrote."""
        after, upto = data
        return cls(after=after and tuple(after), upto=upto and tuple(upto))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlan:
    """How a table is walked.

    Attributes:
        database: database on the server.
        table: its name.
        index: name of the index.
        columns: the index's columns, in its order.
        walkable: whether the index gives the rows in order. If not (the index holds prefixes of
            the values, or is a hash), the table is read as one chunk in no order.
        collations: column -> its collation, of the table's columns of text.
    """

    database: str
    table: str
    index: str
    columns: tuple[KeyColumn, ...]
    walkable: bool = True
    collations: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The FROM clause's table, walked along the index."""
        name = f"{quoted(self.database)}.{quoted(self.table)}"
        return f"{name} FORCE INDEX ({quoted(self.index)})" if self.walkable else name

    @property
    def texts(self) -> str:
        """The select list that gives a row's bound."""
        return ", ".join(column.text for column in self.columns)

    def order(self, *, backwards: bool = False) -> str:
        """The ORDER BY clause in the index's own order; empty if it gives none."""
        if not self.walkable:
            return ""
        items = (f"{c.sql}{' DESC' if c.descending != backwards else ''}" for c in self.columns)
        return f" ORDER BY {', '.join(items)}"

    def where(self, keys: ChunkRange) -> str:
        """The WHERE clause of a range; empty for the whole table."""
        parts = []
        if keys.after is not None:
            parts.append(self._after(keys.after))
        if keys.upto is not None:
            parts.append(self._upto(keys.upto))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def bound(self, row: Sequence[object]) -> Bound:
        """The bound from a row selected by `texts`.

        Raises:
            DecodeError: it is no such row.
        """
        if len(row) != len(self.columns):
            raise refusal(f"{len(row)} columns of a key that has {len(self.columns)}")
        return tuple(column.checked(text) for column, text in zip(self.columns, row, strict=True))

    def _after(self, bound: Bound) -> str:
        cases = [
            " AND ".join([*self._equal(bound[:i]), self.columns[i].behind(bound[i])])
            for i in range(len(bound))
        ]
        return _any(cases)

    def _upto(self, bound: Bound) -> str:
        last = len(bound) - 1
        cases = [
            " AND ".join(
                [*self._equal(bound[:i]), self.columns[i].before(bound[i], same=i == last)]
            )
            for i in range(len(bound))
        ]
        return _any(cases)

    def _equal(self, bound: Bound) -> list[str]:
        return [c.equal(text) for c, text in zip(self.columns, bound, strict=False)]


def _any(cases: Sequence[str]) -> str:
    return f"({' OR '.join(f'({case})' for case in cases)})"


@dataclass(frozen=True, slots=True)
class _Index:
    name: str
    columns: tuple[tuple[str, bool], ...]  # name, descending
    walkable: bool


def find_plan(query: Query, *, database: str, schema: TableSchema, mariadb: bool) -> KeyPlan:
    """How to walk a table: along its primary key, or another unique key without NULLs.

    Args:
        query: runs a statement on the server.
        database: the database there.
        schema: the table.
        mariadb: whether the server is a MariaDB.

    Raises:
        TableStoppedError: it has no key that identifies rows, or the key has FLOAT or DOUBLE.
    """
    _refuse_unusable(schema)
    collations = _collations(query, database, schema.table)
    found = _unique_indexes(query, database, schema.table, mariadb=mariadb)
    known = {column.name for column in schema.columns}
    if not all(name in known for index in found for name, _ in index.columns):
        raise ShapeChangedError(
            "the table's columns are changing now",
            operation="choose the key to read a table by",
            table=schema.name,
            hint="dump the table again: `ratchet table CONFIG redump TABLE`",
        )
    indexes = [
        index
        for index in found
        if all(schema.column(name).type.name in _KINDS for name, _ in index.columns)
    ]
    if not indexes:
        raise _no_key(schema, "no unique key without NULLs can be read in order")
    # The key that identifies rows comes first, then any other that can be walked.
    indexes.sort(key=lambda i: (not i.walkable, {n for n, _ in i.columns} != set(schema.key)))
    chosen = indexes[0]
    columns = tuple(
        _key_column(schema.column(name), collations.get(name, ("", "")), descending=descending)
        for name, descending in chosen.columns
    )
    return KeyPlan(
        database=database,
        table=schema.table,
        index=chosen.name,
        columns=columns,
        walkable=chosen.walkable,
        collations={name: collation for name, (_, collation) in collations.items()},
    )


def _refuse_unusable(schema: TableSchema) -> None:
    if not schema.key:
        raise _no_key(
            schema,
            "the table has neither a primary key nor a unique key without NULLs over whole columns",
        )
    odd = unfit_key(schema)
    if odd is not None:
        raise TableStoppedError(
            odd.message,
            operation="choose the key to read a table by",
            table=schema.name,
            hint=odd.hint,
        )


def _no_key(schema: TableSchema, message: str) -> TableStoppedError:
    return TableStoppedError(
        message,
        operation="choose the key to read a table by",
        table=schema.name,
        hint=f"ALTER TABLE {quoted(schema.table)} ADD PRIMARY KEY (...);  -- or exclude the table: "
        f"{exclusion(schema.table)} in `tables`",
    )


def _collations(query: Query, database: str, table: str) -> dict[str, tuple[str, str]]:
    rows = query(
        "SELECT COLUMN_NAME, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS"
        f" WHERE TABLE_SCHEMA = {string_literal(database)} AND TABLE_NAME = {string_literal(table)}"
        " AND COLLATION_NAME IS NOT NULL"
    )
    described = shaped(rows, as_name, as_text, as_text)
    return {name: (charset, collation) for name, charset, collation in described}


def _unique_indexes(query: Query, database: str, table: str, *, mariadb: bool) -> list[_Index]:
    """Unique indexes without NULLs that a statement may name, the primary key first."""
    usable = "IGNORED = 'NO'" if mariadb else "IS_VISIBLE = 'YES'"
    rows = query(
        "SELECT INDEX_NAME, COLUMN_NAME, COLLATION, SUB_PART, NULLABLE, INDEX_TYPE"
        " FROM information_schema.STATISTICS"
        f" WHERE TABLE_SCHEMA = {string_literal(database)} AND TABLE_NAME = {string_literal(table)}"
        f" AND NON_UNIQUE = 0 AND {usable}"
        " ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
    )
    found: dict[str, list[tuple[Any, ...]]] = {}
    absent = or_null(as_text)
    for row in shaped(rows, as_name, or_null(as_name), absent, absent, absent, absent):
        found.setdefault(row[0], []).append(row)
    return [
        _Index(
            name,
            tuple((row[1], row[2] == "D") for row in parts),
            all(row[3] is None and row[5] == "BTREE" for row in parts),
        )
        for name, parts in found.items()
        if all(row[1] is not None and row[4] != "YES" for row in parts)
    ]


def _key_column(column: Column, collation: tuple[str, str], *, descending: bool) -> KeyColumn:
    kind = _KINDS[column.type.name]
    text = kind == "text"
    return KeyColumn(
        name=column.name,
        kind=kind,
        descending=descending,
        charset=collation[0] if text else "",
        collation=collation[1] if text else "",
        members=len(column.type.members) if kind == "enum" else 0,
        searchable=column.type.name != "set",
    )


def string_literal(text: str) -> str:
    """An SQL string literal whose quoting depends on no sql_mode."""
    return f"_utf8mb4 x'{text.encode().hex()}'" if text else "''"
