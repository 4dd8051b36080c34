"""The lock beside the lease: one that stands still with it is named, and can be got rid of."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lease_kit import Passing
from process_kit import is_halted

from ratchet.core.errors import LakeError
from ratchet.store import filelock, layout
from ratchet.store.filelock import locked
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import Lease, read_holder

# Takes the lease and stands still amid its second change of the file, a renewal.
HALTED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import Lease
lake = Lake.at(sys.argv[1])
lease = Lease.acquire(lake, "ratchet run")
genuine = Lake.write_json
def write_json(self, path, value):
    print("in it", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    genuine(self, path, value)
Lake.write_json = write_json
lease.renew()
print("out of it", flush=True)
sys.stdin.read()
lease.renew()
"""
LOCK = "_ratchet/lease.lock"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filelock, "LOCK_SECONDS", 0.3)


@pytest.fixture
def halted(lake: Lake) -> Iterator[subprocess.Popen[bytes]]:
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "RATCHET_TEST_MACHINE": "elsewhere"}
    with subprocess.Popen(
        [sys.executable, "-c", HALTED, lake.root, root],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"in it\n"
        try:
            wait_until_stopped(process.pid)  # one that is told to go on before that stops for good
            yield process
        finally:
            process.kill()


def wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + 60
    while not is_halted(pid):
        assert time.monotonic() < deadline, "it does not stand still"
        time.sleep(0.01)


def refused(lake: Lake) -> LakeError:
    with pytest.raises(LakeError, match="it seems to stand still") as caught:
        lake.change_json(layout.LEASE_FILE, lambda value: value)
    return caught.value


def test_who_stands_still_with_the_lock_is_named_and_can_be_ended(
    lake: Lake, halted: subprocess.Popen[bytes]
) -> None:
    error = refused(lake)
    found = re.match(r"pid (\d+) on (\S+) holds the lock", error.message)
    assert found is not None, error.message
    assert (int(found[1]), found[2]) == (halted.pid, os.uname().nodename)
    os.kill(int(found[1]), signal.SIGKILL)
    halted.wait()
    lake.change_json(layout.LEASE_FILE, lambda _: None)
    assert read_holder(lake) is None


def test_who_is_let_go_on_gives_the_lock_back(lake: Lake, halted: subprocess.Popen[bytes]) -> None:
    refused(lake)
    os.kill(halted.pid, signal.SIGCONT)
    assert halted.stdout is not None
    assert halted.stdout.readline() == b"out of it\n"
    lake.change_json(layout.LEASE_FILE, lambda value: value)
    holder = read_holder(lake)
    assert holder is not None
    assert holder.pid == halted.pid


def test_a_lock_that_was_removed_holds_nobody_up(
    lake: Lake, halted: subprocess.Popen[bytes]
) -> None:
    """The late one puts its renewal over the successor's, who takes the lease back."""
    error = refused(lake)
    assert error.hint is not None
    named = re.search(r"remove (\S+):", error.hint)
    assert named is not None
    assert Path(named[1]) == Path(lake.absolute(LOCK))
    Path(named[1]).unlink()
    lake.change_json(layout.LEASE_FILE, lambda _: None)  # in the place of 30 s of waiting
    second = Lease.acquire(lake, "ratchet run")
    wakes_and_is_late(halted, second, lake)


def test_the_lock_of_one_that_is_taken_over_is_taken_away(
    lake: Lake, halted: subprocess.Popen[bytes]
) -> None:
    """Nobody need be there at night; the late one's renewal changes nothing."""
    second = Lease.acquire(lake, "ratchet run", passing=Passing().time)
    wakes_and_is_late(halted, second, lake)


def wakes_and_is_late(halted: subprocess.Popen[bytes], second: Lease, lake: Lake) -> None:
    os.kill(halted.pid, signal.SIGCONT)
    assert halted.stdout is not None
    assert halted.stdout.readline() == b"out of it\n"
    holder = read_holder(lake)
    assert holder is not None
    assert holder.pid == halted.pid, "it has written what it was about to write"
    second.renew()
    holder = read_holder(lake)
    assert holder is not None
    assert holder.owner == second.holder.owner
    second.check()
    assert halted.stdin is not None
    halted.stdin.close()
    assert halted.wait(30) == 1
    assert halted.stderr is not None
    assert b"lost its lease" in halted.stderr.read(), "at its next renewal"
    second.release()


def test_the_lock_of_anybody_else_is_not(lake: Lake, halted: subprocess.Popen[bytes]) -> None:
    """Who stands still is another one than who has the lease: it may be about to take it."""
    lake.write_json(layout.LEASE_FILE, {**lake.read_json(layout.LEASE_FILE), "pid": 1})
    with pytest.raises(LakeError, match="it seems to stand still"):
        Lease.acquire(lake, "ratchet run", passing=Passing().time)
    assert halted.poll() is None


def test_it_is_waited_for_as_long_as_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filelock, "LOCK_SECONDS", 10.0)
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    file = tmp_path / "x.lock"
    with locked(file):
        assert file.read_text() == f"pid {os.getpid()} on {os.uname().nodename}"
        with (
            pytest.raises(LakeError, match=f"pid {os.getpid()}"),
            locked(file, clock=lambda: passed[0], sleep=sleep),
        ):
            pytest.fail("two have the lock")
    assert 10.0 <= passed[0] < 10.1
    assert file.read_text() == "", "who has given it back is named no more"


def test_a_lock_of_a_file_that_is_gone_is_none(tmp_path: Path) -> None:
    """Two that waited, of which one waited for the file that was removed, are not both let in."""
    file = tmp_path / "x.lock"
    seen: list[str] = []

    def sleep(_: float) -> None:
        if not seen:
            file.unlink()
            seen.append("removed")

    with locked(file), locked(file, sleep=sleep):
        with file.open("rb") as stream:
            assert os.path.samestat(os.fstat(stream.fileno()), file.stat())
        assert file.read_text() != ""


@pytest.mark.parametrize(
    ("umask", "mode"), [(0o022, 0o600), (0o027, 0o600), (0o077, 0o600), (0o002, 0o660), (0, 0o666)]
)
def test_who_may_not_write_cannot_hold_the_lock(tmp_path: Path, umask: int, mode: int) -> None:
    """A file that may be read may be locked: anybody on the machine ended each run so."""
    file = tmp_path / "a.lock"
    before = os.umask(umask)
    try:
        with locked(file):
            assert file.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)
    file.chmod(0o644)  # by an earlier version
    with locked(file):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_new_lock_is_nobody_elses_to_read_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has it open before its mode is set keeps it open, and could hold the lock."""
    seen = []
    own = os.fchmod

    def spied(file: int, mode: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(file).st_mode))
        own(file, mode)

    monkeypatch.setattr(os, "fchmod", spied)
    for umask in (0o022, 0o002, 0):
        before = os.umask(umask)
        try:
            with locked(tmp_path / f"{umask}.lock"):
                pass
        finally:
            os.umask(before)
    assert [oct(mode) for mode in seen] == ["0o620", "0o622"]
