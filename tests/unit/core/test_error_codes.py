"""Every error that a command may end with says with which code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.core.errors import OperatorError, RatchetError
from ratchet.jobs.cli import show_error

ROOT = Path(__file__).resolve().parents[3]


def every(kind: type[RatchetError] = RatchetError) -> Iterator[type[RatchetError]]:
    for one in kind.__subclasses__():
        yield one
        yield from every(one)


def test_every_class_has_a_code() -> None:
    """Those of other modules too: they are imported by the commands."""
    lacking = {one.__name__ for one in every() if not hasattr(one, "exit_code")}
    assert lacking == set()


def test_nobody_raises_what_has_none() -> None:
    assert not hasattr(RatchetError, "exit_code")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("core", "wire", "store", "ingest", "snapshot", "merge", "jobs", "lab")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == RatchetError.__name__
    ]
    assert found == []


def test_what_is_wrong_with_the_machine_is_told_with_its_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = OperatorError(
        "the folder belongs to another user", operation="start Spark", hint="set TMPDIR"
    )
    assert show_error(error) == 10
    assert capsys.readouterr().err.splitlines() == [
        "ratchet: error: start Spark: the folder belongs to another user",
        "  set TMPDIR",
    ]
