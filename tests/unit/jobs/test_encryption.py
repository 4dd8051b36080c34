"""What a run says at its start of links that are weaker than verified TLS."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.run import commands

# Mode -> what is said of it; nothing of those that verify whose server it is.
WEAK = {
    "disabled": "no TLS: anybody on the network path can read and change the rows",
    "preferred": "TLS only if the server offers it, not verified",
    "required": "TLS, not verified: anybody on the network path can pose as the server",
    "verify_ca": "TLS, the host's name not verified",
    "verify_identity": "",
    "auto": "",
}
HOSTS = ("db.example:3306", "standby.example:3307", "slow.example:3308")
CONFIG = """\
lake: ./lake
sources:
  shop:
    kind: binlog
    shards:
      "-":
        host: db.example
        standbys: ["standby.example:3307"]
        replicas: ["slow.example:3308"]
        user: ratchet
        password: "${PW}"
        MODE
  here:
    kind: binlog
    shards:
      "-": {host: localhost, user: ratchet, password: "${PW}", tls: disabled}
"""
VITESS = """\
lake: ./lake
sources:
  commerce:
    kind: vitess
    vtgate: {host: vtgate.example, user: ratchet, password: "${PW}", MODE}
"""
COMMANDS: dict[str, Callable[[Config], int]] = {
    "run": lambda config: commands.run_all(config, until_caught_up=True),
    "dump": commands.run_dump,
    "merge": lambda config: commands.run_merge(config, until_caught_up=True),
}


class _BegunError(Exception):
    pass


@pytest.fixture
def warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[..., list[str]]:
    """A command's warnings before it touches its lake."""

    def begin(*_: object, **__: object) -> None:
        raise _BegunError

    def start(text: str, command: str = "run") -> list[str]:
        (tmp_path / "ca.pem").touch()
        path = tmp_path / "ratchet.yaml"
        path.write_text(text)
        config = load_config(path, {"PW": "s3cret-word"})
        with caplog.at_level(logging.INFO), pytest.raises(_BegunError):
            COMMANDS[command](config)
        assert all(one.levelno == logging.WARNING for one in caplog.records)
        return caplog.messages

    monkeypatch.setattr(commands, "open_lake", begin)
    return start


def tls(mode: str) -> str:
    return f"tls: {mode}" + ("\n        tls_ca: ca.pem" if mode.startswith("verify") else "")


@pytest.mark.parametrize("mode", list(WEAK))
def test_each_server_elsewhere_is_named_with_its_mode(
    warned: Callable[..., list[str]], mode: str
) -> None:
    """The shard's, its standby, and the replica whose lag is asked for; none on this machine."""
    said = warned(CONFIG.replace("MODE", tls(mode)))
    if not WEAK[mode]:
        assert said == []
        return
    assert len(said) == len(HOSTS)
    for host, one in zip(HOSTS, said, strict=True):
        assert one.startswith(f"shop/-: {host}: {WEAK[mode]}")
        assert "set tls: verify_identity" in one


@pytest.mark.parametrize("command", list(COMMANDS))
def test_each_command_says_so(warned: Callable[..., list[str]], command: str) -> None:
    assert len(warned(CONFIG.replace("MODE", tls("required")), command)) == len(HOSTS)


@pytest.mark.parametrize(("mode", "count"), [("disabled", 1), ("required", 0), ("auto", 0)])
def test_a_vtgate_elsewhere_is_named(
    warned: Callable[..., list[str]], mode: str, count: int
) -> None:
    said = warned(VITESS.replace("MODE", f"tls: {mode}"))
    assert len(said) == count
    assert all(one.startswith("commerce: vtgate.example: no TLS") for one in said)
    assert all("can read rows" in one for one in said), "the password is not sent at all"
    assert all("set tls: required" in one for one in said)
