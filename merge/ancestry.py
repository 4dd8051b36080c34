"""What the streams of a step descend from by reshards, as far as it concerns one table. Pure.

A reshard ends streams and begins others; rows go on standing in the table under the name of the
shard that wrote them. So each change of a stream that a reshard began implies, for its keys, a
tombstone on every shard it descends from: behind all of that stream, ahead of nothing else. It is
one more register in the same maximum (docs/ordering.md). A sibling's registers are not touched.

Invariant: no step holds changes of a stream and of one that it descends from (merge.plan).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ratchet.core.shard import ShardId
from ratchet.merge import sql
from ratchet.store.rounds import StreamState
from ratchet.store.tables import TableState

if TYPE_CHECKING:
    from ratchet.merge.reduce import Mark

# The `seq` of an implied tombstone: above every transaction's and every dumped row's.
LAST_SEQ: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The live streams of a table's shards that have ancestors; none: nothing is implied.

    Attributes:
        streams: shard -> its stream.
    """

    streams: Mapping[str, StreamState] = field(default_factory=dict)

    @classmethod
    def of(cls, state: TableState, streams: Mapping[str, StreamState]) -> Ancestry:
        """What matters to a table.

        A stream that began before the table's dump did does not: the dump read the shards of then,
        so nothing in the table or its side table is from an ancestor. Rounds tell it, and not the
        shards' names in the dump's start: a reverse reshard gives a shard its old name again. Where
        a dump kept rows, it is the dump that they are from that counts.

        Args:
            state: the table.
            streams: all live streams, of all keyspaces.
        """
        first = state.dump.since if state.dump else 0
        return cls(
            {
                shard: stream
                for shard, stream in streams.items()
                if stream.ancestors
                and stream.begun >= first
                and ShardId.parse(shard).keyspace == state.keyspace
            }
        )

    def __bool__(self) -> bool:
        return bool(self.streams)

    @property
    def ended(self) -> dict[str, int]:
        """Shard -> up to which generation its streams are over.

        All that they ever said is merged, and what comes from them once more can be left out.
        """
        found = {shard: stream.generation - 1 for shard, stream in self.streams.items()}
        for shard, generation in self._ancestors().items():
            found[shard] = max(generation, found.get(shard, generation))
        return found

    def truncated(self, marks: Mapping[str, Mark]) -> dict[str, Mark]:
        """Ended shard -> the mark that stands for its truncation, where all of its heirs had one.

        A TRUNCATE on one heir says nothing of the rows that its siblings took over, and which rows
        went where is not known here: so only the last sibling's tells that none is left.

        Args:
            marks: shard -> its newest truncation, of this step and all before.
        """
        done = {
            shard
            for shard, stream in self.streams.items()
            if shard in marks and marks[shard][0] >= stream.generation
        }
        return {
            shard: (generation, LAST_SEQ)
            for shard, generation in self._ancestors().items()
            if self._heirs(shard, generation) <= done
        }

    def implied(self, shard: str) -> str:
        """SQL: what a change on `shard` (an expression) ends, as array of (shard, generation)."""
        cases = " ".join(
            f"WHEN {sql.text(name)} THEN array({', '.join(map(_pair, stream.ancestors.items()))})"
            for name, stream in sorted(self.streams.items())
        )
        return f"CASE {shard} {cases} END"

    def supersedes(self, shard: str, token: str) -> str:
        """SQL: whether a change on `shard` ends the register with that token, by descent alone."""
        return sql.any_of(
            f"{shard} = {sql.text(name)} AND {token}.shard = {sql.text(ancestor)} "
            f"AND {token}.generation <= {generation}"
            for name, stream in sorted(self.streams.items())
            for ancestor, generation in sorted(stream.ancestors.items())
        )

    def is_heir(self, shard: str) -> str:
        """SQL: whether that shard's stream has ancestors."""
        return sql.any_of(f"{shard} = {sql.text(name)}" for name in sorted(self.streams))

    def _heirs(self, shard: str, generation: int) -> set[str]:
        """The live shards that hold what an ended one held; itself in a later life among them."""
        return {
            name
            for name, stream in self.streams.items()
            if shard in stream.ancestors or (name == shard and stream.generation > generation)
        }

    def _ancestors(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for stream in self.streams.values():
            for shard, generation in stream.ancestors.items():
                found[shard] = max(generation, found.get(shard, generation))
        return found


NO_ANCESTRY: Final = Ancestry()


def _pair(ancestor: tuple[str, int]) -> str:
    shard, generation = ancestor
    return f"named_struct('shard', {sql.text(shard)}, 'generation', {generation}L)"
