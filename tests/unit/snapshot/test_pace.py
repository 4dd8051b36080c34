"""Throttle, patience, rates, waiting for positions: with clocks and servers of the tests' own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from ratchet.core.errors import LockedError, RetryableError, SourceUnfitError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.snapshot.patience import RetryBudget
from ratchet.snapshot.positions import seen_position
from ratchet.snapshot.records import Meter
from ratchet.snapshot.running import ServerLoad, running
from ratchet.snapshot.throttle import Throttle, ThrottleLimits, replica_lag


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class _Server:
    """Answers every statement with the same rows, and counts them."""

    def __init__(self, *rows: tuple[Any, ...], mariadb: bool = True) -> None:
        self.rows = list(rows)
        self.is_mariadb = mariadb
        self.source = "shop/-"
        self.through_vtgate = False
        self.asked: list[str] = []

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self.asked.append(sql)
        return self.rows


def test_rate() -> None:
    """Rows that were read must be due before more are; a pause is made up for only briefly."""
    clock = _Clock()
    throttle = Throttle(ThrottleLimits(rows_per_second=100), clock=clock)
    server = _Server()
    assert throttle.reason(server) == ""
    throttle.count(500)
    assert throttle.reason(server) == "5.0 s ahead of snapshot.max_rows_per_second (100)"
    clock.now += 4.9
    assert throttle.reason(server)
    clock.now += 0.2
    assert throttle.reason(server) == ""
    clock.now += 1000
    throttle.count(500)
    assert throttle.reason(server)
    assert server.asked == []


class _Busy(_Server):
    """A server with so many threads of all, and these sessions that we may see.

    Of each the answer has who it is, and whether it asks.
    """

    def __init__(self, total: int, *looks: list[tuple[str, int]], scheduler: str = "OFF") -> None:
        super().__init__()
        self.total, self.scheduler = total, scheduler
        self.looks = list(looks) or [[("mirror", 1)]]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self.asked.append(sql)
        if "PROCESSLIST" in sql:
            rows: list[tuple[Any, ...]] = list(self.looks[0])
            self.looks = self.looks[1:] or self.looks
            return rows
        return [("Threads_running", str(self.total))] if "SHOW" in sql else [(self.scheduler,)]


def test_running_threads() -> None:
    """The server is asked at most once a second, and named while it is too busy."""
    clock = _Clock()
    throttle = Throttle(ThrottleLimits(threads_running=10), clock=clock)
    server = _Busy(12)
    said = "11 threads of others running on shop/-, above snapshot.max_threads_running (10)"
    assert throttle.reason(server) == said
    server.total = 11
    assert throttle.reason(server)
    clock.now += 1.0
    assert throttle.reason(server) == ""
    assert len([sql for sql in server.asked if "SHOW" in sql]) == 2


def test_whose_threads_run() -> None:
    """Ours, and a scheduler that waits, are not the others'; what comes and goes is ours."""
    mine, other = ("mirror", 0), ("replica", 0)
    assert running(_Busy(5, [("mirror", 1), mine, mine])) == ServerLoad(5, 2)
    assert running(_Busy(5, [("mirror", 1), mine, other])).others == 3
    assert running(_Busy(2, scheduler="ON")).others == 0
    assert running(_Busy(2, scheduler="DISABLED")).others == 1
    ended = [[("mirror", 1), mine, mine], [("mirror", 1)]]
    begun = [[("mirror", 1)], [("mirror", 1), mine, mine]]
    assert [running(_Busy(3, *looks)).others for looks in (ended, begun)] == [0, 0]
    assert running(_Busy(1, [("mirror", 1), mine])).others == 0, "one had just ended"
    tablet = _Busy(5, [("vt_app", 1), ("vt_app", 0), ("vt_repl", 0)])
    tablet.through_vtgate = True
    assert running(tablet).others == 2


def test_lag_of_a_replica() -> None:
    """A replica that is behind holds chunks back; one that does not replicate is an error."""
    clock = _Clock()
    throttle = Throttle(ThrottleLimits(replica_lag=3), clock=clock)
    row = (*range(32), 5, "x")
    assert throttle.reason(_Server(), [_Server(row)]) == (
        "a replica of shop/- is 5 s behind, above snapshot.max_replica_lag (3 s)"
    )
    assert throttle.reason(_Server(), [_Server((*range(32), 2))]) == ""
    assert replica_lag(_Server(row, (*range(32), 7), mariadb=False)) == 7
    for rows in ([], [(*range(32), None)]):
        with pytest.raises(SourceUnfitError):
            replica_lag(_Server(*rows))


def test_patience() -> None:
    """Delays grow, a success makes them short again, and in the end the error is raised."""
    clock = _Clock()
    patience = RetryBudget(60.0, clock=clock)
    error = RetryableError("gone")
    assert [patience.failed("a", error) for _ in range(8)] == [0.5, 1, 2, 4, 8, 15, 15, 15]
    assert patience.failed("b", error) == 0.5
    patience.succeeded("a")
    assert patience.failed("a", error) == 0.5
    clock.now += 61
    assert patience.failed("a", LockedError("an ALTER waits")) == 1
    with pytest.raises(RetryableError):
        patience.failed("a", error)


def test_rates_look_back_half_a_minute() -> None:
    """A rate follows what happens, and forgets what is long ago."""
    meter = Meter(0.0)
    assert meter.count(10.0, 1000) == 100
    for n in range(11, 100):
        rate = meter.count(float(n), 10)
    assert rate == pytest.approx(10, rel=0.1)


class _Owning(_Server):
    """A MySQL where a transaction is being committed during the first looks."""

    flavor = "mysql"

    def __init__(self, *owned: str) -> None:
        super().__init__(mariadb=False)
        self.owned = list(owned)

    def variable(self, name: str) -> str:
        self.asked.append(name)
        return self.owned.pop(0) if len(self.owned) > 1 else self.owned[0]

    def snapshot(self) -> AbstractContextManager[None]:
        return nullcontext()

    def head(self) -> Position:
        self.asked.append("head")
        return Position(executed=GtidSet.empty("mysql"))


U = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_transactions_that_show_their_rows_before_their_gtid() -> None:
    """Owned GTIDs are waited for before the executed ones are read; new ones are not."""
    clock = _Clock()
    server: Any = _Owning(f"{U}:5#7:6#8", f"{U}:6#8,\n{U}:9#7", f"{U}:9#7")
    seen_position(server, clock=clock, sleep=lambda _: None)
    assert [sql == "head" for sql in server.asked] == [False, False, False, True]


def test_a_client_that_sits_on_a_gtid_is_not_waited_for() -> None:
    """After some seconds the position is read all the same."""
    clock = _Clock()
    server: Any = _Owning(f"{U}:5#7")

    def sleep(seconds: float) -> None:
        clock.now += seconds

    seen_position(server, clock=clock, sleep=sleep)
    assert server.asked[-1] == "head"
    assert 5 <= clock.now - 100 < 6
