"""Plain twin of `wire.decode.kernels.textnumbers`."""

from __future__ import annotations

import re
from typing import Final

from ratchet.wire.decode.arrays import Bytes, Longs
from ratchet.wire.decode.kernels.arrays import Halves, Numbers
from ratchet.wire.decode.plain.cells import NotSoundError, filled, halves, strings
from ratchet.wire.decode.plain.numbers import decimal_text

_INTEGER: Final = re.compile(rb"-?[0-9]+")
_MOST_DIGITS: Final = 20  # of 64 bits; Python refuses to read thousands of digits
_DECIMAL: Final = re.compile(rb"(-?)([0-9]*)(?:\.([0-9]*))?")


def _whole(cell: bytes) -> int:
    """A whole number of up to 64 bits."""
    if not _INTEGER.fullmatch(cell) or len(cell.lstrip(b"-0")) > _MOST_DIGITS:
        raise NotSoundError
    digits = cell.lstrip(b"-0") or b"0"
    return -int(digits) if cell[:1] == b"-" else int(digits)


def text_integers(buf: Bytes, offs: Longs, lens: Longs, low: int, high: int, out: Numbers) -> int:
    """Whole numbers between `low` and `high`."""

    def convert(cell: bytes) -> int:
        number = _whole(cell)
        if not low <= number <= high:
            raise NotSoundError
        return number

    return filled(buf, offs, lens, out, convert)


def text_unsigned64(buf: Bytes, offs: Longs, lens: Longs, out: Halves) -> int:
    """Unsigned numbers of up to 64 bits into 128-bit numbers."""

    def convert(cell: bytes) -> tuple[int, int]:
        number = _whole(cell)
        if cell[:1] == b"-" or number >= 1 << 64:
            raise NotSoundError
        return halves(number)

    return filled(buf, offs, lens, out, convert)


def _scaled(cell: bytes, precision: int, scale: int) -> int:
    """A DECIMAL's digits as one number, without the point."""
    found = _DECIMAL.fullmatch(cell)
    if found is None:
        raise NotSoundError
    sign, whole, behind = found[1], found[2].lstrip(b"0"), found[3] or b""
    if not found[2] and not behind:
        raise NotSoundError
    if len(behind) > scale or len(whole) + scale > precision:
        raise NotSoundError
    number = int(whole + behind.ljust(scale, b"0") or b"0")
    return -number if sign else number


def text_decimals(
    buf: Bytes, offs: Longs, lens: Longs, precision: int, scale: int, out: Halves
) -> int:
    """DECIMAL of up to 38 digits into 128-bit numbers."""
    return filled(buf, offs, lens, out, lambda cell: halves(_scaled(cell, precision, scale)))


def text_decimal_texts(
    buf: Bytes, offs: Longs, lens: Longs, precision: int, scale: int
) -> tuple[Bytes, Longs, int]:
    """DECIMAL of any size into its text without leading zeros, all digits of the scale."""
    return strings(
        buf, offs, lens, lambda cell: decimal_text(_scaled(cell, precision, scale), scale)
    )
