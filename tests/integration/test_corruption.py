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
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from mirror_kit import Mirror, Said

from lab.servers import Server
from merge import repair

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TYPES = """CREATE TABLE t (
  id INT NOT NULL PRIMARY KEY, n INT NOT NULL DEFAULT 0,
  i SMALLINT, u BIGINT UNSIGNED, d DECIMAL(20,6), f FLOAT, g DOUBLE, b BIT(9), y YEAR,
  s VARCHAR(40), s2 VARCHAR(40), tx TEXT, vb VARBINARY(20), bl BLOB, da DATE, dt DATETIME(6),
  ts TIMESTAMP(6) NULL, ti TIME(3), js JSON, e ENUM('a','b'), st SET('x','y'), ge POINT,
  nothing VARCHAR(9))"""
ROW = """(%d, 0, %d, 18446744073709551000 + %d, %d.25, %d / 7, %d / 3, %d, 1990 + %d, 'näme %d',
  'other %d', 'text %d', X'00ff%02x', X'%02x', '2020-02-29', '2024-01-01 00:00:00.%06d',
  '2024-06-01 12:00:00.%06d', '-12:00:00.%03d', '{"k": %d}', 'a', 'x,y', POINT(%d, 1), NULL)"""
ROWS: Final = 60
LEFT, RIGHT = "-80", "80-"
DATABASES: Final = {
    "shop": {"-": "one"},
    "two": {LEFT: "two_left", RIGHT: "two_right"},
    "pairs": {LEFT: "pairs_left", RIGHT: "pairs_right"},
}
HOME: Final = {"shop": "one", "two": "two_left", "pairs": "pairs_left"}  # of the damaged rows

Seen = frozenset[tuple[str, tuple[str, ...], str]]  # kind, columns, shard


def seen(kind: str, *columns: str, shard: str = "") -> Seen:
    return frozenset({(kind, columns, shard)})


NOTHING: Final[Seen] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One kind of damage to one row.

    Attributes:
        name: of the cell.
        key: the row's.
        sets: column -> SQL: what its columns become; of all cells of a table in one UPDATE.
        damage: more SQL on the Delta table T; OLD is T before the source's first changes.
        found: what verify says.
        later: when the row was changed at the source since; None: the same.
        merged: when that was merged.
        keyspace: whose table it is.
    """

    name: str
    key: int | None
    found: Seen
    sets: Mapping[str, str] = field(default_factory=dict)
    damage: tuple[str, ...] = ()
    later: Seen | None = None
    merged: Seen = NOTHING
    keyspace: str = "shop"


# A value of each family that is another one.
OTHER = {
    "i": "CAST(i + 1 AS SMALLINT)", "u": "u - 1", "d": "d + 0.000001",
    "f": "CAST(f + 0.5 AS FLOAT)",
    "g": "g + 1e-12", "b": "b + 1", "y": "y + 1", "s": "s || ' '", "tx": "upper(tx)",
    "vb": "X'00FF'", "bl": "X''", "da": "da + INTERVAL 1 DAY", "dt": "dt + INTERVAL 1 MICROSECOND",
    "ts": "ts + INTERVAL 1 HOUR", "ti": "ti + 1", "js": """'{"k":  1}'""", "e": "'b'", "st": "'x'",
    "ge": "X'00'",
}  # fmt: skip


def cells() -> Iterator[Cell]:
    for key, (column, value) in enumerate(OTHER.items(), start=1):
        yield Cell(
            name=f"changed {column}", key=key, found=seen("changed", column),
            sets={column: value},
        )  # fmt: skip
    yield Cell(
        name="lost row", key=30, damage=("DELETE FROM T WHERE id = 30",), found=seen("missing")
    )
    yield Cell(
        name="extra row", key=131, found=seen("extra"),
        damage=("INSERT INTO T BY NAME SELECT 131 AS id, * EXCEPT (id) FROM T WHERE id = 31",),
    )  # fmt: skip
    yield Cell(
        name="resurrected row", key=32, found=seen("extra"),
        damage=("INSERT INTO T SELECT * FROM OLD WHERE id = 32",),
    )  # fmt: skip
    yield Cell(
        name="stale row", key=33, found=seen("changed", "n", "s"),
        damage=("DELETE FROM T WHERE id = 33", "INSERT INTO T SELECT * FROM OLD WHERE id = 33"),
    )  # fmt: skip
    yield Cell(
        name="swapped columns", key=34, found=seen("changed", "s", "s2"),
        sets={"s": "s2", "s2": "s"},
    )  # fmt: skip
    yield Cell(
        name="NULL for a value", key=35, found=seen("changed", "i", "s", "vb"),
        sets={"s": "NULL", "vb": "NULL", "i": "NULL"},
    )  # fmt: skip
    yield Cell(
        name="a value for NULL", key=36, found=seen("changed", "nothing"),
        sets={"nothing": "''"},
    )  # fmt: skip
    yield Cell(
        # The next change meets both rows: the doubling stays.
        name="doubled key", key=37, found=seen("doubled"), merged=seen("doubled"),
        damage=("INSERT INTO T SELECT * FROM T WHERE id = 37",),
    )  # fmt: skip
    yield Cell(
        name="doubled key, one row wrong", key=38, found=seen("doubled"), merged=seen("doubled"),
        damage=(
            "INSERT INTO T BY NAME SELECT 'wrong' AS s, * EXCEPT (s) FROM T WHERE id = 38",
        ),
    )  # fmt: skip
    yield Cell(
        name="a changed key", key=39, found=seen("missing"),
        sets={"id": "1039"},
    )  # fmt: skip
    yield Cell(name="the key it has become", key=1039, found=seen("extra"))
    yield Cell(
        name="a key become NULL", key=20, found=seen("missing"),
        sets={"id": "NULL"},
    )  # fmt: skip
    yield Cell(
        name="the NULL it has become", key=None,
        found=seen("extra"), merged=seen("extra"),
    )  # fmt: skip
    yield Cell(
        name="lost token", key=40, found=seen("changed", "_token.shard"), later=NOTHING,
        damage=("UPDATE T SET _token = NULL WHERE id = 40",),
    )  # fmt: skip
    yield Cell(
        # Not seen by itself, and the next change is taken for older: then the row is.
        name="token from the future", key=41, found=NOTHING, merged=seen("changed", "n"),
        damage=("UPDATE T SET _token.seq = _token.seq + 1000000000 WHERE id = 41",),
    )  # fmt: skip
    for keyspace in ("two", "pairs"):
        shard = f"pairs/{LEFT}" if keyspace == "pairs" else ""
        yield Cell(
            name=f"lost row of a shard, {keyspace}", key=1, keyspace=keyspace,
            damage=("DELETE FROM T WHERE id = 1",), found=seen("missing", shard=shard),
        )  # fmt: skip
        yield Cell(
            name=f"changed row of a shard, {keyspace}", key=2, keyspace=keyspace,
            sets={"s": "'wrong'"},
            found=seen("changed", "s", shard=shard),
        )  # fmt: skip
    yield Cell(
        # Content is all that a changed row is judged by; its change then stands beside the row.
        name="row under the wrong shard", key=3, keyspace="two",
        damage=(f"UPDATE T SET _token.shard = 'two/{RIGHT}' WHERE id = 3",),
        found=seen("changed", "_token.shard"), later=NOTHING, merged=seen("doubled"),
    )  # fmt: skip
    yield Cell(
        name="row under the wrong shard, with the shard in the key", key=3, keyspace="pairs",
        damage=(f"UPDATE T SET _token.shard = 'pairs/{RIGHT}' WHERE id = 3",),
        found=seen("missing", shard=f"pairs/{LEFT}") | seen("extra", shard=f"pairs/{RIGHT}"),
        merged=seen("extra", shard=f"pairs/{RIGHT}"),
    )  # fmt: skip


CELLS: Final = tuple(cells())


def cases(column: str, wanted: Iterable[Cell]) -> str:
    """What a column becomes in the rows of those cells."""
    found = [(cell.key, cell.sets[column]) for cell in wanted if column in cell.sets]
    return " ".join(f"WHEN id = {key} THEN {value}" for key, value in found)


class Damaged:
    """The mirror of all cells, and what verify said of it in each phase."""

    def __init__(self, mirror: Mirror, databases: Mapping[str, str]) -> None:
        self.mirror = mirror
        self.databases = databases
        self.old: dict[str, int] = {}
        self.found: dict[str, dict[str, set[tuple[Any, ...]]]] = {}

    def sql(self, where: str, *statements: str) -> None:
        connection = self.mirror.server.connect(database=self.databases[where])
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def fill(self) -> None:
        """Three tables, and what stale and resurrected rows come from."""
        self.sql("one", TYPES, "INSERT INTO t VALUES " + ",".join(
            ROW % ((n,) * ROW.count("%")) for n in range(1, ROWS + 1)
        ))  # fmt: skip
        for where in ("two_left", "two_right", "pairs_left", "pairs_right"):
            base = 0 if where.endswith("left") else 100
            rows = ",".join(f"({base + n}, 's{n}', 0)" for n in range(1, 20))
            self.sql(
                where,
                "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, s VARCHAR(9), n INT NOT NULL)",
                f"INSERT INTO t VALUES {rows}",
            )
        self.mirror.follow()
        for keyspace in ("shop", "two", "pairs"):
            path = self.mirror.path(keyspace, "t")
            history = self.mirror.spark.sql(f"DESCRIBE HISTORY {path}")
            self.old[keyspace] = history.selectExpr("max(version)").collect()[0][0]
        self.sql(
            "one", "DELETE FROM t WHERE id = 32", "UPDATE t SET s = 'newer', n = 1 WHERE id = 33"
        )
        self.mirror.follow()

    def damage(self, *left_out: str) -> None:
        cells = [cell for cell in CELLS if cell.name not in left_out]
        for keyspace in DATABASES:
            path = self.mirror.path(keyspace, "t")
            mine = [cell for cell in cells if cell.keyspace == keyspace]
            columns = sorted({column for cell in mine for column in cell.sets})
            sets = [
                f"{column} = CASE {cases(column, mine)} ELSE {column} END" for column in columns
            ]
            if sets:
                self.mirror.spark.sql(f"UPDATE {path} SET {', '.join(sets)}")
            for statement in (one for cell in mine for one in cell.damage):
                old = f"{path} VERSION AS OF {self.old[keyspace]}"
                self.mirror.spark.sql(statement.replace(" T ", f" {path} ").replace("OLD", old))

    def change(self, wanted: Callable[[Cell], bool] = lambda _: True) -> None:
        """Change damaged rows at the source."""
        for cell in filter(wanted, CELLS):
            if cell.key is None:
                continue
            self.sql(
                HOME[cell.keyspace],
                f"INSERT INTO t (id, n) VALUES ({cell.key}, 7) ON DUPLICATE KEY UPDATE n = n + 1",
            )

    def look(self, phase: str) -> None:
        self.found[phase] = self.mirror.differences()

    def of(self, cell: Cell, phase: str) -> Seen:
        rows = self.found[phase][f"{cell.keyspace}.t"]
        return frozenset(
            (kind, columns, on) for key, kind, columns, on in rows if key == (cell.key,)
        )


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


class writing:  # noqa: N801 - a context
    """Writes while the block runs."""

    def __init__(self, write: Callable[[int], None]) -> None:
        self._write = write
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._halt.wait(0.01):
            number += 1
            self._write(number)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self._thread.join()


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
    assert "DIFFERENT  shop.t: mended 3 rows (1 changed, 1 extra, 1 missing)" in said.out
    assert "1 row not to be mended: it is right at this cut, but the log does not" in said.out
    assert mirror.differences()["shop.t"] == {((5,), "changed", ("s",), "")}
    mirror.follow()
    said = mirror.ratchet("repair", "--table", "shop.t")
    assert "identical  shop.t: mended 1 row (1 changed)" in said.out


@pytest.mark.long
def test_a_key_on_two_shards_is_left(mended: Mended, damaged: Damaged) -> None:
    """Under `key: primary` one of the rows is shown; which, is not for a repair to say."""
    assert mended
    for half in ("two_left", "two_right"):
        damaged.sql(half, f"REPLACE INTO t VALUES (77, '{half[-5:]}', 1)")
    damaged.mirror.follow()
    said = damaged.mirror.ratchet("repair", "--table", "two.t", expect=1)
    assert "1 row not to be mended: the key lives on several shards" in said.out
    damaged.sql("two_right", "DELETE FROM t WHERE id = 77")
    damaged.mirror.follow()
    assert "two.t: mended nothing" in damaged.mirror.ratchet("repair", "--table", "two.t").out


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
    assert "mended 6 rows (2 changed, 1 doubled, 1 extra, 2 missing)" in said.out
    assert mirror.differences() == {"shop.t": set()}
    mariadb.execute("UPDATE t SET s = 'later' WHERE id IN (1, 3, 5)", database=database)
    mariadb.execute("DELETE FROM t WHERE id = 2", database=database)
    mirror.follow()
    assert mirror.differences() == {"shop.t": set()}
