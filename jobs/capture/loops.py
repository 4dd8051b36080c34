"""The loops of a run: capture, dump, merge and verify, which never wait for each other.

Lives here: when each of them works, rests, tries again and ends. Does not live here: what they do
(functions given from outside, wired in `pipeline`), signals, the lake.

Invariant: whatever ends the run, each loop ends between two of its steps, and the first error is
the one that is reported. An error of capture's ends the run only when everything that was
captured is merged.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from ratchet.core.errors import BugError, LockedError, RatchetError, RetryableError
from ratchet.jobs.capture.pace import StepPace

log: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.5  # seconds; doubles with each failure in a row
LONGEST_PAUSE: Final = 30.0
_LOOK: Final = 1.0  # seconds after which a loop that waits looks around

Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOutcome:
    """What one round of capture came to.

    Attributes:
        committed: number of the round, None if there was nothing to commit.
        failures: shard -> why it could not take part.
    """

    committed: int | None
    failures: Mapping[str, RatchetError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOutcome:
    """What one merge step came to.

    Attributes:
        worked: whether there was anything to do.
        changed: how many tables it has changed.
        is_behind: whether it has left rounds, which were too much for one step.
    """

    worked: bool
    changed: int = 0
    is_behind: bool = False


class Control:
    """What the loops share: whether to stop, why, and a bell for "something happened".

    Args:
        survives: given the error of a loop, whether the run goes on anew instead of ending.
    """

    def __init__(self, survives: Callable[[RatchetError], bool] = lambda _: False) -> None:
        self._survives = survives
        self._bell = threading.Condition()
        self._rings = 0
        self._stopping = False
        self._draining = False
        self._turning = False
        self._done = False
        self._looks = 0
        self.error: RatchetError | None = None

    @property
    def stopping(self) -> bool:
        """End before the next step."""
        return self._stopping or self._done

    @property
    def is_stopped(self) -> bool:
        """Whether somebody or an error has ended the run before all was done."""
        return self._stopping

    @property
    def draining(self) -> bool:
        """Capture and dump have to end; merge ends when all that was captured is merged."""
        return self._draining or self.stopping

    @property
    def turning(self) -> bool:
        """The run drains because its shards have changed, to go on with those of now."""
        return self._turning and not self.stopping

    @property
    def rings(self) -> int:
        """How often something happened so far; to be given to `wait`."""
        return self._rings

    @property
    def looks(self) -> int:
        """How often the dump was asked to look for tables at once."""
        return self._looks

    def look(self) -> None:
        """Let the dump look for tables now."""
        self._looks += 1
        self.ring()

    def ring(self) -> None:
        """Something happened: whoever waits looks again."""
        with self._bell:
            self._rings += 1
            self._bell.notify_all()

    def stop(self) -> None:
        """End between two steps."""
        self._stopping = True
        self.ring()

    def drain(self) -> None:
        """End when everything captured is merged."""
        self._draining = True
        self.ring()

    def end(self) -> None:
        """All is done: end between two steps."""
        self._done = True
        self.ring()

    def turn(self) -> None:
        """End between two steps, to go on with other shards."""
        self._turning = True
        self.drain()

    def go_on(self) -> None:
        """Begin again after a turn, or after all was done."""
        self._turning = self._draining = self._done = False

    def fail(self, error: RatchetError, *, drain: bool = False) -> None:
        """Keep the first error and end the run; with `drain`, after merging what is there.

        One that the run survives lets it turn.
        """
        if self.error is None and self._survives(error):
            self.turn()
            return
        if self.error is None:
            self.error = error
        if drain:
            self.drain()
        else:
            self.stop()

    def wait(self, seconds: float, seen: int) -> None:
        """Until something happens that was not `seen`, or the time is over."""
        with self._bell:
            if self._rings == seen:
                self._bell.wait(seconds)

    def rest(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Until the run ends, the time is over, or `until` says so when the bell rings."""
        deadline = time.monotonic() + seconds
        with self._bell:
            while not (self.draining or until()) and (left := deadline - time.monotonic()) > 0:
                self._bell.wait(left)


class Loop(threading.Thread):
    """A thread that ends the run by name when it fails."""

    def __init__(self, name: str, control: Control, *, drain_on_error: bool = False) -> None:
        super().__init__(name=name, daemon=True)
        self.control = control
        self._drain_on_error = drain_on_error

    def run(self) -> None:
        """Work until the run ends; a failure of any kind is handed to the control."""
        try:
            self.work()
        except RatchetError as error:
            self.control.fail(error, drain=self._drain_on_error)
        except Exception as error:
            failure = BugError(f"the {self.name} loop failed", operation=self.name)
            failure.__cause__ = error
            log.debug("%s failed", self.name, exc_info=error)
            self.control.fail(failure)
        finally:
            self.control.ring()

    def work(self) -> None:
        """What the thread does."""
        raise NotImplementedError


@dataclass(slots=True)
class _Trouble:
    since: float
    count: int
    until: float


class CaptureLoop(Loop):
    """Rounds back to back. A shard that failed rests alone, longer each time.

    Args:
        control: see Control.
        capture: takes the shards to leave out, and takes one round.
        shards: all shards.
        patience: seconds that a shard may fail in a row until the run ends with its error.
        back: called when a shard that had failed is there again.
        alarmed: called before an error that no trying again mends ends the run: settings of the
            source that lose changes may be behind it, and must not be forgotten with it.
        clock: seconds, rising.
        jitter: a number from 0 to 1, so that many runs do not come back at once.
    """

    def __init__(
        self,
        control: Control,
        capture: Callable[[Collection[str]], CaptureOutcome],
        *,
        shards: Collection[str],
        patience: float,
        back: Callable[[], None] = lambda: None,
        alarmed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__("capture", control, drain_on_error=True)
        self._capture = capture
        self._shards = shards
        self._patience = patience
        self._back, self._alarmed = back, alarmed
        self._clock = clock
        self._jitter = jitter
        self._trouble: dict[str, _Trouble] = {}

    @property
    def troubled(self) -> frozenset[str]:
        """Shards that failed last time."""
        return frozenset(self._trouble)

    def work(self) -> None:
        """Take round after round."""
        while not self.control.draining:
            seen = self.control.rings
            resting = self._resting()
            if len(resting) == len(self._shards):
                wake = min(t.until for t in self._trouble.values())
                self.control.wait(max(0.01, wake - self._clock()), seen)
                continue
            captured = self._capture(resting)
            for shard in set(self._shards) - resting:
                self._note(shard, captured.failures.get(shard))
            if captured.committed is not None:
                self.control.ring()

    def _resting(self) -> set[str]:
        now = self._clock()
        return {shard for shard, trouble in self._trouble.items() if trouble.until > now}

    def _note(self, shard: str, error: RatchetError | None) -> None:
        if error is None:
            if self._trouble.pop(shard, None) is not None:
                log.info("connected again", extra={"fields": {"source": shard}})
                self._back()
            return
        if not isinstance(error, RetryableError):
            self._alarmed()
            raise error
        now = self._clock()
        trouble = self._trouble.setdefault(shard, _Trouble(now, 0, now))
        if now - trouble.since >= self._patience:
            raise error
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**trouble.count) * (0.5 + self._jitter() / 2)
        trouble.count += 1
        trouble.until = min(now + pause, trouble.since + self._patience)
        log.warning("%s; trying again in %.1f s", error, pause, extra={"fields": error.fields()})


class DumpLoop(Loop):
    """Dumps whatever needs it, and looks from time to time whether a table has come.

    Args:
        control: see Control.
        dump: dumps all tables that need it now, and those that come to need it meanwhile, for which
            it looks whenever the function it is given says so; gives how many it dumped.
        every: seconds between two looks; None: one look.
        rests: seconds until a table that rests has its turn again; inf: none does.
    """

    def __init__(
        self,
        control: Control,
        dump: Callable[[Callable[[], bool]], int],
        *,
        every: float | None,
        rests: Callable[[], float] = lambda: math.inf,
    ) -> None:
        super().__init__("dump", control)
        self._dump = dump
        self._every = every
        self._rests = rests
        self._looks = 0
        self._next = 0.0
        self.finished = False

    def work(self) -> None:
        """Dump, rest, look again."""
        while not self.control.draining:
            self._begin_look()
            self._dump(self._is_look_due)
            self.finished = True
            self.control.ring()
            if self._every is None:
                return
            self.control.rest(min(self._next - time.monotonic(), self._rests()), self._is_asked)

    def _is_asked(self) -> bool:
        return self.control.looks != self._looks

    def _is_look_due(self) -> bool:
        due = self._every is not None and (self._is_asked() or time.monotonic() >= self._next)
        if due:
            self._begin_look()
        return due

    def _begin_look(self) -> None:
        self._looks = self.control.looks
        self._next = time.monotonic() + (self._every or 0.0)


class WatchLoop(Loop):
    """Looks from time to time whether the sources are still fit to be followed.

    Args:
        control: see Control.
        look: looks.
        every: seconds between two looks.
    """

    def __init__(self, control: Control, look: Callable[[], None], *, every: float) -> None:
        super().__init__("watch", control)
        self._look = look
        self._every = every
        self._hurried = threading.Event()

    def hurry(self) -> None:
        """Look at once: a server that was away may have come back with other settings."""
        self._hurried.set()
        self.control.ring()

    @property
    def is_hurried(self) -> bool:
        """Whether it has not looked since."""
        return self._hurried.is_set()

    def work(self) -> None:
        """Rest, look: a run looks before its loops begin."""
        while True:
            self.control.rest(self._every, self._hurried.is_set)
            if self.control.draining:
                return
            self._hurried.clear()
            self._look()
            self.control.ring()


# Of a step that failed it is not known what it did: it is done again.
_FAILED: Final = MergeOutcome(worked=True)


class MergeLoop(Loop):
    """A merge step whenever there is something to merge, and it is time.

    Args:
        control: see Control.
        step: merges what there is. Behind one that has left rounds the next one begins at once.
        pace: how far apart the steps are.
        patience: seconds that a server may be away which a step has to ask, until the run ends.
        between: what is done each second while it is not time for a step; whether one is wanted.
        clock: seconds, rising.
    """

    def __init__(
        self,
        control: Control,
        step: Callable[[], MergeOutcome],
        *,
        pace: StepPace,
        patience: float,
        between: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("merge", control)
        self._step = step
        self._pace = pace
        self._patience = patience
        self._between = between
        self._hurried = threading.Event()
        self._clock = clock
        self._delay = FIRST_PAUSE
        self._since: float | None = None  # when the first of the steps failed that did in a row

    def hurry(self) -> None:
        """Somebody waits for a cut: the next step comes at once, unless the config says when."""
        if not self._pace.is_given:
            self._hurried.set()

    def work(self) -> None:
        """Merge, wait for the bell, merge."""
        others_ended = False
        while not (self.control.stopping or self.control.turning):
            seen = self.control.rings
            began = self._clock()
            self._hurried.clear()
            outcome = self._try(self._step, failed=_FAILED)
            if outcome.worked:
                next_step = self._pace.took_step(began, outcome.changed)
                if not outcome.is_behind:
                    self._rest(next_step)
                continue
            if others_ended:
                return
            others_ended = self.control.draining and not self.feeders()
            if not others_ended:
                self.control.wait(_LOOK, seen)

    def feeders(self) -> bool:
        """Whether a loop that makes work for this one is still running."""
        return any(
            thread.name in {"capture", "dump"} and thread.is_alive()
            for thread in threading.enumerate()
            if isinstance(thread, Loop) and thread.control is self.control
        )

    def _try(self, work: Callable[[], Outcome], *, failed: Outcome) -> Outcome:
        """What came of it; `failed`, if that is to be tried again."""
        try:
            found = work()
        except RetryableError as error:
            # A conflict or a lost executor: the step is done again, and what is merged stays. Or a
            # server is away, of which foreign keys are to be read.
            now = self._clock()
            self._since = now if self._since is None else self._since
            waits = bool(error.source) and now - self._since < self._patience
            if self._delay > LONGEST_PAUSE and not waits:
                raise
            pause = min(self._delay, LONGEST_PAUSE)
            log.warning("%s; trying again in %.1f s", error, pause)
            self.control.wait(pause, self.control.rings)
            self._delay = 2 * pause
            return failed
        self._delay, self._since = FIRST_PAUSE, None
        return found

    def _rest(self, until: float) -> None:
        while not (self.control.draining or self._hurried.is_set()):
            left = until - self._clock()
            if left <= 0:
                return
            if self._try(self._between, failed=True):
                self.hurry()
            self.control.rest(min(left, _LOOK))


class Task(Protocol):
    """Something that a run does in the background, a bite at a time."""

    def next_bite(self) -> float:
        """Do a bit of it; seconds until it wants to do more.

        Raises:
            RetryableError: it is tried again.
        """


class VerifyLoop(Loop):
    """Does background tasks: of those whose time has come, the one that stands first.

    Args:
        control: see Control.
        tasks: the most urgent ones first.
        patience: seconds that a task may fail in a row until the run ends with its error.
        clock: seconds, rising.
    """

    def __init__(
        self,
        control: Control,
        tasks: Sequence[Task],
        *,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("verify", control, drain_on_error=True)
        self._tasks = tasks
        self._patience = patience
        self._clock = clock
        self._due = [clock()] * len(tasks)
        self._trouble: dict[int, _Trouble] = {}
        self.rested = False  # whether there was a moment at which no task had something to do

    def work(self) -> None:
        """Bite after bite."""
        while not self.control.draining:
            seen = self.control.rings
            now = self._clock()
            ready = [number for number, due in enumerate(self._due) if due <= now]
            if ready:
                self._due[ready[0]] = self._clock() + self._bite(ready[0])
            else:
                self.rested = True
                self.control.wait(min(self._due, default=now + 1.0) - now, seen)

    def _bite(self, number: int) -> float:
        try:
            rest = self._tasks[number].next_bite()
        except RetryableError as error:
            if self.control.draining:
                return 0.0  # it was told to stop
            now = self._clock()
            trouble = self._trouble.setdefault(number, _Trouble(now, 0, now))
            if now - trouble.since >= self._patience and not isinstance(error, LockedError):
                raise
            pause: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2**trouble.count)
            trouble.count += 1
            log.warning("verification: %s; trying again in %.1f s", error, pause)
            return pause
        self._trouble.pop(number, None)
        return rest
