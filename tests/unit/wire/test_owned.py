"""Files that are run: nobody else may have written them."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from ratchet.wire.owned import distrust


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.touch(mode=0o644)
    return path


def as_user(patch: pytest.MonkeyPatch, user: int, name: str) -> None:
    patch.setattr(os, "geteuid", lambda: user)
    entry = pwd.struct_passwd((name, "x", user, user, "", "/", "/bin/sh"))
    patch.setattr(pwd, "getpwuid", lambda _: entry)


def owned(patch: pytest.MonkeyPatch, path: Path, user: int, group: int) -> None:
    """From now on that file belongs to somebody; root may be needed to do it for real."""
    real = Path.lstat, Path.stat

    def shown(which: int, asked: Path, **more: bool) -> os.stat_result:
        found = real[which](asked, **more)
        if asked != path:
            return found
        return os.stat_result((*found[:4], user, group, *found[6:]))

    patch.setattr(Path, "lstat", lambda asked: shown(0, asked))
    patch.setattr(Path, "stat", lambda asked, **more: shown(1, asked, **more))


def test_ours_is_trusted_and_what_is_not_there(file: Path) -> None:
    assert distrust(file) == ""
    assert distrust(file.with_name("none")) == ""


def test_writable_by_everybody(file: Path) -> None:
    file.chmod(0o666)
    assert "written by everybody" in distrust(file)


def test_somebody_elses(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owned(monkeypatch, file, 4711, 4711)
    assert "the user 4711" in distrust(file)
    program = file.with_name("program")
    program.touch()
    as_user(monkeypatch, 99, "me")
    assert "belongs to" in distrust(file, program=program)
    owned(monkeypatch, file, 0, 0)
    assert distrust(file) == "", "root may do everything anyway"


@pytest.mark.parametrize(
    ("name", "members", "trusted"),
    [("me", [], True), ("me", ["other"], False), ("staff", [], False)],
)
def test_a_group(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str, members: list[str], *, trusted: bool
) -> None:
    """A group of the user's own name and no other member is what useradd makes."""
    file.chmod(0o664)
    as_user(monkeypatch, 99, "me")
    owned(monkeypatch, file, 99, 4711)
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((name, "x", 4711, members)))
    assert (distrust(file) == "") == trusted


def test_a_link_leads_to_something_that_is_looked_at(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    assert distrust(link) == ""
    file.chmod(0o666)
    assert "written by everybody" in distrust(link)
