"""Vitess's programs and what they need beside them: built and unpacked once into the cache.

Lives here: building them with Go, and the folders that stand for `$VTROOT` and `$VT_MYSQL_ROOT`.
Does not live here: running them (`vitess`).

Invariant: as in `cache`, a folder under its final name is complete. Versions come from
`vitess_tools/go.mod`; a machine without Go cannot build them, and says so.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab import provision
from lab.cache import prepared
from lab.debs import unpacked, wrapped
from lab.places import cache
from ratchet.core.errors import OperatorError

TOOLS: Final = Path(__file__).parent / "vitess_tools"
PROGRAMS: Final = ("vttablet", "vtgate", "vtctld", "vtctldclient", "mysqlctl")
_CLIENT_PACKAGES: Final = ("mysql-client-core", "etcd-server")
# Settings of the module's own that MySQL 9 calls by other names.
_RENAMED: Final = {"innodb_log_file_size": "innodb_redo_log_capacity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VitessInstallation:
    """Programs that can be run here.

    Attributes:
        version: of Vitess, like "0.24.0".
        root: for `$VTROOT`: bin/ and config/.
        mysql_root: for `$VT_MYSQL_ROOT`: bin/ with scripts that run the unpacked MySQL.
        mysql_base: for `$VT_MYSQL_BASEDIR`.
        etcd: the program.
    """

    version: str
    root: Path
    mysql_root: Path
    mysql_base: Path
    etcd: Path


def has_go() -> bool:
    """Whether there is a Go to build with, or nothing left to build."""
    return _folder().is_dir() or shutil.which("go") is not None


def vitess() -> VitessInstallation:
    """The programs, built into the cache if they are not there."""
    mysql = provision.mysql()
    clients = unpacked(cache() / "vitess-companions", suite="sid", packages=_CLIENT_PACKAGES)
    root = prepared(_folder(), _build)
    mysql_root = prepared(
        cache() / f"vitess-mysql-{mysql.version}", lambda work: _mysql_root(work, clients)
    )
    return VitessInstallation(
        version=_version(),
        root=root,
        mysql_root=mysql_root,
        mysql_base=mysql.root / "usr",
        etcd=wrapped(clients, "usr/bin/etcd"),
    )


def _version() -> str:
    found = re.search(r"^\s*vitess\.io/vitess v(\S+)", (TOOLS / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise OperatorError(
            f"{TOOLS / 'go.mod'} names no version of Vitess",
            operation="prepare Vitess",
            hint="restore the file from the repository",
        )
    return found[1]


def _folder() -> Path:
    return cache() / f"vitess-{_version()}"


def _build(work: Path) -> None:
    binaries = work / "bin"
    binaries.mkdir()
    settings = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    tools = [f"vitess.io/vitess/go/cmd/{name}" for name in PROGRAMS]
    _go(["build", "-trimpath", "-ldflags=-s -w", "-o", f"{binaries}/", *tools], settings)
    module = _go(["list", "-m", "-f", "{{.Dir}}", "vitess.io/vitess"], settings).strip()
    shutil.copytree(Path(module) / "config", work / "config")
    for path in (work / "config", *(work / "config").rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)  # the module cache is read-only


def _go(arguments: list[str], settings: dict[str, str]) -> str:
    try:
        return subprocess.run(
            ["go", *arguments], cwd=TOOLS, env=settings, check=True, capture_output=True, text=True
        ).stdout
    except FileNotFoundError as error:
        raise OperatorError(
            "Go is not on this system",
            operation="build Vitess",
            hint="install Go 1.26 or later; only the tests with Vitess need it",
        ) from error
    except subprocess.CalledProcessError as error:
        raise OperatorError(
            f"go {arguments[0]} failed:\n{error.stderr[-2000:]}",
            operation="build Vitess",
            hint="check that the module proxy is reachable and the disk has 3 GB free, then run "
            "the same command again",
        ) from error


def _mysql_root(work: Path, clients: Path) -> None:
    """Programs under the names that mysqlctl looks for, without a mysqld_safe."""
    binaries = work / "bin"
    binaries.mkdir()
    server = provision.mysql().program
    for name, program in (
        ("mysqld", server),
        ("mysqladmin", wrapped(clients, "usr/bin/mysqladmin")),
        ("mysql", wrapped(clients, "usr/bin/mysql")),
    ):
        script = binaries / name
        script.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
