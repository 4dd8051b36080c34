"""A lake of which a part was put back from a backup: tables that are ahead of its records stop."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, status

from lab.servers import create_ratchet_user

TABLES = ("busy", "calm")


@pytest.mark.long
def test_records_that_are_older_than_the_tables(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """Rounds of the same numbers are captured again, with more in them: no row may be left out."""
    for table in TABLES:
        mariadb.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database=database)
        mariadb.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)", database=database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database)
    ratchet.run("run", "--until-caught-up")
    records = Path(ratchet.lake) / "_ratchet"
    shutil.copytree(records, f"{ratchet.lake}-backup")
    for value in (10, 20):
        mariadb.execute(f"UPDATE busy SET v = {value} WHERE id = 1", database=database)
        ratchet.run("run", "--until-caught-up")
    shutil.rmtree(records)
    shutil.copytree(f"{ratchet.lake}-backup", records)
    for table in TABLES:
        mariadb.execute(f"UPDATE {table} SET v = 77 WHERE id = 2", database=database)

    ratchet.run("run", "--until-caught-up", expect=6)
    found = {table["table"]: table for table in status(ratchet)["tables"]}
    assert found["calm"]["phase"] == "streaming"
    assert found["busy"]["phase"] == "stopped"
    assert "parts of the lake are older than others" in str(found["busy"])
    (_,) = ratchet.redump_as_told(found["busy"]["hint"])
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, TABLES)
    assert f"identical: {len(TABLES)} tables" in ratchet.run("verify").stdout
