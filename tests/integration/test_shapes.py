"""What tells of a table's shape where no statement does: rows in the log, and what is in sight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from fix_e2e import assert_identical
from mirror_kit import Mirror

from lab.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Shop:
    """A mirror of one database, compared by doubts alone."""

    def __init__(self, folder: Path, server: Server, spark: SparkSession, database: str) -> None:
        self.server, self.database = server, database
        asked = {"shop": {"schema_changes": "stop"}}  # to see what stops a table
        self.mirror = Mirror(folder, server, spark, {"shop": {"-": database}}, asked)
        self.configure(verify={"every": "off"})

    def configure(self, **more: object) -> None:
        config = yaml.safe_load(self.mirror.config.read_text())
        self.mirror.config.write_text(yaml.safe_dump({**config, **more}))

    def login(self, user: str) -> None:
        config = yaml.safe_load(self.mirror.config.read_text())
        for source in config["sources"].values():
            for shard in source["shards"].values():
                shard |= {"user": user, "password": ""}
        self.mirror.config.write_text(yaml.safe_dump(config))

    def sql(self, *statements: str) -> None:
        with self.server.connect(database=self.database, autocommit=True) as connection:
            for statement in statements:
                connection.cursor().execute(statement)

    def run(self, expect: int = 0) -> str:
        said = self.mirror.ratchet("run", "--until-caught-up", expect=expect)
        return said.out + said.err

    def why(self, table: str) -> str:
        """Why it is stopped; empty if it streams without a doubt."""
        state = self.mirror.state("shop", table)
        if state.stopped is not None:
            return state.stopped.message
        assert (state.phase, state.doubts) == ("streaming", {})
        return ""

    def compare(self, *tables: str) -> None:
        assert_identical(Path(self.mirror.lake.root), [self.server], self.database, tables)


@pytest.fixture
def shop(server: Server, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    database = "shapes"
    server.execute(f"CREATE DATABASE {database}")
    yield Shop(tmp_path, server, spark, database)
    server.execute(f"DROP DATABASE {database}")


def test_shapes_that_no_statement_explains(shop: Shop) -> None:
    """NULLs in a key; ALTERs that a session kept out of the log, and the row behind them."""
    shop.sql(
        "CREATE TABLE nulls (id INT NOT NULL, v INT, UNIQUE (id))",
        "INSERT INTO nulls VALUES (1, 1), (2, 2)",
        "CREATE TABLE two (id INT NOT NULL, b INT NOT NULL, v INT, UNIQUE (id, b))",
        "INSERT INTO two VALUES (1, 1, 1), (2, 2, 2)",
        *(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(20), e ENUM('a', 'b', 'c'))"
            for name in ("cut", "lost", "wider", "same", "told")
        ),
        *(
            f"INSERT INTO {name} VALUES (1, 'abcdef', 'a'), (2, 'x', 'b')"
            for name in ("cut", "lost", "wider", "same", "told")
        ),
    )
    shop.run()
    shop.sql(
        "ALTER TABLE nulls MODIFY id INT NULL",
        "INSERT INTO nulls VALUES (NULL, 9), (NULL, 8)",
        "ALTER TABLE two MODIFY b INT NULL",
        "INSERT INTO two VALUES (1, NULL, 5), (1, NULL, 6)",
        "SET sql_mode = '', sql_log_bin = 0",
        "ALTER TABLE cut MODIFY v VARCHAR(3)",
        "ALTER TABLE lost MODIFY e ENUM('c', 'b')",
        "ALTER TABLE wider MODIFY v VARCHAR(30)",
        "SET sql_log_bin = 1",
        *(f"INSERT INTO {name} (id) VALUES (3)" for name in ("cut", "lost", "wider", "same")),
    )
    said = shop.run(expect=6)
    assert "NULL may be in the key (id)" in shop.why("nulls")
    assert "NULL may be in the key (b)" in shop.why("two")
    assert "no statement changed them" in said
    for table, rows in (("cut", "1 row"), ("lost", "1 row")):
        assert f"shop.{table}: {rows} corrected" in said
    assert [shop.why(table) for table in ("cut", "lost", "wider", "same", "told")] == [""] * 5
    assert "shop.same: compar" not in said
    shop.compare("cut", "lost", "wider", "same", "told")
    # What cannot be compared keeps nothing else from it.
    shop.sql("ALTER TABLE told DROP PRIMARY KEY")
    verified = shop.mirror.ratchet("verify", expect=6).out
    assert "not compared: shop.told: " in verified
    assert "identical  shop.wider: " in verified
    assert "identical  shop.same: " in verified


def test_columns_that_the_account_may_not_read(shop: Shop) -> None:
    """A server does not show them, so the table would be mirrored without them."""
    shop.sql(
        "CREATE TABLE some (id INT PRIMARY KEY, a INT, b INT)",
        "INSERT INTO some VALUES (1, 1, 1)",
        "CREATE TABLE whole (id INT PRIMARY KEY, a INT)",
        "CREATE USER IF NOT EXISTS narrow@'%' IDENTIFIED BY ''",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO narrow@'%'",
        f"GRANT SELECT (id, a) ON {shop.database}.some TO narrow@'%'",
        f"GRANT SELECT ON {shop.database}.whole TO narrow@'%'",
    )
    try:
        shop.login("narrow")
        said = shop.run(expect=6)
        assert "the account may not read all of its columns" in said
        assert shop.why("whole") == ""
        hint = " ".join(said.split())
        grant = hint[hint.index("GRANT SELECT ON") :].split(";", maxsplit=1)[0]
        shop.server.execute(grant)
        shop.mirror.ratchet("table", "redump", "shop.some")
        shop.run()
        shop.compare("some", "whole")
    finally:
        shop.sql("DROP USER narrow@'%'")


def test_a_key_that_the_server_hides(mysql: Server, spark: SparkSession, tmp_path: Path) -> None:
    """MySQL makes one for a table that has none, and may show it to nobody."""
    mysql.execute("CREATE DATABASE hidden")
    shop = Shop(tmp_path, mysql, spark, "hidden")
    shop.sql(
        "SET sql_generate_invisible_primary_key = ON",
        "CREATE TABLE made (v INT)",
        "INSERT INTO made VALUES (1), (1), (2)",
    )
    mysql.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF")
    try:
        shop.run()
        shop.sql("UPDATE made SET v = 3 LIMIT 1", "DELETE FROM made WHERE v = 2")
        shop.run()
        assert shop.why("made") == ""
        assert shop.mirror.state("shop", "made").key == ("my_row_id",)
        assert "identical" in shop.mirror.ratchet("verify").out
    finally:
        mysql.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = ON")
        mysql.execute("DROP DATABASE hidden")
