"""Faults of a Spark cluster: executors, workers, its master."""

from __future__ import annotations

import signal
from typing import Final

from bench.faults.scene import NotFitError, Scene, below, program_of, signal_all
from bench.faults.trial import Fault, Step
from lab.cluster import SparkCluster

_FORGETS: Final = "cluster, S3"
_REMEMBERS: Final = "cluster with a memory, S3"
_BACK: Final = 10.0  # seconds until somebody has started a new one
_NOTICED: Final = 45.0  # seconds until a new master's orders have taken effect
_LIMIT: Final = 600.0


def _cluster(scene: Scene) -> SparkCluster:
    if scene.cluster is None:
        raise NotFitError("there is no cluster")
    return scene.cluster


def _executors(scene: Scene) -> list[int]:
    workers = _cluster(scene).pids[1:]
    found = [pid for worker in workers for pid in below(worker) if program_of(pid) == "java"]
    if not found:
        raise NotFitError("there are no executors")
    return found


def _kill_one(scene: Scene) -> None:
    signal_all(_executors(scene)[:1], signal.SIGKILL)


def _kill_all(scene: Scene) -> None:
    signal_all(_executors(scene), signal.SIGKILL)


def _kill(name: str) -> Step:
    return lambda scene: _cluster(scene).kill(name)


def _renew_master(scene: Scene) -> None:
    """Its workers end the executors that it does not know: what is seen before tells nothing."""
    _cluster(scene).start("master")
    scene.wait(_NOTICED)


def _start(name: str) -> Step:
    return lambda scene: _cluster(scene).start(name)


def _pair(
    name: str,
    begin: Step,
    recalls: tuple[str, str],
    *,
    lasts: float = 0.0,
    end: Step | None = None,
    scenes: tuple[str, ...] = (_FORGETS,),
) -> tuple[Fault, ...]:
    """The same while it dumps and while it merges."""
    return tuple(
        Fault(
            name=f"{name} while it {does}",
            scenes=scenes,
            begin=begin,
            lasts=lasts,
            end=end,
            in_dump=does == "dumps",
            limit=_LIMIT,
            recalls=recalled,
        )
        for does, recalled in zip(("dumps", "merges"), recalls, strict=True)
    )


SPARK: Final = (
    *_pair("an executor killed", _kill_one, ("20 s", "3 s")),
    *_pair("all executors killed", _kill_all, ("63 s", "not tried")),
    *_pair(
        "a worker killed, a new one after 10 s",
        _kill("worker0"),
        ("14 s", "17 s"),
        lasts=_BACK,
        end=_start("worker0"),
    ),
    *_pair(
        "the master killed, a new one after 10 s",
        _kill("master"),
        ("hung", "too short to tell"),
        lasts=_BACK,
        end=_renew_master,
        scenes=(_FORGETS, _REMEMBERS),
    ),
)
