"""What servers change by foreign keys without a word in their logs, captured and merged.

Real servers, capture and the small merges, all in this process: no Spark, so that many steps take
seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from capture_kit import Capturer, source_of
from cascade_kit import NAMES, SCHEMA, SERVERS, Shop
from fix_e2e import assert_identical, mirror_rows, source_rows

from core.patterns import TablePatterns
from core.types import MisfitPolicy, arrow_schema
from jobs.foreignkeys import ForeignKeyWatch, Rules, read_all
from lab.servers import Server
from merge import direct
from merge.cascades import openparents
from merge.newest import ChangeFiles
from merge.plan import app_id
from merge.rounds import Merger
from merge.side import EMPTY
from merge.step import MergeOptions, StepResult
from store import layout
from store.delta_tables import create_mirrored_table
from store.files import Lake
from store.keynotes import note_keys
from store.segments import missing
from store.tables import DumpState, Phase, Tables, TableState
from wire.decode.catalog import read_schemas
from wire.decode.foreignkeys import ForeignKeys, read_foreign_keys
from wire.session import Session

POLICY = MisfitPolicy()


class Follower:
    """A mirror of a database that was empty when it began."""

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self.server, self.database = server, database
        self.source = source_of(server, database, triggers=True)
        self.capturer = Capturer(self.source, folder)
        self.lake = self.capturer.lake
        self.tables = Tables(self.lake)
        self.keys = self.read_keys()
        position = self.capturer.begin
        with Session.connect(self.source) as session:
            schemas = read_schemas(session.query, keyspace="shop", database=database)
        for name, schema in schemas.items():
            dump = DumpState(
                id=f"d-{name}", start_round=1, start={"shop/-": position}, end={"shop/-": position},
                done=True,
            )  # fmt: skip
            state = TableState(
                keyspace="shop", table=name, schema=schema, key=schema.key, phase="catching_up",
                dump=dump, foreign_keys=self.keys.by_table.get(name, ()),
            )  # fmt: skip
            create_mirrored_table(
                self.lake, state.path, arrow_schema(schema, POLICY), key=state.key,
                name=state.name, now=1,
            )  # fmt: skip
            self.tables.save(state)
        self.merger = self.new_merger()

    def new_merger(self) -> Merger:
        """Without Spark: what needs it fails."""
        return Merger(None, self.lake, MergeOptions(policy=POLICY))  # type: ignore[arg-type]

    def read_keys(self) -> ForeignKeys:
        """As an account sees them that may only SELECT."""
        with Session.connect(self.source) as session:
            return read_foreign_keys(session.query, database=self.database)

    def read_again(self) -> None:
        """As the run does between two steps."""
        self.keys = self.read_keys()
        for state in self.tables.list():
            self.tables.save(replace(state, foreign_keys=self.keys.by_table.get(state.table, ())))

    def begin(self) -> None:
        """Get over the catch-up: there a table between two others would be a doubt."""
        self.execute("INSERT INTO a VALUES (100, NULL, 0)")
        self.step()
        assert {state.phase for state in self.tables.list()} == {"streaming"}

    def begin_with(self, *statements: str) -> None:
        """The same with these rows."""
        self.execute(*statements)
        self.step()
        assert {state.phase for state in self.tables.list()} == {"streaming"}
        assert not self.doubts()

    def step(self) -> StepResult:
        """Capture all there is, and merge it."""
        self.capturer.catch_up()
        return self.merger.step()

    def compare(self, *tables: str) -> int:
        """The mirror has what the server has."""
        names = tables or tuple(state.table for state in self.tables.list())
        return assert_identical(Path(self.capturer.root), [self.server], self.database, names)

    def doubts(self) -> dict[str, str]:
        """Table -> why it is in doubt."""
        return {
            state.table: doubt.message
            for state in self.tables.list()
            for doubt in state.doubts.values()
        }

    def execute(self, *statements: str) -> None:
        """In one session of its own."""
        with self.server.connect(database=self.database, autocommit=True) as connection:
            for statement in statements:
                connection.cursor().execute(statement)


@pytest.fixture(scope="module", params=sorted(SERVERS))
def shop_server(request: pytest.FixtureRequest) -> Any:
    """A server of each kind, for this module."""
    from fix_servers import FLAVORS

    flavor, options = SERVERS[request.param]
    with FLAVORS[flavor](options=options) as server:
        yield server


Make = Callable[..., Follower]


@pytest.fixture
def follow(shop_server: Server, tmp_path: Path) -> Make:
    """A follower of a fresh database with these tables."""

    def make(*statements: str) -> Follower:
        shop_server.execute("DROP DATABASE IF EXISTS app")
        shop_server.execute("CREATE DATABASE app")
        for statement in statements:
            shop_server.execute(statement, database="app")
        return Follower(shop_server, "app", tmp_path)

    return make


@pytest.fixture
def nothing_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements come one after the other, some unchecked, but all within a second.

    The log has no smaller times, so rows might have come while a parent's change was open.
    """
    monkeypatch.setattr(openparents, "_LATER", -(10**10))


@pytest.mark.usefixtures("nothing_is_open")
@pytest.mark.quick_on("mariadb", "mysql-native")
def test_random_statements(follow: Make) -> None:
    fuzz(follow, seed=1, steps=40, statements=25)


@pytest.mark.long
@pytest.mark.usefixtures("nothing_is_open")
@pytest.mark.parametrize("seed", range(2, 8))
def test_many_random_statements(follow: Make, seed: int) -> None:
    fuzz(follow, seed=seed, steps=150, statements=30)


def fuzz(follow: Make, *, seed: int, steps: int, statements: int) -> None:
    follower = follow(*SCHEMA)
    follower.begin()
    shop = Shop(follower.server, "app", seed)
    rows = 0
    for _ in range(steps):
        shop.work(statements)
        follower.step()
        rows += follower.compare(*NAMES)
    assert not follower.doubts()
    assert rows > steps * 20


class KilledError(BaseException):
    """The process ends here."""


@pytest.mark.usefixtures("nothing_is_open")
def test_killed_between_the_tables_of_a_step(follow: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows is found anew from the tables as they were before the step."""
    follower = follow(*SCHEMA)
    follower.begin()
    shop = Shop(follower.server, "app", 99)
    shop.work(40)
    follower.step()
    for number in range(1, 9):
        shop.work(25)
        follower.capturer.catch_up()
        left = number

        def reach(name: str) -> None:
            nonlocal left
            if name in {"merge.after_merge", "merge.after_side"}:
                left -= 1
                if left <= 0:
                    raise KilledError

        with monkeypatch.context() as patch:
            patch.setattr(direct, "reach", reach)
            with pytest.raises(KilledError):
                follower.merger.step()
        follower.merger.close()
        sides = {name: held.sides for name, held in follower.merger._held.items()}
        follower.merger = follower.new_merger()
        for state in follower.tables.list():  # what a killed merge has buried takes Spark
            follower.merger._held[app_id(state)].sides = sides.get(app_id(state)) or EMPTY
        shop.work(5)
        follower.step()
        follower.compare(*NAMES)
    assert not follower.doubts()


def work_on(shop: Shop, follower: Follower) -> None:
    for _ in range(20):
        shop.work(60)
        follower.step()


@pytest.mark.usefixtures("nothing_is_open")
@pytest.mark.parametrize("shop_server", ["mariadb", "mysql-native"], indirect=True)
def test_a_table_that_fails_takes_nothing_from_others(
    follow: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What followed for another one is there until that one has read it."""
    follower = follow(*SCHEMA)
    follower.begin()
    shop = Shop(follower.server, "app", 98)
    reading, failed, read = threading.Event(), threading.Event(), threading.Event()
    lost: list[str] = []

    def load(lake: Lake, paths: Sequence[str]) -> ChangeFiles:
        if any(path.startswith(layout.DERIVED) for path in paths):
            reading.set()
            failed.wait(10)
            time.sleep(0.5)  # the step must be waiting for us by now
            lost.extend(missing(lake, paths))
            read.set()
        elif reading.wait(0.3):  # its turn comes behind ours
            failed.set()
            raise KilledError
        return ChangeFiles.load(lake, paths)

    with monkeypatch.context() as patch:
        patch.setattr(direct, "ChangeFiles", SimpleNamespace(load=load))
        with pytest.raises(KilledError):
            work_on(shop, follower)
        assert read.wait(10)
    assert not lost
    assert {state.phase for state in follower.tables.list()} == {"streaming"}
    follower.step()
    follower.compare(*NAMES)


def test_what_cannot_be_followed_is_in_doubt(follow: Make) -> None:
    """Each child with a reason of its own, when a parent's change reaches it and not before."""
    follower = follow(
        "CREATE TABLE p (id INT PRIMARY KEY, name VARCHAR(9) COLLATE utf8mb4_general_ci UNIQUE, "
        "f DOUBLE UNIQUE, v INT) CHARSET utf8mb4",
        "CREATE TABLE text (id INT PRIMARY KEY, name VARCHAR(9) COLLATE utf8mb4_general_ci, "
        "FOREIGN KEY (name) REFERENCES p (name) ON DELETE CASCADE) CHARSET utf8mb4",
        "CREATE TABLE below (id INT PRIMARY KEY, t INT, "
        "FOREIGN KEY (t) REFERENCES text (id) ON DELETE CASCADE)",
        "CREATE TABLE number (id INT PRIMARY KEY, f DOUBLE, "
        "FOREIGN KEY (f) REFERENCES p (f) ON DELETE SET NULL)",
        "CREATE TABLE made (id INT PRIMARY KEY, p INT, g INT AS (p + 1) VIRTUAL, "
        "FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL)",
        "CREATE TABLE right_one (id INT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
    )
    follower.execute(
        "INSERT INTO p VALUES (1, 'a', 1.5, 0), (2, 'b', 2.5, 0)",
        "INSERT INTO text VALUES (1, 'A'), (2, 'B')",
        "INSERT INTO below VALUES (1, 1)",
        "INSERT INTO number VALUES (1, 1.5)",
        "INSERT INTO made (id, p) VALUES (1, 1)",
        "INSERT INTO right_one VALUES (1, 1), (2, 2)",
    )
    follower.step()
    follower.execute("UPDATE p SET v = 7")
    follower.step()
    assert not follower.doubts()
    follower.compare()
    follower.execute("DELETE FROM p WHERE id = 1")
    follower.step()
    doubts = follower.doubts()
    follower.compare("p", "right_one")
    if follower.keys.logged:
        assert not doubts
        follower.compare()
        return
    assert doubts.keys() == {"text", "below", "number", "made"}
    assert "may be equal without being the same" in doubts["text"]
    assert "hangs on shop.text" in doubts["below"]
    assert "the column g is generated" in doubts["made"]
    follower.execute("DELETE FROM right_one")  # nobody's parent
    follower.step()
    follower.compare("right_one")


def test_a_child_that_is_swapped_for_a_table_of_another_shape(follow: Make) -> None:
    """Its changes of both shapes in one step: it stops, and the other tables go on."""
    follower = follow(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        "CREATE TABLE sibling (id INT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
    )
    follower.execute("INSERT INTO p VALUES (1), (2)", "INSERT INTO child VALUES (1, 1)")
    follower.step()
    follower.execute(
        "CREATE TABLE other (id VARCHAR(9) PRIMARY KEY, v INT)",
        "RENAME TABLE child TO gone, other TO child",
        "INSERT INTO child VALUES ('a', 7)",
        "DELETE FROM p WHERE id = 1",
    )
    follower.step()
    states = {state.table: state for state in follower.tables.list()}
    assert states["child"].phase == "stopped"
    assert states["sibling"].phase == "streaming"
    assert "sibling" not in follower.doubts()
    follower.compare("p", "sibling")


def test_one_table_that_cannot_be_told_says_nothing_of_others(follow: Make) -> None:
    """Neither of other children of its parent, nor of other families."""
    child = "(id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {} ON DELETE CASCADE)"
    follower = follow(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        f"CREATE TABLE one {child.format('p (id)')}",
        "CREATE TABLE late (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE below {child.format('late (id)')}",
        "CREATE TABLE q (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE two {child.format('q (id)')}",
        f"CREATE TABLE three {child.format('two (id)')}",
    )
    rows = "VALUES (1, 1), (2, 2), (3, 3)"
    follower.execute(
        "INSERT INTO p VALUES (1), (2), (3)",
        *(f"INSERT INTO {name} {rows}" for name in ("one", "late", "below", "q", "two", "three")),
    )
    follower.step()
    # A key over a column of which the lake knows nothing yet: NULL in all rows.
    follower.execute(
        "ALTER TABLE late ADD p INT DEFAULT NULL, ADD FOREIGN KEY (p) REFERENCES p (id) "
        "ON DELETE CASCADE",
        "DELETE FROM p WHERE id = 1",
    )
    follower.read_again()
    follower.step()
    assert follower.doubts().keys() <= {"late", "below"}  # it has got a foreign key
    follower.compare("p", "one", "below", "q", "two", "three")
    follower.read_again()
    follower.execute("UPDATE late SET p = 2 WHERE id = 2", "DELETE FROM p WHERE id = 2")
    follower.step()
    assert follower.doubts().keys() <= {"late", "below"}
    follower.compare("p", "one", "late", "below")
    # The other family's parent is not what it was.
    follower.execute(
        "ALTER TABLE q RENAME COLUMN id TO qid", "DELETE FROM q WHERE qid = 1",
        "INSERT INTO one VALUES (4, 3)", "DELETE FROM p WHERE id = 3",
    )  # fmt: skip
    follower.read_again()
    follower.step()
    states = {state.table: state for state in follower.tables.list()}
    assert states["q"].phase == "stopped"
    follower.compare("p", "one")
    assert "one" not in follower.doubts()
    if not follower.keys.logged:
        assert {"two", "three"} <= follower.doubts().keys()


def test_sessions_that_do_not_check(follow: Make) -> None:
    follower = follow(*SCHEMA)
    follower.execute(
        "INSERT INTO a VALUES (1, 'x', 0), (2, 'y', 0)",
        "INSERT INTO b (id, a) VALUES (1, 1), (2, 2)",
    )
    follower.step()
    follower.execute(
        "SET foreign_key_checks = 0",
        "BEGIN",
        "DELETE FROM a WHERE id = 1",
        "SET foreign_key_checks = 1",
        "DELETE FROM a WHERE id = 2",
        "COMMIT",
    )
    follower.step()
    follower.compare()
    assert [row["a"] for row in source_rows(follower.server, "app", "b")] == [1]


def test_keys_as_an_account_sees_them_that_may_only_select(follow: Make) -> None:
    """Under names and in texts that look like something else."""
    follower = follow(
        "CREATE TABLE `p (``x``) ON DELETE CASCADE` (`I d` INT PRIMARY KEY)",
        "CREATE TABLE `c ``d` (id INT PRIMARY KEY, `p``1` INT COMMENT ') REFERENCES `x` (`y`) "
        "ON DELETE CASCADE', q INT, r INT, CONSTRAINT `odd ``name (1)` FOREIGN KEY (`P``1`) "
        "REFERENCES `p (``x``) ON DELETE CASCADE` (`i D`) ON DELETE SET NULL, "
        "CONSTRAINT plain FOREIGN KEY (q) REFERENCES `p (``x``) ON DELETE CASCADE` (`I d`), "
        "CONSTRAINT two FOREIGN KEY (r) REFERENCES `p (``x``) ON DELETE CASCADE` (`I d`) "
        "ON DELETE RESTRICT ON UPDATE CASCADE) COMMENT 'x\n  CONSTRAINT `plain` FOREIGN KEY "
        "(`q`) REFERENCES `p` (`i`) ON DELETE CASCADE'",
    )
    odd, two = follower.keys.by_table["c `d"]
    assert (odd.name, odd.columns, odd.on_delete, odd.on_update) == (
        "odd `name (1)", ("p`1",), "set null", "none",
    )  # fmt: skip
    assert (odd.parent_database, odd.parent) == ("", "p (`x`) ON DELETE CASCADE")
    assert odd.parent_columns == ("I d",)
    assert (two.name, two.on_delete, two.on_update) == ("two", "none", "cascade")
    assert not odd.unclear
    follower.step()
    follower.execute(
        "INSERT INTO `p (``x``) ON DELETE CASCADE` VALUES (1)",
        "INSERT INTO `c ``d` (id, `p``1`) VALUES (1, 1)",
        "DELETE FROM `p (``x``) ON DELETE CASCADE`",
    )
    follower.step()
    follower.compare()


def test_a_run_reads_them_for_tables_that_lack_them(follow: Make) -> None:
    follower = follow(*SCHEMA)
    follower.begin()
    for state in follower.tables.list():
        follower.tables.save(replace(state, foreign_keys=None))
    section = SimpleNamespace(tables=TablePatterns())
    asked = []

    def read() -> Mapping[str, Rules]:
        asked.append(1)
        return read_all({follower.source.shard: follower.source})

    watch = ForeignKeyWatch(
        follower.lake,
        read,
        sources=lambda: {"shop": section},  # type: ignore[dict-item]
        last_round=follower.capturer.log.last_number,
    )
    for _ in range(3):
        watch.look()
    assert len(asked) == 1
    found = {state.table: state.foreign_keys for state in follower.tables.list()}
    assert found == {name: follower.keys.by_table.get(name, ()) for name in NAMES}
    assert bool(follower.doubts()) == (not follower.keys.logged)


CHILD = "(id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {} (id) ON DELETE CASCADE)"
FAMILY = (
    "CREATE TABLE p (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE q (id INT PRIMARY KEY, v INT)",
    f"CREATE TABLE child {CHILD.format('p')}",
    f"CREATE TABLE below {CHILD.format('child')}",
)


@pytest.mark.parametrize("shop_server", ["mariadb", "mysql-native"], indirect=True)
@pytest.mark.parametrize(
    ("change", "parent"),
    [
        ("RENAME TABLE p TO r", "r"),
        ("RENAME TABLE p TO between_it, q TO p, between_it TO q", "q"),
        ("ALTER TABLE p RENAME TO r, ADD w INT", "r"),
        ("ALTER TABLE p RENAME COLUMN id TO v, RENAME COLUMN v TO id", "p"),
    ],
)
def test_a_parent_that_is_renamed(follow: Make, change: str, parent: str) -> None:
    """What its rows take with them before the keys are read again, and what they do later."""
    follower = follow(*FAMILY)
    follower.begin_with(
        "INSERT INTO p VALUES (1, 2), (2, 3), (3, 1), (4, 4)",
        "INSERT INTO q VALUES (1, 1)",
        "INSERT INTO child VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
        "INSERT INTO below VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
    )
    follower.execute(change, f"DELETE FROM {parent} WHERE 2 IN (id, v)")
    follower.step()
    assert follower.doubts().keys() == {"child", "below"}
    states = {state.table: state for state in follower.tables.list()}
    assert [name for name, state in states.items() if state.keys_stale] == ["below", "child"]
    watch_of(follower).look()
    states = {state.table: state for state in follower.tables.list()}
    assert [key.parent for key in states["child"].foreign_keys or ()] == [parent]
    assert not any(state.keys_stale for state in states.values())
    follower.execute(f"DELETE FROM {parent} WHERE 4 IN (id, v)")
    follower.step()
    for name in ("child", "below"):
        left = {row["id"] for row in mirror_rows(follower.capturer.root, "shop", name)}
        assert 4 not in left


@pytest.mark.parametrize("shop_server", ["mariadb", "mysql-native"], indirect=True)
@pytest.mark.parametrize("keys", ["noted", "not noted"])
@pytest.mark.parametrize("phase", ["new", "dumping", "stopped", None])
def test_a_table_between_that_is_not_merged(follow: Make, phase: Phase | None, keys: str) -> None:
    """What hangs on it changes with it, and nobody has its rows: a doubt when it is reached."""
    follower = follow(*FAMILY)
    follower.begin_with(
        "INSERT INTO p VALUES (1, 2), (2, 3)",
        "INSERT INTO q VALUES (1, 1)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
        "INSERT INTO below VALUES (1, 1), (2, 2)",
    )
    if keys == "noted":
        note_keys(follower.lake, {"shop": follower.keys.by_table})
    between = follower.tables.load("shop", "child")
    assert between is not None
    if phase is None:
        follower.tables.remove(between)
    else:
        follower.tables.save(replace(between, phase=phase, foreign_keys=None))
    follower.execute("UPDATE p SET v = 7", "INSERT INTO q VALUES (2, 2)")
    follower.step()
    assert bool(follower.doubts()) == (keys != "noted")  # unknown keys may lead from any column
    follower.execute("DELETE FROM p WHERE id = 1")
    follower.step()
    assert set(follower.doubts()) == {"below"}


@pytest.mark.parametrize("shop_server", ["mariadb"], indirect=True)
@pytest.mark.parametrize("left", ["", ", ADD UNIQUE KEY (id)"])
def test_a_parent_that_loses_the_index(follow: Make, left: str) -> None:
    """MariaDB lets it go with foreign_key_checks=0, and does not follow the key from then on."""
    follower = follow(*FAMILY)
    follower.begin_with(
        "INSERT INTO p VALUES (1, 2), (2, 3), (3, 1)",
        "INSERT INTO child VALUES (1, 1), (2, 2), (3, 3)",
        "INSERT INTO below VALUES (1, 1), (2, 2), (3, 3)",
    )
    without = "SET foreign_key_checks = 0"
    follower.execute(without, "ALTER TABLE p ADD KEY (v)", "ALTER TABLE p DROP INDEX v")
    follower.step()
    told = [(event.table, event.effect) for event in follower.capturer.log.since(0)[-1].events]
    assert ("p", "foreign_key") in told
    assert {"child", "below"} <= follower.doubts().keys()
    follower.execute(without, f"ALTER TABLE p DROP PRIMARY KEY, ADD PRIMARY KEY (v){left}")
    follower.step()
    watch_of(follower).look()
    keys = {state.table: state.foreign_keys for state in follower.tables.list()}
    lost = "" if left else "the parent has no index that begins with id"
    assert [one.unclear for one in keys["child"] or ()] == [lost]
    child = follower.tables.load("shop", "child")
    follower.execute("DELETE FROM p WHERE id = 1")
    follower.step()
    follower.compare("child", "below")
    after = follower.tables.load("shop", "child")
    assert child is not None
    assert after is not None
    again = after.doubts["shop/-"].round > child.doubts["shop/-"].round
    assert again == (not left)


PARENT = "CREATE TABLE p (id INT PRIMARY KEY, k INT, KEY (k))"
CHILD = """CREATE TABLE child (id INT PRIMARY KEY, f INT,
 FOREIGN KEY (f) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE)"""
BELOW = """CREATE TABLE below (id INT PRIMARY KEY, f INT,
 FOREIGN KEY (f) REFERENCES child (id) ON DELETE CASCADE)"""
OFF = "SET foreign_key_checks = 0"


@contextmanager
def in_a_transaction(follower: Follower, *statements: str) -> Iterator[None]:
    """What is done inside comes before its end in the log."""
    connection = follower.server.connect(database=follower.database)
    with connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("BEGIN")
        for statement in statements:
            cursor.execute(statement)
        yield
        connection.commit()


@pytest.mark.parametrize("shop_server", ["mariadb"], indirect=True)
def test_a_child_that_comes_while_one_of_its_parents_goes(follow: Make) -> None:
    """Another parent has the same key: nobody waits, and the deletion comes later in the log."""
    follower = follow(PARENT, CHILD.replace("p (id)", "p (k)"), BELOW)
    follower.begin_with("INSERT INTO p VALUES (1, 5), (2, 5)", "INSERT INTO child VALUES (1, 5)")
    with in_a_transaction(follower, "DELETE FROM p WHERE id = 2"):
        follower.execute("INSERT INTO child VALUES (2, 5)")
    follower.step()
    assert "child" in follower.doubts()


@pytest.mark.parametrize("shop_server", ["mariadb", "mysql-native"], indirect=True)
@pytest.mark.parametrize("far", [False, True], ids=["one-step", "two-steps"])
@pytest.mark.parametrize(
    ("change", "meanwhile", "doubtful"),
    [
        ("DELETE FROM p WHERE id = 1", "INSERT INTO child VALUES (2, 1)", {"child", "below"}),
        ("UPDATE p SET id = 9 WHERE id = 1", "UPDATE child SET f = 1 WHERE id = 3", {"child"}),
    ],
)
def test_a_child_that_comes_unchecked_while_its_parent_goes(
    follow: Make,
    change: str,
    meanwhile: str,
    doubtful: set[str],
    far: bool,  # noqa: FBT001
) -> None:
    """Who looks at foreign keys waits for the parent's row; who does not, leaves one."""
    follower = follow(PARENT, CHILD, BELOW)
    follower.begin_with(
        "INSERT INTO p VALUES (1, 5), (2, 5)",
        "INSERT INTO child VALUES (1, 1), (3, 2)",
        "INSERT INTO below VALUES (1, 1), (3, 3)",
    )
    with in_a_transaction(follower, change):
        follower.execute(OFF, meanwhile)
        if far:  # it is merged, and known to the next process all the same
            follower.step()
            follower.merger.close()
            follower.merger = follower.new_merger()
    follower.step()
    assert follower.doubts().keys() == doubtful
    with pytest.raises(AssertionError):
        follower.compare("child")  # the doubt is needed


@pytest.mark.parametrize("shop_server", ["mariadb"], indirect=True)
def test_a_key_that_comes_while_its_parent_goes(follow: Make) -> None:
    """MariaDB alone: on MySQL the ALTER waits for the parent's transaction."""
    follower = follow(PARENT, "CREATE TABLE child (id INT PRIMARY KEY, f INT, KEY (f))")
    follower.begin_with("INSERT INTO p VALUES (1, 5)", "INSERT INTO child VALUES (1, 1)")
    with in_a_transaction(follower, "DELETE FROM p WHERE id = 1"):
        key = "FOREIGN KEY (f) REFERENCES p (id) ON DELETE CASCADE"
        follower.execute(OFF, f"ALTER TABLE child ADD {key}")
        follower.step()
        child = follower.tables.load("shop", "child")
        assert child is not None
        assert child.doubts
        follower.tables.save(replace(child, doubts={}))  # it was compared, and is equal
        follower.read_again()
    follower.step()
    assert "not committed" in follower.doubts()["child"]


@pytest.mark.parametrize("shop_server", ["mariadb"], indirect=True)
def test_what_was_written_unchecked_long_before_is_no_doubt(follow: Make) -> None:
    """MariaDB alone has a session's clock for the time of its commit."""
    follower = follow(PARENT, CHILD, BELOW)
    follower.begin_with(
        "INSERT INTO p VALUES (1, 5), (2, 5)",
        "INSERT INTO child VALUES (1, 1), (3, 2)",
        "INSERT INTO below VALUES (1, 1), (3, 3)",
    )
    # The clocks of both sessions: an import, and ten minutes later somebody's deletion.
    now = int(time.time())
    follower.execute(f"SET timestamp = {now - 600}", OFF, "INSERT INTO child VALUES (2, 1)")
    follower.step()
    follower.execute(f"SET timestamp = {now}", "DELETE FROM p WHERE id = 1")
    follower.step()
    assert follower.doubts() == {}
    follower.compare("child", "below")


def watch_of(follower: Follower) -> ForeignKeyWatch:
    """One that reads the keys of the follower's server."""
    watch = ForeignKeyWatch(
        follower.lake,
        lambda: read_all({follower.source.shard: follower.source}),
        sources=lambda: {"shop": SimpleNamespace(tables=TablePatterns())},  # type: ignore[dict-item]
        last_round=follower.capturer.log.last_number,
    )
    watch._begun = True  # as in a run that goes on
    return watch


@pytest.mark.parametrize("shop_server", ["mariadb", "mysql-native"], indirect=True)
def test_a_parent_that_was_renamed_while_its_child_was_dumped(follow: Make) -> None:
    """The keys are read behind the dump: changes from before name the parent otherwise."""
    follower = follow(*FAMILY)
    follower.execute(
        "INSERT INTO p VALUES (1, 1), (2, 2)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
        "INSERT INTO below VALUES (1, 1), (2, 2)",
        "DELETE FROM p WHERE id = 2",
        "RENAME TABLE p TO r",
    )
    follower.read_again()
    follower.step()
    assert follower.doubts().keys() == {"child", "below"}


SWITCHES = (
    """CREATE TRIGGER t BEFORE DELETE ON p FOR EACH ROW BEGIN
         SET foreign_key_checks = OLD.id % 2; INSERT INTO q VALUES (OLD.id, 0);
       END""",
    """CREATE TRIGGER t AFTER INSERT ON q FOR EACH ROW BEGIN
         SET foreign_key_checks = 0; DELETE FROM p WHERE id = NEW.id;
         SET foreign_key_checks = 1; DELETE FROM p WHERE id = NEW.id + 1;
       END""",
)


@pytest.mark.parametrize("shop_server", ["mariadb", "mysql-native"], indirect=True)
@pytest.mark.parametrize("trigger", SWITCHES)
def test_a_trigger_that_switches_the_checks(follow: Make, trigger: str) -> None:
    """InnoDB goes by the setting, the log's flags say otherwise: what hangs on it is in doubt."""
    follower = follow(*FAMILY, trigger)
    assert follower.keys.by_table["child"][0].switched == "the trigger t"
    follower.begin_with(
        "INSERT INTO p VALUES (1, 2), (2, 3), (3, 1), (4, 4)",
        "INSERT INTO child VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
        "INSERT INTO below VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
    )
    follower.execute("UPDATE p SET v = 7")
    follower.step()
    assert not follower.doubts(), "nothing follows an update here"
    deletes = "BEFORE DELETE" in trigger
    follower.execute("DELETE FROM p" if deletes else "INSERT INTO q VALUES (1, 1), (3, 3)")
    follower.step()
    left = {row["id"] for row in source_rows(follower.server, "app", "child")}
    assert left == ({2, 4} if deletes else {1, 3}), "the server has followed some of them"
    assert follower.doubts().keys() == {"child", "below"}
    assert all("the trigger t" in why for why in follower.doubts().values())
    follower.compare("p", "q")
