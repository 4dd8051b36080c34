"""Readers of columns in row images: one per family of types.

A reader turns the places of a column's values into an Arrow array. Does not live here: the same
for text rows (`textcolumns`), and which family a type belongs to (`core.types`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from ratchet.core.types import Family
from ratchet.core.types.rule import DECIMAL_DIGITS, UNSIGNED_64
from ratchet.wire.decode import decimals, plan
from ratchet.wire.decode.columns import (
    ColumnSpec,
    Places,
    Reader,
    bits_reader,
    bytes_reader,
    fixed,
    padded_reader,
    text_reader,
    variable,
)
from ratchet.wire.decode.compressed import decompressed
from ratchet.wire.decode.kernels import temporal as forms
from ratchet.wire.decode.plan import WireColumn

_INT64_DIGITS: Final = 18
_FORMS: Final = {
    plan.DATE: forms.DATE,
    plan.NEWDATE: forms.DATE,
    plan.DATETIME2: forms.DATETIME2,
    plan.DATETIME: forms.DATETIME_DECIMAL,
    plan.TIMESTAMP2: forms.TIMESTAMP2,
    plan.TIMESTAMP: forms.TIMESTAMP_PLAIN,
    plan.TIME2: forms.TIME2,
    plan.TIME: forms.TIME_DECIMAL,
}
_HIRES: Final = {
    plan.DATETIME: forms.DATETIME_HIRES,
    plan.TIMESTAMP: forms.TIMESTAMP_HIRES,
    plan.TIME: forms.TIME_HIRES,
}


def log_reader(spec: ColumnSpec, wire: WireColumn) -> Reader:
    """The reader of a column as row images hold it."""
    reader = _READERS[spec.rule.family](spec, wire)
    if wire.code not in plan.COMPRESSED:
        return reader
    return lambda places: reader(decompressed(spec, places))


def _integer(spec: ColumnSpec, wire: WireColumn) -> Reader:
    kernels, arrow = spec.engine.numbers, spec.rule.arrow
    signed = 0 if spec.type.unsigned else 1

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty(places.rows, dtype=arrow.to_pandas_dtype())
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(kernels.integers(buf, offs, lens, wire.size, signed, out))
        return fixed(spec, places, out), 0

    def read_wide(places: Places) -> tuple[pa.Array, int]:
        out = np.empty((places.rows, 2), dtype=np.uint64)
        spec.check(kernels.unsigned64(places.buf, places.offs, places.lens, out))
        return fixed(spec, places, out), 0

    return read_wide if arrow == UNSIGNED_64 else read


def _decimal(spec: ColumnSpec, _: WireColumn) -> Reader:
    kernels = spec.engine.numbers
    digits, scale = spec.type.precision or 0, spec.type.scale or 0
    sizes, powers = decimals.groups(digits, scale)
    narrow = 1 if digits <= _INT64_DIGITS else 0

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty((places.rows, 2), dtype=np.uint64)
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(kernels.decimals(buf, offs, lens, sizes, powers, narrow, out))
        return fixed(spec, places, out), 0

    def read_text(places: Places) -> tuple[pa.Array, int]:
        buf, offs, lens = places.buf, places.offs, places.lens
        found = kernels.decimal_texts(buf, offs, lens, sizes, powers, scale)
        return variable(spec, places, found), 0

    return read if digits <= DECIMAL_DIGITS else read_text


def _float(spec: ColumnSpec, wire: WireColumn) -> Reader:
    # The bits are taken as whole numbers: what they are called does not change them.
    dtype = np.int32 if spec.rule.family == "float" else np.int64

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty(places.rows, dtype=dtype)
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(spec.engine.numbers.integers(buf, offs, lens, wire.size, 1, out))
        return fixed(spec, places, out), 0

    return read


def _bit(spec: ColumnSpec, wire: WireColumn) -> Reader:
    return bits_reader(spec, wire.size)


def _year(spec: ColumnSpec, _: WireColumn) -> Reader:
    short = 1 if spec.type.length == 2 else 0

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty(places.rows, dtype=np.int16)
        spec.check(spec.engine.numbers.years(places.buf, places.offs, places.lens, short, out))
        return fixed(spec, places, out), 0

    return read


def _form(spec: ColumnSpec, wire: WireColumn) -> int:
    hires = spec.type.legacy and spec.type.fraction > 0
    return int(_HIRES[wire.code] if hires else _FORMS[wire.code])


def _calendar(spec: ColumnSpec, wire: WireColumn) -> Reader:
    kernels, arrow, fraction = spec.engine.temporal, spec.rule.arrow, spec.type.fraction
    form = _form(spec, wire)
    is_date = spec.rule.family == "date"

    def civils(places: Places) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        civil = np.empty(places.rows, dtype=np.int64)
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(kernels.civils(buf, offs, lens, wire.size, form, fraction, civil))
        return civil

    def read(places: Places) -> tuple[pa.Array, int]:
        civil = civils(places)
        out = np.empty(places.rows, dtype=np.int32 if is_date else np.int64)
        write = kernels.days if is_date else kernels.micros
        misfits = write(civil, places.offs, out)
        return fixed(spec, places, out), int(misfits)

    def read_text(places: Places) -> tuple[pa.Array, int]:
        civil = civils(places)
        found = spec.engine.strings.civil_texts(civil, places.offs, 0 if is_date else 1, fraction)
        return variable(spec, places, found), 0

    return read_text if arrow == pa.string() else read


def _timestamp(spec: ColumnSpec, wire: WireColumn) -> Reader:
    kernels, fraction = spec.engine.temporal, spec.type.fraction
    form = _form(spec, wire)

    def instants(places: Places) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        out = np.empty(places.rows, dtype=np.int64)
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(kernels.timestamps(buf, offs, lens, wire.size, form, fraction, out))
        return out

    def read(places: Places) -> tuple[pa.Array, int]:
        out = instants(places)
        misfits = kernels.mark_zero(out, places.offs)
        return fixed(spec, places, out), int(misfits)

    def read_text(places: Places) -> tuple[pa.Array, int]:
        civil = np.empty(places.rows, dtype=np.int64)
        spec.check(kernels.civil_of_instants(instants(places), civil))
        found = spec.engine.strings.civil_texts(civil, places.offs, 1, fraction)
        return variable(spec, places, found), 0

    return read_text if spec.rule.arrow == pa.string() else read


def _time(spec: ColumnSpec, wire: WireColumn) -> Reader:
    form, fraction = _form(spec, wire), spec.type.fraction

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty(places.rows, dtype=np.int64)
        buf, offs, lens = places.buf, places.offs, places.lens
        spec.check(spec.engine.temporal.times(buf, offs, lens, wire.size, form, fraction, out))
        return fixed(spec, places, out), 0

    return read


def _text(spec: ColumnSpec, _: WireColumn) -> Reader:
    return text_reader(spec, spec.type.charset or "binary")


def _binary(spec: ColumnSpec, _: WireColumn) -> Reader:
    return bytes_reader(spec)


def _padded(spec: ColumnSpec, _: WireColumn) -> Reader:
    return padded_reader(spec)


def _labels(spec: ColumnSpec, wire: WireColumn) -> Reader:
    is_enum = spec.rule.family == "enum"
    members = (("", *spec.type.members)) if is_enum else spec.type.members
    encoded = [member.encode() for member in members]
    labels = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    strings = spec.engine.strings
    look_up = strings.enum_labels if is_enum else strings.set_labels

    def read(places: Places) -> tuple[pa.Array, int]:
        found = look_up(places.buf, places.offs, places.lens, wire.size, labels, ends)
        return variable(spec, places, found), 0

    return read


def _json(spec: ColumnSpec, _: WireColumn) -> Reader:
    def read(places: Places) -> tuple[pa.Array, int]:
        found = spec.engine.json(places.buf, places.offs, places.lens)
        return variable(spec, places, found), 0

    return read


def _address(spec: ColumnSpec, _: WireColumn) -> Reader:
    strings = spec.engine.strings
    show = {"uuid": strings.uuids, "inet4": strings.inet4s, "inet6": strings.inet6s}[
        spec.rule.family
    ]

    def read(places: Places) -> tuple[pa.Array, int]:
        return variable(spec, places, show(places.buf, places.offs, places.lens)), 0

    return read


_READERS: Final[Mapping[Family, Callable[[ColumnSpec, WireColumn], Reader]]] = {
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
    "binary": _binary,
    "padded": _padded,
    "enum": _labels,
    "set": _labels,
    "json": _json,
    "uuid": _address,
    "inet4": _address,
    "inet6": _address,
}
