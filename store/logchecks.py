"""What a second decoder's samples of each shard's log came to: one small JSON file per shard.

Lives here: the record and its file. Does not live here: taking samples (`jobs.watch.logsample`).

Invariant: written by the run alone, which holds the lease; it changes nothing of what is mirrored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ratchet.core.errors import DecodeError
from ratchet.core.shard import ShardId
from ratchet.store import layout
from ratchet.store.fields import number_of
from ratchet.store.files import Lake
from ratchet.store.notes import Notes

_NUMBERS: Final = (
    "samples", "rows", "transactions", "last_at", "last_round", "differences", "different_round",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLogChecks:
    """All samples of one shard.

    Attributes:
        shard: ShardId as text.
        samples: how many were taken.
        rows: row changes that were compared.
        transactions: in so many transactions.
        last_at: when the last sample was taken, microseconds UTC; 0: never.
        last_round: the round that it was of.
        differences: differences in all samples.
        different_round: the newest round in which there was one; 0: none.
        example: the first one in it, for people.
    """

    shard: str
    samples: int = 0
    rows: int = 0
    transactions: int = 0
    last_at: int = 0
    last_round: int = 0
    differences: int = 0
    different_round: int = 0
    example: str = ""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ShardLogChecks:
        """Read what `asdict` made; a field that nobody writes is damage."""
        found = cls(**data)
        for name in _NUMBERS:
            number_of(asdict(found), name)
        if not isinstance(found.example, str):
            raise DecodeError("its example is no text")
        return found

    def with_sample(
        self,
        *,
        rows: int,
        transactions: int,
        now: int,
        round_number: int,
        differences: int,
        example: str,
    ) -> ShardLogChecks:
        """With one more sample; see the attributes."""
        more = replace(
            self,
            samples=self.samples + 1,
            rows=self.rows + rows,
            transactions=self.transactions + transactions,
            last_at=now,
            last_round=round_number,
        )
        if not differences:
            return more
        return replace(
            more,
            differences=self.differences + differences,
            different_round=max(self.different_round, round_number),
            example=example,
        )


class LogChecks:
    """The records of one lake. Every call looks at the files."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._notes = Notes(lake)

    def of(self, shard: str) -> ShardLogChecks:
        """The record of a shard; an empty one if it was never looked at."""
        none = ShardLogChecks(shard=shard)

        def parse(data: Any) -> ShardLogChecks:
            found = ShardLogChecks.from_json(data)
            if found.shard != shard:
                raise DecodeError(f"it is that of {found.shard}")
            return found

        return self._notes.read(_path(shard), parse, none)

    def save(self, record: ShardLogChecks) -> ShardLogChecks:
        """Replace the shard's record; gives it back."""
        self._lake.write_json(self._notes.own(_path(record.shard)), asdict(record))
        return record


def _path(shard: str) -> str:
    name = ShardId.parse(shard)
    return layout.log_checked_path(name.keyspace, name.shard)
