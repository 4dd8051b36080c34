"""Whole numbers of any size out of bytes. The callers have checked that the bytes are there."""

from __future__ import annotations

import numpy as np

from ratchet.wire.decode.arrays import Bytes, Int
from ratchet.wire.kernel import kernel


@kernel
def little(buf: Bytes, o: Int, size: Int) -> np.uint64:
    """`size` bytes at `o` as a little-endian number."""
    if size == 8:
        low = np.uint64(buf[o]) | np.uint64(buf[o + 1]) << np.uint64(8)
        low |= np.uint64(buf[o + 2]) << np.uint64(16) | np.uint64(buf[o + 3]) << np.uint64(24)
        low |= np.uint64(buf[o + 4]) << np.uint64(32) | np.uint64(buf[o + 5]) << np.uint64(40)
        return low | np.uint64(buf[o + 6]) << np.uint64(48) | np.uint64(buf[o + 7]) << np.uint64(56)
    if size == 4:
        low = np.uint64(buf[o]) | np.uint64(buf[o + 1]) << np.uint64(8)
        return low | np.uint64(buf[o + 2]) << np.uint64(16) | np.uint64(buf[o + 3]) << np.uint64(24)
    value = np.uint64(0)
    for k in range(size):
        value |= np.uint64(buf[o + k]) << np.uint64(8 * k)
    return value


@kernel
def big(buf: Bytes, o: Int, size: Int) -> np.uint64:
    """`size` bytes at `o` as a big-endian number."""
    value = np.uint64(0)
    for k in range(size):
        value = value << np.uint64(8) | np.uint64(buf[o + k])
    return value
