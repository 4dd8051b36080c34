"""Faults of the run itself: killed, frozen until another has taken over, started twice."""

from __future__ import annotations

import os
import signal
from subprocess import TimeoutExpired
from typing import Final

from bench.faults.scene import NotFitError, Scene, below, is_halted, signal_all
from bench.faults.trial import Fault
from bench.soak.life import Life
from ratchet.store.crashpoints import HALT

_BOTH: Final = ("both servers",)
_CLUSTER: Final = ("cluster, S3",)
_WITHIN: Final = 240.0
_TAKING_OVER: Final = "taking the lake over"


def _kill_run(scene: Scene) -> None:
    """Its own process alone; what it has started is left to find out."""
    os.kill(scene.life.pid or 0, signal.SIGKILL)


def _kill_java(scene: Scene) -> None:
    machines = scene.processes("java")
    if not machines:
        raise NotFitError("the run has no JVM")
    signal_all(machines, signal.SIGKILL)


def _begin_another(scene: Scene) -> None:
    code = scene.another().command("run").wait(_WITHIN)
    scene.notes.append(f"the second one: exit {code}")


def _freeze_run(scene: Scene) -> None:
    pid = scene.life.pid or 0
    _taken_over(scene, [pid, *below(pid)])


def _freeze_python(scene: Scene) -> None:
    _taken_over(scene, [scene.life.pid or 0])


def _taken_over(scene: Scene, frozen: list[int]) -> None:
    """Freeze the run until another has merged, then freeze that one while the first wakes."""
    signal_all(frozen, signal.SIGSTOP)
    late, scene.life = scene.life, scene.another()
    change = scene.change()
    took = scene.until(lambda: scene.is_seen(change), _WITHIN)
    scene.notes.append(
        "the next one merges " + ("never" if took is None else f"{took:.0f} s later")
    )
    pid = scene.life.pid or 0
    successor = [pid, *below(pid)]
    signal_all(successor, signal.SIGSTOP)
    signal_all(frozen, signal.SIGCONT)
    _tell_end(scene, late)
    signal_all(successor, signal.SIGCONT)


def _halt_before_commit(scene: Scene) -> None:
    """Freeze the run with a round to commit, and wake it 1 s after another has begun to work."""
    scene.life.kill()
    late = scene.life = scene.another(**{HALT: "capture.before_commit:3"})
    if scene.until(lambda: is_halted(late.pid or 0), _WITHIN) is None:
        raise NotFitError("the run did not come to the point")
    pid = late.pid or 0
    successor = scene.life = scene.another()
    scene.until(lambda: _TAKING_OVER in _said(successor), _WITHIN)
    scene.wait(1)
    signal_all([pid], signal.SIGCONT)
    _tell_end(scene, late)


def _said(life: Life) -> str:
    return life.log.read_text(errors="replace") if life.log.exists() else ""


def _tell_end(scene: Scene, late: Life) -> None:
    try:
        told = f"exit {late.wait(_WITHIN)}"
    except TimeoutExpired:
        told = "it did not end"
    scene.notes.append(f"the one that woke: {told}")


PROCESSES: Final = (
    Fault(
        name="run killed while it dumps",
        scenes=(*_BOTH, *_CLUSTER),
        begin=_kill_run,
        in_dump=True,
        recalls="59 s",
    ),
    Fault(
        name="run killed while it merges",
        scenes=(*_BOTH, *_CLUSTER),
        begin=_kill_run,
        recalls="160 s",
    ),
    Fault(
        name="JVM killed while it dumps",
        scenes=(*_BOTH, *_CLUSTER),
        begin=_kill_java,
        in_dump=True,
        recalls="exit 9: 56 s",
    ),
    Fault(
        name="JVM killed while it merges",
        scenes=_CLUSTER,
        begin=_kill_java,
        recalls="exit 9: 234 s",
    ),
    Fault(
        name="a second run beside the first",
        scenes=_BOTH,
        begin=_begin_another,
        recalls="exit 7",
    ),
    Fault(
        name="frozen with all its processes until another has merged, then woken",
        scenes=_BOTH,
        begin=_freeze_run,
        recalls="exit 7; first merge 128 to 187 s",
    ),
    Fault(
        name="frozen, its Python process alone, until another has merged, then woken",
        scenes=_BOTH,
        begin=_freeze_python,
        recalls="exit 7; first merge 128 to 187 s",
    ),
    Fault(
        name="frozen before the commit of a round, woken 1 s after another took over",
        scenes=_BOTH,
        begin=_halt_before_commit,
        recalls="stuck; hand work",
    ),
)
