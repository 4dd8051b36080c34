"""The newest change of each key of a small batch: what `merge.reduce` does in Spark, done here.

Lives here: change files' keys and tokens, reduced; the merge rule between a change and a row's
token; the images of the changes that are needed. Does not live here: the table's rows (`lookup`),
what is written (`direct`).

Change files are read twice: keys and tokens first, then the images of the changes that win. So the
images of changes that are not the newest of their key, and all that was before an update, take no
memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratchet.core.arrowwidth import least_width
from ratchet.core.change import DELETE, FLOOR_IDX, INSERT, TOKEN_COLUMN, UPDATE, change_schema
from ratchet.merge.fitted import fitted_table
from ratchet.merge.reduce import Mark
from ratchet.merge.shape import Shape
from ratchet.store import segments
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

RANK: Final = ("generation", "seq", "idx")
_OF_TOKEN: Final = ("shard", *RANK)
SHARD_LEAF: Final = f"{TOKEN_COLUMN}.shard"
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


class NeedsSpark(Exception):  # noqa: N818 - no error: the other way is taken
    """This batch is for Spark; the text says why."""


class Oversized(Exception):  # noqa: N818 - no error: it is done in pieces
    """More rows were asked for at once than may be held."""


@dataclass(frozen=True, slots=True)
class ChangeFiles:
    """Change files of a batch.

    Attributes:
        lake: where they are.
        paths: as their rounds have them (store.segments).
        contents: of each, as it is (compressed); None: it is read where it lies.
    """

    lake: Lake
    paths: Sequence[str]
    contents: Sequence[pa.Buffer | None]

    @classmethod
    def load(cls, lake: Lake, paths: Sequence[str]) -> ChangeFiles:
        """Read them, as what is wanted of them is read in several steps.

        Raises:
            LakeError: one cannot be read.
        """
        return cls(lake, paths, [segments.read_changes(lake, path) for path in paths])

    @classmethod
    def at(cls, lake: Lake, paths: Sequence[str]) -> ChangeFiles:
        """Leave them where they are, as they would take much memory."""
        return cls(lake, paths, [None] * len(paths))

    @contextmanager
    def opened(self, number: int) -> Iterator[pq.ParquetFile]:
        """One of them, for reading.

        Raises:
            LakeError: it is damaged, or cannot be read.
        """
        path, content = self.paths[number], self.contents[number]
        with data_file_errors(self.lake, path, "change"):
            if content is not None:
                yield pq.ParquetFile(pa.BufferReader(content))
                return
            with segments.open_changes(self.lake, path) as stream:
                yield pq.ParquetFile(stream)

    def changes(self, columns: pa.Schema) -> pa.Table:
        """Op, rank and shard of all changes, and of their images these columns.

        Raises:
            LakeError: a file is damaged.
        """
        wanted = _narrow(change_schema(columns), _OF_TOKEN)
        leaves = ["op", *(f"token.{name}" for name in _OF_TOKEN)]
        leaves += [f"{image}.{name}" for image in ("before", "after") for name in columns.names]
        tables = []
        for number in range(len(self.paths)):
            with self.opened(number) as parquet:
                found = parquet.read(columns=leaves)
            tables.append(fitted_table(found, wanted))
        return pa.concat_tables([wanted.empty_table(), *tables]).combine_chunks()

    def weights(self) -> Ints:
        """About how many bytes each change's `after` takes: its share of the row group's.

        Not less than its types take in memory: in the file a NULL takes nothing. It may be far more
        than that: of equal values in a group the file has one.
        """
        parts = [np.empty(0, np.int64)]
        for number in range(len(self.paths)):
            with self.opened(number) as parquet:
                footer = parquet.metadata
                after = [
                    n
                    for n in range(footer.num_columns)
                    if footer.schema.column(n).path.startswith("after.")
                ]
                width = least_width(parquet.schema_arrow.field("after").type)
                for group in map(footer.row_group, range(footer.num_row_groups)):
                    size = sum(group.column(n).total_uncompressed_size for n in after)
                    share = max(width, size // max(1, group.num_rows))
                    parts.append(np.full(group.num_rows, share))
        return np.concatenate(parts)

    def images(
        self, columns: pa.Schema, needed: Flags, *, narrow: bool = False, most: float = math.inf
    ) -> pa.Table:
        """Token and `after` of the changes that are needed, in the files' order.

        Args:
            columns: the table's, without the token.
            needed: for each change.
            narrow: whether those are a few of the table's columns, and others are not read.
            most: bytes of them.

        Raises:
            LakeError: a file is damaged.
            Oversized: there are more.
        """
        whole = change_schema(columns)
        wanted = pa.schema([whole.field("token"), whole.field("after")])
        after = [f"after.{name}" for name in columns.names] if narrow else ["after"]
        parts, begin, held = [wanted.empty_table()], 0, 0
        for number in range(len(self.paths)):
            with self.opened(number) as parquet:
                for group in range(parquet.num_row_groups):
                    end = begin + parquet.metadata.row_group(group).num_rows
                    mask, begin = needed[begin:end], end
                    if mask.any():
                        found = parquet.read_row_group(group, columns=["token", *after])
                        parts.append(fitted_table(found.filter(pa.array(mask)), wanted))
                        held += parts[-1].nbytes
                        if held > most:
                            raise Oversized
        return pa.concat_tables(parts).combine_chunks()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestChanges:
    """The newest change of each key, in the order of the keys.

    Attributes:
        keys: k0, k1 ...: the key in the table's types; behind it the shard, if it is part of it.
        leaves: where a data file has these columns.
        shard: the shard of each.
        rank: generation, seq, idx of each: three columns.
        dead: whether it deletes.
        source: for each the number of its change, in the order of the files.
        changes: how many changes there are.
        contested: whether rows of several shards meet in the table, a key once.
        floors: shard -> for each chunk of its dump the `seq` that its rows really have, or None
            where the token's own is right (merge.sql.floor_seq).
    """

    keys: pa.Table
    leaves: tuple[str, ...]
    shard: pa.Array
    rank: Ints
    dead: Flags
    source: Ints
    changes: int
    contested: bool
    floors: Mapping[str, Sequence[int | None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.source)

    def is_newer(self, number: Ints, shard: pa.Array, rank: Ints) -> Flags:
        """Whether changes are newer than rows of their keys, by merge.sql.newer's rule.

        Args:
            number: which changes: places in `keys`.
            shard: of each row's token.
            rank: of each row's token.

        Raises:
            NeedsSpark: a row has a token of another shard than its change, or none.
        """
        if shard.null_count:
            raise NeedsSpark("a row has lost its token")
        if self.contested:
            self._meet_own(number, shard)
        return _is_above(self.rank[number], settled(shard, rank, self.floors))

    def all_newer(self, number: Ints, shard: str | None, generation: int, seq: int) -> bool:
        """Whether changes are newer than any row up to that generation and seq; a quick answer.

        Args:
            number: which changes.
            shard: the one that all the rows are of. None: there may be several.
            generation: the rows' highest.
            seq: the rows' highest.

        Raises:
            NeedsSpark: the rows have a token of another shard than their changes.
        """
        if self.floors or (self.contested and shard is None):
            return False
        here = self.rank[number]
        if (here[:, 0] < generation).any() or (here[here[:, 0] == generation, 1] <= seq).any():
            return False
        if self.contested:
            self._meet_own(number, pa.repeat(pa.scalar(shard, pa.string()), len(number)))
        return True

    def _meet_own(self, number: Ints, shard: pa.Array) -> None:
        if not pc.all(pc.equal(self.shard.take(pa.array(number)), shard), min_count=0).as_py():
            raise NeedsSpark("another shard's row has a key of the batch")


@dataclass(frozen=True, slots=True)
class Images:
    """What some of the newest changes leave behind.

    Attributes:
        table: token and `after` of the changes that are needed.
        place: of each key's newest change in it; meaningless for those that are not needed.
    """

    table: pa.Table
    place: Ints

    @classmethod
    def of(
        cls,
        files: ChangeFiles,
        found: NewestChanges,
        needed: Flags,
        columns: pa.Schema,
        *,
        narrow: bool = False,
        most: float = math.inf,
    ) -> Images:
        """Of the keys that are needed.

        Args:
            files: the change files.
            found: the newest changes in them.
            needed: for each key.
            columns: the table's, without the token.
            narrow: see ChangeFiles.images.
            most: likewise.

        Raises:
            LakeError: a file is damaged.
            Oversized: they are more.
        """
        chosen = np.zeros(found.changes, np.bool_)
        chosen[found.source[needed]] = True
        place = np.cumsum(chosen) - 1
        table = files.images(columns, chosen, narrow=narrow, most=most)
        return cls(table, place[found.source])

    def rows(self, chosen: Ints) -> pa.Table:
        """Rows of the table, as the changes of some keys leave them, in that order.

        Of a change that deletes there is the token alone.
        """
        found = self.table.take(pa.array(self.place[chosen])).combine_chunks()
        after = found["after"].combine_chunks()
        return pa.table(
            [*after.flatten(), found["token"]], [*(f.name for f in after.type), TOKEN_COLUMN]
        )


def has_inexact_key(shape: Shape) -> bool:
    """Whether a column of the key is a float: Spark and Arrow compare them differently."""
    return any(pa.types.is_floating(shape.columns.field(name).type) for name in shape.key)


def newest(
    files: ChangeFiles,
    shape: Shape,
    *,
    since: Mapping[tuple[str, int], int] = _NONE,
    until: Mapping[str, Mark] = _NONE,
    marks: Mapping[str, Mark] = _NONE,
    floors: Mapping[str, Sequence[int | None]] = _NONE,
) -> NewestChanges:
    """The newest change per key, as merge.reduce.newest says it.

    Args:
        files: the changes.
        shape: the table's shape.
        since: see merge.reduce.wanted.
        until: likewise.
        marks: shard -> the newest TRUNCATE; what stands before it is gone anyway.
        floors: see NewestChanges.

    Raises:
        LakeError: a change file cannot be read.
        NeedsSpark: a key has NULL in it, or two shards change one key of a table that shows it
            once.
    """
    changes = files.changes(pa.schema([shape.columns.field(name) for name in shape.key]))
    op = changes["op"].combine_chunks().to_numpy()
    before, after = (changes[name].combine_chunks().flatten() for name in ("before", "after"))
    moved = np.zeros(len(op), np.bool_)
    for old, new in zip(before, after, strict=True):
        moved |= pc.fill_null(pc.not_equal(old, new), True).to_numpy(zero_copy_only=False)
    wanted = _wanted(changes["token"].combine_chunks(), since, until, marks)
    written = np.flatnonzero(((op == INSERT) | (op == UPDATE)) & wanted)
    left = np.flatnonzero(((op == DELETE) | ((op == UPDATE) & moved)) & wanted)
    source = np.concatenate([written, left])
    keys = [
        pa.concat_arrays([new.take(pa.array(written)), old.take(pa.array(left))])
        for old, new in zip(before, after, strict=True)
    ]
    if any(column.null_count for column in keys):
        raise NeedsSpark("NULL in a key")
    shard, *rank = changes["token"].combine_chunks().take(pa.array(source)).flatten()
    leaves = shape.key
    if shape.many_shards and shape.shard_in_key:
        keys.append(shard)
        leaves = (*leaves, SHARD_LEAF)
    names = [f"k{n}" for n in range(len(keys))]
    order = pc.sort_indices(
        pa.table([*keys, *rank], [*names, *RANK]),
        [*((name, "ascending") for name in names), *((name, "descending") for name in RANK)],
    )
    ordered = pa.table(keys, names).take(order)
    first = np.ones(len(source), np.bool_)
    first[1:] = _unequal_neighbours(ordered)
    if shape.contested:
        _check_one_shard_each(shard.take(order), first)
    chosen = np.flatnonzero(first)
    number = order.to_numpy()[chosen]
    return NewestChanges(
        keys=(ordered if first.all() else ordered.take(pa.array(chosen))).combine_chunks(),
        leaves=leaves,
        shard=shard.take(pa.array(number)),
        rank=rank_of(rank)[number],
        dead=number >= len(written),
        source=source[number],
        changes=len(op),
        contested=shape.contested,
        floors=floors,
    )


def _wanted(
    token: pa.StructArray,
    since: Mapping[tuple[str, int], int],
    until: Mapping[str, Mark],
    marks: Mapping[str, Mark],
) -> Flags:
    """Which changes come neither too early nor too late, as merge.reduce says it."""
    wanted = np.ones(len(token), np.bool_)
    if not (since or until or marks):
        return wanted
    shard, *parts = token.flatten()
    rank = rank_of(parts)
    for name, mark in until.items():
        wanted &= before_marks(shard, rank, {name: mark}) | ~_is(shard, name)
    for (name, stream), last_left_out in since.items():
        wanted &= ~(_is(shard, name) & (rank[:, 0] == stream) & (rank[:, 1] <= last_left_out))
    return wanted & ~before_marks(shard, rank, marks)


def before_marks(shard: pa.Array, rank: Ints, marks: Mapping[str, Mark]) -> Flags:
    """Which of these stand before their shard's mark, as merge.sql.before_marks says it."""
    found = np.zeros(len(rank), np.bool_)
    for name, (generation, seq) in marks.items():
        same = rank[:, 0] == generation
        found |= _is(shard, name) & ((rank[:, 0] < generation) | (same & (rank[:, 1] < seq)))
    return found


def settled(shard: pa.Array, rank: Ints, floors: Mapping[str, Sequence[int | None]]) -> Ints:
    """Ranks of rows, with those of dumped rows put where their chunk's floor resolves to.

    Args:
        shard: of each row's token.
        rank: of each row's token.
        floors: see NewestChanges.
    """
    if not floors:
        return rank
    rank = rank.copy()
    chunk = rank[:, 2] - FLOOR_IDX
    for name, seqs in floors.items():
        told = np.array([-1 if seq is None else seq for seq in seqs], np.int64)
        mine = np.flatnonzero(_is(shard, name) & (chunk >= 0) & (chunk < len(told)))
        seq = told[chunk[mine]]
        rank[mine[seq >= 0], 1] = seq[seq >= 0]
    return rank


def _is(shard: pa.Array, name: str) -> Flags:
    found: Flags = pc.fill_null(pc.equal(shard, name), False).to_numpy(zero_copy_only=False)
    return found


def rank_of(columns: Sequence[Any]) -> Ints:
    """Generation, seq and idx side by side."""
    return np.stack([np.asarray(column.to_numpy(), np.int64) for column in columns], axis=1)


def _check_one_shard_each(shard: pa.Array, first: Flags) -> None:
    """That the changes of a key are of one shard: ranks of two shards cannot be compared."""
    of_key = np.cumsum(first)
    number = shard.dictionary_encode().indices.to_numpy()
    pairs = np.unique(np.stack([of_key, number]), axis=1)
    if pairs.shape[1] != np.count_nonzero(first):
        raise NeedsSpark("two shards change a key")


def _is_above(change: Ints, row: Ints) -> Flags:
    """By generation, then seq, then idx."""
    found = np.zeros(len(change), np.bool_)
    same = np.ones(len(change), np.bool_)
    for part in range(change.shape[1]):
        found |= same & (row[:, part] < change[:, part])
        same &= row[:, part] == change[:, part]
    return found


def _unequal_neighbours(table: pa.Table) -> Flags:
    found = np.zeros(max(0, table.num_rows - 1), np.bool_)
    for column in table.columns:
        whole = column.combine_chunks()
        found |= pc.not_equal(whole[1:], whole[:-1]).to_numpy(zero_copy_only=False)
    return found


def _narrow(schema: pa.Schema, of_token: Sequence[str]) -> pa.Schema:
    token = schema.field("token")
    fields = pa.struct([token.type.field(name) for name in of_token])
    return schema.set(schema.get_field_index("token"), token.with_type(fields))
