"""Each JSON file that a run leaves in a lake is torn, and what the next run says is typed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from fix_e2e import PASSWORD, Ratchet, assert_identical

from lab.servers import create_ratchet_user

TABLES = ("a", "b")


def begun(server: Any, database: str, make_ratchet: Callable[..., Ratchet]) -> Ratchet:
    for table in TABLES:
        server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database=database)
        server.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)", database=database)
    create_ratchet_user(server, PASSWORD, [database])
    return make_ratchet({"-": server}, database)


@pytest.mark.long
def test_every_json_file_of_a_lake(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    ratchet = begun(mariadb, database, make_ratchet)
    for value in (10, 20):
        ratchet.run("run", "--until-caught-up")
        for table in TABLES:
            mariadb.execute(f"UPDATE {table} SET v = {value} WHERE id = 1", database=database)
    lake = Path(ratchet.lake)
    whole = f"{lake}-whole"
    shutil.copytree(lake, whole)
    files = [
        file.relative_to(lake)
        for file in sorted((lake / "_ratchet").rglob("*.json"))
        if "_delta_log" not in file.parts
    ]
    assert len(files) > 8, files
    told = []
    for file in files:
        shutil.rmtree(lake)
        shutil.copytree(whole, lake)
        (lake / file).write_bytes(b"")
        done = ratchet.run("run", "--until-caught-up", expect=None)
        assert done.returncode in {0, 7}, (file, done.stderr)
        if done.returncode:
            told.append(file)
            follow(ratchet, done.stderr)
        # Fewer rows than before a table was dumped again, or as many: they are the source's.
        assert_identical(ratchet.lake, [mariadb], database, TABLES)
        ratchet.run("verify")
    assert {"format.json", "lease.json", "a.json"} <= {file.name for file in told}


LOGS = {
    "torn commit": "*9.json",
    "torn checkpoint": "*.checkpoint.parquet",
    "torn name of it": "_last_checkpoint",
    "folder": "*9.json",
}


@pytest.mark.long
@pytest.mark.parametrize("kind", LOGS)
def test_a_log_of_a_table_is_damaged(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    """A checkpoint by another writer, and what damage of the log leads to: the remedy gets out."""
    ratchet = begun(mariadb, database, make_ratchet)
    for value in range(7):
        ratchet.run("run", "--until-caught-up")
        mariadb.execute(f"UPDATE a SET v = {value + 5} WHERE id = 1", database=database)
    log = ratchet.lake / "shop" / "a" / "_delta_log"
    if "commit" not in kind and kind != "folder":
        DeltaTable(log.parent).create_checkpoint()
    hurt = max(log.glob(LOGS[kind]))
    if kind == "folder":
        hurt.unlink()
        hurt.mkdir()
    else:
        hurt.write_bytes(hurt.read_bytes()[: hurt.stat().st_size // 2])
    said = ratchet.run("run", "--until-caught-up", expect=7).stderr
    follow(ratchet, said)
    assert_identical(ratchet.lake, [mariadb], database, TABLES)
    ratchet.run("verify")


def follow(ratchet: Ratchet, said: str) -> None:
    """Do what it says, and run again."""
    for path in re.findall(r"remove the file (\S+) in", said):
        (ratchet.lake / path).unlink()
    for path in re.findall(r"remove the folder (\S+) in", said):
        shutil.rmtree(ratchet.lake / path)
    for content, path in re.findall(r"put (\{.*\}) into the file (\S+) in it", said):
        (ratchet.lake / path).write_text(content)
    done = ratchet.run("run", "--until-caught-up", expect=None)
    assert done.returncode in {0, 6}, done.stderr
    if done.returncode == 6:
        ratchet.redump_as_told(done.stderr)
        ratchet.run("run", "--until-caught-up")
