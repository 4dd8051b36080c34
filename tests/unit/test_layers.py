"""The layers go one way, and nothing of this machine or its registries gets into the repository.

Imports are read from the syntax trees of all files, wherever in a file they stand: an import
inside a function or for types only couples two packages just as well.
"""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What each package may import of the project, besides itself.
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "wire": {"core"},
    "store": {"core"},
    "ingest": {"core", "wire", "store"},
    "snapshot": {"core", "wire", "store"},
    "merge": {"core", "store"},
    "jobs": {"core", "wire", "store", "ingest", "snapshot", "merge", "lab"},
    "lab": {"core.errors"},
}

# Whatever opens a connection. Only `wire` talks to sources, and only the lab runs servers.
NETWORK = {
    "asyncio", "ftplib", "grpc", "http.client", "http.server", "pymysql", "pymysqlreplication",
    "requests", "smtplib", "socket", "socketserver", "ssl", "urllib.request",
}  # fmt: skip
MAY_CONNECT = {"wire", "lab"}

# Core is pure: no input or output, no engine, no compiler.
NOT_IN_CORE = NETWORK | {
    "delta", "deltalake", "fcntl", "lab", "llvmlite", "multiprocessing", "numba", "os", "pathlib",
    "pyarrow.csv", "pyarrow.dataset", "pyarrow.flight", "pyarrow.fs", "pyarrow.parquet", "pyspark",
    "random", "secrets", "shutil", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip

# In parts, so that this file does not contain what it looks for.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"), ("pythonhosted", "org"), ("maven", "apache", "org"), ("repo1", "maven"),
        ("maven", "google"), ("deb", "debian"), ("security", "debian"), ("snapshot", "debian"),
        ("npmjs", "org"), ("crates", "io"), ("proxy", "golang"), ("repos", "spark-packages"),
    )
]  # fmt: skip
MACHINE = [f"/{folder}/" for folder in ("root", "work")]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a file imports; `from a import b` counts as `a.b`."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def within(name: str, modules: set[str]) -> bool:
    """Whether `name` is one of `modules` or something in one of them."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def offences(package: str) -> Iterator[str]:
    for path in sources(package):
        for line, name in imports(path):
            where = f"{path.relative_to(ROOT)}:{line}: imports {name}"
            if within(name, set(ALLOWED)) and not within(name, ALLOWED[package] | {package}):
                yield f"{where}: {package} may import {sorted(ALLOWED[package]) or 'nothing'}"
            if within(name, NETWORK) and package not in MAY_CONNECT:
                yield f"{where}: only {sorted(MAY_CONNECT)} may open connections"
            if package == "core" and within(name, NOT_IN_CORE):
                yield f"{where}: core has no input or output and no engine"


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_go_one_way(package: str) -> None:
    assert list(offences(package)) == []


def test_the_scan_sees_every_kind_of_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the guard: a scan that finds nothing would let everything pass."""
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    folder = tmp_path / "merge"
    folder.mkdir()
    (folder / "bad.py").write_text(
        "import socket as s\n"
        "from core import errors\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from ingest.capture import Capture\n"
        "def f():\n    import snapshot\n"
        "from . import good\n"
        "from wire import session\n"
    )
    lines = {int(text.split(":")[1]) for text in offences("merge")}
    assert lines == {1, 5, 7, 9}


def test_every_package_has_its_rule() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    listed = {name for name in found["packages"]["find"]["include"] if "." not in name}
    assert listed == set(ALLOWED)
    copied = {
        line.split()[1]
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY") and line.split()[2] == f"./{line.split()[1]}"
    }
    assert copied == {*listed, "conf", "proto"}


def test_no_test_imports_another_tests_module() -> None:
    """It would be found or not by which tests a worker runs first: what is shared is a kit."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: imports {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, name in imports(path)
        if name.split(".")[0].startswith("test_")
    ]
    assert found == []


def tracked() -> list[Path]:
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout, so there are no tracked files to look at")
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("kind", ["registry hosts", "machine paths"])
def test_the_repository_names_no(kind: str) -> None:
    words = HOSTS if kind == "registry hosts" else MACHINE
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in tracked()
        for word in words
        if word.encode() in path.read_bytes()
    ]
    assert found == []
