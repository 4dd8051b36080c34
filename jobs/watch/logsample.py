"""Samples of what a run captures, read again by a second decoder while the run goes on.

Lives here: `LogSamples`, a background task: which round is looked at next, what it costs, and that
a shard whose log is read differently stops. Does not live here: the comparison
(`ingest.logstretch`), whole stretches (`logverify`).

A sample is a part of a recent round that was not looked at yet: some 2,000 row changes or 2 MB of
binlog, from a random place on. What it takes is paid from a share of `verify.load`.

Invariant: a difference stops each table that streams from the shard and whose dump is not newer
than the round, now or as soon as it streams; also when the run is started again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ratchet.core.errors import (
    DecodeError,
    LakeError,
    PositionLostError,
    RetryableError,
    SourceUnfitError,
)
from ratchet.core.shard import ShardId
from ratchet.core.shell import redump
from ratchet.ingest.logstretch import RoundPart, Stretch, StretchBounds, check_stretch, stretches
from ratchet.jobs.config.config import Config
from ratchet.jobs.inspect.logrounds import choose_shards, log_reading
from ratchet.jobs.inspect.logverify import describe
from ratchet.jobs.inspect.reading import ReadOptions
from ratchet.jobs.reporting.observe import LogSampled, Observer
from ratchet.jobs.watch.budget import Budget
from ratchet.jobs.watch.verdicts import TableVerdict, Verdicts
from ratchet.snapshot.records import TableDumpRequest
from ratchet.store.files import Lake
from ratchet.store.logchecks import LogChecks, ShardLogChecks
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import StopReason
from ratchet.store.tables import Tables, TableState

log: Final = logging.getLogger("ratchet.jobs.run")

LOOK_EVERY: Final = 1.0  # seconds between two looks for rounds that were not looked at
SHARE: Final = 0.1  # of verify.load
ROWS: Final = 2_000  # of a sample
BYTES: Final = 2 << 20
_FAR: Final = 16 << 20  # bytes of a round that are passed over, at most; and of a transaction
_ROUNDS_BACK: Final = 200
_TELL_EVERY: Final = 30.0  # seconds between two looks for tables that have to stop
_LONGEST_PAUSE: Final = 600.0


class LogSamples:
    """Takes samples of all shards in turn. A background task; for one thread.

    Args:
        config: with its live shards.
        lake: the lake.
        reading: whose throttle is obeyed.
        verdicts: where tables that have to stop go.
        observer: told of each sample.
        stop: set when the run ends.
        rng: chooses rounds, and places in them.
        clock: seconds, rising.
        wall: microseconds UTC.
    """

    def __init__(
        self,
        config: Config,
        lake: Lake,
        *,
        reading: ReadOptions,
        verdicts: Verdicts,
        observer: Observer,
        stop: threading.Event,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._config, self._lake, self._reading = config, lake, reading
        self._verdicts, self._observer, self._stop = verdicts, observer, stop
        self._rng = rng or random.Random()  # noqa: S311 - no secret
        self._clock, self._wall = clock, wall
        self._log, self._tables, self._checks = RoundLog(lake), Tables(lake), LogChecks(lake)
        self._budget = Budget(config.verify.load * SHARE, now=clock())
        self._tell_at = clock()
        self._done = 0  # the newest round when there was nothing left to look at
        self._looked: dict[str, set[int]] = {}  # shard -> rounds
        self._failed = 0  # times in a row

    def next_bite(self) -> float:
        """Take a sample, if there is anything to look at; seconds until there may be more.

        Raises:
            LakeError: the lake cannot be read or written.
        """
        if self._config.verify.every is None:
            return LOOK_EVERY
        if self._clock() >= self._tell_at:
            self._tell_at = self._clock() + _TELL_EVERY
            self._stop_different()
        if rest := self._budget.rest(self._clock()):
            return rest
        chosen = self._choose()
        if chosen is None:
            return LOOK_EVERY
        shard, part = chosen
        began = self._clock()
        try:
            self._reading.settings.throttle.wait(self._reading.shards[str(shard)], self._stop)
            self._sample(shard, part)
        except (RetryableError, SourceUnfitError) as error:
            if self._stop.is_set():
                return LOOK_EVERY
            # It must not end a run that goes on well without it.
            self._failed += 1
            rest = min(_LONGEST_PAUSE, float(5 << min(self._failed, 10)))
            log.warning("samples of the log: %s; trying again in %.0f s", error, rest)
            return rest
        self._failed = 0
        now = self._clock()
        self._budget.spend(now - began, now)
        return self._budget.rest(now)

    def _choose(self) -> tuple[ShardId, RoundPart] | None:
        """A shard, and a round of it that was not looked at."""
        newest = self._log.last_number()
        if newest == self._done:
            return None
        streams = self._log.streams()
        shards, _ = choose_shards(self._config, streams, ())
        oldest = max(self._log.first_number(), newest - _ROUNDS_BACK)
        rounds = self._log.since(oldest - 1)
        self._rng.shuffle(shards)
        for shard in shards:
            looked = self._looked.setdefault(str(shard), set())
            looked.intersection_update(range(newest - _ROUNDS_BACK, newest + 1))
            parts = [
                part
                for stretch in stretches(rounds, str(shard))
                for part in stretch.parts
                if part.slice.generation == streams[str(shard)].generation
                and part.slice.transactions
                and part.round not in looked
            ]
            if parts:  # those that hold rows first
                return shard, self._rng.choice([one for one in parts if one.files] or parts)
        self._done = newest
        return None

    def _sample(self, shard: ShardId, part: RoundPart) -> None:
        self._looked[str(shard)].add(part.round)
        reading = log_reading(self._config, self._lake, shard)
        try:
            result, _ = check_stretch(
                self._lake,
                reading.source,
                Stretch([part]),
                policy=reading.policy,
                since=reading.since,
                wants=partial(reading.wants, copies=part.copies),
                bounds=self._bounds(part),
            )
        except PositionLostError as error:
            log.debug("no sample of round %d of %s: %s", part.round, shard, error.message)
            return
        except (DecodeError, LakeError) as error:
            # Upkeep may have removed the round meanwhile; whatever else it is, the merge finds it.
            log.warning("no sample of round %d of %s: %s", part.round, shard, error)
            return
        example = describe(result.examples[0], values=False) if result.examples else ""
        self._checks.save(
            self._noted(shard).with_sample(
                rows=result.rows,
                transactions=result.transactions,
                now=self._wall(),
                round_number=part.round,
                differences=result.differences,
                example=example,
            )
        )
        self._observer(
            LogSampled(
                shard=str(shard),
                round=part.round,
                rows=result.rows,
                transactions=result.transactions,
                differences=result.differences,
                example=example,
                not_compared=sum(result.not_compared.values()),
            )
        )
        self._stop_different()

    def _bounds(self, part: RoundPart) -> StretchBounds:
        """Half of the samples begin with their round, the others within what is not too far."""
        piece = part.slice
        within = min(1.0, _FAR / max(piece.bytes, 1)) if piece.bytes > BYTES else 0.0
        span = int((piece.end.seq - piece.start.seq) * within)
        skipped = self._rng.choice((0, self._rng.randint(0, span)))
        return StretchBounds(after=piece.start.seq + skipped, rows=ROWS, bytes=BYTES, largest=_FAR)

    # --- what differs -----------------------------------------------------------------------------

    def _stop_different(self) -> None:
        """Stop the tables of the shards whose log was read differently."""
        for shard in self._config.shards:
            found = self._noted(shard)
            if found.different_round:
                for state in self._streaming_from(found):
                    self._verdicts.hand_in(_verdict(state, found))

    def _noted(self, shard: ShardId) -> ShardLogChecks:
        """What the samples of a shard came to. A note of rounds that never were is damaged."""
        found = self._checks.of(str(shard))
        if max(found.different_round, found.last_round) <= self._log.last_number():
            return found
        log.warning("the note of the samples of %s is damaged: it counts as none", shard)
        return self._checks.save(ShardLogChecks(shard=str(shard)))

    def _streaming_from(self, found: ShardLogChecks) -> Sequence[TableState]:
        return [
            state
            for state in self._tables.list(ShardId.parse(found.shard).keyspace)
            if state.phase == "streaming"
            and state.dump is not None
            and found.shard in state.dump.start
            and state.dump.start_round <= found.different_round
            and not self._verdicts.waits(state.name)
        ]


def _verdict(state: TableState, found: ShardLogChecks) -> TableVerdict:
    return TableVerdict(
        wanted=TableDumpRequest(
            keyspace=state.keyspace,
            table=state.table,
            shards=tuple(state.dump.start) if state.dump else (),
            shard_in_key=state.shard_in_key,
        ),
        judged=state.doubts,
        outcome="wrong",
        why=StopReason(
            message=f"a second decoder reads the log of {found.shard} differently: {found.example}",
            hint="please report it, with what `ratchet verify CONFIG --log --from "
            f"{found.different_round} --to {found.different_round}` says; then "
            f"{redump(state.name)}",
            round=found.different_round,
        ),
    )
