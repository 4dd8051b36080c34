"""The command line's frame: help, quickness, exit codes, how errors are shown."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import ratchet.jobs.preflight.check
from ratchet.core.errors import (
    BugError,
    ConfigError,
    DecodeError,
    LakeError,
    PositionLostError,
    RatchetError,
    RetryableError,
    SourceUnfitError,
    TableStoppedError,
)
from ratchet.jobs import cli
from ratchet.jobs.reporting import logs

ROOT = Path(__file__).parents[3]
CONFIG = """\
lake: ./lake
sources:
  shop: {kind: binlog, shards: {"-": {host: 127.0.0.1, user: u, password: "sesame-open"}}}
"""
COMMANDS = {
    "check",
    "dump",
    "heal",
    "merge",
    "run",
    "repair",
    "status",
    "table",
    "verify",
    "as-of",
    "sql",
    "demo",
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ratchet.yaml"
    path.write_text(CONFIG)
    return path


def test_commands_are_those_of_the_interface() -> None:
    assert set(cli.ratchet.commands) == COMMANDS


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the command, and of each of its options."""
    command = cli.ratchet.commands[name]
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
    assert cli.invoke([name, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert " ".join(command.help.split("\n\n")[0].split()) in shown


def test_every_command_is_in_the_readme_and_in_operations() -> None:
    """In its table of commands, with nothing that is none."""
    for document in ("README.md", "docs/operations.md"):
        rows = re.findall(r"(?m)^\| `ratchet ([\w-]+)", (ROOT / document).read_text())
        assert sorted(rows) == sorted(COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.invoke(["--version"]) == 0
    assert f"ratchet {cli.own_version()} (pyspark 4.2" in capsys.readouterr().out


@pytest.mark.parametrize(
    "module", ["cli", "preflight.check", "config.config", "inspect.status", "inspect.asof"]
)
def test_quick_commands_do_not_import_spark(module: str) -> None:
    code = (
        f"import sys, ratchet.jobs.{module}\n"
        "print([m for m in ('pyspark', 'py4j', 'delta') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


ERRORS: list[tuple[type[RatchetError], int]] = [
    (ConfigError, 2),
    (SourceUnfitError, 3),
    (RetryableError, 4),
    (PositionLostError, 5),
    (TableStoppedError, 6),
    (LakeError, 7),
    (DecodeError, 8),
]


@pytest.mark.parametrize(("kind", "code"), ERRORS)
def test_errors_are_shown_with_their_hint(
    kind: type[RatchetError],
    code: int,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise kind("it broke: sesame-open", operation="try", source="shop/-", hint="mend it")

    monkeypatch.setattr(ratchet.jobs.preflight.check, "run_check", fail)
    assert cli.invoke(["check", str(config)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "ratchet: error: try: it broke: *** (source shop/-)\n  mend it\n"
    assert cli.invoke(["check", str(config), "-v"]) == code
    assert "Traceback" in capsys.readouterr().err
    assert cli.invoke(["--log-format", "json", "check", str(config)]) == code
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["error"], line["hint"]) == ("error", kind.__name__, "mend it")
    assert "sesame" not in json.dumps(line)


@pytest.mark.parametrize("error", [BugError("ranks fell"), ZeroDivisionError("division by zero")])
def test_bugs_say_how_to_report(
    error: Exception,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(ratchet.jobs.preflight.check, "run_check", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.invoke(["check", str(config)]) == 70
    shown = capsys.readouterr().err
    assert "internal error" in shown
    assert "Traceback" not in shown
    (report,) = tmp_path.glob("ratchet-bug-*.txt")
    assert str(report) in shown
    assert "Traceback" in report.read_text()


def test_usage_errors(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.invoke(["chek"]) == 2
    assert "did you mean" in capsys.readouterr().err.lower()
    assert cli.invoke(["as-of", str(config)]) == 2
    assert cli.invoke(["as-of", str(config), "--round", "1", "--time", "x"]) == 2
    assert cli.invoke(["check", "/nowhere.yaml"]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_interruption(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(ratchet.jobs.preflight.check, "run_check", interrupt)
    assert cli.invoke(["check", str(config)]) == 130


def test_a_closed_pipe_is_no_error(config: Path) -> None:
    """`ratchet check ... | head` ends quietly."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "ratchet.jobs.cli", "check", str(config)],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert "Error" not in done.stderr
    assert logs.clean("x") == "x"


@pytest.mark.parametrize("name", [b"c\xff\xfe", b"c\xff\n\x1b[31m"])
@pytest.mark.parametrize("command", ["check", "status"])
def test_a_path_that_is_not_utf_8_is_refused_with_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, name: bytes
) -> None:
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    (folder / "ratchet.yaml").write_text(CONFIG)
    assert cli.invoke([command, str(folder / "ratchet.yaml")]) == 2
    said = capfd.readouterr().err
    assert "is not UTF-8" in said
    assert "\x1b" not in said
    assert cli.invoke(["--log-format", "json", command, str(folder / "ratchet.yaml")]) == 2


def test_any_argument_that_is_not_utf_8_is_refused(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.invoke(["table", str(config), "redump", os.fsdecode(b"shop.\xff")]) == 2
    assert r"is not UTF-8: shop.\udcff" in capsys.readouterr().err
