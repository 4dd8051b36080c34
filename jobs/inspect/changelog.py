"""The changes after a cut out of the lake's own change log, for comparisons within a run.

Lives here: waiting until capture has come as far as a read, and what the rounds hold from the cut
on. Does not live here: capturing beside a run (`scratch`), what a comparison makes of changes
(`snapshot.verify`).

Invariant: nothing is read from a source: what a run compares costs the servers no second stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Self

from ratchet.core.errors import RetryableError
from ratchet.core.position import Position
from ratchet.core.types import InvalidValuePolicy
from ratchet.jobs.inspect.scratch import changes_from
from ratchet.merge.cascades.graph import read_graph
from ratchet.snapshot.keychanges import Changes
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables

_POLL: Final = 0.1  # seconds


class NotYetError(RetryableError):
    """Capture or merge has not come as far as was read: it is only a matter of time."""


class ChangeLog:
    """The changes after a cut, as far as they are asked for. A context; for one thread.

    Args:
        lake: the lake.
        cut: see there.
        policy: decides about the lake's types.
        stop: set when the run ends.
        patience: seconds that capture may take until it has come as far as is asked.
        clock: seconds, rising.
    """

    def __init__(
        self,
        lake: Lake,
        cut: Cut,
        *,
        policy: InvalidValuePolicy,
        stop: threading.Event,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake, self._cut, self._log = lake, cut, RoundLog(lake)
        self._policy = policy
        self._stop, self._patience, self._clock = stop, patience, clock

    def changes(self, keyspace: str, table: str, ends: Mapping[str, Position]) -> Changes:
        """All changes of a table after the cut, up to these positions or beyond.

        Raises:
            RetryableError: capture does not come so far, or the run ends.
            LakeError: the rounds have been pruned.
        """
        if not covers(self._positions(), ends):
            await_until(
                lambda: covers(self._log.positions(), ends),
                "capture does not reach what was read",
                stop=self._stop,
                patience=self._patience,
                clock=self._clock,
            )
        rounds = self._log.since(self._cut.round)
        return changes_from(
            self._lake,
            [file for one in rounds for file in one.files],
            [event for one in rounds for event in one.events],
            table=(keyspace, table),
            reached=self._log.positions_at(rounds[-1].number) if rounds else self._positions(),
            keys=read_graph(self._lake, Tables(self._lake).list()),
            policy=self._policy,
        )

    def _positions(self) -> dict[str, Position]:
        return {name: shard.position for name, shard in self._cut.shards.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is to be given back."""


def covers(positions: Mapping[str, Position], ends: Mapping[str, Position]) -> bool:
    """Whether every shard has come as far as these positions."""
    return all(
        shard in positions and positions[shard].executed.contains_all(end.executed)
        for shard, end in ends.items()
    )


def covering_cut(
    cuts: Cuts,
    ends: Mapping[str, Position],
    *,
    stop: threading.Event,
    patience: float,
    hurry: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> Cut:
    """The newest cut, as soon as it holds these positions.

    Args:
        cuts: the lake's.
        ends: shard -> position.
        stop: set when the run ends.
        patience: seconds that it may take.
        hurry: asks for a merge, while it is waited for.
        clock: seconds, rising.

    Raises:
        RetryableError: it does not come so far, or the run ends.
    """

    def reached() -> bool:
        cut = cuts.last()
        if cut is not None and covers({n: s.position for n, s in cut.shards.items()}, ends):
            return True
        hurry()
        return False

    await_until(
        reached, "the mirror does not reach what was read",
        stop=stop, patience=patience, clock=clock,
    )  # fmt: skip
    cut = cuts.last()
    assert cut is not None  # noqa: S101 - it was reached
    return cut


def await_until(
    done: Callable[[], bool],
    otherwise: str,
    *,
    stop: threading.Event,
    patience: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Return once it is done.

    Args:
        done: asked again and again.
        otherwise: what the error says.
        stop: set when the run ends.
        patience: seconds.
        clock: seconds, rising.

    Raises:
        NotYetError: patience is over.
        RetryableError: the run ends.
    """
    deadline = clock() + patience
    while not done():
        if stop.wait(_POLL):
            raise RetryableError("the run ends", operation="compare with the source")
        if clock() > deadline:
            raise NotYetError(otherwise, operation="compare with the source")
