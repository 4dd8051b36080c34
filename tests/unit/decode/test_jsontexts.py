"""JSON of VStream: MySQL's order and numbers, documents that vtgate has broken, and any bytes.

The oracle for the texts is the server (tests/integration/test_vstream_rows.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ratchet.wire.decode.jsonb import MAX_DEPTH
from ratchet.wire.decode.kernels import jsontexts as kernel
from ratchet.wire.decode.plain import jsontexts as plain

pytestmark = pytest.mark.slow

NAMES = st.text(max_size=4) | st.sampled_from(
    ["zip", "city", "half", "a", "é", "", '"', "\\", "\n", "\x00", "\x1f", "a\tb"]
)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=20),
    max_leaves=30,
)
# What looks like JSON, and mostly is none.
SINGLE = '{}[],:"1-.e \\\n\x01é'
WORDS = ['"a"', '"bb":', '"\\u0001":', '"c\\n"', "-.5", "0.5", "1e5", "true", "null", "fals"]
NEARLY = st.lists(st.sampled_from([*SINGLE, *WORDS]))


def texts(values: Sequence[bytes | None]) -> list[str] | int:
    """The texts, or the index of the first bad value; kernel and twin must agree."""
    gap = b'"\xff'
    data = gap + gap.join(value or b"" for value in values)
    offs, at = [], len(gap)
    for value in values:
        offs.append(at if value is not None else -1)
        at += len(value or b"") + len(gap)
    buf = np.frombuffer(data, np.uint8)
    lens = np.array([len(value or b"") for value in values], np.int64)
    results: list[list[str] | int] = []
    for module in (kernel, plain):
        found, places, bad = module.mysql_texts(buf, np.array(offs, np.int64), lens)
        assert (places.dtype, places.size) == (np.int64, len(values) + 1)
        raw = found.tobytes()
        results.append([raw[a:b].decode() for a, b in pairwise(places)] if bad < 0 else int(bad))
        if bad >= 0:
            assert found.size == 0
    assert results[0] == results[1]
    return results[0]


def text(value: str) -> str | None:
    """One document's text; None if it is broken."""
    found = texts([value.encode()])
    return None if isinstance(found, int) else found[0]


def ordered(value: object, order: object) -> object:
    """The document with its members in an order."""
    if isinstance(value, dict):
        return {
            name: ordered(value[name], order)
            for name in sorted(value, key=order)  # type: ignore[call-overload]
        }
    return [ordered(item, order) for item in value] if isinstance(value, list) else value


def by_length(name: str) -> tuple[int, bytes]:
    return len(name.encode()), name.encode()


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS)
def test_any_order_becomes_mysqls(document: object) -> None:
    expected = json.dumps(ordered(document, by_length), ensure_ascii=False)
    for order in (lambda name: name, by_length, lambda name: name[::-1]):
        assert text(json.dumps(ordered(document, order), ensure_ascii=False)) == expected
    short = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    assert text(short) == expected


@settings(max_examples=600, deadline=None)
@given(st.lists(NEARLY.map("".join).map(str.encode) | st.none() | st.binary(max_size=12)))
@example([b"{}", None, b"[[], {}]", b"{"])
@example([b'"\xff"'])
@example([b'"\xed\xa0\x80"'])
def test_the_kernel_is_its_twin(values: list[bytes | None]) -> None:
    texts(values)


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS, st.data())
def test_the_kernel_is_its_twin_on_damaged_documents(document: object, data: st.DataObject) -> None:
    whole = json.dumps(document, ensure_ascii=False).encode()
    at = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.integers(at, len(whole)))
    texts([whole, whole[:at] + data.draw(st.binary(max_size=2)) + whole[cut:]])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            '{"a": 12.5, "city": 2, "half": .25, "zip": 1}',
            '{"a": 12.5, "zip": 1, "city": 2, "half": 0.25}',
        ),
        ('{"f": -.5}', '{"f": -0.5}'),
        ("[.050, .0, 0.5, 1e300, -1.5E-7, 1e21]", "[0.050, 0.0, 0.5, 1e300, -1.5E-7, 1e21]"),
        (".5", "0.5"),
        ("12345678901234567890123.000", "12345678901234567890123.000"),
        ('"{.5]"', '"{.5]"'),
        (" [ ]\n", "[]"),
        ("{ }", "{}"),
        ('{"b":{"zz":1,"aaa":[]}}', '{"b": {"zz": 1, "aaa": []}}'),
        (r'{"ab": 1, "\u0001": 2, "\"": 3}', r'{"\u0001": 2, "\"": 3, "ab": 1}'),
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, "[" * MAX_DEPTH + "]" * MAX_DEPTH),
    ],
)
def test_documents(value: str, expected: str) -> None:
    assert text(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        '"base64:type15:AP8="}', '"base64:type15:BQ==", true, null]', '{"a": 1', '{"a" 1}', "[1,]",
        "[1 2]", '{"a": }', "{1: 2}", "", " ", "-", "e5", "nul", '"open', "[1]]", '{"a": 1,}',
        "[,1]", '1 "open', '"base64:type15:AP8="}"open', "-.", "5.", "1e", "[1}", '{"a": 1]',
        '"a\nb"', r'"\x"', r'"\u00e9"', '"\\', "\u0661", "[" * (MAX_DEPTH + 1) + "]" * MAX_DEPTH,
    ],
)  # fmt: skip
def test_broken_documents(value: str) -> None:
    assert text(value) is None


def test_a_column_of_documents() -> None:
    found = texts([b'{"bb": 1, "a": 2}', None, b"true", b"[.5]"])
    assert found == ['{"a": 2, "bb": 1}', "", "true", "[0.5]"]
    assert texts([b"1", None, b'"x"}', b"{"]) == 2


def test_an_object_of_many_members() -> None:
    """What is sorted by comparing each with each would take minutes."""
    members = {f"{n * 7919 % 100_000:05d}": n for n in range(100_000)}
    found = json.loads(texts([json.dumps(members).encode()])[0])  # type: ignore[index]
    assert list(found) == sorted(members)


def test_a_value_outside_of_its_buffer_is_bad() -> None:
    buf = np.frombuffer(b"[1]", np.uint8)
    for offs, lens in (([0], [4]), ([2], [-1])):
        for module in (kernel, plain):
            found = module.mysql_texts(buf, np.array(offs, np.int64), np.array(lens, np.int64))
            assert found[2] == 0
