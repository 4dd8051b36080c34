"""Throttle, patience, rates, waiting for positions: with clocks and servers of the tests' own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from core.errors import RetryableError, SourceUnfitError
from core.gtid import GtidSet
from core.position import Position
from snapshot.patience import Patience
from snapshot.positions import seen_position
from snapshot.records import Meter
from snapshot.throttle import Throttle, ThrottleLimits, replica_lag


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
    assert throttle.reason(server) == "rate above 100 rows/s"
    clock.now += 4.9
    assert throttle.reason(server)
    clock.now += 0.2
    assert throttle.reason(server) == ""
    clock.now += 1000
    throttle.count(500)
    assert throttle.reason(server)
    assert server.asked == []


def test_running_threads() -> None:
    """The server is asked at most once a second, and named while it is too busy."""
    clock = _Clock()
    throttle = Throttle(ThrottleLimits(threads_running=10), clock=clock)
    server = _Server(("Threads_running", "11"))
    assert throttle.reason(server) == "11 threads running on shop/-"
    server.rows = [("Threads_running", "10")]
    assert throttle.reason(server)
    clock.now += 1.0
    assert throttle.reason(server) == ""
    assert len(server.asked) == 2


def test_lag_of_a_replica() -> None:
    """A replica that is behind holds chunks back; one that does not replicate is an error."""
    clock = _Clock()
    throttle = Throttle(ThrottleLimits(replica_lag=3), clock=clock)
    row = (*range(32), 5, "x")
    assert throttle.reason(_Server(), [_Server(row)]) == "replica shop/- is 5 s behind"
    assert throttle.reason(_Server(), [_Server((*range(32), 2))]) == ""
    assert replica_lag(_Server(row, (*range(32), 7), mariadb=False)) == 7
    for rows in ([], [(*range(32), None)]):
        with pytest.raises(SourceUnfitError):
            replica_lag(_Server(*rows))


def test_patience() -> None:
    """Delays grow, a success makes them short again, and in the end the error is raised."""
    clock = _Clock()
    patience = Patience(60.0, clock=clock)
    error = RetryableError("gone")
    assert [patience.failed("a", error) for _ in range(8)] == [0.5, 1, 2, 4, 8, 15, 15, 15]
    assert patience.failed("b", error) == 0.5
    patience.succeeded("a")
    assert patience.failed("a", error) == 0.5
    clock.now += 61
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

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        self.asked.append(sql)
        return [(self.owned.pop(0) if len(self.owned) > 1 else self.owned[0],)]

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
