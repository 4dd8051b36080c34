"""Prints of rows: 64 bits that tell whether two rows have the same values, without keeping them.

Lives here: the print of each row of an Arrow batch, the bucket of its key, and the fingerprint of
a whole table. Does not live here: who prints what (`reader`, `mirror`), what a difference means
(`verify`).

A row's print runs over its values in the order of the columns, in the steps and with the primes of
XXH64: integers, dates and times as 64 bits with their sign, floats as their bits (so -0.0 is not
0.0), decimals as two halves, strings and bytes as their bytes and their length, and a NULL by a
step of its own, which no value takes. The bucket comes from the print of the key alone, so all
rows of a key fall into one bucket on either side.

Invariant: two tables with the same rows have the same fingerprint. Of two tables with different
rows each bucket in which they differ shows it, but for one chance in 2^64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ratchet.core.errors import BugError, TableStoppedError
from ratchet.wire.kernel import kernel

BUCKETS: Final = 1 << 16
# Columns that carry them; no column of MySQL's has a name that ends in a space.
PRINT: Final = "ratchet print "
BUCKET: Final = "ratchet bucket "
SHARD: Final = "ratchet shard "  # the name of the shard that a row is of, or stands under

Words: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int32]

PRIMES: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_P1, _P2, _P3, _P4, _P5 = (np.uint64(prime) for prime in PRIMES)
_EIGHT: Final = 8
_NUMBERS: Final = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}  # bits -> how to read them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fingerprint:
    """What is kept of a table's rows: for each bucket that has any, their number and their sum.

    Attributes:
        buckets: their numbers, ascending.
        sums: the prints of the rows in it, with their homes, added up modulo 2^64.
        counts: how many rows.
    """

    buckets: npt.NDArray[np.uint16]
    sums: Words
    counts: npt.NDArray[np.int64]

    @property
    def rows(self) -> int:
        """How many rows the table has."""
        return int(self.counts.sum())

    def rows_in(self, chosen: Flags) -> int:
        """How many rows fall into the chosen buckets.

        Args:
            chosen: a flag for each of the `BUCKETS`.
        """
        return int(self.counts[chosen[self.buckets]].sum())


class Tally:
    """Counts and sums of rows as they come by."""

    def __init__(self) -> None:
        # A bucket's sum beside its count: a row touches one line of the processor's cache, not two.
        self._buckets = np.zeros((BUCKETS, 2), np.uint64)

    def rows(self, prints: Words, buckets: Words, homes: Words) -> None:
        """Take rows in: all three arrays have one value a row; see `RowHasher`, `ShardOrigins`."""
        _sum_up(prints, buckets, homes, self._buckets)

    def part(self, part: Fingerprint) -> None:
        """Take in what was kept of other rows of the same table."""
        self._buckets[part.buckets, 0] += part.sums
        self._buckets[part.buckets, 1] += part.counts.astype(np.uint64)

    @property
    def fingerprint(self) -> Fingerprint:
        """What there is by now."""
        used = np.flatnonzero(self._buckets[:, 1]).astype(np.uint16)
        sums, counts = self._buckets[used].T.copy()
        return Fingerprint(buckets=used, sums=sums, counts=counts.astype(np.int64))


def combined(parts: Iterable[Fingerprint]) -> Fingerprint:
    """The fingerprint of a table out of those of its parts."""
    tally = Tally()
    for part in parts:
        tally.part(part)
    return tally.fingerprint


def every_bucket() -> Flags:
    """A flag for each bucket, all of them set."""
    return np.ones(BUCKETS, np.bool_)


def odd_buckets(a: Fingerprint, b: Fingerprint) -> Flags:
    """In which buckets two tables differ: a flag for each of the `BUCKETS`."""
    sides = []
    for side in (a, b):
        sums, counts = np.zeros(BUCKETS, np.uint64), np.zeros(BUCKETS, np.int64)
        sums[side.buckets], counts[side.buckets] = side.sums, side.counts
        sides.append((sums, counts))
    odd: Flags = (sides[0][0] != sides[1][0]) | (sides[0][1] != sides[1][1])
    return odd


@dataclass(frozen=True, slots=True)
class ShardOrigins:
    """Under which shard's name the rows of a shard may stand, and what that adds to their prints.

    Attributes:
        names: shard -> the names for its rows: its own and those that it descends from; None: any.
    """

    names: Mapping[str, Collection[str]] | None

    def of_shard(self, shard: str) -> np.uint64:
        """What is added to the prints of a shard's rows at the source."""
        return np.uint64(0) if self.names is None else shard_print(shard)

    def of_rows(self, shards: Sequence[str]) -> dict[str, np.uint64]:
        """What is added to the print of a row of the mirror, by the name it stands under.

        Args:
            shards: names; "" for a row that has lost its token.
        """
        if self.names is None:
            return dict.fromkeys(shards, np.uint64(0))
        return {name: shard_print((self._shards(name) or [f"none: {name}"])[0]) for name in shards}

    def are_shared(self, shards: Iterable[str]) -> bool:
        """Whether some of these names may stand for rows of several shards."""
        return self.names is not None and any(len(self._shards(name)) > 1 for name in shards)

    def is_right(self, shard: str, name: str | None) -> bool:
        """Whether a row of a shard may stand under a name."""
        return self.names is None or shard not in self.names or name in self.names[shard]

    def _shards(self, name: str) -> list[str]:
        return [shard for shard, names in (self.names or {}).items() if name in names]


def shard_print(shard: str) -> np.uint64:
    """A shard's name as 64 bits."""
    digest = hashlib.blake2b(shard.encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowHasher:
    """Prints the rows of batches.

    Attributes:
        types: the columns of a row in their order, as both sides have them.
        key: the columns of the key; they are among these.
    """

    types: pa.Schema
    key: tuple[str, ...]

    def prints(self, batch: pa.RecordBatch) -> Words:
        """The print of each row: uint64, one a row.

        Args:
            batch: has all the columns; others are ignored.

        Raises:
            TableStoppedError: a column's values cannot be taken for the type that they should have.
        """
        return self._printed(batch, self.types.names)

    def buckets(self, batch: pa.RecordBatch, shards: Words | None = None) -> Words:
        """The bucket of each row: below `BUCKETS`, one a row.

        Args:
            batch: see `prints`.
            shards: `shard_print` of each row's shard where that is a part of the key.
        """
        return self.keys(batch, shards) & np.uint64(BUCKETS - 1)

    def keys(self, batch: pa.RecordBatch, shards: Words | None = None) -> Words:
        """The print of each row's key: uint64, one a row.

        Args:
            batch: has the columns of the key; others are ignored.
            shards: see `buckets`.
        """
        prints = self._printed(batch, self.key)
        if shards is not None:
            prints = prints ^ shards
            _finish(prints)
        return prints

    def _printed(self, batch: pa.RecordBatch, names: Sequence[str]) -> Words:
        prints = np.full(batch.num_rows, _P5, np.uint64)
        for name in names:
            _fold(prints, _plain(batch.column(name), self.types.field(name).type))
        _finish(prints)
        return prints


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in this type, and in its plain layout."""
    if column.type == kind:
        return column
    try:
        return pc.cast(column, kind)  # of a view type, or the source's column has become wider
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableStoppedError(
            f"a column is {column.type} in the mirror and {kind} at the source",
            operation="compare two tables",
            hint="dump the table again: `ratchet table CONFIG redump TABLE`",
        ) from error


def _fold(prints: Words, column: pa.Array) -> None:
    if not len(column):
        return  # it need not have buffers
    valid = _ALL
    if column.null_count:
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        _, offsets, data = column.buffers()
        empty = np.empty(0, np.uint8)
        _fold_bytes(
            prints,
            _values(offsets, np.int32, column.offset, len(column) + 1),
            empty if data is None else np.frombuffer(data, np.uint8),
            valid,
        )
    elif pa.types.is_decimal128(kind):
        halves = _values(column.buffers()[1], np.uint64, 2 * column.offset, 2 * len(column))
        _fold_words(prints, halves[0::2], valid)
        _fold_words(prints, halves[1::2], valid)
    else:
        number = _NUMBERS.get(kind.bit_width)
        if number is None or pa.types.is_boolean(kind):
            raise BugError(f"no print for columns of type {kind}", operation="compare two tables")
        numbers = _values(column.buffers()[1], number, column.offset, len(column))
        _fold_words(prints, numbers.astype(np.int64).view(np.uint64), valid)


def _values(buffer: pa.Buffer | None, kind: Any, first: int, count: int) -> Any:
    """Values of a column's buffer, of which a column that is NULL in every row may have none."""
    if buffer is None:
        return np.zeros(count, kind)
    return np.frombuffer(buffer, kind, count, first * np.dtype(kind).itemsize)


_ALL: Final[Flags] = np.empty(0, np.bool_)  # in place of flags: no row is NULL


@kernel
def _rotated(word: np.uint64, bits: int) -> np.uint64:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@kernel
def _mixed(state: np.uint64, word: np.uint64) -> np.uint64:
    return _rotated(state ^ (_rotated(word * _P2, 31) * _P1), 27) * _P1 + _P4


@kernel
def _mixed_null(state: np.uint64) -> np.uint64:
    return _rotated(state ^ _P5, 23) * _P2 + _P3


@kernel
def _fold_words(prints: Words, words: Words, valid: Flags) -> None:
    for i in range(len(prints)):
        if len(valid) and not valid[i]:
            prints[i] = _mixed_null(prints[i])
        else:
            prints[i] = _mixed(prints[i], words[i])


@kernel
def _fold_bytes(prints: Words, offsets: Ints, data: Bytes, valid: Flags) -> None:
    for i in range(len(prints)):
        state = prints[i]
        if len(valid) and not valid[i]:
            prints[i] = _mixed_null(state)
            continue
        at, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        length = np.uint64(end - at)
        while end - at >= _EIGHT:
            state = _mixed(state, _eight_bytes(data, int(at)))
            at += _EIGHT
        if at < end:
            word = np.uint64(0)
            for n in range(end - at):
                word |= np.uint64(data[at + n]) << np.uint64(8 * n)
            state = _mixed(state, word)
        prints[i] = _mixed(state, length)


@kernel
def _eight_bytes(data: Bytes, at: int) -> np.uint64:
    # Written out, for the compiler makes one load of it.
    return (
        np.uint64(data[at])
        | (np.uint64(data[at + 1]) << np.uint64(8))
        | (np.uint64(data[at + 2]) << np.uint64(16))
        | (np.uint64(data[at + 3]) << np.uint64(24))
        | (np.uint64(data[at + 4]) << np.uint64(32))
        | (np.uint64(data[at + 5]) << np.uint64(40))
        | (np.uint64(data[at + 6]) << np.uint64(48))
        | (np.uint64(data[at + 7]) << np.uint64(56))
    )


@kernel
def _finish(prints: Words) -> None:
    for i in range(len(prints)):
        word = prints[i]
        word = (word ^ (word >> np.uint64(33))) * _P2
        word = (word ^ (word >> np.uint64(29))) * _P3
        prints[i] = word ^ (word >> np.uint64(32))


@kernel
def _sum_up(prints: Words, buckets: Words, homes: Words, kept: Words) -> None:
    for i in range(len(prints)):
        bucket = np.int64(buckets[i])
        word = _mixed(prints[i], homes[i])
        word = (word ^ (word >> np.uint64(33))) * _P2
        kept[bucket, 0] += word ^ (word >> np.uint64(29))
        kept[bucket, 1] += np.uint64(1)
