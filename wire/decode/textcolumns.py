"""Readers of columns in text rows, and the SQL expressions whose text loses nothing.

What the expressions are for, by experiment on MySQL 9.7.4 and MariaDB 10.11.19: a FLOAT is shown
with 6 digits, but as a DOUBLE with as many as it takes; FLOAT(M,D) and DOUBLE(M,D) are shown
rounded to D digits; a BIT is shown as raw bytes, but as a number when it is one. Text of a key
comes as it is stored where several bytes are one text (`core.charsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratchet.core.types import Family
from ratchet.core.types.rule import DECIMAL_DIGITS, UNSIGNED_64
from ratchet.wire.decode.columns import (
    ColumnSpec,
    Places,
    Reader,
    bytes_reader,
    fixed,
    text_reader,
    variable,
    years_in_window,
)

_WIRE_CHARSET: Final = "utf8mb4"  # the session's: SET NAMES utf8mb4

_INTEGER_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


def select_expression(spec: ColumnSpec) -> str:
    """The SQL expression for a column whose text holds its value without loss."""
    name = f"`{spec.name.replace('`', '``')}`"
    if spec.rule.family in {"float", "double"}:
        return f"CAST({name} AS DOUBLE)"
    if spec.rule.family == "bit":
        return f"CAST({name} AS UNSIGNED)"
    if spec.text_may_be_shared:
        return f"CAST({name} AS BINARY)"  # as stored: a converted text does not tell them apart
    return name


def text_row_reader(spec: ColumnSpec) -> Reader:
    """The reader of a column as text rows hold it."""
    return _READERS[spec.rule.family](spec)


def _integer(spec: ColumnSpec) -> Reader:
    if spec.rule.arrow == UNSIGNED_64:
        return _unsigned(spec)
    bits = _INTEGER_BITS[spec.type.name]
    unsigned = spec.type.unsigned
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return _bounded(spec, low, high)


def _bounded(spec: ColumnSpec, low: int, high: int) -> Reader:
    kernels, arrow = spec.engine.textnumbers, spec.rule.arrow

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty(places.rows, dtype=arrow.to_pandas_dtype())
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(kernels.text_integers(buf, offs, lens, low, high, out))
        return fixed(spec, places, out), 0

    return read


def _unsigned(spec: ColumnSpec) -> Reader:
    kernels = spec.engine.textnumbers

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty((places.rows, 2), dtype=np.uint64)
        spec.check(kernels.text_unsigned64(places.buf, places.offs, places.lens, out))
        return fixed(spec, places, out), 0

    return read


def _bit(spec: ColumnSpec) -> Reader:
    if spec.rule.arrow == UNSIGNED_64:
        return _unsigned(spec)
    return _bounded(spec, 0, (1 << (spec.type.length or 1)) - 1)


def _year(spec: ColumnSpec) -> Reader:
    short = spec.type.length == 2
    kernels = spec.engine.textnumbers

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty(places.rows, dtype=np.int16)
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(kernels.text_integers(buf, offs, lens, 0, 99 if short else 2155, out))
        if short:
            years_in_window(out)
        return fixed(spec, places, out), 0

    return read


def _decimal(spec: ColumnSpec) -> Reader:
    kernels = spec.engine.textnumbers
    digits, scale = spec.type.precision or 0, spec.type.scale or 0

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty((places.rows, 2), dtype=np.uint64)
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(kernels.text_decimals(buf, offs, lens, digits, scale, out))
        return fixed(spec, places, out), 0

    def read_text(places: Places) -> tuple[pa.Array, int]:
        buf, offs, lens = places.buf, places.offs, places.lens
        found = kernels.text_decimal_texts(buf, offs, lens, digits, scale)
        return variable(spec, places, found), 0

    return read if digits <= DECIMAL_DIGITS else read_text


def _float(spec: ColumnSpec) -> Reader:
    # Arrow's cast is correctly rounded, and a FLOAT is exact as a double.
    def read(places: Places) -> tuple[pa.Array, int]:
        data, ends, bad = spec.engine.strings.gather(places.buf, places.offs, places.lens)
        spec.check(int(bad))
        bitmap, nulls = spec.engine.walk.validity(places.offs)
        buffers = [pa.py_buffer(bitmap), pa.py_buffer(ends), pa.py_buffer(data)]
        text = pa.Array.from_buffers(pa.large_string(), places.rows, buffers, int(nulls))
        try:
            return pc.cast(pc.cast(text, pa.float64()), spec.rule.arrow, safe=False), 0
        except pa.ArrowInvalid:
            spec.fail(f"a row holds no value of type {spec.type.name}")

    return read


def _calendar(spec: ColumnSpec) -> Reader:
    if spec.rule.arrow == pa.string():
        return text_reader(spec, _WIRE_CHARSET)
    is_date = spec.rule.family == "date"
    kernels = spec.engine.temporal

    def read(places: Places) -> tuple[pa.Array, int]:
        civil = np.empty(places.rows, dtype=np.int64)
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(spec.engine.texttimes.text_civils(buf, offs, lens, civil))
        out = np.empty(places.rows, dtype=np.int32 if is_date else np.int64)
        write = kernels.days if is_date else kernels.micros
        misfits = write(civil, offs, out)
        return fixed(spec, places, out), int(misfits)

    return read


def _timestamp(spec: ColumnSpec) -> Reader:
    if spec.rule.arrow == pa.string():
        return text_reader(spec, _WIRE_CHARSET)

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty(places.rows, dtype=np.int64)
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(spec.engine.texttimes.text_timestamps(buf, offs, lens, out))
        misfits = spec.engine.temporal.mark_zero(out, offs)
        return fixed(spec, places, out), int(misfits)

    return read


def _time(spec: ColumnSpec) -> Reader:
    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty(places.rows, dtype=np.int64)
        spec.check(spec.engine.texttimes.text_times(places.buf, places.offs, places.lens, out))
        return fixed(spec, places, out), 0

    return read


def _text(spec: ColumnSpec) -> Reader:
    own = spec.type.charset or "binary"
    return text_reader(spec, own if spec.text_may_be_shared else _WIRE_CHARSET)


_READERS: Final[Mapping[Family, Callable[[ColumnSpec], Reader]]] = {
    "integer": _integer,
    "decimal": _decimal,
    "float": _float,
    "double": _float,
    "bit": _bit,
    "year": _year,
    "date": _calendar,
    "datetime": _calendar,
    "timestamp": _timestamp,
    "time": _time,
    "text": _text,
    "binary": bytes_reader,
    "padded": bytes_reader,
    "enum": _text,
    "set": _text,
    "json": _text,
    "uuid": _text,
    "inet4": _text,
    "inet6": _text,
}
