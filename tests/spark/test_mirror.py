"""The public interface: a lake is opened, its tables and cuts are listed, their rows are read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ratchet
from ratchet.core.errors import ConfigError, LakeError, NoCutError
from ratchet.merge.delta import plain_session
from ratchet.store.formats import open_lake
from ratchet.store.stops import Doubt
from tests.merge_kit import Source, merger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def put(key: int, text: str) -> tuple[str, dict[str, Any]]:
    return ("put", {"id": key, "v": text})


def rows(frame: Any) -> dict[int, str]:
    return {row["id"]: row["v"] for row in frame.collect()}


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    """Two cuts: with `first` alone, and with `second`; a third row is captured, and not merged."""
    open_lake(tmp_path / "lake", now=1)
    source = Source(tmp_path / "lake")
    source.tx("-", put(1, "first"))
    source.round()
    source.dump_all()
    with merger(spark, source) as merge:
        merge.step()
        source.tx("-", put(2, "second"))
        source.round()
        merge.step()
    source.tx("-", put(3, "third"))
    source.round()
    return source


def test_rows_as_of_now_of_a_cut_and_fresh(spark: SparkSession, source: Source) -> None:
    mirror, session = ratchet.open_mirror(source.lake.root), plain_session(spark)
    newest = mirror.cut()
    first = mirror.cut(f"round:{newest.round - 1}")
    assert first.number < newest.number
    assert rows(mirror.read(session, "shop.t")) == {1: "first", 2: "second"}
    assert rows(mirror.read(session, "shop.t", as_of=first)) == {1: "first"}
    assert rows(mirror.read(session, "shop.t", as_of=first.latest)) == {1: "first"}
    fresh = rows(mirror.read(session, "shop.t", fresh=True))
    assert fresh == {1: "first", 2: "second", 3: "third"}
    assert list(first.versions) == ["shop.t"]
    assert list(first.positions) == ["shop/-"]
    with pytest.raises(ConfigError, match="takes no moment"):
        mirror.read(session, "shop.t", as_of=first, fresh=True)
    with pytest.raises(NoCutError, match="later changes"):
        mirror.cut(datetime(1970, 1, 1))  # noqa: DTZ001 - without a zone it is UTC


def test_what_a_table_says_of_itself(source: Source) -> None:
    mirror = ratchet.open_mirror(source.lake.root)
    (table,) = mirror.tables()
    assert (table.name, table.phase, table.key, table.is_right) == (
        "shop.t",
        "streaming",
        ("id",),
        True,
    )
    doubt = Doubt(message="a statement changed rows", statement="CALL p()", round=2)
    source.tables.save(source.state.in_doubt(doubt))
    doubtful = mirror.table("shop.t")
    assert (doubtful.doubts, doubtful.is_right) == (("a statement changed rows",), False)
    with pytest.raises(ConfigError, match=r"no table of the name 'shop\.u'") as refused:
        mirror.table("shop.u")
    assert "shop.t" in refused.value.hint


def test_a_table_that_stopped_is_read_as_of_before_only(
    spark: SparkSession, source: Source
) -> None:
    mirror, session = ratchet.open_mirror(source.lake.root), plain_session(spark)
    before = mirror.cut()
    source.tables.stop(
        source.state, message="no key any more", hint="give it one", at_round=before.round + 1
    )
    with merger(spark, source) as merge:
        merge.step()
    stopped = mirror.table("shop.t")
    assert (stopped.stopped, stopped.remedy, stopped.is_right) == (
        "no key any more",
        "give it one",
        False,
    )
    assert rows(mirror.read(session, "shop.t", as_of=before)) == {1: "first", 2: "second"}
    for fresh in (True, False):
        now = replace(mirror.cut(), stopped=("shop.t",))
        with pytest.raises(NoCutError, match="not in") as refused:
            mirror.read(session, "shop.t", as_of=None if fresh else now, fresh=fresh)
        assert "give it one" in refused.value.hint


def test_tokens_of_rows_are_compared(spark: SparkSession, source: Source) -> None:
    found = ratchet.open_mirror(source.lake.root).read(plain_session(spark), "shop.t")
    first, second = (
        ratchet.token(row["_token"]) for row in sorted(found.collect(), key=lambda row: row["id"])
    )
    assert ratchet.compare(first, second) is ratchet.Order.OLDER
    assert ratchet.compare(second, first) is ratchet.Order.NEWER
    assert ratchet.compare(second, second) is ratchet.Order.SAME
    assert second.at.gtid is not None
    elsewhere = {"shard": "shop/80-", "gtid": "0-1-5", "generation": 0, "seq": 1, "idx": 0}
    near = datetime(2026, 1, 1, tzinfo=UTC)
    a = ratchet.token({**elsewhere, "ts": near})
    b = ratchet.token({**elsewhere, "shard": "shop/-80", "ts": near + timedelta(milliseconds=900)})
    assert ratchet.compare(a, b) is ratchet.Order.UNKNOWN
    bound = timedelta(milliseconds=500)
    assert ratchet.compare(a, b, clock_bound=bound) is ratchet.Order.OLDER
    with pytest.raises(ConfigError, match="no GTID"):
        ratchet.token({**elsewhere, "gtid": "what", "ts": near})


def test_a_place_without_a_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no lake"):
        ratchet.open_mirror(tmp_path)
    open_lake(tmp_path / "new", now=1)
    with pytest.raises(NoCutError, match="nothing has been merged"):
        ratchet.open_mirror(tmp_path / "new").cut()


def test_each_public_name_is_there() -> None:
    assert all(getattr(ratchet, name).__doc__ for name in ratchet.__all__)
    with pytest.raises(AttributeError):
        ratchet.nothing_of_the_kind  # noqa: B018
