"""Rows of a result set in MySQL's text protocol into Arrow.

Lives here: `TextRowDecoder`, and the joining of rows that are longer than a packet. Does not live
here: the connection (`wire.stream`), which rows are asked for (`snapshot`).

Invariant: the same row read here and from the log gives the same Arrow values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa

from ratchet.core.errors import DecodeError, TableStoppedError
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.wire.decode.arrays import Bytes, Longs
from ratchet.wire.decode.columns import column_specs, read_columns
from ratchet.wire.decode.engine import Engine, engine
from ratchet.wire.decode.kernels import walk
from ratchet.wire.decode.misfits import check_misfits
from ratchet.wire.decode.textcolumns import select_expression, text_row_reader

_OPERATION: Final = "decode text rows"
_HEADER: Final = 4
_PACKET_MAX: Final = 0xFFFFFF
_MESSAGES: Final = {
    walk.CUT_SHORT: "a packet or a value in it ends after the given bytes",
    walk.TRAILING: "a row continues after its last column",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedText:
    """Some rows of a result set.

    Attributes:
        batch: the rows, in the lake's columns.
        misfits: column -> how many of its values became NULL because they did not fit.
    """

    batch: pa.RecordBatch
    misfits: dict[str, int]


class TextRowDecoder:
    """Decodes rows of `SELECT <select_list> FROM ...` over one table.

    The session must have SET NAMES utf8mb4, time_zone '+00:00' and an sql_mode without
    PAD_CHAR_TO_FULL_LENGTH.

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
        self.schema = arrow_schema(schema, policy)
        specs = column_specs(schema, policy, self._engine, key=self._key)
        self._readers = [
            (number, spec.name, text_row_reader(spec)) for number, spec in enumerate(specs)
        ]
        self.select_list = [select_expression(spec) for spec in specs]

    def decode(self, buf: Bytes, start: int, end: int) -> DecodedText:
        """Decode the rows in `buf[start:end]`: whole packets with their headers.

        Args:
            buf: holds the packets; it may be used again as soon as this returns.
            start: where the first packet's header begins.
            end: where the last packet ends.

        Raises:
            TableStoppedError: a value does not fit and may not become NULL, or is none of its
                type.
            DecodeError: the bytes are no text rows of this table.
        """
        view = buf[:]
        view.flags.writeable = False  # one compiled form of the kernels, whoever owns the bytes
        view, starts, ends = self._frame(view, start, end)
        offs = np.empty((len(self._readers), len(starts)), dtype=np.int64)
        lens = np.empty_like(offs)
        status, row = self._engine.walk.walk_text(view, starts, ends, offs, lens)
        if status != walk.OK:
            self._refuse(int(status), f"row {row} of this batch")
        misfits: dict[str, int] = {}
        try:
            arrays = read_columns(self._readers, view, offs, lens, misfits)
        except DecodeError as error:  # the rows are whole: the server holds such a value
            raise TableStoppedError(
                error.message, operation=error.operation, table=self._table, hint=error.hint
            ) from error
        check_misfits(misfits, table=self._table, key=self._key, policy=self._policy)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return DecodedText(batch=batch, misfits=misfits)

    def _frame(self, view: Bytes, start: int, end: int) -> tuple[Bytes, Longs, Longs]:
        """The bytes that hold the rows, and where each row begins and ends."""
        packets, status, place = self._engine.walk.count_packets(view, start, end)
        if status == walk.CONTINUED:
            return self._join(view, start, end)
        if status != walk.OK:
            self._refuse(int(status), f"byte {place}")
        starts = np.empty(int(packets), dtype=np.int64)
        ends = np.empty_like(starts)
        self._engine.walk.frame_packets(view, start, starts, ends)
        return view, starts, ends

    def _join(self, view: Bytes, start: int, end: int) -> tuple[Bytes, Longs, Longs]:
        """As `_frame`, with the parts of rows that fill several packets put together."""
        parts: list[Bytes] = []
        ends = [0]
        pos, used, whole = start, 0, True
        while pos < end:
            if pos + _HEADER > end:
                self._refuse(walk.CUT_SHORT, f"byte {pos}")
            size = int.from_bytes(view[pos : pos + 3].tobytes(), "little")
            if pos + _HEADER + size > end:
                self._refuse(walk.CUT_SHORT, f"byte {pos}")
            parts.append(view[pos + _HEADER : pos + _HEADER + size])
            pos += _HEADER + size
            used += size
            whole = size < _PACKET_MAX
            if whole:
                ends.append(used)
        if not whole:
            self._refuse(walk.CUT_SHORT, f"byte {pos}")
        joined = np.concatenate(parts)
        joined.flags.writeable = False
        places = np.array(ends, dtype=np.int64)
        return joined, places[:-1].copy(), places[1:].copy()

    def _refuse(self, status: int, where: str) -> NoReturn:
        raise DecodeError(
            _MESSAGES[status],
            operation=_OPERATION,
            table=self._table,
            position=where,
            hint="the connection may be damaged; try again",
        )
