"""Character sets: examples, the kernel against its plain twin, and any bytes at all.

The oracle for every sequence is the servers (tests/integration/test_charsets_oracle.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.core.charsets import ONE_TO_ONE
from ratchet.core.errors import DecodeError
from ratchet.wire.decode.charsets import transcode_column, transcoder
from ratchet.wire.decode.charsets_data import MULTI_BYTE, SINGLE_BYTE
from ratchet.wire.decode.charsets_plain import transcode_column_plain

pytestmark = pytest.mark.slow

UNITS = ("ucs2", "utf16", "utf16le", "utf32")
UTF8 = ("utf8mb4", "utf8mb3", "utf8", "binary")
CHARSETS = (*SINGLE_BYTE, *MULTI_BYTE, *UNITS, *UTF8)


def both(charset: str, values: Sequence[bytes | None], *, exact: bool = False) -> list[str] | int:
    """The texts, or the index of the first bad value; kernel and twin must agree."""
    gap = b"\xff\x00\xd8"
    buf = np.frombuffer(gap + gap.join(value or b"" for value in values), np.uint8)
    lens = np.array([len(value or b"") for value in values], np.int64)
    offs = np.cumsum(lens + len(gap)) - lens
    offs[[value is None for value in values]] = -1
    results: list[list[str] | int] = []
    for function in (transcode_column, transcode_column_plain):
        data, offsets, bad = function(buf, offs, lens, transcoder(charset, exact=exact))
        assert offsets.size == len(values) + 1
        if bad >= 0:
            assert data.size == 0
            assert not offsets.any()
            results.append(bad)
            continue
        text = data.tobytes()
        results.append([text[a:b].decode() for a, b in pairwise(offsets)])
    assert results[0] == results[1]
    return results[0]


@pytest.mark.parametrize(
    ("charset", "stored", "text"),
    [
        ("latin1", "80 81 e9 ff", "€\x81éÿ"),  # the servers' latin1 is Windows' 1252
        ("ascii", "41 80", "A?"),
        ("koi8r", "c1 c2", "\u0430\u0431"),
        ("swe7", "5b 5c 7b", "ÄÖä"),
        ("cp1250", "41 81", "A?"),
        ("tis620", "a1", "ก"),
        ("sjis", "5c 81 5f b1", "\\\\ｱ"),
        ("cp932", "5c 81 5f b1", "\\\uff3cｱ"),
        ("gbk", "b0 a1 41", "啊A"),
        ("gb18030", "b0 a1 81 35 f4 37 95 32 82 36", "啊\ue7c7\U00020000"),
        ("gb18030", "8f 30 81 30 e3 32 9a 35 e3 32 9a 36", "?\U0010ffff?"),
        ("big5", "a4 a4 f9 d6", "中碁"),
        ("ujis", "8e b1 8f b0 a1 b0 a1", "ｱ丂亜"),
        ("eucjpms", "ad a1", "①"),
        ("euckr", "81 41 b0 a1", "갂가"),
        ("ucs2", "00 41 20 ac", "A€"),
        ("utf16", "00 41 d8 3d de 00", "A😀"),
        ("utf16le", "41 00 3d d8 00 de", "A😀"),
        ("utf32", "00 00 00 41 00 01 f6 00", "A😀"),
        ("utf8mb4", "41 f0 9f 98 80", "A😀"),
    ],
)
def test_texts_are_read_as_the_servers_read_them(charset: str, stored: str, text: str) -> None:
    value = bytes.fromhex(stored)
    assert both(charset, [value, None, b"", value * 20]) == [text, "", "", text * 20]


@pytest.mark.parametrize(
    ("charset", "stored"),
    [
        ("utf8mb4", "ff"),
        ("utf8mb4", "c0 80"),
        ("utf8mb4", "ed a0 80"),
        ("utf8mb4", "f4 90 80 80"),
        ("utf8mb4", "e2 82"),
        ("ucs2", "00"),
        ("ucs2", "d8 3d de 00"),
        ("utf16", "d8 3d 00 41"),
        ("utf16", "d8 3d"),
        ("utf16le", "00 de"),
        ("utf32", "00 00 d8 00"),
        ("utf32", "00 11 00 00"),
        ("utf32", "ff ff ff ff"),
        ("utf32", "00 00 41"),
        ("gbk", "b0"),
        ("gbk", "b0 ff"),
        ("gbk", "80"),
        ("ujis", "8e a0"),
        ("ujis", "8f a1"),
        ("gb18030", "81 30 81"),
        ("gb18030", "81 30 41 30"),
    ],
)
def test_what_is_no_text_is_bad(charset: str, stored: str) -> None:
    assert both(charset, [b"", None, bytes.fromhex(stored), b"\xff"]) == 2


def test_an_unknown_character_set_is_named() -> None:
    with pytest.raises(DecodeError, match="klingon"):
        transcoder("klingon")


@pytest.mark.parametrize("charset", CHARSETS)
def test_empty_columns(charset: str) -> None:
    assert both(charset, []) == []
    assert both(charset, [None, b""]) == ["", ""]


@pytest.mark.parametrize("charset", ["utf8mb4", "gbk", "utf16", "latin1"])
@pytest.mark.parametrize(("start", "size"), [(0, 9), (9, 1), (2**62, 2**62), (1, -1)])
def test_a_value_outside_the_buffer_is_bad(charset: str, start: int, size: int) -> None:
    buf = np.full(8, 65, np.uint8)
    offs, lens = np.array([0, start], np.int64), np.array([8, size], np.int64)
    for function in (transcode_column, transcode_column_plain):
        assert function(buf, offs, lens, transcoder(charset))[2] == 1


@pytest.mark.parametrize("charset", CHARSETS)
def test_every_single_byte(charset: str) -> None:
    values = [bytes([byte]) for byte in range(256)]
    good = [value for value in values if both(charset, [value]) != 0]
    texts = both(charset, good)
    assert texts == [both(charset, [value])[0] for value in good]  # type: ignore[index]


@settings(deadline=None, derandomize=True, max_examples=800)
@given(st.sampled_from(CHARSETS), st.lists(st.none() | st.binary(max_size=20), max_size=3))
def test_the_kernel_equals_its_twin_on_any_bytes(charset: str, values: list[bytes | None]) -> None:
    both(charset, values)


@st.composite
def stored_texts(draw: st.DrawFn) -> tuple[str, bytes]:
    """Texts of multi-byte character sets as columns hold them."""
    charset = draw(st.sampled_from(sorted(MULTI_BYTE)))
    parts = []
    for _ in range(draw(st.integers(0, 12))):
        form = draw(st.sampled_from(MULTI_BYTE[charset].forms))
        for column in form:
            low, high = draw(st.sampled_from(column.split())).split("-")
            parts.append(draw(st.integers(int(low, 16), int(high, 16))))
    return charset, bytes(parts)


@settings(deadline=None, derandomize=True, max_examples=800)
@given(stored_texts())
def test_the_kernel_equals_its_twin_on_multi_byte_texts(stored: tuple[str, bytes]) -> None:
    charset, value = stored
    assert isinstance(both(charset, [value]), list)


@settings(deadline=None, derandomize=True, max_examples=400)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_unicode_in_any_form_is_itself(texts: list[str]) -> None:
    for charset, codec in (
        ("utf8mb4", "utf-8"),
        ("utf16", "utf-16-be"),
        ("utf16le", "utf-16-le"),
        ("utf32", "utf-32-be"),
    ):
        assert both(charset, [text.encode(codec) for text in texts]) == texts


@pytest.mark.parametrize(
    ("charset", "good", "bad"),
    [
        ("cp932", "fa5c 8754 81ca 5c", "ed40"),
        ("cp932", "fa40 81e6", "eeef"),
        ("cp932", "8754", "fa4a"),
        ("sjis", "815f 41", "5c"),
        ("armscii8", "29 a3", "a4"),
        ("cp1251", "3f 97", "98"),
        ("ascii", "41", "80"),
        ("greek", "3f", "ae"),
        ("tis620", "ff", "db"),
        ("big5", "a2ce a440", "a1c3"),
        ("gbk", "b0a1 3f", "a2ab"),
        ("eucjpms", "a1c1", "8fa2b7"),
        ("gb18030", "e3329a35 3f", "8f308130"),
        ("gb18030", "30", "e3329a36"),
        ("ucs2", "0041", "d800"),
    ],
)
def test_of_a_key_one_form_of_a_text_is_read(charset: str, good: str, bad: str) -> None:
    one, other = bytes.fromhex(good), bytes.fromhex(bad)
    assert both(charset, [one, None, b"", one * 20], exact=True) == both(
        charset, [one, None, b"", one * 20]
    )
    assert both(charset, [one, other], exact=True) == 1
    assert both(charset, [one + other], exact=True) == 0
    if charset != "ucs2":
        assert isinstance(both(charset, [other]), list)


def test_the_list_of_those_that_are_one_to_one() -> None:
    """In all others the tables have a character that comes from several sequences."""
    shared = set()
    for charset in (*SINGLE_BYTE, *MULTI_BYTE):
        loose, exact = transcoder(charset), transcoder(charset, exact=True)
        for name in ("single", "pair", "wide"):
            if not np.array_equal(getattr(loose, name), getattr(exact, name)):
                shared.add(charset)
    assert shared == {*SINGLE_BYTE, *MULTI_BYTE} - ONE_TO_ONE
    assert set(UNITS) - ONE_TO_ONE == {"ucs2"}
    assert set(UTF8) <= ONE_TO_ONE


@settings(deadline=None, derandomize=True, max_examples=800)
@given(stored_texts())
def test_the_kernel_equals_its_twin_on_keys(stored: tuple[str, bytes]) -> None:
    charset, value = stored
    both(charset, [value], exact=True)
