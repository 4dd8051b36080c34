"""Statements that run on a server for as long as a test wants them to, and not longer."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LONGEST = 120  # seconds
_numbers = itertools.count()


@contextmanager
def running_statements(server: Any, *executes: Callable[[str], object]) -> Iterator[None]:
    """Each of these executes a statement meanwhile, in a thread of its own; all of them run by now.

    They wait for locks of ours. (One that sleeps may be over before the test has looked.)

    Args:
        server: whose root holds the locks, and sees all sessions.
        executes: each executes a statement, in a session of its own.
    """
    names = [f"busy {os.getpid()} {next(_numbers)}" for _ in executes]
    waits = [f"SELECT GET_LOCK('{name}', {_LONGEST})" for name in names]
    threads = [
        threading.Thread(target=execute, args=(wait,))
        for execute, wait in zip(executes, waits, strict=True)
    ]
    # However the session marks its statements.
    shown = " OR ".join(f"LOCATE('{name}', info)" for name in names)
    running = (
        "SELECT COUNT(*) FROM information_schema.processlist "
        f"WHERE id <> CONNECTION_ID() AND ({shown})"
    )
    with server.connect() as holder, holder.cursor() as cursor:
        for wait in waits:
            cursor.execute(wait)
        for one in threads:
            one.start()
        try:
            deadline = time.monotonic() + _LONGEST / 2
            while cursor.execute(running) and cursor.fetchall() != ((len(waits),),):
                assert time.monotonic() < deadline, "not all statements have begun"
                time.sleep(0.05)
            yield
        finally:
            for name in names:
                cursor.execute(f"DO RELEASE_LOCK('{name}')")
            for one in threads:
                one.join()
