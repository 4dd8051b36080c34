"""`ratchet status`: tells where each shard and table stands, as text or JSON.

Lives here: the command, its lines and tables. Does not live here: what it tells (`standing`).

Invariant: whatever comes from a server or a table is shown on one line of its own.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ratchet.jobs.config.config import Config
from ratchet.jobs.inspect.standing import ShardStatus, Status, TableStatus, gather
from ratchet.jobs.reporting import logs
from ratchet.jobs.reporting.terminal import terminal, visible
from ratchet.jobs.reporting.text import age, counted, moment, one_line, size, within
from ratchet.store.comparisons import Comparison
from ratchet.store.endings import Ending
from ratchet.store.leftout import LeftOutTable
from ratchet.store.logchecks import ShardLogChecks

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 10_000  # columns
_SHOWN = 3  # rows of a table that differ
_DOUBTFUL = "a run compares it with its source by itself, as soon as it has got that far"


def run_status(config: Config, *, as_json: bool) -> int:
    """Gather and print."""
    found = gather(config)
    if as_json:
        print(logs.clean(json.dumps(dataclasses.asdict(found), indent=1)))
    else:
        _print(found, time.time())
    return 0


def _who(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return "nobody"
    sign = f" ({run['last_sign']})" if "last_sign" in run else ""
    return f"`{run['command']}`, pid {run['pid']} on {run['host']}{sign}"


def _print(found: Status, now: float) -> None:
    from rich.table import Table

    console = terminal(soft_wrap=True)
    if not console.is_terminal:  # a file or a pipe has no edge at which a position must be cut
        console = terminal(soft_wrap=True, width=_WIDE)
    console.print(f"lake {found.lake}; running: {_who(found.run)}", markup=False)
    console.print(_mirror(found))
    shards = Table("shard", "state", "log behind", "last round", box=None, pad_edge=False)
    shards.add_column("position", overflow="fold")
    for shard in found.shards:
        shards.add_row(
            shard.shard,
            f"{shard.state}, held back" if shard.held else shard.state,
            _lag(shard),
            age(shard.observed_at, now),
            shard.position,
        )
    tables = Table("table", "phase", box=None, pad_edge=False)
    for name in ("rows", "round", "version"):
        tables.add_column(name, justify="right")
    tables.add_column("last written (UTC)")
    tables.add_column("compared with its source (UTC)")
    for table in found.tables:
        tables.add_row(
            f"{table.keyspace}.{table.table}",
            table.phase,
            "" if table.rows is None else f"{table.rows:,}",
            str(table.round),
            "" if table.version is None else str(table.version),
            moment(table.last_change),
            _compared(table.compared),
        )
    console.print()
    console.print(shards)
    console.print()
    console.print(tables)
    console.print()
    rounds = counted(found.change_rounds, "round")
    console.print(f"change log: {size(found.change_bytes)} in {rounds}")
    for one in found.samples:
        console.print(_sampled(one, now))
    for shard in found.shards:
        if shard.reason:
            _say(console, f"{shard.shard}: {shard.reason}")
        if shard.odd_ts is not None:
            text = (
                f"{shard.shard}: its log had an impossible commit time, {moment(shard.odd_ts)} "
                "UTC (docs/operations.md, 'Time travel')"
            )
            console.print(text)
    ended = () if found.ended is None else (_told_ending(found.ended),)
    told = (text for table in found.tables for text in _told(table))
    for text in (*ended, *told, *map(_told_left_out, found.left_out)):
        _say(console, text)


def _say(console: Console, text: str) -> None:
    """Print lines of ours: what comes from elsewhere has none (`one_line`)."""
    for line in text.split("\n"):
        console.print(line)


def _told(table: TableStatus) -> Iterator[str]:
    """What is wrong with a table, or may be."""
    name = f"{table.keyspace}.{table.table}"
    if table.stopped:
        yield f"{name} is stopped: {one_line(table.stopped)}\n  {visible(table.hint)}"
    for why in table.doubts:
        yield f"{name} is doubtful: {one_line(why)}\n  {_DOUBTFUL}"
    if table.compared is not None and not table.compared.equal:
        yield f"{name} differs from its source: {'; '.join(table.compared.examples[:_SHOWN])}"


def _told_ending(ended: Ending) -> str:
    what = f"the last run (`ratchet {ended.command}`) ended with exit {ended.exit_code}"
    told = f"{what} at {moment(ended.at)} UTC: {one_line(ended.message)}"
    return f"{told}\n  {one_line(ended.hint)}" if ended.hint else told


def _told_left_out(table: LeftOutTable) -> str:
    return f"{table.name} is left out: {one_line(table.reason)}\n  {visible(table.hint)}"


def _sampled(one: ShardLogChecks, now: float) -> str:
    rows, samples = counted(one.rows, "row change"), counted(one.samples, "sample")
    return (
        f"log of {one.shard}: {rows} of {samples} read again by a second decoder, "
        f"the last one {age(one.last_at, now)}: {counted(one.differences, 'difference')}"
        + (f", the first in round {one.different_round}: {one.example}" if one.differences else "")
    )


def _compared(found: Comparison | None) -> str:
    if found is None:
        return ""
    rows, moving = counted(found.rows, "row"), f", {found.unsettled:,} too busy to tell"
    differ = "1 difference" if found.differences == 1 else f"{found.differences:,} differences"
    equal = "equal as of" if found.equal else "DIFFERENT as of"
    return f"{equal} {moment(found.until)}: {rows}, {differ}{moving if found.unsettled else ''}"


def _mirror(found: Status) -> str:
    if not found.merged:
        return f"round {found.round} captured, nothing merged yet"
    behind = "unknown" if found.tables_lag_max is None else within(found.tables_lag_max)
    return (
        f"round {found.round} captured, round {found.merged} merged; "
        f"streaming tables are behind by {behind}"
    )


def _lag(shard: ShardStatus) -> str:
    if shard.lag_max is None:
        return "unknown"
    return "0 s" if shard.lag_max == 0 else f"{shard.lag_min:.0f} to {shard.lag_max:.1f} s"
