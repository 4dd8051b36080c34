"""Columns come at noon: the table streams on, also through kills where they are brought in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable
from fix_e2e import PASSWORD, Ratchet, assert_identical

from lab.servers import create_ratchet_user
from ratchet.store.files import Lake
from ratchet.store.tables import Tables

TABLE = (
    "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20), KEY (v))",
    "CREATE TABLE other (id INT PRIMARY KEY)",
)
COLUMNS = (
    "ALTER TABLE orders ADD COLUMN at DATETIME(6) NULL AFTER id, ADD big BIGINT UNSIGNED",
    (
        "ALTER TABLE orders ADD `no. 1` DECIMAL(12,3) DEFAULT NULL, ADD kind ENUM('a','b'), "
        "ADD doc JSON"
    ),
)


def execute(server: Any, database: str, *statements: str) -> None:
    with server.connect(database=database, autocommit=True) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)


def rows(low: int, high: int) -> str:
    values = ", ".join(f"({n}, 'v{n}')" for n in range(low, high))
    return f"INSERT INTO orders (id, v) VALUES {values}"


SET = (
    (
        "UPDATE orders SET at = '2026-11-22 12:00:00.123456', big = 18446744073709551615 "
        "WHERE id % 7 = 1"
    ),
    "UPDATE orders SET `no. 1` = 12.345, kind = 'b', doc = '{\"a\": [1, null]}' WHERE id % 5 = 2",
)


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    [
        "merge.columns_added",
        pytest.param("merge.after_side", marks=pytest.mark.long),
        pytest.param("merge.after_merge", marks=pytest.mark.long),
    ],
)
def test_columns_that_come(
    mariadb: Any,
    mysql: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    point: str,
) -> None:
    """Two shards that hold keys of each other's, altered one after the other."""
    servers = {"-80": mysql, "80-": mariadb}
    for number, server in enumerate(servers.values()):
        execute(server, database, *TABLE, rows(200 * number, 200 * number + 200))
        create_ratchet_user(server, PASSWORD, [database])
    ratchet = make_ratchet(servers, database)
    ratchet.run("run", "--until-caught-up")
    lake = Lake.at(ratchet.lake)
    dump = {state.table: state.dump for state in Tables(lake).list()}

    # A column that no row has a value in is no difference.
    for server in servers.values():
        execute(server, database, "ALTER TABLE other ADD note TEXT")
    told = ratchet.run("verify", "--table", "other").stdout
    assert "columns that are NULL in every row, and are added with their first value: note" in told
    assert "identical: 1 table" in told

    # A key on both shards, so that there are hidden rows in the side table as well.
    execute(mariadb, database, rows(10, 13))
    execute(mysql, database, COLUMNS[0], SET[0], "DELETE FROM orders WHERE id = 50", rows(500, 510))
    execute(mariadb, database, "UPDATE orders SET v = 'late' WHERE id > 380")
    killed = ratchet.run("run", "--until-caught-up", crash_at=point, expect=None)
    assert killed.returncode == -9
    execute(mysql, database, COLUMNS[1], SET[1], "UPDATE orders SET id = id + 1000 WHERE id < 5")
    ratchet.run("run", "--until-caught-up")
    (table,) = [DeltaTable(str(ratchet.lake / "shop" / "orders"))]
    names = [field.name for field in table.schema().fields]
    assert names == ["id", "v", "_token", "at", "big", "no. 1", "kind", "doc"]

    execute(mariadb, database, *COLUMNS, *SET, "DELETE FROM orders WHERE id IN (10, 11, 12)")
    execute(mysql, database, "UPDATE orders SET v = 'again' WHERE id IN (11, 12, 13)")
    execute(mysql, database, "UPDATE orders SET kind = 'a' WHERE id > 190")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mysql, mariadb], database, ("orders", "other"))
    assert "identical: 2 tables" in ratchet.run("verify").stdout
    assert {
        state.table: state.dump for state in Tables(lake).list()
    } == dump  # none was dumped again


@pytest.mark.long
def test_a_table_that_stops_is_not_forgotten_by_a_kill(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Killed when what came before the statement is merged, and nothing says yet that it stops."""
    execute(mariadb, database, *TABLE, rows(0, 10))
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database)
    ratchet.run("run", "--until-caught-up")
    changes = ("UPDATE orders SET v = 'before'", "ALTER TABLE orders DROP v, ADD v VARCHAR(20)")
    execute(mariadb, database, *changes, "UPDATE orders SET v = 'behind' WHERE id = 3")
    killed = ratchet.run("run", "--until-caught-up", crash_at="merge.after_merge", expect=None)
    assert killed.returncode == -9
    done = ratchet.run("run", "--until-caught-up", expect=6)
    assert "a column goes" in done.stderr
    assert "redump 'shop.orders'" in done.stderr
