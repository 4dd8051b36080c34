"""What a statement in a binlog is to the machine.

Lives here: the kinds of the machine for what `core.sql` tells of a statement. Does not live here:
any SQL (`core.sql`), what statements do to tables (`watch`).
"""

from __future__ import annotations

from typing import Final

from core.sql.statements import Form
from ingest.binlog.machine import Kind

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
    "xa commit": Kind.XA_COMMIT_UNSEEN,
    "statement": Kind.STATEMENT,
    "rows": Kind.DML,
}
