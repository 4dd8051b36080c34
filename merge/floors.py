"""The floors of dumped chunks as ranks: read from the dump's commits, resolved by the log.

Most floors resolve to the `seq` that their rows' tokens carry anyway: then there is nothing to
override, and the merge pays nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ratchet.core.dumps import DumpCommit, DumpedChunk
from ratchet.core.errors import LakeError
from ratchet.core.floor import join_runs, resolve_floor
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange, Round
from ratchet.store.delta.errors import delta_errors
from ratchet.store.delta.tables import open_delta
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake

Overrides = dict[tuple[str, int], int]
_Stream = tuple[str, int]  # shard and generation


def dumped_chunks(lake: Lake, path: str, dump: DumpState) -> list[DumpedChunk]:
    """All chunks that a dump committed to a table.

    Raises:
        LakeError: some of the dump's commits are no longer in the table's history.
    """
    table = open_delta(lake, path)
    if table is None:
        return []
    with delta_errors("read a dump's floors", path):
        texts = [entry.get("userMetadata") for entry in table.history()]
    commits = [c for c in map(DumpCommit.from_text, texts) if c is not None and c.dump == dump.id]
    newest = max((c.number for c in commits), default=0)
    if {c.number for c in commits} != set(range(1, newest + 1)):
        raise LakeError(
            "the history of the dump's commits is incomplete",
            operation="read a dump's floors",
            table=path,
            hint="dump the table again (`ratchet table CONFIG redump TABLE`)",
        )
    return [chunk for commit in commits for chunk in commit.chunks]


def floor_overrides(
    chunks: Iterable[DumpedChunk], rounds: Sequence[Round], start: Mapping[str, Position]
) -> Overrides:
    """(shard, chunk number) -> the `seq` its floor really has, where it is not its cardinality.

    Floors and captured transactions meet within one stream only: where a shard has begun anew, the
    rounds hold the end of one generation and the beginning of the next, and numbers of the one say
    nothing of the other.

    Args:
        chunks: the dump's chunks.
        rounds: all rounds from the dump's first one on, in order.
        start: shard -> its position before those rounds, or one contained in all chunks.
    """
    runs: dict[_Stream, list[GtidRange]] = defaultdict(list)
    first: dict[_Stream, Position] = {}
    for value in rounds:
        for piece in value.slices:
            stream = (piece.shard, piece.generation)
            first.setdefault(stream, piece.start)
            runs[stream].extend(piece.runs)
    joined = {stream: join_runs(found) for stream, found in runs.items()}
    found: Overrides = {}
    known: dict[tuple[_Stream, str], int] = {}
    for chunk in chunks:
        floor, stream = chunk.floor.executed, (chunk.shard, chunk.generation)
        where = (stream, str(floor))
        if where not in known:
            before = first.get(stream, start.get(chunk.shard, chunk.floor))
            known[where] = resolve_floor(floor, before, joined.get(stream, ()))
        if known[where] != floor.cardinality:
            found[chunk.shard, chunk.number] = known[where]
    return found


def as_arrays(overrides: Overrides) -> dict[str, list[int | None]]:
    """Shard -> by chunk number the override or None, as merge.sql looks them up."""
    arrays: dict[str, list[int | None]] = {}
    for (shard, number), seq in overrides.items():
        array = arrays.setdefault(shard, [])
        array.extend([None] * (number + 1 - len(array)))
        array[number] = seq
    return arrays
