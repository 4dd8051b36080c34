"""Mirrored tables together with what is captured and not merged yet: fresh reads.

Lives here: up to which round the tables can be shown as one moment, and a frame of each. Does not
live here: laying changes over a table (`overlay`), who asks (`jobs.inspect.sql`, a notebook).

Invariant: all frames show the same round. What a change alone does not tell (a TRUNCATE, columns
that change, a reshard, rows that foreign keys change) is left to the merge: the round before it is
the last one that is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ratchet.core.dumps import app_id
from ratchet.core.errors import RetryableError
from ratchet.core.rounds import Round
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge import plan, prune, side
from ratchet.merge.ancestry import Ancestry
from ratchet.merge.cascades.concern import concerned
from ratchet.merge.cascades.graph import read_graph
from ratchet.merge.cascades.reach import Reach, reach
from ratchet.merge.gather import SchemaOf, TableBacklog, gather
from ratchet.merge.overlay import overlay
from ratchet.merge.patch import Patch, patch, patched
from ratchet.merge.reduce import Mark, read_changes
from ratchet.merge.shape import Shape
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.tables import open_delta, table_version, version_in
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.schemas import get_schema
from ratchet.store.tables import Tables, TableState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOnReadLimit:
    """How far tables can be shown by their row changes alone.

    Attributes:
        round: up to this one.
        reason: what comes behind it that only the merge can bring; empty if nothing does.
    """

    round: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOnReadTables:
    """Tables as of one committed round.

    Attributes:
        round: the round; everything up to it is in the frames.
        cut: the cut that is in the Delta tables themselves.
        frames: "keyspace.table" -> its rows, with `_token`.
        reason: what keeps them from the newest round; empty if nothing does.
    """

    round: int
    cut: Cut
    frames: Mapping[str, DataFrame]
    reason: str = ""


def calm_until(
    states: Sequence[TableState],
    rounds: Iterable[Round],
    begin: int,
    schema_of: Callable[[TableState], SchemaOf],
    policy: InvalidValuePolicy,
) -> MergeOnReadLimit:
    """Up to which of these rounds all of the tables change by row changes alone. Pure.

    Args:
        states: streaming tables that stand at `begin`.
        rounds: the rounds above `begin`, in order.
        begin: the round of the cut.
        schema_of: for each table, its schemas by fingerprint.
        policy: decides about the lake's types.
    """
    at, known = begin, list(states)
    for value in rounds:
        if plan.begins_heirs(value):
            return MergeOnReadLimit(round=at, reason=f"a reshard in round {value.number}")
        for n, state in enumerate(known):
            found = gather(state, [value], schema_of(state), policy)
            if found.truncated:
                return MergeOnReadLimit(
                    round=at, reason=f"a TRUNCATE of {state.name} in round {value.number}"
                )
            if found.stopped or found.added != state.added:
                return MergeOnReadLimit(
                    round=at, reason=f"columns of {state.name} that change in round {value.number}"
                )
            known[n] = found.learned(state)
        at = value.number
    return MergeOnReadLimit(round=at)


def read_fresh(
    session: SparkSession,
    lake: Lake,
    wanted: Callable[[TableState], bool] = lambda _: True,
    policy: InvalidValuePolicy | None = None,
) -> MergeOnReadTables | None:
    """The tables at the newest round that they can be shown at; None if there is no cut yet.

    Tables that the newest cut does not show as of its moment (being dumped, stopped) are left out.
    The frames are pinned: they go on showing this round. Ask again for a newer one.

    Args:
        session: where the frames are made.
        lake: the lake.
        wanted: which tables.
        policy: decides about the lake's types; as in the run's config.

    Raises:
        LakeError: the lake cannot be read.
        RetryableError: each time that it was read the merge had gone past what can be shown.
    """
    reader = _Reader(session, lake, policy or InvalidValuePolicy())
    for _ in range(_TRIES):
        cut = Cuts(lake).last()
        if cut is None:
            return None
        found = reader.read(cut, wanted)
        after = Cuts(lake).last()
        # Upkeep may have removed from the side tables what is over at the cut of now: over in the
        # frames as well, if they show all that this cut does.
        if after is not None and after.round <= found.round:
            return found
    raise RetryableError(
        "the merge went on meanwhile, each time",
        operation="read tables fresh",
        hint="ask again",
    )


class _Reader:
    def __init__(self, session: SparkSession, lake: Lake, policy: InvalidValuePolicy) -> None:
        self._session, self._lake, self._policy = session, lake, policy

    def read(self, cut: Cut, wanted: Callable[[TableState], bool]) -> MergeOnReadTables:
        states = [s for s in Tables(self._lake).list() if wanted(s) and self._is_shown(s, cut)]
        tables = {one.name: self._version(one.path, cut.tables[one.name]) for one in states}
        log = RoundLog(self._lake)
        rounds = log.since(cut.round)
        ahead = [s.name for s in states if not _fits(s, tables[s.name])]
        if ahead:  # a step that is under way has added columns
            calm = MergeOnReadLimit(
                round=cut.round, reason=f"columns of {ahead[0]} that are being added"
            )
        else:
            calm = calm_until(states, rounds, cut.round, self._schemas, self._policy)
        calm = self._before_cascades(calm, cut, rounds, states)
        rounds = [one for one in rounds if one.number <= calm.round]
        streams = log.streams_at(calm.round) if rounds else {}
        frames = {
            one.name: self._frame(cut, one, tables[one.name], rounds, Ancestry.of(one, streams))
            for one in states
        }
        return MergeOnReadTables(round=calm.round, cut=cut, frames=frames, reason=calm.reason)

    def _before_cascades(
        self,
        calm: MergeOnReadLimit,
        cut: Cut,
        rounds: Sequence[Round],
        states: Sequence[TableState],
    ) -> MergeOnReadLimit:
        """Up to where no foreign key has changed rows of the tables: only the merge follows those.

        Those rows are in no change file, and to find them takes a look at all rows of a table.
        """
        if not any(state.foreign_keys for state in states):
            return calm
        graph, shown = read_graph(self._lake, Tables(self._lake).list()), {s.name for s in states}
        above = {name: graph.above(name) for name in shown}
        at = cut.round
        for value in rounds:
            if value.number > calm.round:
                break
            for event in value.events:
                name = f"{event.keyspace}.{event.table}"
                below = [one for one in shown if name in above[one]]
                if below and reach(event) >= Reach.ROWS:
                    reason = f"a statement about {name}, on which {min(below)} depends"
                    return MergeOnReadLimit(round=at, reason=f"{reason}, in round {value.number}")
            found = concerned(self._lake, self._policy, graph, value.files)
            for name in sorted(shown & found.keys()):
                reason = (
                    f"rows of {name} that follow those of {found[name]} by foreign keys in round "
                    f"{value.number}"
                )
                return MergeOnReadLimit(round=at, reason=reason)
            at = value.number
        return calm

    def _frame(
        self,
        cut: Cut,
        state: TableState,
        table: DataFrame,
        rounds: Sequence[Round],
        ancestry: Ancestry,
    ) -> DataFrame:
        found = gather(state, rounds, self._schemas(state), self._policy)
        if found.is_empty:
            return table
        shape = plan.shape_of(state, self._policy, ancestry)
        files = [file.path for file in found.files]
        quick = None if ancestry else self._patch(cut, state, found, shape)
        if quick is not None:
            return patched(self._session, table, quick, shape)
        version = table_version(self._lake, state.side_path)
        registers = None
        marks: Mapping[str, Mark] = {}
        if version is not None:
            # Of what a step that is under way has appended, the changes tell as well.
            kept = self._version(state.side_path, version).where(f"round <= {cut.round}")
            stats = side.read_stats(self._session, kept)
            if stats.may_matter(found.lowest) or (shape.contested and stats.shadows):
                registers = side.registers(self._session, kept, shape)
                marks = side.read_marks(self._session, kept)
        return overlay(
            self._session,
            table,
            read_changes(self._session, self._lake, files, shape),
            shape,
            side=registers,
            marks=marks,
            ancestry=ancestry,
            prune=prune.condition(prune.key_ranges(self._lake, files, shape), shape),
        )

    def _patch(
        self, cut: Cut, state: TableState, found: TableBacklog, shape: Shape
    ) -> Patch | None:
        merged = {s: (one.generation, one.position.seq) for s, one in cut.shards.items()}
        return patch(
            self._lake,
            shape,
            found.files,
            lowest=found.lowest,
            merged=merged,
            table=(state.path, cut.tables[state.name]),
            side_path=state.side_path,
        )

    def _is_shown(self, state: TableState, cut: Cut) -> bool:
        """Whether the cut's version of the table is of its dump of now, and of the cut's moment."""
        if state.phase != "streaming" or state.dump is None or not cut.shows(state.name):
            return False
        table = open_delta(self._lake, state.path, cut.tables[state.name])
        return table is not None and version_in(table, app_id(state.dump.id)) is not None

    def _version(self, path: str, version: int) -> DataFrame:
        reader = self._session.read.format("delta").option("versionAsOf", version)
        return reader.load(self._lake.hadoop_uri(path))

    def _schemas(self, state: TableState) -> SchemaOf:
        return lambda fingerprint: get_schema(self._lake, state.keyspace, state.table, fingerprint)


def _fits(state: TableState, table: DataFrame) -> bool:
    """Whether a version of the table has the columns that the state tells of."""
    return {column.name for column in state.whole.columns} <= set(table.columns)
