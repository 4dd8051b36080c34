"""Which damage to a mirror `verify` finds, and that `repair` mends it: docs/guarantees.md.

A MySQL and its mirror; each cell damages a row of a Delta table behind Ratchet's back. All cells
are damaged at once, each on a key of its own, and looked at three times:

  found    while the source goes on changing other rows
  later    when the damaged rows themselves have been changed at the source, but not merged
  merged   when that was merged

Then all are damaged once more, some are changed at the source, and `repair` is killed and run. The
tests stand in the order in which all this happens to one mirror.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from corruption_kit import CELLS, DATABASES, RIGHT, Cell, Damaged, writing
from mirror_kit import Mirror, Said

from lab.servers import Server
from ratchet.merge import repair

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


# Each look at all cells is a command of its own, and there are many.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def damaged(
    mysql: Server, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Damaged]:
    """All cells damaged and looked at."""
    names = [name for shards in DATABASES.values() for name in shards.values()]
    databases = {name: f"corrupt_{os.getpid()}_{name}" for name in names}
    for database in databases.values():
        mysql.execute(f"CREATE DATABASE {database}")
    mirror = Mirror(
        tmp_path_factory.mktemp("corrupt"), mysql, spark,
        {k: {s: databases[d] for s, d in v.items()} for k, v in DATABASES.items()},
        {"pairs": {"key": "shard+primary"}},
    )  # fmt: skip
    made = Damaged(mirror, databases)
    made.fill()
    made.damage()
    with writing(lambda n: made.sql("one", f"UPDATE t SET n = {n} WHERE id BETWEEN 42 AND 60")):
        made.look("found")
    made.change()
    made.look("later")
    mirror.follow()
    made.look("merged")
    yield made
    for database in databases.values():
        mysql.execute(f"DROP DATABASE {database}")


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
class TestEachCell:
    """What verify says of one kind of damage."""

    def test_while_other_rows_change(self, damaged: Damaged, cell: Cell) -> None:
        assert damaged.of(cell, "found") == cell.found

    def test_changed_later(self, damaged: Damaged, cell: Cell) -> None:
        assert damaged.of(cell, "later") == (cell.found if cell.later is None else cell.later)

    def test_that_change_merged(self, damaged: Damaged, cell: Cell) -> None:
        assert damaged.of(cell, "merged") == cell.merged


def test_nothing_else_is_named(damaged: Damaged) -> None:
    keys = {(cell.keyspace, cell.key) for cell in CELLS}
    for found in damaged.found.values():
        named = {(name.split(".")[0], row[0][0]) for name, rows in found.items() for row in rows}
        assert named <= keys


@dataclass
class Mended:
    """The same mirror, repaired.

    Attributes:
        versions: of its tables before.
        dry, versions_dry: of the dry run.
        killed: the repair that was killed.
        said: the one that was not.
        found: differences after it, and after each later merge.
    """

    dry: Said
    versions: tuple[list[int], list[int]]
    killed: Said
    said: Said
    found: list[dict[str, set[tuple[Any, ...]]]]


@pytest.fixture(scope="module")
def mended(damaged: Damaged) -> Mended:
    """Damaged anew, some rows changed since, and repaired; then changed again."""
    mirror = damaged.mirror
    # Its row is wrong still, and stands under a token from the future: that is damage enough.
    damaged.damage("token from the future")
    # One that verify judges by content only once it was changed is left as it is.
    damaged.change(lambda cell: cell.later is None and (cell.key or 1) % 2 == 0)
    before = versions(mirror)
    dry = mirror.ratchet("repair", "--dry-run", expect=1)
    unchanged = versions(mirror)

    def die(point: str) -> None:
        if point == "repair.after_side":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(repair, "reach", die)
        killed = mirror.ratchet("repair", expect=130)
    said = mirror.ratchet("repair")
    found = [mirror.differences()]
    damaged.change()
    mirror.follow()
    found.append(mirror.differences())
    damaged.sql("one", "DELETE FROM t WHERE id % 3 = 0", "UPDATE t SET id = 500 WHERE id = 37")
    damaged.sql("two_left", "DELETE FROM t WHERE id < 3")
    damaged.sql("two_right", "INSERT INTO t VALUES (3, 'moved', 1)")
    damaged.sql("two_left", "DELETE FROM t WHERE id = 3")
    mirror.follow()
    found.append(mirror.differences())
    return Mended(dry, (before, unchanged), killed, said, found)


def versions(mirror: Mirror) -> list[int]:
    """The newest versions of the three tables."""
    found = []
    for keyspace in DATABASES:
        history = mirror.spark.sql(f"DESCRIBE HISTORY {mirror.path(keyspace, 't')}")
        found.append(int(history.selectExpr("max(version)").collect()[0][0]))
    return found


NONE: Final = {f"{keyspace}.t": set[Any]() for keyspace in DATABASES}


@pytest.mark.long
def test_a_dry_run_says_what_would_be_mended_and_writes_nothing(mended: Mended) -> None:
    assert mended.versions[0] == mended.versions[1]
    out = mended.dry.out
    assert "nothing was written" in out
    for line in (
        "changed: id=34 columns s, s2",
        "doubled: id=37",
        "missing: id=30",
        "doubled: id=3",
        f"doubled: id=3 on pairs/{RIGHT}",
    ):
        assert f"  {line}\n" in out


@pytest.mark.long
def test_every_cell_is_mended(mended: Mended) -> None:
    """Also after a kill between tombstones and rows; it is proved by a second comparison."""
    assert mended.killed.code == 130
    assert "NOT" not in mended.said.out, mended.said.out
    assert "identical: " in mended.said.out
    assert mended.found[0] == NONE


@pytest.mark.long
def test_repaired_rows_take_later_changes(mended: Mended) -> None:
    """Those between cut and repair, and those after: changes, deletes, moves to another shard."""
    assert mended.found[1:] == [NONE, NONE]


@pytest.mark.long
def test_rows_that_the_log_does_not_lead_to_are_left(mended: Mended, damaged: Damaged) -> None:
    """A change that no log tells, behind one that is not merged: the row at the cut is right."""
    assert mended
    mirror = damaged.mirror
    damaged.sql(
        "one", "UPDATE t SET n = 50 WHERE id = 5", "SET SESSION sql_log_bin = 0",
        "UPDATE t SET s = 'silent' WHERE id IN (5, 7)", "DELETE FROM t WHERE id = 8",
        "INSERT INTO t (id) VALUES (800)",
    )  # fmt: skip
    said = mirror.ratchet("repair", "--table", "shop.t", expect=1)
    assert "DIFFERENT  shop.t: corrected 3 rows (1 changed, 1 extra, 1 missing)" in said.out
    assert "1 row not to be corrected: it is right at this cut, but the log does not" in said.out
    assert mirror.differences()["shop.t"] == {((5,), "changed", ("s",), "")}
    mirror.follow()
    said = mirror.ratchet("repair", "--table", "shop.t")
    assert "identical  shop.t: corrected 1 row (1 changed)" in said.out


@pytest.mark.long
def test_a_key_on_two_shards_is_left(mended: Mended, damaged: Damaged) -> None:
    """Under `key: primary` one of the rows is shown; which, is not for a repair to say."""
    assert mended
    for half in ("two_left", "two_right"):
        damaged.sql(half, f"REPLACE INTO t VALUES (77, '{half[-5:]}', 1)")
    damaged.mirror.follow()
    said = damaged.mirror.ratchet("repair", "--table", "two.t", expect=1)
    assert "1 row not to be corrected: the key is on several shards" in said.out
    damaged.sql("two_right", "DELETE FROM t WHERE id = 77")
    damaged.mirror.follow()
    assert "two.t: corrected nothing" in damaged.mirror.ratchet("repair", "--table", "two.t").out


@pytest.mark.long
def test_a_table_whose_columns_changed_is_refused(mended: Mended, damaged: Damaged) -> None:
    """Whole rows are not known; nothing is written."""
    assert mended
    mirror = damaged.mirror
    mirror.spark.sql(f"DELETE FROM {mirror.path('shop', 't')} WHERE id = 10")
    damaged.sql("one", "ALTER TABLE t ADD COLUMN more INT NOT NULL DEFAULT 7")
    before = versions(mirror)
    said = mirror.ratchet("repair", expect=1)
    assert "REFUSED    shop.t" in said.out
    assert "the mirror lacks columns more: dump it again" in said.out
    assert said.out.count("identical  ") == 2
    assert versions(mirror) == before


@pytest.mark.long
def test_on_mariadb(mariadb: Server, database: str, spark: SparkSession, tmp_path: Path) -> None:
    """Its positions are of another kind: `seq` is a sum over domains."""
    mirror = Mirror(tmp_path, mariadb, spark, {"shop": {"-": database}}, {})
    rows = ",".join(f"({n}, 'row {n}')" for n in range(30))
    mariadb.execute("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(9))", database=database)
    mariadb.execute(f"INSERT INTO t VALUES {rows}", database=database)
    mirror.follow()
    mariadb.execute("UPDATE t SET s = 'newer' WHERE id < 6", database=database)
    mirror.follow()
    path = mirror.path("shop", "t")
    for statement in (
        f"UPDATE {path} SET s = 'wrong' WHERE id IN (1, 2)",
        f"DELETE FROM {path} WHERE id IN (3, 13)",
        f"INSERT INTO {path} BY NAME SELECT 40 AS id, * EXCEPT (id) FROM {path} WHERE id = 4",
        f"INSERT INTO {path} SELECT * FROM {path} WHERE id = 5",
    ):
        spark.sql(statement)
    mariadb.execute("UPDATE t SET s = 'between' WHERE id IN (2, 13)", database=database)
    said = mirror.ratchet("repair")
    assert "corrected 6 rows (2 changed, 1 doubled, 1 extra, 2 missing)" in said.out
    assert mirror.differences() == {"shop.t": set()}
    mariadb.execute("UPDATE t SET s = 'later' WHERE id IN (1, 3, 5)", database=database)
    mariadb.execute("DELETE FROM t WHERE id = 2", database=database)
    mirror.follow()
    assert mirror.differences() == {"shop.t": set()}
