"""Verification that never sleeps: every table is compared with its source, a piece at a time.

Lives here: how far a table's pass has come, and what is done about rows that differ. Does not live
here: whose turn it is (`turns`), reading and comparing a piece (`snapshot.piecewise`), whether a
row does differ (`secondlook`), tables in doubt, which come first (`doubts`).

A bite is a piece of the source (half a second of reading), or a stretch of the mirror at the end of
a pass, when rows that it has too many are looked for. What a bite takes of source and lake is paid
from a budget (`budget`); waiting costs nothing.

Invariant: a row counts as different only if two readings of it, each with a cut of the mirror that
holds what it showed, say so, and the log has no change of it in between. A pass that is over has
looked at every row of the source, and at every row of the mirror.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from ratchet.core.errors import (
    RetryableError,
    SourceUnfitError,
    TableLostError,
    TableStoppedError,
)
from ratchet.jobs.config.settings import VerifySection
from ratchet.jobs.inspect.changelog import NotYetError
from ratchet.jobs.inspect.reading import ReadOptions
from ratchet.jobs.inspect.verify import describe
from ratchet.jobs.reporting.observe import Observer, TableCompared
from ratchet.jobs.reporting.text import counted
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.jobs.watch.bites import Bites
from ratchet.jobs.watch.budget import MOST_SAVED, Budget
from ratchet.jobs.watch.doubts import how_to_mend, how_to_redump
from ratchet.jobs.watch.secondlook import NewsError, SecondLook
from ratchet.jobs.watch.subject import Subject, subject_of
from ratchet.jobs.watch.turns import Turns
from ratchet.jobs.watch.verdicts import TableVerdict, Verdicts
from ratchet.merge.lostparts import stopping_the_lost
from ratchet.snapshot.confirm import KeyConfirmation
from ratchet.snapshot.errors import ShapeChangedError
from ratchet.snapshot.records import TableDumpRequest
from ratchet.snapshot.rows import frozen_row
from ratchet.snapshot.sessions import close_sessions
from ratchet.snapshot.source_df import seen_positions
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.crashpoints import reach
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.passes import Pass, Passes
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import StopReason
from ratchet.store.tables import Tables, TableState

log: Final = logging.getLogger("ratchet.jobs.run")

LOOK_EVERY: Final = 30.0  # seconds between two looks whether a table is due
_GROUP: Final = 4_000  # keys that are read again together
_VERDICT: Final = 0.1  # seconds between two looks whether a verdict was applied
_MENDS: Final = 3  # of the rows of one piece, until the table is given up
_FIRST_PAUSE: Final = 5.0  # seconds, after a failure; doubles with each in a row
_LONGEST_PAUSE: Final = 600.0
_MOST: Final = 20_000  # rows of a table that differ: the pass ends
_EXAMPLES: Final = 100


class BackgroundVerifier:
    """Compares the tables that are due. A background task; for one thread.

    Args:
        lake: the lake.
        look: asks the servers for their tables.
        mirrors: whether the config mirrors a table.
        reading: how sources are read.
        verdicts: where verdicts go.
        settings: see VerifySection.
        observer: told of each table's comparison.
        stop: set when the run ends.
        patience: seconds that the merge may take until it has come as far as was read.
        hurry: asks for a merge, while it is waited for.
        clock: seconds, rising.
        wall: microseconds UTC.
    """

    def __init__(
        self,
        lake: Lake,
        look: Callable[[], Sequence[DiscoveredTable]],
        mirrors: Callable[[TableState], bool],
        *,
        reading: ReadOptions,
        verdicts: Verdicts,
        settings: VerifySection,
        observer: Observer,
        stop: threading.Event,
        patience: float,
        hurry: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._lake, self._look, self._mirrors = lake, look, mirrors
        self._reading, self._verdicts, self._settings = reading, verdicts, settings
        self._observer, self._stop, self._patience = observer, stop, patience
        self._clock, self._wall = clock, wall
        self._tables, self._cuts, self._log = Tables(lake), Cuts(lake), RoundLog(lake)
        self._done, self._passes = Comparisons(lake), Passes(lake)
        every = settings.every or 0.0
        self._turns = Turns(self._passes, self._done, every=every, wall=wall)
        self._looks = SecondLook(
            lake, reading, streams=self._streams, stop=stop, patience=patience, hurry=hurry,
            clock=clock,
        )  # fmt: skip
        self._table: Subject | None = None
        self._pass: Pass | None = None
        self._looked_back = False
        self._budget: Budget | None = None
        self._bites = Bites(lake, reading, self._passes, self._looks, stop=stop, clock=clock)
        self._mended: tuple[pa.Table, int] | None = None  # and how often
        self._given_up = False  # whether the table is about to be stopped
        self._found: set[str] = set()  # rows that this pass has told of
        self._failed = 0  # times in a row

    def next_bite(self) -> float:
        """Do a bit of what is due; seconds until there may be more.

        Raises:
            LakeError: the lake cannot be read or written.
        """
        if self._settings.every is None:
            return LOOK_EVERY
        try:
            rest = self._bite()
        except NewsError as news:
            log.debug("background verification: %s", news)
            self._drop()
            rest = 1.0
        except NotYetError as error:
            log.debug("background verification: %s", error)
            rest = LOOK_EVERY
        except (RetryableError, SourceUnfitError) as error:
            if self._stop.is_set():
                return LOOK_EVERY
            # It must not end a run that goes on well without it.
            rest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failed)
            self._failed += 1
            log.warning("background verification: %s; trying again in %.0f s", error, rest)
        else:
            self._failed = 0
        finally:
            close_sessions()
        return rest

    # --- whose turn it is -------------------------------------------------------------------------

    def _bite(self) -> float:
        busy = 0.0
        if self._pass is None:
            began = self._clock()
            if not self._go_on() and not self._begin():
                return LOOK_EVERY
            busy = self._clock() - began
        assert self._pass is not None  # noqa: S101 - one of them has begun
        if self._verdicts.waits(self._pass.name):
            return _VERDICT
        if self._given_up:
            assert self._table is not None  # noqa: S101 - it has a pass
            self._end(self._table, self._pass)
            return 0.0
        budget = self._paid()
        if rest := budget.rest(self._wall() / 1e6):
            return rest
        busy += self._step()
        now = self._wall()
        budget.spend(busy, now / 1e6)
        rest = budget.rest(now / 1e6)
        self._keep(now + int(rest * 1e6))
        return rest

    def _keep(self, next_at: int) -> None:
        """Save how far the pass has come.

        Not before its rows are mended, or its table is stopped: what a kill keeps from happening
        must be found again.
        """
        if self._pass is not None and not (self._mended or self._given_up):
            reach("verify.before_progress")
            self._pass = self._passes.save(replace(self._pass, next_at=next_at))

    def _paid(self) -> Budget:
        """What the budget is, with what an earlier run has left or owes."""
        if self._budget is None:
            now, share = self._wall(), self._settings.load
            since = (now - self._pass.next_at) / 1e6 if self._pass and self._pass.next_at else 0.0
            saved = min(MOST_SAVED, since * share)
            self._budget = Budget(share, now=now / 1e6, saved=saved)
        return self._budget

    def _go_on(self) -> bool:
        """Go on with the pass that an earlier run has left."""
        if self._looked_back:
            return False
        self._looked_back = True
        found = self._passes.last()
        if found is None:
            return False
        state = self._tables.load(found.keyspace, found.table)
        self._table = None if state is None or not self._streams(state) else self._prepared(state)
        same = (
            self._table is not None
            and self._table.state.dump is not None
            and self._table.state.dump.id == found.dump
            and self._table.compared.names == found.columns
            and self._table.wanted.shards == found.shards
            and self._log.first_number() <= found.begun
        )
        if not same:
            self._drop()
            return False
        log.debug("%s: its verification continues after %d rows", found.name, found.rows)
        self._pass, self._found = found, set(found.examples)
        return True

    def _begin(self) -> bool:
        """Begin a pass over the table that has waited longest, if one is due."""
        due = self._turns.due([one for one in self._tables.list() if self._streams(one)])
        if due is None:
            return False
        table = self._prepared(due)
        if table is None or table.state.dump is None:
            return False
        self._table = table
        self._pass = self._passes.begin(
            Pass(
                keyspace=due.keyspace,
                table=due.table,
                dump=table.state.dump.id,
                columns=table.compared.names,
                shards=table.wanted.shards,
                since=self._wall(),
                begun=self._log.last_number(),
            )
        )
        return True

    def _streams(self, state: TableState) -> bool:
        """Whether a table streams, and is not in doubt."""
        return state.phase == "streaming" and not state.doubts and self._mirrors(state)

    def _prepared(self, state: TableState) -> Subject | None:
        """What is the same for all of a pass; None if the table cannot be compared now."""
        found = next((one for one in self._look() if one.name == state.name), None)
        wanted = TableDumpRequest(
            keyspace=state.keyspace,
            table=state.table,
            shards=() if found is None else found.shards,
            shard_in_key=state.shard_in_key,
        )
        try:
            return subject_of(state, wanted, self._reading, self._log.streams())
        except ShapeChangedError:
            return None  # just now: what it is then is told by the log
        except TableStoppedError as error:
            self._refuse(state, wanted, error)
            return None

    def _refuse(self, state: TableState, wanted: TableDumpRequest, why: TableStoppedError) -> None:
        """Stop a table for its columns, if nothing that is merged by now explains them.

        Or for a part of it that is gone: then somebody has to look first.
        """
        shards = wanted.shards or tuple(state.dump.start if state.dump else ())
        known = [shard for shard in shards if shard in self._reading.shards]
        cut = self._looks.cut(seen_positions(self._reading.shards, known))
        self._turns.put_off(state.name)
        now = self._tables.load(state.keyspace, state.table)
        if now is not None and now == replace(state, merged_round=now.merged_round):
            stopped = StopReason(
                message=why.message,
                hint=how_to_redump(state),
                round=cut.round,
                altered=not isinstance(why, TableLostError),
            )
            self._verdicts.hand_in(
                TableVerdict(wanted=wanted, judged={}, outcome="wrong", why=stopped)
            )

    def _drop(self) -> None:
        self._passes.end()
        self._pass = self._table = self._mended = None
        self._bites.begin_again()
        self._given_up = False
        self._found.clear()

    # --- one bite ---------------------------------------------------------------------------------

    def _step(self) -> float:
        """A bite of the pass; seconds that it took of source and lake."""
        table, progress = self._table, self._pass
        assert table is not None and progress is not None  # noqa: S101, PT018 - see _bite
        found, mended = set(self._found), self._mended
        try:
            return self._tried(table, progress)
        except NewsError:
            raise
        except BaseException:
            # The bite is done again: what it has found and not acted upon must be found again.
            self._table, self._pass, self._found, self._mended = table, progress, found, mended
            self._given_up = False
            self._bites.begin_again()
            raise

    def _tried(self, table: Subject, progress: Pass) -> float:
        try:
            with stopping_the_lost(self._lake, table.state):
                if self._mended is not None:
                    return self._look_at_mended(table, *self._mended)
                return self._bitten(table, progress)
        except ShapeChangedError as error:
            raise NewsError(error.message) from error
        except TableStoppedError as error:
            self._refuse(table.state, table.wanted, error)
            raise NewsError(error.message) from error

    def _bitten(self, table: Subject, progress: Pass) -> float:
        bite = self._bites.next(table, progress)
        self._pass = bite.progress
        seconds = bite.seconds + self._judged(table, bite.odd)
        if bite.last:
            self._over(table)
        return seconds

    def _over(self, table: Subject) -> None:
        """The pass has looked at everything; unless what it found is still to be done, it ends."""
        if self._pass is not None and not (self._mended or self._given_up):
            self._end(table, self._pass)

    def _end(self, table: Subject, progress: Pass) -> None:
        now, cut = self._wall(), self._looks.cut({})
        moving, wrong = progress.unsettled, progress.differences
        self._done.save(
            Comparison(
                keyspace=progress.keyspace,
                table=progress.table,
                dump=progress.dump,
                since=progress.since,
                until=now,
                round=cut.round,
                positions={
                    shard: str(cut.shards[shard].position.executed)
                    for shard in progress.shards
                    if shard in cut.shards
                },
                rows=progress.rows,
                differences=wrong,
                unsettled=moving,
                kinds=progress.kinds,
                examples=progress.examples,
                repaired=progress.repaired,
            )
        )
        self._turns.put_off(progress.name)
        self._observer(
            TableCompared(
                table=table.state.name,
                why="",
                rows=progress.rows,
                differences=wrong,
                unsettled=moving,
                found=_shown(progress),
                seconds=round((now - progress.since) / 1e6, 3),
            )
        )
        self._drop()

    # --- rows that seem to differ -----------------------------------------------------------------

    def _judged(self, table: Subject, keys: pa.Table) -> float:
        """Look at some keys again, and do what is to be done; seconds that it took."""
        began, waited = self._clock(), 0.0
        wrong: list[KeyConfirmation] = []
        assert self._pass is not None  # noqa: S101 - see _step
        for at in range(0, keys.num_rows, _GROUP):
            looked = self._looks.at(table, keys.slice(at, _GROUP))
            wrong, waited = [*wrong, *looked.wrong], waited + looked.waited
            self._pass = replace(self._pass, unsettled=self._pass.unsettled + looked.moving)
            if len(wrong) >= _MOST:
                break
        busy = self._clock() - began - waited
        # A row under a wrong shard's name is missing on one shard, and too much on the other.
        news = {describe(one): one for one in wrong if describe(one) not in self._found}
        self._found |= news.keys()
        # An earlier run had them mended, and ended: those that are right by now are its work.
        repaired = max(0, self._pass.mending - len(news))
        self._pass = replace(self._pass, repaired=self._pass.repaired + repaired, mending=0)
        if news:
            self._act(table, list(news.values()))
        return busy

    def _act(self, table: Subject, wrong: Sequence[KeyConfirmation]) -> None:
        progress = self._pass
        assert progress is not None  # noqa: S101 - see _judged
        if self._settings.on_difference == "repair" and len(wrong) < _MOST:
            self._mend(table, wrong, times=1)
            return
        kinds = Counter(progress.kinds) + Counter(str(one.kind) for one in wrong)
        examples = (*progress.examples, *(describe(one) for one in wrong))
        self._pass = progress = replace(
            progress,
            differences=progress.differences + len(wrong),
            kinds=dict(kinds),
            examples=examples[:_EXAMPLES],
        )
        if self._settings.on_difference != "tell":
            self._give_up(table, progress)
        elif progress.differences >= _MOST:
            self._end(table, progress)

    def _mend(self, table: Subject, wrong: Sequence[KeyConfirmation], *, times: int) -> None:
        types = pa.schema([table.compared.printer.types.field(n) for n in table.compared.key])
        rows = {frozen_row(one.key, types.names): dict(one.key) for one in wrong}
        self._mended = pa.Table.from_pylist(list(rows.values()), schema=types), times
        if (last := self._passes.last()) is not None and self._pass is not None:
            # Where the run ends once it is done, the next one finds nothing wrong.
            last = replace(last, repaired=self._pass.repaired, mending=len(rows))
            self._passes.save(last)
        places = tuple((one.shard, one.key) for one in wrong)
        self._verdicts.hand_in(
            TableVerdict(wanted=table.wanted, judged={}, outcome="mend", places=places)
        )

    def _look_at_mended(self, table: Subject, keys: pa.Table, times: int) -> float:
        """Whether the rows that were mended are right now."""
        assert self._pass is not None  # noqa: S101 - see _step
        began = self._clock()
        looked = self._looks.at(table, keys)
        wrong, moving = looked.wrong, looked.moving
        self._mended = None
        repaired = keys.num_rows - len(wrong) - moving
        self._pass = replace(
            self._pass,
            repaired=self._pass.repaired + repaired,
            unsettled=self._pass.unsettled + moving,
        )
        log.info("%s: corrected %s that differed", table.state.name, counted(repaired, "row"))
        if wrong and times < _MENDS:
            self._mend(table, wrong, times=times + 1)
        elif wrong:
            kinds = dict(Counter(str(one.kind) for one in wrong))
            examples = tuple(describe(one) for one in wrong[:_EXAMPLES])
            self._pass = replace(self._pass, differences=len(wrong), kinds=kinds, examples=examples)
            self._give_up(table, self._pass)
        return self._clock() - began - looked.waited

    def _give_up(self, table: Subject, progress: Pass) -> None:
        """Stop the table."""
        cut, self._given_up = self._looks.cut({}), True
        self._verdicts.hand_in(
            TableVerdict(
                wanted=table.wanted,
                judged={},
                outcome="wrong",
                why=StopReason(
                    message=f"its rows differ from the source: {_shown(progress)}",
                    hint=how_to_mend(table.state),
                    round=cut.round,
                    differs=True,
                ),
            )
        )


def _shown(progress: Pass) -> str:
    """What differs, in a line for people."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(progress.kinds.items()))
    some = "; ".join(progress.examples[:3])
    return f"{counted(progress.differences, 'row')} ({kinds}): {some}"
