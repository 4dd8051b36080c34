"""The class archive: one for each Java and class path, and only when it has been made."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ratchet.jobs.engine.classcache import archive_options, remove_old


def test_an_archive_is_used_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_CACHE", str(tmp_path))
    assert archive_options(["a.jar"]) == []
    (tmp_path / "file").touch()
    monkeypatch.setenv("RATCHET_CACHE", str(tmp_path / "file" / "cache"))
    assert archive_options(["a.jar"]) == []
    monkeypatch.setenv("RATCHET_CACHE", str(tmp_path))
    monkeypatch.setattr(Path, "exists", lambda _: True)
    first, second = archive_options(["a.jar"]), archive_options(["b.jar"])
    assert first[0].startswith(f"-XX:SharedArchiveFile={tmp_path}")
    assert first[0] != second[0]


def test_archives_that_nobody_uses_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each checkout has its own, of 200 MB."""
    monkeypatch.setenv("RATCHET_CACHE", str(tmp_path))
    folder = tmp_path / "jvm"
    folder.mkdir()
    old = time.time() - 15 * 86_400
    for name in ("classes-old.jsa", "classes-new.jsa", "other"):
        (folder / name).touch()
        os.utime(folder / name, (old, old))
    os.utime(folder / "classes-new.jsa")
    remove_old(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["classes-new.jsa", "other"]


@pytest.mark.parametrize("whole", [True, False])
def test_an_archive_that_others_may_have_written_is_not_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    whole: bool,
) -> None:
    monkeypatch.setenv("RATCHET_CACHE", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", lambda _: True)
        archive = Path(archive_options(["a.jar"])[0].partition("=")[2])
    archive.parent.mkdir()
    archive.touch()
    assert archive_options(["a.jar"])
    (archive.parent if whole else archive).chmod(0o777)
    assert archive_options(["a.jar"]) == []
    assert "can be written by everybody" in caplog.text


def test_an_archive_in_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_CACHE", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", lambda _: True)
        archive = Path(archive_options(["a.jar"])[0].partition("=")[2])
    archive.parent.mkdir(exist_ok=True)
    archive.touch()
    os.utime(archive, (1, 1))
    assert archive_options(["a.jar"])
    remove_old(archive.parent)
    assert archive.exists()
