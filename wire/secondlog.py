"""A server's binlog read a second time: by mysql-replication, over PyMySQL's packets.

Lives here: `SecondLog`, the transactions of a stretch. Does not live here: what the library makes
of events (`secondrows`), how they become readable to it (`secondevents`), what its rows are
compared with (`ingest.logcheck`), our own reading (`binlog`).

Invariant: only reads, and never takes the place of another stream: its replica id is a random one.
All transactions of the stretch are handed out, or there is an error.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

import pymysql

from ratchet.core.errors import PositionLostError, RatchetError, RetryableError
from ratchet.core.gtid import Flavor, GtidSet, parse_gtid
from ratchet.core.position import Position
from ratchet.wire.binlog import encode_gtid_set, probe_server_id
from ratchet.wire.connect import SourceConfig, open_connection
from ratchet.wire.continues import check_continues
from ratchet.wire.decode.answers import as_flag
from ratchet.wire.failures import UnsoundAnswer, binlog_failure, code_and_text, server_failure
from ratchet.wire.secondevents import (
    ANONYMOUS,
    BEGINS,
    FORMAT,
    GTID_TAGGED,
    HEADER,
    INCIDENT,
    MARIADB_GTID,
    PARTIAL_ROWS,
    QUERY,
    QUERY_COMPRESSED,
    ROTATE,
    ROWS,
    TABLE_MAP,
    XA_PREPARE,
    XID,
    garbled,
    statement_of,
    unpacked,
)
from ratchet.wire.secondrows import SecondDecoder, SecondRows
from ratchet.wire.session import BINLOG_START, Session

_OPERATION: Final = "read the binlog a second time"
_DUMP: Final = 0x12
_DUMP_GTID: Final = 0x1E
_NON_BLOCKING: Final = 1  # at its log's end the server says so, and does not wait for more
_THROUGH_GTID: Final = 4
_LARGEST_OFFSET: Final = 0xFFFFFFFF
_ARTIFICIAL: Final = 0x20  # flag of an event that stands in no file
_STANDALONE: Final = 1  # flag of MariaDB's GTID event: a single statement follows
_CRC32: Final = 1
_SILENT: Final = 60.0  # seconds
_XA_BEGINS: Final = ("XA START", "XA BEGIN")


@dataclass(slots=True)
class SecondTransaction:
    """A transaction as mysql-replication reads it.

    Attributes:
        gtid: its name in the server's notation; empty where mysql-replication does not read it
            (MySQL's tagged GTIDs).
        seq: how many transactions the stream holds with this one (core.token.Rank).
        rows: row events of wanted tables, in order.
        unread: why some of it could not be read; empty: all was.
        bytes: of its events, uncompressed.
    """

    gtid: str
    seq: int = 0
    rows: list[SecondRows] = field(default_factory=list)
    unread: str = ""
    bytes: int = 0


class SecondLog:
    """A stretch of one shard's stream, read from its server.

    Attributes:
        bytes: of the log, read so far.
    """

    def __init__(
        self,
        config: SourceConfig,
        start: Position,
        end: Position,
        *,
        wants: Callable[[str], bool] = lambda _: True,
        largest: int = 0,
        tables: Collection[str] = (),
    ) -> None:
        """Connect; nothing is asked for yet.

        Args:
            config: the shard's server or servers; its TLS settings hold.
            start: behind the transaction before the stretch.
            end: behind its last one.
            wants: which of the database's tables are read.
            tables: names that rows of a server are found under to which letter case does not count.
            largest: bytes of a transaction whose rows are kept; 0: of any, in memory.

        Raises:
            PositionLostError: the server no longer has the stretch.
            RetryableError: it cannot be reached, or it is behind.
            SourceUnfitError: it refuses us.
        """
        self.bytes = 0
        self._start, self._end = start, end
        self._largest = largest
        with Session.connect(config, lambda session: check_continues(session, start)) as control:
            self._config = control.config
            self._mariadb = control.is_mariadb
            self._checksum = control.variable("binlog_checksum")
            own = control.server_identity
            folds = control.value("lower_case_table_names", as_flag)
        # By place where a position is this server's: then names need not be understood.
        begins_here = bool(start.file) and start.server == own
        self._by_file = begins_here and start.offset <= _LARGEST_OFFSET
        self._to_place = bool(end.file) and end.server == own
        if self.flavor == "file" and not (self._by_file and self._to_place):
            raise PositionLostError(
                "without GTIDs a stretch is found only on the server that it was captured from, "
                "and within the first 4 GiB of a file",
                operation=_OPERATION,
                source=str(config.shard),
                position=str(start.executed),
            )
        self._decoder = SecondDecoder(
            database=config.database,
            wants=wants,
            mariadb=self._mariadb,
            spellings={name.lower(): name for name in tables} if folds else None,
        )
        self._file = start.file if self._by_file else ""
        self._open: SecondTransaction | None = None
        self._group = False  # whether it has more than a single statement
        self._connection = open_connection(self._config)
        # It never waits for what is still to be written.
        self._connection.set_read_timeout(min(_SILENT, config.read_timeout))

    @property
    def flavor(self) -> Flavor:
        """The notation of names."""
        return self._start.flavor

    def close(self) -> None:
        """Close the connection. Harmless when repeated."""
        if self._connection.open:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def transactions(self) -> Iterator[SecondTransaction]:
        """All transactions of the stretch, in the order of the log.

        Raises:
            PositionLostError, RetryableError: the server does not give them all.
            DecodeError: mysql-replication fails at one.
        """
        if self._end.executed == self._start.executed:
            return
        self._ask()
        count = _Count(self._start, self._end)
        for outer in self._events():
            yield from filter(count.takes, self._ended_by(outer))
            if self._reached(outer) if self._to_place else count.complete:
                return
        raise RetryableError(
            "the server's log ends before the stretch does",
            operation=_OPERATION,
            source=str(self._config.shard),
            hint="try again; a replica that is read may be behind",
        )

    def _ended_by(self, outer: bytes) -> list[SecondTransaction]:
        """Take what an event holds; the transactions that end with it: as a rule none, or one."""
        try:
            steps = (self._step(event, outer) for event in unpacked(outer))
            return [ended for ended in steps if ended is not None]
        except (LookupError, ValueError, struct.error) as error:
            raise garbled(f"an event of type {outer[4]} makes no sense") from error

    def _step(self, event: bytes, outer: bytes) -> SecondTransaction | None:
        """Take an event; the transaction that ends with it."""
        kind, found = event[4], self._open
        if kind == FORMAT:
            # Within a transaction: the server died, and never committed it.
            self._decoder.forget_ids()
            self._open = None
        elif kind in BEGINS:
            self._begin(event)
        elif found is not None:
            found.bytes += len(event)
            self._take(found, event)
            text = statement_of(event).strip().upper() if kind == QUERY else ""
            if text.startswith("ROLLBACK") and found.rows:
                found.unread = "rolled back in part"
            if kind == XA_PREPARE and event[HEADER.size] != 1:
                found.rows.clear()  # it happens later, or never: no row of it is captured
            self._group = self._group or text == "BEGIN" or text.startswith(_XA_BEGINS)
            if _ends(kind, text, group=self._group):
                if self.flavor == "file":
                    found.gtid = f"{self._file}:{HEADER.unpack_from(outer)[4]}"
                self._open = None
                return found
        return None

    def _begin(self, event: bytes) -> None:
        kind = event[4]
        if kind == GTID_TAGGED and not self._to_place:
            raise PositionLostError(
                "tagged GTIDs, which mysql-replication cannot read: a stretch with these is found "
                "only on the server that it was captured from",
                operation=_OPERATION,
                source=str(self._config.shard),
            )
        unnamed = kind in {ANONYMOUS, GTID_TAGGED}
        self._open = SecondTransaction("" if unnamed else self._decoder.gtid(event))
        self._group = kind == MARIADB_GTID and not event[HEADER.size + 12] & _STANDALONE

    def _take(self, found: SecondTransaction, event: bytes) -> None:
        kind = event[4]
        if kind == TABLE_MAP:
            self._decoder.note_table(event)
        elif kind in ROWS:
            rows = self._decoder.rows(event)
            if self._largest and found.bytes > self._largest:
                found.rows.clear()
                found.unread = f"larger than {self._largest:,} bytes"
            elif rows is not None:
                found.rows.append(rows)
        elif kind == PARTIAL_ROWS:
            found.unread = "updates of JSON are logged in part"

    # --- the connection ---------------------------------------------------------------------------

    def _ask(self) -> None:
        """Say what a replica says, and ask for the log."""
        start, server_id = self._start, probe_server_id(random.Random())  # noqa: S311
        settings: dict[str, object] = {"master_binlog_checksum": self._checksum}
        file, offset = (start.file, start.offset) if self._by_file else ("", BINLOG_START)
        if self._mariadb:
            settings |= {"mariadb_slave_capability": 4, "slave_gtid_strict_mode": 0}
            if not self._by_file:
                settings["slave_connect_state"] = str(start.executed)
        else:
            settings["source_binlog_checksum"] = self._checksum
        command = _DUMP
        payload = struct.pack("<IHI", offset, _NON_BLOCKING, server_id) + file.encode()
        if self.flavor == "mysql":
            command, executed = _DUMP_GTID, encode_gtid_set(start.executed)
            payload = struct.pack("<HII", _THROUGH_GTID | _NON_BLOCKING, server_id, len(file))
            payload += file.encode() + struct.pack("<QI", offset, len(executed)) + executed
        names = ", ".join(f"@{name} = %s" for name in settings)
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(f"SET {names}", list(settings.values()))
            self._connection.send_command(command, payload)
        except pymysql.err.Error as error:
            raise self._failure(error) from error

    def _events(self) -> Iterator[bytes]:
        """Events as they come, checked against their checksums and without them."""
        with_checksums = self._checksum != "NONE"
        while True:
            try:
                packet = self._connection.read_log_packet()
            except pymysql.err.Error as error:
                raise self._failure(error) from error
            if packet is None:
                return
            event = packet[1:]
            self.bytes += len(event)
            # MariaDB writes a STOP event of a clean shutdown, which is a header and nothing else.
            if len(event) < HEADER.size + 4 * with_checksums:
                raise garbled("an event is shorter than its header")
            fits = zlib.crc32(event[:-4]) == int.from_bytes(event[-4:], "little")
            has_one = with_checksums
            if event[4] == FORMAT:  # has one always, and says whether the others do
                with_checksums, has_one = event[-5] == _CRC32, True
            elif event[4] == ROTATE and not fits:  # made up before the file was opened
                has_one = False
            elif has_one and not fits:
                raise garbled("an event's checksum does not fit its bytes")
            yield event[:-4] if has_one else event

    def _reached(self, event: bytes) -> bool:
        """Whether the stretch ends behind this event; follows which file is read."""
        _, kind, _, _, end, flags = HEADER.unpack_from(event)
        if kind == ROTATE:
            self._file = event[HEADER.size + 8 :].decode("utf-8", "replace")
            return False
        here = self._file == self._end.file and not flags & _ARTIFICIAL and kind != FORMAT
        return bool(here and end and end == self._end.offset & _LARGEST_OFFSET)

    def _failure(self, error: pymysql.err.Error) -> RatchetError:
        if isinstance(error, UnsoundAnswer):
            return server_failure(error, operation=_OPERATION, source=str(self._config.shard))
        code, text = code_and_text(error)
        return binlog_failure(text, code=code, operation=_OPERATION, source=str(self._config.shard))


def _ends(kind: int, text: str, *, group: bool) -> bool:
    """Whether a transaction ends with an event."""
    if kind in {XID, XA_PREPARE, INCIDENT} or text in {"COMMIT", "ROLLBACK"}:
        return True
    return kind in {QUERY, QUERY_COMPRESSED} and not group


class _Count:
    """Which transactions belong to the stretch, and their `seq`."""

    def __init__(self, start: Position, end: Position) -> None:
        self._flavor = start.flavor
        self._end: GtidSet = end.executed
        self._held: GtidSet = start.executed
        self._seq, self._left = start.seq, end.seq - start.seq
        self._last = {origin: spans[-1][1] for origin, spans in start.executed.intervals.items()}

    @property
    def complete(self) -> bool:
        """Whether all have come."""
        return self._left <= 0

    def takes(self, one: SecondTransaction) -> bool:
        """Whether it belongs to the stretch; gives it its `seq` if it does."""
        step = 1
        if one.gtid:
            gtid = parse_gtid(self._flavor, one.gtid)
            if not self._end.contains(gtid):
                return False
            if self._flavor == "mysql":
                # One of two with the same name: nothing of it was captured (`ingest.binlog.walk`).
                if self._held.contains(gtid):
                    return False
                self._held = self._held.with_interval(gtid.origin, gtid.number, gtid.number)
            else:
                step = gtid.number - self._last.get(gtid.origin, 0)
                self._last[gtid.origin] = gtid.number
        self._seq += step
        self._left -= step
        one.seq = self._seq
        return True
