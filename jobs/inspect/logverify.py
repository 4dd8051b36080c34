"""`ratchet verify --log`: the change log against the servers' logs, by a second decoder.

Lives here: the command, the printing and the exit code. Does not live here: which rounds
(`logrounds`), the comparison (`ingest.logstretch`), the mirrored tables against their sources
(`verify`), the samples that a run takes (`logsample`).

Invariant: only reads. What was not compared is named.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from ratchet.core.errors import DecodeError, LakeError, PositionLostError, TableStoppedError
from ratchet.core.shard import ShardId
from ratchet.core.shell import shell_word
from ratchet.ingest.logcheck import LogDifference, LogResult
from ratchet.ingest.logstretch import Stretch, StretchBounds, check_stretch
from ratchet.jobs.config.config import Config
from ratchet.jobs.inspect.logrounds import (
    LogReadOptions,
    choose_shards,
    log_reading,
    still_there,
    stretch_of,
)
from ratchet.jobs.reporting import logs
from ratchet.jobs.reporting.terminal import in_json, say
from ratchet.jobs.reporting.text import clock_time, counted, size
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.store.takeover import refuse_older_rounds

log: Final = logging.getLogger(__name__)

EXIT_DIFFERENT: Final = 1
_LARGEST: Final = 512 << 20  # bytes of a transaction, which is in memory until it ends
_SHOWN: Final = 20  # differences of a stretch that are printed, and reasons


@dataclass(slots=True)
class ShardLog:
    """What came of a shard.

    Attributes:
        shard: ShardId as text.
        first: first round that was compared.
        last: last one.
        result: the comparison.
        bytes: read from its server.
        seconds: it took.
    """

    shard: str
    first: int
    last: int
    result: LogResult
    bytes: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "shard": self.shard,
            "from": self.first,
            "to": self.last,
            "rows": self.result.rows,
            "transactions": self.result.transactions,
            "values": self.result.values,
            "differences": self.result.differences,
            "examples": [asdict(one) for one in self.result.examples],
            "not_compared": dict(self.result.not_compared),
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }


def run_verify_log(
    config: Config, *, shards: Sequence[str], first: str | None, last: str | None, as_json: bool
) -> int:
    """Compare and print; gives the exit code. What is named and not compared is no success.

    Args:
        config: as loaded.
        shards: only these (keyspace/shard); all if empty.
        first: where to begin: a round, a time or a GTID; None: as far back as 64 MB of binlog.
        last: where to end; None: the newest round.
        as_json: print JSON.

    Raises:
        ConfigError: a shard or a moment is not known.
        LakeError: nothing could be compared.
        RetryableError: a server cannot be reached.
    """
    lake = open_lake(config.lake, now=0, create=False)
    refuse_older_rounds(lake)
    rounds = RoundLog(lake)
    streams = rounds.streams()
    chosen, left = choose_shards(config, streams, shards)
    found = []
    for shard in chosen:
        name = str(shard)
        stretch = stretch_of(rounds, name, streams[name], first=first, last=last, left=left)
        reading = log_reading(config, lake, shard)
        one = None if stretch is None else _compared(reading, stretch, left)
        if one is not None:
            found.append(one)
            if not as_json:
                _print(one)
    if not found:
        reasons = "; ".join(f"{name}: {why}" for name, why in left.items())
        raise LakeError(
            f"there is nothing to compare{f' ({reasons})' if reasons else ''}",
            operation="verify --log",
            hint="`ratchet status CONFIG` shows the shards; the newest rounds are compared unless "
            "--from and --to name others",
        )
    if as_json:
        same = not any(one.result.differences for one in found)
        data = {"same": same, "shards": [one.to_json() for one in found], "not_compared": left}
        print(in_json(logs.clean(json.dumps(data, indent=1, ensure_ascii=False))))
    else:
        _print_end(found, left)
    if any(one.result.differences for one in found):
        return EXIT_DIFFERENT
    return TableStoppedError.exit_code if left and (shards or first or last) else 0


def _compared(reading: LogReadOptions, stretch: Stretch, left: dict[str, str]) -> ShardLog | None:
    shard = stretch.parts[0].slice.shard
    parts = still_there(reading.source, stretch.parts)
    if gone := stretch.parts[: len(stretch.parts) - len(parts)]:
        key = f"{shard}, rounds {gone[0].round} to {gone[-1].round}"
        left[key] = "the server has purged its binlogs of them"
    if not parts:
        return None
    log.info("comparing the log of %s, rounds %d to %d", shard, parts[0].round, parts[-1].round)
    began = time.monotonic()
    try:
        result, read = check_stretch(
            reading.lake,
            reading.source,
            Stretch(parts),
            policy=reading.policy,
            since=reading.since,
            wants=partial(reading.wants, copies=Stretch(parts).copies),
            bounds=StretchBounds(largest=_LARGEST),
        )
    except (PositionLostError, DecodeError) as error:
        left[shard] = error.message
        return None
    seconds = time.monotonic() - began
    return ShardLog(shard, parts[0].round, parts[-1].round, result, read, seconds)


# --- printing -------------------------------------------------------------------------------------


def _print(one: ShardLog) -> None:
    result = one.result
    say(
        f"log of {one.shard}: rounds {one.first} to {one.last}: "
        f"{counted(result.rows, 'row change')} in {counted(result.transactions, 'transaction')} "
        f"compared, {counted(result.differences, 'difference')} "
        f"({size(one.bytes)} of binlog in {clock_time(one.seconds)})",
        flush=True,
    )
    for found in result.examples[:_SHOWN]:
        say(f"  {logs.clean(describe(found))}")
    if result.differences > _SHOWN:
        say(f"  and {result.differences - _SHOWN:,} more (--json lists up to 100)")
    _print_left(result.not_compared)


def _print_left(not_compared: Counter[str]) -> None:
    told = not_compared.most_common()
    for what, count in told[:_SHOWN]:
        say(f"  not compared: {what}{f' ({count:,})' if count else ''}")
    if len(told) > _SHOWN:
        say(f"  and {len(told) - _SHOWN:,} more kinds that were not compared (--json lists them)")


def describe(found: LogDifference, *, values: bool = True) -> str:
    """A difference as a line for people; without values it may stand in logs and states."""
    row = "" if found.row is None else f", row {found.row}"
    table = f", {found.table}" if found.table else ""
    column = f", column {found.column}" if found.column else ""
    sides = (
        f": the lake has {found.lake}, the server {found.server}" if values and found.lake else ""
    )
    gtid = f", transaction {found.gtid}" if found.gtid else ""
    return f"round {found.round}{gtid}{table}{row}{column}: {found.what}{sides}"


def _print_end(found: Sequence[ShardLog], left: dict[str, str]) -> None:
    for name, why in left.items():
        say(f"not compared: {name}: {logs.clean(why)}")
    tables = sorted(
        {
            f"{ShardId.parse(one.shard).keyspace}.{example.table}"
            for one in found
            for example in one.result.examples
            if example.table
        }
    )
    if not any(one.result.differences for one in found):
        return
    say(
        "Ratchet and mysql-replication read the log differently: please report it, with these "
        "lines. To correct the rows:"
    )
    for name in tables:
        say(f"  ratchet table CONFIG redump {shell_word(name)}")
