"""A session with three small views, and the guard over its queries.

`guarded`: `t` and `u` of the database `guarded`, and `global_temp.f`, as fresh tables have.
`outside`: a Delta table that is no view of ours, and a path where nothing may appear.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ratchet.jobs.inspect.sqlguard import Guard

VIEWS = {("guarded", "t"), ("guarded", "u"), ("global_temp", "f")}


@dataclass(frozen=True)
class Guarded:
    """A session, and what `ratchet sql` does with a query before it is executed."""

    session: SparkSession
    guard: Guard

    def ask(self, query: str) -> DataFrame:
        from ratchet.jobs.inspect.sql import refuse_changes

        refuse_changes(self.session, query)
        return self.guard.frame(query)


@pytest.fixture(scope="session")
def guarded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    from ratchet.jobs.inspect.sqlguard import Guard

    session = spark.newSession()
    table = tmp_path_factory.mktemp("guarded") / "t"
    session.range(5).write.format("delta").save(str(table))
    session.sql("CREATE DATABASE IF NOT EXISTS guarded")
    session.sql(
        "CREATE OR REPLACE VIEW guarded.t AS SELECT id, 'a' AS s, id AS n, array(id) AS a, "
        f"TIMESTAMP '2026-01-01 00:00:00' AS d FROM delta.`{table}` VERSION AS OF 0"
    )
    session.sql(
        "CREATE OR REPLACE VIEW guarded.u AS SELECT id, 'x' AS v, "
        "struct(id AS ts, 'shop/-' AS shard) AS _token FROM range(3)"
    )
    session.range(2).createOrReplaceGlobalTempView("f")
    yield Guarded(session, Guard(session, VIEWS, ["`guarded`.`t`", "`guarded`.`u`"]))
    session.sql("DROP DATABASE guarded CASCADE")
    session.catalog.dropGlobalTempView("f")


@dataclass(frozen=True)
class Outside:
    """What a query must not reach."""

    table: Path
    mark: Path


@pytest.fixture(scope="session")
def foreign_table(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = tmp_path_factory.mktemp("foreign") / "table"
    guarded.session.range(3).write.format("delta").save(str(table))
    return table


@pytest.fixture
def outside(guarded: Guarded, foreign_table: Path, tmp_path: Path) -> Iterator[Outside]:
    """Looked at when the test ends: nothing was written, no view was made."""
    files = sorted(foreign_table.rglob("*"))
    yield Outside(foreign_table, tmp_path / "mark")
    assert not list(tmp_path.iterdir())
    assert sorted(foreign_table.rglob("*")) == files
    assert not guarded.session.catalog.listTables("default")
