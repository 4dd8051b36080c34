"""Text in any of the servers' character sets to UTF-8, as CONVERT(... USING utf8mb4) does it.

Lives here: which character sets there are and how each is read. The loops are in
`charsets_kernel`, their plain twin in `charsets_plain`, what was measured on the servers in
`charsets_data` (MySQL 9.7 and MariaDB 10.11 agree, so a flavour is not asked for).

Invariant: a value comes out as the server itself prints it, or as `bad`. A byte sequence that a
column stores but that has no character is "?", as in the server's own SELECT. Bad are:

- bytes that are no text in their character set (the servers do not let them into a column);
- lone surrogates. MariaDB stores them in utf8mb3, utf8mb4 and utf32, both servers in ucs2; there
  is no UTF-8 for them (MySQL's CONVERT ends the text there, MariaDB's prints invalid UTF-8);
- 8EA0 in ujis and eucjpms, which MySQL alone stores (and prints as two question marks).

Read as a key (`exact`), a text has one form: the sequences that the servers convert it to. All
others are bad too: those that stand beside it in cp932 and its like, and those without a character.
So two values of a key are one text only if they are the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from ratchet.core.errors import DecodeError
from ratchet.wire.decode.arrays import Bytes, Ints, Longs
from ratchet.wire.decode.charsets_data import MULTI_BYTE, SINGLE_BYTE, MultiByte
from ratchet.wire.decode.charsets_kernel import (
    BAD,
    PAIR,
    QUAD,
    QUADS,
    TRIPLE,
    coded_column,
    units_column,
    utf8_column,
)

Kind = Literal["utf8", "coded", "units"]

# "utf8" is what MariaDB calls utf8mb3 in older metadata. Binary text is only text if it is UTF-8.
_UTF8: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "binary"})

# Bytes in a unit and whether the last one comes first. In ucs2 a surrogate pair is two characters,
# and neither is one.
_UNITS: Final = {
    "ucs2": (2, False),
    "utf16": (2, False),
    "utf16le": (2, True),
    "utf32": (4, False),
}

_NO_INTS: Final[Ints] = np.empty(0, np.int32)

# Of several sequences with one character the servers convert it to the shortest and lowest one,
# but for those that begin with these bytes, and those characters (measured, see the oracle).
_PAIR: Final = 2
NEVER_MADE: Final = {"cp932": (0xED, 0xEE)}  # NEC's selection of IBM's extensions
MADE: Final = {
    "big5": {0xFFFD: b"\xa2\xce"},
    "sjis": {0x5C: b"\x81\x5f"},
    "tis620": {0xFFFD: b"\xff"},
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transcoder:
    """How one character set is read; made by `transcoder` and shared.

    Attributes:
        charset: the server's name of it.
        kind: "utf8" is checked and copied, "coded" goes through tables, "units" are Unicode's
            forms of two and four bytes.
        width: bytes in a unit.
        little: whether a unit's last byte comes first.
        pairs: whether two surrogates make a character.
        ascii: whether bytes below 128 are ASCII wherever they begin a character.
        single: code point of each byte; or BAD, or PAIR, TRIPLE, QUAD for the first of several.
        pair: code point of each two bytes, or BAD.
        wide: code points of sequences of three bytes (by the last two) or four (by their number;
            behind them what stands for all that have no character).
        exact: whether only one form of each text is read.
    """

    charset: str
    kind: Kind
    width: int = 1
    little: bool = False
    pairs: bool = False
    ascii: bool = True
    single: Ints = field(default_factory=lambda: _NO_INTS, repr=False)
    pair: Ints = field(default_factory=lambda: _NO_INTS, repr=False)
    wide: Ints = field(default_factory=lambda: _NO_INTS, repr=False)
    exact: bool = False


@lru_cache(maxsize=64)
def transcoder(charset: str, *, exact: bool = False) -> Transcoder:
    """How to read a character set by the server's name of it; DecodeError if it is unknown.

    Args:
        charset: its name.
        exact: read only one form of each text, as in keys.
    """
    if charset in _UTF8:
        return Transcoder(charset=charset, kind="utf8")
    if charset in _UNITS:
        width, little = _UNITS[charset]
        return Transcoder(
            charset=charset, kind="units", width=width, little=little, pairs=charset != "ucs2"
        )
    if charset in SINGLE_BYTE:
        single = np.array([ord(character) for character in SINGLE_BYTE[charset]], np.int32)
        return _coded(charset, (single, _NO_INTS, _NO_INTS), exact=exact)
    if charset in MULTI_BYTE:
        return _coded(charset, _tables(MULTI_BYTE[charset]), exact=exact)
    raise DecodeError(
        f"unknown character set {charset!r}",
        operation="read a text column",
        hint="convert the column to a character set that MySQL 9.7 or MariaDB 10.11 has",
    )


def transcode_column(
    buf: Bytes, offs: Longs, lens: Longs, how: Transcoder
) -> tuple[Bytes, Longs, int]:
    """The UTF-8 of a column's values.

    Args:
        buf: holds the values; it is not written.
        offs: where each value begins in `buf`; below 0 stands for NULL.
        lens: the lengths in bytes.
        how: made by `transcoder`.

    Returns:
        data, offsets: value i is data[offsets[i]:offsets[i + 1]]; NULLs are empty.
        bad: index of the first value that cannot be read, or -1. Then the others are empty.
    """
    if how.kind == "utf8":
        data, offsets, bad = utf8_column(buf, offs, lens)
    elif how.kind == "units":
        data, offsets, bad = units_column(buf, offs, lens, how.width, how.little, how.pairs)
    else:
        data, offsets, bad = coded_column(
            buf, offs, lens, how.single, how.pair, how.wide, how.ascii
        )
    return data, offsets, int(bad)


def text_of(value: bytes, charset: str) -> str:
    """One text; what is not in its charset becomes U+FFFD, as `bytes.decode` has it."""
    whole = np.frombuffer(value, np.uint8)
    coder = transcoder(charset)
    data, _, bad = transcode_column(whole, np.zeros(1, np.int64), np.array([whole.size]), coder)
    return value.decode("ascii", "replace") if bad >= 0 else data.tobytes().decode()


def _coded(charset: str, tables: tuple[Ints, Ints, Ints], *, exact: bool) -> Transcoder:
    if exact:
        _leave_one_form(charset, tables)
    single, pair, wide = tables
    ascii_too = bool(np.array_equal(single[:128], np.arange(128)))
    return Transcoder(
        charset=charset,
        kind="coded",
        ascii=ascii_too,
        single=single,
        pair=pair,
        wide=wide,
        exact=exact,
    )


def _leave_one_form(charset: str, tables: tuple[Ints, Ints, Ints]) -> None:
    """Make all sequences bad, in place, that the servers do not convert their character to."""
    made = {code: (len(form), int.from_bytes(form)) for code, form in MADE.get(charset, {}).items()}
    never = NEVER_MADE.get(charset, ())
    for width, table in enumerate(tables, start=1):
        for number, code in enumerate(table.tolist()):
            if code >= 0:
                odd = width == _PAIR and number >> 8 in never
                if odd or made.setdefault(code, (width, number)) != (width, number):
                    table[number] = BAD


def _tables(data: MultiByte) -> tuple[Ints, Ints, Ints]:
    """A multi-byte set's tables: single, pair, wide."""
    other = other_characters(data)
    single = np.full(256, BAD, np.int32)
    pair = np.full(65536, BAD, np.int32)
    wide = _NO_INTS
    for form in data.forms:
        columns = [byte_ranges(text) for text in form]
        if len(columns) == 1:
            for byte in columns[0]:
                single[byte] = character(bytes([byte]), data.codec, other)
        elif len(columns) == 2:
            for lead in columns[0]:
                single[lead] = PAIR
                for tail in columns[1]:
                    code = character(bytes([lead, tail]), data.codec, other)
                    pair[lead << 8 | tail] = code
        elif len(columns) == 3:
            (lead,) = columns[0]
            single[lead] = TRIPLE
            wide = np.full(65536, BAD, np.int32)
            for second in columns[1]:
                for third in columns[2]:
                    code = character(bytes([lead, second, third]), data.codec, other)
                    wide[second << 8 | third] = code
        else:
            single[columns[0]] = QUAD
            codes = [character(quad_bytes(n), data.codec, other) for n in range(QUADS)]
            wide = np.array([*codes, ord("?")], np.int32)
    return single, pair, wide


def other_characters(data: MultiByte) -> dict[bytes, int]:
    """The sequences that the servers read otherwise than the codec, with their code points."""
    other = {}
    for first, texts in data.differences.items():
        for n, text in enumerate(texts):
            other[_later(first, n)] = ord(text)
    for first, (count, code) in data.runs.items():
        for n in range(count):
            other[_later(first, n)] = code + n
    return other


def _later(first: str, steps: int) -> bytes:
    return (int(first, 16) + steps).to_bytes(len(first) // 2)


def character(sequence: bytes, codec: str, other: dict[bytes, int]) -> int:
    """The code point of one sequence of a multi-byte set; "?" if it has none."""
    if sequence in other:
        return other[sequence]
    try:
        return ord(sequence.decode(codec))
    except UnicodeDecodeError:
        return ord("?")


def byte_ranges(text: str) -> list[int]:
    """The bytes of "40-7e 80-fe"."""
    values: list[int] = []
    for part in text.split():
        low, _, high = part.partition("-")
        values += range(int(low, 16), int(high, 16) + 1)
    return values


def quad_bytes(number: int) -> bytes:
    """GB 18030's sequence of four bytes of that number, counted from 81308130."""
    rest, fourth = divmod(number, 10)
    rest, third = divmod(rest, 126)
    first, second = divmod(rest, 10)
    return bytes([0x81 + first, 0x30 + second, 0x81 + third, 0x30 + fourth])
