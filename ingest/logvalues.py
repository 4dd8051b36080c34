"""When a value of the change log is the one that mysql-replication read: a rule for each family.

Lives here: `check_of`, from a column's two descriptions to how its values are compared. Does not
live here: the order of rows (`logcheck`), reading either side.

Both are Python values by then: of the lake what Arrow gives, of the library what `wire.secondrows`
says. The rules are written from MySQL's and MariaDB's manuals; nothing of `wire.decode` is used.

Invariant: a value is equal, different, or named as not compared. Never equal by default.
"""

from __future__ import annotations

import ipaddress
import json
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from ratchet.core.schema import Column
from ratchet.core.types import InvalidValuePolicy, rule_for
from ratchet.ingest.logcharsets import second_text
from ratchet.wire.secondevents import decompressed
from ratchet.wire.secondrows import MISFIT, OPAQUE, Form, SecondColumn, json_value

Value = Any  # of Arrow's or the library's

NOT_COMPARED: Final = object()

_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - as the library gives it
_WRAP: Final = timedelta(seconds=1 << 32)  # MariaDB 11.5's seconds up to 2106 have no sign
_LARGEST_DOCUMENT: Final = 1 << 20  # the library copies a large one many times over


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """How a column's values are compared.

    Attributes:
        ours: makes a lake's value comparable.
        theirs: makes the library's comparable; NOT_COMPARED if that cannot be.
        same: whether two comparable values are the same; NOT_COMPARED: as far as can be told.
    """

    ours: Callable[[Value], Value]
    theirs: Callable[[Value], Value]
    same: Callable[[Value, Value], Any]

    def outcome(self, lake: Value, server: Value) -> Any:
        """True, False or NOT_COMPARED, for a value of the lake and one of the library's."""
        if server is None or lake is None:
            if server is not None:
                server = self.theirs(server)
                return NOT_COMPARED if server is NOT_COMPARED else server is lake
            return lake is server
        theirs = self.theirs(server)
        if theirs is NOT_COMPARED:
            return NOT_COMPARED
        if theirs is None:
            return False
        try:
            ours = self.ours(lake)
        except (ValueError, ArithmeticError, RecursionError):
            return False  # the lake's is no value of this type at all
        return self.same(ours, theirs)


def check_of(column: Column, second: SecondColumn, policy: InvalidValuePolicy) -> ValueCheck | str:
    """How the values of a column are compared, or why they are not.

    Args:
        column: as the change file's schema has it.
        second: as mysql-replication describes it.
        policy: what became of dates that no calendar has.
    """
    kind = column.type
    family = rule_for(kind, policy).family
    expected = _FORMS[family]
    if second.form not in expected:
        return f"the log has {second.form} for {kind.name}"
    if family in {"enum", "set"}:
        labels = kind.members if second.labels is None else second.labels[-len(kind.members) :]
        if len(labels) != len(kind.members):
            return "other labels in the log"
        return ValueCheck(_as_is, _member(labels, several=family == "set"), _equal)
    if family in _MOMENTS:
        moment = _MOMENTS[family](second.fraction, policy.zero_dates == "text")
        return ValueCheck(_as_is, moment, _equal)
    if family in _MADE:
        return ValueCheck(_as_is, _MADE[family](column, second), _equal)
    return _CHECKS[family]


_FORMS: Final[Mapping[str, tuple[Form, ...]]] = {
    **dict.fromkeys(("integer", "float", "double"), ("number",)),
    "decimal": ("decimal",),
    "bit": ("bits",),
    "year": ("year",),
    "date": ("date",),
    "datetime": ("datetime",),
    "timestamp": ("timestamp",),
    "time": ("span", "time"),
    **dict.fromkeys(("text", "binary", "padded", "uuid", "inet4", "inet6"), ("bytes",)),
    **dict.fromkeys(("enum", "set"), ("member",)),
    "json": ("json",),
}


def _as_is(value: Value) -> Value:
    return value


def _equal(lake: Value, server: Value) -> bool:
    return type(lake) is type(server) and bool(lake == server)


def _same_bits(lake: float, server: float) -> bool:
    return struct.pack("<d", lake) == struct.pack("<d", server)


def _same_digits(lake: Decimal, server: Decimal) -> bool:
    return lake == server and lake.as_tuple().exponent == server.as_tuple().exponent


# --- text and bytes -------------------------------------------------------------------------------


def _own_bytes(value: Value) -> bytes:
    """What stands in the row; the library decodes an empty value whatever its charset."""
    return value or b""


def _filled(size: int) -> Callable[[Value], bytes]:
    """With the zeros at the end that the log leaves out."""
    return lambda value: _own_bytes(value).ljust(size, b"\0")


def _raw(second: SecondColumn) -> Callable[[bytes], Value]:
    """Bytes as they were before MariaDB compressed the column."""
    if not second.compressed:
        return _own_bytes

    def unpacked(value: Value) -> Value:
        try:
            return decompressed(_own_bytes(value))
        except ValueError:
            return NOT_COMPARED

    return unpacked


def _bytes(column: Column, second: SecondColumn) -> Callable[[bytes], Value]:
    return _filled(column.type.length or 0) if column.type.name == "binary" else _raw(second)


def _text(column: Column, second: SecondColumn) -> Callable[[bytes], Value]:
    raw, padded = _raw(second), column.type.name == "char"
    name = second.charset or column.type.charset or ""

    def text(value: Value) -> Value:
        stored = raw(value)
        found = None if stored is NOT_COMPARED else second_text(stored, name)
        if found is None:
            return NOT_COMPARED
        return found.rstrip(" ") if padded else found

    return text


def _member(labels: tuple[str, ...], *, several: bool) -> Callable[[int], str]:
    """The label of a number from 1, "" for 0; of a SET those of all bits."""
    if not several:
        return lambda number: labels[number - 1] if number else ""
    return lambda bits: ",".join(label for n, label in enumerate(labels) if bits >> n & 1)


# --- dates and times ------------------------------------------------------------------------------


def _date(_: int, as_text: bool) -> Callable[[int], Value]:  # noqa: FBT001
    def found(number: int) -> Value:
        year, month, day = number >> 9, number >> 5 & 15, number & 31
        if as_text:
            return f"{year:04d}-{month:02d}-{day:02d}"
        try:
            return date(year, month, day)
        except ValueError:
            return None

    return found


def _datetime(fraction: int, as_text: bool) -> Callable[[Value], Value]:  # noqa: FBT001
    def found(value: Value) -> Value:
        if value is MISFIT:
            return NOT_COMPARED if as_text else None
        return _moment_text(value, fraction) if as_text else value

    return found


def _timestamp(fraction: int, as_text: bool) -> Callable[[datetime], Value]:  # noqa: FBT001
    def found(value: datetime) -> Value:
        if value == _EPOCH:  # stands for '0000-00-00 00:00:00'
            zero = "0000-00-00 00:00:00" + (f".{0:0{fraction}d}" if fraction else "")
            return zero if as_text else None
        if value < _EPOCH:
            value += _WRAP
        return _moment_text(value, fraction) if as_text else value.replace(tzinfo=UTC)

    return found


def _moment_text(value: datetime, fraction: int) -> str:
    text = value.isoformat(" ", "microseconds")
    return text[: 20 + fraction] if fraction else text[:19]


_MOMENTS: Final = {"date": _date, "datetime": _datetime, "timestamp": _timestamp}


def _microseconds(value: timedelta) -> int:
    return value // _MICROSECOND


def _span(_: Column, second: SecondColumn) -> Callable[[Value], int]:
    """Microseconds."""
    if second.form == "span":
        return _microseconds
    places = (second.fraction + 1) // 2
    width = 24 + 8 * places

    def found(bits: str) -> int:
        # The whole is one number above its middle, a negative one below it.
        number = int(bits, 2) - (1 << width - 1)
        size = abs(number)
        whole, part = size >> 8 * places, size & (1 << 8 * places) - 1
        seconds = (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
        micros = seconds * 1_000_000 + part * 10 ** (6 - 2 * places)
        return int(-micros if number < 0 else micros)

    return found


_MADE: Final[Mapping[str, Callable[[Column, SecondColumn], Callable[[Any], Value]]]] = {
    "text": _text,
    "binary": _bytes,
    "padded": _bytes,
    "time": _span,
}


# --- addresses and documents ----------------------------------------------------------------------


def _document(raw: bytes) -> Value:
    if len(raw) > _LARGEST_DOCUMENT:
        return NOT_COMPARED
    try:
        return _Document(json_value(raw))
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError, struct.error):
        return NOT_COMPARED


@dataclass(frozen=True, slots=True)
class _Document:
    """A document, which may be null."""

    value: Any


@dataclass(frozen=True, slots=True)
class _Fraction:
    """A number of a JSON text that is not whole, by its digits."""

    text: str


def _parsed(text: str) -> _Document:
    return _Document(json.loads(text, parse_float=_Fraction))


def _same_document(lake: _Document, server: _Document) -> Any:
    unknown: list[None] = []
    if not _same_json(lake.value, server.value, unknown):
        return False
    return NOT_COMPARED if unknown else True


def _same_json(lake: Any, server: Any, unknown: list[None]) -> bool:
    """Whether two documents are the same; `unknown` gets an entry for each value not compared."""
    if server is OPAQUE:
        unknown.append(None)
        return isinstance(lake, str)
    if isinstance(server, dict):
        return (
            isinstance(lake, dict)
            and lake.keys() == server.keys()
            and all(_same_json(lake[name], one, unknown) for name, one in server.items())
        )
    if isinstance(server, list):
        return (
            isinstance(lake, list)
            and len(lake) == len(server)
            and all(_same_json(a, b, unknown) for a, b in zip(lake, server, strict=True))
        )
    if isinstance(server, float):
        return isinstance(lake, _Fraction) and _same_bits(float(lake.text), server)
    if isinstance(server, Decimal):
        return isinstance(lake, (_Fraction, int)) and server == Decimal(
            lake.text if isinstance(lake, _Fraction) else lake
        )
    return type(lake) is type(server) and bool(lake == server)


_CHECKS: Final[Mapping[str, ValueCheck]] = {
    "integer": ValueCheck(int, _as_is, _equal),
    "decimal": ValueCheck(Decimal, _as_is, _same_digits),
    "float": ValueCheck(_as_is, _as_is, _same_bits),
    "double": ValueCheck(_as_is, _as_is, _same_bits),
    "bit": ValueCheck(int, lambda bits: int(bits, 2), _equal),
    # The library adds 1900 to 0 as well, which is the year '0000'.
    "year": ValueCheck(_as_is, lambda year: 0 if year == 1900 else year, _equal),
    "uuid": ValueCheck(lambda text: uuid.UUID(text).bytes, _filled(16), _equal),
    "inet4": ValueCheck(lambda text: ipaddress.IPv4Address(text).packed, _filled(4), _equal),
    "inet6": ValueCheck(lambda text: ipaddress.IPv6Address(text).packed, _filled(16), _equal),
    "json": ValueCheck(_parsed, _document, _same_document),
}
