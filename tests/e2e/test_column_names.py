"""Columns with names as Spark, Delta and Ratchet use them inside: right, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet, assert_identical, status

from lab.servers import create_ratchet_user
from ratchet.core.columnrules import TAKEN

# Of plans that we do not ask for, of formats beside the data, and our own inside.
RIGHT = (
    "_input_file_name_", "_change_type", "_commit_version", "_corrupt_record", "path", "filePath",
    "row_index", "shard", "token", "op", "before", "present", "key", "_row-id-col-1", "__row_id",
)  # fmt: skip


@pytest.mark.long
def test_names_of_inner_columns(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """By the merge in this process, by Spark's (for a TRUNCATE), and by a repair."""
    tables = {f"t{number}": name for number, name in enumerate(RIGHT)}
    odd = {f"odd{number}": name for number, name in enumerate(sorted(TAKEN))}

    def each(*statements: str) -> None:
        with mariadb.connect(database=database) as connection, connection.cursor() as cursor:
            for table, column in (tables | odd).items():
                for statement in statements:
                    cursor.execute(statement.format(table=table, column=column))

    each(
        "CREATE TABLE {table} (id INT NOT NULL PRIMARY KEY, `{column}` BIGINT)",
        "INSERT INTO {table} VALUES (1, 10), (2, 20), (3, 30)",
    )
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database)
    found = json.loads(ratchet.run("check", "--json", expect=3).stdout)["findings"]
    refused = {one["check"] for one in found if one["status"] == "fail"}
    assert refused == {f"columns of {table}" for table in odd}
    ratchet.run("run", "--until-caught-up", expect=6)
    phases = {one["table"]: one["phase"] for one in status(ratchet)["tables"]}
    assert phases == dict.fromkeys(tables, "streaming") | dict.fromkeys(odd, "stopped")

    for changes in (
        ("UPDATE {table} SET `{column}` = 11 WHERE id = 1", "DELETE FROM {table} WHERE id = 2"),
        ("TRUNCATE {table}", "INSERT INTO {table} VALUES (5, 50), (6, 60), (7, 70)"),
    ):
        each(*changes)
        ratchet.run("run", "--until-caught-up", expect=6)
        assert_identical(ratchet.lake, [mariadb], database, list(tables))
    each("SET sql_log_bin = 0", "UPDATE {table} SET `{column}` = 51 WHERE id = 5")
    ratchet.run("repair")
    assert_identical(ratchet.lake, [mariadb], database, list(tables))
