"""`ratchet table CONFIG WHAT TABLE`: one table of a mirror comes, is dumped again, or goes.

Lives here: finding what the name means, leaving it to the run that has the lease or doing it at
once, and waiting. Does not live here: doing it (`serving`).

Invariant: what the config says is not overruled, and no other table is touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from ratchet.core.errors import (
    ConfigError,
    LakeError,
    RatchetError,
    RetryableError,
    TableStoppedError,
)
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.selection import Selection
from ratchet.jobs.config.sources import source_configs
from ratchet.jobs.config.spelling import with_noted_spelling, with_spelling
from ratchet.jobs.reporting.terminal import say
from ratchet.jobs.reporting.text import nearest, spellings
from ratchet.jobs.run.serving import ConfigFile, TableRequestHandler
from ratchet.jobs.topology.discover import DiscoveredTable, look
from ratchet.jobs.topology.reshard import locate
from ratchet.merge.lostparts import refuse_lost
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import Lease, is_alive, read_holder
from ratchet.store.requests import Kind, Refusal, Request, Requests
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState

T = TypeVar("T")

TAKEN: Final = 120.0  # seconds until a run should have taken a request; a merge step may be long
_POLL: Final = 0.5
_SERVED: Final = ("ratchet run ", "ratchet merge ")  # commands that do what is asked


def run_table(config: Config, kind: Kind, name: str, *, delete: bool = False, wait: bool) -> int:
    """Ask for it, or do it; print what has come of it.

    Args:
        config: as loaded.
        kind: what to do.
        name: the table, as `table` or `keyspace.table`.
        delete: drop: its files as well.
        wait: until the table streams.

    Raises:
        ConfigError: there is no such table, or the config says otherwise.
        RetryableError: the run has not taken it yet, or cannot now.
        LakeError: the lake is in use by a command that does not take requests.
    """
    lake = open_lake(config.lake, now=_now(), create=False)
    keyspace, table = _resolve(config, lake, kind, name)
    request = Request(kind=kind, keyspace=keyspace, table=table, delete=delete, asked_at=_now())
    before = Tables(lake).load(keyspace, table)
    ran = _running(lake)
    if ran:
        _ask(lake, request)
    else:
        file = ConfigFile(config)
        with Lease.acquire(lake, f"ratchet table {kind} {config.path}") as lease:
            lease.start(lambda _: None)
            noted = with_noted_spelling(config, lease.lake)
            TableRequestHandler(lease.lake, file, Selection(noted.sources)).do(request)
    state = Tables(lake).load(keyspace, table)
    there = kind == "add" and _was_there(before, state)
    if kind == "drop":
        say(f"{request.name}: dropped" + (", with its files" if delete else ""))
    elif there and state is not None:
        refuse_lost(lake, state, "table add")
        say(f"{request.name} is in the mirror already, in phase {state.phase}: nothing to do")
        if ran and wait:
            _wait_until_it_streams(lake, request)
    elif not ran:
        say(f"{request.name}: the next `ratchet run` dumps it")
    elif wait:
        _wait_until_it_streams(lake, request)
    else:
        say(f"{request.name}: the run dumps it now (`ratchet status`)")
    return 0


def _resolve(config: Config, lake: Lake, kind: Kind, name: str) -> tuple[str, str]:
    """Keyspace and table that a name stands for."""
    states = [(state.keyspace, state.table) for state in Tables(lake).list()]
    known = [(one.keyspace, one.table) for one in _look(config, lake)] if kind == "add" else states
    hits = [pair for pair in known if name in spellings(*pair)]
    if len(hits) == 1:
        return hits[0]
    if hits:
        names = ", ".join(sorted(".".join(pair) for pair in hits))
        raise ConfigError(
            f"{name} may be any of {names}",
            operation=f"table {kind}",
            hint="name it with its keyspace",
        )
    if kind == "add":
        raise ConfigError(
            f"the config includes no table {name} that a server has",
            operation="table add",
            hint=f"let it match `tables` of its keyspace in {config.path}, and check its name",
        )
    if kind == "redump" and any(
        name in spellings(one.keyspace, one.table) for one in _look(config, lake)
    ):
        raise ConfigError(
            f"{name} is not in the mirror yet: its first dump has not begun",
            operation="table redump",
            hint="a run dumps it by itself",
        )
    raise ConfigError(
        f"there is no table {name} in the mirror",
        operation=f"table {kind}",
        hint=nearest(
            name,
            [name for pair in known for name in (pair[1], ".".join(pair))],
            "`ratchet status` lists them",
        ),
    )


def _look(config: Config, lake: Lake) -> list[DiscoveredTable]:
    located = with_spelling(locate(config, lake, RoundLog(lake), now=_now()).config)
    return look(located.sources, source_configs(located))


def _running(lake: Lake) -> bool:
    """Whether a run has the lease that does what is asked."""
    holder = read_holder(lake)
    if holder is None or is_alive(holder) is False:
        return False  # on another machine: its answer tells, or that there is none
    if not f"{holder.command} ".startswith(_SERVED):
        raise LakeError(
            f"the lake is in use by {holder.describe()}, which takes no requests",
            operation="change the tables",
            hint="wait until it has ended",
        )
    return True


def _ask(lake: Lake, request: Request) -> None:
    requests, holder = Requests(lake), read_holder(lake)
    requests.ask(request)
    say(f"{request.name}: asked; the run takes it between two merges", flush=True)
    answer = _poll(lambda: None if (a := requests.answer(request)) == "waiting" else a, TAKEN)
    if answer is None:
        raise RetryableError(
            f"the run has not taken the request for {request.name} within {TAKEN:.0f} s"
            + (f" ({holder.last_sign})" if holder and is_alive(holder) is None else ""),
            operation=f"table {request.kind}",
            hint="the request stays: this run or the next one carries it out",
        )
    if isinstance(answer, Refusal):
        requests.take_back(request)
        raise _refused(request, answer)


def _refused(request: Request, refusal: Refusal) -> RatchetError:
    kind = RetryableError if refusal.passes else ConfigError
    return kind(refusal.message, operation=f"table {request.kind}", hint=refusal.hint)


def _was_there(before: TableState | None, after: TableState | None) -> bool:
    """Whether a table was in the mirror before it was added.

    Its phase does not tell: the run may have begun its dump, and ended it, by the time we look. And
    a table that the config left out for a while has a state from before, but is dumped anew.
    """
    if before is None or after is None or "new" in {before.phase, after.phase}:
        return False
    return before.dump is None or (after.dump is not None and after.dump.id == before.dump.id)


def _wait_until_it_streams(lake: Lake, request: Request) -> None:
    def phase() -> str | None:
        if not _running(lake):
            raise RetryableError(
                f"the run ended before {request.name} streamed",
                operation="wait for a table",
                hint="the next run continues with it",
            )
        state = Tables(lake).load(request.keyspace, request.table)
        if state is None or state.phase not in {"streaming", "stopped"}:
            return None
        # Its step writes the cut last: only then do other commands find the table.
        if state.phase == "streaming" and not _is_shown(lake, state):
            return None
        return state.phase

    if _poll(phase, float("inf")) == "stopped":
        state = Tables(lake).load(request.keyspace, request.table)
        why = state.stopped if state else None
        raise TableStoppedError(
            why.message if why else "it is stopped",
            operation="wait for a table",
            table=request.name,
            hint=why.hint if why else "",
        )
    say(f"{request.name}: streams")


def _is_shown(lake: Lake, state: TableState) -> bool:
    cut = Cuts(lake).last()
    return cut is not None and cut.shows(state.name) and cut.round >= state.merged_round


def _poll(ask: Callable[[], T | None], seconds: float) -> T | None:
    deadline = time.monotonic() + seconds
    while (found := ask()) is None and time.monotonic() < deadline:
        time.sleep(_POLL)
    return found


def _now() -> int:
    return time.time_ns() // 1000
