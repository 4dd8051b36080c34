"""Captured changes that something removed from the lake: `verify` tells, the remedy is typed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from altered_kit import execute
from fix_e2e import PASSWORD, Ratchet, assert_identical, status

from lab.servers import create_ratchet_user


@pytest.mark.long
@pytest.mark.parametrize("lost", [pytest.param(("lost",), marks=pytest.mark.long), ("lost", "too")])
def test_changes_that_are_gone(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], lost: tuple[str, ...]
) -> None:
    """A file's table or a segment's tables stop by name; what is printed brings them back.

    Nothing else is dumped.
    """
    tables = (*lost, "kept")
    for table in tables:
        mariadb.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database=database)
        mariadb.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)", database=database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database)
    ratchet.run("run", "--until-caught-up")
    before = set(_change_files(ratchet.lake))
    for table in lost:
        mariadb.execute(f"UPDATE {table} SET v = 20 WHERE id = 2", database=database)
    killed = ratchet.run("run", "--until-caught-up", crash_at="merge.before_side", expect=None)
    assert killed.returncode == -signal.SIGKILL
    (gone,) = set(_change_files(ratchet.lake)) - before
    assert gone.suffix == (".parquet" if len(lost) == 1 else ".segment")
    gone.unlink()
    mariadb.execute("UPDATE kept SET v = 20 WHERE id = 2", database=database)

    told = ratchet.run("verify", expect=7).stdout
    assert "captured changes are gone (shop.lost:" in told
    assert "`ratchet run CONFIG` stops these tables by name" in told

    ratchet.run("run", "--until-caught-up", expect=6)
    found = {table["table"]: table for table in status(ratchet)["tables"]}
    assert found["kept"]["phase"] == "streaming"
    for table in lost:
        assert found[table]["phase"] == "stopped"
        (_,) = ratchet.redump_as_told(found[table]["hint"])
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, tables)
    assert f"identical: {len(tables)} tables" in ratchet.run("verify").stdout


@pytest.mark.long
@pytest.mark.parametrize("lost", ["changes", "a file of the child", "the child's log"])
def test_rows_that_followed_by_a_foreign_key(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], lost: str
) -> None:
    """What the parent's changes did to the child is not told any more: the child is compared."""
    execute(mariadb, database, "CREATE TABLE other (id INT PRIMARY KEY)")
    execute(mariadb, database, "CREATE TABLE parent (id INT PRIMARY KEY)")
    execute(
        mariadb,
        database,
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, "
        "FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
    )
    execute(mariadb, database, "INSERT INTO parent VALUES (1), (2), (3)")
    execute(mariadb, database, "INSERT INTO child VALUES (10, 1), (20, 2), (30, 3)")
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database, verify={"every": "off"})
    ratchet.run("run", "--until-caught-up")
    before = set(_change_files(ratchet.lake))
    execute(mariadb, database, "DELETE FROM parent WHERE id = 2")
    ratchet.run("run", "--until-caught-up", crash_at="merge.before_side", expect=-signal.SIGKILL)
    child = ratchet.lake / "shop" / "child"
    damaged = {
        "changes": lambda: list(set(_change_files(ratchet.lake)) - before),
        "a file of the child": lambda: list(child.glob("*.parquet")),
        "the child's log": lambda: [max(child.glob("_delta_log/*.json"))],
    }[lost]()
    assert damaged
    for path in damaged:
        if lost == "the child's log":
            path.write_bytes(b"{")
        else:
            path.unlink()
    execute(mariadb, database, "INSERT INTO other VALUES (1)")

    ratchet.run("run", "--until-caught-up", expect=6)
    found = {table["table"]: table for table in status(ratchet)["tables"]}
    assert found["other"]["phase"] == "streaming"
    stopped = {name for name, one in found.items() if one["phase"] == "stopped"}
    assert stopped == {"parent"} if lost == "changes" else {"child"}
    for name in stopped:
        (_,) = ratchet.redump_as_told(found[name]["hint"])
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, ["other", "parent", "child"])
    ratchet.run("verify")


def _change_files(lake: Path | str) -> list[Path]:
    files = (Path(lake) / "_ratchet" / "changes").rglob("*")
    return [path for path in files if path.is_file()]
