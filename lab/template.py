"""Fresh data directories, copied from a template that is initialised once.

Lives here: how each flavour's system tables come into being, and the copy. Does not live here:
the options that a running server gets (`servers`).

Invariant: a copy is a server of its own: it has no UUID yet, no binlog and no history. The
accounts are root@localhost without a password, root@127.0.0.1 with one, and no anonymous ones.
(Measured: initialising takes 2-8 s, copying 0.2 s.)
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Final

from lab.cache import prepared
from lab.places import cache
from lab.provision import Installation, shared_files
from ratchet.core.errors import OperatorError

# A change here makes a new template: the version is a part of its folder's name.
_LAYOUT: Final = 2
_TAIL: Final = 3000
_NOT_COPIED: Final = ("auto.cnf", "#innodb_temp")

_ROOT: Final = (
    "CREATE USER 'root'@'127.0.0.1' IDENTIFIED BY '{password}';\n"
    "GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
)
_MARIADB_ROOT: Final = (
    "UPDATE mysql.global_priv SET Priv = JSON_SET(Priv, '$.plugin', 'mysql_native_password',"
    " '$.authentication_string', PASSWORD('{password}')) WHERE Host <> 'localhost';\n"
)
# The order counts. MariaDB's own install script runs the same files; it also loads the help
# texts, which no test reads. From 11 on the names begin with mariadb instead of mysql.
_MARIADB_SCRIPTS: Final = (
    "{m}_system_tables.sql",
    "{m}_performance_tables.sql",
    "{m}_system_tables_data.sql",
    "maria_add_gis_sp_bootstrap.sql",
    "{m}_sys_schema.sql",
)


def new_datadir(installation: Installation, target: Path, *, lower_case: bool = False) -> None:
    """Fill `target`, which must not exist yet, with a fresh data directory.

    Args:
        installation: whose.
        target: the folder.
        lower_case: for lower_case_table_names=1, which a MySQL keeps from its first start on.
    """
    lower_case = lower_case and installation.flavor == "mysql"
    name = f"{installation.flavor}-{installation.version}-{_LAYOUT}{'-lower' * lower_case}"
    template = cache() / "templates" / re.sub(r"[^A-Za-z0-9.-]", "_", name)

    def build(work: Path) -> None:
        if installation.flavor == "mysql":
            _initialise_mysql(installation, work, lower_case=lower_case)
        else:
            _initialise_mariadb(installation, work)

    source = prepared(template, build)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_NOT_COPIED))


def root_password() -> str:
    """Of root over TCP, the same for all servers of this cache.

    Other users of the machine reach the port, and root may write files in this user's name. The
    socket lies in a folder that only this user may enter.
    """

    def build(work: Path) -> None:
        (work / "password").write_text(secrets.token_hex(16))

    return (prepared(cache() / "templates" / "root", build) / "password").read_text()


def base_command(installation: Installation) -> list[str]:
    """How any run of the program begins."""
    user = ["--user=root"] if os.geteuid() == 0 else []  # without it the servers refuse root
    return [str(installation.program), "--no-defaults", *user, *installation.options]


def _initialise_mysql(installation: Installation, work: Path, *, lower_case: bool) -> None:
    script = work.with_suffix(".sql")
    script.write_text(_ROOT.format(password=root_password()))
    work.rmdir()  # the server wants to make it
    command = [
        *base_command(installation),
        "--initialize-insecure",
        f"--datadir={work}",
        f"--init-file={script}",
        "--disable-log-bin",
        "--innodb-redo-log-capacity=64M",
        *(["--lower-case-table-names=1"] if lower_case else []),
    ]
    try:
        _run(command, installation, script=b"")
    finally:
        script.unlink()


def _initialise_mariadb(installation: Installation, work: Path) -> None:
    share = shared_files(installation.root)
    prefix = "mariadb" if (share / "mariadb_system_tables.sql").exists() else "mysql"
    parts = [b"CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"]
    for pattern in _MARIADB_SCRIPTS:
        text = (share / pattern.format(m=prefix)).read_bytes()
        # Lines for this machine's own name are left out, as the install script does on request.
        parts += [line for line in text.splitlines(True) if b"@current_hostname" not in line]
    parts.append(_MARIADB_ROOT.format(password=root_password()).encode())
    command = [
        *base_command(installation),
        "--bootstrap",
        f"--datadir={work}",
        f"--tmpdir={work}",  # not /tmp: starting deletes what other servers keep there
        "--log-warnings=0",
        "--enforce-storage-engine=",
        "--max-allowed-packet=8M",
        "--net-buffer-length=16K",
        "--innodb-log-file-size=64M",
    ]
    _run(command, installation, script=b"".join(parts))


def _run(command: list[str], installation: Installation, *, script: bytes) -> None:
    result = subprocess.run(command, input=script, capture_output=True, check=False)
    if result.returncode:
        said = (result.stdout + result.stderr).decode(errors="replace")[-_TAIL:]
        raise OperatorError(
            f"exit code {result.returncode}, and it said:\n{said}",
            operation=f"initialise a data directory of {installation.flavor}",
            hint="check the space left in the cache folder ($RATCHET_CACHE)",
        )
