"""Temporary folders: nobody else's are used or removed, and no living command's."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ratchet import owned
from ratchet.core.errors import ConfigError, OperatorError
from ratchet.jobs.engine.tempfolder import (
    LOCK,
    PREFIX,
    held_folder,
    remove_left,
    temporary_folder,
)

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import time
from ratchet.jobs.engine.tempfolder import temporary_folder
with temporary_folder() as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    time.sleep(600)
"""
HOLD_WITH_A_CHILD = """
import subprocess, time
from ratchet.jobs.engine.tempfolder import held_folder
with held_folder() as held:
    child = subprocess.Popen(["sleep", "600"], pass_fds=[held.lock], stdout=subprocess.DEVNULL)
    print(held.path, child.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left(base: Path, name: str = "abc", mode: int = 0o700) -> Path:
    """What a killed command leaves."""
    folder = base / f"{PREFIX}{name}"
    folder.mkdir()
    folder.chmod(mode)
    (folder / LOCK).touch()
    (folder / "file").touch()
    return folder


def test_it_is_new_and_ours_alone_and_goes(base: Path) -> None:
    planted = base / f"ratchet-spark-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    with temporary_folder() as one, temporary_folder() as other:
        assert one != other
        assert {one.parent, other.parent} == {base}
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
        assert stat.S_IMODE((one / LOCK).stat().st_mode) == 0o600
    assert list(base.iterdir()) == [planted]
    assert list(planted.iterdir()) == []


def test_what_a_killed_command_left_goes_and_a_living_ones_stays(base: Path) -> None:
    """Also where its process's number cannot be seen: the cleaner does not look at any."""
    command = [sys.executable, "-c", HOLD]
    env = {**os.environ, "TMPDIR": str(base), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        try:
            remove_left(base)
            assert (folder / "file").exists()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert folder.exists()
    with temporary_folder() as own:
        assert list(base.iterdir()) == [own]


def test_what_a_child_of_a_killed_command_has_stays_until_it_ends(base: Path) -> None:
    """Java: were it removed, another user could make a folder of that name under it."""
    env = {**os.environ, "TMPDIR": str(base), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLD_WITH_A_CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        folder, child = process.stdout.readline().split()
        process.send_signal(signal.SIGKILL)
        process.wait()
    try:
        remove_left(base)
        assert (Path(folder) / LOCK).exists()
    finally:
        os.kill(int(child), signal.SIGKILL)
    deadline = time.monotonic() + 20
    while Path(folder).exists():
        assert time.monotonic() < deadline
        remove_left(base)
        time.sleep(0.05)


def test_at_the_end_it_stays_for_a_child_that_lives_on(base: Path) -> None:
    with held_folder() as held:
        child = subprocess.Popen(["sleep", "600"], pass_fds=[held.lock])
    with child:
        try:
            assert held.path.exists()
        finally:
            child.kill()
    remove_left(base)
    assert not held.path.exists()


def test_a_folder_that_is_being_made_stays(base: Path) -> None:
    folder = left(base)
    (folder / LOCK).unlink()
    remove_left(base)
    assert folder.exists()
    os.utime(folder, (time.time() - 7200,) * 2)
    remove_left(base)
    assert not folder.exists()


def test_what_is_not_ours_stays(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = base / "target"
    target.mkdir(mode=0o700)
    (target / LOCK).touch()
    (base / f"{PREFIX}link").symlink_to(target)
    wide = left(base, "wide", 0o777)
    odd = left(base, "odd")
    (odd / LOCK).unlink()
    (odd / LOCK).symlink_to(target / LOCK)
    mine = left(base, "mine")
    (base / f"{PREFIX}file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # so that all are somebody else's
        remove_left(base)
        assert mine.exists()
    remove_left(base)
    assert not mine.exists()
    assert (target / LOCK).exists()
    assert (wide / "file").exists()
    assert (odd / "file").exists()
    assert (base / f"{PREFIX}file").exists()


def test_a_link_inside_is_removed_not_followed(base: Path) -> None:
    (base / "target").mkdir()
    (base / "target" / "kept").touch()
    folder = left(base)
    (folder / "link").symlink_to(base / "target")
    remove_left(base)
    assert not folder.exists()
    assert (base / "target" / "kept").exists()


def test_without_room_for_it_the_error_says_what_to_do(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(base / "gone"))
    with pytest.raises(OperatorError) as caught, temporary_folder():
        pass
    assert "TMPDIR" in caught.value.hint


@pytest.mark.parametrize("above", [False, True])
def test_a_base_of_another_user_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch, *, above: bool
) -> None:
    """He can put a folder of his in its place, also from above."""
    inner = base / "theirs" / "inner"
    inner.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(inner.parent if above else inner, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    tempfile.tempdir = str(inner)  # as the fixture has set it, and takes back
    with (
        pytest.raises(ConfigError, match=r"belongs to the user .* another user can replace them"),
        temporary_folder(),
    ):
        pass
    assert list(inner.iterdir()) == []


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize(
    ("mode", "refused"),
    [
        (0o755, ""),
        (0o757, "can be written by everybody"),
        (0o777, "can be written by everybody"),
        (0o1777, ""),
        (0o775, "can be written by its group"),  # whose group: see `test_owned`
        (0o1775, ""),
    ],
)
def test_a_base_that_others_may_exchange_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch, mode: int, refused: str, *, above: bool
) -> None:
    """Whoever can rename a folder of ours puts programs of his where Java loads its own from."""
    inner = base / "above" / "tmp"
    inner.mkdir(parents=True, mode=0o755)
    weak = inner.parent if above else inner
    weak.chmod(mode)
    monkeypatch.setattr(owned, "_is_private", lambda _: False)
    monkeypatch.setattr(tempfile, "tempdir", str(inner))
    if not refused:
        with temporary_folder() as made:
            assert made.parent == inner
        return
    with pytest.raises(ConfigError, match=f"{weak} {refused}") as caught, temporary_folder():
        pass
    assert caught.value.exit_code == 2
    assert f"chmod +t '{weak}'" in caught.value.hint
    assert "TMPDIR" in caught.value.hint
    assert list(inner.iterdir()) == []
