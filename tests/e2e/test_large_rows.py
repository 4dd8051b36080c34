"""Rows of many megabytes, with a Java heap that could not hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical

from lab.servers import create_ratchet_user

Steps = list[tuple[str, ...]]


def big(megabytes: int) -> str:
    """An expression: bytes that files hold in little room, and memory does not."""
    return f"REPEAT(x'00112233445566778899aabbccddeeff', {megabytes << 16})"


INSERTS: Steps = [
    tuple(f"INSERT INTO b VALUES ({n}, {big(16)})" for n in range(8)),
    ("UPDATE b SET v = CONCAT(id, v)",),
    ("UPDATE b SET v = CONCAT(v, id)", "DELETE FROM b WHERE id = 3"),
]
MANY: Steps = [
    tuple(f"INSERT INTO b VALUES ({n}, {big(1)})" for n in range(200)),
    ("UPDATE b SET v = CONCAT(v, 'x')", "DELETE FROM b WHERE id < 50"),
    ("UPDATE b SET id = id + 1000 WHERE id < 60",),
]
ONE: Steps = [
    (f"INSERT INTO b VALUES (1, {big(200)})",),
    ("UPDATE b SET v = CONCAT(v, 'x')",),
    ("DELETE FROM b", "INSERT INTO b VALUES (1, 'small')"),
]


@pytest.mark.long
@pytest.mark.parametrize("heap", ["1g", pytest.param("2g", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(INSERTS, id="16 MB x 8"),
        pytest.param(MANY, id="1 MB x 200", marks=pytest.mark.long),
        pytest.param(ONE, id="200 MB", marks=pytest.mark.long),
    ],
)
def test_rows_that_java_could_not_hold(
    make_server: Callable[..., Any],
    make_ratchet: Callable[..., Ratchet],
    steps: Steps,
    heap: str,
) -> None:
    """They come by the log, change, are verified, and are dumped again."""
    server = make_server("mysql", options={"max-allowed-packet": str(1 << 30)})
    server.execute("CREATE DATABASE shop")
    for table in ("b (id INT PRIMARY KEY, v LONGBLOB)", "other (id INT PRIMARY KEY)"):
        server.execute(f"CREATE TABLE {table}", database="shop")
    create_ratchet_user(server, PASSWORD, ["shop"])
    ratchet = make_ratchet({"-": server}, "shop")
    text = ratchet.config.read_text()
    ratchet.config.write_text(text.replace("spark:\n", f"spark:\n  driver_memory: {heap}\n"))
    ratchet.run("run", "--until-caught-up")
    for number, statements in enumerate(steps):
        for statement in (*statements, f"INSERT INTO other VALUES ({number})"):
            server.execute(statement, database="shop")
        ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", ["b", "other"])
    ratchet.run("verify")
    ratchet.run("table", "redump", "shop.b")
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [server], "shop", ["b", "other"])
