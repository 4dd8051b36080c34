"""MariaDB's COMPRESSED columns: the log holds their values as they are stored.

A value is empty, or begins with a byte: 0 in front of bytes that are not compressed; else the
algorithm in the high half (8: deflate), bit 3 for a stream without zlib's header, and in the low
three bits how many bytes of the length before compression follow, highest first.
"""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Longs
from ratchet.wire.decode.columns import ColumnSpec, Places
from ratchet.wire.stream import LARGEST_PACKET

# How many bytes a byte of deflate may stand for, at most (zlib's documentation).
MOST_SWELLING: Final = 1032
_DEFLATE: Final = 8
_RAW: Final = 0x08
_LENGTH_BYTES: Final = 0x07


def lengths(spec: ColumnSpec, places: Places) -> Longs:
    """What each value takes before compression, in bytes, as it says itself; 0 for NULL.

    Raises:
        DecodeError: one does not say it, or more than a row may have.
    """
    found = np.zeros(places.rows, dtype=np.int64)
    for row in np.flatnonzero(places.offs >= 0).tolist():
        found[row] = _length(spec, row, _raw(places, row))
    return found


def decompressed(spec: ColumnSpec, places: Places) -> Places:
    """The same column with its values as they were before compression, in a buffer of their own.

    They stand in memory once: what each takes is known before it is decompressed.

    Raises:
        DecodeError: one is not what it says.
    """
    lens = lengths(spec, places)
    ends = np.cumsum(lens)
    offs = np.where(places.offs >= 0, ends - lens, -1)
    buf = np.empty(int(ends[-1]) if ends.size else 0, dtype=np.uint8)
    for row in np.flatnonzero(places.offs >= 0).tolist():
        value = _value(spec, row, _raw(places, row), int(lens[row]))
        buf[offs[row] : offs[row] + lens[row]] = np.frombuffer(value, dtype=np.uint8)
    return Places(buf, offs, lens)


def _raw(places: Places, row: int) -> memoryview:
    start = int(places.offs[row])
    return places.buf[start : start + int(places.lens[row])].data


def _is_plain(raw: memoryview) -> bool:
    return not raw or raw[0] == 0


def _length(spec: ColumnSpec, row: int, raw: memoryview) -> int:
    """What a value takes, as it says itself."""
    if _is_plain(raw):
        return max(0, len(raw) - 1)
    size = raw[0] & _LENGTH_BYTES
    if raw[0] >> 4 != _DEFLATE or len(raw) <= 1 + size:
        spec.fail(f"row {row} is compressed in an unknown way")
    length = int.from_bytes(raw[1 : 1 + size], "big")
    if length > LARGEST_PACKET:
        spec.fail(f"row {row} is said to decompress to {length} bytes, more than a row may have")
    return length


def _value(spec: ColumnSpec, row: int, raw: memoryview, length: int) -> bytes | memoryview:
    if _is_plain(raw):
        return raw[1:]
    size = raw[0] & _LENGTH_BYTES
    stream = zlib.decompressobj(-zlib.MAX_WBITS if raw[0] & _RAW else zlib.MAX_WBITS)
    try:
        value = stream.decompress(raw[1 + size :], length + 1)
    except zlib.error:
        spec.fail(f"row {row} does not decompress")
    if len(value) != length:
        spec.fail(f"row {row} decompresses to {len(value)} bytes or more instead of {length}")
    return value
