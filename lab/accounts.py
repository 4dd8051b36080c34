"""The account that Ratchet reads a source with, holding no more than it needs.

Lives here: the GRANT statements per flavour. Does not live here: checking what an account has
(`ratchet check` does that for real sources).

Invariant: these are exactly the privileges that the documentation asks of an operator, so every
test that uses this account also tests the documentation.

Measured on MariaDB 10.11: REPLICATION CLIENT is another name of BINLOG MONITOR there; with it
and REPLICATION SLAVE an account may read the binlog, SHOW MASTER STATUS, the status
`binlog_snapshot_*`, and call BINLOG_GTID_POS(). `tests/integration/test_lab.py` holds this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lab.server import Server

RATCHET_USER: Final = "ratchet"
RATCHET_PASSWORD: Final = "ratchet-lab"  # noqa: S105 - a server on the loopback address


def create_ratchet_user(
    server: Server,
    password: str = RATCHET_PASSWORD,
    databases: Iterable[str] = (),
    *,
    user: str = RATCHET_USER,
    triggers: bool = False,
) -> None:
    r"""Create `user` with the least privileges; again: set the password and add databases.

    A database may be a pattern as GRANT takes it (`test\_%`). It need not exist yet. `triggers`: it
    may see them too, which MariaDB's tables with VIRTUAL columns need.
    """
    account = f"'{user}'@'%'"  # "everywhere" ends at the loopback address the server listens on
    server.execute("CREATE USER IF NOT EXISTS %s@'%%' IDENTIFIED BY %s", (user, password))
    server.execute("ALTER USER %s@'%%' IDENTIFIED BY %s", (user, password))
    server.execute(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}")
    for database in databases:
        # No parameters here, so a per cent sign in a pattern stays as it is.
        server.execute(f"GRANT SELECT ON `{database}`.* TO {account}")
        if triggers:
            server.execute(f"GRANT TRIGGER ON `{database}`.* TO {account}")
