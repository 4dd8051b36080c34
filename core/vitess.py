"""What is known of Vitess by name alone: its own tables, and the order of shards.

Invariant: pure functions; what they say is what Vitess itself does with such a name.
"""

from __future__ import annotations

import re
from typing import Final

# As in Vitess's own patterns (go/vt/schema), whose class [0-f] holds more than hexadecimal digits.
_INTERNAL: Final = (
    # Since Vitess 19: tables on their way out (hld, prg, evc, drp), and those of Online DDL (vrp).
    re.compile(r"_vt_[a-zA-Z0-9]{3}_[0-f]{32}_[0-9]{14}_"),
    # Tables on their way out, as they were called before.
    re.compile(r"_vt_(HOLD|PURGE|EVAC|DROP)_[0-f]{32}_[0-9]{14}"),
    # Online DDL before, and with gh-ost.
    re.compile(r"_[0-f]{8}_[0-f]{4}_[0-f]{4}_[0-f]{4}_[0-f]{12}_[0-9]{14}_(gho|ghc|del|new|vrepl)"),
    # Online DDL with pt-online-schema-change.
    re.compile(r"_.*_old"),
)


def is_internal(table: str) -> bool:
    """Whether Vitess takes the table of this name for one of its own, and so keeps off it.

    Such tables stand beside the keyspace's: shadow tables of an Online DDL, dropped tables that
    are not yet gone. (IsInternalOperationTableName in go/vt/schema, and the names of old.)

    >>> is_internal("_vt_vrp_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_")
    True
    """
    return any(pattern.fullmatch(table) for pattern in _INTERNAL)


def shard_order(shard: str) -> tuple[str, str]:
    """Sorts the names of a keyspace's shards by their key ranges.

    >>> sorted(["80-", "-40", "40-80"], key=shard_order)
    ['-40', '40-80', '80-']
    """
    start, _, _ = shard.partition("-")
    return start.lower(), shard
