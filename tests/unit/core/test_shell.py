"""Names in commands that a person is told to type."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.shell import redump, shell_word

ROOT = Path(__file__).parents[3]
PACKAGES = ("core", "ingest", "jobs", "merge", "snapshot", "store", "wire")


@given(st.text())
def test_a_name_is_one_word(name: str) -> None:
    assert shlex.split(shell_word(name)) == [name]


@pytest.mark.parametrize("name", ["orders';id>PWNED;'", "$(id)", "`id`", 'a"b', "a\\", "-rf"])
def test_a_shell_runs_nothing_of_it(name: str, tmp_path: Path) -> None:
    typed = redump(name).strip("`").replace("ratchet", "printf '%s\\n'", 1)
    done = subprocess.run(
        ["/bin/sh", "-c", typed], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.splitlines()[-1] == name
    assert not list(tmp_path.iterdir())


def test_no_message_quotes_a_name_by_hand() -> None:
    # `every` and `named` are quoted where they are made; the others say that there is none.
    by_hand = re.compile(
        r"(redump|--table|--again|--shard|chmod \S+) '?\{(?!shell_word|every\}|named\})"
        r"|redump \"$"
    )
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for line in path.read_text().splitlines()
        if by_hand.search(line) and "such" not in line
    ]
    assert found == []
