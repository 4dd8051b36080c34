"""Upkeep: small files together, old versions, cuts and change files away, orphans of killed runs.

Lives here: what may be removed when, and how. Does not live here: when upkeep is due (the merge
loop calls it between two steps, so it never meets a merge), tombstones (`side`).

Invariant: nothing is removed that a table still has to merge, that a cut still names, or that is
younger than its retention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from ratchet.merge.compaction import SMALL_FILE, CompactionResult, compact_files
from ratchet.merge.delta import plain_session
from ratchet.merge.failures import spark_errors
from ratchet.merge.sql import quoted
from ratchet.merge.step import LOOK_AGAIN
from ratchet.store import layout
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.commits import check_epoch
from ratchet.store.delta.log import replay
from ratchet.store.files import Lake
from ratchet.store.retention import (
    FILE_RETENTION,
    LOG_RETENTION,
    history_interval,
    keep_history,
    remove_old_files,
)
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import object_of
from ratchet.store.tables import TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY_SMALL_FILES: Final = 40  # before Spark puts them together
_CHANGE_FILE: Final = re.compile(rf"(\d{{12}})-.*(\.parquet|{re.escape(layout.SEGMENT_END)})")
_HOUR: Final = 3600.0
_ROUNDS_AT_ONCE: Final = 5000  # that are removed with one commit to their log


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """What a clean-up of the change log removed.

    Attributes:
        files: objects, each a change file or a segment.
        bytes: the size of the change files, as their rounds have it.
        before_round: rounds below this one are gone.
    """

    files: int
    bytes: int
    before_round: int


def compact(spark: SparkSession, lake: Lake, state: TableState, *, now: int) -> CompactionResult:
    """Put small files of a table and of its side table together; vectors of their rows go, too.

    A part of it at a time, so that merges need not wait for long. Never while the table is merged.

    Args:
        spark: any session.
        lake: the lake.
        state: the table.
        now: microseconds UTC.

    Raises:
        LakeError: a file is gone, damaged or cannot be read or written.
        RetryableError: a failure of Spark, which does it for tables with rules of their own.
    """
    done = compact_files(lake, state.path, key=state.key, now=now)
    if done is None:
        _optimize(spark, lake, state)
    both = (done, compact_files(lake, state.side_path, key=(), now=now))
    found = [one for one in both if one is not None]
    return CompactionResult(
        files=sum(one.files for one in found),
        bytes=sum(one.bytes for one in found),
        left=any(one.left for one in found),
    )


def _optimize(spark: SparkSession, lake: Lake, state: TableState) -> None:
    """By Spark: of a table whose rules we do not know all of."""
    files = replay(lake, state.path)
    small = [f for f in files.files.values() if f.size < SMALL_FILE] if files else []
    if len(small) < MANY_SMALL_FILES:
        return
    session = plain_session(
        spark,
        {
            # Files near their final size are left alone: the cost follows the change.
            "spark.databricks.delta.optimize.minFileSize": str(SMALL_FILE),
            "spark.databricks.delta.optimize.maxFileSize": str(4 * SMALL_FILE),
        },
    )
    with spark_errors("put small files together", table=state.name):
        session.sql(f"OPTIMIZE delta.{quoted(lake.hadoop_uri(state.path))}").collect()


def remove_old(
    spark: SparkSession, lake: Lake, path: str, *, name: str, keep: float, now: int
) -> Iterator[int]:
    """Remove data files that no version younger than `keep` seconds names, a bite at a time.

    Cuts may name a version that is older than themselves (LOOK_AGAIN), so that its files are kept
    for that much longer; and an hour is the least, since a file's removal is stamped when the merge
    that made it began.

    Args:
        spark: any session; used for a table with rules of others only.
        lake: the lake.
        path: the table's folder.
        name: keyspace.table.
        keep: how long old versions can be read, seconds.
        now: microseconds UTC.

    Yields:
        How many files went.

    Raises:
        LakeError: the lake cannot be read or written.
        RetryableError: a failure of Spark.
    """
    keep = max(_HOUR, keep + LOOK_AGAIN)
    files = replay(lake, path)
    if files is None:
        return
    if files.writable:
        keep_history(lake, path, keep=keep, now=now)
        yield from remove_old_files(lake, path, keep=keep, now=now)
        return
    session = plain_session(
        spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
    )
    table, interval = f"delta.{quoted(lake.hadoop_uri(path))}", history_interval(keep)
    with spark_errors("remove old versions", table=name):
        # VACUUM goes by the property, whatever it is told.
        have = session.sql(f"SHOW TBLPROPERTIES {table}").collect()
        if {row.key: row.value for row in have}.get(FILE_RETENTION) != interval:
            session.sql(
                f"ALTER TABLE {table} SET TBLPROPERTIES "
                f"('{FILE_RETENTION}' = '{interval}', '{LOG_RETENTION}' = '{interval}')"
            ).collect()
        session.sql(f"VACUUM {table}").collect()
    yield 0


def prune_cuts(cuts: Cuts, *, now: int, history: float) -> None:
    """Forget cuts whose versions may be gone: those merged before the history began.

    Args:
        cuts: the list of cuts.
        now: microseconds UTC.
        history: seconds.
    """
    first = cuts.first_since(now - int(history * 1e6))
    if first is not None:
        cuts.prune(first.number)


def needed_from(states: Iterable[TableState], cut: Cut | None) -> int | None:
    """The oldest round that some table may still have to merge; None if no table waits.

    A stopped table waits for nothing: its remedy is a new dump, which begins with newer rounds. One
    that awaits further shards may do so for ever, and is dumped again if its rounds are gone.

    Args:
        states: all tables.
        cut: the newest cut: the tables in it hold its round, also those whose state lags behind
            because nothing happened to them.
    """
    needed = []
    for state in states:
        if state.phase in {"dumping", "catching_up"} and state.dump is not None:
            needed.append(state.dump.start_round)
        elif state.phase == "streaming":
            shown = cut.round if cut and cut.shows(state.name) else 0
            needed.append(max(state.merged_round, shown) + 1)
    return min(needed, default=None)


def prune_change_log(
    lake: Lake, log: RoundLog, states: Sequence[TableState], *, now: int, keep: float
) -> PruneResult:
    """Remove rounds, and their change files, that are old and merged everywhere.

    The files go first: a round that is still in the log while its files are gone is never read,
    because no table needs it. A bundle goes with the last of its rounds, whose number it bears.

    Args:
        lake: the lake.
        log: its rounds.
        states: all tables.
        now: microseconds UTC.
        keep: seconds from a round's commit.
    """
    last, first = log.last_number(), log.first_number()
    limit = needed_from(states, Cuts(lake).last()) or last
    young = log.first_since(now - int(keep * 1e6)) or last  # the newest one always stays
    before, files, size = min(limit, young, last), 0, 0
    for begin in range(first, before, _ROUNDS_AT_ONCE) if first else ():
        end = min(begin + _ROUNDS_AT_ONCE, before)
        named = [file for value in log.walk(begin, end - 1) for file in value.files]
        every = {object_of(file.path) for file in named}
        objects = [path for path in every if (_round_of(path) or 0) < end]
        check_epoch(lake, log.epoch(), layout.CHANGES, "remove old change files")
        lake.delete_files(objects)
        files += len(objects)
        size += sum(file.bytes for file in named)
        log.prune(end)
    return PruneResult(files=files, bytes=size, before_round=max(first, before))


def remove_orphans(lake: Lake, log: RoundLog) -> int:
    """Remove change files that are nobody's; how many: of rounds that were never committed.

    Only for the holder of the lease, before its capture begins: a file of a round above the last
    one is then nobody's. No round of an earlier epoch comes any more that might name one; and as
    they are listed before the look at the log, none of a later epoch's is among them. (No name of a
    file is used twice.)

    Raises:
        LateError: another run has taken the lake over.
    """
    changes, derived = lake.list(layout.CHANGES), lake.list(layout.DERIVED)
    last = log.last_number()
    check_epoch(lake, log.epoch(), layout.CHANGES, "remove what nobody has committed")
    orphans = [f.path for f in changes if (_round_of(f.path) or 0) > last]
    orphans += [f.path for f in derived]  # of a step that was killed
    lake.delete_files(orphans)
    return len(orphans)


def remove_strays(lake: Lake, log: RoundLog) -> int:
    """Remove change files of rounds that are in the log no more; how many there were.

    A slice that failed may have left some; another one then became the round of that number, so
    that no round names them.

    Raises:
        LateError: another run has taken the lake over.
    """
    changes = lake.list(layout.CHANGES)
    first = log.first_number()
    check_epoch(lake, log.epoch(), layout.CHANGES, "remove old change files")
    strays = [f.path for f in changes if (_round_of(f.path) or first) < first]
    lake.delete_files(strays)
    return len(strays)


def _round_of(path: str) -> int | None:
    found = _CHANGE_FILE.fullmatch(PurePosixPath(path).name)
    return int(found[1]) if found else None
