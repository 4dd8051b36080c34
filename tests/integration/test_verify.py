"""Verification on real servers: what differs is found, what merely changes meanwhile is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fix_dump import SHARD, Dump, config_of, make_table, wanted

from lab.servers import Server
from ratchet.core.errors import TableStoppedError
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.ingest.capture import capture_slice, close_streams
from ratchet.ingest.slices import CaptureRequest, SliceLimits
from ratchet.snapshot.errors import ShapeChangedError
from ratchet.snapshot.keychanges import Changes
from ratchet.snapshot.mirror import MirrorAt
from ratchet.snapshot.reader import ChunkRequest, ChunkResult, read_chunk
from ratchet.snapshot.records import DumpSettings
from ratchet.snapshot.source_df import SCRATCH
from ratchet.snapshot.verify import VerifyResult, verify_table
from ratchet.store.delta.tables import table_version
from ratchet.store.files import Lake
from ratchet.store.tables import Tables
from ratchet.wire.binlog import DumpOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def mirror_at(lake: Lake, path: str) -> MirrorAt:
    """The table's newest version."""
    version = table_version(lake, path)
    assert version is not None
    return MirrorAt(path=path, version=version)


class _Check:
    """A dumped table and its verification, with changes captured as jobs would."""

    def __init__(self, dump: Dump, server: Server, database: str, spark: SparkSession) -> None:
        self._dump = dump
        self._config = config_of(server, database)
        self._spark = spark
        self._database = database
        self._server = server
        self.read: Callable[[ChunkRequest], ChunkResult] = read_chunk
        self.before_changes: Callable[[], None] = lambda: None
        self.disturbed = ""

    def run(self, **more: Any) -> VerifyResult:
        """Verify the table as the dump left it: the cut is the dump's end."""
        state = Tables(self._dump.lake).load("shop", "t")
        assert state is not None
        assert state.dump is not None
        assert state.dump.end is not None
        cut = state.dump.end[SHARD]

        def changes(wanted: Mapping[str, Position]) -> Changes:
            self.before_changes()
            return self._captured(cut, wanted[SHARD])

        return verify_table(
            self._spark,
            self._dump.lake,
            wanted(),
            mirror=mirror_at(self._dump.lake, state.path),
            key=state.key,
            round_number=1,
            positions={SHARD: cut},
            shards=self._dump.shards,
            read=self.read,
            changes=changes,
            now=0,
            **more,
        )

    def _captured(self, cut: Position, upto: Position) -> Changes:
        files, position, number = [], cut, 1
        while not position.executed.contains_all(upto.executed):
            result = capture_slice(
                CaptureRequest(
                    source=self._config,
                    start=position,
                    generation=0,
                    round_number=number,
                    lake=self._dump.lake.root,
                    patterns=TablePatterns(("*",)),
                    limits=SliceLimits(stop_at=upto.executed, max_seconds=20),
                    dump=DumpOptions(server_id=4_000_000_001),
                )
            )
            assert result.slice is not None, result.error
            position, number = result.slice.end, number + 1
            files += [file for file in result.files if file.table == "t"]
        close_streams()
        return Changes(
            root=self._dump.lake,
            files=files,
            reached={SHARD: position},
            disturbed=self.disturbed,
        )

    def sql(self, *statements: str, logged: bool = True) -> None:
        """Run statements on the source, as one transaction each, perhaps unseen by the log."""
        connection = self._server.connect(database=self._database)
        with connection, connection.cursor() as cursor:
            cursor.execute(f"SET SESSION sql_log_bin = {int(logged)}")
            for statement in statements:
                cursor.execute(statement)


@pytest.fixture
def check(dump: Dump, server: Server, database: str, spark: SparkSession) -> _Check:
    """A table of 300 rows, dumped."""
    make_table(server, database, 300)
    server.execute(
        "ALTER TABLE t ADD COLUMN d DOUBLE, ADD COLUMN b VARBINARY(9)", database=database
    )
    dump.run(wanted())
    return _Check(dump, server, database, spark)


def test_same(check: _Check, dump: Dump) -> None:
    """An untouched table is the same; the result says what was covered, and no scratch is left."""
    result = check.run()
    assert result.same
    assert (result.source_rows, result.mirror_rows, result.mismatched) == (300, 300, 0)
    assert result.columns == ("id", "name", "amount", "at", "d", "b")
    assert result.to_json()["same"] is True
    assert dump.lake.list(SCRATCH) == []


def test_a_column_of_the_key_that_is_gone(check: _Check) -> None:
    """A statement may come between the look at the columns and the comparison."""
    check.sql("ALTER TABLE t CHANGE id number INT NOT NULL")
    with pytest.raises(ShapeChangedError, match="no longer has column id"):
        check.run()


def _damage(check: _Check) -> dict[int, Any]:
    """Rows that were changed behind the log's back: id -> kind and columns to be found."""
    check.sql(
        "UPDATE t SET name = 'x', amount = NULL WHERE id = 3",
        "UPDATE t SET name = CONCAT(name, ' ') WHERE id = 6",
        "UPDATE t SET d = 0.1 WHERE id = 9",
        "UPDATE t SET b = '' WHERE id = 12",
        "DELETE FROM t WHERE id = 300",
        "INSERT INTO t VALUES (1, 'new', 1, NULL, 1, NULL)",
        logged=False,
    )
    return {
        3: ("changed", ("name", "amount")),
        6: ("changed", ("name",)),
        9: ("changed", ("d",)),
        12: ("changed", ("b",)),
        300: ("extra", ()),
        1: ("missing", ()),
    }


def test_every_kind_of_difference_is_found(check: _Check) -> None:
    """By key, kind and columns; only the keys of the buckets that differ are looked at."""
    damage = _damage(check)
    result = check.run()
    assert not result.same
    assert {d.key["id"]: (d.kind, d.columns) for d in result.examples} == damage
    assert (result.differences, result.settled, result.unsettled) == (6, 0, {})


@pytest.mark.parametrize("way", ["Spark picks the rows", "the name stands for two shards"])
def test_the_ways_to_the_rows_that_differ(
    check: _Check, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Where many rows may differ, and where every row has to be joined, the same is found."""
    homes = {SHARD: {SHARD}}
    if way == "Spark picks the rows":
        monkeypatch.setattr("ratchet.snapshot.mirror._IN_PROCESS", 0)
    else:
        homes["shop/other"] = {"shop/other", SHARD}
        assert check.run(homes=homes).same
    damage = _damage(check)
    result = check.run(homes=homes)
    assert {d.key["id"]: (d.kind, d.columns) for d in result.examples} == damage
    assert result.mismatched == len(damage)


def test_a_scan_that_fails_ends_it(check: _Check, dump: Dump) -> None:
    """Though the mirror is being read on the side; nothing is left in the lake."""

    def read(_: ChunkRequest) -> ChunkResult:
        raise TableStoppedError("its columns have changed", hint="dump it again")

    check.read = read
    with pytest.raises(TableStoppedError, match="its columns have changed"):
        check.run()
    assert dump.lake.list(SCRATCH) == []


def test_negative_zero_is_another_value(check: _Check, dump: Dump, server: Server) -> None:
    """The sign of a zero is compared; MariaDB stores zeros without a sign."""
    check.sql("UPDATE t SET d = 0.0 WHERE id = 9")
    dump.run(wanted(again=True))
    check.sql("UPDATE t SET d = -0.0e0 WHERE id = 9", logged=False)
    found = [(d.key, d.columns) for d in check.run().examples]
    assert found == ([({"id": 9}, ("d",))] if server.flavor == "mysql" else [])


def test_changes_after_the_cut_are_settled(check: _Check) -> None:
    """Changes before, during and after the scan are explained by the log; what is not, is found."""
    check.sql("UPDATE t SET name = 'silent' WHERE id IN (150, 153)", logged=False)
    check.sql(
        "UPDATE t SET amount = 7 WHERE id < 60",
        "DELETE FROM t WHERE id = 63",
        "INSERT INTO t VALUES (2, 'new', 1, NULL, 1, NULL)",
        "UPDATE t SET id = 100001 WHERE id = 66",
        "UPDATE t SET id = id + 1, name = 'moved' WHERE id = 69",
        "DELETE FROM t WHERE id = 72",
        "INSERT INTO t VALUES (72, 'again', 1, NULL, 1, NULL)",
        "UPDATE t SET amount = 9 WHERE id = 153",  # logged, with a row before it that is not ours
    )

    def read(request: ChunkRequest) -> ChunkResult:
        result = read_chunk(request)
        check.sql(f"UPDATE t SET amount = amount + {request.number} WHERE id BETWEEN 30 AND 90")
        return result

    check.read = read
    check.before_changes = lambda: check.sql("UPDATE t SET name = 'late' WHERE id BETWEEN 0 AND 30")
    result = check.run(settings=replace(_settings(), chunk_rows=40, parallel=1))
    found = {d.key["id"]: (d.kind, d.columns) for d in result.examples}
    assert found == {150: ("changed", ("name",)), 153: ("changed", ("name",))}
    assert result.unsettled == {}
    assert result.settled >= 27


@pytest.mark.parametrize("group", [20_000, 30])
def test_under_a_busy_writer(check: _Check, monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    """While rows are updated all the time, nothing is reported but what really differs."""
    monkeypatch.setattr("ratchet.snapshot.compare.GROUP", group)
    check.sql("UPDATE t SET name = 'silent' WHERE id = 897", logged=False)
    halt, busy = threading.Event(), threading.Event()

    def write() -> None:
        n = 0
        while not halt.is_set():
            n += 1
            check.sql(
                f"UPDATE t SET amount = {n} WHERE id = {n * 7 % 297 * 3}",
                f"REPLACE INTO t VALUES ({n * 5 % 300 * 3 + 1}, 'w', {n}, NULL, {n}, 'x')",
                f"DELETE FROM t WHERE id = {(n + 150) * 5 % 300 * 3 + 1}",
            )
            if n == 60:
                busy.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert busy.wait(60)
    try:
        result = check.run(settings=replace(_settings(), chunk_rows=50))
    finally:
        halt.set()
        writer.join()
    assert [d.key for d in result.examples] == [{"id": 897}]
    assert result.unsettled == {}
    assert result.settled > 60


def test_what_cannot_be_told_is_unsettled(check: _Check) -> None:
    """Too many keys, or a table that was truncated meanwhile: no verdict, and never "same"."""
    check.sql("UPDATE t SET name = 'x'", logged=False)
    result = check.run(examined=50)
    assert (result.differences, sum(result.unsettled.values())) == (50, 250)
    check.disturbed = "TRUNCATE after the cut"
    result = check.run()
    assert (result.differences, result.unsettled) == (0, {"TRUNCATE after the cut": 300})
    assert not result.same


def test_empty_and_full(check: _Check) -> None:
    """All rows of an emptied source are extra."""
    check.sql("DELETE FROM t", logged=False)
    result = check.run()
    assert (result.source_rows, result.differences) == (0, 300)
    assert {d.kind for d in result.examples} == {"extra"}


def _settings() -> DumpSettings:
    return DumpSettings()
