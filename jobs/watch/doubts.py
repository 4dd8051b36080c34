"""Tables in doubt, decided by the run itself: at once, whatever the config says of `verify.every`.

Lives here: when a doubtful table can be judged, by which way, and the verdict. Does not live here:
what puts a table in doubt (`merge.gather`), comparing (`verify`), applying a verdict (`verdicts`).

1. Where a statement can only have changed what the columns' types tell (`Doubt.by_shape`), the
   server is asked for the shape that it has now, and for what it has executed. If values are surely
   as before, and the mirror has come as far without a second statement, the doubt goes.
2. Else the whole table is compared with its source, at a cut at or behind the statement; again at
   newer ones as long as rows are without a verdict. Rows that differ are what the statement did:
   they are read again, and compared once more.

A table that is put in doubt again for the same reason as soon as it was found equal rests before it
is compared again: some tools log statements each second, and a server may not let us see where
these lead. So does one of which some rows get no verdict, time and again, beside many changes: in a
run that is to catch up it stops instead, so that the run ends.

Invariant: a doubt goes only if every row and column was found to be the same, or cannot have
changed. What cannot be decided stays in doubt.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ratchet.core.errors import TableStoppedError
from ratchet.core.patterns import exclusion
from ratchet.core.position import Position
from ratchet.core.schema import TableSchema
from ratchet.core.shell import redump, shell_word
from ratchet.jobs.inspect.changelog import NotYetError, covers
from ratchet.jobs.inspect.compared import record_of, shown
from ratchet.jobs.inspect.likeness import unlike
from ratchet.jobs.inspect.reading import ReadOptions
from ratchet.jobs.inspect.verify import Verifier, VerifyTarget, newest_at
from ratchet.jobs.reporting.observe import Observer, TableCompared
from ratchet.jobs.reporting.text import counted
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.jobs.watch.verdicts import Outcome, Place, TableVerdict, Verdicts
from ratchet.merge.ddl import key_lost, misfit, unproven
from ratchet.merge.lostparts import stopping_the_lost
from ratchet.snapshot.errors import ShapeChangedError, ShardsDifferError
from ratchet.snapshot.positions import seen_position
from ratchet.snapshot.records import TableDumpRequest
from ratchet.snapshot.sessions import close_sessions, open_session
from ratchet.snapshot.source import SourceCatalog
from ratchet.snapshot.source_df import require_all_committed, seen_positions
from ratchet.snapshot.verify import Correction, VerifyResult
from ratchet.store.comparisons import Comparisons
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.files import Lake
from ratchet.store.schemas import get_schema
from ratchet.store.stops import Doubt, StopReason
from ratchet.store.tables import Tables, TableState

log: Final = logging.getLogger("ratchet.jobs.run")

LOOK_EVERY: Final = 1.0  # seconds between two looks for tables in doubt
_TRIES: Final = 5  # comparisons of a table of which some rows stay without a verdict
_MENDS: Final = 3  # of one table, until it is given up
# Looks, LOOK_EVERY apart, that do not find a table. MySQL lists a MyISAM table not at all while an
# ALTER puts the new one in its place: one of five looks beside ALTERs in a loop.
_ABSENT: Final = 5
# Comparisons that the table's server refuses: beside an ALTER it refuses a read that had begun
# (1412), as the dump knows.
_REFUSALS: Final = 3
_LOOK_COUNTS: Final = 10.0  # seconds for which the servers' list of tables is taken as it is
MOST_MENDED: Final = 20_000  # rows that a run mends by itself
_PATIENCE: Final = 60.0  # seconds that a run with an end waits for a statement
_REST: Final = 5.0  # seconds, at least, between two comparisons for the same reason
_REST_SHARE: Final = 9  # so many times as long as the comparison took


@dataclass(frozen=True, slots=True)
class _ShapeAnswer:
    """What the servers said of a table's shape."""

    doubts: dict[str, Doubt]
    kept: bool
    seen: dict[str, Position]


@dataclass(frozen=True, slots=True)
class _Case:
    """A table as it is judged."""

    wanted: TableDumpRequest
    state: TableState
    cut: Cut


@dataclass(frozen=True, slots=True)
class _Rest:
    """A table that was found equal, and why it had been in doubt."""

    messages: frozenset[str]
    until: float


@dataclass(frozen=True, slots=True)
class _DiscoveryResult:
    """The tables that the servers had once all rounds up to this one were in the lake."""

    round: int
    made: float
    until: float
    tables: dict[str, DiscoveredTable]


@dataclass(frozen=True, slots=True)
class _OtherColumns:
    """What a table's servers had executed when it was seen to have other columns there.

    Attributes:
        doubts: why the table was in doubt then.
        mirrored: the columns that its mirror had then.
        seen: ShardId as text -> what its server had executed.
        until: when it is no longer waited for a statement, by `time.monotonic`.
    """

    doubts: dict[str, Doubt]
    mirrored: TableSchema
    seen: dict[str, Position]
    until: float


@dataclass(slots=True)
class _AttemptCount:
    """How often a table was compared."""

    doubts: dict[str, Doubt]
    round: int = 0
    unsettled: int = 0
    mended: int = 0
    refused: int = 0
    absent: int = 0
    missed: float = 0.0  # when it was not found last


class Doubts:
    """Decides about tables in doubt, one at a time. A background task; for one thread.

    Args:
        lake: the lake.
        look: asks the servers for their tables.
        mirrors: whether the config mirrors a table.
        reading: how sources are read.
        verifier: compares.
        verdicts: where verdicts go.
        ends: whether the run ends when it has caught up.
        observer: told of each comparison.
        wall: microseconds UTC.
    """

    def __init__(
        self,
        lake: Lake,
        look: Callable[[], Sequence[DiscoveredTable]],
        mirrors: Callable[[TableState], bool],
        *,
        reading: ReadOptions,
        verifier: Verifier,
        verdicts: Verdicts,
        ends: bool,
        observer: Observer,
        wall: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._lake, self._look, self._mirrors = lake, look, mirrors
        self._reading, self._verifier, self._verdicts = reading, verifier, verdicts
        self._ends, self._observer, self._wall = ends, observer, wall
        self._tables, self._cuts, self._done = Tables(lake), Cuts(lake), Comparisons(lake)
        self._asked: dict[str, _ShapeAnswer] = {}
        self._tried: dict[str, _AttemptCount] = {}
        self._rests: dict[str, _Rest] = {}
        self._other: dict[str, _OtherColumns] = {}
        self._looked: _DiscoveryResult | None = None

    def next_bite(self) -> float:
        """Decide about one table, if one can be decided; seconds until there may be another.

        Raises:
            RetryableError: a server stays away, or the run ends.
            OperatorError: the lake cannot be read, or a server refuses us.
        """
        try:
            cut = self._cuts.last()
            # Behind the cut: what it shows of a table, the state tells of.
            doubtful = [s for s in self._tables.list() if s.is_doubtful and self._mirrors(s)]
            for state in doubtful:
                if cut is not None and self._may_be_judged(state, cut) and self._judge(state, cut):
                    return 0.0
        except NotYetError as error:
            log.debug("tables in doubt: %s", error)
        finally:
            close_sessions()
        return LOOK_EVERY

    def _may_be_judged(self, state: TableState, cut: Cut) -> bool:
        rounds = [doubt.round for doubt in state.doubts.values()]
        tried = self._tried.get(state.name)
        again = tried is None or tried.doubts != state.doubts or cut.round > tried.round
        waits = self._verdicts.waits(state.name)
        # What follows by foreign keys is no difference, so they have to be known.
        known = state.foreign_keys is not None
        reached = cut.shows(state.name) and cut.round >= max(rounds)
        return reached and known and again and not waits and not self._is_resting(state)

    def _is_resting(self, state: TableState) -> bool:
        rest = self._rests.get(state.name)
        same = rest is not None and _messages(state) <= rest.messages
        return rest is not None and same and time.monotonic() < rest.until

    def _judge(self, state: TableState, cut: Cut) -> bool:
        """Whether there was anything to do."""
        # The log may tell of a statement that is not in force yet.
        shards = self._reading.shards
        known = [one for one in state.doubts if one in shards and one in cut.shards]
        require_all_committed(shards, {one: cut.shards[one].position for one in known})
        if all(doubt.by_shape for doubt in state.doubts.values()):
            asked = self._asked.get(state.name)
            if asked is None or asked.doubts != state.doubts:
                asked = self._asked[state.name] = self._ask(state)
            if asked.kept:
                if not covers({n: s.position for n, s in cut.shards.items()}, asked.seen):
                    return False  # at a newer cut
                log.info(
                    "%s: %s did not change its values, as its types show",
                    state.name,
                    _statement(state),
                )
                self._hand_in(_Case(_wanted(state, tuple(state.doubts)), state, cut), "right")
                return True
        return self._compare(state, cut)

    def _ask(self, state: TableState) -> _ShapeAnswer:
        """The shape that the servers of the doubtful shards have now, and what they have executed.

        In this order: whatever made that shape is in what they have executed then.
        """
        policy = self._reading.settings.policy
        shards = {shard: source.primary for shard, source in self._reading.shards.items()}
        catalog = SourceCatalog({s: shards[s] for s in state.doubts if s in shards})
        kept, seen = True, {}
        rebuilt = all(doubt.rebuilt for doubt in state.doubts.values())
        for shard in state.doubts:
            if shard not in shards:
                return _ShapeAnswer(state.doubts, kept=False, seen={})
            try:
                source = catalog.table(shard, state.table)
            except TableStoppedError:
                return _ShapeAnswer(state.doubts, kept=False, seen={})
            with open_session(shards[shard]) as session:
                seen[shard] = seen_position(session)
            nulls = state.nulls.get(shard, ())
            for before in self._shapes(state, shard):
                fits = misfit(state.whole, source.schema, policy, known=before, nulls=nulls) is None
                lost = key_lost(before, source.schema) or unproven(before, source.schema)
                anew = source.recomputed if rebuilt else source.generated
                kept = kept and fits and lost is None and not anew
        return _ShapeAnswer(state.doubts, kept=kept, seen=seen)

    def _shapes(self, state: TableState, shard: str) -> list[TableSchema]:
        """The shapes that a shard's table had before: as dumped, and as its rows had it last."""
        logged = state.logged.get(shard, state.schema.fingerprint)
        if logged == state.schema.fingerprint:
            return [state.schema]
        found = get_schema(self._lake, state.keyspace, state.table, logged)
        # A key by a unique index is not in the log.
        return [state.schema, found if found.key else replace(found, key=state.schema.key)]

    def _compare(self, state: TableState, cut: Cut) -> bool:
        """Compare it with its source; False if that is to be tried again, a little later."""
        found = self._find(state, cut)
        if found is not None:
            return self._compare_rows(_Case(_wanted(state, found.shards), state, cut))
        if self._may_come_back(state):
            return False
        case = _Case(_wanted(state, tuple(state.doubts)), state, cut)
        self._stop(case, "the source no longer has it", _gone(state))
        return True

    def _compare_rows(self, case: _Case) -> bool:
        state, cut = case.state, case.cut
        began, now = time.monotonic(), self._wall()
        corrections: list[Correction] = []

        def collect(one: Correction) -> None:
            if len(corrections) < MOST_MENDED:
                corrections.append(one)

        log.info("%s: comparing it with its source after %s", state.name, _statement(state))
        try:
            if why := unlike(state, case.wanted, self._reading):
                return self._other_columns(case, why, how_to_redump(state))
            with stopping_the_lost(self._lake, state):
                version = newest_at(self._lake, cut, state, cut.tables[state.name])
                chosen = VerifyTarget(state=state, version=version, wanted=case.wanted)
                result = self._verifier.once(cut, chosen, collect)
        except ShapeChangedError:
            log.info(
                "%s: its columns changed while it was compared: comparing it again", state.name
            )
            return True
        except ShardsDifferError as error:
            return self._other_columns(case, error.message, error.hint)
        except TableStoppedError as error:
            return self._refused(case, error)
        self._done.save(record_of(state, result, since=now, until=self._wall()))
        seconds = time.monotonic() - began
        self._tell(state, result, seconds)
        if result.same:
            self._rest(state, seconds)
        self._decide(case, result, corrections, seconds)
        return True

    def _other_columns(self, case: _Case, why: str, hint: str) -> bool:
        """Stop a table for its columns, to be dumped again by itself, unless the log explains them.

        Also where a statement goes from shard to shard: each minute it is tried to dump it.
        """
        if self._may_yet_come(case):
            return False
        self._stop(case, why, hint, altered=True)
        return True

    def _refused(self, case: _Case, error: TableStoppedError) -> bool:
        """Stop a table that cannot be compared, if it is not for the moment."""
        tried = self._attempts(case.state)
        tried.refused += 1
        if tried.refused < _REFUSALS:
            log.info("%s: trying again to compare it: %s", case.state.name, error.message)
            return False
        self._stop(case, error.message, error.hint or how_to_redump(case.state))
        return True

    def _may_come_back(self, state: TableState) -> bool:
        """Whether a table that was not found is looked for again before it counts as gone."""
        tried, looked = self._attempts(state), self._looked
        if looked is not None and looked.made > tried.missed:
            tried.missed, tried.absent = looked.made, tried.absent + 1
            # The next look is for all tables that this one has missed.
            self._looked = replace(looked, until=min(looked.until, looked.made + LOOK_EVERY))
        return tried.absent < _ABSENT

    def _attempts(self, state: TableState) -> _AttemptCount:
        """How often it was tried for the doubts that it has now."""
        tried = self._tried.get(state.name)
        if tried is None or tried.doubts != state.doubts:
            tried = self._tried[state.name] = _AttemptCount(state.doubts)
        return tried

    def _find(self, state: TableState, cut: Cut) -> DiscoveredTable | None:
        """The table as its servers have it, at or behind the statements that it is in doubt for.

        All tables are asked for at once: a statement, or a server's crash, may concern hundreds.
        """
        statements = max(doubt.round for doubt in state.doubts.values())
        looked = self._looked
        if looked is None or looked.round < statements or looked.until <= time.monotonic():
            found = {one.name: one for one in self._look()}
            made = time.monotonic()
            looked = self._looked = _DiscoveryResult(cut.round, made, made + _LOOK_COUNTS, found)
        return looked.tables.get(state.name)

    def _rest(self, state: TableState, seconds: float) -> None:
        until = time.monotonic() + max(_REST, _REST_SHARE * seconds)
        self._rests[state.name] = _Rest(_messages(state), until)

    def _decide(
        self,
        case: _Case,
        result: VerifyResult,
        corrections: Sequence[Correction],
        seconds: float,
    ) -> None:
        state = case.state
        tried = self._attempts(state)
        tried.round, tried.absent, tried.refused = case.cut.round, 0, 0
        if not result.columns_missing:
            self._other.pop(state.name, None)
        if result.columns_missing:
            names = ", ".join(result.columns_missing)
            why = f"the source has columns that the mirror lacks: {names}"
            if not self._may_yet_come(case):
                self._stop(case, why, how_to_redump(state), altered=True)
        elif result.differences:
            self._differs(case, tried, corrections, result)
        elif result.unsettled:
            tried.unsettled += 1
            if tried.unsettled >= _TRIES:
                self._undecided(case, tried.unsettled, result, seconds)
        else:
            self._hand_in(case, "right")

    def _may_yet_come(self, case: _Case) -> bool:
        """Whether the statement that gave the source other columns may still be in the log."""
        state, shards = case.state, self._reading.shards
        name, mirrored = state.name, state.whole
        positions = {shard: one.position for shard, one in case.cut.shards.items()}
        other = self._other.get(name)
        if other is None or (other.doubts, other.mirrored) != (state.doubts, mirrored):
            # Seen before a statement that has come since, it says nothing of those columns.
            known = [one for one in case.wanted.shards if one in shards and one in positions]
            seen = seen_positions(shards, known)
            until = time.monotonic() + _PATIENCE if self._ends else math.inf
            other = self._other[name] = _OtherColumns(state.doubts, mirrored, seen, until)
        if covers(positions, other.seen) or time.monotonic() > other.until:
            del self._other[name]
            return False
        return True

    def _undecided(self, case: _Case, tries: int, result: VerifyResult, seconds: float) -> None:
        state = case.state
        rows = "; ".join(f"{counted(n, 'row')}: {why}" for why, n in result.unsettled.items())
        if self._ends:
            why = f"after {_statement(state)} its rows cannot be compared with the source: {rows}"
            self._stop(case, why, how_to_redump(state))
            return
        self._rest(state, seconds * tries)
        log.warning("%s stays in doubt, and is compared again later: %s", state.name, rows)

    def _differs(
        self,
        case: _Case,
        tried: _AttemptCount,
        corrections: Sequence[Correction],
        result: VerifyResult,
    ) -> None:
        odd = any(correction.reason for correction in corrections)
        too_many = len(corrections) < result.differences
        if tried.mended < _MENDS and not (odd or too_many):
            tried.mended += 1
            tried.round = 0  # compared again, at the cut that the mended rows are in
            places = tuple((c.difference.shard, c.difference.key) for c in corrections)
            self._hand_in(case, "mend", places=places)
        else:
            since = _statement(case.state)
            told = f"its rows differ from the source, found after {since}: {shown(result)}"
            if tried.mended and (why := self._verdicts.why_not_mended(case.state.name)):
                told += f"; they could not be corrected: {why}"
            self._stop(case, told, how_to_mend(case.state), differs=True)

    def _stop(
        self,
        case: _Case,
        message: str,
        hint: str,
        *,
        differs: bool = False,
        altered: bool = False,
    ) -> None:
        number = case.cut.round
        why = StopReason(message=message, hint=hint, round=number, differs=differs, altered=altered)
        self._hand_in(case, "wrong", why)

    def _hand_in(
        self,
        case: _Case,
        outcome: Outcome,
        why: StopReason | None = None,
        places: Sequence[Place] = (),
    ) -> None:
        self._asked.pop(case.state.name, None)
        self._verdicts.hand_in(
            TableVerdict(
                wanted=case.wanted,
                judged=case.state.doubts,
                outcome=outcome,
                why=why,
                places=places,
            )
        )

    def _tell(self, state: TableState, result: VerifyResult, seconds: float) -> None:
        self._observer(
            TableCompared(
                table=state.name,
                why=_statement(state),
                rows=result.source_rows,
                differences=result.differences,
                unsettled=sum(result.unsettled.values()),
                found=shown(result),
                seconds=round(seconds, 3),
            )
        )


def how_to_mend(state: TableState) -> str:
    """What to do about a table whose rows differ."""
    return (
        f"stop the run and `ratchet repair CONFIG --table {shell_word(state.name)}` corrects its "
        "rows; or "
        f"{redump(state.name)} dumps it again, while the run continues"
    )


def how_to_redump(state: TableState) -> str:
    """What to do about a table whose columns are others."""
    return f"{redump(state.name)} dumps it again, while the run continues"


def _gone(state: TableState) -> str:
    return (
        f"exclude it in `tables` of the config ({exclusion(state.table)}); or create it again (if "
        "it is there, the account may not see it: `ratchet check CONFIG` names the GRANT), then "
        f"{redump(state.name)}"
    )


def _statement(state: TableState) -> str:
    """What put a table in doubt, for people."""
    said = {one.statement[:200] or one.message: None for one in state.doubts.values()}
    return " and ".join(said)


def _messages(state: TableState) -> frozenset[str]:
    return frozenset(doubt.message for doubt in state.doubts.values())


def _wanted(state: TableState, shards: Sequence[str]) -> TableDumpRequest:
    return TableDumpRequest(
        keyspace=state.keyspace,
        table=state.table,
        shards=tuple(shards),
        shard_in_key=state.shard_in_key,
    )
