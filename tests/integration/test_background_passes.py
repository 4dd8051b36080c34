"""Passes of the background verification over tables at rest, without Spark: on both servers.

The tables are dumped, and a cut is made that shows them as they are. What a run's merge does to
them is in test_background.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from deltalake import DeltaTable
from fix_dump import SHARD, Dump, insert_rows, make_table, wanted

from lab.servers import Server
from ratchet.core.errors import RetryableError
from ratchet.core.position import Position
from ratchet.jobs.config.settings import VerifySection
from ratchet.jobs.inspect.reading import ReadOptions
from ratchet.jobs.reporting.observe import Record, StopReporter, TableCompared
from ratchet.jobs.topology.begin import record_starts
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.jobs.watch.background import BackgroundVerifier
from ratchet.jobs.watch.verdicts import TableVerdict, Verdicts
from ratchet.snapshot.records import DumpSettings, ShardSource
from ratchet.snapshot.throttle import Throttle, ThrottleLimits
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.cuts import Cut, Cuts, CutShard
from ratchet.store.delta.tables import newest_version
from ratchet.store.passes import Passes
from ratchet.store.rounds import RoundLog
from ratchet.store.stops import Doubt
from ratchet.store.tables import Tables, TableState
from ratchet.wire.session import Session

HOUR: Final = 3600 * 10**6

# Table -> its columns k ..., and the values of row n.
KEYS: Final[Mapping[str, tuple[str, str]]] = {
    "tiny": ("k TINYINT NOT NULL PRIMARY KEY", "{low}"),
    "big": ("k BIGINT UNSIGNED NOT NULL PRIMARY KEY", "{big}"),
    "digits": ("k DECIMAL(20,4) NOT NULL PRIMARY KEY", "{low}.25"),
    "wide": ("k DECIMAL(50,4) NOT NULL PRIMARY KEY", "{low}000000000000000000000000000000.5"),
    "days": ("k DATE NOT NULL PRIMARY KEY", "'19{two}-01-02'"),
    "moments": ("k DATETIME(6) NOT NULL PRIMARY KEY", "'20{two}-02-03 1:2:3.000004'"),
    "stamps": (
        "k TIMESTAMP(3) NOT NULL DEFAULT '2001-01-01 00:00:00' PRIMARY KEY",
        "'2001-05-06 07:08:{two}.25'",
    ),
    "times": ("k TIME(2) NOT NULL PRIMARY KEY", "'{low}:10:11.5'"),
    "fixed": ("k BINARY(4) NOT NULL PRIMARY KEY", "X'{two}00'"),
    "bytes": ("k VARBINARY(9) NOT NULL PRIMARY KEY", "X'{two}{zeros}'"),
    "words": ("k VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL PRIMARY KEY", "'{letter}{n}'"),
    "exact": ("k VARCHAR(20) COLLATE utf8mb4_bin NOT NULL PRIMARY KEY", "'{letter}{n}'"),
    "latin": ("k CHAR(9) CHARACTER SET latin1 NOT NULL PRIMARY KEY", "'{letter}{n}'"),
    "enums": ("k ENUM({members}) NOT NULL PRIMARY KEY", "'m{n}'"),
    "sets": ("k SET('a','b','c','d','e','f') NOT NULL PRIMARY KEY", "{n}"),
    "bits": ("k BIT(40) NOT NULL PRIMARY KEY", "549755813888 - {n}"),
    "years": ("k YEAR NOT NULL PRIMARY KEY", "1980 + {n}"),
    "pair": ("k INT NOT NULL, l VARCHAR(9) NOT NULL, PRIMARY KEY (k, l)", "{n} % 4, '{n}'"),
    "falling": ("k INT NOT NULL, PRIMARY KEY (k DESC)", "{n}"),
    "unique_key": ("k INT NOT NULL, UNIQUE KEY (k)", "{n}"),
}


def key_of(template: str, n: int) -> str:
    """The key of row n."""
    return template.format(
        n=n, low=n - 20, big=2**64 - 1 - n * 10**17, two=n + 10, zeros="00" * (n % 3),
        letter="äBcÄbÿ"[n % 6],
    )  # fmt: skip


class Stage:
    """Dumped tables, a cut that shows them, and runs that verify in the background."""

    def __init__(self, dump: Dump, server: Server, database: str) -> None:
        self.dump, self.lake = dump, dump.lake
        self._server, self._database = server, database
        self.dump.settings = DumpSettings(chunk_rows=70, deletion_vectors=False)
        self.settings = VerifySection(every=3600.0, load=1.0, on_difference="tell")
        self.wall = time.time_ns() // 1000
        self.limits = ThrottleLimits()
        self.throttle: Throttle | None = None
        self.stop = threading.Event()
        self.told: list[Record] = []
        self.verdicts = self.new_verdicts()

    def new_verdicts(self) -> Verdicts:
        return Verdicts(self.lake, mend=self.mend, stops=StopReporter(self.told.append))

    def mend(self, _: TableState, verdict: TableVerdict) -> str:
        raise AssertionError(f"nobody asked to mend {verdict}")

    def sql(self, *statements: str) -> None:
        connection = self._server.connect(database=self._database)
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def begin(self, *tables: str) -> None:
        """Dump the tables, and let them stream in a cut."""
        source = self.dump.shards[SHARD].config
        with Session.connect(source) as session:
            record_starts(RoundLog(self.lake), {SHARD: session.executed()}, now=1)
        self.dump.run(*map(wanted, tables))
        states = Tables(self.lake)
        for state in states.list():
            assert state.phase == "catching_up", state.stopped
            states.save(replace(state, phase="streaming", merged_round=1))
        self.cut()

    def cut(self) -> None:
        """A cut at what the server has executed by now."""
        cuts = Cuts(self.lake)
        with Session.connect(self.dump.shards[SHARD].config) as session:
            here: Position = session.head()
        place = CutShard(position=here, min_ts=None, max_ts=None, latest_ts=1, observed_at=1)
        before = cuts.last()
        states = Tables(self.lake).list()
        versions = {s.name: newest_version(self.lake, s.path, None) for s in states}
        number = 1 if before is None else before.number + 1
        cuts.append(
            Cut(number=number, round=1, merged_at=1, shards={SHARD: place}, tables=versions)
        )

    def delta(self, table: str) -> DeltaTable:
        return DeltaTable(f"{self.lake.root}/shop/{table}")

    def state(self, table: str = "t") -> TableState:
        found = Tables(self.lake).load("shop", table)
        assert found is not None
        return found

    def run(self, **settings: Any) -> BackgroundVerifier:
        """As another run has it."""
        tables = [state.table for state in Tables(self.lake).list()]
        found = [DiscoveredTable(keyspace="shop", table=t, shards=(SHARD,), rows=1) for t in tables]
        throttle = self.throttle or Throttle(self.limits)
        reading = ReadOptions(
            shards=self.dump.shards,
            settings=DumpSettings(chunk_rows=7, throttle=throttle, patience=5.0),
        )
        return BackgroundVerifier(
            self.lake,
            lambda: found,
            lambda _: True,
            reading=reading,
            verdicts=self.verdicts,
            settings=replace(self.settings, **settings),
            observer=self.told.append,
            stop=self.stop,
            patience=2.0,
            wall=lambda: self.wall,
        )

    def due(self) -> None:
        """It is time for every table."""
        self.wall += HOUR

    def bite(self, background: BackgroundVerifier) -> float:
        """A bite, and a second behind it."""
        rest = background.next_bite()
        self.wall += 10**6
        return rest

    def passed(self, *tables: str, **settings: Any) -> dict[str, Comparison]:
        """All tables' passes, to their end."""
        background = self.run(**settings)
        background.next_bite()
        self.due()
        begun = self.wall
        for _ in range(60 * len(tables)):
            self.bite(background)
            self.verdicts.apply()
            done = {name: Comparisons(self.lake).last("shop", name) for name in tables}
            if all(one is not None and one.until >= begun for one in done.values()):
                return {name: one for name, one in done.items() if one is not None}
        raise AssertionError(f"not all passes ended: {done}")


@pytest.fixture
def stage(dump: Dump, server: Server, database: str, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr("ratchet.jobs.watch.secondlook._PAUSE", 0.01)
    return Stage(dump, server, database)


ROWS: Final = 40


@pytest.mark.quick_on("mysql")
def test_keys_of_all_types(stage: Stage) -> None:
    """A changed row, a missing and an extra one in each of the tables, in pieces of seven rows."""
    members = ",".join(f"'m{n}'" for n in range(1, ROWS + 2))
    for table, (key, value) in KEYS.items():
        rows = ",".join(f"({key_of(value, n)}, {n})" for n in range(1, ROWS + 1))
        stage.sql(
            f"CREATE TABLE {table} ({key.replace('{members}', members)}, v INT)",
            f"INSERT INTO {table} VALUES {rows}",
        )
    stage.begin(*KEYS)
    equal = stage.passed(*KEYS)
    assert {(one.rows, one.differences, one.unsettled) for one in equal.values()} == {(ROWS, 0, 0)}
    # The source changes without a word. (deltalake's own writer has wrong statistics of decimals
    # above 2^63, and so cannot damage a mirror with such keys.)
    for table, (_, value) in KEYS.items():
        stage.sql(
            "SET SESSION sql_log_bin = 0",
            f"INSERT INTO {table} VALUES ({key_of(value, ROWS + 1)}, 0)",
            f"UPDATE {table} SET v = 100 WHERE v = 20",
            f"DELETE FROM {table} WHERE v = {ROWS}",
        )
    found = stage.passed(*KEYS)
    wrong = {
        name: one.kinds
        for name, one in found.items()
        if one.kinds != {"changed": 1, "missing": 1, "extra": 1}
    }
    assert not wrong
    assert {one.rows for one in found.values()} == {ROWS}


def test_a_pass_goes_on_where_a_killed_run_has_left_it(
    stage: Stage, server: Server, database: str
) -> None:
    make_table(server, database, 100)
    stage.begin("t")
    stage.delta("t").delete("id in (0, 150, 297)")
    first = stage.run()
    first.next_bite()
    stage.due()
    for _ in range(3):
        stage.bite(first)
    begun = Passes(stage.lake).last()
    assert begun is not None
    assert (begun.rows, begun.pieces, begun.differences) == (21, 3, 1)
    # A piece more was read when it was killed: its marks are there, and nobody knows of them.
    Passes(stage.lake).add(begun, stage_marks(9))
    runs = 0
    while (last := Passes(stage.lake).last()) is not None:
        runs += 1
        assert last.since == begun.since
        for _ in range(2):
            stage.bite(stage.run(load=1.0 if runs % 2 else 0.5))
        assert runs < 30
    done = Comparisons(stage.lake).last("shop", "t")
    assert done is not None
    assert (done.rows, done.kinds, done.since) == (100, {"missing": 3}, begun.since)


def stage_marks(count: int) -> Any:
    import numpy as np

    return np.arange(count, dtype=np.uint64)


def test_what_differs_stops_its_table(stage: Stage, server: Server, database: str) -> None:
    make_table(server, database, 50)
    stage.begin("t")
    stage.delta("t").update(predicate="id = 33", updates={"amount": "1.5"})
    stage.passed("t", on_difference="stop")
    state = stage.state()
    assert state.phase == "stopped"
    assert state.stopped is not None
    assert state.stopped.differs
    assert "1 row (1 changed): changed: id=33 columns amount" in state.stopped.message
    assert "ratchet repair CONFIG --table 'shop.t'" in state.stopped.hint


def test_columns_that_come_without_a_word_stop_their_table(
    stage: Stage, server: Server, database: str
) -> None:
    """One that is NULL in every row does not."""
    make_table(server, database, 30)
    make_table(server, database, 30, table="u")
    make_table(server, database, 30, table="w")
    stage.begin("t", "u", "w")
    stage.sql(
        "SET SESSION sql_log_bin = 0",
        "ALTER TABLE t ADD COLUMN c INT",
        "ALTER TABLE u ADD COLUMN c INT DEFAULT 7",
        "ALTER TABLE w DROP COLUMN name",
    )
    background = stage.run()
    background.next_bite()
    stage.due()
    for _ in range(20):
        stage.bite(background)
        stage.verdicts.apply()
    done = Comparisons(stage.lake).last("shop", "t")
    assert done is not None
    assert (done.rows, done.differences) == (30, 0)
    for table, why in (
        ("u", "the source has columns that the mirror lacks: c"),
        ("w", "the source no longer has column name"),
    ):
        stopped = stage.state(table).stopped
        assert stopped is not None
        assert why in stopped.message
        assert not stopped.differs
        assert f"ratchet table CONFIG redump 'shop.{table}'" in stopped.hint


def test_a_table_that_is_put_in_doubt_leaves_its_pass(
    stage: Stage, server: Server, database: str
) -> None:
    make_table(server, database, 50)
    stage.begin("t")
    background = stage.run()
    background.next_bite()
    stage.due()
    background.next_bite()
    assert Passes(stage.lake).last() is not None
    doubt = Doubt(message="why", statement="", round=1)
    Tables(stage.lake).save(replace(stage.state(), doubts={SHARD: doubt}))
    for _ in range(3):
        stage.bite(background)
    assert Passes(stage.lake).last() is None
    assert Comparisons(stage.lake).last("shop", "t") is None


def test_what_the_mirror_has_not_got_yet_is_waited_for(
    stage: Stage, server: Server, database: str
) -> None:
    """A transaction that no cut holds: nothing is said of a piece that may show it."""
    make_table(server, database, 50)
    stage.begin("t")
    insert_rows(server, database, range(1000, 1001))
    background = stage.run()
    background.next_bite()
    stage.due()
    assert background.next_bite() > 1.0
    last = Passes(stage.lake).last()
    assert last is not None
    assert last.rows == 0
    stage.cut()  # as if the merge had come as far, without the row
    for _ in range(12):
        stage.bite(background)
    done = Comparisons(stage.lake).last("shop", "t")
    assert done is not None
    assert done.kinds == {"missing": 1}


def test_the_budget_and_the_throttle(stage: Stage, server: Server, database: str) -> None:
    make_table(server, database, 50)
    stage.begin("t")
    background = stage.run(load=0.01)
    background.next_bite()
    stage.due()
    rest = background.next_bite()
    assert rest > 0.1
    before = Passes(stage.lake).last()
    stage.wall += int(rest * 0.5e6)
    assert 0 < background.next_bite() < rest
    assert stage.run(load=0.01).next_bite() > 0, "nor may another run do more"
    assert Passes(stage.lake).last() == before
    stage.wall += int(rest * 0.6e6)
    background.next_bite()
    after = Passes(stage.lake).last()
    assert before is not None
    assert after is not None
    assert after.rows > before.rows

    stage.limits = ThrottleLimits(rows_per_second=10)
    slow = stage.run()
    stage.due()
    began = time.monotonic()
    for _ in range(5):
        stage.bite(slow)
    assert time.monotonic() - began > 1.0


class HeldAfter(Throttle):
    """Lets so many reads begin, and no other one."""

    def __init__(self, reads: int) -> None:
        super().__init__(ThrottleLimits(rows_per_second=1))
        self.left = reads
        self.held = threading.Event()

    def reason_on(self, shard: ShardSource) -> str:
        del shard
        self.left -= 1
        if self.left >= 0:
            return ""
        self.held.set()
        return "held back"


def test_a_run_ends_while_a_second_look_is_held_back(
    stage: Stage, server: Server, database: str
) -> None:
    """Its limit may be exceeded for ever: then nobody could end the run."""
    make_table(server, database, 5)
    stage.begin("t")
    stage.sql("UPDATE t SET amount = amount + 1 WHERE id = 3")
    stage.cut()
    background = stage.run()
    background.next_bite()
    stage.due()
    stage.throttle = throttle = HeldAfter(1)
    background = stage.run()

    def work() -> None:
        for _ in range(3):
            stage.bite(background)
            if stage.stop.is_set():
                return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert throttle.held.wait(30), "the second look has come to the throttle"
    stage.stop.set()
    thread.join(20)
    assert not thread.is_alive()


def test_trouble_of_its_own_does_not_end_a_run(
    stage: Stage, server: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(server, database, 20)
    stage.begin("t")
    background = stage.run()
    background.next_bite()
    stage.due()

    def away(*_: object, **__: object) -> None:
        raise RetryableError("the server is away")

    with monkeypatch.context() as broken:
        broken.setattr("ratchet.jobs.watch.bites.read_piece", away)
        pauses = [background.next_bite() for _ in range(3)]
    assert pauses == [5.0, 10.0, 20.0]
    for _ in range(6):
        stage.bite(background)
    assert [one.differences for one in stage.told if isinstance(one, TableCompared)] == [0]
