"""What workers warn of is told again in the run's process."""

from __future__ import annotations

import logging
import pickle
import threading

import pytest

from ratchet.store.workerlog import kept_lines, tell_again

LOG = logging.getLogger("ratchet.ingest.somewhere")


def test_warnings_of_all_threads_are_kept_and_told_again(caplog: pytest.LogCaptureFixture) -> None:
    with kept_lines() as lines:
        LOG.info("not this")
        LOG.warning("%s: %d %%", "shop/-", 5, extra={"fields": {"event": "odd"}})
        thread = threading.Thread(target=LOG.error, args=("from a thread",))
        thread.start()
        thread.join()
    LOG.warning("behind it")
    caplog.clear()
    tell_again(pickle.loads(pickle.dumps(lines)))
    told = [(r.name, r.levelname, r.getMessage(), r.fields) for r in caplog.records]  # type: ignore[attr-defined]
    assert told == [
        (LOG.name, "WARNING", "shop/-: 5 %", {"event": "odd"}),
        (LOG.name, "ERROR", "from a thread", {}),
    ]


def test_not_more_than_so_many() -> None:
    with kept_lines() as lines:
        for number in range(1000):
            LOG.warning("%d", number)
    assert [line.message for line in lines] == [str(number) for number in range(50)]
