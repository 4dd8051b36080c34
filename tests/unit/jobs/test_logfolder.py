"""Spark's log: nobody else decides where it is written to."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet import owned
from ratchet.core.errors import ConfigError, OperatorError
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.engine.spark import _begin_anew, _private, log_folder

CONFIG = """\
lake: ./lake
sources:
  shop: {kind: binlog, shards: {"-": {host: h, user: u, password: ""}}}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "ratchet.yaml"
    path.write_text(CONFIG)
    return load_config(path, {})


def to(config: Config, folder: Path) -> Config:
    return replace(config, spark=replace(config.spark, log_dir=str(folder)))


def of_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a folder is somebody else's."""
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)


@pytest.mark.parametrize("above", [False, True])
def test_a_folder_of_another_user_is_refused(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, above: bool
) -> None:
    """He laid links there, or can."""
    folder = tmp_path / "theirs" / "logs"
    folder.mkdir(parents=True)
    of_another(folder.parent if above else folder, monkeypatch)
    with pytest.raises(ConfigError, match="belongs to the user") as caught:
        log_folder(to(config, folder))
    assert caught.value.exit_code == 2
    assert "spark.log_dir" in caught.value.hint


@pytest.mark.parametrize(
    ("mode", "above", "refused"),
    [
        (0o777, False, True),
        (0o777, True, True),
        (0o1777, False, False),
        (0o1777, True, False),
        (0o775, False, True),
        (0o775, True, False),  # as /var/log of some systems
        (0o755, False, False),
    ],
)
def test_a_folder_that_others_may_write_is_refused(
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: int,
    *,
    above: bool,
    refused: bool,
) -> None:
    monkeypatch.setattr(owned, "_is_private", lambda _: False)
    folder = tmp_path / "above" / "logs"
    folder.mkdir(parents=True, mode=0o755)
    (folder.parent if above else folder).chmod(mode)
    if not refused:
        assert log_folder(to(config, folder)) == folder
        return
    with pytest.raises(ConfigError, match="can be written by"):
        log_folder(to(config, folder))


def test_one_in_the_lake_that_others_may_write_is_left_alone(
    config: Config, tmp_path: Path
) -> None:
    """Root asks a lake of a service's user, or users share one: each has a log of his own."""
    private = tmp_path / "lake" / "_ratchet"
    private.mkdir(parents=True)
    (private / "format.json").write_text("{}")
    old = os.umask(0)
    try:
        assert log_folder(config) == private / "logs"
    finally:
        os.umask(old)
    assert stat.S_IMODE((private / "logs").stat().st_mode) == 0o755, "writable by nobody else"
    (private / "logs").chmod(0o777)
    assert log_folder(config) == tmp_path / "state" / "ratchet"
    (private / "logs").chmod(0o755)
    assert log_folder(config) == private / "logs"
    if os.geteuid() == 0:
        os.chown(private / "logs", 65534, 65534)
        assert log_folder(config) == tmp_path / "state" / "ratchet"


def test_a_file_is_ours_alone(tmp_path: Path) -> None:
    path = tmp_path / "sql.out"
    with _private(path) as stream:
        stream.write(b"one")
    path.chmod(0o644)
    with _private(path) as stream:
        stream.write(b"two")
    assert path.read_bytes() == b"onetwo"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_link_is_followed(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "sql.out"
    target.write_text("mine")
    target.chmod(0o644)
    for one in (target, tmp_path / "none"):
        path.symlink_to(one)
        with pytest.raises(OperatorError, match="it is a link") as caught:
            _private(path)
        assert "remove it" in caught.value.hint
        path.unlink()
    assert target.read_text() == "mine"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert not (tmp_path / "none").exists()


def test_what_is_no_file_of_ours_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sql.out"
    os.mkfifo(path)
    with pytest.raises(OperatorError, match="cannot be written"):
        _private(path)  # and it does not wait for a reader
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OperatorError, match="no file of this user's"):
        _private(path)
    os.close(reader)
    path.unlink()
    path.touch(0o666)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OperatorError, match="no file of this user's"):
        _private(path)


def test_a_long_one_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "sql.out"
    _begin_anew(path)
    path.touch()
    _begin_anew(path)
    assert path.exists()
    os.truncate(path, (10 << 20) + 1)
    _begin_anew(path)
    assert [one.name for one in tmp_path.iterdir()] == ["sql.out.1"]
