"""Everything that can happen to small tables happens, and each version of them is right.

What "right" means is in `explore.wrong`. Each rule of the algorithm is also broken once, to see
that the walk would find out: these are the counter-examples of docs/ordering.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.model import scenarios
from tests.model.explore import Rules, Walk, WrongError
from tests.model.world import World

pytestmark = pytest.mark.slow

ORDERING = Path(__file__).resolve().parents[2] / "docs" / "ordering.md"
NAMES = {world.name: world for world in scenarios.WORLDS}


def test_every_version_is_right_in_every_interleaving(
    record_property: Callable[[str, Any], None],
) -> None:
    """Chunks, rounds, late shards, kills and repeats; the number of ways is the one in the docs."""
    states = ways = 0
    for world in scenarios.WORLDS:
        figures = Walk(world).run()
        states += figures.states
        ways += figures.interleavings
        record_property(world.name, f"{figures.states} states, {figures.interleavings} ways")
    record_property("interleavings", ways)
    assert f"{states:,} states, {ways:,} interleavings" in ORDERING.read_text()


CAUSAL = [world for world in (*scenarios.MOVES, *scenarios.RESHARDS) if world.causal]


@pytest.mark.parametrize("world", CAUSAL, ids=lambda world: world.name)
def test_no_key_goes_back_across_shards_while_rounds_hold_what_came_before(world: World) -> None:
    """Whatever the shards' clocks say."""
    Walk(world, late=False).run()


def test_a_late_shard_can_show_an_older_row_again() -> None:
    """A stated limit: b wrote and deleted the row after a had, but a's delete is not here yet."""
    world = next(one for one in scenarios.MOVES if "there and back, delete first" in one.name)
    with pytest.raises(WrongError, match="1 goes back to 'a'"):
        Walk(world).run()


@pytest.mark.parametrize(
    ("world", "rules", "complaint"),
    [
        ("lock wait", Rules(timestamps_first=True), "is shown as 'first'; its shard has 'second'"),
        ("other order", Rules(floor_by_number=True), "is shown as 'a'; its shard has 'a2'"),
        ("one shard", Rules(tombstones=False), "is shown as 'v'; its shard has None"),
        ("one shard", Rules(side_first=False), "its shard has None"),
        ("there, delete first, clock +0", Rules(shards_apart=False), "not shown: {1}"),
        ("one shard", Rules(wait_for_end=False), "its shard has None"),
        ("split", Rules(descent=False), "(2, '0') is shown as 'b'; the live shards have {None}"),
        ("split, merged, split again", Rules(descent=False), "'b'; the live shards have {None}"),
    ],
)
def test_each_rule_is_needed(world: str, rules: Rules, complaint: str) -> None:
    """With one rule broken the walk finds a version that is wrong."""
    Walk(NAMES[world]).run()
    with pytest.raises(WrongError) as caught:
        Walk(NAMES[world], rules).run()
    assert complaint in str(caught.value)
