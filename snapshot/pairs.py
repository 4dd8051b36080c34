"""What mirror and source have of a key for which they differ. A value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

NO_SHARD: Final = "?"  # of a row whose token is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What both sides have of a key.

    Attributes:
        mirror: a row of the mirror, with all compared columns; None if it has none.
        key: the key's values.
        shard: the shard whose row it is, or under whose name the mirror has it.
        copies: how many rows of the key the mirror has.
        scanned: whether the scan saw a row of it.
        alike: whether both rows have the same values.
    """

    mirror: Mapping[str, Any] | None
    key: Mapping[str, Any]
    shard: str
    copies: int
    scanned: bool
    alike: bool
