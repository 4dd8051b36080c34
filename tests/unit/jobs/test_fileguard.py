"""`check` tells who else may change the config or read a password."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ratchet import owned
from ratchet.core.errors import ConfigError
from ratchet.jobs.config.config import load_config
from ratchet.jobs.preflight.fileguard import guarded, warn_of_exposed_files

CONFIG = """\
lake: ./lake
sources:
  shop: {kind: binlog, shards: {"-": {host: h, user: u, password: %s}}}
"""


AS_IT_IS = "ratchet.yaml holds a password as it is"
READ_BY_ALL = "ratchet.yaml holds a password and can be read by everybody"


@pytest.mark.parametrize(
    ("password", "mode", "secret_mode", "parts"),
    [
        ('"${PW}"', 0o644, 0o600, []),
        ('"${PW}"', 0o646, 0o600, ["ratchet.yaml can be written by everybody"]),
        ("literal", 0o600, 0o600, [AS_IT_IS]),
        ("literal", 0o640, 0o600, [AS_IT_IS]),
        ("literal", 0o644, 0o600, [AS_IT_IS, READ_BY_ALL]),
        ("literal", 0o666, 0o600, ["ratchet.yaml can be written", AS_IT_IS, READ_BY_ALL]),
        ("{file: secret}", 0o644, 0o600, []),
        ("{file: secret}", 0o644, 0o644, ["secret holds a password"]),
        ("{file: secret}", 0o644, 0o622, ["secret can be written by everybody"]),
    ],
)
def test_files(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    password: str,
    mode: int,
    secret_mode: int,
    *,
    parts: list[str],
) -> None:
    path, secret = tmp_path / "ratchet.yaml", tmp_path / "secret"
    path.write_text(CONFIG % password)
    path.chmod(mode)
    secret.write_text("x")
    secret.chmod(secret_mode)
    config = load_config(path, {"PW": "x"})
    found = list(guarded(config))
    warn_of_exposed_files(config)
    assert [record.getMessage() for record in caplog.records] == [
        f"{one.text}; {one.mend}" for one in found
    ]
    assert len(found) == len(parts)
    for finding, part in zip(found, parts, strict=True):
        assert part in finding.text
        assert finding.status == "warn"
        assert ("{file: " if part is AS_IT_IS else "chmod") in finding.mend


@pytest.mark.parametrize(
    ("mode", "above", "told"),
    [
        (0o755, False, ""),
        (0o777, False, "everybody"),
        (0o777, True, "everybody"),
        (0o1777, False, ""),
        (0o775, False, "its group"),
        (0o775, True, "its group"),
    ],
)
def test_a_folder_in_which_others_may_exchange_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, *, above: bool, told: str
) -> None:
    """They need no right on the file: they rename it. Told once, whatever lies there."""
    monkeypatch.setattr(owned, "_is_private", lambda _: False)
    folder = tmp_path / "above" / "conf"
    folder.mkdir(parents=True, mode=0o755)
    path, secret = folder / "ratchet.yaml", folder / "secret"
    path.write_text(CONFIG % "{file: secret}")
    path.chmod(0o644)
    secret.write_text("x")
    secret.chmod(0o600)
    weak = folder.parent if above else folder
    weak.chmod(mode)
    found = list(guarded(load_config(path, {})))
    assert len(found) == bool(told)
    for finding in found:
        assert finding.status == "warn"
        assert finding.text.startswith(f"{weak} can be written by {told}: whoever exchanges")
        assert str(path) in finding.text
        assert str(secret) in finding.text
        assert finding.mend == f"chmod go-w '{weak}', or chmod +t '{weak}'"


def test_a_folder_of_another_user(tmp_path: Path) -> None:
    """And a secret's that is elsewhere."""
    if os.geteuid():
        return  # only root gives a folder away
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    (theirs / "secret").write_text("x")
    (theirs / "secret").chmod(0o600)
    os.chown(theirs, 65534, 65534)
    path = tmp_path / "ratchet.yaml"
    path.write_text(CONFIG % f"{{file: {theirs / 'secret'}}}")
    path.chmod(0o644)
    (finding,) = guarded(load_config(path, {}))
    assert finding.text.startswith(f"{theirs} belongs to the user")
    assert str(theirs / "secret") in finding.text
    assert "ratchet.yaml" not in finding.text
    assert "chown" in finding.mend


def test_the_files_of_tls(tmp_path: Path) -> None:
    """Whoever changes the authority's says which server is the right one."""
    for name in ("ca.pem", "own.pem", "own.key"):
        (tmp_path / name).touch(0o600)
    path = tmp_path / "ratchet.yaml"
    tls = "tls: verify_identity, tls_ca: ca.pem, tls_cert: own.pem, tls_key: own.key"
    path.write_text(
        "lake: ./lake\nsources:\n"
        f"  shop: {{kind: binlog, shards: {{'-': {{host: h, user: u, {tls}}}}}}}\n"
    )
    path.chmod(0o600)
    config = load_config(path, {})
    assert list(guarded(config)) == []
    for name in ("ca.pem", "own.pem", "own.key"):
        (tmp_path / name).chmod(0o622)
        (found,) = guarded(config)
        assert f"{name} can be written by everybody" in found.text
        (tmp_path / name).chmod(0o600)


def test_the_lake(tmp_path: Path) -> None:
    """Who makes its folder first, owns it: a run filled it without a word."""
    path, lake = tmp_path / "ratchet.yaml", tmp_path / "lake"
    path.write_text(CONFIG % '"${PW}"')
    path.chmod(0o600)
    config = load_config(path, {"PW": "x"})
    assert list(guarded(config)) == []
    lake.mkdir(mode=0o755)
    assert list(guarded(config)) == []
    lake.chmod(0o757)
    (found,) = guarded(config)
    assert found.text.startswith(f"{lake} can be written by everybody: whoever changes the lake")
    assert f"chmod go-w '{lake}'" in found.mend
    lake.chmod(0o755)
    if not os.geteuid():
        os.chown(lake, 65534, 65534)
        (found,) = guarded(config)
        assert found.text.startswith(f"{lake} belongs to the user")


@pytest.mark.parametrize("of", ["the config", "a password"])
def test_a_pipe_of_another_user_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """It ended no command, `check` not either. One of our own is what `<(...)` makes."""
    path, pipe = tmp_path / "ratchet.yaml", tmp_path / "pipe"
    os.mkfifo(pipe)
    path.write_text(CONFIG % "{file: pipe}")
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    if own == 0:
        os.chown(pipe, 65534, 65534)
    with pytest.raises(ConfigError, match="it is a pipe of"):
        load_config(pipe if of == "the config" else path, {})
    monkeypatch.undo()
    os.chown(pipe, own, os.getegid())
    text = CONFIG % "x" if of == "the config" else "secret"
    writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
    writer.start()
    (shard,) = load_config(pipe if of == "the config" else path, {}).sources["shop"].shards.values()
    assert shard.password == ("x" if of == "the config" else "secret")
