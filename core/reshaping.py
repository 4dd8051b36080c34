"""What a change of a table's columns, or of its partitions, does to the rows that are there. Pure.

Lives here: the table's shape behind the change, and each row as it is then. Does not live here:
what a statement says (`core.sql`), the files (`merge.remake`).

Invariant: a change is either computed exactly as the server makes it, or refused with the reason;
columns of which neither is possible are named, and their values have to come from the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ratchet.core.charsets import ONE_TO_ONE
from ratchet.core.columnrules import unfit_key
from ratchet.core.errors import TableStoppedError
from ratchet.core.partitions import PartitionsUnclearError, RowRange
from ratchet.core.rounds import StatementTime
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.sql.effects import TableChanges
from ratchet.core.types import InvalidValuePolicy, arrow_schema, rule_for
from ratchet.core.types.constants import constant_value
from ratchet.core.types.numeric import INTEGER_BITS
from ratchet.core.types.text import TEXTS, WIDEST, capacity

_MOST_DIGITS: Final = 76  # of Arrow's widest decimal


class NotComputableError(Exception):
    """What a change does to the rows is not known for sure; the argument says why."""


class MisfitError(NotComputableError):
    """A value does not fit its column's new type."""


class NotYetComputableError(Exception):
    """What a change does cannot be told yet; the argument says what is waited for.

    Attributes:
        seconds: until it may be known.
        soon: whether a run that has caught up is to wait for it.
    """

    def __init__(self, message: str, *, seconds: float = 0.2, soon: bool = True) -> None:
        super().__init__(message)
        self.seconds, self.soon = seconds, soon


# Rows of the key's columns -> the values of others, NULL where the source has no such key.
FindValues = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class Reshaping:
    """A change of columns.

    Attributes:
        schema: the table's shape behind it.
        columns: the same as the lake has it.
        origins: for each column the one that it comes from, or the value that all rows get; None:
            the source has to be asked for its values.
        changes: what the statement says; nothing where types alone have changed.
        retyped: columns that have another type, in which every value has to fit as it is.
        no_nulls: columns that have become the key: NULL must not be in them.
        gone: the rows that go; None: none do.
    """

    schema: TableSchema
    columns: pa.Schema
    origins: tuple[str | pa.Scalar | None, ...]
    changes: TableChanges
    retyped: frozenset[str] = frozenset()
    no_nulls: frozenset[str] = frozenset()
    gone: RowRange | None = None

    @property
    def asked(self) -> tuple[str, ...]:
        """The columns whose values have to come from the source."""
        named = zip(self.columns.names, self.origins, strict=True)
        return tuple(name for name, origin in named if origin is None)

    def asking(self, names: Iterable[str]) -> Reshaping:
        """The same change, with the values of some more columns from the source.

        Raises:
            NotComputableError: one of them is of the key, by which values are found.
        """
        more = set(names)
        if not more.isdisjoint(self.schema.key):
            raise NotComputableError("a value of its key does not fit the new type")
        named = zip(self.columns.names, self.origins, strict=True)
        origins = tuple(None if name in more else origin for name, origin in named)
        return replace(self, origins=origins, retyped=self.retyped - more)

    def rows(
        self, found: pa.Table, others: Sequence[str], find: FindValues | None = None
    ) -> pa.Table:
        """Rows as they are behind the change.

        Args:
            found: the rows before.
            others: columns of the lake's own, which stay, behind the others.
            find: gives the values of the columns that are `asked`, where there are any.

        Raises:
            MisfitError: a value does not fit its new type.
            NotComputableError: there is a NULL in what has become the key, or it is not known
                whether a row goes.
        """
        if self.gone is not None:
            try:
                found = self.gone.others(found)
            except PartitionsUnclearError as error:
                raise NotComputableError(str(error)) from error
        arrays = {
            field.name: _cast(found.column(origin), field.type)
            if isinstance(origin, str)
            else pa.chunked_array([pa.repeat(origin, found.num_rows)])
            for origin, field in zip(self.origins, self.columns, strict=True)
            if origin is not None
        }
        for column in self.schema.columns:
            if column.name in self.retyped:
                _check_range(column, arrays[column.name])
            if column.name in self.no_nulls and arrays[column.name].null_count:
                raise NotComputableError(f"there was a NULL in {column.name}, now of the key")
        if find is not None:
            values = find(pa.table({name: arrays[name] for name in self.schema.key}))
            arrays |= {name: values.column(name) for name in self.asked}
        fields = [*self.columns, *(found.schema.field(name) for name in others)]
        columns = [*(arrays[name] for name in self.columns.names), *map(found.column, others)]
        return pa.table(columns, pa.schema(fields))


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        if pa.types.is_decimal(kind) and values.type != kind:
            # Of 128 bits Arrow does not notice an overflow, and of integers it wants room for
            # every value of their type, of which the server's may have fewer.
            scale = values.type.scale if pa.types.is_decimal(values.type) else 0
            values = values.cast(pa.decimal256(_MOST_DIGITS, max(scale, kind.scale)))
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise MisfitError(f"a value does not fit its new type: {error}") from error


def _check_range(column: Column, values: pa.ChunkedArray) -> None:
    """The lake's types hold more than the server's: a MEDIUMINT is one of 32 bits there."""
    if pa.types.is_string(values.type):
        length = pc.max(pc.utf8_length(values)).as_py()
        if length is not None and length > _characters(column.type):
            raise MisfitError(f"a number is too long for {column.name}")
        return
    least, most = _range(column.type)
    low = least is not None and pc.any(pc.less(values, pa.scalar(least))).as_py()
    high = most is not None and pc.any(pc.greater(values, pa.scalar(most))).as_py()
    if low or high:
        raise MisfitError(f"a value of {column.name} does not fit its new type")


def _range(kind: ColumnType) -> tuple[int | None, int | Decimal | None]:
    """The least and the greatest number of a type, where its type in the lake may hold others."""
    if kind.name not in INTEGER_BITS:
        return (0 if kind.unsigned else None), None
    span = 1 << INTEGER_BITS[kind.name]
    if kind.unsigned:
        return 0, Decimal(span - 1)  # Arrow takes no Python integer of 64 bits
    return -span // 2, span // 2 - 1


def reshape(
    schema: TableSchema,
    changes: TableChanges,
    *,
    described: TableSchema | None,
    policy: InvalidValuePolicy,
    time: StatementTime | None = None,
) -> Reshaping:
    """What an ALTER TABLE does to a table's rows.

    All names are those of before the statement, as the servers take them.

    Args:
        schema: the table's shape before it.
        changes: what it says.
        described: the table as it was described behind the statement, or is now; None: it is not.
        policy: decides about the lake's types.
        time: when the statement began; None: not known.

    Raises:
        NotComputableError: the rows have to be read from the source.
    """
    names = _Names(schema)
    gone = {names.own(name) for name in changes.dropped}
    new_names = {names.own(old): new for old, new in changes.renamed}
    if not gone.isdisjoint(schema.key):
        raise NotComputableError("a column of its key goes")
    touched = [*changes.dropped, *(old for old, _ in changes.renamed)]
    if len(gone) + len(new_names) < len(touched) or gone & new_names.keys():
        raise NotComputableError("it names a column twice")
    renamed = {old for old, _ in changes.renamed}
    for name in changes.retyped:
        if names.own(name) != name and name not in renamed:
            # MySQL gives the column the name as it is written here, MariaDB does not.
            raise NotComputableError(f"it names {names.own(name)} in other letters")
    columns: list[Column] = []
    origins: list[str | pa.Scalar | None] = []
    for column in schema.columns:
        if column.name not in gone:
            columns.append(replace(column, name=new_names.get(column.name, column.name)))
            origins.append(column.name)
    for added in changes.added:
        if added.if_absent and names.has(added.name):
            # MariaDB looks at the columns of before, also at those that the statement takes away.
            raise NotComputableError(f"it adds {added.name} only if there is none")
        column = _described(added.name, described)
        columns.append(column)
        told = added.is_told
        origins.append(constant_value(added, column, policy, time=time) if told else None)
    key = tuple(new_names.get(name, name) for name in schema.key)
    no_nulls: frozenset[str] = frozenset()
    if changes.key:
        key = tuple(map(names.own, changes.key))
        _refuse_key(schema, key, changes)
        no_nulls = frozenset(key)  # a day of zeros is one, too
        columns = [replace(one, nullable=one.nullable and one.name not in key) for one in columns]
    after = replace(schema, columns=tuple(columns), key=key)
    _Names(after)
    return Reshaping(after, _in_lake(after, policy), tuple(origins), changes, no_nulls=no_nulls)


def without_rows(schema: TableSchema, gone: RowRange, policy: InvalidValuePolicy) -> Reshaping:
    """The change of a table from which rows go, and nothing else.

    Args:
        schema: the table's shape.
        gone: the rows.
        policy: decides about the lake's types.

    Raises:
        NotComputableError: a column has no place in the lake.
    """
    names = tuple(column.name for column in schema.columns)
    return Reshaping(schema, _in_lake(schema, policy), names, TableChanges(), gone=gone)


def _refuse_key(schema: TableSchema, key: tuple[str, ...], changes: TableChanges) -> None:
    """See that a new key tells apart in the lake what it tells apart at the server.

    Raises:
        NotComputableError: that is not sure, or not which columns these are.
    """
    if changes.renamed or changes.added or changes.dropped or changes.retyped:
        raise NotComputableError("it has another key, and other columns")
    if len(set(key)) < len(key):
        raise NotComputableError("its key names a column twice")
    odd = unfit_key(replace(schema, key=key))
    if odd is not None:
        raise NotComputableError(odd.message)
    for name in key:
        kind = schema.column(name).type
        if kind.name in {*TEXTS, "char"} and kind.charset not in ONE_TO_ONE:
            raise NotComputableError(f"{name}, now of the key, may have two values that look alike")


def retype(schema: TableSchema, shape: TableSchema, policy: InvalidValuePolicy) -> Reshaping | None:
    """The change from a table's columns to others of the same names; None: it is another one.

    Values of some types stay the same as long as they fit, which is looked at in each row; those of
    others have to come from the source.

    Args:
        schema: the table's shape.
        shape: the shape of the row events that follow.
        policy: decides about the lake's types.
    """
    come = {column.name: column for column in shape.columns}
    if come.keys() != {column.name for column in schema.columns}:
        return None
    try:
        _in_lake(shape, policy)
    except NotComputableError:
        return None
    columns, retyped, asked = [], set[str](), set[str]()
    for old in schema.columns:
        new, name = come[old.name], old.name
        is_text = name not in schema.key and _becomes_text(old.type, new.type)
        if new.type != old.type and (is_text or _keeps_values(old.type, new.type, policy)):
            retyped.add(name)
        elif rule_for(new.type, policy).arrow != rule_for(old.type, policy).arrow:
            asked.add(name)
        columns.append(replace(old, type=new.type) if name in retyped | asked else old)
    after = replace(schema, columns=tuple(columns))
    if after == schema or not asked.isdisjoint(schema.key):
        return None
    names = tuple(None if c.name in asked else c.name for c in schema.columns)
    return Reshaping(after, _in_lake(after, policy), names, TableChanges(), frozenset(retyped))


def _in_lake(schema: TableSchema, policy: InvalidValuePolicy) -> pa.Schema:
    """The columns as the lake has them."""
    try:
        return arrow_schema(schema, policy)
    except TableStoppedError as error:
        raise NotComputableError(error.message) from error


def _keeps_values(old: ColumnType, new: ColumnType, policy: InvalidValuePolicy) -> bool:
    """Whether every value that fits stays the same, digit by digit."""
    if any(pa.types.is_string(rule_for(kind, policy).arrow) for kind in (old, new)):
        return False  # the server's own text of a day or a long number
    if {old.name, new.name} <= {*INTEGER_BITS, "decimal"}:
        # MySQL 9.7 makes 9223372036854775807 of a DECIMAL of 18446744073709551615.
        long = new.name == "bigint" and new.unsigned
        return not (old.name == "decimal" and long)
    return old.name == "date" and new.name == "datetime"


def _becomes_text(old: ColumnType, new: ColumnType) -> bool:
    """Whether a number is written in its plain digits: ZEROFILL, which no log has, is unsigned."""
    return old.name in INTEGER_BITS and not old.unsigned and _characters(new) > 0


def _characters(kind: ColumnType) -> int:
    """How many digits a text type holds, for certain; 0: none, or that is not known."""
    widest = WIDEST.get(kind.charset)
    return 0 if kind.name not in TEXTS or widest is None else capacity(kind) // widest


def _described(name: str, described: TableSchema | None) -> Column:
    for column in () if described is None else described.columns:
        if column.name == name:
            return column
    raise NotComputableError(f"nothing tells the type of {name}")


class _Names:
    """The names of a table's columns, which servers tell apart without regard to case."""

    def __init__(self, schema: TableSchema) -> None:
        self._names = {column.name.casefold(): column.name for column in schema.columns}
        if len(self._names) < len(schema.columns):
            raise NotComputableError("two of its columns would have one name")

    def has(self, name: str) -> bool:
        """Whether the table may have a column of that name."""
        return name.casefold() in self._names or not name.isascii()

    def own(self, name: str) -> str:
        """A column's name as the table has it."""
        found = self._names.get(name.casefold())
        # Only of plain letters is it sure that a server takes two names for one: ß is not ss.
        if found is None or not (name == found or (name + found).isascii()):
            raise NotComputableError(f"its mirror has no column {name}")
        return found
