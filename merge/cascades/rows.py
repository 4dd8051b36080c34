"""Rows of children and changes of parents, read from the lake and the change files of one shard.

Lives here: `ShardRows`, which hands out what `explore` asks for, and the whole rows behind what
came of it. Does not live here: which tables and files (`step`), what follows (`follow`).

Invariant: a row of the table is handed out if its values match, whatever else is so; more rows may
come. Data files are read one column first, so a look that finds nothing costs that column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratchet.core.change import (
    DELETE,
    FLOOR_IDX,
    REPAIR_IDX,
    SILENT_COLUMN,
    TOKEN_COLUMN,
    TOKEN_TYPE,
    UPDATE,
    change_schema,
)
from ratchet.core.rounds import ChangeFile
from ratchet.merge.cascades.follow import CascadeEvent, Layout, Link, Rank, Row
from ratchet.merge.fitted import fitted_table
from ratchet.merge.newest import ChangeFiles
from ratchet.store.delta.actions import DataFile
from ratchet.store.delta.log import TableFiles
from ratchet.store.delta.parquet import parquet_file
from ratchet.store.delta.vectors import gone_rows, positions_of
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake

_TOKEN: Final = ("shard", "generation", "seq", "idx")


class UnknownRowsError(Exception):
    """What the rows were cannot be told; the text says why."""


@dataclass(frozen=True, kw_only=True)
class ShardTable:
    """What is known of one table on one shard.

    Attributes:
        name: keyspace.table.
        layout: the columns that matter.
        columns: all of the lake's columns.
        files: its changes in the step.
        truncated: ranks at which all of its rows went.
        folder: of its Delta table.
        table: the table before the step; None: its rows are not looked at.
        floors: chunk number -> `seq` of its floor, where it is not the token's.
        dumping: whether rows that a dump read may be newer than their tokens.
    """

    name: str
    layout: Layout
    columns: pa.Schema
    files: Sequence[ChangeFile] = ()
    truncated: Sequence[Rank] = ()
    folder: str = ""
    table: TableFiles | None = None
    floors: Sequence[int | None] = ()
    dumping: bool = False

    @property
    def narrow(self) -> pa.Schema:
        """The columns that matter."""
        return pa.schema([self.columns.field(name) for name in self.layout.columns])


class ShardRows:
    """See merge.cascades.explore.KnownRows.

    Args:
        lake: the lake.
        shard: ShardId as text.
        parts: by table.
        links: the foreign keys.
        alone: whether rows without a token can only be this shard's.
    """

    def __init__(
        self,
        lake: Lake,
        shard: str,
        parts: Mapping[str, ShardTable],
        links: Sequence[Link],
        *,
        alone: bool,
    ) -> None:
        self._lake, self._shard, self._alone = lake, shard, alone
        self._links = links
        self._parts = parts
        self._changes = {name: _Changes(lake, part) for name, part in parts.items()}

    def roots(self) -> Iterator[CascadeEvent]:
        """All changes by which rows of children may change, and truncations."""
        for name, part in self._parts.items():
            links = [link for link in self._links if link.parent == name]
            if links and any(file.deletes or file.updates for file in part.files):
                yield from self._changes[name].touching(links)
            if part.layout.key:
                for rank in part.truncated:
                    yield CascadeEvent(table=name, rank=rank, truncates=True)

    def rows(self, link: Link, values: set[Row]) -> Iterator[CascadeEvent]:
        """Rows of the child before the step.

        Raises:
            LakeError: a file cannot be read.
            UnknownRowsError: rows have lost their tokens.
        """
        part = self._parts[link.child]
        if part.table is None:
            return
        wanted = _KeyValues.of(part, link, values)
        for file in part.table.files.values():
            with data_file_errors(self._lake, f"{part.folder}/{file.path}"):
                yield from self._in_file(part, file, wanted)

    def changes(
        self, table: str, values: Mapping[Link, set[Row]], keys: set[Row]
    ) -> Iterator[CascadeEvent]:
        """Row changes of the child in the step."""
        yield from self._changes[table].concerning(values, keys)

    def whole(self, table: str, images: Sequence[Any]) -> pa.Table:
        """All columns of rows that were handed out, in that order.

        Args:
            table: whose.
            images: Event.image of each.
        """
        part = self._parts[table]
        found: list[pa.Table] = []
        place: dict[Any, int] = {}
        logged = sorted({one for one in images if isinstance(one, int)})
        if logged:
            place |= {one: n for n, one in enumerate(logged)}
            found.append(self._changes[table].whole(logged))
        by_file: dict[str, set[int]] = {}
        for one in images:
            if not isinstance(one, int):
                by_file.setdefault(one[0], set()).add(one[1])
        for path, at in by_file.items():
            rows = sorted(at)
            place |= {(path, one): len(place) + n for n, one in enumerate(rows)}
            with data_file_errors(self._lake, f"{part.folder}/{path}"):
                found.append(self._taken(part, path, rows))
        every = pa.concat_tables([part.columns.empty_table(), *found])
        return every.take(pa.array([place[one] for one in images], pa.int64())).combine_chunks()

    def _in_file(
        self, part: ShardTable, file: DataFile, wanted: _KeyValues
    ) -> Iterator[CascadeEvent]:
        gone: set[int] | None = None
        leaves = [*part.layout.columns, *(f"{TOKEN_COLUMN}.{name}" for name in _TOKEN)]
        with self._lake.open_input(f"{part.folder}/{file.path}", size=file.size) as stream:
            parquet = parquet_file(self._lake, stream)
            if wanted.column not in parquet.schema_arrow.names:
                return  # it came later: NULL in all of them
            begin = 0
            for group in range(parquet.num_row_groups):
                first, begin = begin, begin + parquet.metadata.row_group(group).num_rows
                if not wanted.may_be_in(parquet, group):
                    continue
                column = parquet.read_row_group(group, columns=[wanted.column])[wanted.column]
                at = wanted.places(column.combine_chunks())
                if not at.size:
                    continue
                if gone is None:
                    found = gone_rows(self._lake, part.folder, file)
                    gone = set(positions_of(found).tolist())
                there = {name.partition(".")[0] for name in parquet.schema_arrow.names}
                rows = parquet.read_row_group(
                    group, columns=[one for one in leaves if one.partition(".")[0] in there]
                )
                numbers = [n for n in at.tolist() if first + n not in gone]
                taken = rows.take(pa.array(numbers, pa.int64()))
                yield from self._events(part, file.path, taken, [first + n for n in numbers])

    def _events(
        self, part: ShardTable, path: str, rows: pa.Table, positions: Sequence[int]
    ) -> Iterator[CascadeEvent]:
        values = _tuples(fitted_table(rows, part.narrow))
        tokens = rows[TOKEN_COLUMN].combine_chunks()
        parts = [pc.struct_field(tokens, [name]).to_pylist() for name in _TOKEN]
        for row, at, shard, *place in zip(values, positions, *parts, strict=True):
            lost = None in place
            if lost and not self._alone:
                raise UnknownRowsError("rows have lost their tokens")
            if not lost and shard != self._shard:
                continue
            generation, seq, idx = (0, 0, 0) if lost else place
            chunk = idx - FLOOR_IDX
            if 0 <= chunk < len(part.floors):
                seq = part.floors[chunk] or seq
            yield CascadeEvent(
                table=part.name,
                rank=(generation, seq, idx),
                after=row,
                image=(path, at),
                hazy=idx >= REPAIR_IDX or (part.dumping and idx >= FLOOR_IDX),
            )

    def _taken(self, part: ShardTable, path: str, positions: Sequence[int]) -> pa.Table:
        with self._lake.open_input(f"{part.folder}/{path}") as stream:
            parquet = parquet_file(self._lake, stream)
            names = [one for one in part.columns.names if one in parquet.schema_arrow.names]
            parts, begin = [part.columns.empty_table()], 0
            for group in range(parquet.num_row_groups):
                end = begin + parquet.metadata.row_group(group).num_rows
                here = [one - begin for one in positions if begin <= one < end]
                if here:
                    rows = parquet.read_row_group(group, columns=names).take(pa.array(here))
                    parts.append(fitted_table(rows, part.columns))
                begin = end
        return pa.concat_tables(parts)


@dataclass(frozen=True, slots=True)
class _KeyValues:
    """Values of one column: the first one of a key.

    Attributes:
        column: its name.
        values: sorted, as they are compared.
        padded: whether spaces at the end do not count.
    """

    column: str
    values: pa.Array
    padded: bool

    @classmethod
    def of(cls, part: ShardTable, link: Link, values: Iterable[Row]) -> _KeyValues:
        name = part.layout.columns[link.columns[0]]
        kind = part.columns.field(name).type
        found = pa.array(sorted({one[0] for one in values}), kind)
        return cls(name, found, link.padded[0])

    def may_be_in(self, parquet: pq.ParquetFile, group: int) -> bool:
        """Whether a row group may have one of them, by its statistics."""
        if self.padded or not (
            pa.types.is_integer(self.values.type) or pa.types.is_string(self.values.type)
        ):
            return True
        chunk = parquet.metadata.row_group(group).column(_leaf(parquet, self.column))
        stats = chunk.statistics if chunk.is_stats_set else None
        if stats is None or not stats.has_min_max:
            return True
        low, high = self.values[0].as_py(), self.values[-1].as_py()
        return bool(stats.max >= low and stats.min <= high)

    def places(self, column: pa.Array) -> Any:
        """Where the column has one of them."""
        found = pc.utf8_rtrim(column, characters=" ") if self.padded else column
        mask = pc.is_in(found.cast(self.values.type), value_set=self.values, skip_nulls=True)
        return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _leaf(parquet: pq.ParquetFile, name: str) -> int:
    paths = [parquet.metadata.schema.column(n).path for n in range(parquet.metadata.num_columns)]
    return paths.index(name)


class _Changes:
    """The changes of a table on a shard in one step, the columns that matter; read when needed."""

    def __init__(self, lake: Lake, part: ShardTable) -> None:
        self._lake, self._part = lake, part

    @cached_property
    def _files(self) -> ChangeFiles:
        return ChangeFiles.load(self._lake, [file.path for file in self._part.files])

    @cached_property
    def _table(self) -> pa.Table:
        schema = change_schema(self._part.narrow)
        schema = schema.append(pa.field(SILENT_COLUMN, pa.bool_()))
        found = [schema.empty_table()]
        names = self._part.layout.columns
        for number in range(len(self._files.paths)):
            with self._files.opened(number) as parquet:
                leaves = ["op", SILENT_COLUMN, *(f"token.{one.name}" for one in TOKEN_TYPE)]
                leaves += [f"{image}.{name}" for image in ("before", "after") for name in names]
                found.append(fitted_table(parquet.read(columns=leaves), schema))
        return pa.concat_tables(found).combine_chunks()

    def touching(self, links: Sequence[Link]) -> Iterator[CascadeEvent]:
        """Deletes, and updates of columns that children refer to."""
        table = self._table
        op = table["op"].combine_chunks().to_numpy()
        places = sorted({at for link in links for at in link.parent_columns})
        moved = np.zeros(len(op), np.bool_)
        for at in places:
            moved |= self._differs(at)
        silent = pc.fill_null(table[SILENT_COLUMN], True).to_numpy()
        wanted = ((op == DELETE) | ((op == UPDATE) & moved)) & silent
        yield from self._events(np.flatnonzero(wanted))

    def concerning(self, values: Mapping[Link, set[Row]], keys: set[Row]) -> Iterator[CascadeEvent]:
        """Those of some values or keys, before or after them."""
        part, mask = self._part, np.zeros(self._table.num_rows, np.bool_)
        firsts = [(link.columns[0], {one[0] for one in found}, link.padded[0])
                  for link, found in values.items()]  # fmt: skip
        firsts.append((part.layout.key[0], {key[0] for key in keys}, False))
        for at, found, padded in firsts:
            column = part.narrow.field(at)
            wanted = _KeyValues(column.name, pa.array(list(found), column.type), padded)
            for image in self._images(at):
                mask[wanted.places(image)] = True
        yield from self._events(np.flatnonzero(mask))

    def whole(self, numbers: Sequence[int]) -> pa.Table:
        """All columns of `after` of some changes."""
        needed = np.zeros(self._table.num_rows, np.bool_)
        needed[list(numbers)] = True
        images = self._files.images(self._part.columns, needed)
        return pa.table(images["after"].combine_chunks().flatten(), schema=self._part.columns)

    def _images(self, at: int) -> tuple[pa.Array, pa.Array]:
        before, after = (
            self._table[name].combine_chunks().flatten()[at] for name in ("before", "after")
        )
        return before, after

    def _differs(self, at: int) -> Any:
        old, new = self._images(at)
        same = pc.or_(
            pc.fill_null(pc.equal(old, new), False), pc.and_(pc.is_null(old), pc.is_null(new))
        )
        return ~same.to_numpy(zero_copy_only=False)

    def _events(self, numbers: Any) -> Iterator[CascadeEvent]:
        found = self._table.take(pa.array(numbers))
        op, silent = found["op"].to_pylist(), found[SILENT_COLUMN].to_pylist()
        tokens = _structs(found["token"])
        before, after = (_structs(found[name]) for name in ("before", "after"))
        for n, number in enumerate(numbers.tolist()):
            token = tokens[n]
            yield CascadeEvent(
                table=self._part.name,
                rank=token[3:],
                before=before[n] if op[n] in {UPDATE, DELETE} else None,
                after=after[n] if op[n] != DELETE else None,
                token=token,
                image=number,
                silent=silent[n],
            )


def _structs(column: pa.ChunkedArray) -> list[Row]:
    fields = column.combine_chunks().flatten()
    return list(zip(*(one.to_pylist() for one in fields), strict=True))


def _tuples(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
