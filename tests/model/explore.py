"""Walks through everything that can happen to one mirrored table, and checks each version of it.

A state is what lies in the lake plus what is left to happen. From each state all next steps are
taken: a chunk read at any moment with any floor; a cut of the rounds anywhere; each of the commits
of a step; a kill between two commits, after which the same rounds or more are merged; a round that
is merged once more; a stretch of one shard's log that is delivered again out of turn. States met
before are not walked again, but the interleavings that lead through them are counted.

Capture has no step of its own: a round is committed whole or not at all, so all there is to its
order and to its kills is where a round may end, and that is everywhere.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ratchet.core.change import FLOOR_IDX
from ratchet.merge.ancestry import LAST_SEQ
from tests.model import reference
from tests.model.reference import Batch, Key, Mark, Mirror, Place, RankParts, Register
from tests.model.world import World

Ends = tuple[int, ...]  # per shard how many transactions


class State(NamedTuple):
    """A moment. Frozen and hashable: equal states have the same future.

    Attributes:
        phase: what the next commit is: dump, noted, raw, settling (the four commits of a catch-up)
            or stream, side_done (a streaming table's two).
        chunks: floor and moment of each chunk read so far; forgotten after the catch-up.
        main: the table's rows.
        side: tombstones and hidden rows.
        marks: truncations.
        merged: what the table holds.
        target: what the step under way brings.
        begun: what a killed step had begun to bring.
        kills: how many are left.
        repeats: how many deliveries out of turn are left.
        seen: of each key the newest write that was ever shown; kept where writes have one order.
    """

    phase: str
    chunks: tuple[tuple[int, int], ...]
    main: frozenset[tuple[Place, Register]]
    side: frozenset[tuple[Place, Register]]
    marks: frozenset[tuple[str, Mark]]
    merged: Ends
    target: Ends
    begun: Ends
    kills: int
    repeats: int
    seen: frozenset[tuple[Key, int]] = frozenset()

    @property
    def mirror(self) -> Mirror:
        """The lake as the reference knows it."""
        return Mirror(dict(self.main), dict(self.side), dict(self.marks))

    def holding(self, mirror: Mirror) -> State:
        """The same with another lake."""
        return self._replace(
            main=frozenset(mirror.main.items()),
            side=frozenset(mirror.side.items()),
            marks=frozenset(mirror.marks.items()),
        )


@dataclass
class Figures:
    """What a walk saw.

    Attributes:
        states: different states.
        steps: steps from one state to the next, each checked.
        interleavings: different ways from the beginning to an end.
    """

    states: int = 0
    steps: int = 0
    interleavings: int = 0


@dataclass(frozen=True)
class Rules:
    """The rules of the algorithm that can be broken on purpose, to see that the walk finds out.

    Attributes:
        timestamps_first: the later commit time wins, instead of the rank.
        floor_by_number: a floor's rank is its cardinality, instead of what it contains.
        tombstones: deletes are remembered.
        side_first: the side table is committed before the mirrored one.
        shards_apart: a delete removes the row of its own shard only.
        wait_for_end: the catch-up goes on until it holds all that any chunk has seen.
        descent: a change ends what the shards that its own descends from said of its keys.
    """

    timestamps_first: bool = False
    floor_by_number: bool = False
    tombstones: bool = True
    side_first: bool = True
    shards_apart: bool = True
    wait_for_end: bool = True
    descent: bool = True


class WrongError(AssertionError):
    """A version of the table that must not be."""


@dataclass
class Walk:
    """One walk through a world.

    Attributes:
        world: the source.
        rules: those that hold.
        kills: how many kills there may be on one way.
        repeats: how many deliveries out of turn.
        late: whether a round may hold a shard's writes, but not another's that came before them.
    """

    world: World
    rules: Rules = field(default_factory=Rules)
    kills: int = 1
    repeats: int = 1
    late: bool = True
    figures: Figures = field(default_factory=Figures)

    def run(self) -> Figures:
        """Walk everywhere.

        Raises:
            WrongError: a version of the table, or an end, is not what it must be.
        """
        sys.setrecursionlimit(10_000)
        zero = (0,) * len(self.world.logs)
        nothing = State(
            phase="dump",
            chunks=(),
            main=frozenset(),
            side=frozenset(),
            marks=frozenset(),
            merged=zero,
            target=zero,
            begun=zero,
            kills=self.kills,
            repeats=self.repeats,
        )
        ways: dict[State, int] = {}
        self.figures.interleavings = self._ways(nothing, ways)
        self.figures.states = len(ways)
        return self.figures

    def _ways(self, state: State, known: dict[State, int]) -> int:
        found = known.get(state)
        if found is None:
            nexts = list(self._next(state))
            self.figures.steps += len(nexts)
            if not nexts:  # an end: its version was checked when it was made
                most = tuple(len(log.transactions) for log in self.world.logs)
                assert (state.phase, state.merged) == ("stream", most), state
            found = sum(self._ways(after, known) for after in nexts) or 1
            known[state] = found
        return found

    def _next(self, state: State) -> Iterator[State]:
        steps: dict[str, Callable[[State], Iterator[State]]] = {
            "dump": self._dump,
            "noted": self._noted,
            "raw": self._raw,
            "settling": self._settling,
            "stream": self._stream,
            "side_done": self._side_done,
        }
        return steps[state.phase](state)

    # --- the dump and its catch-up

    def _dump(self, state: State) -> Iterator[State]:
        number = len(state.chunks)
        if number == len(self.world.chunks):
            yield from self._begin_catch_up(state)
            return
        shard, keys = self.world.chunks[number]
        log = self.world.logs[shard]
        for moment in self._moments(shard):
            for floor in range(moment + 1):
                rows = log.chunk(keys, floor, moment, number).registers
                if self.rules.timestamps_first:
                    rows = {place: _by_time(row) for place, row in rows.items()}
                main = {**dict(state.main), **rows}
                read = state._replace(chunks=(*state.chunks, (floor, moment)))
                yield read.holding(Mirror(main))

    def _begin_catch_up(self, state: State) -> Iterator[State]:
        """The side table's commit, for every cut that holds what the chunks have seen."""
        seen = [0] * len(self.world.logs)
        if self.rules.wait_for_end:
            for (shard, _), (_, moment) in zip(self.world.chunks, state.chunks, strict=True):
                seen[shard] = max(seen[shard], self.world.logs[shard].holding[moment])
        zero = (0,) * len(seen)
        for cut in self._cuts(zero, tuple(map(max, seen, state.begun))):
            batch = self._batch(zero, cut)
            mirror = state.mirror
            noted = self._side(mirror, batch, contested=False)
            yield state._replace(phase="noted", target=cut).holding(noted)

    def _noted(self, state: State) -> Iterator[State]:
        batch = self._batch((0,) * len(state.target), state.target)
        mirror = reference.catch_up_main(state.mirror, batch, self._floors(state.chunks))
        if self.world.contested:
            yield state._replace(phase="raw").holding(mirror)
        else:
            yield self._streaming(state, mirror)
        yield from self._killed(state, "dump")

    def _raw(self, state: State) -> Iterator[State]:
        """Doubled keys: the side table's commit."""
        yield state._replace(phase="settling").holding(
            reference.side_commit(state.mirror, Batch(), contested=True)
        )
        if state.kills:  # its transaction version says that the merge is made; this is not
            yield state._replace(kills=state.kills - 1)

    def _settling(self, state: State) -> Iterator[State]:
        """Doubled keys: the mirrored table's commit."""
        settled = reference.main_commit(state.mirror, Batch(), contested=True)
        yield self._streaming(state, settled)
        yield from self._killed(state.holding(settled), "dump")
        if state.kills:
            yield state._replace(phase="raw", kills=state.kills - 1)

    def _streaming(self, state: State, mirror: Mirror) -> State:
        zero = (0,) * len(state.target)
        after = state._replace(
            phase="stream", chunks=(), merged=state.target, target=zero, begun=zero
        )
        return self._version(after, mirror, after.merged)

    # --- streaming

    def _stream(self, state: State) -> Iterator[State]:
        least = tuple(map(max, state.merged, state.begun))
        for cut in self._cuts(state.merged, least):
            if cut != state.merged:
                yield from self._begin_step(state, self._batch(state.merged, cut), cut)
        if state.repeats and least == state.merged:  # after a kill its step comes first
            left = state._replace(repeats=state.repeats - 1)
            for batch in self._again(state.merged):
                mirror = self._side(state.mirror, batch, contested=self.world.contested)
                mirror = self._main(mirror, batch)
                yield self._version(left, mirror, state.merged)

    def _begin_step(self, state: State, batch: Batch, cut: Ends) -> Iterator[State]:
        begun, mirror = state._replace(phase="side_done", target=cut), state.mirror
        if self.rules.side_first:
            yield begun.holding(self._side(mirror, batch, contested=self.world.contested))
        else:
            yield self._version(begun, self._main(mirror, batch), cut)

    def _side_done(self, state: State) -> Iterator[State]:
        batch = self._batch(state.merged, state.target)
        zero = (0,) * len(state.target)
        after = state._replace(phase="stream", merged=state.target, target=zero, begun=zero)
        if self.rules.side_first:
            mirror = self._main(state.mirror, batch)
        else:
            mirror = self._side(state.mirror, batch, contested=self.world.contested)
        yield self._version(after, mirror, state.target)
        if self.rules.side_first:
            yield from self._killed(state, "stream")
        elif state.kills:  # the mirrored table says that the step is made: it is not made again
            yield after._replace(kills=state.kills - 1)

    def _killed(self, state: State, phase: str) -> Iterator[State]:
        """What the commits so far wrote is there; the step is made again, or a longer one."""
        if state.kills:
            zero = (0,) * len(state.target)
            yield state._replace(
                phase=phase, begun=state.target, target=zero, kills=state.kills - 1
            )

    def _again(self, merged: Ends) -> Iterator[Batch]:
        """Stretches of a shard's log that were merged before, the whole of it among them.

        Not of one that is over: what comes from there again is left out.
        """
        for shard in self.world.live(merged):
            end = merged[shard]
            for first, last in itertools.combinations(range(end + 1), 2):
                start = [0] * len(merged)
                stop = list(start)
                start[shard], stop[shard] = first, last
                yield self._batch(tuple(start), tuple(stop))

    # --- the rules, and how to break them

    def _side(self, mirror: Mirror, batch: Batch, *, contested: bool) -> Mirror:
        after = reference.side_commit(mirror, batch, contested=contested)
        if not self.rules.tombstones:
            return replace(after, side={p: r for p, r in after.side.items() if r.row is not None})
        return after

    def _main(self, mirror: Mirror, batch: Batch) -> Mirror:
        after = reference.main_commit(mirror, batch, contested=self.world.contested)
        if not self.rules.shards_apart:
            dead = {p for p, r in batch.registers.items() if r.row is None}
            shards = {log.shard for log in self.world.logs}
            gone = {(key, other) for key, shard in dead for other in shards - {shard}}
            return replace(after, main={p: r for p, r in after.main.items() if p not in gone})
        return after

    def _batch(self, start: Ends, end: Ends) -> Batch:
        key = (start, end)
        if key not in self._batches:
            batch = self.world.batch(start, end)
            if self.rules.timestamps_first:
                batch = reference.reduced(
                    (place, _by_time(register))
                    for log, a, b in zip(self.world.logs, start, end, strict=True)
                    for said in log.registers[a:b]
                    for place, register in said
                )
            if not self.rules.descent:
                kept = {p: r for p, r in batch.registers.items() if r.rank[1] < LAST_SEQ}
                batch = replace(batch, registers=kept)
            self._batches[key] = batch
        return self._batches[key]

    def _floors(self, chunks: Sequence[tuple[int, int]]) -> dict[tuple[str, int], int]:
        floors = {}
        read = zip(self.world.chunks, chunks, strict=True)
        for number, ((shard, _), (floor, _)) in enumerate(read):
            log = self.world.logs[shard]
            seq = log.resolved[floor]
            if self.rules.floor_by_number:
                seq = log.floors[floor].cardinality
            if self.rules.timestamps_first:
                seq = log.clock[floor]
            floors[log.shard, number] = seq
        return floors

    # --- where rounds and reads may fall

    def _moments(self, shard: int) -> range:
        return range(len(self.world.logs[shard].transactions) + 1)

    def _cuts(self, start: Ends, least: Ends) -> Iterator[Ends]:
        """Where a step from `start` may end."""
        if self.late:
            most = [len(log.transactions) for log in self.world.logs]
            cuts: Iterable[Ends] = itertools.product(
                *(range(low, high + 1) for low, high in zip(least, most, strict=True))
            )
        else:
            cuts = (cut for cut in self.world.prefixes if all(map(int.__ge__, cut, least)))
        yield from (cut for cut in cuts if self.world.leads(start, cut))

    # --- what must hold in each version

    def _version(self, state: State, mirror: Mirror, ends: Ends) -> State:
        problem = wrong(self.world, mirror, ends)
        seen = dict(state.seen)
        if self.world.causal:
            for (key, _), row in mirror.main.items():
                written = self.world.written[row.row]
                if written < seen.get(key, written):
                    problem = f"{key} goes back to {row.row!r}"
                seen[key] = written
        if problem:
            raise WrongError(f"{self.world.name}, merged up to {ends}: {problem}\n{mirror}")
        return state.holding(mirror)._replace(seen=frozenset(seen.items()))

    def __post_init__(self) -> None:
        self._batches: dict[tuple[Ends, Ends], Batch] = {}


def _by_time(register: Register) -> Register:
    """With its time for its rank, as the Update Stream document would have it."""
    return register._replace(rank=(0, register.ts, register.rank[2]))


def wrong(world: World, mirror: Mirror, ends: Ends) -> str:
    """What is wrong with the table as a picture of the shards at those positions; "" if nothing.

    - A row shown is the row that its own shard has there: so no other shard's delete touched it,
      and it is none that its shard has overwritten or deleted (no row goes backwards).
    - Its rank is not below the last write of it that the positions hold.
    - Where shards stand for themselves, all their rows are shown. Where keys are contested, each
      key that any shard has is shown exactly once.
    - A row of a shard that is over is one that a live shard has, unchanged since. While only some
      of its heirs were truncated, it may be one that they had.
    """
    live = {world.logs[number].shard: (number, ends[number]) for number in world.live(ends)}
    truth = {
        (key, shard): value
        for shard, (number, end) in live.items()
        for key, value in world.logs[number].rows[end].items()
    }
    for place, row in mirror.main.items():
        lives = place[1] in live and world.logs[live[place[1]][0]].life.generation == row.rank[0]
        if not lives:
            held = {truth.get((place[0], shard)) for shard in live}
            if row.row not in held and not (held == {None} and half_truncated(world, ends)):
                return f"{place} is shown as {row.row!r}; the live shards have {held}"
            continue
        if truth.get(place) != row.row:
            return f"{place} is shown as {row.row!r}; its shard has {truth.get(place)!r}"
        if row.rank < last_write(world, place, ends) and row.rank[2] < FLOOR_IDX:
            return f"{place} is shown at {row.rank}, written later"
    if not world.contested:
        missing = truth.keys() - mirror.main.keys()
        return f"not shown: {sorted(map(str, missing))}" if missing else ""
    keys = [key for key, _ in mirror.main]
    if len(set(keys)) != len(keys):
        return "a key is shown twice"
    missing_keys = {key for key, _ in truth} - set(keys)
    return f"not shown: {missing_keys}" if missing_keys else ""


def half_truncated(world: World, ends: Ends) -> bool:
    """Whether some live shards that descend from others were truncated, and some were not."""
    heirs = [number for number in world.live(ends) if world.ancestors[number]]
    done = [
        any(not tx.changes for tx in world.logs[number].transactions[: ends[number]])
        for number in heirs
    ]
    return any(done) and not all(done)


def last_write(world: World, place: Place, ends: Ends) -> RankParts:
    """The rank of the last change of a key that a shard's log has before its end."""
    for log, end in reversed(list(zip(world.logs, ends, strict=True))):
        if log.shard == place[1]:
            for said in reversed(log.registers[:end]):
                found: list[RankParts] = [
                    register.rank for where, register in said if where == place
                ]
                if found:
                    return max(found)
    return (0, 0, 0)
