"""When it is said that Spark stands still, and when that ends a run."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from ratchet.core.errors import EngineGoneError
from ratchet.jobs.engine.sparkwatch import SparkProgress, SparkWatch, cancel_jobs, read_work
from ratchet.store.lazyspark import LazySession

LIMIT = 300.0
IDLE = SparkProgress(jobs=(7,), done=3, running=0, executors=0)


class World:
    """A Spark that has this to do, looked at each five seconds."""

    def __init__(self, work: SparkProgress) -> None:
        self.now, self.work, self.cancelled = 0.0, work, 0
        self.watch = SparkWatch(
            cast("SparkSession", None),
            limit=LIMIT,
            read=lambda _: self.work,
            cancel=lambda _: self.cancel(),
            clock=lambda: self.now,
        )

    def cancel(self) -> None:
        self.cancelled += 1

    def pass_by(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 5
            self.watch.look()


def test_nothing_to_do(caplog: pytest.LogCaptureFixture) -> None:
    World(SparkProgress((), 0, 0, 0)).pass_by(10_000)
    assert caplog.messages == []


def test_nobody_does_it(caplog: pytest.LogCaptureFixture) -> None:
    world = World(IDLE)
    world.pass_by(LIMIT - 5)
    assert caplog.messages[0] == (
        "Spark has finished no task for 60 s: 1 job open, 0 tasks running, 0 executors"
    )
    assert len(caplog.messages) == 4
    with pytest.raises(EngineGoneError, match="0 executors"):
        world.pass_by(20)
    assert world.cancelled == 1


def test_a_task_that_waits_for_an_executor_is_nobodys() -> None:
    """Spark knows a task as running for a while after its executor has gone."""
    with pytest.raises(EngineGoneError):
        World(replace(IDLE, running=2)).pass_by(LIMIT + 20)
    with pytest.raises(EngineGoneError):
        World(replace(IDLE, executors=2)).pass_by(LIMIT + 20)


def test_a_long_task_is_told_of_and_may_go_on(caplog: pytest.LogCaptureFixture) -> None:
    world = World(replace(IDLE, running=1, executors=2))
    world.pass_by(600)
    assert caplog.messages == []
    world.pass_by(LIMIT)
    assert len(caplog.messages) == 5
    assert world.cancelled == 0


def test_whatever_moves_begins_it_anew(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = World(IDLE)
    for done in range(20):
        world.work = replace(IDLE, done=done)
        world.pass_by(55)
    for job in range(20):
        world.work = replace(IDLE, jobs=(job,))
        world.pass_by(55)
    assert caplog.messages == []


def test_a_session_that_was_not_used_is_not_asked() -> None:
    lazy = LazySession(lambda: pytest.fail("started"))
    watch = SparkWatch(
        cast("SparkSession", lazy),
        limit=1,
        read=lambda _: pytest.fail("asked"),
        cancel=lambda _: pytest.fail("cancelled"),
    )
    watch.look()


def test_a_real_session(spark: SparkSession) -> None:
    spark.range(10).count()
    found = read_work(spark, driver_works=True)
    assert (found.jobs, found.running, found.executors) == ((), 0, 1)
    cancel_jobs(spark)
