"""The lease: one run at a time, takeover from the dead, and noticing a takeover."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from lease_kit import NOW, Passing

from ratchet.core.errors import LakeAwayError, LakeError
from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import (
    EXPIRY_SECONDS,
    Lease,
    Time,
    is_alive,
    machine_id,
    process_start,
    read_holder,
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


def acquire(lake: Lake, command: str = "ratchet run", passing: Passing | None = None) -> Lease:
    return Lease.acquire(lake, command, passing=(passing or Passing()).time)


def put(lake: Lake, held: Lease, **changes: Any) -> None:
    lake.write_json(layout.LEASE_FILE, asdict(replace(held.holder, **changes)))


def test_second_run_names_the_first(lake: Lake) -> None:
    with acquire(lake, "ratchet run a.yaml"):
        with pytest.raises(LakeError) as caught:
            acquire(lake)
        assert f"pid {os.getpid()} on" in caught.value.message
        assert "`ratchet run a.yaml`" in caught.value.message
        assert "2027-01-15 08:00:00 UTC" in caught.value.message
        data = json.loads(Path(lake.absolute(layout.LEASE_FILE)).read_text())
        assert data["pid"] == os.getpid()
    assert read_holder(lake) is None
    acquire(lake).release()


def test_a_killed_run_of_this_machine_is_taken_over_at_once(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """By the kernel's word about the process, not by time; a zombie counts as dead."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from ratchet.store.files import Lake; from ratchet.store.lease import Lease\n"
        "lease = Lease.acquire(Lake.at(sys.argv[1]), 'ratchet run')\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", code, lake.root, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(LakeError, match=f"pid {other.pid}"):
            Lease.acquire(lake, "ratchet run")
        other.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
        Lease.acquire(lake, "ratchet run").release()
    assert "runs again" not in caplog.text  # nobody is late: the run before is dead


def test_a_pid_that_was_used_again_is_not_the_first_run(lake: Lake) -> None:
    held = acquire(lake)
    assert is_alive(held.holder)
    other = replace(held.holder, process_start=held.holder.process_start - 1)
    assert is_alive(other) is False
    assert is_alive(replace(other, machine="elsewhere")) is None, "its pid says nothing here"


@pytest.mark.parametrize("ahead", [-86_400, -31, 0, 31, 86_400])
def test_a_run_elsewhere_is_given_up_when_its_renewals_stand_still(
    lake: Lake, caplog: pytest.LogCaptureFixture, ahead: int
) -> None:
    """By the time of the one who waits: whatever the clock of the other says."""
    held = acquire(lake)
    put(lake, held, machine="elsewhere", host="other", renewed=int((NOW + ahead) * 1e6))
    caplog.set_level("INFO")
    passing = Passing()
    with acquire(lake, passing=passing):
        assert EXPIRY_SECONDS <= passing.passed < EXPIRY_SECONDS + 2
    assert "waiting up to 30 s for a sign of life" in caplog.text


@pytest.mark.parametrize("ahead", [-86_400, -31, 0, 31, 86_400])
def test_a_run_elsewhere_that_renews_is_alive_whatever_its_clock_says(
    lake: Lake, ahead: int
) -> None:
    held = acquire(lake)
    put(lake, held, machine="elsewhere", host="other", renewed=int((NOW + ahead) * 1e6))

    def renews(passed: float) -> None:
        if passed == 29:
            renewed = int((NOW + ahead + 1) * 1e6)
            put(lake, held, machine="elsewhere", host="other", renewed=renewed)

    with pytest.raises(LakeError, match="on other"):
        acquire(lake, passing=Passing(renews))


def test_of_two_that_wait_for_the_same_dead_one_gets_it(lake: Lake) -> None:
    held = acquire(lake)
    put(lake, held, machine="elsewhere", host="other")
    got: list[Lease] = []

    def other(passed: float) -> None:
        if passed == 29:
            got.append(acquire(lake, "ratchet run faster", Passing()))

    with pytest.raises(LakeError, match="faster"):
        acquire(lake, passing=Passing(other))
    assert got[0].lake.epoch == held.lake.epoch + 1


def test_a_clean_end_is_gone_on_from(lake: Lake) -> None:
    with acquire(lake) as first:
        assert (first.lake.epoch, first.continues) == (1, False)
    with acquire(lake) as second:
        assert (second.lake.epoch, second.continues) == (1, True)


def spoiled(held: Lease, _: Lake) -> None:
    held.spoil()
    held.release()


def killed(held: Lease, lake: Lake) -> None:
    put(lake, held, process_start=1)


def failed(held: Lease, _: Lake) -> None:
    with pytest.raises(KeyboardInterrupt), held:
        raise KeyboardInterrupt


def removed(held: Lease, lake: Lake) -> None:
    held.release()
    lake.delete(layout.LEASE_FILE)


def of_an_earlier_version(held: Lease, lake: Lake) -> None:
    data = asdict(replace(held.holder, process_start=1))
    lake.write_json(
        layout.LEASE_FILE, {n: v for n, v in data.items() if n not in {"epoch", "released"}}
    )


@pytest.mark.parametrize("end", [spoiled, killed, failed, removed, of_an_earlier_version])
def test_every_other_end_makes_the_next_one_take_over(
    lake: Lake, end: Callable[[Lease, Lake], None]
) -> None:
    end(acquire(lake), lake)
    with acquire(lake) as later:
        assert (later.lake.epoch, later.continues) == (2, False)


def test_a_clean_end_is_none_of_an_epoch_that_was_overtaken(lake: Lake) -> None:
    """Its lease file was put back from a copy, say."""
    with acquire(lake) as held:
        old = held.holder
    with acquire(lake) as second:
        second.spoil()
    with acquire(lake) as third:
        assert third.lake.epoch == 2
    lake.write_json(layout.LEASE_FILE, asdict(replace(old, released=True)))
    with acquire(lake) as fourth:
        assert fourth.lake.epoch == 3


def test_taken_away(lake: Lake) -> None:
    """The first run notices at its next renewal, and refuses every commit from then on."""
    held = acquire(lake)
    lost = threading.Event()
    errors: list[LakeError] = []

    def on_lost(error: LakeError) -> None:
        errors.append(error)
        lost.set()

    held.renew()
    held.check()
    put(lake, held, owner="somebody else", host="other")
    held.start(on_lost, every=0.01)
    assert lost.wait(10)
    assert "now held by" in str(errors[0])
    with pytest.raises(LakeError, match="lost its lease"):
        held.check()
    held.release()
    assert read_holder(lake) is not None, "the other run's lease stays"


def test_what_ended_a_run_is_not_hidden_by_a_lease_that_cannot_be_given_back(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """On a lake that fails both do; without another error the lease's own is told."""
    lock = Path(lake.root) / layout.PRIVATE / "lease.lock"

    def hold(error: LakeError | None) -> None:
        with acquire(lake):
            lock.unlink()
            lock.mkdir()
            if error is not None:
                raise error

    with pytest.raises(LakeError, match="lock a file"):
        hold(None)
    lock.rmdir()
    lake.delete(layout.LEASE_FILE)  # this process has not ended, as the run would have
    with pytest.raises(LakeError, match="the disk"):
        hold(LakeError("the disk"))
    assert "stays where it is" in caplog.text


def test_removed_file_is_a_loss(lake: Lake) -> None:
    held = acquire(lake)
    lake.delete(layout.LEASE_FILE)
    with pytest.raises(LakeError, match="nobody"):
        held.renew()


def test_a_run_that_slept_too_long_asks_first(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """After SIGSTOP or without the lake it cannot know, so it does not commit before it asked."""
    held = acquire(lake)
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + EXPIRY_SECONDS + 1)
    with pytest.raises(LakeAwayError, match="could not be renewed"):
        held.check()
    held.renew()
    held.check()
    held.release()


def put_a_folder_at(lock: Path) -> None:
    """In the place of a file that the thread which renews may make again at any moment."""
    while not lock.is_dir():
        lock.unlink(missing_ok=True)
        with suppress(FileExistsError):
            lock.mkdir()


def test_a_lake_out_of_reach_is_told_once_each_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = Path(lake.root) / layout.PRIVATE / "lease.lock"
    monkeypatch.setattr("ratchet.store.lease.EXPIRY_SECONDS", 0.05)
    told: list[LakeError] = []
    with acquire(lake).start(told.append, every=0.01) as held:
        for times in (1, 2):
            put_a_folder_at(lock)
            until = time.monotonic() + 10
            while len(told) < times:
                assert time.monotonic() < until
                time.sleep(0.01)
            time.sleep(0.1)
            assert len(told) == times
            before = held._renewed_at
            lock.rmdir()
            while held._renewed_at == before:
                assert time.monotonic() < until
                time.sleep(0.01)
    assert all("lock a file" in error.operation for error in told)


def test_renewal_goes_on_in_its_thread(lake: Lake) -> None:
    times = iter(range(1000))
    seen = threading.Event()

    def clock() -> float:
        tick = next(times)
        if tick > 5:
            seen.set()
        return NOW + tick

    passing = Time(clock=clock)
    with Lease.acquire(lake, "ratchet run", passing=passing).start(
        lambda _: None, every=0.01
    ) as held:
        assert seen.wait(10)
        found = read_holder(lake)
        assert found is not None
        assert found.renewed > found.started
        held.check()


def test_two_at_the_same_moment(lake: Lake) -> None:
    """Of many threads that ask at once, one gets it."""
    won: list[Lease] = []
    refused: list[LakeError] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        try:
            won.append(acquire(lake))
        except LakeError as error:
            refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(refused)) == (1, 7)


def test_process_start() -> None:
    assert process_start(os.getpid()) > 0
    assert process_start(2**22 + 1) == 0
    assert machine_id() == machine_id() != ""
