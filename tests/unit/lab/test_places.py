"""The lab runs programs and believes passwords of no folder that another user has made."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from lab import places, provision, template
from lab.cache import locked, prepared
from lab.demo import MARK, _prepare
from ratchet.core.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Named as the cache, and as where temporary files go."""
    found = tmp_path / "folder"
    found.mkdir(mode=0o755)
    monkeypatch.setenv("RATCHET_CACHE", str(found))
    monkeypatch.setattr(tempfile, "tempdir", str(found))
    return found


def of_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a folder is somebody else's."""
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)


def planted(folder: Path) -> None:
    root = folder / "templates" / "root"
    root.mkdir(parents=True)
    (root / "password").write_text("planted")


def test_a_cache_of_ones_own(folder: Path) -> None:
    assert places.cache() == folder
    assert len(template.root_password()) == 32
    assert template.root_password() == template.root_password()


def test_a_cache_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(folder)
    of_another(folder, monkeypatch)
    for use in (places.cache, template.root_password, lambda: provision.found("mysql")):
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("RATCHET_MYSQLD", raising=False)
        with pytest.raises(ConfigError, match="belongs to the user") as caught:
            use()
        assert "RATCHET_CACHE" in caught.value.hint


@pytest.mark.parametrize("inner", ["", "templates", "templates/root"])
def test_a_cache_that_everybody_may_write(folder: Path, inner: str) -> None:
    planted(folder)
    (folder / inner).chmod(0o1777)
    with pytest.raises(ConfigError, match="can be written by everybody"):
        template.root_password()


def test_an_entry_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = folder / "debs"
    entry.mkdir()
    of_another(entry, monkeypatch)
    with pytest.raises(ConfigError, match="belongs to the user"):
        prepared(entry, lambda _: None)


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_demo_in_a_folder_that_everybody_may_write(folder: Path, mode: int) -> None:
    """What they lay there is its config, and its lake."""
    home = folder / "demo"
    home.mkdir()
    (home / MARK).touch()
    (home / "kept").touch()
    home.chmod(mode)
    with pytest.raises(ConfigError, match="can be written by everybody") as caught:
        _prepare(home)
    assert "--home" in caught.value.hint
    assert (home / "kept").exists()


def test_a_demo_in_a_folder_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_another(folder, monkeypatch)
    for home in (folder, folder / "new", folder / "new" / "newer"):
        with pytest.raises(ConfigError, match="belongs to the user"):
            _prepare(home)
    assert list(folder.iterdir()) == []


def test_a_demo_in_a_folder_of_ones_own(folder: Path) -> None:
    home = folder / "new" / "newer"
    old = os.umask(0)
    try:
        assert _prepare(home) == home
    finally:
        os.umask(old)
    assert (home.stat().st_mode & 0o777, home.parent.stat().st_mode & 0o777) == (0o755, 0o755)
    (home / "file").touch()
    assert _prepare(home) == home
    assert [one.name for one in home.iterdir()] == [MARK]


def test_a_servers_home(folder: Path) -> None:
    made = places.new_home("ratchet-x-")
    assert made.parent == folder
    folder.chmod(0o1777)
    places.new_home("ratchet-x-")
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by everybody") as caught:
        places.new_home("ratchet-x-")
    assert "TMPDIR" in caught.value.hint


def test_nobody_else_can_hold_its_locks(folder: Path) -> None:
    """Whoever may read a file can lock it; one that an earlier version made is closed, too."""
    lock = folder / "lock"
    lock.touch(mode=0o644)
    with locked(lock):
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
