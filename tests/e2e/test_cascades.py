"""Rows that servers change by foreign keys without a word in their logs, on real servers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cascade_kit import NAMES, SCHEMA, SERVERS, Shop
from deltalake.exceptions import TableNotFoundError
from fix_e2e import PASSWORD, Ratchet, assert_identical, end_of, wait_while_running

from lab.servers import create_ratchet_user
from ratchet.store.files import Lake
from ratchet.store.tables import Tables


def started(
    kind: str, make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], **more: Any
) -> tuple[Any, Ratchet]:
    flavor, options = SERVERS[kind]
    server = make_server(flavor, options=options)
    server.execute("CREATE DATABASE app")
    for statement in SCHEMA:
        server.execute(statement, database="app")
    create_ratchet_user(server, PASSWORD, ["app"])
    return server, make_ratchet({"-": server}, "app", **more)


def wait_until_identical(lake: Path, server: Any, seconds: float = 240) -> None:
    """The mirror shows what the server does, some time after the last statement."""
    until = time.monotonic() + seconds
    while True:
        try:
            assert_identical(lake, [server], "app", NAMES)
        except (AssertionError, TableNotFoundError):  # the first: it is not dumped yet
            if time.monotonic() > until:
                raise
            time.sleep(0.3)
        else:
            return


@pytest.mark.long
@pytest.mark.parametrize("kind", SERVERS)
def test_a_shop_with_foreign_keys(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    server, ratchet = started(kind, make_server, make_ratchet)
    shop = Shop(server, "app", seed=7)
    shop.work(80)
    run = ratchet.start("run")
    try:
        for _ in range(12):
            shop.work(60)
            wait_until_identical(ratchet.lake, server)
        for statement in range(200):  # one by one, so that steps are cut anywhere
            shop.work(1)
            time.sleep(0.01 * (statement % 7))
        wait_until_identical(ratchet.lake, server)
        # Sessions that look at no foreign keys write within the same second as parents go: that
        # may be a doubt, which is decided once nothing more comes.
        tables = Tables(Lake.at(ratchet.lake))
        wait_while_running(run, lambda: not any(one.doubts for one in tables.list()), within=120)
    finally:
        run.terminate()
        _, err = end_of(run, 120)
    assert run.returncode == 0, err[-3000:]
    assert {state.phase for state in tables.list()} == {"streaming"}
    assert shop.done > 300


def family(make_server: Callable[..., Any], kind: str, rows: tuple[int, int, int]) -> Any:
    """A server on which a third table hangs on a second, and that on a first, with so many rows."""
    flavor, options = SERVERS[kind]
    server = make_server(flavor, options=options)
    server.execute("CREATE DATABASE app")
    key = "INT, CONSTRAINT {0} FOREIGN KEY (up) REFERENCES {1} (id) ON DELETE CASCADE"
    first, second, third = rows
    for statement in (
        "CREATE TABLE p (id INT PRIMARY KEY)",
        f"CREATE TABLE c (id INT PRIMARY KEY, up {key.format('of_c', 'p')})",
        f"CREATE TABLE g (id INT PRIMARY KEY, up {key.format('of_g', 'c')})",
        "INSERT INTO p VALUES " + ", ".join(f"({n})" for n in range(first)),
        "INSERT INTO c VALUES " + ", ".join(f"({n}, {n % first})" for n in range(second)),
        "INSERT INTO g VALUES " + ", ".join(f"({n}, {n % 600})" for n in range(third)),
    ):
        server.execute(statement, database="app")
    create_ratchet_user(server, PASSWORD, ["app"])
    return server


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mariadb", "mysql-native"])
def test_cascades_of_several_levels_while_the_dump_reads(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    """What a cascade took before its chunk was read nobody can tell: its rows are read again.

    Whatever `on_difference` says, as nothing is wrong.
    """
    server = family(make_server, kind, (200, 600, 1200))
    snapshot = {"max_rows_per_second": 300, "chunk_rows": 100}
    ratchet = make_ratchet({"-": server}, "app", snapshot=snapshot)
    run = ratchet.start("run")
    try:
        for number in range(199, 49, -1):
            server.execute(f"DELETE FROM p WHERE id = {number}", database="app")
            time.sleep(0.05)
    finally:
        run.send_signal(signal.SIGTERM)
        _, said = end_of(run, 120)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "app", ["p", "c", "g"])
    assert "is stopped" not in said


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mariadb", "mysql-native"])
def test_a_table_between_that_is_dumped_again(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    """Its dump goes on while rows of the first take those of the third with them."""
    server = family(make_server, kind, (20, 20_000, 600))
    ratchet = make_ratchet({"-": server}, "app", snapshot={"chunk_rows": 500})
    ratchet.run("run", "--until-caught-up")
    tables = Tables(Lake.at(ratchet.lake))

    def is_dumped() -> bool:
        state = tables.load("shop", "c")
        return state is not None and state.phase == "dumping"

    quick = ratchet.config.read_text()
    slow = quick.replace("chunk_rows: 500", "chunk_rows: 500\n  max_rows_per_second: 500")
    ratchet.config.write_text(slow)
    run = ratchet.start("run")
    again = ratchet.start("table", "redump", "shop.c")
    try:
        wait_while_running(run, is_dumped, within=240)
        for number in range(10):
            server.execute(f"DELETE FROM p WHERE id = {number}", database="app")
        time.sleep(2)
        assert is_dumped()
    finally:
        again.terminate()
        run.terminate()
        end_of(again, 120)
        end_of(run, 120)
    ratchet.config.write_text(quick)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "app", ["p", "c", "g"])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mariadb", "mysql-native"])
def test_a_parent_that_is_left_out_while_the_run_goes_on(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    """Nobody reads its changes any more, and rows of two tables go with its rows."""
    server = family(make_server, kind, (20, 60, 60))
    ratchet = make_ratchet({"-": server}, "app")
    ratchet.run("run", "--until-caught-up")
    tables = Tables(Lake.at(ratchet.lake))

    def deleted() -> bool:
        with suppress(AssertionError):
            assert_identical(ratchet.lake, [server], "app", ["p", "c", "g"])
            return True
        return False

    def stopped() -> bool:
        return {one.table for one in tables.list() if one.phase == "stopped"} == set("cg")

    run = ratchet.start("run")
    try:
        server.execute("DELETE FROM p WHERE id < 10", database="app")
        wait_while_running(run, deleted, within=240)
        whole = ratchet.config.read_text()
        ratchet.config.write_text(whole.replace("- '*'", "- '*'\n    - '!p'"))
        ratchet.run("table", "drop", "shop.p")
        server.execute("DELETE FROM p", database="app")
        wait_while_running(run, stopped, within=240)
    finally:
        run.terminate()
        end_of(run, 120)
    states = {state.table: state for state in tables.list()}
    why = states["g"].stopped
    assert why is not None
    assert "(through c)" in why.message


@pytest.mark.quick_on("mysql-native")
@pytest.mark.parametrize("kind", ["mariadb", "mysql-native"])
def test_a_key_that_went_behind_what_it_did(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    """A cascade and the ALTER that drops its key, both while nobody follows."""
    server, ratchet = started(kind, make_server, make_ratchet)
    for statement in (
        "CREATE TABLE p1 (id INT PRIMARY KEY)",
        "CREATE TABLE c1 (id INT PRIMARY KEY, up INT)",
        "ALTER TABLE c1 ADD CONSTRAINT f1 FOREIGN KEY (up) REFERENCES p1 (id) ON DELETE CASCADE",
        "INSERT INTO p1 VALUES (1), (2), (3), (4)",
        "INSERT INTO c1 VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 1)",
    ):
        server.execute(statement, database="app")
    ratchet.run("run", "--until-caught-up")
    server.execute("DELETE FROM p1 WHERE id < 3", database="app")
    server.execute("ALTER TABLE c1 DROP FOREIGN KEY f1", database="app")
    said = ratchet.run("run", "--until-caught-up").stderr
    assert "shop.c1: compared with its source after ALTER TABLE c1 DROP FOREIGN KEY f1" in said
    assert_identical(ratchet.lake, [server], "app", ["p1", "c1"])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mariadb", "mysql-native"])
def test_a_transaction_that_is_prepared_first(
    make_server: Callable[..., Any], make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    """XA in two steps, with cascades: seen from its preparation on, or from its commit only."""
    server, ratchet = started(kind, make_server, make_ratchet)
    for statement in (
        "CREATE TABLE p1 (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE c1 (id INT PRIMARY KEY, up INT)",
        "ALTER TABLE c1 ADD CONSTRAINT f1 FOREIGN KEY (up) REFERENCES p1 (id) ON DELETE CASCADE",
        "CREATE TABLE apart (id INT PRIMARY KEY)",
        "INSERT INTO p1 VALUES (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)",
        "INSERT INTO c1 VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 1)",
    ):
        server.execute(statement, database="app")
    ratchet.run("run", "--until-caught-up")

    def prepare(name: str, *statements: str) -> None:
        with server.connect(database="app", autocommit=True) as connection:
            cursor = connection.cursor()
            for statement in (f"XA START '{name}'", *statements, f"XA END '{name}'"):
                cursor.execute(statement)
            cursor.execute(f"XA PREPARE '{name}'")

    def end(name: str, how: str) -> None:
        server.execute(f"XA {how} '{name}'", database="app")

    def is_mirrored() -> str:
        said: str = ratchet.run("run", "--until-caught-up").stderr
        assert_identical(ratchet.lake, [server], "app", ["p1", "c1", "apart"])
        return said

    prepare("a", "UPDATE p1 SET v = 2 WHERE id = 5", "DELETE FROM p1 WHERE id = 1")
    end("a", "COMMIT")
    prepare("b", "UPDATE p1 SET v = 3 WHERE id = 4")
    end("b", "ROLLBACK")
    said = is_mirrored()
    assert "an XA transaction that was prepared before changed it" in said or "XA COMMIT" in said
    assert "app.apart" not in said.replace("shop.", "app.")
    prepare("c", "DELETE FROM p1 WHERE id = 2", "INSERT INTO p1 VALUES (6, 6)")
    server.execute("INSERT INTO apart VALUES (1)", database="app")
    is_mirrored()
    end("c", "COMMIT")  # by now another process reads the log
    server.execute("UPDATE p1 SET v = 7 WHERE id = 6", database="app")
    is_mirrored()
