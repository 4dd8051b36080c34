"""Debian packages, unpacked into a folder of our own instead of installed.

Lives here: an apt with its own lists and archives, the unpacking, and the wrapper through which
an unpacked program runs with its own loader and libraries. Does not live here: which packages
make a server (`provision`).

Invariant: the system is not touched. No package is configured, no service starts, no system
list changes, and no root is needed. Installing `mariadb-server` for real was dropped because its
set-up starts a server of its own; MySQL 9.7 is only in a later suite, which cannot be mixed in.
"""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Final

from lab.cache import prepared
from ratchet.core.errors import OperatorError

_SOURCES: Final = Path("/etc/apt/sources.list.d/debian.sources")
_OLD_SOURCES: Final = Path("/etc/apt/sources.list")
_TAIL: Final = 2000

_WRAPPER: Final = """#!/bin/sh
# Runs the program beside it with the loader and the libraries it was unpacked with.
root=$(cd "$(dirname "$0")/{up}" && pwd) || exit 1
exec "$root/{loader}" --library-path "{libraries}" "$root/{program}" "$@"
"""


def unpacked(folder: Path, *, suite: str, packages: tuple[str, ...]) -> Path:
    """The root of `packages` and all they depend on, from `suite`, unpacked under `folder`."""

    def build(work: Path) -> None:
        apt = work / "apt"
        _download(apt, suite=suite, packages=packages)
        for deb in sorted((apt / "cache" / "archives").glob("*.deb")):
            _run(["dpkg-deb", "-x", str(deb), str(work)], f"unpack {deb.name}")
        shutil.rmtree(apt)

    return prepared(folder, build)


def wrapped(root: Path, program: str) -> Path:
    """A script beside `program` (a path below `root`) that runs it from where it was unpacked."""
    script = root / f"{program}.ratchet"
    if script.exists():
        return script
    loaders = sorted(root.glob("usr/lib/*/ld-linux-*.so.*")) + sorted(
        root.glob("lib/*/ld-linux-*.so.*")
    )
    if not loaders:
        raise OperatorError(
            f"no loader among the unpacked packages in {root}",
            operation=f"prepare {program}",
            hint=f"remove {root} and run the set-up again",
        )
    loader = loaders[0].relative_to(root)
    multiarch = loader.parent.name
    libraries = ":".join(
        f"$root/{folder}/{multiarch}" for folder in ("usr/lib", "lib") if (root / folder).is_dir()
    )
    text = _WRAPPER.format(
        up="/".join([".."] * (len(Path(program).parts) - 1)),
        loader=loader,
        libraries=libraries,
        program=program,
    )
    new = script.with_suffix(".new")
    new.write_text(text)
    new.chmod(new.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    new.replace(script)
    return script


def _download(apt: Path, *, suite: str, packages: tuple[str, ...]) -> None:
    for folder in ("lists/partial", "cache/archives/partial", "state"):
        (apt / folder).mkdir(parents=True)
    status = apt / "status"
    status.touch()  # empty: nothing counts as installed, so every library comes along
    sources = apt / "sources.list"
    sources.write_text(_source_line(suite))
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": apt / "state",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": status,
        "Dir::Cache": apt / "cache",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Debug::NoLocking": "true",  # the system's own lock needs root, and we change nothing
    }
    command = ["apt-get", "-q"]
    for name, value in settings.items():
        command += ["-o", f"{name}={value}"]
    _run([*command, "update"], f"read the package lists of Debian {suite}")
    install = ["install", "-y", "--no-install-recommends", "--download-only", *packages]
    _run(command + install, f"download {' '.join(packages)} from Debian {suite}")


def _source_line(suite: str) -> str:
    """A sources.list line for `suite` on the mirror that this system itself uses."""
    mirror, key = _system_mirror()
    option = f"[signed-by={key}] " if key else ""
    return f"deb {option}{mirror} {suite} main\n"


def _system_mirror() -> tuple[str, str]:
    for stanza in _read(_SOURCES).split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.+)$", stanza, flags=re.MULTILINE))
        uris = [uri for uri in fields.get("URIs", "").split() if "security" not in uri]
        if uris and "deb" in fields.get("Types", "").split():
            return uris[0], fields.get("Signed-By", "").strip()
    old = re.compile(r"^deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)", flags=re.MULTILINE)
    for line in old.finditer(_read(_OLD_SOURCES)):
        if "security" not in line["uri"]:
            signed = re.search(r"signed-by=(\S+)", line["options"] or "")
            return line["uri"], signed[1] if signed else ""
    raise OperatorError(
        f"neither {_SOURCES} nor {_OLD_SOURCES} names a Debian mirror",
        operation="find a Debian mirror",
        hint="on another system, install the servers yourself and set RATCHET_MARIADBD and "
        "RATCHET_MYSQLD to their programs",
    )


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _run(command: list[str], operation: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise OperatorError(
            f"{command[0]} is not on this system",
            operation=operation,
            hint="this needs Debian's apt-get and dpkg-deb",
        ) from error
    except subprocess.CalledProcessError as error:
        raise OperatorError(
            f"{command[0]} failed:\n{(error.stdout + error.stderr)[-_TAIL:]}",
            operation=operation,
            hint="check that the package mirror is reachable and the disk has 2 GB free, "
            "then run the same command again; nothing half-finished is kept",
        ) from error
