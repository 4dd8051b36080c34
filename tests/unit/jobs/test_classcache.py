"""The class archive: one for each Java and class path, and only when it has been made."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.classcache import archive_options


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
