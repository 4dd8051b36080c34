"""How DECIMAL(p,s) lies in bytes: nine digits in each four bytes, shorter groups at both ends."""

from __future__ import annotations

from typing import Final

import numpy as np

from ratchet.wire.decode.arrays import Longs

_GROUP: Final = 9
_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # for 0 to 9 digits


def groups(precision: int, scale: int) -> tuple[Longs, Longs]:
    """The groups of digits of DECIMAL(precision, scale): (bytes of each, 10 to its digits).

    >>> [list(map(int, part)) for part in groups(10, 2)]
    [[4, 1], [100000000, 100]]
    """
    whole = precision - scale
    first, full = whole % _GROUP, whole // _GROUP
    behind, last = scale // _GROUP, scale % _GROUP
    digits = [first] * (first > 0) + [_GROUP] * (full + behind) + [last] * (last > 0)
    return (
        np.array([_BYTES[count] for count in digits], dtype=np.int64),
        np.array([10**count for count in digits], dtype=np.int64),
    )


def size(precision: int, scale: int) -> int:
    """The bytes of a DECIMAL(precision, scale)."""
    return int(groups(precision, scale)[0].sum())
