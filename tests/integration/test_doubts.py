"""Tables in doubt on real servers: the run decides by itself, and only what is equal goes on.

The servers are changed behind their own logs (sql_log_bin=0), as the statements do that a table is
put in doubt for; the doubts are written into the states, as the merge does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from lease_kit import held
from mirror_kit import Mirror

from lab.servers import Server
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.cuts import Cuts
from ratchet.store.stops import Doubt
from ratchet.store.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STATEMENT: Final = "ALTER TABLE t MODIFY s something"
# Table -> what is done to the source without a word in its log, and why the run stops it ("": it
# counts as right, once rows that differ were read again).
CASES: Final[Mapping[str, tuple[str, str]]] = {
    "same": ("", ""),
    "came": ("ALTER TABLE came ADD COLUMN c INT NULL", ""),
    # No changed row has brought the new column yet, and rows differ.
    "added": ("ALTER TABLE added ADD COLUMN c INT NULL FIRST, MODIFY s VARCHAR(3)", ""),
    "changed": ("UPDATE changed SET s = 'other' WHERE id < 4", ""),
    "missing": ("INSERT INTO missing VALUES (1001, 1, 'x')", ""),
    "extra": ("DELETE FROM extra WHERE id = 5", ""),
    # Its old keys are asked for in a charset that lacks their characters.
    "narrow": ("ALTER TABLE narrow MODIFY s VARCHAR(20) CHARACTER SET latin1 NOT NULL", ""),
    # More than a run mends by itself; the table is made with as many rows.
    "many": ("UPDATE many SET v = v + 1", "20,010 rows (20,010 changed)"),
    "gone": ("DROP TABLE gone", "the source no longer has it"),
    "filled": (
        "ALTER TABLE filled ADD COLUMN c INT DEFAULT 5",
        "the source has columns that the mirror lacks: c",
    ),
    "lost": ("ALTER TABLE lost DROP COLUMN s", "the source no longer has column s"),
    "wider": ("ALTER TABLE wider MODIFY v BIGINT", "v from int32 to int64"),
    "key": (
        "ALTER TABLE `key` DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",
        "its key was (id) and is (id, v)",
    ),
}
# The same where only the shape is in question.
BY_SHAPE: Final[Mapping[str, tuple[str, str]]] = {
    "shape_same": ("", ""),
    "shape_longer": ("ALTER TABLE shape_longer MODIFY s VARCHAR(50)", ""),
    "shape_cut": ("ALTER TABLE shape_cut MODIFY s VARCHAR(3)", ""),
    "shape_virtual": (
        "ALTER TABLE shape_virtual DROP COLUMN v, ADD COLUMN v INT AS (id * 2) STORED AFTER id",
        "",
    ),
}
ALL: Final = {**CASES, **BY_SHAPE}
# What the run says of the rows that it found to differ.
DIFFER: Final[Mapping[str, tuple[str, int]]] = {
    "added": ("10 rows (10 changed)", 10),
    "changed": ("3 rows (3 changed): changed: id=", 3),
    "missing": ("1 row (1 missing): missing: id=1001", 1),
    "extra": ("1 row (1 extra): extra: id=5", 1),
    "narrow": ("4 rows (2 extra, 2 missing)", 4),
    "shape_cut": ("10 rows (10 changed)", 10),
    "shape_virtual": ("10 rows (10 changed)", 10),
}
# Tables whose rows are written anew -> (their generated column, whether it gets other values). The
# session's settings are others than those by which they were written first.
REBUILT: Final[Mapping[str, tuple[str, bool]]] = {
    "anew_stored": ("DECIMAL(30,15) AS (v / 3) STORED", True),
    "anew_virtual": ("BIGINT AS (v * 3) VIRTUAL", False),
}


class Shop:
    """A mirror of one table for each case."""

    def __init__(self, mirror: Mirror, server: Server, database: str) -> None:
        self.mirror, self._server, self._database = mirror, server, database
        self.tables = Tables(mirror.lake)
        self.comparisons = Comparisons(mirror.lake)
        self.said = ""  # by the run that decides

    def sql(self, *statements: str, logged: bool = True) -> None:
        connection = self._server.connect(database=self._database)
        with connection, connection.cursor() as cursor:
            cursor.execute(f"SET SESSION sql_log_bin = {int(logged)}, sql_mode = ''")
            for statement in filter(None, statements):
                cursor.execute(statement)

    def make(self, *tables: str) -> None:
        rows = ",".join(f"({n}, {n}, 'text {n}')" for n in range(1, 11))
        for table in tables:
            self.sql(
                f"CREATE TABLE `{table}` (id INT NOT NULL PRIMARY KEY, v INT, s VARCHAR(20))",
                f"INSERT INTO `{table}` VALUES {rows}",
            )

    def doubt(self, table: str, *, by_shape: bool = False) -> None:
        cut = Cuts(self.mirror.lake).last()
        assert cut is not None
        doubt = Doubt(message="why", statement=STATEMENT, round=cut.round, by_shape=by_shape)
        state = self.mirror.state("shop", table)
        Tables(held(self.mirror.lake)).save(replace(state, doubts={"shop/-": doubt}))

    def compared(self, table: str) -> Comparison | None:
        return self.comparisons.last("shop", table)

    def run(self, expect: int = 0, **verify: Any) -> str:
        self.configure(**verify)
        said = self.mirror.ratchet("run", "--until-caught-up", expect=expect)
        return said.out + said.err

    def configure(self, **verify: Any) -> None:
        import yaml

        config = yaml.safe_load(self.mirror.config.read_text())
        config["verify"] = {"every": "off", **verify}
        self.mirror.config.write_text(yaml.safe_dump(config))


@pytest.fixture(scope="module")
def shop(
    server: Server, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """All cases in doubt, changed at the source, and a run behind them."""
    database = "doubts"
    server.execute(f"CREATE DATABASE {database}")
    folder: Path = tmp_path_factory.mktemp("doubts")
    asked = {"shop": {"schema_changes": "stop"}}  # to see what stops a table
    made = Shop(Mirror(folder, server, spark, {"shop": {"-": database}}, asked), server, database)
    made.make(*(table for table in ALL if table != "narrow"))
    made.sql(
        "CREATE TABLE narrow (id INT, s VARCHAR(20) CHARACTER SET utf8mb4, PRIMARY KEY (s, id))",
        "INSERT INTO narrow VALUES (1, 'plain'), (2, '\u65e5'), (3, '\xfc'), (4, 'a\U0001f600')",
    )
    for first in range(1001, 21_001, 1000):
        made.sql(
            "INSERT INTO many (id, v) VALUES "
            + ",".join(f"({n}, {n})" for n in range(first, first + 1000))
        )
    made.run()
    for table, (statement, _) in ALL.items():
        made.doubt(table, by_shape=table in BY_SHAPE)
        made.sql(statement, logged=False)
    yield made
    server.execute(f"DROP DATABASE {database}")


@pytest.fixture(scope="module")
def ran(shop: Shop) -> Shop:
    """Behind the run that decides."""
    shop.said = shop.run(expect=6)
    return shop


@pytest.mark.parametrize("table", ALL)
def test_a_run_decides_about_every_doubt(ran: Shop, table: str) -> None:
    state, why = ran.mirror.state("shop", table), ALL[table][1]
    if not why:
        assert (state.phase, state.doubts) == ("streaming", {})
        return
    assert state.phase == "stopped"
    assert state.stopped is not None
    assert why in state.stopped.message


@pytest.mark.parametrize("table", DIFFER)
def test_rows_that_a_statement_changed_are_read_again(ran: Shop, table: str) -> None:
    """Whatever `on_difference` says: behind a statement a difference is nobody's fault."""
    found, count = DIFFER[table]
    said = [line for line in ran.said.splitlines() if f"shop.{table}: " in line]
    assert any(found in line for line in said), said
    assert any(f"{count} row{'s' * (count > 1)} corrected" in line for line in said), said
    assert "equal" in said[-1]
    ran.mirror.ratchet("verify", "--table", f"shop.{table}")


def test_what_the_shape_tells_needs_no_look_at_the_rows(ran: Shop) -> None:
    for table in ("shape_same", "shape_longer"):
        assert ran.compared(table) is None
    for table in ("shape_cut", "shape_virtual", "same"):
        assert ran.compared(table) is not None


def test_a_rebuild_computes_stored_columns_anew(ran: Shop) -> None:
    """By COPY, which any ALTER may do; nothing of it is in the log."""
    ran.make(*REBUILT, "anew_plain")
    for table, (generated, _) in REBUILT.items():
        ran.sql(f"ALTER TABLE {table} ADD COLUMN g {generated}")
    ran.run(expect=6)
    for table in (*REBUILT, "anew_plain"):
        ran.sql(
            "SET SESSION div_precision_increment = 12",
            f"ALTER TABLE {table} COMMENT 'anew', ALGORITHM=COPY",
        )
    said = ran.run(expect=6)
    for table, (_, changes) in REBUILT.items():
        state = ran.mirror.state("shop", table)
        assert (state.phase, state.doubts) == ("streaming", {})
        assert (ran.compared(table) is not None) == changes
        assert (f"shop.{table}: 7 rows corrected" in said) == changes
    assert ran.mirror.state("shop", "anew_plain").doubts == {}
    assert ran.compared("anew_plain") is None


def test_the_record_of_a_comparison(ran: Shop) -> None:
    equal, differs = ran.compared("same"), ran.compared("many")
    assert equal is not None
    assert differs is not None
    assert (equal.rows, equal.differences, equal.equal) == (10, 0, True)
    assert (differs.rows, differs.kinds) == (20_010, {"changed": 20_010})
    assert differs.differences == 20_010
    assert differs.since < differs.until


def test_the_remedies_get_out(ran: Shop) -> None:
    """`repair` where rows differ, and nothing else is wrong; `redump` for all."""
    why = ran.mirror.state("shop", "many").stopped
    assert why is not None
    assert "`ratchet repair CONFIG --table 'shop.many'`" in why.hint
    ran.sql("UPDATE many SET v = 77 WHERE id = 9", "DELETE FROM many WHERE id = 8")
    ran.mirror.ratchet("repair", "--table", "shop.many")
    state = ran.mirror.state("shop", "many")
    assert (state.phase, state.doubts) == ("streaming", {})
    ran.sql("CREATE TABLE gone (id INT NOT NULL PRIMARY KEY)", "INSERT INTO gone VALUES (1)")
    for table in ("filled", "lost", "wider", "key", "gone"):
        why = ran.mirror.state("shop", table).stopped
        assert why is not None
        assert f"`ratchet table CONFIG redump 'shop.{table}'`" in why.hint
        ran.mirror.ratchet("table", "redump", f"shop.{table}")
    ran.run()
    assert "identical" in ran.mirror.ratchet("verify").out


@pytest.mark.parametrize("on_difference", ["stop", "repair", "tell"])
def test_rows_are_mended_by_the_run(ran: Shop, on_difference: str) -> None:
    """Whatever the config says of differences: what a statement did to rows is none."""
    table = f"mended_{on_difference}"
    ran.make(table)
    ran.run()
    ran.doubt(table)
    ran.sql(
        f"DELETE FROM {table} WHERE id = 1",
        f"UPDATE {table} SET s = 'new' WHERE id = 2",
        f"INSERT INTO {table} VALUES (3000, 3, 'three')",
        logged=False,
    )
    said = ran.run(on_difference=on_difference)
    assert "3 rows corrected" in said
    state = ran.mirror.state("shop", table)
    assert (state.phase, state.doubts) == ("streaming", {})
    assert "identical" in ran.mirror.ratchet("verify", "--table", f"shop.{table}").out
    ran.sql(f"UPDATE {table} SET s = 'newer' WHERE id = 2")
    ran.run()
    assert "identical" in ran.mirror.ratchet("verify", "--table", f"shop.{table}").out
