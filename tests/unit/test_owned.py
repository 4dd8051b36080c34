"""Files that are run: nobody else may have written them."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import re
import struct
from pathlib import Path

import pytest

from ratchet import owned as owned_rules
from ratchet.owned import distrust, distrust_code, opening


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


def in_folders(file: Path) -> Path:
    """The file below two folders that are ours alone."""
    inner = file.parent / "outer" / "inner"
    inner.mkdir(parents=True, mode=0o755)
    return file.rename(inner / file.name)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize(
    ("mode", "by"),
    [(0o755, ""), (0o777, "all"), (0o757, "all"), (0o1777, ""), (0o775, "group"), (0o1775, "")],
)
def test_a_folder_on_the_way_that_others_may_change(
    file: Path, monkeypatch: pytest.MonkeyPatch, level: int, mode: int, by: str
) -> None:
    """They can rename what lies in it; not where it has the sticky bit."""
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group(("staff", "x", 4711, [])))
    moved = in_folders(file)
    weak = moved.parents[level]
    weak.chmod(mode)
    owned(monkeypatch, weak, 0, 4711)
    found = opening(moved)
    assert (found.by if found else "") == by
    assert found is None or found.place == weak
    assert found is None or str(found).startswith(f"{weak} can be written by")


def test_a_folder_of_root_s_group_or_of_ones_own(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = in_folders(file)
    moved.parent.chmod(0o775)
    owned(monkeypatch, moved.parent, os.getuid(), 4711)
    own = pwd.struct_passwd(("me", "x", os.getuid(), 4711, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: own)
    for name, members, trusted in (
        ("me", ["me"], True),
        ("me", ["you"], False),
        ("all", [], False),
    ):
        group = grp.struct_group((name, "x", 4711, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        assert (opening(moved) is None) == trusted


def test_a_folder_of_another_user_on_the_way(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sticky or not: the owner may rename what lies in it."""
    moved = in_folders(file)
    moved.parents[1].chmod(0o1777)
    owned(monkeypatch, moved.parents[1], 4711, 4711)
    found = opening(moved)
    assert found is not None
    assert (found.place, found.by) == (moved.parents[1], "owner")
    assert "the user 4711" in str(found)


def test_links_on_the_way(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that a link lies in counts as much as the one that it leads to."""
    moved = in_folders(file)
    shared = file.parent / "shared"
    shared.mkdir(mode=0o755)
    last, middle = shared / "last", shared / "middle"
    last.symlink_to(moved)
    middle.symlink_to("../outer")
    ways = (last, middle / "inner" / moved.name, middle / ".." / "outer" / "inner" / moved.name)
    assert [opening(way) for way in ways] == [None] * 3
    shared.chmod(0o777)
    assert [found and found.place for found in map(opening, ways)] == [shared] * 3
    shared.chmod(0o1777)
    assert [opening(way) for way in ways] == [None] * 3
    moved.parent.chmod(0o777)
    assert [found and found.place for found in map(opening, ways)] == [moved.parent] * 3
    moved.parent.chmod(0o755)
    owned(monkeypatch, last, 4711, 4711)
    assert [found and found.place for found in map(opening, ways)] == [last, None, None]


def test_a_way_that_leads_nowhere(file: Path) -> None:
    assert opening(file.with_name("none")) is None
    assert opening(file.with_name("none") / "below") is None
    assert opening(file / "below") is None
    ring = file.with_name("ring")
    ring.symlink_to(ring)
    assert "cannot be followed" in str(opening(ring / "below"))


@pytest.mark.parametrize(
    ("place", "mode", "told"),
    [
        ("file", 0o666, "file can be written by everybody"),
        ("folder", 0o777, "folder can be written by everybody"),
        ("above", 0o777, "above can be written by everybody"),
        ("above", 0o1777, ""),
        ("", 0o755, ""),
    ],
)
def test_code_is_not_run_if_it_or_its_folder_may_be_exchanged(
    tmp_path: Path, place: str, mode: int, told: str
) -> None:
    """Also in the moment between the look and the read: by whoever may rename a folder above."""
    places = {"above": tmp_path / "above", "folder": tmp_path / "above" / "folder"}
    places["folder"].mkdir(parents=True, mode=0o755)
    places["file"] = places["folder"] / "file"
    places["file"].touch(mode=0o644)
    if place:
        places[place].chmod(mode)
    found = distrust_code(places["file"])
    assert found.endswith(told)
    assert bool(found) == bool(told)


ACCESS = "system.posix_acl_access"
NOBODY = 65534


def allow(path: Path, tag: int, rights: int, number: int, mask: int = 7) -> None:
    """As `setfacl` does; the owner may do all, the group and others nothing."""
    entries = [(1, 7, 2**32 - 1), (4, 0, 2**32 - 1), (16, mask, 2**32 - 1), (32, 0, 2**32 - 1)]
    acl = sorted([*entries, (tag, rights, number)])
    packed = b"".join(struct.pack("<HHI", *one) for one in acl)
    os.setxattr(path, ACCESS, struct.pack("<I", 2) + packed)


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        ((2, 7, 7), "can be written by the user .*, by its ACL"),
        ((8, 7, 7), "can be written by the group 65534, by its ACL"),
        ((2, 5, 7), ""),
        ((2, 7, 5), ""),  # the mask takes it away
    ],
)
def test_an_acl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: tuple[int, int, int], refused: str
) -> None:
    """The group's part of the mode is then what it allows at most, whatever the group is."""
    tag, rights, mask = entry
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(owned_rules, "_is_private", lambda group: group != NOBODY)
    try:
        allow(folder, tag, rights, NOBODY, mask)
    except OSError as error:
        assert error.errno == errno.ENOTSUP  # noqa: PT017 - a file system without ACLs
        return
    assert folder.stat().st_mode & 0o070 == mask << 3
    found = opening(folder / "file")
    assert re.search(refused, str(found)) if refused else found is None
    assert bool(distrust(folder)) == bool(refused)
