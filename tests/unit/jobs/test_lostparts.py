"""Partitions that are gone: only those of which no statement tells put a table in doubt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.position import Position
from ratchet.core.rounds import Effect
from ratchet.jobs.preflight.lostparts import is_read_to, untold
from ratchet.jobs.preflight.restarts import Life, Start, doubt_restarted, read_starts
from ratchet.store.rounds import RoundLog
from tests.merge_kit import Source

SHARD = "shop/-"
START = Start("a/3306/1", 1_000_000, parts={"t": ["a", "b"]})


def logged(folder: Path, *statements: tuple[Effect, str]) -> Source:
    """A table that streams, and statements about it, each in a round of its own."""
    source = Source(folder, shards=("-",))
    source.round()
    source.tx("-", ("put", {"id": 1, "v": "one"}))
    source.dump_all()
    source.tables.save(replace(source.state, phase="streaming"))
    for effect, statement in statements:
        source.event("-", statement)
        events = source.logs[SHARD].events
        events[-1] = replace(events[-1], effect=effect)
        source.round()
    return source


@pytest.mark.parametrize(
    ("effect", "statement", "left"),
    [
        ("rows", "ALTER TABLE t DROP PARTITION A", "b"),
        ("rows", "ALTER TABLE t DROP PARTITION b, a", ""),
        ("rebuild", "ALTER TABLE t REORGANIZE PARTITION b, a INTO (PARTITION c)", ""),
        ("rebuild", "ALTER TABLE t REMOVE PARTITIONING", ""),
        ("rebuild", "ALTER TABLE t PARTITION BY HASH (id)", ""),
        ("rebuild", "ALTER TABLE t ADD PARTITION (PARTITION c VALUES LESS THAN (9))", "a, b"),
        ("rebuild", "ALTER TABLE t ADD INDEX (v)", "a, b"),
        ("rows", "DROP TABLE t", ""),  # which stops it anyway
        ("doubt", "ALTER TABLE t DO SOMETHING", ""),
        ("untold", "UPDATE t SET v = 1", "a, b"),
    ],
)  # fmt: skip
def test_what_a_statement_explains(
    tmp_path: Path, effect: Effect, statement: str, left: str
) -> None:
    source = logged(tmp_path, (effect, statement))
    found = untold(RoundLog(source.lake), SHARD, {"t": {"a", "b"}}, since=1)
    assert found == ({"t": f"partitions of it are gone: {left}"} if left else {})


def test_only_statements_since_then_count(tmp_path: Path) -> None:
    rounds = [("rows", "ALTER TABLE t DROP PARTITION a"), ("rebuild", "ALTER TABLE t FORCE")]
    source = logged(tmp_path, *rounds)  # type: ignore[arg-type]
    log = RoundLog(source.lake)
    last = log.last_number()
    assert untold(log, SHARD, {"t": {"a"}}, since=last - 1) == {}
    assert untold(log, SHARD, {"t": {"a"}}, since=0) == {}
    assert set(untold(log, SHARD, {"t": {"a"}}, since=last)) == {"t"}


def test_the_log_is_read_first(tmp_path: Path) -> None:
    """A partition may be gone before its statement is captured."""
    source = logged(tmp_path)
    log, lake = RoundLog(source.lake), source.lake
    here = log.positions()[SHARD]
    assert is_read_to(log, SHARD, here)
    assert is_read_to(log, SHARD, None)
    doubt_restarted(lake, source.tables, {SHARD: Life(START, 1)}, last_round=1)
    gone = replace(START, parts={"t": ["b"]})
    ahead = source.position("-", source.logs[SHARD].seq + 1)
    assert not is_read_to(log, SHARD, ahead)

    def look(head: Position) -> None:
        lost = gone.lost_parts(read_starts(lake).get(SHARD))
        life = Life(gone, 2, gone=lost, head=head)
        doubt_restarted(lake, source.tables, {SHARD: life}, last_round=log.last_number())

    look(ahead)
    assert not source.state.doubts
    assert read_starts(lake)[SHARD].parts == {"t": ["a", "b"]}, "it is looked at again"
    source.event("-", "ALTER TABLE t DROP PARTITION a")
    events = source.logs[SHARD].events
    events[-1] = replace(events[-1], effect="rows")
    source.round()
    look(ahead)
    assert not source.state.doubts
    assert read_starts(lake)[SHARD].parts == {"t": ["b"]}


def test_one_that_no_statement_tells_of(tmp_path: Path) -> None:
    source = logged(tmp_path)
    lake, log = source.lake, RoundLog(source.lake)
    doubt_restarted(lake, source.tables, {SHARD: Life(START, 1)}, last_round=log.last_number())
    gone = replace(START, parts={"t": ["b"]})
    life = Life(gone, 2, gone=gone.lost_parts(START), head=log.positions()[SHARD])
    doubt_restarted(lake, source.tables, {SHARD: life}, last_round=log.last_number())
    assert source.state.doubts[SHARD].message == "partitions of it are gone: a"
