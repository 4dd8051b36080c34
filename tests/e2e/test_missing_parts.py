"""A part of one table is gone from a lake: that table stops by name, and what it says gets out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, status

from lab.servers import create_ratchet_user

TABLES = ("a", "b")
# What is removed -> the commands that are tried besides a run.
FOLDERS = (["verify"], ["repair"], ["sql", "SELECT sum(v) FROM shop.a"], ["table", "add", "a"])
CASES = {
    "shop/a": FOLDERS,
    "shop/a/_delta_log": (),
    "shop/a/*.parquet": (),
    "shop/a/*.bin": (),
    "_ratchet/side/shop/a": (["verify"],),
    "_ratchet/side/shop/a/*/_delta_log": (),
    "_ratchet/side/shop/a/*/*.parquet": (),
}


@pytest.mark.long
def test_parts_that_are_gone(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    for table in TABLES:
        mariadb.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database=database)
        mariadb.execute(f"INSERT INTO {table} SELECT seq, 1 FROM seq_1_to_99", database=database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database)
    for value in (10, 20):
        ratchet.run("run", "--until-caught-up")
        for table in TABLES:
            mariadb.execute(f"UPDATE {table} SET v = {value} WHERE id < 5", database=database)
            mariadb.execute(f"DELETE FROM {table} WHERE id = {value}", database=database)
    ratchet.run("run", "--until-caught-up")
    for table in TABLES:
        mariadb.execute(f"UPDATE {table} SET v = 77 WHERE id < 9", database=database)
        mariadb.execute(f"DELETE FROM {table} WHERE id = 30", database=database)
    lake = Path(ratchet.lake)
    whole = f"{lake}-whole"
    shutil.copytree(lake, whole)
    for parts, commands in CASES.items():
        for command in commands:
            put_back(lake, whole, parts)
            follow(ratchet, ratchet.run(*command, expect=7).stderr)
            assert_identical(ratchet.lake, [mariadb], database, TABLES)
        put_back(lake, whole, parts)
        ratchet.run("run", "--until-caught-up", expect=6)
        found = {table["table"]: table for table in status(ratchet)["tables"]}
        assert (found["a"]["phase"], found["b"]["phase"]) == ("stopped", "streaming"), parts
        assert_identical(ratchet.lake, [mariadb], database, ("b",))
        follow(ratchet, found["a"]["hint"])
        assert_identical(ratchet.lake, [mariadb], database, TABLES)
    ratchet.run("verify")


def put_back(lake: Path, whole: str, parts: str) -> None:
    """The lake as it was, without some of it."""
    shutil.rmtree(lake)
    shutil.copytree(whole, lake)
    found = list(lake.glob(parts))
    assert found, parts
    for one in found:
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def follow(ratchet: Ratchet, said: str) -> None:
    """Type the remedy, and run."""
    (remedy,) = ratchet.redump_as_told(said)
    assert "shop.a" in remedy
    ratchet.run("run", "--until-caught-up")
