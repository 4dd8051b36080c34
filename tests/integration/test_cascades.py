"""What servers change by foreign keys without a word in their logs, captured and merged."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cascade_kit import NAMES, SCHEMA, Shop
from fix_e2e import source_rows
from follower_kit import Follower, Make

from ratchet.core.patterns import TablePatterns
from ratchet.jobs.preflight.foreignkeys import ForeignKeyWatch, Rules, read_keys
from ratchet.merge import direct
from ratchet.merge.newest import ChangeFiles
from ratchet.merge.plan import app_id
from ratchet.merge.side import EMPTY
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.segments import missing


@pytest.mark.quick_on("mariadb")
@pytest.mark.usefixtures("nothing_is_open")
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
        sides = {name: held.sides for name, held in follower.merger._progress.held.items()}
        follower.merger = follower.new_merger()
        for state in follower.tables.list():  # what a killed merge has buried takes Spark
            follower.merger._progress.held[app_id(state)].sides = sides.get(app_id(state)) or EMPTY
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
    assert "depends on shop.text" in doubts["below"]
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

    def read(keyspace: str) -> Rules:
        asked.append(1)
        return read_keys(keyspace, {follower.source.shard: follower.source})

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
