"""What one step brings to one table. A value; made by merge.onetable out of merge.gather's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ratchet.merge import reduce
from ratchet.merge.ancestry import NO_ANCESTRY, Ancestry
from ratchet.merge.reduce import Mark
from ratchet.merge.shape import Shape

# Above this, a batch is joined by a shuffle: a broadcast is held several times in memory.
_BROADCAST_BYTES: Final = 64 << 20
_PARTITION_BYTES: Final = 32 << 20
# What a change takes at least, however well its file is compressed: ten million inserts in a row
# take a byte or two each there, and a hundred as rows.
_CHANGE_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBatch:
    """What one step brings to one table. Made by merge.gather.

    Attributes:
        shape: the table's shape.
        path: the mirrored table, relative to the lake.
        side_path: its side table.
        app_id: whose transaction versions count the rounds (merge.plan.app_id).
        round: the round that the table stands at afterwards.
        files: change files, relative to the lake.
        bytes: their size.
        rows: how many changes there are in them.
        may_delete: whether deletes or changes of key may be among the changes.
        since: (shard, generation) -> the last transaction that is left out, as the dump has it.
        until: shard -> first transaction that is left out, where the table stops.
        truncated: shard -> (newest TRUNCATE, its commit time in microseconds).
        lowest: shard -> where its changes begin.
        highest: shard -> where they end.
        floors: shard -> for each chunk the `seq` of its floor, where it is not the token's.
        collapse: whether each shard's dump may have brought a row of the same key.
        ancestry: what the streams of the changes descend from.
        wide: whether rows of other keys than the changes' may be touched.
        prune: a condition on the table's row `t` that every row fulfils which may be touched.
        metadata: what the commit says of itself.
        now: the driver's clock, microseconds UTC.
        said_at: the round that rows of the side table are noted under; None: `round`.
    """

    shape: Shape
    path: str
    side_path: str
    app_id: str
    round: int
    files: Sequence[str]
    bytes: int
    rows: int
    may_delete: bool
    since: Mapping[tuple[str, int], int] = field(default_factory=dict)
    until: Mapping[str, Mark] = field(default_factory=dict)
    truncated: Mapping[str, tuple[Mark, int]] = field(default_factory=dict)
    lowest: Mapping[str, Mark] = field(default_factory=dict)
    highest: Mapping[str, Mark] = field(default_factory=dict)
    floors: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    collapse: bool = False
    ancestry: Ancestry = NO_ANCESTRY
    wide: bool = False
    prune: str = "true"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    now: int = 0
    said_at: int | None = None

    @property
    def marks(self) -> dict[str, Mark]:
        """The truncations without their times."""
        return {shard: mark for shard, (mark, _) in self.truncated.items()}

    @property
    def settings(self) -> dict[str, str]:
        """Spark's settings for a batch of this size."""
        size = max(self.bytes, self.rows * _CHANGE_BYTES)
        partitions = max(2, min(200, size // _PARTITION_BYTES))
        broadcast = 4 * _BROADCAST_BYTES if size <= _BROADCAST_BYTES else -1
        return {
            "spark.sql.shuffle.partitions": str(partitions),
            # Where all fits into one broadcast there is nothing to adapt to, and each stage that is
            # planned on its own costs more than it moves.
            "spark.sql.adaptive.enabled": str(size > _BROADCAST_BYTES).lower(),
            "spark.sql.autoBroadcastJoinThreshold": str(broadcast),
            **reduce.WINDOW_SETTINGS,
        }
