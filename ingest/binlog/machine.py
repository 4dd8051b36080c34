"""The transaction state machine of a binlog stream, as a table.

Rule 1: everything that affects states and transitions lives in this file.
Rule 2: this file knows no bytes, no sockets and no servers, only kinds of events.

A stream is a sequence of transactions. MySQL's begin with a GTID event (also without GTIDs, then
it is an anonymous one), MariaDB's with a GTID event that tells a group from a single statement:

    MySQL      GTID  BEGIN  (TABLE_MAP+ ROWS+)*  XID | COMMIT
               GTID  STATEMENT | DML                           (DDL and administration)
               GTID  PAYLOAD{ BEGIN ... XID }                  (a compressed transaction)
               GTID  BEGIN  STATEMENT  (TABLE_MAP+ ROWS+)* XID (CREATE TABLE ... SELECT)
               GTID  XA_START ... XA_END  XA_ONE_PHASE
    MariaDB    GTID_GROUP  (TABLE_MAP+ ROWS+)*  XID | COMMIT
               GTID_SINGLE STATEMENT | DML

A pair of state and kind that is not in TRANSITIONS stops the stream with an error: nothing that
is not understood is passed over. FORMAT inside a transaction means that the server died while it
wrote that transaction and never committed it: the transaction is abandoned.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt


class State(IntEnum):
    """Where a stream stands."""

    BETWEEN = 0  # no transaction is open: the only state in which a position is taken
    GTID = 1  # MySQL: named, not begun
    SINGLE = 2  # MariaDB: named, consists of one statement
    OPEN = 3  # begun; no row of a mirrored table so far
    ROWS = 4  # begun; it changed mirrored tables
    XA_ENDED = 5  # MySQL: behind XA END, how it ends comes next
    XA_ENDED_ROWS = 6  # the same, and it changed mirrored tables


class Kind(IntEnum):
    """What an event is to the machine."""

    UNKNOWN = 0
    FORMAT = 1  # a new file, or the first event of a connection
    ROTATE = 2
    INFORMATION = 3  # heartbeats, the statement's text, lists of GTIDs, checkpoints
    STOP = 4  # the server was shut down; the next file follows
    GTID = 5
    GTID_GROUP = 6
    GTID_SINGLE = 7
    QUERY = 8  # not looked at yet; becomes one of the kinds that follow
    BEGIN = 9
    COMMIT = 10
    ROLLBACK = 11
    SAVEPOINT = 12  # set or released
    ROLLBACK_TO = 13
    STATEMENT = 14  # DDL and administration
    DML = 15  # a change of rows logged as its statement
    XA_START = 16
    XA_END = 17
    XA_PREPARE = 18
    XA_ONE_PHASE = 19
    XA_FINISH = 20  # XA COMMIT or XA ROLLBACK of a transaction that was prepared before
    XID = 21
    TABLE_MAP = 22
    ROWS = 23
    OTHER_ROWS = 24  # of a table that is not mirrored
    PAYLOAD = 25
    INCIDENT = 26
    PARTIAL_ROWS = 27
    LOAD = 28  # LOAD DATA as servers wrote it before MySQL 5.0.3
    GARBLED = 29  # too short for what it claims to be, or with numbers that cannot be


class Action(IntEnum):
    """What happens at a transition. All from STOP on are errors."""

    NONE = 0
    BEGIN = 1  # a transaction starts, and has a name
    MAP = 2  # look at a table map
    TAKE = 3  # note row changes
    END = 4  # the transaction is whole: its end is a position
    ABANDON = 5  # the transaction never happened
    STOP = 16
    UNKNOWN_EVENT = 17
    OUT_OF_ORDER = 18
    INCIDENT = 19
    PARTIAL_JSON = 20
    STATEMENT_DML = 21
    TRUNCATED_EVENT = 24
    UNMAPPED_ROWS = 25
    GTID_ORDER = 26  # MariaDB: a number that is not above the last one of its domain
    NO_LENGTH = 27  # MySQL: an anonymous transaction that does not tell its length


_S, _K, _A = State, Kind, Action
_INSIDE: Final = (_S.OPEN, _S.ROWS)
_ALL: Final = tuple(State)

# (states, kind, action, next state; None: stays)
TRANSITIONS: Final[tuple[tuple[tuple[State, ...], Kind, Action, State | None], ...]] = (
    (_ALL, _K.INFORMATION, _A.NONE, None),
    (_ALL, _K.ROTATE, _A.NONE, None),
    (_ALL, _K.STOP, _A.NONE, None),
    ((_S.BETWEEN,), _K.FORMAT, _A.NONE, None),
    (tuple(s for s in _ALL if s is not _S.BETWEEN), _K.FORMAT, _A.ABANDON, _S.BETWEEN),
    # Names.
    ((_S.BETWEEN,), _K.GTID, _A.BEGIN, _S.GTID),
    ((_S.BETWEEN,), _K.GTID_GROUP, _A.BEGIN, _S.OPEN),
    ((_S.BETWEEN,), _K.GTID_SINGLE, _A.BEGIN, _S.SINGLE),
    # MySQL: what follows a name.
    ((_S.GTID,), _K.BEGIN, _A.NONE, _S.OPEN),
    ((_S.GTID,), _K.XA_START, _A.NONE, _S.OPEN),
    ((_S.GTID,), _K.STATEMENT, _A.END, _S.BETWEEN),
    # The reader gives it a name: that of the transaction before.
    ((_S.BETWEEN,), _K.STATEMENT, _A.NONE, None),
    ((_S.BETWEEN,), _K.DML, _A.NONE, None),
    ((_S.GTID,), _K.DML, _A.END, _S.BETWEEN),
    ((_S.GTID,), _K.XA_FINISH, _A.END, _S.BETWEEN),
    # The events inside follow as if there were no payload.
    ((_S.GTID,), _K.PAYLOAD, _A.NONE, None),
    # An empty transaction under a GTID that somebody skipped.
    ((_S.GTID,), _K.COMMIT, _A.END, _S.BETWEEN),
    # MariaDB.
    ((_S.SINGLE,), _K.STATEMENT, _A.END, _S.BETWEEN),
    ((_S.SINGLE,), _K.DML, _A.END, _S.BETWEEN),
    ((_S.SINGLE,), _K.XA_FINISH, _A.END, _S.BETWEEN),
    ((_S.SINGLE,), _K.COMMIT, _A.END, _S.BETWEEN),
    ((_S.SINGLE,), _K.BEGIN, _A.NONE, _S.OPEN),
    # Inside.
    (_INSIDE, _K.BEGIN, _A.NONE, None),
    (_INSIDE, _K.TABLE_MAP, _A.MAP, None),
    (_INSIDE, _K.ROWS, _A.TAKE, _S.ROWS),
    (_INSIDE, _K.OTHER_ROWS, _A.NONE, None),
    (_INSIDE, _K.SAVEPOINT, _A.NONE, None),
    (_INSIDE, _K.STATEMENT, _A.NONE, None),
    # What it may have done to mirrored tables is told by table events (watch).
    (_INSIDE, _K.DML, _A.NONE, None),
    (_INSIDE, _K.XID, _A.END, _S.BETWEEN),
    (_INSIDE, _K.COMMIT, _A.END, _S.BETWEEN),
    # The log has it where other changes could not be undone. Rows that it brings nevertheless are
    # left out by the reader, which knows the savepoints.
    (_INSIDE, _K.ROLLBACK, _A.END, _S.BETWEEN),
    (_INSIDE, _K.ROLLBACK_TO, _A.NONE, None),
    # XA. A prepared transaction's rows come long before its commit, or never happen: the reader
    # leaves them out, and what it changed is in doubt behind the commit (watch).
    ((_S.OPEN,), _K.XA_END, _A.NONE, _S.XA_ENDED),
    ((_S.ROWS,), _K.XA_END, _A.NONE, _S.XA_ENDED_ROWS),
    ((_S.XA_ENDED, _S.XA_ENDED_ROWS), _K.XA_ONE_PHASE, _A.END, _S.BETWEEN),
    ((_S.XA_ENDED, _S.XA_ENDED_ROWS, *_INSIDE), _K.XA_PREPARE, _A.END, _S.BETWEEN),
    # The server has lost changes: all tables are in doubt (watch). MySQL gives it a GTID, MariaDB
    # none. Elsewhere nobody has seen it.
    ((_S.GTID,), _K.INCIDENT, _A.END, _S.BETWEEN),
    ((_S.BETWEEN,), _K.INCIDENT, _A.NONE, None),
    (tuple(s for s in _ALL if s not in {_S.GTID, _S.BETWEEN}), _K.INCIDENT, _A.INCIDENT, None),
    # Never understood, wherever they stand.
    (_ALL, _K.UNKNOWN, _A.UNKNOWN_EVENT, None),
    (_ALL, _K.PARTIAL_ROWS, _A.PARTIAL_JSON, None),
    (_ALL, _K.LOAD, _A.STATEMENT_DML, None),
    (_ALL, _K.GARBLED, _A.TRUNCATED_EVENT, None),
)


def _table() -> npt.NDArray[np.int16]:
    """TRANSITIONS as numbers: [state, kind] -> action * 256 + next state."""
    table = np.zeros((len(State), len(Kind)), np.int16)
    for state in State:
        table[state, :] = _A.OUT_OF_ORDER * 256 + state
    for states, kind, action, following in TRANSITIONS:
        for state in states:
            table[state, kind] = action * 256 + (state if following is None else following)
    return table


MACHINE: Final = _table()

# Event type (the number on the wire) -> kind, for the types whose kind their number tells. The
# others, and what depends on content, are decided by the walker.
_INFORMATION: Final = (
    5,  # INTVAR, before a statement: what counts is the statement
    9,  # APPEND_BLOCK, of a file that LOAD DATA read: likewise, and the two that follow
    11,  # DELETE_FILE
    17,  # BEGIN_LOAD_QUERY
    13,  # RAND
    14,  # USER_VAR
    27,  # HEARTBEAT
    28,  # IGNORABLE
    29,  # ROWS_QUERY
    35,  # PREVIOUS_GTIDS
    36,  # TRANSACTION_CONTEXT
    37,  # VIEW_CHANGE
    41,  # HEARTBEAT_V2
    160,  # MariaDB ANNOTATE_ROWS
    161,  # BINLOG_CHECKPOINT
    163,  # GTID_LIST
    164,  # START_ENCRYPTION: the server decrypts what it sends
)
GTID_TYPES: Final = (33, 34)
GTID_TAGGED: Final = 42
QUERY: Final = 2
QUERY_COMPRESSED: Final = 165
LOAD_QUERY: Final = 18  # EXECUTE_LOAD_QUERY: a statement that reads a file logged before
MARIADB_GTID: Final = 162
XA_PREPARE: Final = 38
ROTATE: Final = 4
FORMAT: Final = 15
TABLE_MAP: Final = 19
PAYLOAD: Final = 40
ROWS_V1: Final = (23, 24, 25)
ROWS_V2: Final = (30, 31, 32)
COMPRESSED_V1: Final = (166, 167, 168)
COMPRESSED_V2: Final = (169, 170, 171)


def _kinds() -> npt.NDArray[np.uint8]:
    kinds = np.full(256, Kind.UNKNOWN, np.uint8)
    kinds[list(_INFORMATION)] = Kind.INFORMATION
    kinds[[FORMAT]] = Kind.FORMAT
    kinds[[ROTATE]] = Kind.ROTATE
    kinds[[3]] = Kind.STOP
    kinds[[*GTID_TYPES, GTID_TAGGED]] = Kind.GTID
    kinds[[MARIADB_GTID]] = Kind.GTID_GROUP
    kinds[[QUERY, QUERY_COMPRESSED, LOAD_QUERY]] = Kind.QUERY
    kinds[[XA_PREPARE]] = Kind.XA_PREPARE
    kinds[[16]] = Kind.XID
    kinds[[TABLE_MAP]] = Kind.TABLE_MAP
    kinds[[*ROWS_V1, *ROWS_V2, *COMPRESSED_V1, *COMPRESSED_V2]] = Kind.ROWS
    kinds[[PAYLOAD]] = Kind.PAYLOAD
    kinds[[26]] = Kind.INCIDENT
    kinds[[39]] = Kind.PARTIAL_ROWS
    kinds[[6, 8, 10, 12]] = Kind.LOAD
    return kinds


KIND_OF_TYPE: Final = _kinds()
