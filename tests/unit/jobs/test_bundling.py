"""When objects of old rounds are put together, for how long, and how far it has come."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from bundle_kit import EVERY, HOUR, LIMITS, contents, fill, named, objects
from lease_kit import hold

from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.run.merging import LakeUpkeep
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.upkeeps import read_upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 36


class Hours:
    """An upkeep whose hours pass at once.

    Attributes:
        now: seconds since the epoch.
        spent: seconds that each look at the clock takes.
    """

    def __init__(self, lake: Lake) -> None:
        self.now, self.spent, self._clock = 10 * HOUR / 1e6, 0.0, 0.0
        self.upkeep = LakeUpkeep(
            spark=cast("SparkSession", None),
            lake=lake,
            policy=InvalidValuePolicy(),
            forget=lambda _: None,
            change_log=50 * HOUR / 1e6,
            tombstones=3600.0,
            history=3600.0,
            wall=lambda: self.now,
            clock=self._tick,
            limits=LIMITS,
        )

    def _tick(self) -> float:
        self._clock += self.spent
        return self._clock

    def clean(self) -> int:
        """The upkeep of an hour, at its end; how many bites it was."""
        bites = len(list(self.upkeep.clean()))
        self.now += 3600
        return bites


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = hold(open_lake(tmp_path / "lake", now=1))
    fill(found, 1, ROUNDS)
    return found


def test_each_hour_and_no_more_often(lake: Lake) -> None:
    before, hours = contents(lake), Hours(lake)
    assert hours.clean() == 4
    assert read_upkeep(lake).bundled == ROUNDS - 1
    assert objects(lake) > named(lake)
    hours.now -= 1
    assert hours.clean() == 0
    assert objects(lake) > named(lake)
    assert hours.clean() == 4, "what was put together is removed, bundle by bundle"
    assert objects(lake) == named(lake)
    assert len(objects(lake)) == 6
    assert hours.clean() == 0
    fill(lake, ROUNDS + 1, ROUNDS + 4)
    assert hours.clean() == 1
    assert read_upkeep(lake).bundled == ROUNDS + 3
    assert contents(lake)[: len(before)] == before
    assert {value for value, _, _ in contents(lake)} == set(range(1, ROUNDS + 5))


def test_a_backlog_is_for_many_hours(lake: Lake) -> None:
    """What else is cleaned has its turn each hour; two bites fit into the time."""
    hours = Hours(lake)
    hours.spent = 70.0
    bundled = []
    for _ in range(4):
        hours.clean()
        bundled.append(read_upkeep(lake).bundled)
    assert bundled == [20, 20, 35, 35], "what was put together is removed within the same time"


def test_a_run_that_ends_amid_it_is_continued(lake: Lake) -> None:
    """As under cron: the next run begins behind the last bundle, and not only in an hour."""
    hours = Hours(lake)
    cleaning = hours.upkeep.clean()
    next(cleaning), next(cleaning)
    del cleaning
    assert read_upkeep(lake).bundled == 20
    hours.now += 60
    assert len(list(Hours(lake).upkeep.clean())) == 2
    assert read_upkeep(lake).bundled == 35


def test_old_rounds_go_with_their_bundles(lake: Lake) -> None:
    hours = Hours(lake)
    hours.clean()
    hours.clean()
    kept = hours.now - 15 * EVERY / 1e6
    hours.upkeep = replace(hours.upkeep, change_log=kept)
    hours.clean()
    assert min(number for number, _, _ in contents(lake)) == 15
    assert objects(lake) == named(lake)
    assert sum(path.startswith(layout.BUNDLED) for path in objects(lake)) == 3


def test_what_cannot_be_read_is_told(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    gone = min(objects(lake))
    lake.delete(gone)
    with caplog.at_level(logging.WARNING):
        Hours(lake).clean()
    (told,) = caplog.messages
    assert gone in told
