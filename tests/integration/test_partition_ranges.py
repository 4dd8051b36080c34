"""Which rows a partition holds, by its bounds, beside what the servers say themselves.

Generated tables: types, what they are partitioned by, bounds and values are drawn; values stand
beside the bounds more often than elsewhere. Of each partition, and of two, the rows that are left
have to be those that the server shows in all others. A layout may be refused; a wrong row may not.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql

from lab.servers import Server
from ratchet.core.partitions import PartitionsUnclearError
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.store.delta.stats import file_stats
from ratchet.wire.decode.catalog import read_schemas
from ratchet.wire.decode.partitions import read_partitions

POLICY: Final = InvalidValuePolicy()
SEED: Final = os.environ.get("RATCHET_SEED", "0")
_FIRST: Final = datetime(1, 1, 1)  # noqa: DTZ001 - of no zone, as the server's
_SECONDS: Final = int((datetime(9999, 12, 31) - _FIRST).total_seconds())  # noqa: DTZ001


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to partition.

    Attributes:
        column: the type of the column.
        by: what stands behind RANGE; `p` is the column.
        draw: a number that chooses a bound.
        bound: such a number -> the bound in SQL.
        near: such a number -> values in SQL at that bound, and beside it.
    """

    column: str
    by: str
    draw: Callable[[random.Random], int]
    bound: Callable[[int], str]
    near: Callable[[int], Sequence[str]]


def _whole(column: str, low: int, high: int, by: str = "(p)") -> Way:
    def near(number: int) -> list[str]:
        return [str(n) for n in (number - 1, number, number + 1) if low <= n <= high]

    return Way(column=column, by=by, draw=lambda rng: rng.randint(low, high), bound=str, near=near)


def _moment(seconds: int) -> datetime:
    return _FIRST + timedelta(seconds=min(max(seconds, 0), _SECONDS))


def _around(seconds: int) -> list[str]:
    beside = (-86_400, -1, 0, 1, 86_400)
    return [f"'{_moment(seconds + n).isoformat(sep=' ')}'" for n in beside]


def _parts_around(seconds: int) -> list[str]:
    moment = _moment(seconds)
    micro = timedelta(microseconds=1)
    near = [moment - micro, moment, moment + micro] if moment > _FIRST else [moment]
    return [f"'{one.isoformat(sep=' ')}'" for one in near]


def _days_around(number: int) -> list[str]:
    ordinals = (number - 1, number, number + 1)
    return [f"'{date.fromordinal(min(max(n, 1), 3_652_059))}'" for n in ordinals]


def _days(by: str, bound: Callable[[int], str], column: str = "DATE") -> Way:
    return Way(
        column=column,
        by=by,
        draw=lambda rng: rng.choice([rng.randint(2, 3_652_000), 738_000 + rng.randint(0, 900)]),
        bound=bound,
        near=_days_around,
    )


def _seconds(by: str, bound: Callable[[int], str], column: str, *, parts: bool = False) -> Way:
    return Way(
        column=column,
        by=by,
        draw=lambda rng: rng.choice([rng.randint(1, _SECONDS), 63_840_000_000 + rng.randint(0, 9)]),
        bound=bound,
        near=_parts_around if parts else _around,
    )


def _quoted_day(number: int) -> str:
    return f"('{date.fromordinal(number)}')"


def _quoted_moment(number: int) -> str:
    return f"('{_moment(number).isoformat(sep=' ')}')"


def _function(name: str, argument: Callable[[int], str]) -> Callable[[int], str]:
    return lambda number: f"({name}{argument(number)})"


def _year(number: int) -> str:
    return f"({date.fromordinal(number).year})"


def _instants(number: int) -> list[str]:
    return [f"FROM_UNIXTIME({n})" for n in (number - 1, number, number + 1)]


WAYS: Final = {
    "tinyint": _whole("TINYINT", -128, 127),
    "tinyint unsigned": _whole("TINYINT UNSIGNED", 0, 255),
    "smallint": _whole("SMALLINT", -(2**15), 2**15 - 1, "COLUMNS (p)"),
    "mediumint": _whole("MEDIUMINT", -(2**23), 2**23 - 1),
    "mediumint unsigned": _whole("MEDIUMINT UNSIGNED", 0, 2**24 - 1, "COLUMNS (p)"),
    "int": _whole("INT", -(2**31), 2**31 - 1),
    "int unsigned": _whole("INT UNSIGNED", 0, 2**32 - 1),
    "bigint": _whole("BIGINT", -(2**63), 2**63 - 1),
    "bigint, columns": _whole("BIGINT", -(2**63), 2**63 - 1, "COLUMNS (p)"),
    "bigint unsigned": _whole("BIGINT UNSIGNED", 0, 2**63 - 2),
    "bigint unsigned, large": _whole("BIGINT UNSIGNED", 2**63 - 10, 2**64 - 1),
    "bigint unsigned, columns": _whole("BIGINT UNSIGNED", 0, 2**63 - 2, "COLUMNS (p)"),
    "days": _days("(TO_DAYS(p))", _function("TO_DAYS", _quoted_day)),
    "days of moments": _seconds(
        "(TO_DAYS(p))", _function("TO_DAYS", _quoted_moment), "DATETIME(6)", parts=True
    ),
    "date": _days("COLUMNS (p)", _quoted_day),
    "year": _days("(YEAR(p))", _year),
    "year of moments": _seconds(
        "(YEAR(p))", lambda n: f"({_moment(n).year})", "DATETIME(3)", parts=True
    ),
    "seconds": _seconds(
        "(TO_SECONDS(p))", _function("TO_SECONDS", _quoted_moment), "DATETIME(6)", parts=True
    ),
    "moments": _seconds("COLUMNS (p)", _quoted_moment, "DATETIME"),
    "moments with parts": _seconds("COLUMNS (p)", _quoted_moment, "DATETIME(6)", parts=True),
    "moments by days": _days("COLUMNS (p)", _quoted_day, "DATETIME"),
    "instants": Way(
        column="TIMESTAMP",
        by="(UNIX_TIMESTAMP(p))",
        draw=lambda rng: rng.randint(2, 2**31 - 3),
        bound=lambda n: f"({n})",
        near=_instants,
    ),
    "instants, floored": Way(
        column="TIMESTAMP(3)",
        by="(FLOOR(UNIX_TIMESTAMP(p)))",
        draw=lambda rng: rng.randint(2, 2**31 - 3),
        bound=lambda n: f"({n})",
        near=_instants,
    ),
    # These are refused: what they compute is not known here.
    "half": _whole("INT", 0, 2**31 - 1, "(p DIV 2)"),
    "weekday": _days("(WEEKDAY(p))", lambda n: f"({n % 7})"),
    "times": Way(
        column="TIME",
        by="COLUMNS (p)",
        draw=lambda rng: rng.randint(0, 86_399),
        bound=lambda n: f"('{timedelta(seconds=n)}')",
        near=lambda n: [f"'{timedelta(seconds=n)}'"],
    ),
    "texts": Way(
        column="VARCHAR(9)",
        by="COLUMNS (p)",
        draw=lambda rng: rng.randint(0, 9999),
        bound=lambda n: f"('a{n}')",
        near=lambda n: [f"'A{n}'", f"'a{n}'"],
    ),
}
REFUSED: Final = {"half", "weekday", "times", "texts", "instants, floored"}
ROUNDS: Final = int(os.environ.get("RATCHET_LAYOUTS", "2"))  # of each way


def test_a_partition_has_the_rows_between_its_bounds(server: Server, database: str) -> None:
    taken = {name: _tried(server, database, name, WAYS[name]) for name in WAYS}
    unsure = {*REFUSED, "bigint unsigned, large"}  # shown as negative numbers from 2^63 on
    assert {name for name, count in taken.items() if not count} <= unsure, taken
    assert not any(taken[name] for name in REFUSED), taken


def _tried(server: Server, database: str, name: str, way: Way) -> int:
    """Some tables; how many partitions were not refused."""
    rng, found, made = random.Random(f"{SEED} {name}"), 0, 0
    for _ in range(5 * ROUNDS):  # the server does not take each of them
        if made == ROUNDS:
            break
        bounds = sorted({way.draw(rng) for _ in range(rng.randint(2, 6))})
        with server.connect(database=database, autocommit=True) as connection:
            cursor = connection.cursor()
            if _made(cursor, way, bounds, ends=rng.random() < 0.5):
                made += 1
                found += _compared(cursor, database, rng)
    return found


def _made(cursor: Any, way: Way, bounds: Sequence[int], *, ends: bool) -> bool:
    """Whether the server takes such a table, with rows."""
    parts = [
        f"PARTITION p{number} VALUES LESS THAN {_in_parens(way.bound(bound))}"
        for number, bound in enumerate(bounds)
    ]
    most = "(MAXVALUE)" if "COLUMNS" in way.by else "MAXVALUE"
    parts += [f"PARTITION pmax VALUES LESS THAN {most}"] if ends else []
    cursor.execute("SET sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00'")
    cursor.execute("DROP TABLE IF EXISTS t")
    try:
        cursor.execute(
            f"CREATE TABLE t (p {way.column} NOT NULL, id INT AUTO_INCREMENT, PRIMARY KEY (p, id), "
            f"KEY (id)) PARTITION BY RANGE {way.by} ({', '.join(parts)})"
        )
    except pymysql.MySQLError:
        return False  # two bounds of one year, for instance
    try:
        cursor.execute("SELECT 1 FROM t")
    except pymysql.MySQLError:
        return False  # MariaDB 10.11 makes some with large numbers that it cannot read again
    for bound in bounds:
        for value in way.near(bound):
            with suppress(pymysql.MySQLError):  # it may be above the last bound
                cursor.execute(f"INSERT INTO t (p) VALUES ({value})")
    return True


def _in_parens(bound: str) -> str:
    return bound if bound.startswith("(") else f"({bound})"


def _compared(cursor: Any, database: str, rng: random.Random) -> int:
    """Compare each partition, and two together; how many were not refused."""

    def query(sql: str, args: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        cursor.execute(sql, args)
        rows: Sequence[Sequence[Any]] = cursor.fetchall()
        return rows

    layout = read_partitions(query, database=database)["t"]
    schema = read_schemas(query, keyspace="k", database=database)["t"]
    lake = arrow_schema(schema, POLICY)

    def rows_of(which: str) -> pa.Table:
        rows = [{"p": p, "id": id_} for p, id_ in query(f"SELECT p, id FROM {which} ORDER BY id")]
        return pa.Table.from_pylist(rows, lake)

    found = 0
    names = [one.name for one in layout.partitions]
    for chosen in [[one] for one in names] + [rng.sample(names, min(2, len(names)))]:
        try:
            gone = layout.rows(chosen, schema, POLICY)
        except PartitionsUnclearError:
            continue
        whole, inside = rows_of("t"), rows_of(f"t PARTITION ({', '.join(chosen)})")
        left = gone.others(whole)
        found += 1
        ids = set(whole.column("id").to_pylist()) - set(inside.column("id").to_pylist())
        assert set(left.column("id").to_pylist()) == ids, (layout, chosen)
        # A file by its statistics, which are rounded.
        for rows in (whole, inside, left):
            kept = len(gone.others(rows))
            if gone.covers(_stats(rows)) is not None:
                assert kept == (0 if gone.covers(_stats(rows)) else len(rows)), (layout, chosen)
    return found


def _stats(rows: pa.Table) -> dict[str, Any]:
    """What Delta's log has of a file with these rows."""
    footers: list[pq.FileMetaData] = []
    pq.write_table(rows, pa.BufferOutputStream(), metadata_collector=footers)
    found: dict[str, Any] = json.loads(file_stats(footers[0], ["p"]))
    return found
