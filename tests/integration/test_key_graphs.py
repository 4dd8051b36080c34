"""Foreign keys that lead elsewhere than they did: parents renamed, tables between that are away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fix_e2e import mirror_rows, source_rows
from follower_kit import Make, watch_of

from ratchet.store.keynotes import note_keys
from ratchet.store.tables import Phase

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
