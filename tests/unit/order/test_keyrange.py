"""Key ranges of shards, as Vitess compares them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.errors import ConfigError
from ratchet.core.keyrange import KeyRange, overlap

# Shards of one or two bytes; keyspace ids of two tell all of them apart.
IDS = [bytes([high, low]) for high in range(0, 256, 17) for low in range(0, 256, 51)]
EDGES = st.sampled_from(["", "11", "40", "4000", "80", "80ff", "c0"])


def holds(shard: str, keyspace_id: bytes) -> bool:
    """By the definition, on ids that are longer than any edge."""
    low, _, high = shard.partition("-") if "-" in shard else ("", "", "")
    start, end = bytes.fromhex(low).ljust(2, b"\0"), bytes.fromhex(high).ljust(2, b"\0")
    return start <= keyspace_id and (not high or keyspace_id < end)


@given(st.tuples(EDGES, EDGES), st.tuples(EDGES, EDGES))
def test_overlaps_are_common_keyspace_ids(one: tuple[str, str], other: tuple[str, str]) -> None:
    shards = ["-".join(edges) for edges in (one, other)]
    try:
        ranges = [KeyRange.of(shard) for shard in shards]
    except ConfigError:
        return
    ids = [*IDS, *(r.start.ljust(2, b"\0") for r in ranges)]
    common = any(all(holds(shard, i) for shard in shards) for i in ids)
    assert overlap(*shards) is overlap(*reversed(shards)) is common


def within(shard: str, *others: str) -> bool:
    return KeyRange.of(shard).is_within(KeyRange.of(one) for one in others)


def test_within() -> None:
    assert within("0", "-80", "80-")
    assert within("-80", "-40", "40-80")
    assert within("-80", "4000-80", "-40")
    assert within("40-80", "-c0")
    assert within("80-", "-")


def test_not_within() -> None:
    assert not within("0", "-80", "c0-")
    assert not within("-80", "40-80")
    assert not within("80-", "80-c0")
    assert not within("-")


@pytest.mark.parametrize("shard", ["80-40", "80-80", "x-", "4-80", "-8 0 1"])
def test_names_that_no_shard_has(shard: str) -> None:
    with pytest.raises(ConfigError, match="no key range"):
        KeyRange.of(shard)
