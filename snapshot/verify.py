"""Is the mirror what the source is? The protocol, and the verdict on each key that differs.

Lives here: the steps and the result. Does not live here: reading the source (`source_df`,
`reread`) and the mirror (`mirror`), prints (`prints`), joining (`compare`), the verdict on a key
(`judge`), capturing (a function that comes in from outside).

1. The mirror stands at a cut, and its positions say what it holds of each shard.
2. The source is scanned; it may go on changing meanwhile. Both sides are reduced to fingerprints,
   and only the keys of buckets in which these differ are looked at.
3. Keys for which mirror and scan differ are read again.
4. What changed after the cut, up to beyond that second look, settles them. For a key with changes:
   a. the row before the first change is the source's row at the cut, so it must equal the mirror's;
   b. the row read again must equal the mirror's row with the changes laid over it, up to any
      change from the read's floor on.
   A key without changes that differs is a difference. So is one that the mirror has twice.
5. Of a difference it is known what the source had at the cut: the row before the first change, or
   the row read again if there is none (`Correction`).

Invariant: a key counts as the same only if both looks agree with the mirror; where the changes
do not reach far enough to tell, the key counts as unsettled, never as the same.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ratchet.core.change import TOKEN_COLUMN
from ratchet.core.position import Position
from ratchet.snapshot.compare import TableComparison
from ratchet.snapshot.judge import KeyChange, KeyVerdict, Kind, events_of, judge, row_at_cut
from ratchet.snapshot.keychanges import Changes, changes_of_keys
from ratchet.snapshot.mirror import MirrorAt, MirrorReader
from ratchet.snapshot.pairs import NO_SHARD, Pair
from ratchet.snapshot.prints import ShardOrigins
from ratchet.snapshot.records import DumpSettings, ShardSource, TableDumpRequest
from ratchet.snapshot.reread import RereadRows, read_keys
from ratchet.snapshot.rows import Row, frozen_row, thawed_row
from ratchet.snapshot.source_df import require_all_committed, scan_source, source_tables
from ratchet.snapshot.tasks import ReadChunk
from ratchet.store.files import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMINED: Final = 1_000_000  # keys that are looked at one by one
_REPORTED: Final = 100  # differences that a result lists
_PLACE: Final = f"{TOKEN_COLUMN}.shard"  # the column named where a row stands under a wrong shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A row that is not what it should be.

    Attributes:
        key: the key's values as the lake has them.
        shard: shard of the row; empty if keys are unique over the shards.
        kind: "missing" from the mirror, "extra" in it, "changed", or "doubled": the mirror has
            more than one row of the key.
        columns: the columns that differ, if it is changed; `_token.shard` where only the name of
            the shard that the row stands under is wrong.
    """

    key: Mapping[str, Any]
    shard: str
    kind: Kind
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What a row that differs should have been at the mirror's cut.

    Attributes:
        difference: the row.
        rows: shard -> its row there, with all compared columns; None where there was none.
        reason: why that does not make the row right; empty if it does.
    """

    difference: Difference
    rows: Mapping[str, Mapping[str, Any] | None]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """The outcome for one table.

    Attributes:
        table: keyspace.table.
        round: the mirror's cut.
        positions: shard -> what the mirror holds at that cut.
        ends: shard -> the source was looked at up to here.
        source_rows: rows scanned.
        source_bytes: bytes that the sources sent of them.
        mirror_rows: rows of the mirror.
        chunks: chunks of the scan.
        columns: columns compared.
        columns_missing: columns of the source that the mirror lacks, and that are not NULL in every
            row.
        columns_empty: columns that it lacks, and that are: they come with their first value.
        columns_extra: columns of the mirror that the source lacks (not compared).
        mismatched: keys for which scan and mirror differed.
        settled: of these, keys that later changes explain.
        unsettled: of these, keys on which no verdict is possible, with the reason.
        differences: rows that differ; the first hundred are listed in `examples`.
        kinds: of these, how many are of which kind.
        odd_columns: of those that are changed, in how many each column differs.
        examples: see there.
    """

    table: str
    round: int
    positions: Mapping[str, Position]
    ends: Mapping[str, Position]
    source_rows: int
    source_bytes: int
    mirror_rows: int
    chunks: int
    columns: tuple[str, ...]
    columns_missing: tuple[str, ...] = ()
    columns_empty: tuple[str, ...] = ()
    columns_extra: tuple[str, ...] = ()
    mismatched: int = 0
    settled: int = 0
    unsettled: Mapping[str, int] = field(default_factory=dict)
    differences: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    odd_columns: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[Difference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether every row and column was found to be the same."""
        return not (self.differences or self.unsettled or self.columns_missing)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, for reports."""
        data: dict[str, Any] = asdict(self)
        data["same"] = self.same
        data["positions"] = {s: str(p.executed) for s, p in self.positions.items()}
        data["ends"] = {s: str(p.executed) for s, p in self.ends.items()}
        for example in data["examples"]:
            example["key"] = {name: _shown(value) for name, value in example["key"].items()}
        return data


def verify_table(
    spark: SparkSession,
    lake: Lake,
    wanted: TableDumpRequest,
    *,
    mirror: MirrorAt,
    key: Sequence[str],
    round_number: int,
    positions: Mapping[str, Position],
    shards: Mapping[str, ShardSource],
    read: ReadChunk,
    changes: Callable[[Mapping[str, Position]], Changes],
    now: int,
    settings: DumpSettings | None = None,
    stop: threading.Event | None = None,
    examined: int = EXAMINED,
    homes: Mapping[str, Collection[str]] | None = None,
    on_difference: Callable[[Correction], None] = lambda _: None,
) -> VerifyResult:
    """Compare a mirrored table with its source.

    Args:
        spark: the session.
        lake: for scratch files.
        wanted: the table and its shards.
        mirror: the Delta table at the cut, with `_token`.
        key: columns that identify a row.
        round_number: the cut's round.
        positions: shard -> what the mirror holds of it at the cut.
        shards: ShardId as text -> its source.
        read: reads a chunk (snapshot.tasks).
        changes: called with positions to reach for each group of keys that differ: gives all
            changes after the cut up to there or beyond.
        now: microseconds UTC.
        settings: how the source is read.
        stop: when set, the scan ends with RetryableError.
        examined: how many keys are looked at one by one; if more differ, the others are unsettled.
        homes: shard -> the shards' names under which its rows may stand: its own, and those that
            it descends from. None: that is not compared.
        on_difference: called for each difference.

    Raises:
        TableStoppedError: the table is gone, changed its columns while it was read, or has columns
            of other types than the mirror.
        RetryableError: a server stays away, or is behind the cut.
        LakeError: the mirror cannot be read.
    """
    chosen = settings or DumpSettings()
    # What is mirrored already and not in the scan would be a difference that nothing explains; and
    # what a doubt is about, which no row event tells, would be found equal.
    require_all_committed(shards, {shard: positions[shard] for shard in wanted.shards})
    tables, columns = source_tables(wanted, shards, chosen.policy, key=key)
    sides = TableComparison(
        spark,
        lake,
        MirrorReader(lake, mirror),
        columns,
        key=key,
        homes=ShardOrigins(homes),
        shard_in_key=wanted.shard_in_key,
    )
    halt = threading.Event()
    with ThreadPoolExecutor(1, "mirror") as pool:
        reading = pool.submit(sides.printed, halt)
        try:
            scan = scan_source(
                lake,
                tables,
                shards,
                read,
                columns=columns,
                kept=sides.kept,
                settings=chosen,
                now=now,
                since=positions,
                stop=stop,
            )
        except BaseException:
            halt.set()
            raise
    try:
        printed = reading.result()
        odd = sides.compared(printed, scan)
        names, filled = sides.names, sides.filled(scan)
        tally = _Tally(key, names, columns, shard_in_key=wanted.shard_in_key, tell=on_difference)
        ends = scan.end
        with odd:
            for pairs in odd.groups(examined):
                keys = list({frozen_row(pair.key, key): pair.key for pair in pairs}.values())
                again = read_keys(
                    keys,
                    tables=tables,
                    shards=shards,
                    columns=names,
                    settings=chosen,
                    since=positions,
                    stop=stop,
                )
                ends = again.end
                known = changes(ends)
                rows = changes_of_keys(spark, known, keys, key)
                tally.decide(pairs, again, known, rows)
        tally.leave(odd.count)
        return VerifyResult(
            table=wanted.name,
            round=round_number,
            positions=positions,
            ends=ends,
            source_rows=scan.fingerprint.rows,
            source_bytes=sum(chunk.bytes for chunk in scan.chunks),
            mirror_rows=printed.fingerprint.rows,
            chunks=len(scan.chunks),
            columns=names,
            columns_missing=filled,
            columns_empty=tuple(name for name in sides.lacking if name not in filled),
            columns_extra=sides.extra,
            mismatched=odd.count,
            settled=tally.settled,
            unsettled=tally.unsettled,
            differences=tally.kinds.total(),
            kinds=dict(tally.kinds),
            odd_columns=dict(tally.odd_columns),
            examples=tuple(tally.examples),
        )
    finally:
        scan.remove(lake)


def unreached(again: RereadRows, changes: Changes) -> list[str]:
    """The shards of which the changes do not reach as far as what was read again."""
    return sorted(
        shard
        for shard, end in again.end.items()
        if shard not in changes.reached
        or not changes.reached[shard].executed.contains_all(end.executed)
    )


class _Tally:
    """Verdicts on the keys of one table, counted."""

    def __init__(
        self,
        key: Sequence[str],
        columns: Sequence[str],
        types: pa.Schema,
        *,
        shard_in_key: bool,
        tell: Callable[[Correction], None],
    ) -> None:
        self._key = key
        self._columns = columns
        self._types = types
        self._shard_in_key = shard_in_key
        self._tell = tell
        self._examined = 0
        self.settled = 0
        self.unsettled: dict[str, int] = {}
        self.kinds: Counter[str] = Counter()
        self.odd_columns: Counter[str] = Counter()
        self.examples: list[Difference] = []

    def decide(
        self,
        pairs: Sequence[Pair],
        again: RereadRows,
        changes: Changes,
        change_rows: Sequence[Mapping[str, Any]],
    ) -> None:
        """Judge some keys."""
        events = events_of(change_rows, key=self._key, columns=self._columns)
        short = unreached(again, changes)
        done: set[tuple[Row | None, str]] = set()
        self._examined += len(pairs)
        for pair in pairs:
            shard = pair.shard if self._shard_in_key else ""
            place = (frozen_row(pair.key, self._key), shard)
            if place in done:
                continue  # one of them has several rows of the key
            done.add(place)
            if short:
                verdict = KeyVerdict(
                    kind="unsettled", reason=f"the log was not read far enough on {short[0]}"
                )
            else:
                verdict = self._judge(pair, shard, events, again)
            if changes.disturbed and verdict.kind != "same":
                verdict = KeyVerdict(kind="unsettled", reason=changes.disturbed)
            difference = self._count(verdict, pair.key, shard)
            if difference is not None:
                self._tell(self._correction(difference, pair.mirror, events, again))

    def leave(self, count: int) -> None:
        """Of so many keys that differ, those that were not judged are unsettled."""
        left = count - self._examined
        if left:
            self.unsettled["not examined: too many keys differ"] = left

    def _judge(
        self,
        pair: Pair,
        shard: str,
        events: Mapping[Row, Sequence[KeyChange]],
        again: RereadRows,
    ) -> KeyVerdict:
        key = frozen_row(pair.key, self._key) or ()
        known = [e for e in events.get(key, ()) if not shard or e.shard == shard]
        if pair.copies > 1:
            return KeyVerdict(kind="doubled")
        if pair.alike and not known:
            return KeyVerdict(kind="changed", columns=(_PLACE,))  # else they would not be here
        return judge(
            frozen_row(pair.mirror, self._columns),
            known,
            {s: looks[key] for s, looks in again.seen.items() if not shard or s == shard},
            self._columns,
            scanned=pair.scanned,
        )

    def _count(self, verdict: KeyVerdict, key: Mapping[str, Any], shard: str) -> Difference | None:
        if verdict.kind == "same":
            self.settled += 1
        elif verdict.kind == "unsettled":
            self.unsettled[verdict.reason] = self.unsettled.get(verdict.reason, 0) + 1
        else:
            found = Difference(key=key, shard=shard, kind=verdict.kind, columns=verdict.columns)
            self.kinds[found.kind] += 1
            self.odd_columns.update(found.columns)
            if len(self.examples) < _REPORTED:
                self.examples.append(found)
            return found
        return None

    def _correction(
        self,
        difference: Difference,
        mirror: Mapping[str, Any] | None,
        events: Mapping[Row, Sequence[KeyChange]],
        again: RereadRows,
    ) -> Correction:
        """What the source had of the key at the cut, on each shard by its own log."""
        key = frozen_row(difference.key, self._key) or ()
        shards = [s for s in again.seen if difference.shard in {"", s}]
        rows = {
            s: row_at_cut([e for e in events.get(key, ()) if e.shard == s], again.seen[s][key])
            for s in shards
        }
        alive = [row for row in rows.values() if row is not None]
        reason = ""
        if difference.shard == NO_SHARD:
            reason = "the row has lost its token, and with it the shard that is part of its key"
        elif len(alive) > 1:
            reason = "the key is on several shards, and clocks choose which row is shown"
        elif (
            difference.kind != "doubled"
            and difference.columns != (_PLACE,)
            and frozen_row(mirror, self._columns) == (alive[0] if alive else None)
        ):
            reason = "it is right at this cut, but the log does not lead to the source's row"
        return Correction(
            difference=difference,
            rows={
                s: None if row is None else thawed_row(row, self._columns, self._types)
                for s, row in rows.items()
            },
            reason=reason,
        )


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float | None) else str(value)
