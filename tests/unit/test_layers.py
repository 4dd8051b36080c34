"""The layers go one way, and nothing of this machine or its registries gets into the repository.

Imports are read from the syntax trees of all files, wherever in a file they stand: an import
inside a function or for types only couples two packages just as well.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What each package may import of the project, besides itself. `ratchet.X` is the folder X.
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "wire": {"core"},
    "store": {"core"},
    "ingest": {"core", "wire", "store"},
    "snapshot": {"core", "wire", "store"},
    "merge": {"core", "store"},
    "jobs": {"core", "wire", "store", "ingest", "snapshot", "merge", "lab.demo"},
    "lab": {"core.errors"},
}
# What each room of `jobs` may import of the others. The one that is listed first knows none.
ROOMS: dict[str, set[str]] = {
    "reporting": set(),
    "config": {"reporting"},
    "engine": {"config", "reporting"},
    "topology": {"config", "reporting"},
    "capture": {"config", "reporting", "topology"},
    "preflight": {"config", "reporting", "topology"},
    "inspect": {"capture", "config", "engine", "reporting", "topology"},
    "recovery": {"config", "engine", "inspect", "reporting", "topology"},
    "watch": {"config", "engine", "inspect", "recovery", "reporting", "topology"},
}
ROOMS["run"] = set(ROOMS)
ROOMS["cli"] = set(ROOMS)
INSTALLED = sorted(
    set(ALLOWED) - {"lab"}
)  # what `ratchet/` links to; the lab is no part of a wheel
# What is below all packages, and everybody may ask for.
EVERYBODY = {"owned", "resources", "socketowners"}
# What is for readers of a lake stands above all: nothing below asks it.
PUBLIC = {"mirror"}
# It is told by the commands that users type, and shows what they left in the lake.
DEMO = ROOT / "lab" / "demo.py"

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
            base = ("ratchet", *package)[: len(package) - node.level + 2] if node.level else ()
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
            if within(name, set(INSTALLED)):
                yield f"{where}: it is ratchet.{name}, else it is there twice"
            name = name.removeprefix("ratchet.")  # noqa: PLW2901 - the folder's name
            allowed = ALLOWED[package] | {package} | EVERYBODY
            if path == DEMO:
                allowed |= {"jobs", "store"}
            if within(name, set(ALLOWED)) and not within(name, allowed):
                yield f"{where}: {package} may import {sorted(ALLOWED[package]) or 'nothing'}"
            if within(name, PUBLIC):
                yield f"{where}: that is for readers of a lake, who import it from outside"
            if within(name, NETWORK) and package not in MAY_CONNECT:
                yield f"{where}: only {sorted(MAY_CONNECT)} may open connections"
            if package == "core" and within(name, NOT_IN_CORE):
                yield f"{where}: core has no input or output and no engine"


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_go_one_way(package: str) -> None:
    assert list(offences(package)) == []


def test_delta_knows_nothing_of_what_it_stores() -> None:
    """So that another library could take its place."""
    allowed = {f"ratchet.store.{name}" for name in ("delta", "failures", "files")}
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources("store/delta")
        for line, name in imports(path)
        if name.startswith("ratchet.store.") and not within(name, allowed)
    ]
    assert found == []


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_the_rooms_of_the_commands_go_one_way(room: str) -> None:
    folder = ROOT / "jobs"
    files = sorted((folder / room).rglob("*.py")) or [folder / f"{room}.py"]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in files
        for line, name in imports(path)
        if name.startswith("ratchet.jobs.") and name.split(".")[2] not in {room, *ROOMS[room]}
    ]
    assert found == []
    rooms = {path.stem for path in folder.iterdir() if not path.name.startswith("_")}
    assert rooms == set(ROOMS)


def test_the_scan_sees_every_kind_of_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the guard: a scan that finds nothing would let everything pass."""
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    folder = tmp_path / "merge"
    folder.mkdir()
    (folder / "bad.py").write_text(
        "import socket as s\n"
        "from ratchet.core import errors\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from ratchet.ingest.capture import Capture\n"
        "def f():\n    import ratchet.snapshot\n"
        "from . import good\n"
        "from ratchet.wire import session\n"
        "from store import lease\n"
        "from ratchet.mirror import Mirror\n"
    )
    lines = {int(text.split(":")[1]) for text in offences("merge")}
    assert lines == {1, 5, 7, 9, 10, 11}


def test_every_package_has_its_rule() -> None:
    """And is a link in `ratchet/`, by which it is found, checked and put into a wheel."""
    links = {
        path.name: path.readlink() for path in (ROOT / "ratchet").iterdir() if path.is_symlink()
    }
    assert links == {name: Path("..") / name for name in (*INSTALLED, "conf", "proto")}
    copied = {
        line.split()[1]
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY") and line.split()[2] == f"./{line.split()[1]}"
    }
    assert copied == {*links, "ratchet"}


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
