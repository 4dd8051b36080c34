"""Python's codecs against our tables of the servers', which test_charsets_oracle proves."""

from __future__ import annotations

import pytest

from ratchet.core.errors import DecodeError
from ratchet.ingest.logcharsets import second_text
from ratchet.wire.decode.charsets import text_of
from ratchet.wire.decode.charsets_data import MULTI_BYTE, SINGLE_BYTE

UNICODE = {"utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32"}


def ours(value: bytes, charset: str) -> str | None:
    try:
        return text_of(value, charset)
    except DecodeError:
        return None


@pytest.mark.parametrize("charset", sorted({*SINGLE_BYTE, *MULTI_BYTE, "ascii"}))
def test_what_python_reads_is_what_the_servers_print(charset: str) -> None:
    pairs = (
        [] if charset in SINGLE_BYTE else [bytes([a, b]) for a in range(256) for b in range(256)]
    )
    read = 0
    for value in [*(bytes([n]) for n in range(256)), *pairs]:
        found, right = second_text(value, charset), ours(value, charset)
        read += found is not None
        # What a column cannot hold is never asked for.
        assert found is None or right is None or found == right, (charset, value)
    assert read == 0 if charset == "swe7" else read >= 128


def test_plain_ascii_is_read_in_any_charset_but_one() -> None:
    every = {*SINGLE_BYTE, *MULTI_BYTE, "ascii", "binary", "utf8", "utf8mb3", "utf8mb4"}
    assert {c for c in every if second_text(b"Az09 {}", c) != "Az09 {}"} == {"swe7"}


def test_unicode() -> None:
    text = "aß日"
    for charset, codec in {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "ucs2": "utf-16-be",
                           "utf16": "utf-16-be", "utf16le": "utf-16-le",
                           "utf32": "utf-32-be"}.items():  # fmt: skip
        assert second_text(text.encode(codec), charset) == text
        assert second_text(b"\xff", charset) is None


def test_an_unknown_charset_is_not_guessed() -> None:
    assert second_text(b"a", "klingon") is None
    assert second_text(b"a", "") is None
