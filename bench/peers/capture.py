"""Ratchet's capture alone: rounds from the socket to committed change files, in this process.

It stands beside Debezium's engine, which reads the log and writes nothing: nothing is merged here,
so it has no load and no copy, and no Spark. The rounds are those of `ratchet run`, with its limits.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from numba.core.registry import cpu_target

from bench.peers.contract import Job, Result, serve
from ratchet.core.errors import BugError
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.ingest.rounds import RoundTaker, local_runner
from ratchet.ingest.slices import CaptureRequest, SliceLimits
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig

_SHARD: Final = ShardId("bench", "-")


def follow(job: Job) -> Result:
    """Take rounds from the position before the changes to the one behind them."""
    from ratchet.jobs.cli import own_version

    root = str(job.home / "lake")
    rounds = RoundLog(open_lake(root, now=int(time.time() * 1e6)))
    taker = RoundTaker(rounds, local_runner)
    source = SourceConfig(
        shard=_SHARD,
        host=job.host,
        port=job.port,
        user=job.user,
        password=job.password,
        database=job.database,
    )
    goal = GtidSet.parse("mariadb", job.end["gtid"])
    position = Position(executed=GtidSet.parse("mariadb", job.start["gtid"]))
    # What a decoder's first call imports, like everybody's imports, is not of the race.
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    rows, count = 0, 0
    began = time.perf_counter()
    while not position.executed.contains_all(goal):
        outcome = taker.take(
            [
                CaptureRequest(
                    source=source,
                    start=position,
                    generation=1,
                    round_number=taker.next_number,
                    lake=root,
                    patterns=TablePatterns(),
                    limits=SliceLimits(stop_at=goal),
                    dump=DumpOptions(server_id=184_055),
                )
            ]
        )
        for error in outcome.errors.values():
            raise error
        position = outcome.positions[str(_SHARD)]
        if outcome.committed is not None:
            rows += sum(one.rows for one in outcome.committed.slices)
            count += 1
    seconds = time.perf_counter() - began
    if rows != job.changes:
        raise BugError(f"{rows} changes captured of {job.changes}", operation="capture")
    return Result(
        seconds=seconds,
        rows=rows,
        version=f"ratchet {own_version()}",
        settings=f"one process, {count} rounds, change files and their log committed",
        target={"format": "none", "path": ""},
    )


if __name__ == "__main__":
    sys.exit(serve({"follow": follow}))
