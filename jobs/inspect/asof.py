"""`ratchet as-of`: from a time, a GTID or a round to the Delta versions of all tables.

Lives here: reading what the user means, finding its cut, printing. Does not live here: what a cut
is (`store.cuts`).

Invariant: a cut that is printed shows one moment of every shard, and holds nothing later than asked
for.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from ratchet.core.errors import ConfigError, DecodeError, NoCutError
from ratchet.jobs.config.config import Config
from ratchet.jobs.reporting import logs
from ratchet.jobs.reporting.terminal import terminal
from ratchet.jobs.reporting.text import moment as shown_moment
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.tables import Tables, TableState

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AsOfPoint:
    """What `--as-of` names.

    Attributes:
        kind: what it is.
        text: as the user wrote it, without the kind.
        value: microseconds UTC, or the round's number; 0 for a GTID.
    """

    kind: Literal["time", "gtid", "round"]
    text: str
    value: int = 0


def parse_moment(text: str) -> AsOfPoint:
    """Read `2026-03-01T12:00:00Z`, `round:12` or `gtid:0-1-100`.

    A time without an offset is UTC.

    >>> parse_moment("round:12").value
    12

    Raises:
        ConfigError: it is none of these.
    """
    kind, _, rest = text.partition(":")
    if kind == "gtid" and rest:
        return AsOfPoint("gtid", rest)
    try:
        if kind == "round":
            return AsOfPoint("round", rest, int(rest))
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a moment",
            operation="find a cut",
            hint="a time is written as in 2026-03-01T12:00:00Z; `sql --as-of` also takes round:N "
            "and gtid:G, for which as-of has --round and --gtid",
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return AsOfPoint("time", text, (found - epoch) // datetime.timedelta(microseconds=1))


def newest_cut(cuts: Cuts) -> Cut:
    """The newest cut.

    Raises:
        NoCutError: there is none yet.
    """
    last = cuts.last()
    if last is None:
        raise NoCutError(
            "nothing has been merged yet, so there is no cut",
            operation="find a cut",
            hint="let `ratchet run` continue until the tables are streaming",
        )
    return last


def find_cut(lake: Lake, moment: AsOfPoint) -> Cut:
    """The cut that shows this moment.

    Raises:
        NoCutError: there is none, or not yet.
        ConfigError: no server writes GTIDs like this one.
    """
    cuts = Cuts(lake)
    last = newest_cut(cuts)
    if moment.kind == "round" and moment.value > last.round:
        raise NoCutError(
            f"round {moment.value} is not merged yet: the newest cut is round {last.round}",
            operation="find a cut",
            hint="`ratchet status` shows what is captured and what is merged",
        )
    seen = min((shard.observed_at for shard in last.shards.values()), default=last.merged_at)
    if moment.kind == "time" and moment.value > seen:
        log.warning(
            "the mirror knows its sources only up to %s (its last look, whether or not anything "
            "was written): this is the newest cut",
            _iso(seen),
        )
    look: Callable[[], Cut | None] = {
        "time": lambda: cuts.at_time(moment.value),
        "round": lambda: cuts.at_round(moment.value),
        "gtid": lambda: cuts.holding_gtid(moment.text),
    }[moment.kind]
    try:
        found = look()
    except DecodeError as error:
        raise ConfigError(error.message, operation="find a cut", hint=error.hint) from error
    if found is None:
        newest = f"the newest cut is round {last.round}, up to {shown_moment(last.latest_ts)} UTC"
        why = {
            "time": "every cut that is kept has later changes",
            "round": "every cut that is kept is of a later round",
            "gtid": "that transaction is not merged yet",
        }[moment.kind]
        raise NoCutError(
            f"there is no cut for {moment.kind} {moment.text}: {why}",
            operation="find a cut",
            hint=f"{newest}; merge.table_history in the config sets how long cuts are kept",
        )
    if moment.kind == "round" and found.round != moment.value:
        log.warning(
            "there is no cut at round %d: the one before it is at %d", moment.value, found.round
        )
    return found


def tables_of(lake: Lake, cut: Cut) -> list[tuple[TableState, int]]:
    """The tables of a cut with their Delta versions."""
    states = {state.name: state for state in Tables(lake).list()}
    return [(states[name], version) for name, version in cut.tables.items() if name in states]


def describe(lake: Lake, cut: Cut) -> dict[str, Any]:
    """A cut as plain JSON values."""
    return {
        "round": cut.round,
        "cut": cut.number,
        "merged_at": _iso(cut.merged_at),
        "latest": _iso(cut.latest_ts),
        "shards": {
            name: {"position": str(shard.position.executed), "latest": _iso(shard.latest_ts)}
            for name, shard in sorted(cut.shards.items())
        },
        "tables": [
            {
                "keyspace": state.keyspace,
                "table": state.table,
                "version": version,
                "path": lake.hadoop_uri(state.shown_path),
                "stopped": state.name in cut.stopped,
            }
            for state, version in sorted(tables_of(lake, cut), key=lambda pair: pair[0].name)
        ],
        "not_in_it": sorted(s.name for s in Tables(lake).list() if s.name not in cut.tables),
    }


def run_as_of(config: Config, text: str, *, as_json: bool) -> int:
    """Find the cut and print it."""
    moment = parse_moment(text)
    lake = open_lake(config.lake, now=0, create=False)
    found = describe(lake, find_cut(lake, moment))
    if as_json:
        print(logs.clean(json.dumps(found, indent=1)))
    else:
        _print(found)
    return 0


def _print(found: dict[str, Any]) -> None:
    from rich.table import Table

    console = terminal(soft_wrap=True)
    console.print(
        f"cut {found['cut']}: round {found['round']}, nothing later than {found['latest']}, "
        f"merged {found['merged_at']}"
    )
    for name, shard in found["shards"].items():
        console.print(f"  {name}: {shard['position']}")
    table = Table("table", "version", "path", box=None, pad_edge=False)
    for one in found["tables"]:
        name = f"{one['keyspace']}.{one['table']}"
        table.add_row(name, str(one["version"]), one["path"])
    console.print(table)
    stopped = [f"{t['keyspace']}.{t['table']}" for t in found["tables"] if t["stopped"]]
    if stopped:
        console.print(f"stopped earlier, so older than this cut: {', '.join(stopped)}")
    if found["not_in_it"]:
        names = ", ".join(found["not_in_it"])
        console.print(f"not in this cut (not dumped by then, or dumped again): {names}")


def _iso(micros: int) -> str:
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
        microseconds=micros
    )
    return moment.isoformat().replace("+00:00", "Z")
