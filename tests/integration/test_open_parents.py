"""Rows that come unchecked while a change of their parent is not committed (decision 0029)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from follower_kit import Follower, Make

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
