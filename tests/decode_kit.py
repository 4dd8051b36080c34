"""What tests of the decoder share: columns out of values, the two engines, results to compare."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from ratchet.wire.decode.arrays import Bytes, Longs
from ratchet.wire.decode.engine import engine

KERNEL = engine("kernel")
PLAIN = engine("plain")

# The same examples in every run; no deadline, because the first one compiles.
STEADY = settings(derandomize=True, deadline=None, database=None)


def frozen(data: bytes) -> Bytes:
    """Bytes as the decoders hand them to kernels."""
    return np.frombuffer(data, dtype=np.uint8)


def column(values: Sequence[bytes | None], gap: int = 0) -> tuple[Bytes, Longs, Longs]:
    """The values with `gap` bytes between them, and where they lie."""
    buf = bytearray(b"\xaa" * gap)
    offs, lens = [], []
    for value in values:
        offs.append(-1 if value is None else len(buf))
        lens.append(len(value or b""))
        buf += (value or b"") + b"\xaa" * gap
    return (
        frozen(bytes(buf)),
        np.array(offs, dtype=np.int64),
        np.array(lens, dtype=np.int64),
    )


def run(
    name: str, module: str, function: str, given: tuple[Bytes, Longs, Longs], *args: Any
) -> tuple[int, list[Any]]:
    """What one engine's kernel answers: the first row that is not sound, and all values if none.

    A trailing argument that is a dtype, or a pair (dtype, width), stands for an array to fill.
    """
    buf, offs, lens = given
    kernel = getattr(getattr(engine(name), module), function)
    if args and isinstance(args[-1], tuple | type):
        dtype, shape = args[-1], [len(offs)]
        if isinstance(dtype, tuple):
            dtype, width = dtype
            shape.append(width)
        out = np.zeros(shape, dtype=dtype)
        bad = int(kernel(buf, offs, lens, *args[:-1], out))
        return bad, out.tolist() if bad < 0 else []
    data, places, bad = kernel(buf, offs, lens, *args)
    text, ends = bytes(data), places.tolist()
    if bad >= 0:
        return int(bad), []
    return int(bad), [text[a:b] for a, b in pairwise(ends)]


def optional(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes | None]]:
    """Columns of such values and NULLs."""
    return st.lists(st.none() | values, max_size=8)


def sized(size: int) -> st.SearchStrategy[bytes]:
    """Bytes of that length, now and then of another."""
    exact = st.binary(min_size=size, max_size=size)
    return st.one_of(exact, exact, exact, exact, st.binary(max_size=size + 2))
