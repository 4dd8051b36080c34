"""Which shard descends from which through a reshard. Learned from the source system's journal.

This is the rule between two tokens, by GTIDs (core.token.compare). The merge has no executed sets
at hand and works with its register form (merge.ancestry): a stream that a reshard began has a
generation above its ancestors', and each of its changes is newer than all they said of its keys.
Both say the same, as all of such a stream comes after its cut-over.
"""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.core.gtid import Gtid, GtidSet
from ratchet.core.shard import ShardId


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """One shard's origin in another.

    Attributes:
        ancestor: the shard that was split or merged away.
        descendant: the shard that took over.
        cut_over: what the descendant had executed when it took over.
    """

    ancestor: ShardId
    descendant: ShardId
    cut_over: GtidSet


@dataclass(frozen=True, slots=True)
class Lineage:
    """All descents known. Invariant: no shard descends from itself."""

    descents: tuple[Descent, ...] = ()

    def is_newer(self, shard: ShardId, gtid: Gtid | None, *, than: ShardId) -> bool:
        """Whether that transaction on `shard` is newer than everything ever written on `than`.

        True if `shard` descends from `than`, directly or over several reshards, and the
        transaction came after the cut-over. False says nothing.

        Args:
            shard: where the transaction was written.
            gtid: the transaction; None (a dumped row) is never known to be after a cut-over.
            than: the possible ancestor.
        """
        if gtid is None:
            return False
        return any(
            not d.cut_over.contains(gtid)
            and (d.ancestor == than or self._descends(d.ancestor, than))
            for d in self.descents
            if d.descendant == shard
        )

    def _descends(self, shard: ShardId, ancestor: ShardId) -> bool:
        return any(
            d.ancestor == ancestor or self._descends(d.ancestor, ancestor)
            for d in self.descents
            if d.descendant == shard
        )


NO_LINEAGE = Lineage()
