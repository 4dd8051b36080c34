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
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from core.errors import RetryableError, SourceUnfitError, TableStoppedError
from core.types import arrow_schema
from jobs.budget import MOST_SAVED, Budget
from jobs.changelog import NotYetError
from jobs.discover import Found
from jobs.doubts import how_to_mend, how_to_redump
from jobs.likeness import unlike
from jobs.observe import Observer, TableCompared
from jobs.reading import Reading
from jobs.secondlook import NewsError, SecondLook, Subject
from jobs.settings import VerifySection
from jobs.text import counted
from jobs.turns import Turns
from jobs.verdicts import Verdict, Verdicts
from jobs.verify import describe
from snapshot.confirm import Finding
from snapshot.keys import KeyRange
from snapshot.piecewise import Compared, read_piece, strangers, suspects
from snapshot.prints import RowPrinter
from snapshot.reader import ShapeChangedError
from snapshot.records import Wanted
from snapshot.rows import frozen_row
from snapshot.sessions import close_sessions
from snapshot.source_df import seen_positions, source_tables
from store.comparisons import Comparison, Comparisons
from store.cuts import Cut, Cuts
from store.files import Lake
from store.passes import Pass, Passes
from store.rounds import RoundLog
from store.tables import Stopped, Tables, TableState

log: Final = logging.getLogger("jobs.run")

LOOK_EVERY: Final = 30.0  # seconds between two looks whether a table is due
PIECE_SECONDS: Final = 0.5  # of reading, in one bite
_GROUP: Final = 4_000  # keys that are read again together
_MENDS: Final = 3  # of the rows of one piece, until the table is given up
_FIRST_PAUSE: Final = 5.0  # seconds, after a failure; doubles with each in a row
_LONGEST_PAUSE: Final = 600.0
_MOST: Final = 20_000  # rows of a table that differ: the pass ends
_EXAMPLES: Final = 100
_PART: Final = 16_000_000  # marks that are held in memory


class Background:
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
        clock: seconds, rising.
        wall: microseconds UTC.
    """

    def __init__(
        self,
        lake: Lake,
        look: Callable[[], Sequence[Found]],
        mirrors: Callable[[TableState], bool],
        *,
        reading: Reading,
        verdicts: Verdicts,
        settings: VerifySection,
        observer: Observer,
        stop: threading.Event,
        patience: float,
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
            lake, reading, streams=self._streams, stop=stop, patience=patience, clock=clock
        )
        self._table: Subject | None = None
        self._pass: Pass | None = None
        self._looked_back = False
        self._budget: Budget | None = None
        self._odd: Iterator[pa.Table] | None = None
        self._mended: tuple[pa.Table, int] | None = None  # and how often
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
            return 0.5
        budget = self._paid()
        if rest := budget.rest(self._wall() / 1e6):
            return rest
        busy += self._step()
        now = self._wall()
        budget.spend(busy, now / 1e6)
        rest = budget.rest(now / 1e6)
        if self._pass is not None:
            self._pass = self._passes.save(replace(self._pass, next_at=now + int(rest * 1e6)))
        return rest

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
        log.debug("%s: its verification goes on behind %d rows", found.name, found.rows)
        self._pass = found
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
        began = state.dump.start if state.dump else {}
        wanted = Wanted(
            keyspace=state.keyspace,
            table=state.table,
            shards=tuple(began) if found is None else found.shards,
            shard_in_key=state.shard_in_key,
        )
        why = "the source does not have it any more" if found is None else ""
        seen = seen_positions(self._reading.shards, wanted.shards)
        try:
            why = why or unlike(state, wanted, self._reading)
        except TableStoppedError as error:
            why = error.message
        if why:
            self._refuse(state, wanted, self._looks.cut(seen), why)
            return None
        policy = self._reading.settings.policy
        sources, columns = source_tables(wanted, self._reading.shards, policy)
        have = arrow_schema(state.whole, policy).names
        ancestors = self._log.streams()
        return Subject(
            state=state,
            wanted=wanted,
            sources=sources,
            columns=tuple(columns.names),
            compared=Compared(
                printer=RowPrinter(
                    types=pa.schema([one for one in columns if one.name in have]), key=state.key
                ),
                lacking=tuple(name for name in columns.names if name not in have),
                homes={s: {s, *ancestors[s].ancestors} for s in wanted.shards if s in ancestors},
                shard_in_key=state.shard_in_key,
            ),
        )

    def _refuse(self, state: TableState, wanted: Wanted, cut: Cut, why: str) -> None:
        """Stop a table for its columns, if the merge knows of nothing that explains them."""
        self._turns.put_off(state.name)
        now = self._tables.load(state.keyspace, state.table)
        if now is not None and now == replace(state, merged_round=now.merged_round):
            stopped = Stopped(message=why, hint=how_to_redump(state), round=cut.round)
            self._verdicts.hand_in(Verdict(wanted=wanted, judged={}, outcome="wrong", why=stopped))

    def _drop(self) -> None:
        self._passes.end()
        self._pass = self._table = self._odd = self._mended = None
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
            self._odd = None
            raise

    def _tried(self, table: Subject, progress: Pass) -> float:
        try:
            if self._mended is not None:
                return self._look_at_mended(table, *self._mended)
            if progress.shard < len(progress.shards):
                return self._piece(table, progress)
            return self._strangers(table, progress)
        except ShapeChangedError as error:
            raise NewsError(error.message) from error
        except TableStoppedError as error:
            seen = seen_positions(self._reading.shards, table.wanted.shards)
            self._refuse(table.state, table.wanted, self._looks.cut(seen), error.message)
            raise NewsError(error.message) from error

    def _piece(self, table: Subject, progress: Pass) -> float:
        shard = progress.shards[progress.shard]
        self._reading.settings.throttle.wait(self._reading.shards[shard], self._stop)
        with tempfile.TemporaryDirectory(prefix="ratchet-piece-") as folder:
            piece = read_piece(
                table.sources[shard],
                self._reading.shards,
                shard,
                KeyRange(after=progress.after),
                compared=table.compared,
                columns=table.columns,
                settings=self._reading.settings,
                seconds=PIECE_SECONDS,
                scratch=Lake.at(folder),
            )
        cut = self._looks.cut({shard: piece.seen})
        began = self._clock()
        mirror = self._looks.mirror(table, cut)
        if piece.filled:
            names = ", ".join(piece.filled)
            why = f"the source has columns that the mirror lacks: {names}"
            self._refuse(table.state, table.wanted, cut, why)
            raise NewsError(why)
        odd = suspects(piece, mirror, table.compared)
        busy = piece.seconds + self._clock() - began
        marked = self._passes.add(progress, piece.marks)
        last = piece.rest is None
        self._pass = replace(
            marked,
            shard=progress.shard + last,
            after=None if piece.rest is None else piece.rest.after,
        )
        return busy + self._judged(table, odd)

    def _strangers(self, table: Subject, progress: Pass) -> float:
        """A stretch of the mirror, for rows that no piece had."""
        if self._odd is None:
            cut = self._looks.cut({})
            mirror = self._looks.mirror(table, cut)
            parts = 1 + progress.rows // _PART
            marks = _Marks(self._passes, progress)
            self._odd = strangers(mirror, table.compared, marks, parts=parts)
        began, found = self._clock(), []
        for keys in self._odd:
            found += [keys] if keys.num_rows else []
            if self._clock() - began >= PIECE_SECONDS or sum(map(len, found)) >= _GROUP:
                break
        else:
            busy = self._clock() - began + self._judged(table, _together(found))
            if self._pass is not None and self._mended is None:
                self._end(table, self._pass)
            return busy
        return self._clock() - began + self._judged(table, _together(found))

    def _end(self, table: Subject, progress: Pass) -> None:
        now, cut = self._wall(), self._looks.cut({})
        moving, wrong = progress.unsettled, progress.differences
        self._done.save(
            Comparison(
                keyspace=progress.keyspace,
                table=progress.table,
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

    def _judged(self, table: Subject, keys: pa.Table | None) -> float:
        """Look at some keys again, and do what is to be done; seconds that it took."""
        began, waited = self._clock(), 0.0
        wrong: list[Finding] = []
        if keys is None or self._pass is None:
            return 0.0
        for at in range(0, keys.num_rows, _GROUP):
            looked = self._looks.at(table, keys.slice(at, _GROUP))
            wrong, waited = [*wrong, *looked.wrong], waited + looked.waited
            self._pass = replace(self._pass, unsettled=self._pass.unsettled + looked.moving)
            if len(wrong) >= _MOST:
                break
        busy = self._clock() - began - waited
        # A row under a wrong shard's name is missing on one shard, and too much on the other.
        news = {_described(one): one for one in wrong if _described(one) not in self._found}
        self._found |= news.keys()
        if news:
            self._act(table, list(news.values()))
        return busy

    def _act(self, table: Subject, wrong: Sequence[Finding]) -> None:
        progress = self._pass
        assert progress is not None  # noqa: S101 - see _judged
        if self._settings.on_difference == "repair" and len(wrong) < _MOST:
            self._mend(table, wrong, times=1)
            return
        kinds = Counter(progress.kinds) + Counter(str(one.kind) for one in wrong)
        examples = (*progress.examples, *(_described(one) for one in wrong))
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

    def _mend(self, table: Subject, wrong: Sequence[Finding], *, times: int) -> None:
        places = tuple((one.shard, one.key) for one in wrong)
        self._verdicts.hand_in(
            Verdict(wanted=table.wanted, judged={}, outcome="mend", places=places)
        )
        types = pa.schema([table.compared.printer.types.field(n) for n in table.compared.key])
        rows = {frozen_row(one.key, types.names): dict(one.key) for one in wrong}
        self._mended = pa.Table.from_pylist(list(rows.values()), schema=types), times

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
        log.info("%s: %s differed and were mended", table.state.name, counted(repaired, "row"))
        if wrong and times < _MENDS:
            self._mend(table, wrong, times=times + 1)
        elif wrong:
            kinds = dict(Counter(str(one.kind) for one in wrong))
            examples = tuple(_described(one) for one in wrong[:_EXAMPLES])
            self._pass = replace(self._pass, differences=len(wrong), kinds=kinds, examples=examples)
            self._give_up(table, self._pass)
        return self._clock() - began - looked.waited

    def _give_up(self, table: Subject, progress: Pass) -> None:
        """Stop the table."""
        cut = self._looks.cut({})
        self._end(table, progress)
        self._verdicts.hand_in(
            Verdict(
                wanted=table.wanted,
                judged={},
                outcome="wrong",
                why=Stopped(
                    message=f"its rows differ from the source: {_shown(progress)}",
                    hint=how_to_mend(table.state),
                    round=cut.round,
                    differs=True,
                ),
            )
        )


class _Marks:
    """The marks of all pieces of a pass, read anew each time they are asked for."""

    def __init__(self, passes: Passes, progress: Pass) -> None:
        self._passes, self._progress = passes, progress

    def __iter__(self) -> Iterator[Any]:
        return self._passes.marks(self._progress)


def _together(tables: Sequence[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(tables) if tables else None


def _described(one: Finding) -> str:
    return describe(one)


def _shown(progress: Pass) -> str:
    """What differs, in a line for people."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(progress.kinds.items()))
    some = "; ".join(progress.examples[:3])
    return f"{counted(progress.differences, 'row')} ({kinds}): {some}"
