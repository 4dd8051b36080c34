"""The worlds that the model walks through: small, each with one thing that can go wrong.

Commit times are of the shard's own clock. Each world with two shards is walked with the second
shard's clock right, far behind and far ahead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.model.reference import Key, Life
from tests.model.world import Change, Log, Tx, World

SKEWS: Final = (0, -1000, 1000)
FOUR_CHUNKS: Final = ((0, (1,)), (0, (2,)), (1, (1,)), (1, (2,)))
THREE_CHUNKS: Final = ((0, (1, 2, 3, 4)), (1, (1,)), (1, (2,)))


def put(key: Key, value: str) -> Change:
    """An insert."""
    return Change(None, key, value)


def change(key: Key, value: str) -> Change:
    """An update that leaves the key."""
    return Change(key, key, value)


def move(old: Key, new: Key, value: str) -> Change:
    """An update of the key."""
    return Change(old, new, value)


def drop(key: Key) -> Change:
    """A delete."""
    return Change(key, None)


def tx(at: int, *changes: Change, origin: int = 0) -> Tx:
    """A transaction; a TRUNCATE without changes."""
    return Tx(at, changes, origin)


# Insert, update, delete, insert again; two rows swap their keys over a third in one transaction.
ONE_SHARD: Final = World(
    "one shard",
    (
        Log(
            "a",
            {1: "base"},
            (
                tx(10, change(1, "v")),
                tx(20, put(2, "w")),
                tx(30, move(1, 3, "v2"), move(2, 1, "w2"), move(3, 2, "v3")),
                tx(40, drop(1)),
                tx(50, put(1, "n")),
                tx(60, change(2, "v4"), drop(1)),
            ),
        ),
    ),
    ((0, (1,)), (0, (2, 3))),
)

# The second transaction waited for the first one's lock: later in the log, earlier by the clock.
LOCK_WAIT: Final = World(
    "lock wait",
    (
        Log(
            "a",
            {1: "base", 2: "other"},
            (tx(174, change(1, "first")), tx(171, change(1, "second")), tx(180, change(2, "x"))),
        ),
    ),
    ((0, (1,)), (0, (2,))),
)

# The dump reads a replica that ran independent transactions in another order: its set has a gap.
OTHER_ORDER: Final = World(
    "other order",
    (
        Log(
            "a",
            {1: "a", 2: "b"},
            (
                tx(10, change(1, "a2"), origin=1),
                tx(20, change(2, "b2")),
                tx(30, drop(2)),
                tx(40, move(1, 2, "a3"), origin=1),
                tx(50, put(1, "c")),
            ),
            replica=(1, 2, 0, 3, 4),
        ),
    ),
    ((0, (1,)), (0, (2,))),
)

TRUNCATE: Final = World(
    "truncate",
    (
        Log(
            "a",
            {1: "a", 2: "b"},
            (tx(10, change(1, "a2")), tx(20), tx(30, put(2, "b2")), tx(40, put(1, "c"))),
        ),
        Log("b", {3: "z"}, (tx(15, change(3, "z2")), tx(35, put(4, "y")))),
    ),
    ((0, (1,)), (0, (2,)), (1, (3, 4))),
    contested=True,
)

# `key: shard+primary`: both shards hold the same keys for good.
SHARD_IN_KEY: Final = World(
    "shard in the key",
    (
        Log("a", {1: "a", 2: "p"}, (tx(10, drop(1)), tx(20, put(1, "a2")), tx(30, change(2, "q")))),
        Log("b", {1: "b"}, (tx(15, change(1, "b2")), tx(25, move(1, 2, "b3")), tx(35, drop(2)))),
    ),
    FOUR_CHUNKS,
)

# A shard is split: a row moves to the sibling, keys change, a key of before comes again.
SPLIT: Final = World(
    "split",
    (
        Log("0", {1: "a", 2: "b"}, (tx(10, change(1, "a2")), tx(20, put(3, "c"), put(5, "e")))),
        Log(
            "-80",
            {1: "a2", 3: "c", 5: "e"},
            (tx(30, drop(1), change(3, "c2")), tx(50, move(3, 4, "c3")), tx(60, put(3, "c4"))),
            life=Life(1, {"0": 0}),
        ),
        Log(
            "80-",
            {2: "b"},
            (tx(40, put(1, "r")), tx(45, drop(2), change(1, "r2"))),
            life=Life(1, {"0": 0}),
        ),
    ),
    ((0, (1, 2, 3, 5)),),
    contested=True,
    causal=(0, 0, 1, 2, 2, 1, 1),
)

TRUNCATED_SPLIT: Final = World(
    "truncated after a split",
    (
        Log("0", {1: "a", 2: "b", 3: "c"}, (tx(10, change(1, "a2")),)),
        Log(
            "-80",
            {1: "a2", 3: "c"},
            (tx(20, change(1, "a3")), tx(30), tx(40, put(3, "c2"))),
            life=Life(1, {"0": 0}),
        ),
        Log("80-", {2: "b"}, (tx(25), tx(35, put(2, "b2"))), life=Life(1, {"0": 0})),
    ),
    ((0, (1, 2, 3)),),
    contested=True,
)

# The shards' names come back; key 3 stays as its first shard wrote it for three lives.
AND_BACK: Final = World(
    "split, merged, split again",
    (
        Log("0", {1: "a", 2: "b", 3: "c"}, (tx(10, put(4, "d")),)),
        Log("-80", {1: "a", 3: "c"}, (tx(20, change(1, "a2")),), life=Life(1, {"0": 0})),
        Log("80-", {2: "b", 4: "d"}, (tx(25, drop(2)),), life=Life(1, {"0": 0})),
        Log(
            "0",
            {1: "a2", 3: "c", 4: "d"},
            (tx(30, put(2, "b2"), change(4, "d2")),),
            life=Life(2, {"-80": 1, "80-": 1}),
        ),
        Log(
            "-80",
            {1: "a2", 3: "c"},
            (tx(40, drop(1), drop(3)),),
            life=Life(3, {"0": 2, "80-": 1}),
        ),
        Log(
            "80-",
            {2: "b2", 4: "d2"},
            (tx(45, put(1, "r"), change(4, "d3")),),
            life=Life(3, {"0": 2, "-80": 1}),
        ),
    ),
    ((0, (1, 2, 3, 4)),),
    contested=True,
)
RESHARDS: Final = [SPLIT, TRUNCATED_SPLIT, AND_BACK]


def _moves(skew: int) -> list[World]:
    delete_first = World(
        f"there, delete first, clock {skew:+}",
        (
            Log("a", {1: "a", 3: "p"}, (tx(10, drop(1)), tx(50, move(3, 4, "p2")))),
            Log("b", {}, (tx(20, put(1, "b"), put(2, "k")), tx(40, change(1, "b2")))),
        ),
        THREE_CHUNKS,
        contested=True,
        causal=(0, 1, 1, 0),
    )
    insert_first = World(
        f"there and back, insert first, clock {skew:+}",
        (
            Log("a", {1: "a"}, (tx(20, drop(1)), tx(40, put(1, "a2")), tx(60, change(1, "a3")))),
            Log("b", {2: "p"}, (tx(10, put(1, "b")), tx(30, change(1, "b2")), tx(50, drop(1)))),
        ),
        THREE_CHUNKS,
        contested=True,
        causal=(1, 0, 1, 0, 1, 0),
    )
    there_and_back = World(
        f"there and back, delete first, clock {skew:+}",
        (
            Log("a", {1: "a"}, (tx(10, drop(1)), tx(50, put(1, "a2")), tx(70, drop(1)))),
            Log("b", {}, (tx(20, put(1, "b")), tx(30, change(1, "b2")), tx(40, move(1, 2, "c")))),
        ),
        THREE_CHUNKS,
        contested=True,
        causal=(0, 1, 1, 1, 0, 0),
    )
    return [_skewed(one, skew) for one in (delete_first, insert_first, there_and_back)]


def _skewed(world: World, skew: int) -> World:
    first, second = world.logs
    late = tuple(replace(one, at=one.at + skew) for one in second.transactions)
    return replace(world, logs=(first, replace(second, transactions=late)))


MOVES: Final = [world for skew in SKEWS for world in _moves(skew)]
WORLDS: Final = [
    ONE_SHARD, LOCK_WAIT, OTHER_ORDER, TRUNCATE, SHARD_IN_KEY,
    *(replace(world, causal=()) for world in (*MOVES, *RESHARDS)),
]  # fmt: skip
