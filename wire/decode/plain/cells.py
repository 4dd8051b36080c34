"""What the plain twins share: the values of a column as Python bytes, and columns of strings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ratchet.wire.decode.arrays import Bytes, Longs

GOOD = -1


class NotSoundError(Exception):
    """A value is not what its column says. Only for use between a twin and `filled`/`strings`."""


def cells(buf: Bytes, offs: Longs, lens: Longs) -> Iterator[bytes | None]:
    """The values one after the other, None for NULL; NotSoundError for a place outside `buf`."""
    for offset, length in zip(offs.tolist(), lens.tolist(), strict=True):
        if offset < 0:
            yield None
        elif length < 0 or offset + length > len(buf):
            raise NotSoundError
        else:
            yield buf[offset : offset + length].tobytes()


def filled(
    buf: Bytes,
    offs: Longs,
    lens: Longs,
    out: npt.NDArray[Any],
    convert: Callable[[bytes], object],
) -> int:
    """Fill `out` with the converted values (0 for NULL); the first row that is not sound, or -1."""
    row = 0
    try:
        for row, cell in enumerate(cells(buf, offs, lens)):
            out[row] = 0 if cell is None else convert(cell)
            row += 1  # noqa: PLW2901 - a place that is outside of `buf` raises before the next
    except NotSoundError:
        return row
    return GOOD


def strings(
    buf: Bytes, offs: Longs, lens: Longs, convert: Callable[[bytes], bytes]
) -> tuple[Bytes, Longs, int]:
    """The converted values one behind the other, as the kernels of `strings` return them."""
    values: list[bytes] = []
    try:
        for cell in cells(buf, offs, lens):
            values.append(b"" if cell is None else convert(cell))  # noqa: PERF401 - may stop half-way
    except NotSoundError:
        return np.zeros(0, dtype=np.uint8), np.zeros(len(offs) + 1, dtype=np.int64), len(values)
    return joined(values)


def joined(values: list[bytes]) -> tuple[Bytes, Longs, int]:
    """Values one behind the other, and where each begins and the last one ends."""
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    return np.frombuffer(b"".join(values), dtype=np.uint8), ends, GOOD


def sized(cell: bytes, size: int) -> bytes:
    """The value, if it has that many bytes."""
    if len(cell) != size:
        raise NotSoundError
    return cell


def halves(number: int) -> tuple[int, int]:
    """A number of up to 128 bits as two unsigned 64-bit halves, low one first."""
    return number & (1 << 64) - 1, number >> 64 & (1 << 64) - 1
