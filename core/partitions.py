"""Which rows a partition by RANGE holds. Pure.

A server takes all rows of a partition away by one statement (DROP or TRUNCATE PARTITION), and logs
nothing but that. Where the bounds are known, so are the rows.

Lives here: a table's partitions, what statements make of them, the values that one of them holds.
Does not live here: reading them (`wire.decode.partitions`), what a statement says (`core.sql`).

Invariant: what is not known for certain is refused, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy, rule_for
from ratchet.core.types.numeric import INTEGER_BITS

_MOST: Final = "MAXVALUE"
_EXPRESSION: Final = re.compile(
    r"(?:(to_days|to_seconds|year|unix_timestamp)\()?`((?:[^`]|``)+)`(\))?", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
# A server shows a day as it was typed. Fractions of a second may have been rounded.
_MOMENT: Final = re.compile(
    r"'([0-9]{4}-[0-9]{2}-[0-9]{2})(?: ([0-9]{2}:[0-9]{2}(?::[0-9]{2})?))?'"
)
# Day 366 is the first of year 1 (measured on both servers), which Python counts as day 1.
_FIRST_DAY: Final = 365
_DAY_SECONDS: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC, as the lake's type has it
_LARGEST: Final = (1 << 63) - 1
_CUT: Final = timedelta(milliseconds=1)


class PartitionsUnclearError(Exception):
    """Which rows are meant is not known for sure; the argument says why."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition.

    Attributes:
        name: its name; empty: not known.
        bound: its values are below it, as its server writes that.
    """

    name: str
    bound: str


@dataclass(frozen=True, slots=True)
class RangeLayout:
    """How a table is partitioned by RANGE.

    Attributes:
        expression: what chooses the partition, as the server writes it.
        partitions: in order.
    """

    expression: str
    partitions: tuple[Partition, ...]

    @property
    def column(self) -> str:
        """The column that chooses the partition; empty: it is not just one."""
        found = _EXPRESSION.fullmatch(self.expression)
        return "" if found is None else found[2].replace("``", "`")

    def without(self, names: Collection[str]) -> RangeLayout:
        """Behind a DROP PARTITION.

        Raises:
            PartitionsUnclearError: one of them is not known.
        """
        gone = set(self._places(names))
        left = (one for at, one in enumerate(self.partitions) if at not in gone)
        return replace(self, partitions=tuple(left))

    def reorganized(self, names: Collection[str]) -> RangeLayout:
        """Behind a REORGANIZE PARTITION, of which only the names in front of INTO are told.

        The server lets the whole range stay, but for the table's end, which may move up.

        Raises:
            PartitionsUnclearError: one of them is not known, or they are not neighbours.
        """
        at = sorted(self._places(names))
        if at != list(range(at[0], at[-1] + 1)):
            raise PartitionsUnclearError("partitions were reorganized that are no neighbours")
        first, last = at[0], at[-1]
        ends = last + 1 == len(self.partitions)
        block = Partition("", "" if ends else self.partitions[last].bound)
        return replace(
            self, partitions=(*self.partitions[:first], block, *self.partitions[last + 1 :])
        )

    def rows(
        self, names: Collection[str], schema: TableSchema, policy: InvalidValuePolicy
    ) -> RowRange:
        """The rows that some partitions hold.

        Args:
            names: of the partitions.
            schema: the mirrored table.
            policy: decides about the lake's types.

        Raises:
            PartitionsUnclearError: that is not known.
        """
        column, kind, read = self._values(schema, policy)
        spans = []
        for at in sorted(self._places(names)):
            low = read(self.partitions[at - 1].bound) if at else None
            bound = self.partitions[at].bound
            spans.append((low, None if bound.upper() == _MOST else read(bound)))
        return RowRange(column, kind, tuple(spans))

    def _places(self, names: Collection[str]) -> list[int]:
        known = {folded(one.name): at for at, one in enumerate(self.partitions) if one.name}
        found = []
        for name in names:
            # A server takes some letters that are not plain for others.
            if not name.isascii() or folded(name) not in known:
                raise PartitionsUnclearError(f"the bounds of partition {name} are not known")
            found.append(known[folded(name)])
        return found

    def _values(
        self, schema: TableSchema, policy: InvalidValuePolicy
    ) -> tuple[str, pa.DataType, Callable[[str], Any]]:
        """The column that chooses, its type in the lake, and how a bound is read."""
        found = _EXPRESSION.fullmatch(self.expression)
        if found is None or bool(found[1]) != bool(found[3]):
            raise PartitionsUnclearError(f"it is partitioned by {self.expression}")
        name = self.column
        column = next((one for one in schema.columns if one.name == name), None)
        if column is None:
            raise PartitionsUnclearError(f"it is partitioned by {name}, which its mirror lacks")
        kind = rule_for(column.type, policy).arrow
        function, server = (found[1] or "").lower(), column.type.name
        read = _READERS.get((function, server))
        if read is None and not function and server in INTEGER_BITS:
            read = _unsigned if column.type.unsigned else _integer
        if read is None or pa.types.is_string(kind):
            raise PartitionsUnclearError(f"it is partitioned by {self.expression}")
        return name, kind, read


def folded(name: str) -> str:
    """A partition's name, alike where a server is sure to take two for one: in plain letters."""
    return name.lower() if name.isascii() else name


def _integer(bound: str) -> int:
    if not _NUMBER.fullmatch(bound) or abs(int(bound)) > _LARGEST:
        raise PartitionsUnclearError(f"a partition's bound is {bound or 'not known'}")
    return int(bound)


def _unsigned(bound: str) -> int:
    """Servers write numbers from 2^63 on as negative ones."""
    number = _integer(bound)
    if number < 0:
        raise PartitionsUnclearError(f"a partition's bound is {bound}")
    return number


def _moment(bound: str) -> datetime:
    found = _MOMENT.fullmatch(bound)
    try:
        if found is not None:
            return datetime.fromisoformat(f"{found[1]} {found[2] or '00:00'}")
    except ValueError:
        pass  # as told below
    raise PartitionsUnclearError(f"a partition's bound is {bound or 'not known'}")


def _day(bound: str) -> date:
    moment = _moment(bound)
    if moment != _midnight(moment.date()):
        raise PartitionsUnclearError(f"a partition's bound is {bound}")
    return moment.date()


def _of_number(make: Callable[[int], Any]) -> Callable[[str], Any]:
    """Reads a bound that is what a function gives."""

    def read(bound: str) -> Any:
        try:
            return make(_integer(bound))
        except (OverflowError, ValueError) as error:
            raise PartitionsUnclearError(f"a partition's bound is {bound}") from error

    return read


def _midnight(day: date) -> datetime:
    return datetime.combine(day, datetime.min.time())


def _day_number(number: int) -> date:
    return date.fromordinal(number - _FIRST_DAY)


def _year(number: int) -> date:
    return date(number, 1, 1)


def _second_number(number: int) -> datetime:
    return _midnight(_day_number(number // _DAY_SECONDS)) + timedelta(seconds=number % _DAY_SECONDS)


# (function, type of its column) -> how a bound is read, as a value of the column: each of these
# functions rises with its column, and a bound is a whole number.
_READERS: Final[dict[tuple[str, str], Callable[[str], Any]]] = {
    ("", "date"): _day,
    ("", "datetime"): _moment,
    ("to_days", "date"): _of_number(_day_number),
    ("to_days", "datetime"): _of_number(lambda number: _midnight(_day_number(number))),
    ("to_seconds", "datetime"): _of_number(_second_number),
    ("year", "date"): _of_number(_year),
    ("year", "datetime"): _of_number(lambda number: _midnight(_year(number))),
    ("unix_timestamp", "timestamp"): _of_number(lambda number: _EPOCH + timedelta(seconds=number)),
}


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows by the values of one column.

    Attributes:
        column: its name.
        kind: its type in the lake.
        spans: (low, high): from low on and below high; None: no bound. Moments are UTC, or of no
            zone, as the lake has them.
    """

    column: str
    kind: pa.DataType
    spans: tuple[tuple[Any, Any], ...]

    def others(self, rows: pa.Table) -> pa.Table:
        """The rows that are not in it.

        Raises:
            PartitionsUnclearError: a row has no value there: it may be one that only the server
                can show, as a day of zeros.
        """
        values = rows.column(self.column)
        if values.null_count:
            raise PartitionsUnclearError(f"a row has no {self.column}, by which it is partitioned")
        inside = pa.chunked_array([pa.repeat(False, rows.num_rows)])
        for low, high in self.spans:
            inside = pc.or_(inside, self._within(values, low, high))
        return rows.filter(pc.invert(inside))

    def covers(self, stats: Mapping[str, Any]) -> bool | None:
        """Whether it has all rows of a file, or none (False).

        Args:
            stats: the file's, as Delta's log has them.

        Returns:
            None: some of them, or that is not told.
        """
        low, high = (
            self._bound_of(stats.get(name, {}).get(self.column))
            for name in ("minValues", "maxValues")
        )
        if low is None or high is None or stats.get("nullCount", {}).get(self.column) != 0:
            return None
        if isinstance(low, datetime):
            # Some writers cut off what is below a millisecond.
            low, high = low - _CUT, high + _CUT
        if any(_is_in(low, high, *span) for span in self.spans):
            return True
        return False if all(_is_out(low, high, *span) for span in self.spans) else None

    def _within(self, values: pa.ChunkedArray, low: Any, high: Any) -> pa.ChunkedArray:
        inside = pa.chunked_array([pa.repeat(True, len(values))])
        if pa.types.is_integer(values.type):
            values = values.cast(pa.int64())
        kind = values.type
        if low is not None:
            inside = pc.and_(inside, pc.greater_equal(values, _scalar(low, kind)))
        if high is not None:
            inside = pc.and_(inside, pc.less(values, _scalar(high, kind)))
        return inside

    def _bound_of(self, told: Any) -> Any:
        """A bound as Delta's log has it; None: it does not say, or not exactly."""
        if isinstance(told, int) and not isinstance(told, bool):
            return told if isinstance(self.spans[0][1], int | None) else None
        if not isinstance(told, str):
            return None
        try:
            if pa.types.is_date(self.kind):
                return date.fromisoformat(told)
            if pa.types.is_timestamp(self.kind):
                return datetime.fromisoformat(told).replace(tzinfo=None)
        except ValueError:
            pass  # not told then
        return None


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(Decimal(value) if pa.types.is_decimal(kind) else value, kind)


def _is_in(least: Any, most: Any, low: Any, high: Any) -> bool:
    return (low is None or least >= low) and (high is None or most < high)


def _is_out(least: Any, most: Any, low: Any, high: Any) -> bool:
    return (low is not None and most < low) or (high is not None and least >= high)
