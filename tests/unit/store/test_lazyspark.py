"""A session that is started when it is used: once, and with the pool that a thread has chosen."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ratchet.store.lazyspark import LazySession, is_started, use_pool


class Context:
    def __init__(self) -> None:
        self.pools: dict[int, list[str]] = {}

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark's name
        assert name == "spark.scheduler.pool"
        self.pools.setdefault(threading.get_ident(), []).append(value)


class Session:
    def __init__(self) -> None:
        self.sparkContext = Context()

    def sql(self, text: str) -> str:
        return text.upper()


def lazy() -> tuple[Any, list[Session]]:
    started: list[Session] = []

    def start() -> Any:
        time.sleep(0.05)
        started.append(Session())
        return started[-1]

    return LazySession(start), started


def test_it_starts_when_it_is_used() -> None:
    session, started = lazy()
    use_pool(session, "merge")
    assert not is_started(session)
    assert started == []
    assert session.sql("a") == "A"
    assert is_started(session)
    assert session.session is started[0]


def test_threads_start_it_once() -> None:
    session, started = lazy()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(session.sql, "abcdefgh")) == list("ABCDEFGH")
    assert len(started) == 1


def test_a_start_that_fails_is_tried_again() -> None:
    calls = iter([OSError("no Java"), Session()])

    def start() -> Any:
        one = next(calls)
        if isinstance(one, OSError):
            raise one
        return one

    session: Any = LazySession(start)
    with pytest.raises(OSError, match="no Java"):
        session.sql("a")
    assert not is_started(session)
    assert session.sql("a") == "A"


def test_each_thread_has_its_pool() -> None:
    session, started = lazy()

    def work(pool: str) -> None:
        use_pool(session, pool)
        session.sql("a")
        session.sql("b")
        use_pool(session, f"{pool} again")
        session.sql("c")

    threads = [threading.Thread(target=work, args=(name,)) for name in ("merge", "dump")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.sql("of a thread without one")
    found = sorted(started[0].sparkContext.pools.values())
    assert found == [["dump", "dump again"], ["merge", "merge again"]]


def test_what_is_no_stand_in() -> None:
    session: Any = Session()
    assert is_started(session)
    use_pool(session, "merge")
    assert list(session.sparkContext.pools.values()) == [["merge"]]
