"""The first signal asks, the second one ends."""

from __future__ import annotations

import os
import signal

import pytest

from ratchet.jobs.run.signals import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_and_second(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    stopped: list[int] = []
    left: list[int] = []
    before = signal.getsignal(number)
    with stop_on_signals(lambda: stopped.append(1), left.append):
        os.kill(os.getpid(), number)
        assert (stopped, left) == ([1], [])
        os.kill(os.getpid(), number)
        assert left == [128 + number]
    assert signal.getsignal(number) == before
    assert f"{number.name}: stopping" in capfd.readouterr().err
