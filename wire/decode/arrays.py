"""The types that kernels are written in, and the one thing they do with memory.

A kernel's numbers are numpy's where they come out of arrays and Python's where they are written
down; compiled they are the same, and `Int` says so to the type checker.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ratchet.wire.kernel import kernel

Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]
Int: TypeAlias = int | np.int64


@kernel
def room(out: Bytes, pos: Int, need: Int) -> Bytes:
    """`out`, or a larger copy of it, with room for `need` bytes behind `pos`."""
    if out.size - pos >= need:
        return out
    grown = np.empty(max(2 * out.size, pos + need), np.uint8)
    grown[:pos] = out[:pos]
    return grown


@kernel
def utf8_width(buf: Bytes, at: Int, end: Int) -> Int:
    """Bytes of the UTF-8 sequence above ASCII that begins at `at`, or 0 if there is none."""
    first = np.int64(buf[at])
    if first < 0xC2 or first > 0xF4:
        return 0
    width = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if end - at < width:
        return 0
    second = np.int64(buf[at + 1])
    low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF  # no surrogates, no more
    if second < low or second > high:
        return 0
    for i in range(2, width):
        if buf[at + i] & 0xC0 != 0x80:
            return 0
    return width
