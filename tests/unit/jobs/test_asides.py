"""Which source an error sets aside, when it is tried again, and when all of it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ratchet.core.errors import (
    ConfigError,
    DecodeError,
    EngineGoneError,
    LakeError,
    PositionLostError,
    RatchetError,
    RetryableError,
    TableStoppedError,
)
from ratchet.jobs.capture.loops import Control
from ratchet.jobs.config.config import load_config
from ratchet.jobs.reporting.observe import SourceSetAside
from ratchet.jobs.topology.asides import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Asides,
    name_source,
    with_silent,
    without,
)


class World:
    """Asides of three sources, with a clock, and what they have told."""

    def __init__(self, *keyspaces: str) -> None:
        self.now = 1000.0
        self.told: list[SourceSetAside] = []
        self.noted: list[set[str]] = []
        self.bad: dict[str, RatchetError] = {}
        self.asides = Asides(
            keyspaces,
            tell=self.told.append,
            note=lambda found: self.noted.append(set(found)),
            clock=lambda: self.now,
        )

    def ask(self, keyspace: str) -> None:
        """As a server would."""
        if keyspace in self.bad:
            raise self.bad[keyspace]


def away(source: str = "a/-") -> RetryableError:
    return RetryableError("gone", operation="read", source=source)


@pytest.mark.parametrize(
    "error",
    [
        away(),
        PositionLostError("purged", operation="read", source="a/80-"),
        DecodeError("bad", operation="read", source="a"),
    ],
)
def test_what_is_of_one_source_sets_it_aside(error: RatchetError) -> None:
    world = World("a", "b")
    assert world.asides.take(error)
    assert world.asides.names == {"a"}
    assert world.asides.errors == {"a": error}
    assert world.noted == [{"a"}]
    (told,) = world.told
    assert (told.source, told.again) == ("a", FIRST_PAUSE)
    assert error.message in told.sentence()


def test_an_error_of_a_vtgate_names_the_keyspace() -> None:
    world = World("a", "b")
    error = away("127.0.0.1:15991")
    assert not world.asides.take(error)
    name_source(error, "a/80-")
    assert error.source == "a/80-, 127.0.0.1:15991"
    name_source(error, "a/80-")
    assert error.source == "a/80-, 127.0.0.1:15991"
    assert world.asides.take(error)
    assert world.asides.names == {"a"}


@pytest.mark.parametrize(
    "error",
    [
        away(""),
        away("elsewhere/-"),
        LakeError("full", operation="write", source="a/-"),
        ConfigError("wrong", operation="start", source="a/-"),
        EngineGoneError("died", operation="merge", source="a/-"),
        TableStoppedError("stopped", source="a/-"),
    ],
)
def test_what_is_not_of_one_source_does_not(error: RatchetError) -> None:
    world = World("a", "b")
    assert not world.asides.take(error)
    assert (world.asides.names, world.told, world.noted) == (frozenset(), [], [])


def test_the_last_source_is_never_set_aside() -> None:
    world = World("a", "b")
    assert world.asides.take(away("a/-"))
    assert not world.asides.take(away("b/-"))
    assert world.asides.names == {"a"}
    assert not World("a").asides.take(away())
    assert not World().asides.take(away())


def test_two_loops_may_meet_the_same_fault() -> None:
    world = World("a", "b")
    assert world.asides.take(away("a/-"))
    assert world.asides.take(away("a/80-"))
    assert len(world.told) == 1


def test_it_is_asked_again_later_each_time() -> None:
    world = World("a", "b")
    world.bad["a"] = away()
    world.asides.take(away())
    pause, pauses = FIRST_PAUSE, []
    for _ in range(9):
        world.now += pause - 1
        assert not world.asides.look(world.ask)
        world.now += 1
        assert not world.asides.look(world.ask)
        pause = world.told[-1].again
        pauses.append(pause)
    assert pauses == [60, 120, 240, 480, 960, 1800, 1800, 1800, 1800]
    assert pauses[-1] == LONGEST_PAUSE
    del world.bad["a"]
    world.now += pause
    assert world.asides.look(world.ask)
    assert (world.asides.names, world.noted[-1]) == (frozenset(), set())


def test_a_lake_that_fails_while_it_is_asked_is_no_fault_of_the_source() -> None:
    world = World("a", "b")
    first = away()
    world.asides.take(first)
    world.bad["a"] = LakeError("full", operation="read")
    with pytest.raises(LakeError):
        world.asides.look(world.ask, at_once=True)
    assert world.asides.errors == {"a": first}


def test_one_that_fails_right_behind_a_good_answer_waits_longer() -> None:
    world = World("a", "b")
    for count in range(3):
        world.asides.take(away())
        assert world.told[-1].again == FIRST_PAUSE * 2**count
        world.now += world.told[-1].again
        assert world.asides.look(world.ask)
    world.now += 4000
    world.asides.take(away())
    assert world.told[-1].again == FIRST_PAUSE


def test_a_run_that_has_done_all_else_waits_for_a_server_and_for_nothing_else() -> None:
    world = World("a", "b", "c")
    world.asides.refuse(300)
    world.asides.take(away())
    world.bad["a"] = away()
    world.now += 299
    world.asides.refuse(300)
    assert not world.asides.look(world.ask, at_once=True)
    assert len(world.told) == 1  # nobody is told of each of these
    world.now += 1
    with pytest.raises(RetryableError):
        world.asides.refuse(300)
    lost = PositionLostError("purged", operation="read", source="b/-")
    del world.bad["a"]
    assert world.asides.look(world.ask, at_once=True)
    world.asides.take(lost)
    with pytest.raises(PositionLostError):
        world.asides.refuse(300)


def test_the_loops_turn_for_it_and_end_for_anything_else() -> None:
    world = World("a", "b")
    control = Control(survives=world.asides.take)
    control.fail(away())
    assert control.turning
    assert control.error is None
    control.go_on()
    assert not control.draining
    lake = LakeError("full", operation="write")
    control.fail(lake)
    assert (control.stopping, control.error) == (True, lake)
    control.fail(away("b/-"))
    assert control.error is lake


def test_the_tables_of_a_source_that_is_set_aside_stay_the_configs_own(tmp_path: Path) -> None:
    path = tmp_path / "ratchet.yaml"
    sources = {
        name: {"kind": "binlog", "shards": {"-": {"host": name, "user": "u", "database": "d"}}}
        for name in ("a", "b")
    }
    path.write_text(yaml.safe_dump({"lake": "./lake", "sources": sources}))
    full = load_config(path)
    left = without(full, {"a"})
    assert list(left.sources) == ["b"]
    assert with_silent(left, full, ()) == replace(full, sources=left.sources)
    silent = with_silent(left, full, {"a"})
    assert list(silent.sources) == ["a", "b"]
    assert {str(shard) for shard in silent.shards} == {"b/-"}
    assert silent.mirrors("a", "t")
