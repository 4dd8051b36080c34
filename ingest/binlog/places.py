"""What the walker and Python share: the places of its state, and the records of what it notes.

Lives here: their layout, and the arrays that the kernel gets. Does not live here: who reads and
writes them (`walk`, `frequent`, `reader`), the transitions (`machine`).

Invariant: a place means the same to all; each has one name, which is used by all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Records = npt.NDArray[np.void]

TXN: Final = np.dtype(
    [
        ("origin", np.int32),  # number of the origin in `Arrays.origins`
        ("server", np.uint32),  # id of the server that wrote it
        ("number", np.int64),
        ("ts", np.int64),  # commit time, microseconds
        ("committed", np.int64),  # the same on the server that wrote it first
        ("seq", np.int64),
        ("begin", np.int64),  # offset where it begins in its file
        ("end", np.int64),  # offset behind it in its file; 0 while it is open
    ]
)
ROWS: Final = np.dtype(
    [
        ("start", np.int64),  # of the column count that begins the rows
        ("end", np.int64),
        ("txn", np.int32),  # number of its transaction in this batch
        ("slot", np.int32),  # number of its table map
        ("op", np.uint8),
        ("where", np.uint8),  # 0: the receive buffer, 1: the side buffer
        ("silent", np.uint8),  # 1: what foreign keys did by it is not in the log (core.change)
        ("bulk", np.uint8),  # 1: the server may have taken its rows back without a word
        ("unchecked", np.uint8),  # 1: whatever its rows refer to was not looked at
        ("began", np.uint32),  # when its statement began, seconds by the session's clock
    ]
)

# The places of the state array.
STATE: Final = 0
KIND: Final = 1  # set by Python: what the event at hand is; -1: the kernel finds out
ORIGIN: Final = 2  # set with a GTID's kind: number of its origin
NUMBER: Final = 3
TS: Final = 4
LENGTH: Final = 5  # of the whole transaction in its file; 0: unknown
# 1: the open transaction is contained already and leaves no trace. 2: another one had its name:
# Python is asked about its tables, and its rows are left out.
SKIP: Final = 6
REPEATED: Final = 2
TXNS: Final = 7  # how many transactions are noted
ROW_EVENTS: Final = 8
SEQ: Final = 9  # of the newest transaction
LOW: Final = 10  # end of the newest event in its file, modulo 2**32
HIGH: Final = 11  # what LOW lacks
FLAVOR: Final = 12
FILE: Final = 13  # flavour file: the file's number, packed
BYTES: Final = 14  # bytes of events so far
LIMIT: Final = 15  # of BYTES: stop at the next end of a transaction
ORIGINS: Final = 16  # how many origins there are
INNER: Final = 17  # 1 inside a compressed transaction
SERVER: Final = 18
END_OFFSET: Final = 19  # where the newest whole transaction ends
DECIDED: Final = 20  # 1: Python has said whether the transaction is to be skipped
SEQ_BEFORE: Final = 21  # what ABANDON goes back to
HIGH_BEFORE: Final = 22
BEGIN_OFFSET: Final = 23  # where the open transaction begins in its file
UNFINISHED: Final = 24  # where one begins that never came to its end; -1: none in this file
NOT_AFTER: Final = 25  # of TS: stop before the first transaction that is later
HELD: Final = 26  # TS of the transaction that this stopped before; 0: it has not
COMMITTED: Final = 27  # TS on the server that wrote the transaction first
BELIEVED: Final = 28  # of TS: what is later is wrong, and not held
ALTER: Final = 29  # MariaDB's two-phase ALTER: what the open transaction is of it; 0: none
TOLD: Final = 30  # up to where the server has read its file, modulo 2**32; heartbeats tell it too
IDLE: Final = 31  # 1: a heartbeat has told the same place as what came before it
SIZE: Final = 32

# Values of ALTER, as the GTID event's extra flags have them.
START_ALTER, COMMIT_ALTER, ROLLBACK_ALTER = 2, 4, 8

MYSQL, MARIADB, FILE_FLAVOR = 0, 1, 2
# Of a rows event's flags: foreign keys were not looked at, or (MySQL since 9.6) by the server's SQL
# layer, which logs what it changes by them. With neither, InnoDB followed them by itself.
CHECKS_OFF: Final = 0x02
CHECKED_IN_SQL: Final = 0x10
# Unique keys were not looked at. With both settings off a MariaDB since 10.6 inserts into an empty
# table in bulk, and takes all of it back if one row fails, whatever it has logged by then.
UNIQUE_OFF: Final = 0x04
FLAVORS: Final = {"mysql": MYSQL, "mariadb": MARIADB, "file": FILE_FLAVOR}

NO_SLOT: Final = -1
OTHER_TABLE: Final = -2  # a table that is not mirrored


class Arrays(NamedTuple):
    """What the kernel reads and writes. All sizes are fixed while it runs.

    Attributes:
        machine: machine.MACHINE.
        kinds: machine.KIND_OF_TYPE.
        state: see the constants.
        txns: TXN records.
        rows: ROWS records.
        origins: 16 bytes each: a UUID, or a domain in the first four.
        highs: per origin the highest number that is contained.
        ids: open-addressed hash of table ids, -1 where free; its size is a power of two.
        slots: the slot of each of `ids`.
        targets: slot -> 1 if the table is mirrored.
        maps: bodies of known table maps (from the database's name on), one after the other.
        map_starts: slot -> where its body begins in `maps`; one more entry at the end.
    """

    machine: npt.NDArray[np.int16]
    kinds: Bytes
    state: Ints
    txns: Records
    rows: Records
    origins: Bytes
    highs: Ints
    ids: Ints
    slots: npt.NDArray[np.int32]
    targets: Bytes
    maps: Bytes
    map_starts: Ints
