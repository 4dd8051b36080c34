"""What the readers of columns share: where a column's values lie, and Arrow arrays around results.

Lives here: `ColumnSpec`, `Places`, `read_columns`, `read_image`, the building of Arrow arrays from
kernels' buffers (no copies), and the readers that several forms share. Does not live here: the
other readers (`logcolumns`, `textcolumns`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ratchet.core.charsets import ONE_TO_ONE
from ratchet.core.errors import DecodeError
from ratchet.core.schema import ColumnType, TableSchema
from ratchet.core.types import InvalidValuePolicy, TypeRule, rule_for
from ratchet.core.types.rule import UNSIGNED_64
from ratchet.wire.decode.arrays import Bytes, Int, Longs
from ratchet.wire.decode.charsets import transcoder
from ratchet.wire.decode.engine import Engine
from ratchet.wire.decode.kernels.arrays import Halves
from ratchet.wire.decode.misfits import check_exact

_ARROW_LIMIT: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSpec:
    """A column to be read.

    Attributes:
        table: keyspace.table, for messages.
        name: the column's name.
        type: its type in the source.
        rule: its type in the lake.
        engine: what looks at the bytes.
        in_key: whether it is a part of the key.
    """

    table: str
    name: str
    type: ColumnType
    rule: TypeRule
    engine: Engine
    in_key: bool = False

    @property
    def text_may_be_shared(self) -> bool:
        """Whether it is text of a key in a character set where several bytes are one text."""
        charset = self.type.charset or "binary"
        return self.in_key and self.rule.family == "text" and charset not in ONE_TO_ONE

    def check(self, bad: int) -> None:
        """Raise DecodeError if `bad` names a row (is not negative)."""
        if bad >= 0:
            self.fail(f"row {bad} holds no value of type {self.type.name}")

    def fail(self, message: str) -> NoReturn:
        """Raise DecodeError about this column."""
        raise DecodeError(
            f"column {self.name}: {message}",
            operation="decode rows",
            table=self.table,
            hint="correct the row at the source (HEX(column) shows its bytes), or, if the column "
            "was made by an older server, ALTER TABLE ... FORCE; then dump it (`ratchet table "
            "CONFIG redump TABLE`). Otherwise exclude the table and report the message",
        )


@dataclass(frozen=True, slots=True)
class Places:
    """Where the values of a column lie.

    Attributes:
        buf: the bytes; not written to.
        offs: per row the offset of its value, -1 for NULL. Readers mark misfits here.
        lens: per row the length in bytes.
    """

    buf: Bytes
    offs: Longs
    lens: Longs

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.offs)


def column_specs(
    schema: TableSchema, policy: InvalidValuePolicy, engine: Engine, *, key: Collection[str]
) -> list[ColumnSpec]:
    """The columns of a schema, to be read under a policy by one engine; `key` identifies rows."""
    return [
        ColumnSpec(
            table=schema.name,
            name=column.name,
            type=column.type,
            rule=rule_for(column.type, policy),
            engine=engine,
            in_key=column.name in key,
        )
        for column in schema.columns
    ]


# Reads a column: (its Arrow array, how many values became NULL as misfits).
Reader = Callable[[Places], tuple[pa.Array, int]]


# A column's number among those that were walked, its name, and what reads it.
Numbered = tuple[int, str, Reader]


def read_columns(
    readers: Iterable[Numbered], buf: Bytes, offs: Longs, lens: Longs, misfits: dict[str, int]
) -> list[pa.Array]:
    """Read columns whose values have been found.

    Args:
        readers: see Numbered.
        buf: holds the values.
        offs: [columns, rows]: offset of each value, -1 for NULL.
        lens: as offs: its length in bytes.
        misfits: column -> values that became NULL because they did not fit; added to.
    """
    arrays = []
    for number, name, read in readers:
        array, count = read(Places(buf, offs[number], lens[number]))
        arrays.append(array)
        if count:
            misfits[name] = misfits.get(name, 0) + count
    return arrays


def read_image(
    readers: Iterable[Numbered],
    fields: Sequence[pa.Field],
    places: tuple[Bytes, Longs, Longs],
    lacking: npt.NDArray[np.bool_] | None,
    misfits: dict[str, int],
) -> pa.StructArray:
    """Read the images that rows have before a change, or after it.

    Args:
        readers: see Numbered.
        fields: the columns in the lake.
        places: buf, offs and lens of `read_columns`.
        lacking: per row whether it has no such image and is NULL; None: all have one.
        misfits: see `read_columns`.
    """
    arrays = read_columns(readers, *places, misfits)
    mask = None if lacking is None or not lacking.any() else pa.array(lacking)
    return pa.StructArray.from_arrays(arrays, fields=list(fields), mask=mask)


def fixed(spec: ColumnSpec, places: Places, data: np.ndarray[Any, Any] | Halves) -> pa.Array:
    """The array over values of a fixed width."""
    bitmap, nulls = spec.engine.walk.validity(places.offs)
    buffers = [pa.py_buffer(bitmap) if nulls else None, pa.py_buffer(data)]
    return pa.Array.from_buffers(spec.rule.arrow, places.rows, buffers, int(nulls))


def variable(spec: ColumnSpec, places: Places, result: tuple[Bytes, Longs, Int]) -> pa.Array:
    """The array over strings or bytes, from what a kernel of `strings` returns."""
    data, ends, bad = result
    spec.check(int(bad))
    if len(data) > _ARROW_LIMIT:
        spec.fail("the values of one batch have more than 2 GiB")
    bitmap, nulls = spec.engine.walk.validity(places.offs)
    buffers = [
        pa.py_buffer(bitmap) if nulls else None,
        pa.py_buffer(ends.astype(np.int32)),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(spec.rule.arrow, places.rows, buffers, int(nulls))


def text_reader(spec: ColumnSpec, charset: str) -> Reader:
    """Reads text in a charset of the server's; of a key, only what no other bytes stand for."""
    exact = spec.text_may_be_shared
    coder = transcoder(charset, exact=exact)
    transcode = spec.engine.transcode

    def read(places: Places) -> tuple[pa.Array, int]:
        found = transcode(places.buf, places.offs, places.lens, coder)
        if exact:
            check_exact(spec.name, spec.type.charset, found[2], table=spec.table)
        return variable(spec, places, found), 0

    return read


def bytes_reader(spec: ColumnSpec) -> Reader:
    """Reads bytes as they are."""

    def read(places: Places) -> tuple[pa.Array, int]:
        found = spec.engine.strings.gather(places.buf, places.offs, places.lens)
        return variable(spec, places, found), 0

    return read


def padded_reader(spec: ColumnSpec) -> Reader:
    """Reads BINARY(n) whose zeros at the end are not there."""
    width = spec.type.length or 0

    def read(places: Places) -> tuple[pa.Array, int]:
        found = spec.engine.strings.padded(places.buf, places.offs, places.lens, width)
        return variable(spec, places, found), 0

    return read


def bits_reader(spec: ColumnSpec, size: int) -> Reader:
    """Reads BIT as `size` bytes, the highest first."""
    kernels = spec.engine.numbers

    def read(places: Places) -> tuple[pa.Array, int]:
        out = np.empty(places.rows, dtype=np.int64)
        spec.check(kernels.bits(places.buf, places.offs, places.lens, size, out))
        return fixed(spec, places, out), 0

    def read_wide(places: Places) -> tuple[pa.Array, int]:
        out = np.empty((places.rows, 2), dtype=np.uint64)
        spec.check(kernels.bits64(places.buf, places.offs, places.lens, out))
        return fixed(spec, places, out), 0

    return read_wide if spec.rule.arrow == UNSIGNED_64 else read


def years_in_window(short: np.ndarray[Any, np.dtype[np.int16]]) -> None:
    """Turn two-digit years into 1970 to 2069, in place, as the server does."""
    short += np.where(short < 70, np.int16(2000), np.int16(1900))
