"""What is said when the machine refuses an event: the error's class, sentence and remedy."""

from __future__ import annotations

from typing import Final

from core.errors import (
    BugError,
    DecodeError,
    OperatorError,
    PositionLostError,
    SourceUnfitError,
    TableStoppedError,
)
from ingest.binlog.machine import Action

_OPERATION: Final = "follow the binlog"
_REDUMP: Final = (
    "then dump the tables of this keyspace again: `ratchet dump CONFIG --again '{keyspace}.*'`"
)
_Refused = type[DecodeError] | type[OperatorError] | type[BugError]

_WHAT: Final[dict[Action, tuple[_Refused, str, str]]] = {
    Action.STOP: (BugError, "the machine stopped without a reason", ""),
    Action.UNKNOWN_EVENT: (
        DecodeError,
        "the server logged an event that this version does not know ({event})",
        (
            "nothing was skipped: use a version of Ratchet that knows it, or report it; to leave "
            f"it behind, {_REDUMP.removeprefix('then ')}"
        ),
    ),
    Action.OUT_OF_ORDER: (
        DecodeError,
        "an event stands where it cannot stand ({event})",
        "the stream may be damaged; reading it again tells. Report it if it persists",
    ),
    Action.INCIDENT: (
        PositionLostError,
        "the server logged an incident: changes may be missing from its binlog",
        f"see the server's error log for the cause, {_REDUMP}",
    ),
    Action.PARTIAL_JSON: (
        DecodeError,
        "a partial update of a JSON column came without a table map ({event})",
        "the stream may be damaged; reading it again tells. Report it if it persists",
    ),
    Action.STATEMENT_DML: (
        SourceUnfitError,
        "rows were changed by a statement that was logged as its text: {event}",
        (
            "SET GLOBAL binlog_format=ROW (also in the server's configuration; open sessions "
            f"keep the old value until they end), {_REDUMP}"
        ),
    ),
    Action.XA_PREPARED: (
        SourceUnfitError,
        "an XA transaction on mirrored tables was prepared and committed in two steps: {event}",
        (
            "such transactions are not supported yet: use plain transactions or XA COMMIT ... ONE "
            f"PHASE on these tables, {_REDUMP}"
        ),
    ),
    Action.TRUNCATED_EVENT: (
        DecodeError,
        "an event is shorter than it must be, or holds an impossible number ({event})",
        "the stream may be damaged; reading it again tells",
    ),
    Action.UNMAPPED_ROWS: (
        DecodeError,
        "row changes came without a table map ({event})",
        "the stream may be damaged; reading it again tells. Report it if it persists",
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
        "a transaction without GTID does not tell its length",
        "servers before MySQL 8.0.2 are not supported without GTIDs: turn gtid_mode on",
    ),
}


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
        hint=hint.replace("{keyspace}", source.partition("/")[0]),
    )
