"""What a statement in a binlog is to the machine.

Lives here: the kinds of the machine for what `core.sql` tells of a statement, and the names of
savepoints. Does not live here: any other SQL (`core.sql`), what statements do to tables (`watch`).
"""

from __future__ import annotations

import re
from typing import Final

from ratchet.core.sql.found import Form
from ratchet.ingest.binlog.machine import Kind

KIND_OF: Final[dict[Form, Kind]] = {
    "begin": Kind.BEGIN,
    "commit": Kind.COMMIT,
    "rollback": Kind.ROLLBACK,
    "rollback to": Kind.ROLLBACK_TO,
    "savepoint": Kind.SAVEPOINT,
    "xa start": Kind.XA_START,
    "xa end": Kind.XA_END,
    "xa prepare": Kind.XA_PREPARE,
    "xa rollback": Kind.XA_FINISH,
    "xa commit": Kind.XA_FINISH,
    "statement": Kind.STATEMENT,
    "rows": Kind.DML,
}
_POINT: Final = re.compile(
    r"\s*(?:SAVEPOINT|ROLLBACK(?:\s+WORK)?\s+TO(?:\s+SAVEPOINT)?)\s+(\S.*)",
    re.IGNORECASE | re.DOTALL,
)


def savepoint_of(statement: str) -> str:
    """The savepoint that is set or gone back to, as it is compared; empty if it is not understood.

    Servers write both statements themselves, with the name quoted in the same way.
    """
    found = _POINT.fullmatch(statement)
    return found[1].rstrip().lower() if found else ""
