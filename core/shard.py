"""The name of a shard: keyspace and shard together, since two keyspaces may both have `-80`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ShardId:
    """A shard of a keyspace.

    Attributes:
        keyspace: the source's name in the config, and the database's name in the lake.
        shard: the shard's name within it, such as "-80"; "-" where there is only one.
    """

    keyspace: str
    shard: str

    @classmethod
    def parse(cls, text: str) -> ShardId:
        """Read "keyspace/shard"."""
        keyspace, _, shard = text.rpartition("/")
        return cls(keyspace, shard)

    def __str__(self) -> str:
        return f"{self.keyspace}/{self.shard}"
