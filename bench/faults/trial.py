"""One fault, tried: begun, ended, and what came after it.

Lives here: how a fault is described, what is measured, and what the outcome is called. Does not
live here: the faults.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from bench.faults.scene import NotFitError, Scene
from bench.soak.fleet import Writer

LIMIT: Final = 300.0
NOT_TRIED: Final = "not tried"
_SETTLED_WITHIN: Final = 300.0  # the first dump, Spark's start on a busy machine

Step = Callable[[Scene], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        name: what it is.
        scenes: names of those in which it is tried.
        begin: makes it happen.
        lasts: seconds until it ends.
        end: ends it.
        after: looks at what is left of it.
        in_dump: whether a table is being dumped when it begins.
        limit: seconds; what is not seen by then never is.
        recalls: what was measured of it first, on 2026-11-25.
    """

    name: str
    scenes: tuple[str, ...]
    begin: Step
    lasts: float = 0.0
    end: Step | None = None
    after: Step | None = None
    in_dump: bool = False
    limit: float = LIMIT
    recalls: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a fault came to.

    Attributes:
        name: the fault's.
        scene: the scene's.
        did: what the run did.
        seconds: from the fault's end until a change made then was in the lake; None: never.
        rows: that were compared at the end.
        wrong: what is wrong with them, or why it was not tried; empty: nothing.
        notes: what else is told.
        recalls: what was measured of it first, on 2026-11-25.
    """

    name: str
    scene: str
    did: str
    seconds: float | None
    rows: int
    wrong: str
    notes: tuple[str, ...] = ()
    recalls: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it recovered, and all rows are equal."""
        return self.seconds is not None and self.rows > 0 and not self.wrong


def tried(fault: Fault, name: str, scene: Scene, seed: int) -> Outcome:
    """Try a fault in a scene that is well; one that comes out well leaves it so.

    Args:
        fault: which.
        name: the scene's.
        scene: where.
        seed: of who writes meanwhile.
    """
    scene.notes.clear()
    scene.dumped = ""
    seconds, wrong, rows = None, "", 0
    writers = scene.writers(seed)
    try:
        _prepare(fault, scene, writers)
        first, ends, kills = scene.life, scene.life.ends.copy(), scene.life.kills
        fault.begin(scene)
        scene.wait(fault.lasts)
        if fault.end is not None:
            fault.end(scene)
        seconds = scene.until(_seen(scene), fault.limit)
        if fault.after is not None:
            fault.after(scene)
        _finish(writers)
        rows, wrong = (0, "") if seconds is None else scene.compared(fault.limit)
        if first is scene.life:
            said = did(first.ends - ends, first.kills - kills)
        else:
            said = "another machine's run took over"
    except Exception as error:  # noqa: BLE001 - the others are tried all the same
        said, wrong = NOT_TRIED, f"{type(error).__name__}: {error}"
    finally:
        with suppress(Exception):  # told above
            _finish(writers)
    return Outcome(
        name=fault.name,
        scene=name,
        did=said,
        seconds=seconds,
        rows=rows,
        wrong=wrong,
        notes=tuple(scene.notes),
        recalls=fault.recalls,
    )


def _prepare(fault: Fault, scene: Scene, writers: Sequence[Writer]) -> None:
    if scene.until(_seen(scene), _SETTLED_WITHIN) is None:
        raise NotFitError("the run did not come to rest before it")
    for writer in writers:
        writer.start()
    scene.wait(2)
    if fault.in_dump:
        scene.begin_dump(fault.limit)


def _finish(writers: Sequence[Writer]) -> None:
    for writer in writers:
        if writer.ident is not None:
            writer.finish()


def _seen(scene: Scene) -> Callable[[], bool]:
    change = scene.change()
    return lambda: scene.is_seen(change)


def did(ends: Counter[int], kills: int) -> str:
    """What a run did, by its exit codes and how often it was killed."""
    kills += ends[-signal.SIGKILL]
    parts = ["killed"] if kills else []
    parts += [
        f"ended with exit {code}" + (f" {count} times" if count > 1 else "")
        for code, count in sorted(ends.items())
        if code != -signal.SIGKILL
    ]
    return f"{', '.join(parts)}; started again" if parts else "went on"
