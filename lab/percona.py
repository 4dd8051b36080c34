"""pt-online-schema-change, the real one, from Debian's package, unpacked into the cache.

Lives here: getting it, and running it on a table. Does not live here: gh-ost, which no registry
serves (`ghost`).

It copies a table into `_T_new` in chunks, keeps that up with triggers, and swaps the two by one
RENAME.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from lab.debs import unpacked, wrapped
from lab.places import cache
from lab.servers import Server
from lab.template import root_password
from ratchet.core.errors import OperatorError

_SUITE: Final = "bookworm"
_MODULES: Final = ("perl-base", "perl/5.36", "perl5/5.36")
_SECONDS: Final = 900


def toolkit() -> Path:
    """Where Percona's toolkit lies; it is fetched the first time."""
    return unpacked(cache() / "percona-toolkit", suite=_SUITE, packages=("percona-toolkit",))


def alter_online(server: Server, database: str, table: str, alter: str, *more: str) -> str:
    """Alter a table; what the tool said.

    Args:
        server: its server; root does it.
        database: the table's.
        table: its name.
        alter: what follows ALTER TABLE and the name.
        more: further options of the tool.

    Raises:
        OperatorError: it failed; with what it said.
    """
    root = toolkit()
    perl = wrapped(root, "usr/bin/perl")
    libraries = next(root.glob("usr/lib/*-linux-gnu"))
    folders = [libraries / name for name in _MODULES]
    folders += [root / "usr/share/perl5", root / "usr/share/perl/5.36"]
    environment = {
        "PATH": os.environ["PATH"],
        "PERL5LIB": ":".join(map(str, folders)),
        "MARIADB_PLUGIN_DIR": str(libraries / "libmariadb3/plugin"),
    }
    with tempfile.TemporaryDirectory(prefix="ratchet-percona-") as home:
        account = Path(home) / "root.cnf"
        account.write_text(f"[client]\nuser=root\npassword={root_password()}\n")
        command = [
            str(perl),
            str(root / "usr/bin/pt-online-schema-change"),
            "--execute",
            "--recursion-method=none",
            "--no-check-replication-filters",
            f"--alter={alter}",
            *more,
            f"h={server.host},P={server.port},F={account},D={database},t={table}",
        ]
        environment["HOME"] = home
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=_SECONDS, check=False
        )
    said = done.stdout + done.stderr
    if done.returncode:
        raise OperatorError(said, operation=f"alter {table} online")
    return said
