"""The books of a dump: whatever is split, read, killed and resumed, each key is committed once."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.core.dumps import DumpCommit
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.snapshot.keys import ChunkRange
from ratchet.snapshot.ledger import ChunkTracker, Claim, Draft
from ratchet.snapshot.reader import ChunkResult

KEYS = 200  # of each shard: 0 to 199
SHARDS = {"shop/-80": 0, "shop/80-": 1}
FLOOR = Position(executed=GtidSet.parse("mariadb", "0-1-5"))


class _World:
    """Two shards with the keys 0 to 199 each, and a table of which only commits survive a kill."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.committed: list[tuple[str, int]] = []
        self.pending: dict[int, list[tuple[str, int]]] = {}
        self.last: DumpCommit | None = None
        self.numbers: list[int] = []
        self.ledger = self.open()

    def open(self) -> ChunkTracker:
        table: Any = None  # never written through: `commit` stands in for it
        return ChunkTracker(table, path="shop/t", dump="d", generations=SHARDS, last=self.last)

    def read(self, claim: Claim) -> ChunkResult:
        """Read some of a range, as a task does."""
        first, last = _span(claim.keys)
        size = self.random.randint(1, 40)
        end = None if first + size > last else first + size - 1
        keys = [(claim.shard, k) for k in range(first, (last if end is None else end) + 1)]
        self.pending[claim.number] = keys
        self.numbers.append(claim.number)
        return ChunkResult(
            number=claim.number,
            shard=claim.shard,
            keys=claim.keys,
            end=None if end is None else (str(end),),
            file="f" if keys else "",
            size=1,
            stats="{}",
            rows=len(keys),
            bytes=len(keys),
            floor=FLOOR,
            read_at=0,
            seconds=0.0,
            misfits={},
        )

    def commit(self, draft: Draft) -> None:
        """What survives."""
        text = draft.record.to_text()
        self.last = DumpCommit.from_text(text)
        assert self.last == draft.record
        for result in draft.results:
            self.committed += self.pending[result.number]

    def cut(self, keys: ChunkRange) -> tuple[ChunkRange, ...]:
        """Split a range as `chunks.split` may."""
        first, last = _span(keys)
        if first > last:
            return ()
        if last - first < 10:
            return (keys,)
        middle = (str(self.random.randint(first, last - 1)),)
        return (ChunkRange(after=keys.after, upto=middle), ChunkRange(after=middle, upto=keys.upto))


def _span(keys: ChunkRange) -> tuple[int, int]:
    first = 0 if keys.after is None else int(keys.after[0]) + 1
    return first, KEYS - 1 if keys.upto is None else int(keys.upto[0])


@settings(deadline=None)
@given(st.integers(0, 10**9))
def test_each_key_is_committed_once(seed: int) -> None:
    """Splits, readers that give back, commits in between, kills: in the end all is there once."""
    world = _World(seed)
    claims: list[Claim] = []
    drafts: list[Draft] = []
    while not world.ledger.done:
        step = world.random.random()
        if step < 0.4 and (claim := world.ledger.claim()) is not None:
            kept: Claim | None = claim
            if world.random.random() < 0.5:
                kept = world.ledger.narrow(claim, world.cut(claim.keys))
            claims += [kept] if kept else []
        elif step < 0.8 and claims:
            claim = claims.pop(world.random.randrange(len(claims)))
            if world.random.random() < 0.1:
                world.ledger.give_back(claim)
            else:
                world.ledger.finish(claim, world.read(claim))
        elif step < 0.9:
            # A commit is drafted, others go on, and only then it is written.
            if drafts:
                world.commit(drafts[0])
                world.ledger.committed(drafts.pop())
            elif (draft := world.ledger.draft()) is not None:
                drafts.append(draft)
        elif step < 0.92:
            claims, drafts = [], []
            world.ledger = world.open()
    expected = [(shard, key) for shard in SHARDS for key in range(KEYS)]
    assert sorted(world.committed) == expected
    assert world.last is not None
    assert world.last.rows == len(expected)
    assert world.ledger.rows == len(expected)


def test_chunk_numbers_never_come_back() -> None:
    """A resumed dump gives no number that a committed chunk has."""
    world = _World(1)
    claim = world.ledger.claim()
    assert claim is not None
    world.ledger.finish(claim, world.read(claim))
    draft = world.ledger.draft()
    assert draft is not None
    world.commit(draft)
    world.ledger = world.open()
    again = world.ledger.claim()
    assert again is not None
    assert again.number > claim.number


def test_other_metadata_is_not_ours() -> None:
    """Commits of others, with or without metadata, are no commits of a dump."""
    for text in (None, "", "x", "{}", '{"dump": 1}', '["dump"]', '{"ratchet": 9, "dump": "d"}'):
        assert DumpCommit.from_text(text) is None


def test_the_least_busy_shard_is_next() -> None:
    """Ranges are taken from the shards in turn; a barred shard is passed over."""
    world = _World(1)
    first, second = world.ledger.claim(), world.ledger.claim()
    assert first is not None
    assert second is not None
    assert {first.shard, second.shard} == set(SHARDS)
    world.ledger.give_back(first)
    assert world.ledger.claim(barred={first.shard}) is None
    assert not world.ledger.all_read
