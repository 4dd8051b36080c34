"""Row images of binlog row events into Arrow: the events of one table map at once.

Lives here: `RowImageDecoder`. Does not live here: events and their headers (`wire.binlog`), what a
transaction is (`ingest`). The events' bytes come in as one buffer and the places in it.

Invariant: every row of every event comes out, in order, or an error does; an event whose images
lack columns is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.errors import DecodeError, TableStoppedError
from ratchet.core.shell import shell_word
from ratchet.core.types import InvalidValuePolicy, arrow_schema, rule_for
from ratchet.wire.decode import plan
from ratchet.wire.decode.arrays import Bytes, Ints, Longs
from ratchet.wire.decode.columns import ColumnSpec, Numbered, Places, read_image
from ratchet.wire.decode.compressed import lengths
from ratchet.wire.decode.engine import Engine, engine
from ratchet.wire.decode.kernels import walk
from ratchet.wire.decode.logcolumns import log_reader
from ratchet.wire.decode.misfits import check_misfits
from ratchet.wire.decode.tablemap import TableMap

_OPERATION: Final = "decode row events"
# Operation -> which images its rows have.
_IMAGES: Final = np.zeros(4, dtype=np.uint8)
_IMAGES[[INSERT, UPDATE, DELETE]] = walk.AFTER, walk.BEFORE | walk.AFTER, walk.BEFORE
# What the rows of one event may take, bytes: one is decoded as a whole. Servers make them of 8 KB,
# or of one row, unless they are told otherwise.
MOST_OF_AN_EVENT: Final = 1 << 30
_PLACE: Final = 16  # bytes that say where a value lies
_BESIDES: Final = 64  # bytes of a row besides its values, about
_MESSAGES: Final = {
    walk.CUT_SHORT: "a value or a bitmap ends after its event",
    walk.WRONG_COUNT: "an event and its table map have different numbers of columns",
}


class IncompleteImagesError(TableStoppedError):
    """Row images lack columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRows:
    """The rows of some events.

    Attributes:
        before: the images before the change, NULL for inserts; None where all are inserts.
        after: the images after it, NULL for deletes; None where all are deletes.
        event: per row the number of its event among those that were given.
        misfits: column -> how many of its values became NULL because they did not fit.
    """

    before: pa.StructArray | None
    after: pa.StructArray | None
    event: Ints
    misfits: dict[str, int]


class RowImageDecoder:
    """Decodes the row events of one table map.

    Args:
        table_map: the table's shape in the log.
        policy: what becomes of values that do not fit.
        key: the columns that identify a row, where it is not the table map's primary key.
        implementation: the kernels or their twins; by default what the environment asks for.
    """

    def __init__(
        self,
        table_map: TableMap,
        policy: InvalidValuePolicy,
        *,
        key: Iterable[str] | None = None,
        implementation: Engine | None = None,
    ) -> None:
        self._map = table_map
        self._policy = policy
        self._engine = implementation or engine()
        self._table = table_map.schema.name
        self._key = tuple(table_map.schema.key if key is None else key)
        self._fields = list(arrow_schema(table_map.schema, policy))
        self._readers: list[Numbered] = []
        self._compressed: list[tuple[int, ColumnSpec]] = []
        for number, column in enumerate(table_map.columns):
            if not column.hidden:
                spec = ColumnSpec(
                    table=self._table,
                    name=column.name,
                    type=column.type,
                    rule=rule_for(column.type, policy),
                    engine=self._engine,
                    in_key=column.name in self._key,
                )
                self._readers.append((number, column.name, log_reader(spec, column)))
                if column.code in plan.COMPRESSED:
                    self._compressed.append((number, spec))

    def decode(
        self, buf: Bytes, starts: Longs, ends: Longs, op: int | npt.NDArray[np.integer[Any]]
    ) -> DecodedRows:
        """Decode the rows of some events.

        Args:
            buf: holds the events; it may be used again as soon as this returns.
            starts: where each event's column count stands, behind its post-header.
            ends: where each event ends, without its checksum.
            op: INSERT, UPDATE or DELETE of core.change: of all events, or of each.

        Raises:
            IncompleteImagesError: the images lack columns.
            TableStoppedError: one event holds more rows than memory is meant for, or compressed
                values that come to more.
            TableStoppedError: a value does not fit, and may not become NULL.
            DecodeError: the bytes are no row images of this table.
        """
        view = buf[:]
        view.flags.writeable = False  # one compiled form of the kernels, whoever owns the bytes
        starts = np.ascontiguousarray(starts, dtype=np.int64)
        ends = np.ascontiguousarray(ends, dtype=np.int64)
        images = np.full(starts.size, _IMAGES[op])
        kinds = np.bitwise_or.reduce(np.atleast_1d(_IMAGES[op]))
        layout, kernels = self._map.plan, self._engine.walk
        rows, status, place = kernels.count_rows(
            view, starts, ends, layout.prefixes, layout.sizes, images
        )
        if status != walk.OK:
            self._refuse(int(status), int(place), starts)
        columns = len(self._map.columns)
        both = kinds == walk.BEFORE | walk.AFTER
        if starts.size == 1:
            self._refuse_many(int(rows), places=(2 if both else 1) * columns)
        offs = np.empty(((2 if both else 1) * columns, int(rows)), dtype=np.int64)
        lens = np.empty_like(offs)
        event = np.empty(int(rows), dtype=np.int32)
        prefixes, sizes = layout.prefixes, layout.sizes
        kernels.walk_rows(view, starts, ends, prefixes, sizes, images, offs, lens, event)
        self._refuse_swollen(Places(view, offs, lens), columns)
        misfits: dict[str, int] = {}
        found: dict[int, pa.StructArray] = {}
        for kind in (one for one in (walk.BEFORE, walk.AFTER) if kinds & one):
            part = slice(columns, None) if both and kind == walk.AFTER else slice(columns)
            lacking = (images & kind == 0)[event] if both else None
            places = view, offs[part], lens[part]
            found[kind] = read_image(self._readers, self._fields, places, lacking, misfits)
        check_misfits(misfits, table=self._table, key=self._key, policy=self._policy)
        return DecodedRows(
            before=found.get(walk.BEFORE),
            after=found.get(walk.AFTER),
            event=event,
            misfits=misfits,
        )

    def lacking(
        self, buf: Bytes, starts: Longs, op: npt.NDArray[np.integer[Any]]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which of some events have images that lack columns.

        Args:
            buf: holds the events.
            starts: where each event's column count stands, behind its post-header.
            op: INSERT, UPDATE or DELETE of core.change, of each event.

        Returns:
            Per event whether those before the change do, and whether those after it do.
        """
        columns = len(self._map.columns)
        width, whole = (columns + 7) // 8, (1 << columns) - 1
        found = np.zeros((2, starts.size), np.bool_)
        for number, (start, images) in enumerate(zip(starts.tolist(), _IMAGES[op], strict=True)):
            at = start + {0xFC: 3, 0xFD: 4, 0xFE: 9}.get(int(buf[start]), 1)
            for side, image in enumerate((walk.BEFORE, walk.AFTER)):
                if images & image:
                    bits = int.from_bytes(bytes(buf[at : at + width]), "little")
                    found[side, number] = bits & whole != whole
                    at += width
        return found[0], found[1]

    def _refuse_many(self, rows: int, *, places: int) -> None:
        needed = rows * (places * _PLACE + _BESIDES)
        if rows > 1 and needed > MOST_OF_AN_EVENT:
            raise TableStoppedError(
                f"a single row event holds {rows:,} rows, which take {needed >> 20:,} MB decoded",
                operation=_OPERATION,
                table=self._table,
                hint="start the server with a smaller binlog_row_event_max_size; then `ratchet "
                f"table CONFIG redump {shell_word(self._table)}`",
            )

    def _refuse_swollen(self, places: Places, columns: int) -> None:
        """Of a kilobyte of compressed values there may be a megabyte, in each of their columns."""
        total = 0
        for image in range(0, len(places.offs), columns):
            for number, spec in self._compressed:
                at = image + number
                one = Places(places.buf, places.offs[at], places.lens[at])
                total += int(lengths(spec, one).sum())
        if total > MOST_OF_AN_EVENT:
            raise TableStoppedError(
                f"rows of one event have compressed columns of {total >> 20:,} MB",
                operation=_OPERATION,
                table=self._table,
                hint="a row may have 1,024 MB. Make it smaller at the source, then `ratchet table "
                f"CONFIG redump {shell_word(self._table)}`; or exclude the table",
            )

    def _refuse(self, status: int, place: int, starts: Longs) -> NoReturn:
        number = int(np.searchsorted(starts, place, side="right")) - 1
        where = f"event {number} of this batch, byte {place - int(starts[max(number, 0)])} of it"
        if status == walk.INCOMPLETE:
            raise IncompleteImagesError(
                "row events do not hold all columns",
                operation=_OPERATION,
                table=self._table,
                position=where,
                hint="SET GLOBAL binlog_row_image=FULL; (and set it in the server's "
                "configuration; sessions that are open keep the old value until they end)",
            )
        raise DecodeError(
            _MESSAGES[status],
            operation=_OPERATION,
            table=self._table,
            position=where,
            hint="the stream may be damaged: try again",
        )
