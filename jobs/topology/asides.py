"""Sources that a run goes on without, because they failed and others did not.

Lives here: `Asides`, which knows them, and when each is worth another try; a config without them.
Does not live here: ending the loops and making them anew without a source (`commands`), shards that
rest for a while (`loops`), what can never be followed (`unfit`).

Invariant: one source at least is never set aside: the last one's error ends the run.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ratchet.core.errors import (
    BugError,
    DecodeError,
    LakeError,
    PositionLostError,
    RatchetError,
    RetryableError,
    SourceUnfitError,
)
from ratchet.jobs.reporting.observe import SourceSetAside

if TYPE_CHECKING:
    from ratchet.jobs.config.config import Config

log: Final = logging.getLogger("ratchet.jobs.run")

FIRST_PAUSE: Final = 30.0  # seconds; doubles with each failure
LONGEST_PAUSE: Final = 1800.0
_FORGOTTEN: Final = 3600.0  # seconds without a failure after which a source has a clean slate
# What one server can be the reason of. An error in the config, in the lake or in Spark is not.
_OF_SOURCE: Final = (
    RetryableError,
    SourceUnfitError,
    PositionLostError,
    DecodeError,
    BugError,
)


@dataclass(frozen=True, slots=True)
class _Failures:
    """Of one source, in a row."""

    count: int
    first: float
    last: float


class Asides:
    """For several threads.

    Args:
        keyspaces: all of the config; none: nothing is ever set aside.
        tell: called with what was set aside.
        note: called with all that are set aside, whenever that changes: keyspace -> error.
        clock: seconds, rising.
    """

    def __init__(
        self,
        keyspaces: Collection[str],
        *,
        tell: Callable[[SourceSetAside], None],
        note: Callable[[dict[str, RatchetError]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keyspaces = frozenset(keyspaces)
        self._tell = tell
        self._note = note
        self._clock = clock
        self._lock = threading.Lock()
        self._aside: dict[str, tuple[RatchetError, float]] = {}  # why, and when to try again
        self._failures: dict[str, _Failures] = {}

    @property
    def names(self) -> frozenset[str]:
        """The keyspaces that are set aside."""
        with self._lock:
            return frozenset(self._aside)

    @property
    def errors(self) -> dict[str, RatchetError]:
        """Keyspace -> why it is set aside."""
        with self._lock:
            return {keyspace: error for keyspace, (error, _) in self._aside.items()}

    def take(self, error: RatchetError) -> bool:
        """Set the source aside that an error is of; whether it was one, and others are left."""
        keyspace = _keyspace(error)
        if keyspace not in self._keyspaces or not isinstance(error, _OF_SOURCE):
            return False
        with self._lock:
            if keyspace in self._aside:
                return True
            if not self._keyspaces - {keyspace, *self._aside}:
                return False
            pause = self._put(keyspace, error)
        self._told(keyspace, error, pause)
        return True

    def look(self, ask: Callable[[str], None], *, at_once: bool = False) -> bool:
        """Ask those whose time has come; whether any is to be tried again.

        Args:
            ask: raises if the source of a keyspace would fail at once.
            at_once: ask all.

        Raises:
            LakeError: the lake does not say where they stand.
        """
        now = self._clock()
        with self._lock:
            due = [name for name, (_, again) in self._aside.items() if at_once or again <= now]
        for keyspace in due:
            try:
                ask(keyspace)
            except LakeError:
                raise  # of no source
            except RatchetError as error:
                with self._lock:
                    pause = self._put(keyspace, error)
                if not at_once:
                    self._told(keyspace, error, pause)
            else:
                self._take_back([keyspace])
        return bool(set(due) - self.names)

    def take_back(self) -> None:
        """Try all of them again."""
        self._take_back(self.names)

    def refuse(self, patience: float) -> None:
        """End a run that has done all else, unless those that are left may yet come.

        Args:
            patience: seconds that a server may be away.

        Raises:
            RatchetError: why the first of them was set aside.
        """
        now = self._clock()
        for keyspace, error in self.errors.items():
            away = now - self._failures[keyspace].first
            if not isinstance(error, RetryableError) or away >= patience:
                raise error

    def _put(self, keyspace: str, error: RatchetError) -> float:
        """Set it aside; the seconds until it is worth another try."""
        now = self._clock()
        before = self._failures.get(keyspace)
        if before is None or now - before.last > _FORGOTTEN:
            before = _Failures(0, now, now)
        pause: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2**before.count)
        self._failures[keyspace] = _Failures(before.count + 1, before.first, now)
        self._aside[keyspace] = error, now + pause
        return pause

    def _told(self, keyspace: str, error: RatchetError, pause: float) -> None:
        self._tell(
            SourceSetAside(source=keyspace, message=str(error), hint=error.hint, again=pause)
        )
        self._note(self.errors)

    def _take_back(self, keyspaces: Collection[str]) -> None:
        with self._lock:
            for keyspace in keyspaces:
                del self._aside[keyspace]
        for keyspace in keyspaces:
            log.info(
                "%s: tried again",
                keyspace,
                extra={"fields": {"event": "source_tried_again", "source": keyspace}},
            )
        if keyspaces:
            self._note(self.errors)


def name_source(error: RatchetError, source: str) -> None:
    """Let an error name the source that it is of, before a vtgate's address if it names that.

    Args:
        error: of that source.
        source: the keyspace, or keyspace/shard.
    """
    if _keyspace(error) != source.partition("/")[0]:
        error.source = f"{source}, {error.source}" if error.source else source


def _keyspace(error: RatchetError) -> str:
    return re.split("[/,]", error.source)[0]


def without(config: Config, keyspaces: Collection[str]) -> Config:
    """The config without these sources: for asking those that are left."""
    left = {name: one for name, one in config.sources.items() if name not in keyspaces}
    return replace(config, sources=left)


def with_silent(config: Config, full: Config, keyspaces: Collection[str]) -> Config:
    """The config with these sources back, but without shards: their tables stay, nothing is read.

    Args:
        config: as `without` and what came behind it have left it.
        full: the config with all sources.
        keyspaces: those that are set aside.
    """
    silent = {name: replace(full.sources[name], shards={}) for name in keyspaces}
    every = {**config.sources, **silent}
    return replace(config, sources={name: every[name] for name in full.sources if name in every})
