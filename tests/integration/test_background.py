"""Background verification on real servers: faults are found, movement is none, passes go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from fix_e2e import TABLES, Writer, create_tables
from mirror_kit import Mirror
from test_corruption import CELLS, DATABASES, NOTHING, Cell, Damaged, writing

from jobs.verify import describe
from lab.servers import Server
from snapshot.verify import Difference
from store.comparisons import Comparison, Comparisons
from store.passes import Passes
from store.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KINDS: Final = ("changed", "missing", "extra", "doubled")


def configure(mirror: Mirror, *, chunk_rows: int | None = None, **verify: Any) -> None:
    config = yaml.safe_load(mirror.config.read_text())
    config["verify"] = verify
    config["snapshot"] = {"chunk_rows": chunk_rows}
    mirror.config.write_text(yaml.safe_dump(config))


def make_due(mirror: Mirror, *tables: str) -> None:
    """As if those tables (keyspace.table; all if none is named) had streamed for a year."""
    states = [state.name for state in Tables(mirror.lake).list()]
    Passes(mirror.lake).save_schedule({n: 1 for n in states if not tables or n in tables})


def verified(
    mirror: Mirror, *tables: str, expect: int | None = 0, limit: float = 180.0
) -> tuple[dict[str, Comparison], int]:
    """Runs until those tables have been compared: what came of it, and how many runs it took."""
    found: dict[str, Comparison] = {}
    deadline, runs, began = time.monotonic() + limit, 0, time.time_ns() // 1000
    while set(tables) - found.keys() and time.monotonic() < deadline:
        said = mirror.ratchet("run", "--until-caught-up", expect=None)
        runs += 1
        for name in tables:
            one = Comparisons(mirror.lake).last(*name.split("."))
            if one is not None and one.until > began:
                found[name] = one
    assert found.keys() == set(tables), said.err
    assert expect is None or said.code == expect, said.err
    return found, runs


# --- planted faults -------------------------------------------------------------------------------


def lines(cells: tuple[Cell, ...], keyspace: str) -> set[str]:
    """What is said of the damaged rows of a keyspace."""
    return {
        describe(Difference(key={"id": cell.key}, shard=shard, kind=kind, columns=columns))  # type: ignore[arg-type]
        for cell in cells
        if cell.keyspace == keyspace
        for kind, columns, shard in cell.found
    }


@pytest.fixture(scope="module")
def damaged(
    mysql: Server, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Damaged]:
    names = [name for shards in DATABASES.values() for name in shards.values()]
    databases = {name: f"background_{name}" for name in names}
    for database in databases.values():
        mysql.execute(f"CREATE DATABASE {database}")
    mirror = Mirror(
        tmp_path_factory.mktemp("background"), mysql, spark,
        {k: {s: databases[d] for s, d in v.items()} for k, v in DATABASES.items()},
        {"pairs": {"key": "shard+primary"}},
    )  # fmt: skip
    made = Damaged(mirror, databases)
    configure(mirror, every="off")
    made.fill()
    yield made
    for database in databases.values():
        mysql.execute(f"DROP DATABASE {database}")


def test_one_pass_finds_every_planted_fault(damaged: Damaged) -> None:
    damaged.damage()
    configure(damaged.mirror, chunk_rows=9, every="1h", load="100%", on_difference="tell")
    make_due(damaged.mirror)
    names = tuple(f"{keyspace}.t" for keyspace in DATABASES)
    with writing(lambda n: damaged.sql("one", f"UPDATE t SET n = {n} WHERE id BETWEEN 42 AND 60")):
        found, _ = verified(damaged.mirror, *names, expect=1)
    for keyspace in DATABASES:
        wanted = lines(CELLS, keyspace)
        assert set(found[f"{keyspace}.t"].examples) == wanted
        assert found[f"{keyspace}.t"].differences == len(wanted)
    assert sum(one.differences for one in found.values()) > 30


def test_status_tells_what_a_pass_came_to(damaged: Damaged) -> None:
    said = damaged.mirror.ratchet("status").out
    assert "DIFFERENT as of" in said
    assert "shop.t differs from its source: " in said


def test_the_run_mends_what_it_finds(damaged: Damaged) -> None:
    """But for what has no remedy but a dump: a row that lost the shard which is part of its key."""
    configure(damaged.mirror, chunk_rows=9, every="1h", load="100%", on_difference="repair")
    make_due(damaged.mirror)
    for keyspace in DATABASES:
        forget(damaged.mirror, keyspace)
    names = tuple(f"{keyspace}.t" for keyspace in DATABASES)
    found, _ = verified(damaged.mirror, *names)
    assert all(one.equal for one in found.values())
    assert sum(one.repaired for one in found.values()) > 30
    said = damaged.mirror.ratchet("verify").out
    assert "NOT identical" not in said
    wrong = [cell.name for cell in CELLS if cell.found == NOTHING]
    assert wrong == ["token from the future"]


def forget(mirror: Mirror, keyspace: str) -> None:
    """The last comparison's record is taken away, so that the table is due again."""
    mirror.lake.delete(f"_ratchet/verified/{keyspace}/t.json")


# --- keys of all types ----------------------------------------------------------------------------

# Table -> its columns k ..., and the values of row n.
KEYS: Final[Mapping[str, tuple[str, str]]] = {
    "tiny": ("k TINYINT NOT NULL PRIMARY KEY", "{low}"),
    "big": ("k BIGINT UNSIGNED NOT NULL PRIMARY KEY", "{big}"),
    "digits": ("k DECIMAL(20,4) NOT NULL PRIMARY KEY", "{low}.25"),
    "wide": ("k DECIMAL(50,4) NOT NULL PRIMARY KEY", "{low}000000000000000000000000000000.5"),
    "days": ("k DATE NOT NULL PRIMARY KEY", "'19{two}-01-02'"),
    "moments": ("k DATETIME(6) NOT NULL PRIMARY KEY", "'20{two}-02-03 1:2:3.000004'"),
    "stamps": (
        "k TIMESTAMP(3) NOT NULL DEFAULT '2001-01-01 00:00:00' PRIMARY KEY",
        "'2001-05-06 07:08:{two}.25'",
    ),
    "times": ("k TIME(2) NOT NULL PRIMARY KEY", "'{low}:10:11.5'"),
    "fixed": ("k BINARY(4) NOT NULL PRIMARY KEY", "X'{two}00'"),
    "bytes": ("k VARBINARY(9) NOT NULL PRIMARY KEY", "X'{two}{zeros}'"),
    "words": ("k VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL PRIMARY KEY", "'{letter}{n}'"),
    "exact": ("k VARCHAR(20) COLLATE utf8mb4_bin NOT NULL PRIMARY KEY", "'{letter}{n}'"),
    "latin": ("k CHAR(9) CHARACTER SET latin1 NOT NULL PRIMARY KEY", "'{letter}{n}'"),
    "enums": ("k ENUM({members}) NOT NULL PRIMARY KEY", "'m{n}'"),
    "sets": ("k SET('a','b','c','d','e','f') NOT NULL PRIMARY KEY", "{n}"),
    "bits": ("k BIT(40) NOT NULL PRIMARY KEY", "549755813888 - {n}"),
    "years": ("k YEAR NOT NULL PRIMARY KEY", "1980 + {n}"),
    "pair": ("k INT NOT NULL, l VARCHAR(9) NOT NULL, PRIMARY KEY (k, l)", "{n} % 4, '{n}'"),
    "falling": ("k INT NOT NULL, PRIMARY KEY (k DESC)", "{n}"),
    "unique_key": ("k INT NOT NULL, UNIQUE KEY (k)", "{n}"),
}


def key_of(template: str, n: int) -> str:
    """The key of row n."""
    return template.format(
        n=n, low=n - 20, big=2**64 - 1 - n * 10**17, two=n + 10, zeros="00" * (n % 3),
        letter="äBcÄbÿ"[n % 6],
    )  # fmt: skip


ROWS: Final = 40


@pytest.fixture(scope="module")
def keys(
    server: Server, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Mirror, Callable[..., None]]]:
    """A table for each kind of key."""
    database = "background_keys"
    server.execute(f"CREATE DATABASE {database}")

    def sql(*statements: str) -> None:
        connection = server.connect(database=database)
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    members = ",".join(f"'m{n}'" for n in range(1, ROWS + 1))
    for table, (key, value) in KEYS.items():
        rows = ",".join(f"({key_of(value, n)}, {n})" for n in range(1, ROWS + 1))
        sql(
            f"CREATE TABLE {table} ({key.replace('{members}', members)}, v INT)",
            f"INSERT INTO {table} VALUES {rows}",
        )
    mirror = Mirror(tmp_path_factory.mktemp("keys"), server, spark, {"shop": {"-": database}}, {})
    configure(mirror, every="off")
    mirror.follow()
    yield mirror, sql
    server.execute(f"DROP DATABASE {database}")


def test_keys_of_all_types(keys: tuple[Mirror, Callable[..., None]]) -> None:
    mirror, sql = keys
    for table in KEYS:
        path = mirror.path("shop", table)
        mirror.spark.sql(f"DELETE FROM {path} WHERE v = 3")
        mirror.spark.sql(f"UPDATE {path} SET v = 100 WHERE v = 20")
    # Rows too many in the mirror: those that the source loses without a word.
    sql(
        "SET SESSION sql_log_bin = 0",
        *(f"DELETE FROM {table} WHERE v = {ROWS}" for table in KEYS),
    )
    configure(mirror, chunk_rows=7, every="1h", load="100%", on_difference="tell")
    make_due(mirror)
    found, _ = verified(mirror, *(f"shop.{table}" for table in KEYS), expect=1)
    wrong = {n: one.kinds for n, one in found.items()
             if one.kinds != {"changed": 1, "missing": 1, "extra": 1}}  # fmt: skip
    assert not wrong
    assert {one.rows for one in found.values()} == {ROWS - 1}


# --- a source that moves --------------------------------------------------------------------------


def test_a_moving_source_is_no_difference_and_a_pass_goes_on_over_many_runs(
    server: Server, spark: SparkSession, tmp_path: Any
) -> None:
    """Each run has time for a few pieces only: the next one goes on behind the last key."""
    database = "background_moves"
    server.execute(f"CREATE DATABASE {database}")
    create_tables(server, database)
    writers = [Writer(server, database, seed=n, first=n, step=2) for n in range(2)]
    for one in writers:
        one.start()
    try:
        time.sleep(3)
        mirror = Mirror(tmp_path, server, spark, {"shop": {"-": database}}, {})
        configure(mirror, every="off")
        mirror.follow()
        configure(mirror, chunk_rows=150, every="1h", load="20%")
        make_due(mirror)
        found, runs = verified(mirror, *(f"shop.{table}" for table in TABLES))
    finally:
        for one in writers:
            one.finish()
        server.execute(f"DROP DATABASE {database}")
    assert all(one.equal for one in found.values())
    assert sum(one.rows for one in found.values()) > 1000
    assert runs > 1
