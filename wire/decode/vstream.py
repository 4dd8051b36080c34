"""Row events of VStream into Arrow: those of one table at once.

Lives here: `VStreamRowDecoder`, and how the values of VStream's log differ from a result set's.
Does not live here: the walk over the bytes (`kernels.vstream`), which events there are (`ingest`).

Invariant: the same row read here, from the binlog and by a SELECT gives the same Arrow values. What
comes by VStream's *copy* is not for this decoder: it writes a FLOAT with six digits (measured).

As a result set has it, but: BIT as its bytes; BINARY without the zeros at its end; FLOAT and DOUBLE
in scientific notation with all their digits; text in the column's own character set; JSON in an
order and a notation of vtgate's own (`kernels.jsontexts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.errors import DecodeError, TableStoppedError
from ratchet.core.schema import TableSchema
from ratchet.core.types import Family, InvalidValuePolicy, arrow_schema
from ratchet.wire.decode.arrays import Bytes, Ints, Longs
from ratchet.wire.decode.columns import (
    ColumnSpec,
    Places,
    Reader,
    bits_reader,
    column_specs,
    padded_reader,
    read_image,
    text_reader,
    variable,
)
from ratchet.wire.decode.engine import Engine, engine
from ratchet.wire.decode.kernels import vstream
from ratchet.wire.decode.kernels.walk import GOOD
from ratchet.wire.decode.misfits import check_misfits
from ratchet.wire.decode.textcolumns import text_row_reader

_OPERATION: Final = "decode row events of VStream"
_MESSAGES: Final = {
    vstream.CUT_SHORT: "a field ends after its message",
    vstream.WRONG_COUNT: "a row does not have one value for each column of its table",
    vstream.TRAILING: "a row's lengths do not add up to its bytes",
}
# What images there are; or both.
_BEFORE: Final = 1
_AFTER: Final = 2
_SET_BITS: Final = 64  # measured on Vitess 24: the highest bit gets lost, without an error
_OPS: Final = np.array([0, DELETE, INSERT, UPDATE], dtype=np.int8)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedChanges:
    """The row changes of some events of one table.

    Attributes:
        op: per change INSERT, UPDATE or DELETE of core.change.
        before: the images before the change, NULL for inserts.
        after: the images after it, NULL for deletes.
        event: per change the number of its event among those that were given.
        misfits: column -> how many of its values became NULL because they did not fit.
    """

    op: npt.NDArray[np.int8]
    before: pa.StructArray
    after: pa.StructArray
    event: Ints
    misfits: dict[str, int]


class VStreamRowDecoder:
    """Decodes the row events of one table, as its FIELD event describes it.

    Args:
        schema: the table's schema.
        policy: what becomes of values that do not fit.
        key: the columns that identify a row, where it is not the schema's.
        implementation: the kernels or their twins; by default what the environment asks for.
    """

    def __init__(
        self,
        schema: TableSchema,
        policy: InvalidValuePolicy,
        *,
        key: Iterable[str] | None = None,
        implementation: Engine | None = None,
    ) -> None:
        self._policy = policy
        self._engine = implementation or engine()
        self._table = schema.name
        self._key = tuple(schema.key if key is None else key)
        self._fields = list(arrow_schema(schema, policy))
        specs = column_specs(schema, policy, self._engine, key=self._key)
        self._readers = [(number, spec.name, _reader(spec)) for number, spec in enumerate(specs)]

    def decode(self, buf: Bytes, starts: Longs, ends: Longs) -> DecodedChanges:
        """Decode some row events.

        Args:
            buf: holds the events; it may be used again as soon as this returns.
            starts: where each RowEvent message begins.
            ends: where it ends.

        Raises:
            TableStoppedError: the images lack columns.
            TableStoppedError: a value does not fit, and may not become NULL.
            DecodeError: the bytes are no row events of this table.
        """
        view = buf[:]
        view.flags.writeable = False  # one compiled form of the kernels, whoever owns the bytes
        starts = np.ascontiguousarray(starts, dtype=np.int64)
        ends = np.ascontiguousarray(ends, dtype=np.int64)
        kernels = self._engine.vstream
        changes, status, place = kernels.count_changes(view, starts, ends)
        if status != vstream.OK:
            self._refuse(int(status), f"byte {place}")
        columns, count = len(self._readers), int(changes)
        offs = np.empty((2 * columns, count), dtype=np.int64)
        lens = np.empty_like(offs)
        images = np.empty(count, dtype=np.uint8)
        event = np.empty(count, dtype=np.int32)
        status, change = kernels.walk_changes(view, starts, ends, offs, lens, images, event)
        if status != vstream.OK:
            self._refuse(int(status), f"row change {change} of this batch")
        if not images.all():
            self._refuse(vstream.CUT_SHORT, f"row change {int(np.argmin(images))} of this batch")
        misfits: dict[str, int] = {}
        before, after = (
            read_image(self._readers, self._fields, (view, offs[part], lens[part]), lacks, misfits)
            for part, lacks in (
                (slice(columns), images == _AFTER),
                (slice(columns, None), images == _BEFORE),
            )
        )
        check_misfits(misfits, table=self._table, key=self._key, policy=self._policy)
        return DecodedChanges(
            op=_OPS[images], before=before, after=after, event=event, misfits=misfits
        )

    def _refuse(self, status: int, where: str) -> NoReturn:
        if status == vstream.INCOMPLETE:
            raise TableStoppedError(
                "row events do not hold complete rows",
                operation=_OPERATION,
                table=self._table,
                position=where,
                hint="let the tablets' MySQL run with binlog_row_image=FULL and "
                "binlog_row_value_options=''",
            )
        raise DecodeError(
            _MESSAGES[status],
            operation=_OPERATION,
            table=self._table,
            position=where,
            hint="the stream may be damaged: try again",
        )


def _reader(spec: ColumnSpec) -> Reader:
    if spec.type.name == "set" and len(spec.type.members) == _SET_BITS:
        raise TableStoppedError(
            f"column {spec.name} is a SET of 64 members, and vtgate loses the 64th",
            operation=_OPERATION,
            table=spec.table,
            hint="exclude the table, or mirror the shard's MySQL servers (kind: binlog)",
        )
    own = _OWN.get(spec.rule.family)
    return text_row_reader(spec) if own is None else own(spec)


def _bit(spec: ColumnSpec) -> Reader:
    return bits_reader(spec, ((spec.type.length or 1) + 7) // 8)


def _text(spec: ColumnSpec) -> Reader:
    return text_reader(spec, spec.type.charset or "binary")


def _json(spec: ColumnSpec) -> Reader:
    def read(places: Places) -> tuple[pa.Array, int]:
        found = spec.engine.jsontexts.mysql_texts(places.buf, places.offs, places.lens)
        if found[2] != GOOD:
            raise TableStoppedError(
                f"column {spec.name} has a document that is not JSON as MySQL prints it: vtgate "
                "loses what precedes a binary value in a document",
                operation=_OPERATION,
                table=spec.table,
                hint="exclude the table in `tables`, or mirror the shard's MySQL servers "
                "(kind: binlog, vitess: true; docs/vitess.md)",
            )
        return variable(spec, places, found), 0

    return read


_OWN: Final[Mapping[Family, Callable[[ColumnSpec], Reader]]] = {
    "bit": _bit,
    "padded": padded_reader,
    "text": _text,
    "json": _json,
}
