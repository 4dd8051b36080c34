"""Rows that move from a fast shard of a Vitess keyspace to a slow one are not gone for long.

The slow shard is one whose VStream Vitess's own throttler stops for a while, and again: its metric
is a query that each vttablet asks its own MySQL, so one variable there decides for this shard
alone. Queries are not throttled, so rows go on moving; vtgate sends heartbeats meanwhile, and gives
up after 10 minutes only. What was not taken: a vttablet that is frozen (SIGSTOP) and a slow TCP
path to it hold up the writer's own statements as well, so nothing moves while the shard lags; a
backlog on one shard is read faster than a writer makes it.

How long a row is gone is told by the writer's clock, from what the versions of the Delta table
hold, and from the change log for the rounds between them. What the rounds record of commit times is
held against the bound besides.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_kit import read_file
from deltalake import DeltaTable, QueryBuilder
from fix_e2e import Ratchet
from vitess_kit import assert_same, is_same, ratchet_on, stop, until
from worker_kit import Worker

from lab.vitess import Tablet, VitessCluster
from ratchet.core.change import DELETE
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from tests.fix_vitess import TabletServer

FAST, SLOW = "shop/-80", "shop/80-"
# By the vindex `numeric` a row's home is its place among the key ranges.
HOMES = {FAST: 1, SLOW: 1 << 63}
TABLES = {"shop": ("item",)}
VSCHEMA: dict[str, Any] = {
    "sharded": True,
    "vindexes": {"numeric": {"type": "numeric"}},
    "tables": {"item": {"column_vindexes": [{"column": "home", "name": "numeric"}]}},
}
ROWS = 4000
PAUSE = 0.1  # seconds between two moves
THRESHOLD, SLACK = 2.0, 0.5
# Vitess's commit times are whole seconds: what is within the bound may be that much further apart.
WHOLE = 1.0
STALL = 10.0  # seconds of moves that the slow shard stands still: below jobs.skew.PATIENCE
SECOND = 1_000_000
Moves = dict[int, tuple[float, float]]
QUERY, CALM, BUSY = "long_query_time", 10, 1000


@pytest.fixture
def cluster(vitess_of_its_own: VitessCluster) -> VitessCluster:
    cluster = vitess_of_its_own
    cluster.add_keyspace("shop", ["-80", "80-"], vschema=VSCHEMA)
    cluster.apply_schema(
        "shop", "CREATE TABLE item (id BIGINT PRIMARY KEY, home BIGINT UNSIGNED NOT NULL, n INT)"
    )
    rows = ",".join(f"({number}, {HOMES[FAST]}, 0)" for number in range(ROWS))
    cluster.query(f"INSERT INTO item (id, home, n) VALUES {rows}", target="shop")
    metric = f"--custom-query=SELECT @@GLOBAL.{QUERY}"
    cluster.ctl("UpdateThrottlerConfig", "--enable", metric, f"--threshold={BUSY // 2}", "shop")
    return cluster


@contextmanager
def stopped_stream(cluster: VitessCluster) -> Iterator[None]:
    """The slow shard's VStream stands still meanwhile."""
    (tablet,) = (one for one in cluster.tablets.values() if f"shop/{one.shard}" == SLOW)
    throttle(cluster, tablet, BUSY)
    yield
    throttle(cluster, tablet, CALM)


def throttle(cluster: VitessCluster, tablet: Tablet, value: int) -> None:
    TabletServer(tablet).execute(f"SET GLOBAL {QUERY} = {value}")
    code = "OK" if value == CALM else "THRESHOLD_EXCEEDED"

    def in_force() -> bool:
        return f'"{code}"' in cluster.ctl("CheckThrottler", "--app-name=vstreamer", tablet.alias)

    cluster.wait(in_force, f"the throttler of {tablet.alias} says {code}")


class Mover(Worker):
    """Moves one row after the other to the slow shard, and notes when, until told to stop.

    Attributes:
        moves: row -> seconds before its transaction, and behind its COMMIT.
    """

    def __init__(self, cluster: VitessCluster, moves: Moves) -> None:
        super().__init__()
        self._cluster = cluster
        self.moves = moves

    def last(self) -> float:
        """When the newest move was committed."""
        self.check()
        return self.moves[max(self.moves)][1] if self.moves else 0.0

    def step(self) -> None:
        with self._cluster.connect("shop", autocommit=False) as connection:
            for number in itertools.count(len(self.moves)):
                if self.told.wait(PAUSE):
                    return
                assert number < ROWS, "no rows are left to move"
                began = time.time()
                with connection.cursor() as cursor:
                    home = HOMES[FAST]
                    cursor.execute(f"DELETE FROM item WHERE id = {number} AND home = {home}")
                    assert cursor.rowcount == 1
                    cursor.execute(
                        "INSERT INTO item (id, home, n) VALUES (%s, %s, 1)", (number, HOMES[SLOW])
                    )
                connection.commit()
                self.moves[number] = began, time.time()


# --- what the mirror shows ------------------------------------------------------------------------


def item(ratchet: Ratchet, version: int | None = None) -> tuple[int, dict[int, int]]:
    """A version of the table (the newest one): its number, and row -> home."""
    table = DeltaTable(str(ratchet.lake / "shop" / "item"), version=version)
    reader = QueryBuilder().register("t", table)
    found = pa.table(reader.execute("SELECT id, home FROM t").read_all())
    rows = dict(zip(found["id"].to_pylist(), map(int, found["home"].to_pylist()), strict=True))
    assert len(rows) == found.num_rows, "a row is shown twice"
    return table.version(), rows


def dumped_as(ratchet: Ratchet) -> int | None:
    """Its version in the newest cut; until it is in one, versions are parts of the dump."""
    if not (ratchet.lake / "shop" / "item").exists():
        return None
    cut = Cuts(Lake.at(str(ratchet.lake))).last()
    return None if cut is None else cut.tables.get("shop.item")


def gone_for(rows: Mapping[int, int], moves: Moves) -> float:
    """How long the row that is missing for the longest time is gone; 0: none is missing.

    From its move to the last one that the mirror shows of the fast shard, in the writer's time.
    """
    missing = set(range(ROWS)) - rows.keys()
    if not missing:
        return 0.0
    assert missing <= moves.keys(), "a row is missing that never moved"
    newest = max(missing | {number for number, home in rows.items() if home != HOMES[FAST]})
    return max(0.0, moves[newest][0] - moves[min(missing)][1])


def rounds_of(lake: Lake, rows: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """What the mirror is at each round: row -> home, beginning with what was dumped."""
    homes = {number: {home} for number, home in rows.items()}
    for one in RoundLog(lake).since(1):
        for file in one.files:
            for change in read_file(lake, file).to_pylist():
                before, after = change["before"], change["after"]
                if change["op"] == DELETE:
                    homes[before["id"]].discard(int(before["home"]))
                else:
                    homes[after["id"]].add(int(after["home"]))
        yield {number: max(found) for number, found in homes.items() if found}


def recorded_skew(lake: Lake) -> tuple[float, float]:
    """By the rounds' own times, in seconds: how far the fast shard was ahead of the slow one.

    Of what the slow one was read up to, and of its last change: the first goes on while the shard
    is idle.
    """
    read, changed = {FAST: 0, SLOW: 0}, {FAST: 0, SLOW: 0}
    ahead = ahead_of_changes = 0
    for one in RoundLog(lake).since(1):
        for piece in one.slices:
            changed[piece.shard] = max(changed[piece.shard], piece.max_ts or 0)
            if piece.caught_up:
                read[piece.shard] = piece.observed_at
            else:
                read[piece.shard] = piece.held_ts or piece.max_ts or read[piece.shard]
        if read[SLOW] and changed[SLOW]:
            ahead = max(ahead, changed[FAST] - read[SLOW])
            ahead_of_changes = max(ahead_of_changes, changed[FAST] - changed[SLOW])
    return ahead / SECOND, ahead_of_changes / SECOND


def lag_of_the_slow(lake: Lake) -> float:
    """Seconds from the commit of a move there to its being read, at most."""
    worst = 0.0
    for one in RoundLog(lake).since(1):
        read_at = {piece.shard: piece.observed_at / SECOND for piece in one.slices}
        for file in one.files:
            if file.shard == SLOW:
                tokens = read_file(lake, file)["token"].to_pylist()
                oldest = min(token["ts"] for token in tokens)
                worst = max(worst, read_at[SLOW] - oldest.timestamp())
    return worst


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a run showed, in seconds.

    Attributes:
        versions: of each version of the table: for how long a row is gone.
        rounds: the same of each round.
        ahead: how far the fast shard was ahead of what the slow one was read up to.
        ahead_of_changes: and of the slow one's last change.
        lag: from a commit on the slow shard to its being read, at most.
    """

    versions: list[float]
    rounds: list[float]
    ahead: float
    ahead_of_changes: float
    lag: float


def follow(
    cluster: VitessCluster, ratchet: Ratchet, moves: Moves, *, stops: int, at_least: float
) -> Seen:
    """`ratchet run` while rows move, and the slow shard's stream stops some times.

    Each time for so long that rows have moved for `STALL` seconds, and that one is gone for
    `at_least` seconds in the mirror.
    """
    running = ratchet.start("run")
    until(lambda: dumped_as(ratchet) is not None, "it is dumped")
    first, dumped = item(ratchet, dumped_as(ratchet))
    with Mover(cluster, moves) as mover:
        for _ in range(stops):
            until(lambda: shows_moves(ratchet, moves), "moves are followed")
            with stopped_stream(cluster):
                began = time.time()
                until(lambda: mover.last() > began + STALL, "rows move meanwhile")  # noqa: B023
                until(lambda: shows_gone(ratchet, moves) >= at_least, "a row is gone")
    until(lambda: is_same(cluster, ratchet, TABLES), "what has moved is there")
    # From here on the slow shard is idle: what the fast one does may not wait for it.
    ended = time.time()
    while time.time() < ended + 3 * THRESHOLD:
        home = HOMES[FAST]
        cluster.query(f"UPDATE item SET n = n + 1 WHERE home = {home} LIMIT 1", target="shop")
        time.sleep(PAUSE)
    until(lambda: is_same(cluster, ratchet, TABLES), "the fast shard's changes are there")
    log = stop(running)
    assert "has not moved for" not in log  # else the bound was lifted, and nothing is shown
    assert assert_same(cluster, ratchet, TABLES) == ROWS
    lake, last = Lake.at(str(ratchet.lake)), item(ratchet)[0]
    ahead, ahead_of_changes = recorded_skew(lake)
    return Seen(
        versions=[gone_for(item(ratchet, one)[1], moves) for one in range(first, last + 1)],
        rounds=[gone_for(rows, moves) for rows in rounds_of(lake, dumped)],
        ahead=ahead,
        ahead_of_changes=ahead_of_changes,
        lag=lag_of_the_slow(lake),
    )


def shows_moves(ratchet: Ratchet, moves: Moves) -> bool:
    """Whether rows have come to the slow shard, and none is gone for long."""
    return HOMES[SLOW] in item(ratchet)[1].values() and shows_gone(ratchet, moves) <= THRESHOLD


def shows_gone(ratchet: Ratchet, moves: Moves) -> float:
    """For how long a row is gone in the newest version."""
    time.sleep(1)  # the machine is for the run, not for looking at it
    return gone_for(item(ratchet)[1], moves)


@pytest.mark.long
def test_a_row_that_moves_is_not_missing_for_longer_than_the_threshold(
    cluster: VitessCluster, tmp_path: Path
) -> None:
    """With the bound; and without it the same shows rows that are gone for much longer."""
    moves: Moves = {}
    seen = {}
    for name, max_skew, stops, at_least in (
        ("bound", THRESHOLD, 2, 0.0),
        ("free", None, 1, 3 * THRESHOLD),
    ):
        capture = {"round_seconds": 1, "max_skew_seconds": max_skew}
        ratchet = ratchet_on(cluster, tmp_path / name, capture=capture)
        try:
            seen[name] = one = follow(cluster, ratchet, moves, stops=stops, at_least=at_least)
        finally:
            ratchet.end_all()
        # The stream did stop; and an idle shard holds nobody up.
        assert one.lag > STALL - WHOLE, one
        assert one.ahead_of_changes > THRESHOLD + SLACK, one
    bound, free = seen["bound"], seen["free"]
    assert max(bound.versions + bound.rounds) <= THRESHOLD + SLACK + WHOLE, bound
    assert bound.ahead <= THRESHOLD + SLACK, bound
    assert max(bound.rounds) > 0, bound
    assert max(free.versions) >= 3 * THRESHOLD, free
    assert max(free.rounds) >= 3 * THRESHOLD, free
    assert free.ahead > 2 * (THRESHOLD + SLACK), free
