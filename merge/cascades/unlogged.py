"""Adds to a step's work what foreign keys did by it, which is in no log.

Lives here: `Unlogged`: what is to be known of the tables for that, and the files that it makes.
Does not live here: what follows from what (`step`), merging it (`merge.rounds`).

Invariant: that a row was written unchecked is noted before the round that holds it is merged.
"""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.core.errors import TableFileError
from ratchet.core.rounds import Round
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge import floors, plan
from ratchet.merge.ancestry import Ancestry
from ratchet.merge.cascades.graph import KeyGraph, read_graph
from ratchet.merge.cascades.openparents import unchecked_writes
from ratchet.merge.cascades.step import Cascades, Child
from ratchet.merge.patch import may_have_shadows
from ratchet.merge.plan import app_id
from ratchet.merge.progress import Progress
from ratchet.merge.step import Step, TableTask
from ratchet.store.cuts import Cut
from ratchet.store.delta.log import TableFiles, replay, replay_to
from ratchet.store.files import Lake
from ratchet.store.tables import TableState
from ratchet.store.unchecked import note_unchecked, read_unchecked


class Unlogged:
    """What foreign keys did unlogged in the tables of one lake."""

    def __init__(self, lake: Lake, policy: InvalidValuePolicy, progress: Progress) -> None:
        """Begin.

        Args:
            lake: the lake.
            policy: see MergeOptions.
            progress: how far the tables are.
        """
        self._lake = lake
        self._policy = policy
        self._progress = progress
        self._keys = KeyGraph.of(())
        self._unchecked: dict[tuple[str, str], int] | None = None  # as noted; None: not read yet
        self._derived: list[str] = []  # files of what followed by foreign keys in this step

    def look_at(self, states: Sequence[TableState]) -> None:
        """Read the foreign keys of the tables there are."""
        self._keys = read_graph(self._lake, states)

    def above(self, table: str) -> frozenset[str]:
        """See KeyGraph.above."""
        return self._keys.above(table)

    def delete_files(self) -> None:
        """Delete what was made for a step, which is over."""
        for path in self._derived:
            self._lake.delete(path)
        self._derived = []

    def add(
        self,
        step: Step,
        works: Sequence[TableTask],
        rounds: Sequence[Round],
        states: Sequence[TableState],
    ) -> None:
        """Add to what the rounds hold what foreign keys did by it, which is in no log."""
        by_name = {work.state.name: work for work in works}

        def child(state: TableState) -> Child | None:
            work = by_name.get(state.name)
            return None if work is None else self._child(step, work)

        self._note_unchecked(rounds)
        found = Cascades(
            lake=self._lake,
            policy=self._policy,
            states=states,
            keys=self._keys,
            rounds=rounds,
            round=step.round,
            child=child,
            unchecked=self._unchecked or {},
        ).found()
        for name, one in found.items():
            by_name[name].found.add(one, step.streams)
            self._derived += [file.path for file in one.files]

    def _note_unchecked(self, rounds: Sequence[Round]) -> None:
        """Before what they hold is merged: a later step may have the parents' changes."""
        if self._unchecked is None:
            self._unchecked = read_unchecked(self._lake)
        if news := unchecked_writes(rounds, self._unchecked):
            self._unchecked |= news
            note_unchecked(self._lake, self._unchecked)

    def _child(self, step: Step, work: TableTask) -> Child:
        """A table as it was before the step, with what is known of its foreign keys' rows."""
        state, before = work.found.learned(work.state), step.before
        base = before.round if before else 0
        shape = plan.shape_of(state, self._policy, Ancestry.of(state, step.streams))
        shown = before is not None and before.shows(state.name)
        unclear, table = "", None
        begin = work.rounds[0].number - 1 if work.rounds else step.round
        if Ancestry.of(state, step.streams):
            unclear = "its shards were resharded"
        elif work.found.stopped:
            unclear = "it stops"
        elif shape.contested and may_have_shadows(self._lake, state.side_path):
            unclear = "its shards have rows of the same key"
        elif not work.catches_up and not shown:
            unclear = "a merge of it was interrupted"
        else:
            table, unclear = self._as_before(state, before, catches_up=work.catches_up)
        return Child(
            state=state,
            begin=begin if work.catches_up else base,
            table=table,
            holds=begin,
            catches_up=work.catches_up,
            many_shards=shape.many_shards,
            unclear=unclear,
            floors=self._floors(work) if work.catches_up else {},
        )

    def _as_before(
        self, state: TableState, before: Cut | None, *, catches_up: bool
    ) -> tuple[TableFiles | None, str]:
        """A table's files before the step, or why they are not known."""
        base = before.round if before else 0
        try:
            if not catches_up and before and self._progress.committed(state) > base:
                table = replay_to(self._lake, state.path, before.tables[state.name])
            else:
                table = replay(self._lake, state.path, self._progress.held[app_id(state)].main)
        except TableFileError as error:
            return None, error.message  # its own merge, or the comparison, stops it
        return table, "" if table else "its history is too short"

    def _floors(self, work: TableTask) -> dict[str, list[int | None]]:
        dump = work.state.dump
        if dump is None:
            return {}
        chunks = floors.dumped_chunks(self._lake, work.state.path, dump)
        return floors.as_arrays(floors.floor_overrides(chunks, work.rounds, dump.start))
