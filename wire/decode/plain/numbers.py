"""Plain twin of `wire.decode.kernels.numbers`."""

from __future__ import annotations

from ratchet.wire.decode.arrays import Bytes, Longs
from ratchet.wire.decode.kernels.arrays import Halves, Numbers
from ratchet.wire.decode.plain.cells import NotSoundError, filled, halves, sized, strings


def integers(buf: Bytes, offs: Longs, lens: Longs, size: int, signed: int, out: Numbers) -> int:
    """Little-endian whole numbers of `size` bytes."""

    def convert(cell: bytes) -> int:
        return int.from_bytes(sized(cell, size), "little", signed=bool(signed))

    return filled(buf, offs, lens, out, convert)


def unsigned64(buf: Bytes, offs: Longs, lens: Longs, out: Halves) -> int:
    """Little-endian unsigned numbers of 8 bytes into 128-bit numbers."""
    return filled(
        buf, offs, lens, out, lambda cell: halves(int.from_bytes(sized(cell, 8), "little"))
    )


def bits(buf: Bytes, offs: Longs, lens: Longs, size: int, out: Longs) -> int:
    """BIT of up to 63 bits: big-endian unsigned numbers of `size` bytes."""

    def convert(cell: bytes) -> int:
        number = int.from_bytes(sized(cell, size), "big")
        return number - (1 << 64) if number >> 63 else number

    return filled(buf, offs, lens, out, convert)


def bits64(buf: Bytes, offs: Longs, lens: Longs, out: Halves) -> int:
    """BIT(64) into 128-bit numbers."""
    return filled(buf, offs, lens, out, lambda cell: halves(int.from_bytes(sized(cell, 8), "big")))


def years(buf: Bytes, offs: Longs, lens: Longs, two_digits: int, out: Numbers) -> int:
    """YEAR: 0 is '0000', else years since 1900; with two digits the window 1970 to 2069."""

    def convert(cell: bytes) -> int:
        year = 1900 + sized(cell, 1)[0]
        if two_digits:
            return year % 100 + (2000 if year % 100 < 70 else 1900)
        return 0 if year == 1900 else year

    return filled(buf, offs, lens, out, convert)


def _digits(cell: bytes, group_bytes: list[int], group_powers: list[int]) -> tuple[bool, int]:
    """A DECIMAL's sign and its digits as one number, without the point."""
    sized(cell, sum(group_bytes))
    negative = not cell[0] & 0x80
    raw = bytes([cell[0] ^ 0x80]) + cell[1:]
    if negative:
        raw = bytes(byte ^ 0xFF for byte in raw)
    number, at = 0, 0
    for size, power in zip(group_bytes, group_powers, strict=True):
        group = int.from_bytes(raw[at : at + size], "big")
        if group >= power:
            raise NotSoundError
        number = number * power + group
        at += size
    return negative, number


def decimals(
    buf: Bytes,
    offs: Longs,
    lens: Longs,
    group_bytes: Longs,
    group_powers: Longs,
    narrow: int,  # noqa: ARG001 - the kernel's, which has a quicker way for few digits
    out: Halves,
) -> int:
    """DECIMAL of up to 38 digits into 128-bit numbers."""
    sizes, powers = group_bytes.tolist(), group_powers.tolist()

    def convert(cell: bytes) -> tuple[int, int]:
        negative, number = _digits(cell, sizes, powers)
        return halves(-number if negative else number)

    return filled(buf, offs, lens, out, convert)


def decimal_texts(
    buf: Bytes,
    offs: Longs,
    lens: Longs,
    group_bytes: Longs,
    group_powers: Longs,
    scale: int,
) -> tuple[Bytes, Longs, int]:
    """DECIMAL of any size into the server's text."""
    sizes, powers = group_bytes.tolist(), group_powers.tolist()

    def convert(cell: bytes) -> bytes:
        negative, number = _digits(cell, sizes, powers)
        return decimal_text(-number if negative else number, scale)

    return strings(buf, offs, lens, convert)


def decimal_text(number: int, scale: int) -> bytes:
    """A number with `scale` digits behind the point, at least one in front of it."""
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"{'-' if number < 0 else ''}{text}".encode()
