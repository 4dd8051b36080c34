"""Key ranges: which part of a keyspace a Vitess shard holds, told by its name.

Keyspace ids are bytes, compared from the left; missing ones at the end count as zeros.

Invariant: values and pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from ratchet.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KeyRange:
    """From `start` up to and without `end`.

    Attributes:
        start: first keyspace id, without zeros at its end; empty: from the first one.
        end: the first one behind it; None: up to the last one.
    """

    start: bytes = b""
    end: bytes | None = None

    @classmethod
    def of(cls, shard: str) -> Self:
        r"""What the shard of that name holds: without a dash, as in "0", all of the keyspace.

        Raises:
            ConfigError: no shard of Vitess has such a name.

        >>> KeyRange.of("40-80")
        KeyRange(start=b'@', end=b'\x80')
        """
        if "-" not in shard:
            return cls()
        low, _, high = shard.partition("-")
        try:
            start, end = bytes.fromhex(low).rstrip(b"\0"), bytes.fromhex(high).rstrip(b"\0")
        except ValueError:
            raise _no_range(shard) from None
        if end and end <= start:
            raise _no_range(shard)
        return cls(start, end or None)

    def overlaps(self, other: KeyRange) -> bool:
        """Whether there is a keyspace id in both."""
        return not (self._is_before(other) or other._is_before(self))

    def is_within(self, others: Iterable[KeyRange]) -> bool:
        """Whether each of its keyspace ids is in one of the others."""
        reached: bytes | None = self.start
        for one in sorted(others, key=lambda one: one.start):
            if reached is None or one.start > reached:
                break
            if one.end is None or one.end > reached:
                reached = one.end
        return reached is None or (self.end is not None and reached >= self.end)

    def _is_before(self, other: KeyRange) -> bool:
        return self.end is not None and self.end <= other.start


def overlap(shard: str, other: str) -> bool:
    """Whether two shards of a keyspace hold a common part of it.

    >>> overlap("0", "-80"), overlap("-80", "80-")
    (True, False)
    """
    return KeyRange.of(shard).overlaps(KeyRange.of(other))


def _no_range(shard: str) -> ConfigError:
    return ConfigError(
        f"{shard!r} is no key range",
        hint="a shard of Vitess is named as in `SHOW VITESS_SHARDS`: 0, -80, 40-80, c0-",
    )
