"""The binlog stream of a server: opening it at a position, receiving, framing.

Lives here: what a replica says before it asks for the dump, the dump commands of both servers,
and `BinlogStream`, which turns the socket's bytes into indexed events. Does not live here: what
events mean (`ingest.binlog`), packets (`framing`), where events that wait are kept (`window`).

Invariant: bytes of events that were not used yet stay in the buffer, over any number of slices;
an error of the server is raised only when everything before it has been used.
"""

from __future__ import annotations

import hashlib
import logging
import random
import select
import ssl
import struct
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ratchet.core.errors import DecodeError, PositionLostError, RatchetError, RetryableError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.wire import framing
from ratchet.wire.connect import SourceConfig
from ratchet.wire.continues import check_continues
from ratchet.wire.failures import HEAL_HINT, binlog_failure, torn_remedy
from ratchet.wire.logstart import first_file
from ratchet.wire.session import BINLOG_START, Session
from ratchet.wire.stream import Bytes, parse_error_packet
from ratchet.wire.window import EventBuffer, borrow, give_back

log: Final = logging.getLogger(__name__)

_REGISTER: Final = 0x15
_DUMP: Final = 0x12
_DUMP_GTID: Final = 0x1E
_THROUGH_GTID: Final = 4  # a flag of the dump command
_LARGEST_OFFSET: Final = 0xFFFFFFFF  # of COM_BINLOG_DUMP
_IDS: Final = uuid.UUID("8c5c1f0e-6f0a-4a0d-9a52-2f7d3f1f0b11")  # names our replicas' UUIDs
_OPERATION: Final = "follow the binlog"
_AHEAD: Final = 0.01  # seconds that reading ahead waits for bytes, before it looks whether to end
# Seconds until a stream should have begun: both servers take a quarter of one at most, but for a
# cold disk on which they look for the place in a large file.
FIRST_WORD: Final = 3.0
# An event, or a transaction behind its slice's end, has this long, and then has to come this fast.
STRAGGLES: Final = 15.0  # seconds
SLOWEST: Final = 16 << 10  # bytes a second
_FIRST_SERVER_ID: Final = 1 << 30  # operators count theirs from 1


def is_drip(seconds: float, received: int) -> bool:
    """Whether so many bytes in so many seconds are too few to be waited for."""
    return received < (seconds - STRAGGLES) * SLOWEST


@dataclass(slots=True)
class _Part:
    """How an event comes that is not whole yet: seconds waited since the last one, bytes then."""

    waited: float = 0.0
    received: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """How a stream is asked for.

    Attributes:
        server_id: the replica id we show; no other replica of the server may have it.
        heartbeat: seconds after which an idle server says that it is there.
        deadline: seconds of silence after which a connection counts as dead.
        verify_checksums: compute CRC32 of every event (2 GB/s; docs/decisions/0011-checksums.md).
        by_file: start at the position's file and offset where it belongs to this server.
        whole: MySQL with GTIDs: leave no file out, so that the server refuses transactions without
            a GTID that it would pass by; see `wire.logstart`.
    """

    server_id: int
    heartbeat: float = 1.0
    deadline: float = 10.0
    verify_checksums: bool = True
    by_file: bool = True
    whole: bool = False


def replica_server_id(lake: str, shard: ShardId) -> int:
    """A replica id that is the same for a lake and shard at any time, and not a small number."""
    digest = hashlib.sha256(f"{lake}\0{shard}".encode()).digest()
    return _FIRST_SERVER_ID + int.from_bytes(digest[:4], "big") % (0xFFFFFFFF - _FIRST_SERVER_ID)


def probe_server_id(rng: random.Random) -> int:
    """A replica id for a short look at a log, which must not end a stream that is open."""
    return rng.randrange(_FIRST_SERVER_ID, 1 << 32)


class BinlogStream:
    """A server's binlog from a position on.

    Attributes:
        control: a second session with the same server, for statements.
        by_file: whether it was opened by file and offset although there are GTIDs, so that the
            first transaction has to be checked.
        received: bytes so far, those of events included that are not whole yet.
        start: where it begins, with a file and offset only if those are right on this server.
    """

    def __init__(
        self,
        config: SourceConfig,
        start: Position,
        options: DumpOptions,
        accept: Callable[[Session], None] = lambda _: None,
    ) -> None:
        """Connect twice, check that the position can be had, and ask for the stream.

        Args:
            config: the shard's server or servers.
            start: where to begin.
            options: see DumpOptions.
            accept: raises if a server that has what follows `start` is of no use all the same.

        Raises:
            PositionLostError: it cannot; names what is missing.
            RetryableError: the server cannot be reached, or is behind us.
            SourceUnfitError: it refuses us.
        """
        self.config = config
        self.options = options
        self._window = EventBuffer()
        self._broken: RatchetError | None = None  # what reading ahead ended with
        self._framing = np.zeros(framing.STATE_SIZE, np.int64)
        self._framing[framing.VERIFY] = int(options.verify_checksums)
        self._silent = 0.0
        self.received = 0
        self._part = _Part()
        self._timeout: float | None = None
        self._session: Session | None = None

        def fits(session: Session) -> None:
            check_continues(session, start)
            accept(session)

        self.control = Session.connect(config, fits)
        try:
            self.flavor = self.control.flavor
            same_server = bool(start.file) and start.server == self.control.server_identity
            self.by_file = options.by_file and same_server and self.flavor != "file"
            self._sock = self._asked(start)
            self.start = self._placed(start)
        except BaseException:
            self.close()
            raise

    @property
    def data(self) -> Bytes:
        """The buffer that `index` refers to."""
        return self._window.data

    @property
    def index(self) -> npt.NDArray[np.void]:
        """Records of framing.EVENT."""
        return self._window.index

    @property
    def count(self) -> int:
        """How many events there are; new ones come behind."""
        return self._window.count

    @property
    def first(self) -> int:
        """Number of the first event that was not used yet."""
        return self._window.first

    @first.setter
    def first(self, number: int) -> None:
        self._window.first = number

    @property
    def is_full(self) -> bool:
        """Whether `recycle` has to be called before more can be received."""
        return self._window.is_full

    def receive(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for bytes and index what is whole; False if none came.

        Raises:
            RetryableError: the connection is gone, or dead by its silence.
            DecodeError: what came cannot be framed, or a checksum does not fit.
            PositionLostError, SourceUnfitError: what the server says instead of going on.
        """
        if self._broken is not None:
            raise self._broken
        window = self._window
        began = time.monotonic()
        came = not window.wants_more or self._receive(window, timeout)
        if came and window.frame(self._framing):
            self._part = _Part(received=self.received)
            return True
        if came and window.is_at_fault:
            raise self._failure()
        if window.has_part:
            self._part.waited += time.monotonic() - began
            self._refuse_drops(self._part)
        return came

    def _refuse_drops(self, part: _Part) -> None:
        """Nobody sends an event that slowly: a length is wrong, or it never ends."""
        if is_drip(part.waited, self.received - part.received):
            raise RetryableError(
                f"an event is not whole after {part.waited:.0f} s, and comes too slowly",
                operation=_OPERATION,
                source=str(self.config.shard),
                hint="check the network and the server; a run reconnects by itself",
            )

    def recycle(self) -> None:
        """Nothing refers to used events any more: make room, moving what is unused."""
        self._window.recycle()

    def recycle_behind(self, work: Callable[[], None]) -> None:
        """Do what is the last to refer to used events, and receive what follows meanwhile.

        The events behind the used ones are the same as after `recycle`, and perhaps more.

        Args:
            work: it lets go of the interpreter, or nothing is won.
        """
        ahead = borrow() if self.first else None
        if ahead is None:
            work()
            self.recycle()
            return
        idle, done = ahead, Event()
        try:
            self._window.hand_over(ahead)
            with ThreadPoolExecutor(1, thread_name_prefix="binlog") as helper:
                reading = helper.submit(self._read_ahead, ahead, done)
                try:
                    work()
                finally:
                    done.set()
            self._broken = reading.result()
            self._window, idle = ahead, self._window
        finally:
            give_back(idle)

    def _read_ahead(self, window: EventBuffer, done: Event) -> RatchetError | None:
        """Receive until told to end, or there is no use; why nothing more will come, if so."""
        try:
            while not (done.is_set() or window.is_full or window.is_at_fault):
                if not window.wants_more or self._receive(window, _AHEAD):
                    window.frame(self._framing)
        except RatchetError as error:
            return error
        return None

    def _receive(self, window: EventBuffer, timeout: float) -> bool:
        if timeout != self._timeout:
            self._sock.settimeout(timeout)
            self._timeout = timeout
        try:
            self.received += window.receive(self._sock)
        except TimeoutError:
            self._silent += timeout
            if self._silent > self.options.deadline:
                raise RetryableError(
                    f"nothing was received for {self._silent:.0f} s, not even a heartbeat",
                    operation=_OPERATION,
                    source=str(self.config.shard),
                    hint="check the network and the server; a run reconnects by itself",
                ) from None
            return False
        self._silent = 0.0
        return True

    def close(self) -> None:
        """Close both connections. Harmless when repeated."""
        for session in (self._session, self.control):
            if session is not None:
                session.close()

    def _placed(self, start: Position) -> Position:
        identity = self.control.server_identity
        last = start.last
        if last is not None and start.server != identity:
            last = replace(last, file="", offset=0)
        placed = replace(start, server=identity, last=last)
        by_place = self.by_file or self.flavor == "file"
        return placed if by_place else replace(placed, file="", offset=0)

    # --- opening ----------------------------------------------------------------------------------

    def _asked(self, start: Position) -> Any:
        """The socket of the stream, asked for once, or twice.

        A server ends an older stream with our id first. MariaDB waits for its end, and if nobody
        reads that one any more, its thread is stuck in a write, for a minute (`net_write_timeout`):
        not a byte comes from the new one. With another id there is nothing to wait for.
        """
        self._session = Session.connect(self.control.config)
        sock = self._open(self._session, start, self.options.server_id)
        if _speaks(sock, FIRST_WORD):
            return sock
        log.info(
            "%s: the server is silent: it may be waiting for an older stream of ours; trying "
            "another replica id",
            self.config.shard,
        )
        self._session.close()
        self._session = Session.connect(self.control.config)
        return self._open(self._session, start, probe_server_id(random.Random()))  # noqa: S311

    @property
    def is_verified(self) -> bool:
        """Whether events have checksums, and are compared with them."""
        return bool(self._framing[framing.CHECKSUM] and self._framing[framing.VERIFY])

    def _open(self, session: Session, start: Position, server_id: int) -> Any:
        if session.server_identity != self.control.server_identity:
            raise RetryableError(
                "two connections led to two servers",
                operation="open the binlog stream",
                source=str(self.config.shard),
                hint="let `host` name one server, not a load balancer",
            )
        options = self.options
        checksum = session.variable("binlog_checksum")
        self._framing[framing.CHECKSUM] = int(checksum != "NONE")
        settings: dict[str, object] = {
            "master_binlog_checksum": checksum,
            "master_heartbeat_period": int(options.heartbeat * 1e9),
        }
        if session.is_mariadb:
            settings["mariadb_slave_capability"] = 4
            settings["slave_gtid_strict_mode"] = 0
            if not self.by_file:
                settings["slave_connect_state"] = str(start.executed)
        else:
            settings["source_binlog_checksum"] = checksum
            settings["source_heartbeat_period"] = settings["master_heartbeat_period"]
            # By it the server finds and ends a stream of ours that we no longer listen to.
            name = str(uuid.uuid5(_IDS, str(server_id)))
            settings["slave_uuid"] = settings["replica_uuid"] = name
        names = ", ".join(f"@{name} = %s" for name in settings)
        session.execute(f"SET {names}", list(settings.values()))
        session.send_command(_REGISTER, _registration(server_id))
        session.read_reply()
        command, payload = self._dump_command(session, start, server_id)
        return session.send_command(command, payload)

    def _dump_command(self, session: Session, start: Position, server_id: int) -> tuple[int, bytes]:
        file, offset = "", BINLOG_START
        if self.by_file or self.flavor == "file":
            file, offset = start.file, start.offset
        if self.flavor == "mysql":
            if self.options.whole and not file:
                file = first_file(self.control, start)
            # Also with a file: the server leaves out what the set contains.
            executed = encode_gtid_set(start.executed)
            return _DUMP_GTID, (
                struct.pack("<HII", _THROUGH_GTID, server_id, len(file))
                + file.encode()
                + struct.pack("<QI", offset, len(executed))
                + executed
            )
        if offset > _LARGEST_OFFSET:
            if self.flavor == "mariadb":
                session.execute("SET @slave_connect_state = %s", (str(start.executed),))
                self.by_file = False
                file, offset = "", BINLOG_START
            else:
                raise PositionLostError(
                    "without GTIDs the server cannot start a stream beyond 4 GiB of a file, at "
                    f"{offset}",
                    operation="open the binlog stream",
                    source=str(self.config.shard),
                    position=str(start.executed),
                    hint=f"switch GTIDs on, or make max_binlog_size smaller; now {HEAL_HINT}",
                )
        return _DUMP, struct.pack("<IHI", offset, 0, server_id) + file.encode()

    def _failure(self) -> Exception:
        status, at = self._window.status, self._window.framed
        source, position = str(self.config.shard), f"byte {at} of the buffer"
        if status == framing.FAILED:
            size = int.from_bytes(self.data[at : at + 3].tobytes(), "little")
            packet = self.data[at + 4 : at + 4 + size].tobytes()
            code, text = parse_error_packet(packet)
            return binlog_failure(text, code=code, operation=_OPERATION, source=source)
        if status == framing.END:
            return RetryableError(
                "the server ended the stream",
                operation=_OPERATION,
                source=source,
                hint="it is shutting down, or an administrator ended the connection",
            )
        what = {
            framing.BAD_CHECKSUM: "an event's checksum does not fit its bytes",
            framing.TOO_LONG: "an event says that it has more than 1 GiB, which no server logs",
        }.get(status, "the received bytes are not binlog events")
        return DecodeError(
            what,
            operation=_OPERATION,
            source=source,
            position=position,
            hint="the server's binlog file or the network is damaged: try again, then look at the "
            "file with mysqlbinlog --verify-binlog-checksum. If the file is damaged: "
            f"{torn_remedy(source)}",
        )


def _speaks(sock: Any, seconds: float) -> bool:
    """Whether something comes within that time, be it the connection's end."""
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _registration(server_id: int) -> bytes:
    """COM_REGISTER_SLAVE: makes us visible in SHOW REPLICAS, so a second one with our id shows."""
    name = b"ratchet"
    return struct.pack("<IB", server_id, len(name)) + name + struct.pack("<BBHII", 0, 0, 0, 0, 0)


def encode_gtid_set(executed: GtidSet) -> bytes:
    """A MySQL GTID set as the dump command takes it; with tags in the form of MySQL 8.3 and up."""
    tagged = any(":" in origin for origin in executed.intervals)
    count = len(executed.intervals)
    # With tags, the first and the last byte say so and the count has the six between.
    parts = [struct.pack("<Q", count << 8 | 1 | 1 << 56 if tagged else count)]
    for origin, spans in sorted(executed.intervals.items()):
        server, _, tag = origin.partition(":")
        parts.append(uuid.UUID(server).bytes)
        if tagged:
            parts.append(bytes([len(tag) << 1]) + tag.encode())
        parts.append(struct.pack("<Q", len(spans)))
        parts += [struct.pack("<QQ", first, last + 1) for first, last in spans]
    return b"".join(parts)
