"""What a run must not mirror, looked at all the while: sources whose log lacks changes, tables.

Lives here: `UnfitRegister`, which the loops share, and the look that fills it. Does not live here:
the rules (`fitness`, `wire.decode.unfit`), which `check` goes by too; when it is looked (`loops`).

Invariant: a table that is refused is stopped by name before the next merge step, and is not dumped
while it is refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ratchet.core.errors import RatchetError, RetryableError, SourceUnfitError
from ratchet.core.schema import TableSchema
from ratchet.core.shard import ShardId
from ratchet.core.shell import redump, shell_word
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.settings import SourceSection
from ratchet.jobs.config.sources import source_configs
from ratchet.jobs.preflight.facts import gather_log
from ratchet.jobs.preflight.fitness import judge_log, unlogged
from ratchet.jobs.preflight.restarts import Life, Start, look_at_life, note_looks
from ratchet.jobs.reporting.observe import StopReporter
from ratchet.jobs.reporting.text import how_to_exclude
from ratchet.jobs.topology.discover import look
from ratchet.store.files import Lake
from ratchet.store.stops import StopReason
from ratchet.store.tables import Tables, TableState
from ratchet.wire.connect import SourceConfig
from ratchet.wire.decode.answers import as_name, shaped
from ratchet.wire.decode.unfit import unfit_tables
from ratchet.wire.session import Session

log: Final = logging.getLogger("ratchet.jobs.run")

_FOLLOWED: Final = frozenset({"catching_up", "streaming"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfitReason:
    """Why something is not mirrored.

    Attributes:
        message: one sentence.
        mend: what an administrator does about it.
        loses: whether changes leave no trace in the log meanwhile.
        of_table: whether it is one table that is refused, and not its source.
    """

    message: str
    mend: str
    loses: bool = True
    of_table: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FitnessResult:
    """What one look has found.

    Attributes:
        sources: keyspace -> why nothing of it can be mirrored.
        tables: keyspace.table -> why that table cannot.
        lives: ShardId as text -> the start of its server, and what that may have done.
        present: ShardId as text -> the tables that its database has.
    """

    sources: Mapping[str, UnfitReason] = field(default_factory=dict)
    tables: Mapping[str, UnfitReason] = field(default_factory=dict)
    lives: Mapping[str, Life] = field(default_factory=dict)
    present: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def of(self, keyspace: str, table: str) -> UnfitReason | None:
        """Why a table is not mirrored; None if it may be."""
        return self.sources.get(keyspace) or self.tables.get(f"{keyspace}.{table}")


def look_at(
    sources: Mapping[str, SourceSection],
    configs: Mapping[ShardId, SourceConfig],
    starts: Mapping[str, Start],
    before: Mapping[str, Life],
) -> FitnessResult:
    """Ask each server what its log has; a keyspace is refused if one of its shards is.

    Shards that are read through a vtgate are not asked: their tablets look after that themselves.

    Args:
        sources: the config's.
        configs: how each shard is reached.
        starts: ShardId as text -> the start of its server that was noted last.
        before: ShardId as text -> what this run's last look has found.

    Raises:
        RetryableError: a server does not answer.
        SourceUnfitError: a server refuses us.
    """
    refused: dict[str, UnfitReason] = {}
    tables: dict[str, UnfitReason] = {}
    lives: dict[str, Life] = {}
    present: dict[str, frozenset[str]] = {}
    for shard, config in configs.items():
        if config.through_vtgate:
            continue
        matches = sources[shard.keyspace].tables.matches
        with Session.connect(config) as session:
            database = session.config.database
            facts = gather_log(session, shard=shard, database=database)
            odd = unfit_tables(
                session.query, database=database, trusts_virtual=config.trusts_virtual
            )
            named = shaped(session.query(_NAMES, (database,)), as_name)
            names = frozenset(name for (name,) in named)
            key = str(shard)
            lives[key] = look_at_life(
                session, matches, starts.get(key), before.get(key), facts.variables
            )
        failed = [one for one in judge_log(facts) if one.status == "fail"]
        if failed and shard.keyspace not in refused:
            refused[shard.keyspace] = UnfitReason(
                message="; ".join(f"{one.check}: {one.text}" for one in failed),
                mend=" ".join(one.mend for one in failed),
                loses=any(map(unlogged, failed)),
            )
        present[key] = names
        filtered = {name: facts.left_out(name) for name in names if facts.replica_filters}
        for table, reason in ({t: why for t, why in filtered.items() if why} | odd).items():
            if matches(table):
                name = f"{shard.keyspace}.{table}"
                tables[name] = UnfitReason(
                    message=reason, mend=how_to_exclude(table), of_table=True
                )
    return FitnessResult(sources=refused, tables=tables, lives=lives, present=present)


_NAMES: Final = (
    "SELECT TABLE_NAME FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = %s AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')"
)


class UnfitRegister:
    """What is refused now. For several threads.

    Args:
        look: see `look_at`; given what the last look has found of the servers.
        verdict: what was found when the run began.
    """

    def __init__(
        self, look: Callable[[Mapping[str, Life]], FitnessResult], verdict: FitnessResult
    ) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._verdict = verdict
        self._due = True  # whether nobody was stopped by it yet
        self._news: FitnessResult | None = None  # of a look since `take_news`
        self._away = False  # whether a server did not answer the last look

    def look(self) -> None:
        """Look again. A server that is away now is capture's to tell of."""
        try:
            found = self._look(self._verdict.lives)
        except RetryableError as error:
            log.debug("the sources were not looked at: %s", error)
            self._away = True
            return
        with self._lock:
            self._away = False
            self._verdict = self._news = found
            self._due = True

    def look_once_more(self) -> None:
        """Look, if that can be done, before an error of a source ends the run.

        A server may be back without its log: the next run may find it with one, and nothing in that
        tells what was written meanwhile.
        """
        try:
            self.look()
        except RatchetError as error:
            log.debug("the sources were not looked at: %s", error)

    def end(self, lake: Lake) -> None:
        """Note when servers that are away now were looked at; for the end of a run."""
        if self._away:
            with self._lock:
                lives = self._verdict.lives
            note_looks(lake, lives)

    def of(self, keyspace: str, table: str) -> UnfitReason | None:
        """Why a table is not mirrored; None if it may be."""
        with self._lock:
            return self._verdict.of(keyspace, table)

    def take_news(self) -> FitnessResult | None:
        """What a look has found since this was last asked; None if there was none."""
        with self._lock:
            news, self._news = self._news, None
        return news

    def stop(self, tables: Tables, stops: StopReporter) -> None:
        """Stop the tables that are followed and refused; for the thread that merges.

        Once for each look: a table that was being dumped then is stopped after the next one.
        """
        with self._lock:
            verdict, due, self._due = self._verdict, self._due, False
        if due and (verdict.sources or verdict.tables):
            for state in stop_refused(tables, verdict):
                if state.stopped is not None:
                    stops.tell(state.name, state.stopped.message, state.stopped.hint)


def begin_without(config: Config, tables: Tables, verdict: FitnessResult) -> Config:
    """When a run begins: stop what is refused, and leave out the sources of which that is all.

    Where only what the log shows is wrong, and no other source is there, nothing is stopped: once
    it is mended, a run goes on, and finds in the log what it did to which table.

    Raises:
        SourceUnfitError: no source is left.
    """
    left = {name: one for name, one in config.sources.items() if name not in verdict.sources}
    if not left:
        kept = {k: why for k, why in verdict.sources.items() if why.loses}
        stopped = stop_refused(tables, replace(verdict, sources=kept))
        keyspace, why = next(iter(verdict.sources.items()))
        names = sorted({shell_word(f"{state.keyspace}.*") for state in stopped})
        every = " ".join(names)
        again = f" -- then `ratchet dump CONFIG --again {every}`" if names else ""
        raise SourceUnfitError(
            f"changes of {keyspace} cannot be followed: {why.message}",
            operation="start",
            source=keyspace,
            hint=why.mend + again,
        )
    stop_refused(tables, verdict)
    shards = {}
    for keyspace, why in verdict.sources.items():
        own = replace(config, sources={keyspace: config.sources[keyspace]})
        for one in look(own.sources, source_configs(own)):
            _stop_new(tables, keyspace, one.table, why)
        shards[keyspace] = replace(config.sources[keyspace], shards={})
    return replace(config, sources={**config.sources, **shards})


def _stop_new(tables: Tables, keyspace: str, table: str, why: UnfitReason) -> None:
    """A table that is not dumped yet; once its source is mended the next run dumps it."""
    state = tables.load(keyspace, table)
    if state is None:
        schema = TableSchema(keyspace=keyspace, table=table, columns=(), key=())
        state = TableState(keyspace=keyspace, table=table, schema=schema, key=())
    if state.phase in {"new", "dumping"}:
        hint = f"{why.mend} -- then the next `ratchet run CONFIG` dumps it"
        stopped = StopReason(message=why.message, hint=hint, round=0)
        tables.save(replace(state, phase="stopped", dump=None, stopped=stopped))


def stop_refused(tables: Tables, verdict: FitnessResult) -> list[TableState]:
    """Stop what is followed and refused; gives the states of those tables."""
    found = []
    for state in tables.list():
        why = verdict.of(state.keyspace, state.table)
        if why is not None and state.phase in _FOLLOWED:
            found.append(
                tables.stop(
                    state,
                    message=why.message,
                    hint=remedy(why, state.keyspace, state.table),
                    at_round=state.merged_round + 1,
                )
            )
    return found


def remedy(why: UnfitReason, keyspace: str, table: str) -> str:
    """What to do about a table that was stopped by it."""
    name = f"{keyspace}.{table}"
    if why.of_table:
        return f"{why.mend}. Or fix that, then {redump(name)}"
    return f"{why.mend} -- then {redump(name)} dumps it again"
