"""Find the programs that the lab runs, or get them: MariaDB, MySQL and Java.

Lives here: which packages make which program, the order in which places are searched, and the
command `python -m lab.provision mariadb mysql java vitess`. Does not live here: how packages are
unpacked (`debs`), how Vitess is built (`vitessbuild`), how servers are started (`servers`).

Invariant: importing this module does nothing; only `mariadb()`, `mysql()` and `java()` look
around, and only they download. It needs no package outside the standard library.

Order of search for a server: `$RATCHET_MARIADBD` / `$RATCHET_MYSQLD` (any version), the system's
own program if it is of the version that is measured here, the cache, Debian's packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from lab.cache import locked
from lab.debs import unpacked, wrapped
from lab.places import cache
from ratchet.core.errors import OperatorError, RatchetError

Flavor = Literal["mysql", "mariadb"]

_SYSTEM_PATH: Final = "/usr/sbin:/usr/local/sbin:/sbin"
_JAVA_AT_LEAST: Final = 17
_JAVA_PACKAGE: Final = "openjdk-17-jre-headless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A server program that can be run here.

    Attributes:
        flavor: which of the two servers it is.
        version: as the program itself says it, like "10.11.6-MariaDB" or "9.7.1".
        program: the daemon, a program or a wrapper script.
        options: what it must be told about where its own files are.
        root: the folder that stands for `/`.
    """

    flavor: Flavor
    version: str
    program: Path
    options: tuple[str, ...]
    root: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """Where a server comes from."""

    flavor: Flavor
    variable: str
    daemon: str
    series: str
    suite: str
    packages: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where it is unpacked."""
        return cache() / f"{self.flavor}-{self.series}"


_MARIADB: Final = _Recipe(
    flavor="mariadb",
    variable="RATCHET_MARIADBD",
    daemon="mariadbd",
    series="10.11",
    suite="bookworm",
    packages=("mariadb-server-core", "mariadb-client-core"),
)
_MYSQL: Final = _Recipe(
    flavor="mysql",
    variable="RATCHET_MYSQLD",
    daemon="mysqld",
    series="9.7",
    suite="sid",
    packages=("mysql-server-core",),
)


# What Debian has of the series from 11.4 on, whose servers make certificates of their own.
_NEW_MARIADB: Final = _Recipe(
    flavor="mariadb",
    variable="RATCHET_NEW_MARIADBD",
    daemon="mariadbd",
    series="11.8",
    suite="trixie",
    packages=("mariadb-server-core", "mariadb-client-core"),
)


def mariadb() -> Installation:
    """MariaDB 10.11, unpacked into the cache if this system has none."""
    return _find(_MARIADB) or _install(_MARIADB)


def new_mariadb() -> Installation:
    """MariaDB 11.8, unpacked into the cache if this system has none."""
    return _find(_NEW_MARIADB) or _install(_NEW_MARIADB)


def mysql() -> Installation:
    """MySQL 9.7, unpacked into the cache if this system has none."""
    return _find(_MYSQL) or _install(_MYSQL)


def found(flavor: Flavor) -> Installation | None:
    """The installation that is there already; never downloads."""
    return _find(_MARIADB if flavor == "mariadb" else _MYSQL)


def _find(recipe: _Recipe) -> Installation | None:
    given = os.environ.get(recipe.variable)
    if given:
        return _required(recipe, Path(given))
    on_path = shutil.which(recipe.daemon, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}")
    if on_path:
        # Debian's MariaDB brings a `mysqld` of its own: the program's word counts, not its name.
        here = _inspect(recipe, Path(on_path), root=Path("/"))
        if here and here.version.startswith(f"{recipe.series}."):
            return here
    return _unpacked_installation(recipe) if recipe.folder.is_dir() else None


def _install(recipe: _Recipe) -> Installation:
    unpacked(recipe.folder, suite=recipe.suite, packages=recipe.packages)
    return _unpacked_installation(recipe)


def _unpacked_installation(recipe: _Recipe) -> Installation:
    program = wrapped(recipe.folder, f"usr/sbin/{recipe.daemon}")
    here = _inspect(recipe, program, root=recipe.folder)
    if here is None:
        raise OperatorError(
            f"{program} does not run as a {recipe.flavor} server",
            operation=f"prepare {recipe.flavor}",
            hint=f"remove {recipe.folder} and run the set-up again",
        )
    return here


def _required(recipe: _Recipe, program: Path) -> Installation:
    in_usr = program.resolve().parts[-3:-1] == ("usr", "sbin")
    root = program.resolve().parents[2] if in_usr else Path("/")
    here = _inspect(recipe, program, root=root)
    if here is None:
        raise OperatorError(
            f"{program} does not run as a {recipe.flavor} server",
            operation=f"use the program that {recipe.variable} names",
            hint=f"let {recipe.variable} name a {recipe.daemon} program, or unset it",
        )
    return here


def _inspect(recipe: _Recipe, program: Path, *, root: Path) -> Installation | None:
    """What `program` is; None if it is no server of this flavour."""
    try:
        said = subprocess.run(
            [str(program), "--no-defaults", "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None  # not there or not runnable: the caller decides whether that is an error
    version = re.search(r"Ver (\S+)", said)
    if version is None or ("MariaDB" in said) != (recipe.flavor == "mariadb"):
        return None
    return Installation(
        flavor=recipe.flavor,
        version=version[1],
        program=program,
        options=_places(root),
        root=root,
    )


def shared_files(root: Path) -> Path:
    """Where messages, character sets and scripts are of what is unpacked at `root`."""
    new = root / "usr/share/mariadb"  # of MariaDB from 11.8 on
    return new if new.is_dir() else root / "usr/share/mysql"


def _places(root: Path) -> tuple[str, ...]:
    """Options for files that a program from elsewhere would look for under /usr."""
    if root == Path("/"):
        return ()
    usr = root / "usr"
    share = shared_files(root)
    return (
        f"--basedir={usr}",
        f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
        f"--plugin-dir={usr / 'lib/mysql/plugin'}",
    )


def java() -> str:
    """The version of the Java that Spark will run on; installed by apt-get if it is missing."""
    version = _java_version()
    if version is None or version < _JAVA_AT_LEAST:
        with locked(cache() / ".java.lock"):
            version = _java_version()
            if version is None or version < _JAVA_AT_LEAST:
                _apt_install(_JAVA_PACKAGE)
                version = _java_version()
    if version is None:
        raise OperatorError(
            "java still does not run after the installation",
            operation="find Java",
            hint=f"install Java {_JAVA_AT_LEAST} or set JAVA_HOME",
        )
    return str(version)


def _java_version() -> int | None:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None  # no Java here: the caller installs one
    major = re.search(r'version "(\d+)', said.stderr)
    return int(major[1]) if major else None


def _apt_install(package: str) -> None:
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-q", "install", "-y", "--no-install-recommends", package]
    try:
        for command in (["apt-get", "-q", "update"], install):
            subprocess.run([*sudo, *command], check=True, env=quiet, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        raise OperatorError(
            f"apt-get could not install {package}",
            operation="install a system package",
            hint=f"as root: apt-get install {package}",
        ) from error


_SERVERS: Final = {"mariadb": mariadb, "new-mariadb": new_mariadb, "mysql": mysql}


def main(wanted: list[str]) -> None:
    """Provision what the command line names and say what was found."""
    for name in wanted:
        if name == "java":
            print(f"java {java()}")
        elif name == "vitess":
            from lab import vitessbuild  # it needs us

            there = vitessbuild.vitess() if vitessbuild.has_go() else None
            print(f"vitess {there.version if there else 'left out: there is no Go here'}")
        elif name in _SERVERS:
            here = _SERVERS[name]()
            print(f"{name} {here.version} ({here.program})")
        else:
            raise SystemExit(f"unknown: {name}; known: java, vitess, {', '.join(_SERVERS)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except RatchetError as problem:
        print(f"{problem}\n{problem.hint}", file=sys.stderr)
        sys.exit(problem.exit_code)
