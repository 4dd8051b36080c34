"""Binary JSON: what texts look like, the kernel against its plain twin, and any bytes at all.

The oracle for the texts is the server (tests/integration/test_jsonb_oracle.py); here are the
cases a reader wants to see, and the properties.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit

from ratchet.wire.decode.arrays import Bytes, Int, Longs
from ratchet.wire.decode.doubles import DOUBLE_ROOM, double_text, write_double
from ratchet.wire.decode.jsonb import json_column
from ratchet.wire.decode.jsonb_plain import json_column_plain
from tests.jsonb_encoder import Json, Opaque, encode, packed_decimal

pytestmark = pytest.mark.slow


def columns(values: Sequence[bytes | None]) -> tuple[Bytes, Longs, Longs]:
    """The values behind each other, with some bytes between that belong to none."""
    gap = b"\xff" * 3
    data = gap + gap.join(value or b"" for value in values)
    offs, at = [], len(gap)
    for value in values:
        offs.append(at if value is not None else -1)
        at += len(value or b"") + len(gap)
    lens = [len(value or b"") for value in values]
    return np.frombuffer(data, np.uint8), np.array(offs, np.int64), np.array(lens, np.int64)


def both(values: Sequence[bytes | None]) -> list[str] | int:
    """The texts, or the index of the first value that is bad; kernel and twin must agree."""
    results: list[list[str] | int] = []
    for function in (json_column, json_column_plain):
        data, offsets, bad = function(*columns(values))
        assert offsets.dtype == np.int64
        assert offsets.size == len(values) + 1
        if bad >= 0:
            assert data.size == 0
            assert not offsets.any()
            results.append(int(bad))
            continue
        text = data.tobytes()
        results.append([text[a:b].decode() for a, b in pairwise(offsets)])
    assert results[0] == results[1]
    return results[0]


def opaque_time(field: int, packed: int) -> Opaque:
    return Opaque(field, struct.pack("<q", packed))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "aa": [True, None]}, '{"b": 1, "aa": [true, null]}'),
        ({}, "{}"),
        ([], "[]"),
        ([[], {}, ""], '[[], {}, ""]'),
        ({"": {"": []}}, '{"": {"": []}}'),
        ('"\\/\b\t\n\f\r\x01\x1f\x7fé😀', '"\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001f\x7fé😀"'),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e20, "1e20"),
        (1e14, "100000000000000.0"),
        (1e15, "1e15"),
        (1234567890123456.7, "1234567890123456.8"),
        (1e-15, "0.000000000000001"),
        (1.5e-16, "1.5e-16"),
        (-5e-324, "-5e-324"),
        (2**64 - 1, "18446744073709551615"),
        (-(2**63), "-9223372036854775808"),
        (packed_decimal("-0012.50"), "-12.50"),
        (packed_decimal("0.5"), "0.5"),
        (packed_decimal("9" * 35 + "." + "9" * 30), "9" * 35 + "." + "9" * 30),
        (packed_decimal("0"), "0"),
        (Opaque(15, b"\x00\x01"), '"base64:type15:AAE="'),
        (Opaque(252, b""), '"base64:type252:"'),
        (Opaque(16, b"\0" * 57), f'"base64:type16:{"A" * 76}"'),
        (Opaque(16, b"\0" * 58), f'"base64:type16:{"A" * 76}\\nAA=="'),
        (opaque_time(11, -((838 << 12 | 59 << 6 | 59) << 24)), '"-838:59:59.000000"'),
        (opaque_time(11, 500_000), '"00:00:00.500000"'),
        (opaque_time(10, 0), '"0000-00-00"'),
        (opaque_time(12, (2024 * 13 + 2) << 46 | 29 << 41), '"2024-02-29 00:00:00.000000"'),
    ],
)
def test_a_value_looks_as_the_server_prints_it(value: Json, text: str, *, large: bool) -> None:
    assert both([encode(value, large=large), encode([value], large=large)]) == [text, f"[{text}]"]


def test_null_columns_and_empty_values() -> None:
    """A NULL is an empty text; an empty value (INSERT IGNORE of NULL) is read as JSON's null."""
    assert both([None, b"", encode(1), None]) == ["", "null", "1", ""]
    assert both([]) == []


def test_the_deepest_document_that_a_server_accepts() -> None:
    value: Json = []
    for _ in range(99):
        value = [value]
    assert both([encode(value)]) == ["[" * 100 + "]" * 100]


def test_too_deep_is_bad() -> None:
    value: Json = []
    for _ in range(300):
        value = [value]
    assert both([encode(value)]) == 0


def test_a_large_container_may_hold_small_ones() -> None:
    value: Json = {f"key{n}": ["x" * 1000] * 3 for n in range(40)}
    document = encode(value, large=True)
    assert len(document) > 65536
    assert both([document]) == [json.dumps(value)]


@pytest.mark.parametrize(
    "document",
    [
        b"\x0d",
        b"\x0e\x00",
        b"\x10",
        b"\xff",
        b"\x00",
        b"\x04",
        b"\x04\x03",
        b"\x05\x00",
        b"\x0b" + struct.pack("<d", float("inf")),
        b"\x0b" + struct.pack("<d", float("nan")),
        b"\x0c\x05abc",
        b"\x0c\x80\x80\x80\x80\x80\x01",
        b"\x0c\x01\xff",
        b"\x0c\x03\xed\xa0\x80",
        b"\x0f\xf6\x02\x0a\x0b",
        b"\x0f\x0c\x07" + bytes(7),
        b"\x02\x01\x00\xff\x00\x04\x00\x00",
        b"\x02\xff\xff\x04\x00",
    ],
)
def test_what_is_no_binary_json_is_bad(document: bytes) -> None:
    assert both([encode(1), None, document, encode(2)]) == 2


def test_shared_contents_that_would_grow_without_end_are_stopped() -> None:
    """64 arrays of two elements, both of which are the next array: 2^64 values in 1 KB."""
    data = b""
    for _ in range(64):
        size = 10 + len(data)
        entry = b"\x02" + struct.pack("<H", 10)
        data = struct.pack("<HH", 2, size) + entry + entry + data
    assert both([b"\x02" + data]) == 0


@pytest.mark.parametrize(("start", "size"), [(0, 9), (9, 1), (2**62, 2**62), (1, -1)])
def test_a_value_outside_the_buffer_is_bad(start: int, size: int) -> None:
    buf = np.zeros(8, np.uint8)
    for function in (json_column, json_column_plain):
        bad = function(buf, np.array([start], np.int64), np.array([size], np.int64))[2]
        assert bad == 0


DECIMALS = st.from_regex(r"-?[0-9]{1,30}(\.[0-9]{1,30})?", fullmatch=True).map(packed_decimal)
OPAQUES = st.builds(Opaque, st.integers(0, 255), st.binary(max_size=200))
TIMES = st.builds(opaque_time, st.sampled_from([7, 10, 11, 12]), st.integers(-(2**63), 2**63 - 1))
SCALARS: st.SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([2**n + d for n in (7, 8, 15, 16, 31, 32, 63) for d in (-1, 0, 1)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)
ANY = st.recursive(
    SCALARS | DECIMALS | OPAQUES | TIMES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@settings(deadline=None, derandomize=True)
@given(value=PLAIN, large=st.booleans())
def test_a_json_parser_reads_back_what_was_encoded(value: Json, *, large: bool) -> None:
    texts = both([encode(value, large=large)])
    assert isinstance(texts, list)
    back = json.loads(texts[0])
    assert back == value
    assert repr(back) == repr(value)  # 1 is not 1.0, and True is not 1


@settings(deadline=None, derandomize=True)
@given(st.lists(st.none() | ANY.map(encode) | ANY.map(lambda v: encode(v, large=True))))
def test_the_kernel_equals_its_twin_on_documents(values: list[bytes | None]) -> None:
    both(values)


@settings(deadline=None, derandomize=True, max_examples=400)
@given(st.binary(max_size=60))
@example(b"\x00\x01\x00\x0c\x00")
def test_the_kernel_equals_its_twin_on_any_bytes(data: bytes) -> None:
    both([data])


@settings(deadline=None, derandomize=True, max_examples=400)
@given(value=ANY, large=st.booleans(), data=st.data())
def test_the_kernel_equals_its_twin_on_damaged_documents(
    value: Json, *, large: bool, data: st.DataObject
) -> None:
    document = bytearray(encode(value, large=large))
    for _ in range(data.draw(st.integers(1, 4))):
        document[data.draw(st.integers(0, len(document) - 1))] = data.draw(st.integers(0, 255))
    both([bytes(document), bytes(document[: data.draw(st.integers(0, len(document)))])])


@njit(cache=False)
def write_all(values: Longs, out: Bytes, ends: Longs) -> None:
    """Write the doubles of these bit patterns one after the other."""
    pos: Int = 0
    for i in range(values.size):
        pos = write_double(np.uint64(values[i]), out, pos)
        ends[i] = pos


@pytest.mark.parametrize(
    "bits",
    [
        np.random.default_rng(1).integers(-(2**63), 2**63, 200_000, dtype=np.int64),
        np.random.default_rng(2).integers(0, 2**52, 50_000, dtype=np.int64),
        np.round(np.random.default_rng(3).random(100_000) * 1e7, 2).view(np.int64),
        np.arange(0, 2047, dtype=np.int64) << 52,
        (np.arange(1, 2047, dtype=np.int64) << 52) - 1,
        (np.arange(0, 2047, dtype=np.int64) << 52) + 1,
        np.array([float(f"{m}e{e}") for m in range(1, 99, 7) for e in range(-330, 308)]).view(
            np.int64
        ),
        np.arange(-1000, 1000, dtype=np.float64).view(np.int64),
    ],
    ids=["any", "subnormal", "prices", "powers", "below", "above", "decimal", "whole"],
)
def test_doubles_are_the_shortest_that_read_back(bits: Longs) -> None:
    """The digits equal those of Python's repr, which is the dtoa that MySQL uses as well."""
    values = bits.view(np.float64)
    bits = bits[np.isfinite(values)]
    out, ends = np.empty(bits.size * DOUBLE_ROOM, np.uint8), np.empty(bits.size, np.int64)
    write_all(bits, out, ends)
    text = out.tobytes()
    start = 0
    for value, end in zip(bits.view(np.float64).tolist(), ends.tolist(), strict=True):
        assert text[start:end].decode() == double_text(value)
        start = end
