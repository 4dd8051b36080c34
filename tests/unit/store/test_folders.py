"""A late removal of a folder meets what its successor has made there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.objectstore import S3Server
from ratchet.core.errors import LakeError
from ratchet.store.files import Lake
from ratchet.store.folders import create_in, remove_seen

_NAMES = ("_last_checkpoint", ".0.crc", "0.checkpoint.parquet", "0.json", "1.json", "2.json")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table's folder with a log."""
    folder = tmp_path / "table"
    _make(folder, "damaged")
    return folder


def _make(folder: Path, content: str) -> None:
    (folder / "_delta_log" / "_sidecars").mkdir(parents=True)
    for name in (*_NAMES, "_sidecars/a"):
        (folder / "_delta_log" / name).write_text(content)


def _nothing() -> None:
    """No successor."""


def _succeed(folder: Path) -> None:
    """What a successor does: the same, and then a table of its own."""
    remove_seen(str(folder), _nothing)
    assert not folder.exists()
    _make(folder, "new")


def _contents(folder: Path) -> set[str]:
    return {path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_all_of_a_folder_is_removed(table: Path) -> None:
    remove_seen(str(table), _nothing)
    assert not table.exists()
    remove_seen(str(table), _nothing)  # nor is it an error that nothing is there


def test_what_a_late_one_puts_there_meanwhile_goes_as_well(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would stand in the log that is made there next; each time behind another look."""
    looks, genuine = [], os.unlink

    def unlink(name: Any, **where: Any) -> None:
        genuine(name, **where)
        if name == "2.json" and len(looks) < 3:
            (table / "_delta_log" / "3.json").write_text("late")

    monkeypatch.setattr(os, "unlink", unlink)
    remove_seen(str(table), lambda: looks.append(len(looks)))
    assert not table.exists()
    assert looks == [0, 1]


def _made_in(table: Path, look: Callable[[bytes | None], None]) -> bool:
    return create_in(str(table / "_delta_log"), "3.json", b"late", "2.json", look)


def test_a_file_is_made_beside_the_one_that_was_looked_at(table: Path) -> None:
    seen: list[bytes | None] = []
    assert _made_in(table, seen.append)
    assert not _made_in(table, seen.append), "once"
    assert create_in(str(table / "_delta_log"), "5.json", b"", "4.json", seen.append)
    assert seen == [b"damaged", b"damaged", None]
    assert (table / "_delta_log" / "3.json").read_bytes() == b"late"
    assert not list((table / "_delta_log").glob(".*.tmp"))


def test_no_file_is_made_in_the_folder_of_a_successor(table: Path) -> None:
    """Of the same name, made anew behind the look."""
    seen: list[bytes | None] = []

    def look(before: bytes | None) -> None:
        seen.append(before)
        if len(seen) == 1:
            _succeed(table)

    with pytest.raises(FileNotFoundError):
        _made_in(table, look)
    assert seen == [b"damaged", None]
    assert _contents(table) == {"new"}
    assert not (table / "_delta_log" / "3.json").exists()


def test_one_that_is_late_at_its_look_removes_nothing(table: Path) -> None:
    def look() -> None:
        raise LakeError("late", operation="test")

    with pytest.raises(LakeError):
        remove_seen(str(table), look)
    assert _contents(table) == {"damaged"}


def test_one_that_stands_still_behind_its_look_leaves_its_successor_alone(table: Path) -> None:
    remove_seen(str(table), lambda: _succeed(table))
    assert _contents(table) == {"new"}
    assert len([path for path in table.rglob("*") if path.is_file()]) == len(_NAMES) + 1


@pytest.mark.parametrize("at", range(len(_NAMES) + 1))
def test_one_that_stands_still_at_any_removal_leaves_its_successor_alone(
    table: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    _at_removal(monkeypatch, at, lambda: _succeed(table))
    remove_seen(str(table), _nothing)
    assert _contents(table) == {"new"}


def _at_removal(monkeypatch: pytest.MonkeyPatch, at: int, act: Callable[[], None]) -> None:
    """Act before the removal with a number, once."""
    unlink, told = os.unlink, iter(range(1000))

    def late(name: str, **more: Any) -> None:
        if next(told) == at:
            act()
        unlink(name, **more)

    monkeypatch.setattr(os, "unlink", late)


def test_the_commits_go_last_and_from_the_first_one_on(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a damaged log at a kill is no whole log of an older version."""
    left: list[list[str]] = []
    log = table / "_delta_log"

    def note() -> None:
        left.append(sorted(path.name for path in log.glob("*.json")))

    for at in range(1, len(_NAMES) + 1):
        _at_removal(monkeypatch, at, note)
        remove_seen(str(log), _nothing)
        monkeypatch.undo()
        _make(table, "damaged")
    assert left == [["0.json", "1.json", "2.json"]] * 4 + [["1.json", "2.json"], ["2.json"]]


def test_in_an_object_store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the names that were listed are removed; what came later under others stays."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    lake = Lake.at(s3_server.new_root())
    for name in _NAMES:
        lake.create_file(f"t/_delta_log/{name}", b"damaged")
    lake.delete_seen("t/_delta_log", lambda: _ignored(lake.create_file("t/_delta_log/9.json", b"")))
    assert [file.path for file in lake.list("t")] == ["t/_delta_log/9.json"]
    with pytest.raises(LakeError, match="will not remove the lake itself"):
        lake.delete_seen("/", _nothing)


def _ignored(_value: object) -> None:
    """A look gives nothing back."""


def test_a_file_behind_another_one_in_an_object_store(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look is given what the other one has; what it raises keeps the file away."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    lake = Lake.at(s3_server.new_root())
    lake.create_file("t/0.json", b"zero")
    seen: list[bytes | None] = []
    assert lake.create_behind("t/1.json", b"one", "t/0.json", seen.append)
    assert not lake.create_behind("t/1.json", b"another", "t/0.json", seen.append)
    assert lake.create_behind("t/9.json", b"nine", "t/8.json", seen.append)
    assert seen == [b"zero", b"zero", None]

    def look(_: bytes | None) -> None:
        raise LakeError("another log", operation="test")

    with pytest.raises(LakeError, match="another log"):
        lake.create_behind("t/2.json", b"two", "t/1.json", look)
    assert [file.path for file in lake.list("t")] == ["t/0.json", "t/1.json", "t/9.json"]
    assert lake.read_file("t/1.json") == b"one"
