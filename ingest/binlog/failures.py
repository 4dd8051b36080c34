"""What is said when the machine refuses an event: the error's class, sentence and remedy."""

from __future__ import annotations

from typing import Final

from ratchet.core.errors import (
    BugError,
    DecodeError,
    OperatorError,
    PositionLostError,
    SourceUnfitError,
    TableStoppedError,
)
from ratchet.core.shell import shell_word
from ratchet.ingest.binlog.machine import Action, State

_OPERATION: Final = "follow the binlog"
_REDUMP: Final = (
    "then dump the tables of this keyspace again: `ratchet dump CONFIG --again {every}`"
)
_Refused = type[DecodeError] | type[OperatorError] | type[BugError]

_WHAT: Final[dict[Action, tuple[_Refused, str, str]]] = {
    Action.STOP: (BugError, "the machine stopped without a reason", ""),
    Action.UNKNOWN_EVENT: (
        DecodeError,
        "the server logged an event that this version does not know ({event})",
        (
            "nothing was skipped: use a version of Ratchet that knows it, or report it; to skip "
            f"it, {_REDUMP.removeprefix('then ')}"
        ),
    ),
    Action.OUT_OF_ORDER: (
        DecodeError,
        "an event is where it cannot be ({event})",
        "the stream may be damaged: try again. Report it if it persists",
    ),
    Action.INCIDENT: (
        PositionLostError,
        "the server logged an incident: changes may be missing from its binlog",
        # A server that looks for a position sends it from wherever it lies in the same file.
        (
            "see the server's error log for the cause; begin a new file of its log "
            f"(FLUSH BINARY LOGS;), {_REDUMP}"
        ),
    ),
    Action.PARTIAL_JSON: (
        DecodeError,
        "a partial update of a JSON column came without a table map ({event})",
        "the stream may be damaged: try again. Report it if it persists",
    ),
    Action.STATEMENT_DML: (
        SourceUnfitError,
        "rows were changed by a statement that was logged as its text: {event}",
        (
            "SET GLOBAL binlog_format=ROW (also in the server's configuration; open sessions "
            f"keep the old value until they end), {_REDUMP}"
        ),
    ),
    Action.TRUNCATED_EVENT: (
        DecodeError,
        "an event is shorter than it must be, or holds an impossible number ({event})",
        "the stream may be damaged: try again",
    ),
    Action.UNMAPPED_ROWS: (
        DecodeError,
        "row changes came without a table map ({event})",
        "the stream may be damaged: try again. Report it if it persists",
    ),
    Action.GTID_ORDER: (
        SourceUnfitError,
        "a transaction's number is not above the last one of its replication domain: {event}",
        (
            # Asked for what is behind a number that it has given again, the server begins before
            # it, unless a file begins there.
            "SET GLOBAL gtid_strict_mode=ON; and FLUSH BINARY LOGS; on all servers of the shard, "
            f"and give each server that is written to its own gtid_domain_id, {_REDUMP}"
        ),
    ),
    Action.NO_LENGTH: (
        SourceUnfitError,
        "a transaction without GTID does not state its length",
        "servers before MySQL 8.0.2 are not supported without GTIDs: turn gtid_mode on",
    ),
}


# As the servers' documentation calls them.
_NAMES: Final = {
    2: "Query", 3: "Stop", 4: "Rotate", 5: "Intvar", 13: "Rand", 14: "User var",
    15: "Format description", 16: "Xid",
    17: "Begin load query", 18: "Execute load query", 19: "Table map", 23: "Write rows",
    24: "Update rows", 25: "Delete rows", 26: "Incident", 27: "Heartbeat", 30: "Write rows",
    31: "Update rows", 32: "Delete rows", 33: "GTID", 34: "Anonymous GTID", 35: "Previous GTIDs",
    36: "Transaction context", 37: "View change", 38: "XA prepare", 39: "Partial update rows",
    40: "Transaction payload", 42: "Tagged GTID", 160: "Annotate rows", 161: "Binlog checkpoint",
    162: "GTID", 163: "GTID list", 164: "Start encryption", 165: "Compressed query",
    166: "Compressed write rows", 167: "Compressed update rows", 168: "Compressed delete rows",
}  # fmt: skip
_WHERE: Final = {
    State.BETWEEN: "between two transactions",
    State.GTID: "where a transaction begins",
    State.SINGLE: "where a transaction of one statement begins",
    State.OPEN: "within a transaction",
    State.ROWS: "within a transaction that changed mirrored tables",
    State.XA_ENDED: "after XA END",
    State.XA_ENDED_ROWS: "after XA END of a transaction that changed mirrored tables",
}


def event_told(logged: int, state: State) -> str:
    """An event for people: what it is called, its number in the log, where it stands.

    Args:
        logged: the type that its header has.
        state: of the stream before it.
    """
    return f"{_NAMES.get(logged, 'an')} event (type {logged}) {_WHERE[state]}"


def partial_json(table: str) -> TableStoppedError:
    """Why a table stops of which a JSON column was updated in part."""
    return TableStoppedError(
        "a JSON column was logged as a partial update",
        operation=_OPERATION,
        table=table,
        hint="SET GLOBAL binlog_row_value_options=''; (also in the server's configuration; "
        "sessions that are open keep the old value until they end)",
    )


def refusal(action: Action, *, event: str, source: str, position: str) -> Exception:
    """The error to raise for an Action of the machine from STOP on."""
    kind, message, hint = _WHAT[action]
    return kind(
        message.format(event=event),
        operation=_OPERATION,
        source=source,
        position=position,
        hint=hint.replace("{every}", shell_word(f"{source.partition('/')[0]}.*")),
    )
