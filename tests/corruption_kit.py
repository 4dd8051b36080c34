"""Damage to a mirror, each kind on a row of its own: what is done, and what verify says of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mirror_kit import Mirror

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
