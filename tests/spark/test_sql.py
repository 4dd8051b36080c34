"""`ratchet sql` reads, and does nothing else."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import ParseException

from ratchet.core.errors import ConfigError
from ratchet.jobs.inspect.sql import make_change_views, make_fresh_views, print_rows, refuse_changes
from ratchet.jobs.inspect.sqlguard import Guard
from ratchet.jobs.inspect.viewnames import rename, view_names
from tests.merge_kit import POLICY, Source, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "WITH t AS (SELECT 1 AS a) SELECT a, (SELECT max(a) FROM t) FROM t UNION ALL VALUES (1, 2)",
        "SHOW TABLES IN shop",
        "SHOW CREATE TABLE shop.orders",
        "DESCRIBE shop.orders",
        "DESCRIBE HISTORY shop.orders",
        "DESCRIBE DETAIL delta.`/x`",
        "EXPLAIN SELECT 1",
        "EXPLAIN DELETE FROM delta.`/x`",
        "FROM shop.orders SELECT id |> WHERE id > 1",
    ],
)
def test_what_reads_passes(spark: SparkSession, query: str) -> None:
    refuse_changes(spark, query)


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM delta.`/x`",
        "UPDATE delta.`/x` SET a = 1",
        "INSERT INTO delta.`/x` VALUES (1)",
        "WITH t AS (SELECT 1) INSERT INTO delta.`/x` SELECT * FROM t",
        "FROM shop.orders INSERT OVERWRITE DIRECTORY '/x' USING parquet SELECT id",
        "INSERT OVERWRITE DIRECTORY '/x' USING parquet SELECT 1",
        "MERGE INTO delta.`/x` t USING s ON t.a = s.a WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE shop.orders",
        "DROP TABLE shop.orders",
        "CREATE TABLE shop.hack (a INT) USING delta",
        "CREATE TABLE x USING delta AS SELECT 1 AS a",
        "CREATE VIEW v AS SELECT 1",
        "ALTER TABLE shop.orders ADD COLUMN z INT",
        "VACUUM delta.`/x`",
        "OPTIMIZE delta.`/x`",
        "RESTORE TABLE delta.`/x` TO VERSION AS OF 1",
        "SET spark.sql.ansi.enabled = false",
        "ADD JAR '/x.jar'",
        "CREATE TABLE x SHALLOW CLONE delta.`/x`",
        "REORG TABLE delta.`/x` APPLY (PURGE)",
        "EXECUTE IMMEDIATE 'DELETE FROM delta.`/x`'",
        "BEGIN DELETE FROM delta.`/x`; END",
        "CACHE TABLE x AS SELECT 1",
        "CALL system.drop()",
    ],
)
def test_what_changes_is_refused(spark: SparkSession, query: str) -> None:
    with pytest.raises(ConfigError, match="only reads"):
        refuse_changes(spark, query)


def test_what_is_no_sql_is_told_by_spark(spark: SparkSession) -> None:
    with pytest.raises(ParseException):
        refuse_changes(spark, "SELEC 1")


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in another time zone."""
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_away")
def test_instants_are_utc_wherever_we_are(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ratchet.jobs.inspect.sql import in_utc

    del tmp_path
    in_utc()
    query = "SELECT TIMESTAMP'2024-07-01T12:00:00Z' a, TIMESTAMP_NTZ'2024-07-01T12:00:00' b"
    print_rows(spark.sql(query), "csv")
    assert capsys.readouterr().out == "a,b\n2024-07-01T12:00:00Z,2024-07-01T12:00:00\n"


def test_csv_tells_null_from_an_empty_text(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """And whoever reads it gets the same texts back, whatever is in them."""
    texts = ["", 'say "x"', "a,b", "two\nlines", "\r", " ", "NULL", "é"]
    rows = [(n, text) for n, text in enumerate(texts)]
    frame = spark.createDataFrame([*rows, (len(rows), None)], "id INT, `v,w` STRING")
    print_rows(frame.coalesce(1), "csv")
    printed = capsys.readouterr().out
    assert printed.startswith('id,"v,w"\n0,""\n')
    assert printed.endswith(f"\n{len(rows)},\n")
    found = list(csv.reader(io.StringIO(printed, newline="")))
    assert found[1:-1] == [[str(n), text] for n, text in rows]


def test_fresh_rows_by_any_name(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table with what is not merged yet, in a query with aliases, whole names and other case."""
    source = Source(tmp_path)
    source.tx("-", ("put", {"id": 1, "v": "one"}), ("put", {"id": 2, "v": "two"}))
    source.dump_all()
    source.round()
    with merger(spark, source) as merge:
        merge.step()
    source.tx("-", ("put", {"id": 1, "v": "fresh"}), ("del", 2), ("put", {"id": 3, "v": "new"}))
    source.round()
    names = view_names([("shop", "t")])
    views = make_fresh_views(spark, source.lake, [source.state], names, POLICY)
    plain = {("shop", "t"): views["shop", "t"]}
    for query in (
        "SELECT t.id, v FROM shop.t ORDER BY id",
        "SELECT a.id, a.v FROM SHOP.`T` a JOIN shop.t b ON a.id = b.id ORDER BY 1",
        "SELECT shop.t.id, shop.t.v FROM shop.t ORDER BY shop.t.id",
    ):
        print_rows(spark.sql(rename(query, plain, any_case=True)), "csv")
        assert capsys.readouterr().out == "id,v\n1,fresh\n3,new\n"


@pytest.mark.parametrize("in_segments", [0, 0.5, 1])
def test_who_changed_a_row(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], in_segments: float
) -> None:
    """Merged or not, alone in a file or in a segment; what was before the dump is not asked for."""
    source = Source(tmp_path)
    source.in_segments = in_segments
    source.tx("-", ("put", {"id": 1, "v": "before the dump"}))
    source.round()
    source.dump_all()
    names = view_names([("shop", "t")])

    def shown(query: str) -> str:
        views = make_change_views(spark, source.lake, [source.state], names, POLICY)
        text = rename(query, {("shop", "t"): views["shop", "t"]}, any_case=True)
        print_rows(Guard(spark, {*views.values()}).frame(text), "csv")
        return capsys.readouterr().out

    query = (
        "SELECT op, token.gtid, before.v AS was, after.v AS is_now FROM shop.t "
        "WHERE before.id = 1 OR after.id = 1 ORDER BY token.generation, token.seq, token.idx"
    )
    assert shown(query) == "op,gtid,was,is_now\n"
    for value in ("x", "y"):
        source.tx("-", ("put", {"id": 1, "v": value}), ("put", {"id": 2, "v": value}))
        source.round()
    with merger(spark, source) as merge:
        merge.step()
    source.tx("-", ("del", 1))
    source.round()
    uuid = source.logs["shop/-"].uuid
    assert shown(query).splitlines()[1:] == [
        f"2,{uuid}:12,before the dump,x", f"2,{uuid}:13,x,y", f"3,{uuid}:14,y,",
    ]  # fmt: skip
