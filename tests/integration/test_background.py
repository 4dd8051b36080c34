"""Background verification on real servers: faults are found, movement is none, passes go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from corruption_kit import CELLS, DATABASES, NOTHING, Cell, Damaged, writing
from fix_e2e import TABLES, Writer, create_tables
from lease_kit import held
from mirror_kit import Mirror

from lab.servers import Server
from ratchet.jobs.inspect.verify import describe
from ratchet.snapshot.verify import Difference
from ratchet.store import layout
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.notes import Notes
from ratchet.store.passes import Passes
from ratchet.store.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each pass is many runs; how a pass goes is tried on its own in test_background_passes.
pytestmark = pytest.mark.long


def configure(mirror: Mirror, *, chunk_rows: int | None = None, **verify: Any) -> None:
    config = yaml.safe_load(mirror.config.read_text())
    config["verify"] = verify
    config["snapshot"] = {"chunk_rows": chunk_rows}
    mirror.config.write_text(yaml.safe_dump(config))


def make_due(mirror: Mirror, *tables: str) -> None:
    """As if those tables (keyspace.table; all if none is named) had streamed for a year."""
    states = [state.name for state in Tables(mirror.lake).list()]
    Passes(held(mirror.lake)).save_schedule({n: 1 for n in states if not tables or n in tables})


def verified(
    mirror: Mirror, *tables: str, expect: int | None = 0, limit: float = 900.0
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
                found.setdefault(name, one)  # what was mended is compared once more
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
    configure(damaged.mirror, chunk_rows=25, every="1h", load="100%", on_difference="tell")
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
    configure(damaged.mirror, chunk_rows=25, every="1h", load="100%", on_difference="repair")
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
    path = Notes(mirror.lake).path(layout.verified_path(keyspace, "t"))
    assert mirror.lake.is_file(path)
    mirror.lake.delete(path)


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
