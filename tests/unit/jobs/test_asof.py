"""From what the user names to a cut and its versions; and how values are printed."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ratchet.core.errors import ConfigError, NoCutError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import TableSchema
from ratchet.jobs.config.config import load_config
from ratchet.jobs.inspect.asof import find_cut, parse_moment, run_as_of
from ratchet.jobs.inspect.sql import mentioned, plain, versions_at
from ratchet.store.cuts import Cut, Cuts, CutShard
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.tables import Tables, TableState

T1, T2 = 1_700_000_000_000_000, 1_700_000_100_000_000


def cut(number: int, latest: int) -> Cut:
    executed = GtidSet.parse("mariadb", f"0-1-{number * 10}")
    shard = CutShard(
        position=Position(executed=executed),
        min_ts=None,
        max_ts=None,
        latest_ts=latest,
        observed_at=latest,
    )
    tables = {f"shop.{t}": number for t in ("orders", "items")}
    return Cut(
        number=number, round=number * 2, merged_at=latest, shards={"shop/-": shard}, tables=tables
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = open_lake(tmp_path / "lake", now=1)
    for table in ("orders", "items", "fresh"):
        schema = TableSchema(keyspace="shop", table=table, columns=(), key=("id",))
        Tables(lake).save(TableState(keyspace="shop", table=table, schema=schema, key=("id",)))
    for number, latest in ((1, T1), (2, T2)):
        Cuts(lake).append(cut(number, latest))
    return lake


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2023-11-14T22:13:20Z", T1),
        ("2023-11-14 22:13:20", T1),
        ("2023-11-14T23:13:20.000001+01:00", T1 + 1),
        ("2023-11-14", 1_699_920_000_000_000),
        ("round:12", 12),
    ],
)
def test_moments(text: str, value: int) -> None:
    assert parse_moment(text).value == value


@pytest.mark.parametrize("text", ["", "yesterday", "round:", "round:x", "gtid:", "12"])
def test_no_moments(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a moment"):
        parse_moment(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("round:2", 1),
        ("round:3", 1),
        ("2023-11-14T22:13:20Z", 1),
        ("2023-11-14T22:14:59Z", 1),
        ("2023-11-14T22:15:00Z", 2),
        ("gtid:0-1-10", 1),
        ("gtid:0-1-11", 2),
    ],
)
def test_cuts(lake: Lake, text: str, number: int) -> None:
    assert find_cut(lake, parse_moment(text)).number == number


@pytest.mark.parametrize("text", ["round:1", "2020-01-01", "gtid:0-1-21"])
def test_no_cut_says_what_there_is(lake: Lake, text: str) -> None:
    with pytest.raises(NoCutError, match="there is no cut") as caught:
        find_cut(lake, parse_moment(text))
    assert "the newest cut is round 4" in caught.value.hint


def test_what_is_not_merged_yet_is_not_answered_with_less(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(NoCutError, match=r"round 99 is not merged yet: the newest cut is round 4"):
        find_cut(lake, parse_moment("round:99"))
    assert find_cut(lake, parse_moment("2100-01-01")).number == 2
    assert "the mirror knows its sources only up to" in caplog.text


def test_a_round_without_a_cut_is_answered_with_a_word(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    assert find_cut(lake, parse_moment("round:3")).number == 1
    assert "there is no cut at round 3: the one before it is at" in caplog.text


def test_an_empty_lake_has_no_cuts(tmp_path: Path) -> None:
    with pytest.raises(NoCutError, match="nothing has been merged"):
        find_cut(open_lake(tmp_path / "lake", now=1), parse_moment("round:1"))


def test_printed(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ratchet.yaml"
    path.write_text(
        "lake: ./lake\nsources: {shop: {kind: binlog, shards: {'-': {host: h, user: u}}}}"
    )
    config = load_config(path)
    assert run_as_of(config, "round:2", as_json=True) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["round"], data["latest"]) == (2, "2023-11-14T22:13:20Z")
    assert data["shards"]["shop/-"]["position"] == "0-1-10"
    assert [(t["table"], t["version"]) for t in data["tables"]] == [("items", 1), ("orders", 1)]
    assert data["not_in_it"] == ["shop.fresh"]
    assert data["tables"][0]["path"] == f"file://{lake.root}/shop/items"
    assert run_as_of(config, "round:2", as_json=False) == 0
    assert "shop.orders" in capsys.readouterr().out


def test_versions_for_sql(lake: Lake) -> None:
    """The newest cut's; a table that is in none yet only once it has a Delta log."""
    found = {state.table: version for state, version in versions_at(lake, None)}
    assert found == {"orders": 2, "items": 2}
    lake.write_json("shop/fresh/_delta_log/0.json", {})
    found = {state.table: version for state, version in versions_at(lake, None)}
    assert found == {"orders": 2, "items": 2, "fresh": None}
    found = {state.table: version for state, version in versions_at(lake, "round:2")}
    assert found == {"orders": 1, "items": 1}


def test_only_what_a_query_mentions(lake: Lake) -> None:
    tables = versions_at(lake, None)
    assert [s.table for s, _ in mentioned(tables, "SELECT * FROM shop.ORDERS")] == ["orders"]
    assert len(mentioned(tables, "SHOW TABLES IN shop")) == 2


def test_values() -> None:
    """An instant says that it is UTC, a time without a zone does not; nested ones as well."""
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001 - as PySpark gives both
    inner = StructType().add("at", TimestampType()).add("n", DecimalType(5, 2))
    given = [
        (Decimal("1E+3"), DecimalType(10, 0), "1000"),
        (b"\x01\xff", BinaryType(), "01ff"),
        (moment, TimestampType(), "2024-01-02T03:04:05Z"),
        (moment, TimestampNTZType(), "2024-01-02T03:04:05"),
        (float("nan"), DoubleType(), "nan"),
        (None, TimestampType(), None),
        (True, BooleanType(), True),
        (
            {"a": [(moment, Decimal("1.50"))]},
            MapType(StringType(), ArrayType(inner)),
            {"a": [{"at": "2024-01-02T03:04:05Z", "n": "1.50"}]},
        ),
    ]
    for value, kind, expected in given:
        assert plain(value, kind) == expected
        assert json.dumps(plain(value, kind), allow_nan=False)
