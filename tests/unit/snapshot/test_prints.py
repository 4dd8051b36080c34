"""Prints of rows: the kernels against their plain twin, and what a fingerprint tells apart."""

from __future__ import annotations

import random
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.core.errors import TableStoppedError
from ratchet.snapshot.prints import (
    BUCKETS,
    PRIMES,
    Fingerprint,
    RowHasher,
    ShardOrigins,
    Tally,
    combined,
    odd_buckets,
    shard_print,
)

TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("int", pa.int32()),
        ("big", pa.decimal128(20, 0)),
        ("price", pa.decimal128(38, 4)),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("moment", pa.timestamp("us", tz="UTC")),
    ]
)
_MASK = (1 << 64) - 1
_SCALE = {"big": 0, "price": 4}


def _or_none(values: Any) -> Any:
    return st.one_of(st.none(), values)


_FLOATS32 = st.floats(width=32, allow_nan=False)
ROWS = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        _or_none(st.integers(-128, 127)),
        _or_none(st.integers(-(2**15), 2**15 - 1)),
        _or_none(st.integers(-(2**31), 2**31 - 1)),
        _or_none(st.integers(0, 2**64 - 1).map(Decimal)),
        _or_none(st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}e-4"))),
        _or_none(_FLOATS32),
        _or_none(st.floats(allow_nan=False)),
        _or_none(st.text(st.characters(exclude_categories=["Cs"]), max_size=40)),
        _or_none(st.binary(max_size=40)),
        _or_none(st.dates(date(1000, 1, 1))),
        _or_none(st.datetimes(datetime(1000, 1, 1))),  # noqa: DTZ001 - a DATETIME has no zone
        _or_none(st.datetimes(datetime(1970, 1, 2), timezones=st.just(UTC))),  # noqa: DTZ001
    ),
    min_size=1,
    max_size=9,
)


def _batch(rows: Any) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(values, kind) for values, kind in zip(columns, TYPES.types, strict=True)],
        schema=TYPES,
    )


def _words(name: str, value: Any) -> list[int]:  # noqa: PLR0911 - one line a family
    """A value as 64-bit words, by the rules of the module's docstring."""
    if name in _SCALE:
        number = int(Fraction(value) * 10 ** _SCALE[name]) & ((1 << 128) - 1)
        return [number & _MASK, number >> 64]
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        padded = data + bytes(-len(data) % 8)
        return [*struct.unpack(f"<{len(padded) // 8}Q", padded), len(data)]
    if isinstance(value, float):
        if name == "f":
            return [struct.unpack("<i", struct.pack("<f", value))[0] & _MASK]
        return list(struct.unpack("<Q", struct.pack("<d", value)))
    if isinstance(value, datetime):
        since = value.replace(tzinfo=None) - datetime(1970, 1, 1)  # noqa: DTZ001
        return [((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) & _MASK]
    if isinstance(value, date):
        return [(value - date(1970, 1, 1)).days & _MASK]
    return [value & _MASK]


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK


def _plain_print(row: Any, names: Any) -> int:
    """The plain twin of the kernels, a value at a time."""
    p1, p2, p3, p4, p5 = PRIMES
    state = p5
    for name, value in zip(TYPES.names, row, strict=True):
        if name not in names:
            continue
        if value is None:
            for _ in range(2 if name in _SCALE else 1):
                state = (_rotated(state ^ p5, 23) * p2 + p3) & _MASK
            continue
        for word in _words(name, value):
            mixed = _rotated(word * p2 & _MASK, 31) * p1 & _MASK
            state = (_rotated(state ^ mixed, 27) * p1 + p4) & _MASK
    state = (state ^ state >> 33) * p2 & _MASK
    state = (state ^ state >> 29) * p3 & _MASK
    return state ^ state >> 32


PRINTER = RowHasher(types=TYPES, key=("id", "s"))


@settings(deadline=None)
@given(ROWS)
def test_the_kernels_print_as_their_plain_twin(rows: Any) -> None:
    batch = _batch(rows)
    assert PRINTER.prints(batch).tolist() == [_plain_print(row, TYPES.names) for row in rows]
    buckets = [_plain_print(row, PRINTER.key) % BUCKETS for row in rows]
    assert PRINTER.buckets(batch).tolist() == buckets


@settings(deadline=None)
@given(ROWS, st.integers(0, 2**32))
def test_the_layout_does_not_count(rows: Any, seed: int) -> None:
    """Slices, view types, other orders of columns and narrower integers print alike."""
    batch = _batch(rows)
    prints = PRINTER.prints(batch)
    first = seed % len(rows)
    assert PRINTER.prints(batch.slice(first)).tolist() == prints[first:].tolist()
    views = {"s": pa.string_view(), "b": pa.binary_view()}
    arrays = [batch.column(name).cast(views.get(name, TYPES.field(name).type)) for name in
              TYPES.names]  # fmt: skip
    pairs = list(zip(TYPES.names, arrays, strict=True))
    random.Random(seed).shuffle(pairs)
    again = pa.record_batch([a for _, a in pairs], names=[n for n, _ in pairs])
    assert PRINTER.prints(again).tolist() == prints.tolist()


def test_neighbours_have_other_prints() -> None:
    """NULL, zero, both zeros, the empty string; and values that stand in the other column."""
    types = pa.schema([("id", pa.int32()), ("a", pa.float64()), ("s", pa.string()),
                       ("t", pa.string()), ("n", pa.int32()), ("m", pa.int32())])  # fmt: skip
    rows = [
        (1, 0.0, "", "", 0, 0),
        (1, -0.0, "", "", 0, 0),
        (1, None, "", "", 0, 0),
        (1, 0.0, None, "", 0, 0),
        (1, 0.0, "", None, 0, 0),
        (1, 0.0, "a", "b", 0, 0),
        (1, 0.0, "b", "a", 0, 0),
        (1, 0.0, "ab", "", 0, 0),
        (1, 0.0, "", "ab", 0, 0),
        (1, 0.0, "ab\0", "", 0, 0),
        (1, 0.0, "á", "", 0, 0),
        (1, 0.0, "A", "", 0, 0),
        (1, 0.0, "A ", "", 0, 0),
        (1, 0.0, "", "", None, 5),
        (1, 0.0, "", "", 5, None),
        (1, 0.0, "", "", 5, 0),
        (1, 0.0, "", "", 0, 5),
        (1, 0.0, "12345678", "", 0, 0),
        (1, 0.0, "12345678\0", "", 0, 0),
    ]
    columns = [pa.array(c, k) for c, k in zip(zip(*rows, strict=True), types.types, strict=True)]
    printer = RowHasher(types=types, key=("id",))
    batch = pa.record_batch(columns, schema=types)
    assert len(set(printer.prints(batch).tolist())) == len(rows)
    assert len(set(printer.buckets(batch).tolist())) == 1


def _printed(ids: list[int], values: list[int], home: str = "") -> Fingerprint:
    types = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    printer = RowHasher(types=types, key=("id",))
    batch = pa.record_batch([pa.array(ids, pa.int64()), pa.array(values, pa.int64())],
                            schema=types)  # fmt: skip
    tally = Tally()
    homes = np.full(len(ids), shard_print(home) if home else 0, np.uint64)
    tally.rows(printer.prints(batch), printer.buckets(batch), homes)
    return tally.fingerprint


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32))
def test_fingerprints_tell_tables_apart(seed: int) -> None:
    """Order and parts do not count; damage shows in the buckets of its keys, and only there."""
    rng = random.Random(seed)
    ids = rng.sample(range(10**6), 200)
    values = [rng.randrange(5) for _ in ids]
    table = _printed(ids, values)
    assert table.rows == 200
    order = rng.sample(range(200), 200)
    cut = rng.randrange(201)
    parts = [
        _printed([ids[n] for n in part], [values[n] for n in part])
        for part in (order[:cut], order[cut:])
    ]
    assert not odd_buckets(table, combined(parts)).any()

    one, other = rng.sample(range(199), 2)
    changed, swapped = list(values), list(values)
    changed[one] += 1
    swapped[one], swapped[other] = swapped[other], swapped[one]
    damaged = {
        "changed": (_printed(ids, changed), {one}),
        "lost": (_printed(ids[:one] + ids[one + 1 :], values[:one] + values[one + 1 :]), {one}),
        "doubled": (_printed([*ids, ids[one]], [*values, values[one]]), {one}),
        "tripled": (_printed([*ids, *[ids[one]] * 2], [*values, *[values[one]] * 2]), {one}),
        "swapped": (_printed(ids, swapped), {one, other} if values[one] != values[other] else ()),
        "another home": (_printed(ids, values, "shop/-80"), set(range(200))),
    }
    for what, (found, rows) in damaged.items():
        buckets = {int(_printed([ids[row]], [0]).buckets[0]) for row in rows}
        odd = odd_buckets(table, found)
        assert set(np.flatnonzero(odd).tolist()) == buckets, what
        assert found.rows_in(~odd) + found.rows_in(odd) == found.rows


def test_names_that_stand_for_shards() -> None:
    """A row under its own shard's name, or an ancestor's, is at home; any other name is not."""
    old = "k/-80"
    homes = ShardOrigins({"k/-40": {"k/-40", old}, "k/40-80": {"k/40-80", old}, "k/80-": {"k/80-"}})
    found = homes.of_rows(["k/-40", "k/80-", "k/old", ""])
    assert found["k/-40"] == homes.of_shard("k/-40")
    assert found["k/80-"] == homes.of_shard("k/80-")
    own = {homes.of_shard(shard) for shard in ("k/-40", "k/40-80", "k/80-")}
    assert not {found["k/old"], found[""]} & own
    assert homes.are_shared(["k/80-", old])
    assert not homes.are_shared(["k/80-", "k/-40", "k/old", ""])
    anywhere = ShardOrigins(None)
    assert anywhere.of_rows(["a", ""]) == {"a": 0, "": 0}
    assert anywhere.of_shard("b") == 0
    assert not anywhere.are_shared(["a"])


def test_columns_of_another_type() -> None:
    """The source's column may be wider than the mirror's; values that do not fit are named."""
    types = pa.schema([("id", pa.int64())])
    printer = RowHasher(types=types, key=("id",))
    narrow = pa.record_batch({"id": pa.array([1, -2, None], pa.int32())})
    wide = pa.record_batch({"id": pa.array([1, -2, None], pa.int64())})
    assert printer.prints(narrow).tolist() == printer.prints(wide).tolist()
    with pytest.raises(TableStoppedError, match="string in the mirror and int64 at the source"):
        printer.prints(pa.record_batch({"id": pa.array(["x"])}))
