"""How tables were partitioned at their sources when a run looked: one small note per table.

A statement that takes a partition's rows away names it, and does not say which rows these are. So
the bounds have to be known from before.

Lives here: the record and its file. Does not live here: reading the servers
(`jobs.watch.partitions`), what is made of it (`merge.emptied`).

Invariant: of each shard the newest look is there, and the one before it for as long as a statement
between the two may not be merged yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.core.partitions import Partition, RangeLayout
from ratchet.core.position import Position
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLook:
    """What a server said of one table.

    Attributes:
        layout: how it was partitioned, at some moment of the look.
        round: the newest round when the look began: the server had all that is in it.
        since: what the server had surely executed when it was asked.
        position: the end of its log when it had answered.
    """

    layout: RangeLayout
    round: int
    since: Position
    position: Position

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; `from_json` reads it back."""
        return {
            "expression": self.layout.expression,
            "partitions": [[one.name, one.bound] for one in self.layout.partitions],
            "round": self.round,
            "since": self.since.to_json(),
            "position": self.position.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PartitionLook:
        """Read what `to_json` wrote."""
        partitions = tuple(Partition(str(name), str(bound)) for name, bound in data["partitions"])
        return cls(
            layout=RangeLayout(str(data["expression"]), partitions),
            round=int(data["round"]),
            since=Position.from_json(data["since"]),
            position=Position.from_json(data["position"]),
        )


LooksByShard = Mapping[str, Sequence[PartitionLook]]  # ShardId as text -> in order


class PartitionLooks:
    """Those of one lake. Every call looks at the files."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._notes = Notes(lake)

    def of(self, keyspace: str, table: str) -> LooksByShard:
        """What is known of a table; empty: nothing is.

        Raises:
            LakeError: the lake cannot be read.
        """

        def parse(found: Any) -> LooksByShard:
            return {
                shard: tuple(map(PartitionLook.from_json, looks))
                for shard, looks in found["shards"].items()
            }

        return self._notes.read(layout.partitions_path(keyspace, table), parse, {})

    def save(self, keyspace: str, table: str, looks: LooksByShard) -> None:
        """Replace what is known of a table.

        Raises:
            LakeError: the lake cannot be written.
        """
        path = self._notes.own(layout.partitions_path(keyspace, table))
        shards = {shard: [one.to_json() for one in found] for shard, found in looks.items()}
        if any(shards.values()):
            self._lake.write_json(path, {"shards": shards})
        else:
            self._lake.delete(path)
