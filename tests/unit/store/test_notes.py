"""Whoever reads or writes a note asks `store.notes` where it lies."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.store import layout

ROOT = Path(__file__).parents[3]
PACKAGES = ("core", "wire", "store", "ingest", "snapshot", "merge", "jobs")
TOUCHES = {
    "read_json", "write_json", "create_json", "change_json", "read_file", "create_file",
    "delete", "delete_folder", "list", "is_file", "exists", "open_input", "open_output",
}  # fmt: skip
MAKERS = {"state_path", "verified_path", "log_checked_path", "bundle_note_path"}
NOTES = {
    name
    for name, value in vars(layout).items()
    if name.isupper() and value in {*layout.NOTED, *layout.NOTED_FILES}
}


def past_the_notes(source: str) -> Iterator[int]:
    """Lines that touch a note where it lies in a lake that was never held."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        for argument in node.args if node.func.attr in TOUCHES else ():
            if _names_a_note(argument):
                yield node.lineno


def _names_a_note(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in MAKERS
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "layout"
        and node.attr in NOTES
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_nobody_touches_a_note_past_them(package: str) -> None:
    """A note that lies outside an epoch's folder can be replaced by a late writer."""
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    found = [f"{file.name}:{line}" for file in files for line in past_the_notes(file.read_text())]
    assert found == []


def test_it_is_noticed() -> None:
    assert len(NOTES) == len(layout.NOTED) + len(layout.NOTED_FILES)
    wrong = ("lake.write_json(layout.UPKEEP_FILE, x)", "lake.read_json(layout.state_path(k, t))")
    right = ("lake.write_json(Notes(lake).own(layout.UPKEEP_FILE), x)", "lake.list(layout.CHANGES)")
    assert [len(list(past_the_notes(text))) for text in (*wrong, *right)] == [1, 1, 0, 0]
