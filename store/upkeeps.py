"""When what of the lake's upkeep was done last: so that short runs do it in their turn.

One JSON file. Invariant: written by the run alone, which holds the lease; a loss of it costs one
more look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCleanup:
    """When a table was cleaned.

    Attributes:
        place: its dump and the round that was merged into it by then.
        since: when it was first cleaned with that, seconds since the epoch.
        last: when it was last cleaned.
    """

    place: tuple[str, int]
    since: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRecord:
    """What was done.

    Attributes:
        logs: when old rounds and cuts were removed, seconds since the epoch.
        strays: when change files that no round names were looked for, likewise.
        bundles: when objects of old rounds were put together, likewise.
        bundled: the round up to which that was done; 0: none.
        tables: keyspace.table -> when it was cleaned.
    """

    logs: float = 0.0
    strays: float = 0.0
    bundles: float = 0.0
    bundled: int = 0
    tables: Mapping[str, TableCleanup] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "logs": self.logs,
            "strays": self.strays,
            "bundles": self.bundles,
            "bundled": self.bundled,
            "tables": {name: asdict(one) for name, one in self.tables.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> UpkeepRecord:
        """Read what `to_json` wrote."""
        return cls(
            logs=data["logs"],
            strays=data.get("strays", 0.0),
            bundles=data.get("bundles", 0.0),
            bundled=data.get("bundled", 0),
            tables={
                name: TableCleanup(
                    place=(str(one["place"][0]), int(one["place"][1])),
                    since=one["since"],
                    last=one["last"],
                )
                for name, one in data["tables"].items()
            },
        )


def read_upkeep(lake: Lake) -> UpkeepRecord:
    """What was done; nothing in a lake that knows of none.

    Raises:
        LakeError: the file is damaged.
    """
    return Notes(lake).read(layout.UPKEEP_FILE, UpkeepRecord.from_json, UpkeepRecord())


def write_upkeep(lake: Lake, done: UpkeepRecord) -> None:
    """Remember what was done."""
    lake.write_json(Notes(lake).own(layout.UPKEEP_FILE), done.to_json())
