"""`ratchet verify`: the mirror against its sources, table by table, at the newest cut.

Lives here: which tables, at which versions, the printing and the exit code. Does not live here: the
comparison (`snapshot.verify`), the changes after the cut (`scratch`).

Invariant: "identical" is said only of tables of which every row and column was compared; what was
not compared is named.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ratchet.core.errors import (
    ConfigError,
    LakeError,
    RatchetError,
    RetryableError,
    TableFileError,
    TableStoppedError,
)
from ratchet.core.shell import shell_word
from ratchet.core.types import arrow_schema
from ratchet.ingest.rounds import spark_runner
from ratchet.jobs.capture.capturing import CaptureSettings, Stream
from ratchet.jobs.config.config import Config
from ratchet.jobs.config.sources import server_ids, source_configs, vtgate_config
from ratchet.jobs.config.spelling import with_spelling
from ratchet.jobs.engine.spark import spark_session
from ratchet.jobs.engine.sparksettings import DUMP
from ratchet.jobs.inspect.asof import tables_of
from ratchet.jobs.inspect.changelog import ChangeLog
from ratchet.jobs.inspect.reading import ReadOptions, reading_of
from ratchet.jobs.inspect.scratch import Scratch
from ratchet.jobs.inspect.unmerged import look_behind
from ratchet.jobs.reporting import logs
from ratchet.jobs.reporting.observe import tell_doubtful
from ratchet.jobs.reporting.terminal import say
from ratchet.jobs.reporting.text import clock_time, counted, moment, spellings
from ratchet.jobs.topology.begin import refuse_unfitting
from ratchet.jobs.topology.discover import DiscoveredTable, look
from ratchet.jobs.topology.tablets import with_live_shards
from ratchet.jobs.topology.vitess import with_serving_shards
from ratchet.merge.lostparts import refuse_lost, stopping_the_lost
from ratchet.merge.plan import app_id
from ratchet.snapshot.confirm import KeyConfirmation
from ratchet.snapshot.mirror import MirrorAt
from ratchet.snapshot.records import TableDumpRequest
from ratchet.snapshot.rowsat import RowsAt, rows_at
from ratchet.snapshot.tasks import near_reader, spark_reader
from ratchet.snapshot.verify import EXAMINED, Correction, Difference, VerifyResult, verify_table
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.delta.tables import version_within
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lazyspark import use_pool
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Tables, TableState
from ratchet.store.takeover import refuse_older_rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_STATE: Final = "its state is gone from the lake: the next `ratchet run` dumps it again"
log: Final = logging.getLogger(__name__)

EXIT_DIFFERENT: Final = 1
_TRIES: Final = 3  # of a table about which no verdict was possible
_MANY: Final = 20_000  # rows that differ: repair takes as long as a dump, and longer
_SHOWN: Final = 20  # differences of a table that are printed
_LARGE_ID: Final = 4_000_000_000  # ids are below 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTarget:
    """A table to compare.

    Attributes:
        state: the table.
        version: its Delta version, which stands at the cut.
        wanted: the table as its sources have it.
    """

    state: TableState
    version: int
    wanted: TableDumpRequest


def run_verify(config: Config, *, tables: Sequence[str], as_json: bool) -> int:
    """Compare and print; gives the exit code. A table named and not compared is no success."""
    lake = open_lake(config.lake, now=0, create=False)
    refuse_older_rounds(lake)
    refuse_unfitting(config, lake)
    config = with_live_shards(with_serving_shards(config), RoundLog(lake).streams())
    config = with_spelling(config)
    began = time.monotonic()
    found = look(config.sources, source_configs(config))
    cut, chosen, left = choose(lake, found, tables, config.mirrors)
    if not chosen:
        raise nothing_to(
            "verify", left, "`ratchet status` shows which tables stream, and why others do not"
        )
    tell_doubtful(one.state for one in chosen)
    with spark_session(config, "verify") as spark:
        show = (lambda _: None) if as_json else print_result
        results, refused = _compare(Verifier(config, lake, spark), cut, chosen, left, show)
    if not results:
        raise nothing_to(
            "verify", left, "`ratchet status` shows which tables stream, and why others do not"
        )
    same = all(result.same for result in results)
    names = {result.table for result in results}
    newest = Cuts(lake).last() or cut  # a run may have merged meanwhile
    behind = look_behind(lake, newest, names, now=time.time_ns() // 1000)
    if as_json:
        data = {
            "same": same,
            "round": cut.round,
            "not_merged": asdict(behind),
            "tables": [result.to_json() for result in results],
            "not_compared": left,
        }
        print(logs.clean(json.dumps(data, indent=1)))
    else:
        _print_summary(results, left, time.monotonic() - began)
        if behind.trouble:
            say(f"that is as of {moment(newest.merged_at)}: {behind.trouble}")
    if not same:
        return EXIT_DIFFERENT
    if behind.trouble:
        return LakeError.exit_code
    # Who names a table wants to know of that table; and of a table that counts as right anybody.
    return TableStoppedError.exit_code if refused or (tables and left) else 0


def _compare(
    verifier: Verifier,
    cut: Cut,
    chosen: Sequence[VerifyTarget],
    left: dict[str, str],
    show: Callable[[VerifyResult], None],
) -> tuple[list[VerifyResult], int]:
    """What each table came to, and how many were refused; why one was not compared is in `left`."""
    results, refused = [], 0
    for one in chosen:
        log.info("comparing %s", one.state.name)
        try:
            with stopping_the_lost(verifier.lake, one.state):
                result = verifier.table(cut, one)
        except (TableStoppedError, TableFileError) as error:
            left[one.state.name] = f"{error.message} ({error.hint})"
            refused += 1
            log.warning("%s is not compared: %s", one.state.name, left[one.state.name])
            continue
        if why := _stopped_meanwhile(verifier.lake, one):
            left[one.state.name] = why
            continue
        results.append(result)
        show(result)
    return results, refused


def choose(
    lake: Lake,
    found: Sequence[DiscoveredTable],
    names: Collection[str],
    mirrors: Callable[[str, str], bool],
) -> tuple[Cut, list[VerifyTarget], dict[str, str]]:
    """The newest cut, its tables, and why the others are not compared.

    A table's newest version counts as long as nothing behind the cut is merged into it: what was
    done to it since behind our back shows there, and not in the cut's own version.

    Args:
        lake: the lake.
        found: the tables that the servers have.
        names: only these (table or keyspace.table); all if empty.
        mirrors: whether the config mirrors the table of that keyspace.

    Raises:
        LakeError: nothing is merged yet.
        ConfigError: a name stands for no mirrored table.
    """
    cut = Cuts(lake).last()
    if cut is None:
        raise LakeError(
            "nothing has been merged yet",
            operation="verify",
            hint="let `ratchet run` continue until the tables are streaming",
        )
    sources = {one.name: one for one in found}
    versions = {state.name: version for state, version in tables_of(lake, cut)}
    chosen, left = [], {}
    called = [(s, spellings(s.keyspace, s.table)) for s in Tables(lake).list()]
    states = [state for state, its in called if not names or its & set(names)]
    if missing := set(names).difference(*(its for _, its in called)):
        raise ConfigError(
            f"--table {', '.join(sorted(missing))}: there is no such table in the mirror",
            operation="verify",
            hint="`ratchet status` lists the tables",
        )
    for state in states:
        if not mirrors(state.keyspace, state.table):
            if state.name in versions or names:
                left[state.name] = "the config leaves it out"
        elif state.phase == "stopped" or state.name in cut.stopped:
            why = (
                f"it is in phase {state.phase}" if state.stopped is None else state.stopped.message
            )
            left[state.name] = why
        elif state.name not in versions or state.is_staged:
            left[state.name] = f"it is in phase {state.phase}"
        elif state.name not in sources:
            left[state.name] = "the sources do not have it"
        else:
            wanted = TableDumpRequest(
                keyspace=state.keyspace,
                table=state.table,
                shards=sources[state.name].shards,
                shard_in_key=state.shard_in_key,
            )
            version = newest_at(lake, cut, state, versions[state.name])
            chosen.append(VerifyTarget(state=state, version=version, wanted=wanted))
    if not names:
        unknown = cut.tables.keys() - {state.name for state, _ in called}
        left |= {name: _NO_STATE for name in unknown if mirrors(*name.split(".", 1))}
    return cut, chosen, left


def newest_at(lake: Lake, cut: Cut, state: TableState, version: int) -> int:
    """The newest Delta version of a table that shows the cut.

    Args:
        lake: the lake.
        cut: the newest cut.
        state: the table.
        version: the one that the cut names.
    """
    if state.phase != "streaming":
        return version  # it is dumped anew
    with suppress(TableFileError):  # whoever reads it says so
        return version_within(lake, state.path, app_id=app_id(state), upto=cut.round, known=version)
    return version


def nothing_to(do: str, left: Mapping[str, str], hint: str) -> RatchetError:
    """The error where no table can be compared: each is left out, for these reasons."""
    reasons = "; ".join(f"{name}: {why}" for name, why in left.items())
    kind = TableStoppedError if left else LakeError
    return kind(
        f"there is nothing to {do}{f' ({reasons})' if reasons else ''}", operation=do, hint=hint
    )


def _stopped_meanwhile(lake: Lake, table: VerifyTarget) -> str:
    """Why a table has stopped since verify began: its rows have been left behind on purpose."""
    state = Tables(lake).load(table.state.keyspace, table.state.table)
    if state is None or state.phase != "stopped" or state.stopped is None:
        return ""
    return f"it has stopped meanwhile: {state.stopped.message} ({state.stopped.hint})"


def beside(server_id: int) -> int:
    """An id for a stream beside the run's stream with this id."""
    return server_id + (100_000 if server_id < _LARGE_ID else -100_000)


class Verifier:
    """Compares tables in one Spark session.

    Attributes:
        lake: the lake.

    Args:
        config: with its live shards.
        lake: the lake.
        spark: the session.
        reading: how sources are read, if that is shared with others.
        since: gives what changed after a cut; None: it is captured beside whatever runs.
        stop: when set, a comparison ends with RetryableError.
    """

    def __init__(
        self,
        config: Config,
        lake: Lake,
        spark: SparkSession,
        *,
        reading: ReadOptions | None = None,
        since: Callable[[Cut], Scratch | ChangeLog] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._config, self.lake, self._spark = config, lake, spark
        streams = RoundLog(lake).streams()
        self._generations = {shard: stream.generation for shard, stream in streams.items()}
        self._ancestors = {shard: stream.ancestors for shard, stream in streams.items()}
        self._reading = reading or reading_of(config, self._generations)
        self._since = since or self._scratch
        self._stop = stop

    def table(self, cut: Cut, table: VerifyTarget) -> VerifyResult:
        """Compare one table; again, at a newer cut, if no verdict was possible on some rows.

        Raises:
            RetryableError: a server stays away.
        """
        for _ in range(_TRIES - 1):
            result = self.once(cut, table)
            if result.differences or not result.unsettled:
                return result
            newer = Cuts(self.lake).last()
            if newer is not None and table.state.name in newer.tables:
                cut, table = newer, replace(table, version=newer.tables[table.state.name])
        return self.once(cut, table)

    def once(
        self,
        cut: Cut,
        table: VerifyTarget,
        on_difference: Callable[[Correction], None] = lambda _: None,
        examined: int = EXAMINED,
    ) -> VerifyResult:
        """Compare one table at one cut; see `snapshot.verify.verify_table`.

        Raises:
            RetryableError: a server stays away.
        """
        use_pool(self._spark, DUMP)
        self._refuse_resharded(cut, table.wanted)
        refuse_lost(self.lake, table.state, "verify")
        positions = {
            shard: cut.shards[shard].position
            for shard in table.wanted.shards
            if shard in cut.shards
        }
        state = table.state
        with self._since(cut) as since:
            return verify_table(
                self._spark,
                self.lake,
                table.wanted,
                mirror=MirrorAt(path=state.path, version=table.version),
                key=state.key,
                round_number=cut.round,
                positions=positions,
                shards=self._reading.shards,
                read=near_reader(spark_reader(self._spark)),
                changes=lambda ends: since.changes(state.keyspace, state.table, ends),
                now=time.time_ns() // 1000,
                settings=self._reading.settings,
                homes={s: {s, *self._ancestors.get(s, ())} for s in table.wanted.shards},
                on_difference=on_difference,
                examined=examined,
                stop=self._stop,
            )

    def rows_at(
        self,
        cut: Cut,
        state: TableState,
        wanted: TableDumpRequest,
        keys: Sequence[Mapping[str, Any]],
    ) -> RowsAt:
        """What the sources had of some keys at a cut.

        Raises:
            RetryableError: a server stays away.
            TableStoppedError: the table is gone, or differs between the shards.
        """
        use_pool(self._spark, DUMP)
        self._refuse_resharded(cut, wanted)
        with self._since(cut) as since:
            return rows_at(
                self._spark,
                wanted,
                keys,
                key=state.key,
                columns=arrow_schema(state.whole, self._reading.settings.policy),
                positions={shard: cut.shards[shard].position for shard in wanted.shards},
                shards=self._reading.shards,
                changes=lambda ends: since.changes(state.keyspace, state.table, ends),
                settings=self._reading.settings,
            )

    def _refuse_resharded(self, cut: Cut, wanted: TableDumpRequest) -> None:
        if strange := [shard for shard in wanted.shards if shard not in cut.shards]:
            raise RetryableError(
                f"the newest cut is from before {', '.join(strange)} took over",
                operation="verify",
                table=wanted.name,
                hint="let the run continue until it has followed the reshard",
            )

    def _scratch(self, cut: Cut) -> Scratch:
        config = self._config
        ids = server_ids(config)
        streams = {
            str(shard): Stream(
                source=source,
                server_id=beside(ids[shard]),
                generation=self._generations.get(str(shard), 0),
                vtgate=vtgate_config(config.sources[shard.keyspace]),
            )
            for shard, source in source_configs(config).items()
        }
        settings = CaptureSettings(
            lake=self.lake.root,
            round_seconds=config.capture.round_seconds,
            round_bytes=config.capture.round_bytes,
            heartbeat=config.capture.heartbeat_seconds,
            policy=self._reading.settings.policy,
        )
        tables: dict[str, list[str]] = {}
        for state in Tables(self.lake).list():
            tables.setdefault(state.keyspace, []).append(state.table)
        return Scratch(
            self.lake,
            streams,
            settings,
            {name: shard.position for name, shard in cut.shards.items()},
            patterns=lambda keyspace: config.sources[keyspace].tables,
            tables=lambda keyspace: tuple(tables.get(keyspace, ())),
            run=spark_runner(self._spark),
            patience=config.capture.reconnect_seconds,
        )


def print_result(result: VerifyResult) -> None:
    """What was found in one table, for people."""
    verdict = "identical" if result.same else "DIFFERENT" if result.differences else "UNSETTLED"
    moved = f", {result.settled:,} changed meanwhile and agree" if result.settled else ""
    say(
        f"{verdict:<9}  {result.table}: {counted(result.source_rows, 'row')} of the source, "
        f"{counted(len(result.columns), 'column')}, {counted(result.chunks, 'chunk')}, "
        f"at round {result.round}{moved}",
        flush=True,
    )
    if result.columns_missing:
        say(f"  columns that the mirror lacks: {', '.join(result.columns_missing)}")
    if result.columns_empty:
        names = ", ".join(result.columns_empty)
        say(f"  columns that are NULL in every row, and are added with their first value: {names}")
    for reason, count in result.unsettled.items():
        say(f"  {counted(count, 'row')} without a verdict: {logs.clean(reason)}")
    if result.differences:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(result.kinds.items()))
        odd = ", ".join(f"{name} {count:,}" for name, count in sorted(result.odd_columns.items()))
        say(f"  {kinds}{f' (columns: {odd})' if odd else ''}")
    for one in result.examples[:_SHOWN]:
        say(f"  {describe(one)}")
    if result.differences > _SHOWN:
        say(f"  and {result.differences - _SHOWN:,} more (--json lists up to 100)")


def describe(one: Difference | KeyConfirmation) -> str:
    """A difference as a line for people."""
    what = f" columns {', '.join(one.columns)}" if one.columns else ""
    where = f" on {one.shard}" if one.shard else ""
    key = ", ".join(f"{name}={value}" for name, value in one.key.items())
    return f"{one.kind}: {key}{where}{what}"


def _print_summary(
    results: Sequence[VerifyResult], left: Mapping[str, str], seconds: float
) -> None:
    for name, why in left.items():
        say(f"not compared: {name}: {why}")
    rows = sum(result.source_rows for result in results)
    size = sum(result.source_bytes for result in results)
    differing = sum(result.differences for result in results)
    unsettled = sum(sum(result.unsettled.values()) for result in results)
    verdict = "identical" if all(result.same for result in results) else "NOT identical"
    odd = f" ({differing:,} rows differ, {unsettled:,} without a verdict)"
    if differing:
        odd_ones = [one.table for one in results if one.differences]
        tables = " ".join(f"--table {shell_word(name)}" for name in odd_ones)
        say(f"to make them the same again, stop the run, then: ratchet repair CONFIG {tables}")
        quicker = ", and quicker for so many rows" if differing > _MANY else ""
        say(f"what that cannot correct{quicker}: ratchet table CONFIG redump TABLE")
    say(
        f"{verdict}{odd if differing or unsettled else ''}: {counted(len(results), 'table')}, "
        f"{counted(rows, 'row')} of {size / 1e6:,.1f} MB, every column of every row, "
        f"in {clock_time(seconds)}"
    )
