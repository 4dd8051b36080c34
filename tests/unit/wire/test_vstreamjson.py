"""JSON of VStream: MySQL's order and numbers, and documents that vtgate has broken."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.decode.vstreamjson import mysql_text, mysql_texts

NAMES = st.text(max_size=4) | st.sampled_from(
    ["zip", "city", "half", "a", "é", "", '"', "\\", "\n"]
)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


def sort(value: object, order: object) -> object:
    """The document with its members in an order."""
    if isinstance(value, dict):
        return {name: sort(value[name], order) for name in sorted(value, key=order)}  # type: ignore[call-overload]
    return [sort(item, order) for item in value] if isinstance(value, list) else value


@given(DOCUMENTS, st.booleans())
def test_any_order_becomes_mysqls(document: object, ascii_only: bool) -> None:  # noqa: FBT001
    def text(order: object) -> str:
        return json.dumps(sort(document, order), ensure_ascii=ascii_only)

    by_length = text(
        lambda name: (
            len(name.encode("utf-8", "surrogatepass")),
            name.encode("utf-8", "surrogatepass"),
        )
    )
    assert mysql_text(text(lambda name: name)) == by_length
    assert mysql_text(by_length) == by_length


@pytest.mark.parametrize(
    ("text", "expected"),
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
        ("[]", "[]"),
        ("{}", "{}"),
        ('{"b":{"zz":1,"aaa":[]}}', '{"b": {"zz": 1, "aaa": []}}'),
    ],
)
def test_documents(text: str, expected: str) -> None:
    assert mysql_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        '"base64:type15:AP8="}', '"base64:type15:BQ==", true, null]', '{"a": 1', '{"a" 1}', "[1,]",
        "[1 2]", '{"a": }', "{1: 2}", "", "-", "e5", "nul", '"open', "[1]]", '{"a": 1,}', "[,1]",
        '1 "open', '"base64:type15:AP8="}"open',
    ],
)  # fmt: skip
def test_broken_documents(text: str) -> None:
    assert mysql_text(text) is None


def test_a_column_of_documents() -> None:
    texts = pa.array(['{"bb": 1, "a": 2}', None, "true", "[.5]"], pa.string())
    found, broken = mysql_texts(texts)
    assert found.to_pylist() == ['{"a": 2, "bb": 1}', None, "true", "[0.5]"]
    assert (found.type, broken) == (pa.string(), None)
    plain = pa.array(["true", None, '"text"'], pa.string())
    assert mysql_texts(plain)[0] is plain
    assert mysql_texts(pa.array(["1", None, '"x"}']))[1] == 2
