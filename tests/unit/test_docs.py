"""What the documents name is there: modules, functions, settings, files.

A name in backticks that begins with one of our packages must be importable or a setting of the
config (a section may have a package's name); a path in backticks must be in the repository.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from ddl_kinds import KINDS

from ratchet.jobs.config import settings
from scripts.ddl_table import BEGIN, END

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
PACKAGES = "core|wire|store|ingest|snapshot|merge|jobs|lab|tests"
NAME = re.compile(rf"`((?:{PACKAGES})(?:\.\w+)+)(?:\(\))?`")
FILE = re.compile(rf"`((?:{PACKAGES}|docs|bench|scripts|conf|notebooks)/[\w./-]+\.\w+)`")


def resolves(name: str) -> bool:
    """Whether that is a module, or something inside one; `core` stands for `ratchet.core`."""
    parts = (
        name.split(".") if name.startswith(("lab.", "tests.")) else ["ratchet", *name.split(".")]
    )
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return has(found, parts[length:])
    return False


def has(found: Any, path: list[str]) -> bool:
    """Whether attributes lead there; fields of a dataclass count."""
    for part in path:
        fields = dataclasses.fields(found) if dataclasses.is_dataclass(found) else ()
        if part in {field.name for field in fields}:
            return part == path[-1]
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def setting(name: str) -> bool:
    """Whether that is section.key of the config."""
    section, _, key = name.partition(".")
    kind = getattr(settings, f"{section.capitalize()}Section", None)
    return kind is not None and key in {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_in_a_document_exist(document: Path) -> None:
    text = document.read_text()
    names = {n for n in NAME.findall(text) if not n.endswith((".py", ".md", ".json", ".yaml"))}
    assert sorted(n for n in names if not resolves(n) and not setting(n)) == []
    assert sorted(f for f in set(FILE.findall(text)) if not (ROOT / f).is_file()) == []


def test_the_check_can_fail() -> None:
    """Guards the guard."""
    assert resolves("core.token.compare")
    assert resolves("core.token.Rank.parts")
    assert resolves("core.rounds.Round.files")
    assert not resolves("core.token.comparison")
    assert not resolves("core.rounds.Round.pages")
    assert not resolves("core.tokens")
    assert not setting("merge.no_such_key")


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in DOCUMENTS
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert broken == []


def test_each_kind_of_statement_stands_in_the_measured_table() -> None:
    """With what is done about it; the table is filled by scripts/ddl_table.py."""
    text = (ROOT / "docs" / "schema-changes.md").read_text()
    lines = text.partition(BEGIN)[2].partition(END)[0].splitlines()
    cells = [line.replace("\\|", "\\").split(" | ") for line in lines if line.startswith("| `")]
    told = {cell[0].removeprefix("| ").strip("`"): cell[1] for cell in cells}
    assert told == {kind.says: kind.does for kind in KINDS.values()}
