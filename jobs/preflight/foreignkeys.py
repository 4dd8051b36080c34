"""The foreign keys by which servers change rows of mirrored tables: read, kept, compared.

Lives here: what becomes of a table whose keys are new, are others than before, or refer to a table
that is not mirrored. Does not live here: reading them (`wire.decode.foreignkeys`), following them
(`merge.cascades`).

Invariant: no table is merged past its dump whose keys were never read; one of which they, or those
of a table over which it hangs, were not known for a while is compared with its source.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ratchet.core.errors import RetryableError
from ratchet.core.foreignkeys import ForeignKey
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.core.shell import redump
from ratchet.jobs.config.settings import SourceSection
from ratchet.jobs.reporting.text import how_to_exclude
from ratchet.merge.cascades.graph import KeyGraph
from ratchet.snapshot.patience import RetryBudget
from ratchet.snapshot.positions import is_committed
from ratchet.store.files import Lake
from ratchet.store.keynotes import KeyNotes, note_keys, read_key_notes
from ratchet.store.stops import Doubt
from ratchet.store.tables import Tables, TableState
from ratchet.wire.decode.foreignkeys import Query, read_foreign_keys
from ratchet.wire.decode.unfit import unfit_tables
from ratchet.wire.session import Session, SourceConfig

log: Final = logging.getLogger("ratchet.jobs.run")

_FIRST_REST: Final = 5.0  # seconds until a server that did not answer is asked again; doubles
_LONGEST_REST: Final = 300.0
_PATIENCE: Final = 0.2  # seconds that a commit under way may take; else they are read once more
_NEW: Final = "its foreign keys, by which the server changes rows, were not known until now"
_OTHERS: Final = "its foreign keys have changed, and it is not known when"
_BELOW: Final = "it depends by foreign keys on {}, which is in doubt"
_ABOVE: Final = "it depends by foreign keys on {}, whose own were not known until now"
_DIFFER: Final = "its shards have different foreign keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The foreign keys of a keyspace that change rows.

    Attributes:
        by_table: child table -> its keys.
        logged: whether its servers log what they change by them.
        unfit: tables of which no change is captured, whatever the config says.
        settled: whether they are no older than what is captured: a server's log may tell of a
            statement that is not in force yet.
    """

    by_table: Mapping[str, tuple[ForeignKey, ...]]
    logged: bool
    unfit: frozenset[str] = frozenset()
    settled: bool = True


NO_RULES: Final = Rules(by_table={}, logged=False)


def read_rules(query: Query, *, database: str, trusts_virtual: bool) -> Rules:
    """One server's; `trusts_virtual` as in `unfit_tables`."""
    found = read_foreign_keys(query, database=database)
    unfit = frozenset(unfit_tables(query, database=database, trusts_virtual=trusts_virtual))
    return Rules(by_table=found.by_table, logged=found.logged, unfit=unfit)


def read_keys(
    keyspace: str,
    configs: Mapping[ShardId, SourceConfig],
    captured: Callable[[], Mapping[str, Position]] = dict,
) -> Rules:
    """Those of one keyspace.

    Args:
        keyspace: its name.
        configs: the servers, also of others.
        captured: gives the end of what is captured, by ShardId as text.

    Raises:
        RetryableError: a server does not answer.
        SourceUnfitError: a server refuses us.
    """
    found: list[Rules] = []
    ends = captured()
    mine = {shard: one for shard, one in configs.items() if shard.keyspace == keyspace}
    for shard, config in mine.items():
        end = ends.get(str(shard))
        with Session.connect(config) as session:
            settled = end is None or is_committed(session, end, patience=_PATIENCE)
            one = read_rules(
                session.query, database=config.database, trusts_virtual=config.trusts_virtual
            )
            found.append(replace(one, settled=settled))
    return together(found)


def together(shards: Sequence[Rules]) -> Rules:
    """The rules of a keyspace's shards as one: where they differ, nothing can be followed."""
    tables = {table for one in shards for table in one.by_table}
    by_table = {}
    for table in sorted(tables):
        found = {one.by_table.get(table, ()) for one in shards}
        keys = {key.name: key for own in found for key in own}
        if len(found) > 1:
            keys = {name: replace(key, unclear=_DIFFER) for name, key in keys.items()}
        by_table[table] = tuple(keys[name] for name in sorted(keys))
    return Rules(
        by_table=by_table,
        logged=all(one.logged for one in shards),
        unfit=frozenset().union(*(one.unfit for one in shards)),
        settled=all(one.settled for one in shards),
    )


def lost_parents(rules: Rules, mirrors: Callable[[str], bool]) -> dict[str, tuple[str, ForeignKey]]:
    """Tables whose rows change when those of a table do that is not captured.

    Args:
        rules: of one keyspace.
        mirrors: whether the config mirrors a table of it.

    Returns:
        Table -> that table, and the key through which it hangs on it.
    """
    found: dict[str, tuple[str, ForeignKey]] = {}
    if rules.logged:
        return found
    for table, keys in rules.by_table.items():
        for key in keys:
            captured = mirrors(key.parent) and key.parent not in rules.unfit
            if key.parent_database or not captured:
                where = f"{key.parent_database}." if key.parent_database else ""
                found.setdefault(table, (where + key.parent, key))
    more = True
    while more:
        more = False
        for table, keys in rules.by_table.items():
            for key in keys:
                if table not in found and not key.parent_database and key.parent in found:
                    found[table] = (found[key.parent][0], key)
                    more = True
    return found


class ForeignKeyWatch:
    """Keeps the tables' foreign keys up to date in the lake. For the merge's thread.

    A server that does not answer, or keeps a table locked, is asked again later: merges of all
    sources wait while one is asked.

    Args:
        lake: the lake.
        read: asks the servers of a keyspace.
        sources: the config's sources.
        last_round: number of the newest round.
        clock: seconds, rising.
    """

    def __init__(
        self,
        lake: Lake,
        read: Callable[[str], Rules],
        *,
        sources: Callable[[], Mapping[str, SourceSection]],
        last_round: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lake, self._read = lake, read
        self._tables = Tables(lake)
        self._sources, self._last_round = sources, last_round
        self._clock = clock
        self._patterns: dict[str, TablePatterns] = {}  # keyspace -> those when it was read last
        self._patience = RetryBudget(
            math.inf, first=_FIRST_REST, longest=_LONGEST_REST, clock=clock
        )
        self._rests: dict[str, float] = {}  # keyspace -> until when
        self._waiting: frozenset[str] = frozenset()

    @property
    def any_waits(self) -> bool:
        """Whether keys are still to be read: what they lead to may be missing."""
        return bool(self._waiting)

    def look(self) -> None:
        """Read them if there are tables that need it; all are compared the first time.

        And again when other tables are mirrored than before: one may have gone on which others
        hang.

        Raises:
            SourceUnfitError: a server refuses us.
        """
        patterns = {name: source.tables for name, source in self._sources().items()}
        states = [
            state
            for state in self._tables.list()
            if state.is_past_dump and self._mirrors(state.keyspace, state.table)
        ]
        there = {state.keyspace for state in states}
        unknown = {one.keyspace for one in states if one.foreign_keys is None or one.keys_stale}
        wanted = [
            name
            for name, now in patterns.items()
            if name in there and (name in unknown or self._patterns.get(name) != now)
        ]
        if not wanted:
            self._waiting = frozenset()
            return
        found = {name: rules for name in wanted if (rules := self._asked(name)) is not None}
        if found:
            refresh(self._lake, states, found, mirrors=self._mirrors, last_round=self._last_round())
        self._patterns |= {name: patterns[name] for name in found}
        self._waiting = frozenset(wanted) - found.keys()

    def _asked(self, keyspace: str) -> Rules | None:
        """The rules of a keyspace; None if its servers are not to be asked now, or do not say."""
        if self._clock() < self._rests.get(keyspace, 0.0):
            return None
        try:
            found = self._read(keyspace)
        except RetryableError as error:
            rest = self._patience.failed(keyspace, error)
            self._rests[keyspace] = self._clock() + rest
            log.warning("foreign keys of %s: %s; asking again in %.0f s", keyspace, error, rest)
            return None
        self._patience.succeeded(keyspace)
        return found

    def _mirrors(self, keyspace: str, table: str) -> bool:
        source = self._sources().get(keyspace)
        return source is not None and source.tables.matches(table)


def refresh(
    lake: Lake,
    states: Collection[TableState],
    rules: Mapping[str, Rules],
    *,
    mirrors: Callable[[str, str], bool],
    last_round: int,
) -> None:
    """Bring the lake into agreement with what the servers say.

    Args:
        lake: the lake.
        states: those of tables past their dumps.
        rules: by keyspace.
        mirrors: whether the config mirrors a table of a keyspace.
        last_round: what is not known of was changed in this round or before.
    """
    tables = Tables(lake)
    mine = [one for one in states if one.keyspace in rules and mirrors(one.keyspace, one.table)]
    now: dict[str, TableState] = {}
    doubts: dict[str, str] = {}
    for keyspace, found in rules.items():
        lost = lost_parents(found, partial(mirrors, keyspace))
        for state in (one for one in mine if one.keyspace == keyspace):
            keys = found.by_table.get(state.table, ())
            fresh = state.foreign_keys is not None and not state.keys_stale
            after = replace(state, foreign_keys=keys, keys_stale=not (fresh or found.settled))
            if state.table in lost:
                _stop(tables, after, *lost[state.table])
                continue
            now[state.name] = after
            if (why := _doubt(state, after)) and not found.logged:
                doubts[state.name] = why
    for name, why in (_doubts_below(doubts, now, rules, read_key_notes(lake)) | doubts).items():
        if name in now and now[name].phase == "streaming":
            now[name] = _in_doubt(now[name], why, last_round)
    before = {state.name: state for state in mine}
    for name, state in now.items():
        if state != before[name]:
            tables.save(state)
    note_keys(lake, {keyspace: found.by_table for keyspace, found in rules.items()})


def _doubts_below(
    doubtful: Collection[str],
    now: Mapping[str, TableState],
    rules: Mapping[str, Rules],
    noted: KeyNotes,
) -> dict[str, str]:
    """Why tables may lack what foreign keys led to over others.

    Args:
        doubtful: tables that stream and whose keys were not known for a while.
        now: tables past their dumps, with their keys of now.
        rules: by keyspace.
        noted: keys that all tables had when it was looked last.
    """
    graph = KeyGraph.of(now.values(), {name: found.by_table for name, found in rules.items()})
    reasons: dict[str, str] = {}
    for keyspace, found in rules.items():
        for table in () if found.logged else _come(noted.get(keyspace), found):
            name = f"{keyspace}.{table}"
            if name not in now or now[name].phase != "streaming" or keyspace not in noted:
                reasons[name] = _ABOVE.format(name)
    reasons |= {name: _BELOW.format(name) for name in doubtful}
    return {below: why for name, why in reasons.items() for below in graph.below(name)}


def _come(before: Mapping[str, tuple[ForeignKey, ...]] | None, found: Rules) -> list[str]:
    """Tables whose keys are others than noted; what hangs on them may lack what they led to.

    Nothing was noted by versions that did not follow keys over a table while it was dumped.
    """
    noted = before or {}
    tables = {*noted, *found.by_table}
    return sorted(one for one in tables if noted.get(one, ()) != found.by_table.get(one, ()))


def _doubt(before: TableState, after: TableState) -> str:
    """Why a table that streams may be wrong, given that its keys are these now; empty: it is not.

    One that catches up is as it was read, and what came since is still to be followed.
    """
    if before.phase != "streaming" or before.foreign_keys == after.foreign_keys:
        return ""
    if before.foreign_keys is not None:
        return _OTHERS
    return _NEW if after.foreign_keys else ""


def _in_doubt(state: TableState, why: str, last_round: int) -> TableState:
    log.warning("%s is compared with its source: %s", state.name, why)
    return state.in_doubt(Doubt(message=why, statement="", round=last_round))


def _stop(tables: Tables, state: TableState, parent: str, key: ForeignKey) -> None:
    elsewhere = "." in parent  # of another database, mirrored as another source or not
    own = parent.rpartition(".")[2] == key.parent
    through = "" if own else f" (through {key.parent})"
    why = "is in another database" if elsewhere else "is not mirrored"
    exclude = f"exclude {state.table} in `tables`"
    mirror = f"mirror {parent} too (`tables` in the config), then "
    mirror += f"{redump(state.name)}; or {exclude}"
    drop = f"foreign keys into another database are not followed: {how_to_exclude(state.table)}"
    tables.stop(
        state,
        message=f"by the foreign key {key.name} the server changes its rows when those of {parent} "
        f"change{through}, and does not log it; {parent} {why}",
        hint=drop if elsewhere else mirror,
        at_round=state.merged_round,
    )
