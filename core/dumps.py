"""What a Delta commit of dumped chunks says about itself, and what the next run needs to go on.

The text form of `DumpCommit` stands in the commit's `userMetadata`. It holds the chunks that the
commit added, with their floors, and everything of the dump that is still to be read. So the newest
such commit is all that a resumed dump has to look at; there is no other checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ratchet.core.errors import DAMAGE, LakeError
from ratchet.core.position import Position

FORMAT_VERSION: Final = 1

# A range of a key as JSON: [texts of the bound before it or None, texts of its last key or None].
RangeJson = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedChunk:
    """A chunk whose rows are in the table.

    Attributes:
        number: within the dump, from 1; the rows' `_token.idx` is FLOOR_IDX + number.
        shard: the shard it was read from, ShardId as text.
        generation: generation of the shard's stream.
        rows: how many.
        read_at: the server's clock when the read began, microseconds UTC.
        floor: what the rows are sure to contain.
    """

    number: int
    shard: str
    generation: int
    rows: int
    read_at: int
    floor: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpCommit:
    """One commit of a dump.

    Attributes:
        dump: id of the dump (store.tables.DumpState).
        number: counts the dump's commits from 1; the version of its Delta transaction.
        chunks: what this commit adds.
        todo: shard -> ranges of its key that are still to be read.
        next_chunk: a number above those of all chunks that were ever begun.
        rows: rows in the table by this dump, this commit's included.
        bytes: bytes that the servers sent for them.
    """

    dump: str
    number: int
    chunks: tuple[DumpedChunk, ...]
    todo: Mapping[str, tuple[RangeJson, ...]]
    next_chunk: int
    rows: int
    bytes: int

    def to_text(self) -> str:
        """For userMetadata; `from_text` reads it back."""
        return json.dumps(
            {
                "ratchet": FORMAT_VERSION,
                "dump": self.dump,
                "commit": self.number,
                "chunks": [
                    {
                        "number": chunk.number,
                        "shard": chunk.shard,
                        "generation": chunk.generation,
                        "rows": chunk.rows,
                        "read_at": chunk.read_at,
                        "floor": chunk.floor.to_json(),
                    }
                    for chunk in self.chunks
                ],
                "todo": {shard: list(ranges) for shard, ranges in self.todo.items()},
                "next_chunk": self.next_chunk,
                "rows": self.rows,
                "bytes": self.bytes,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_text(cls, text: object) -> DumpCommit | None:
        """Read what `to_text` wrote; None for any other commit's metadata.

        Raises:
            LakeError: it is a dump's, but damaged.
        """
        if not isinstance(text, str) or '"dump"' not in text:
            return None
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return None  # somebody else's metadata
        if not isinstance(data, dict) or data.get("ratchet") != FORMAT_VERSION:
            return None
        try:
            return cls._read(data)
        except DAMAGE as error:
            raise LakeError(
                f"what a dump noted in its table's history is damaged ({type(error).__name__})",
                operation="read a dump's commits",
                hint="dump the table again (`ratchet table CONFIG redump TABLE`)",
            ) from error

    @classmethod
    def _read(cls, data: dict[str, Any]) -> DumpCommit:
        chunks = tuple(
            DumpedChunk(**{**chunk, "floor": Position.from_json(chunk["floor"])})
            for chunk in data["chunks"]
        )
        return cls(
            dump=data["dump"],
            number=data["commit"],
            chunks=chunks,
            todo={shard: tuple(ranges) for shard, ranges in data["todo"].items()},
            next_chunk=data["next_chunk"],
            rows=data["rows"],
            bytes=data["bytes"],
        )


def app_id(dump: str) -> str:
    """The application id of the Delta transactions of a dump."""
    return f"ratchet.dump.{dump}"
