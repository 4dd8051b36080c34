"""Responses of a VStream until their transactions are whole.

Lives here: `Backlog`, which indexes what was received, hands out whole transactions and keeps the
rest. Does not live here: what events mean (`feed`), receiving (`wire.vtgate`).

A transaction comes as BEGIN, FIELD and ROW events, VGTID, COMMIT, over as many responses as it
takes; its position and commit time come last. A statement (DDL) and a transaction of no concern
(OTHER) are one event behind their VGTID. CREATE TABLE ... SELECT is both: BEGIN, VGTID, DDL, FIELD
and ROW events, VGTID, COMMIT, all of one transaction. If its table is gone by now, nothing comes
behind the DDL but the next transaction.

Invariant: what is handed out ends with such an end; an open transaction stays, however large: from
`SPOOL` bytes on in a temporary file, so that memory holds the places of its events only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ratchet.core.errors import DecodeError, LakeError
from ratchet.wire.decode.engine import Engine, engine
from ratchet.wire.decode.kernels import vstream as kernels
from ratchet.wire.vstreamproto import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

# Bytes that are decoded at once. A NULL takes one here, and sixteen in memory.
_JOINED: Final = 8 << 20
SPOOL: Final = 64 << 20  # bytes of an open transaction that are held in memory
WITHIN: Final = -1  # the type that a statement within a transaction gets: it ends none


@dataclass(frozen=True, slots=True)
class BacklogEntry:
    """A stretch of the stream.

    Attributes:
        places: of its events, as wire.decode.kernels.vstream.index_events notes them, counted from
            the piece's first byte.
        held: its bytes, where they are in memory.
        spooled: the temporary file that they are in else, where they begin in it, and how many.
    """

    places: Longs
    held: Bytes | None
    spooled: tuple[IO[bytes], int, int] | None = None

    def data(self) -> Bytes:
        """Its bytes.

        Raises:
            LakeError: the temporary file cannot be read.
        """
        if self.held is not None:
            return self.held
        assert self.spooled is not None  # noqa: S101 - one of the two is there
        file, begin, size = self.spooled
        with _file_errors():
            file.seek(begin)
            return np.frombuffer(file.read(size), np.uint8)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.held.size if self.held is not None else self.spooled[2] if self.spooled else 0

    def types(self) -> Longs:
        """The types of its events."""
        return self.places[:, kernels.TYPE]


class Backlog:
    """What was received of one stream and not handed out. For one thread.

    Args:
        implementation: the kernels or their twins; by default what the environment asks for.
    """

    def __init__(self, implementation: Engine | None = None) -> None:
        self._kernels = (implementation or engine()).vstream
        self._inbox: list[bytes] = []
        self._pieces: list[BacklogEntry] = []
        self._file: IO[bytes] | None = None
        self.inbox_bytes = 0  # received and not indexed
        self.whole_bytes = 0  # of transactions that can be taken
        self.open_bytes = 0  # of the transaction that is not whole yet
        self._begun = False  # whether the last BEGIN that was indexed has no COMMIT yet
        self.holds_statement = False  # whether the open transaction began with a statement
        # Commit time of the first transaction that the last `take` left, microseconds UTC.
        self.held_ts: int | None = None

    @property
    def between(self) -> bool:
        """Whether no transaction is open, as far as what was received is indexed."""
        return self.open_bytes == 0

    def add(self, response: bytes) -> None:
        """Take a response in."""
        self._inbox.append(response)
        self.inbox_bytes += len(response)

    def index(self) -> None:
        """Find the events of what was added.

        Raises:
            DecodeError: the bytes are no responses.
        """
        if not self._inbox:
            return
        data = np.frombuffer(b"".join(self._inbox), np.uint8)
        self._inbox, self.inbox_bytes = [], 0
        count, status, place = self._kernels.count_events(data, 0, data.size)
        places = np.empty((int(count), kernels.FIELDS), np.int64)
        if status == kernels.OK:
            status, place = self._kernels.index_events(data, 0, data.size, places)
        if status != kernels.OK:
            raise DecodeError(
                f"a response of VStream ends within a field (byte {place})",
                operation="read VStream",
                hint="the stream may be damaged: try again",
            )
        piece = BacklogEntry(places, data)
        self._mark_within(piece.types())
        self._take_back(piece)
        ends = np.flatnonzero(is_end(piece.types()))
        if ends.size:
            head, tail = _split(piece, int(ends[-1]) + 1)
            self.whole_bytes += self.open_bytes + head.size
            self.open_bytes = 0
            self._pieces.append(head)
            piece = tail
        # Heartbeats alone do not make a transaction.
        if (piece.types() != messages().HEARTBEAT).any():
            self._pieces.append(piece)
            self.open_bytes += piece.size

    def _mark_within(self, types: Longs) -> None:
        """Give the statements that stand between BEGIN and COMMIT another type.

        One behind which the next transaction begins was all that came of its own.
        """
        proto = messages()
        bounds = np.flatnonzero((types == proto.BEGIN) | (types == proto.COMMIT))
        begins = types[bounds] == proto.BEGIN
        if self.holds_statement and bounds.size:
            if begins[0]:
                self.end_statement()
            self.holds_statement = False
        before = np.concatenate([[self._begun], begins]).astype(bool)
        behind = np.concatenate([begins, [False]]).astype(bool)
        statements = np.flatnonzero(np.isin(types, (proto.DDL, proto.OTHER)))
        gap = np.searchsorted(bounds, statements)
        types[statements[before[gap] & ~behind[gap]]] = WITHIN
        self._begun = bool(before[-1])
        last = int(bounds[-1]) if bounds.size else -1
        self.holds_statement |= bool((types[last + 1 :] == WITHIN).any())

    def end_statement(self) -> bool:
        """Nothing more comes of the statement that is held: it is a whole transaction.

        Returns:
            Whether one was held.
        """
        opened = 0
        while opened < len(self._pieces) and not is_end(self._pieces[-1 - opened].types()).any():
            opened += 1
        held = self._pieces[len(self._pieces) - opened :]
        found = [number for number, one in enumerate(held) if (one.types() == WITHIN).any()]
        if not found:
            return False
        for one in held:
            types = one.types()
            types[types == WITHIN] = messages().DDL
        whole = sum(one.size for one in held[: found[-1] + 1])
        self.whole_bytes += whole
        self.open_bytes -= whole
        self._begun = self.holds_statement = False
        return True

    def _take_back(self, piece: BacklogEntry) -> None:
        """Make void what a transaction brought before it began once more.

        vtgate goes on at another tablet when one is lost, from the position behind the last whole
        transaction: what it had sent of the next one by then comes again.
        """
        types, proto = piece.types(), messages()
        held = [one.types() for one in self._pieces if not is_end(one.types()).any()]
        began = any((one == proto.BEGIN).any() for one in held)
        void = (proto.ROW, proto.JOURNAL)
        for at in np.flatnonzero((types == proto.BEGIN) | is_end(types)):
            if types[at] == proto.BEGIN and began:
                for one in (*held, types[:at]):
                    behind = np.flatnonzero(is_end(one))
                    mine = one[behind[-1] + 1 if behind.size else 0 :]
                    mine[np.isin(mine, void)] = proto.HEARTBEAT
            began = bool(types[at] == proto.BEGIN)
            if not began:
                held = []

    def take(
        self, not_after: int | None = None, believed: int | None = None
    ) -> Sequence[BacklogEntry]:
        """Whole transactions, in stream order; they are not held any more.

        Args:
            not_after: microseconds UTC: the first transaction that was committed later stays, with
                all that follow it, and `held_ts` tells of it; None: none stays.
            believed: a commit time later than this is wrong, and stops nothing; None: any is right.
        """
        self.held_ts = None
        count = 0  # pieces up to the last end of a transaction that is handed out
        for number, piece in enumerate(self._pieces):
            ends = np.flatnonzero(is_end(piece.types()))
            times = piece.places[ends, kernels.TIMESTAMP] * 1_000_000
            late = np.flatnonzero(times > not_after) if not_after is not None else ends[:0]
            if believed is not None:
                late = late[times[late] <= believed]
            if late.size:
                first = int(late[0])
                self.held_ts = int(times[first])
                if first:
                    self._pieces[number : number + 1] = _split(piece, int(ends[first - 1]) + 1)
                    count = number + 1
                break
            if ends.size:
                count = number + 1
        found, self._pieces = self._pieces[:count], self._pieces[count:]
        self.whole_bytes -= sum(one.size for one in found)
        return _joined(found)

    def spool(self) -> None:
        """Move the open transaction out of memory, where it has become too large.

        Raises:
            LakeError: the temporary file cannot be written.
        """
        held = sum(one.size for one in self._pieces if one.held is not None)
        if self.whole_bytes or held < SPOOL:
            return
        with _file_errors():
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="ratchet-transaction-")  # noqa: SIM115
            for number, one in enumerate(self._pieces):
                if one.held is not None:
                    begin = self._file.seek(0, 2)
                    self._file.write(one.held.tobytes())
                    self._pieces[number] = BacklogEntry(
                        one.places, None, (self._file, begin, one.size)
                    )
            self._file.flush()

    def release(self) -> None:
        """Give the temporary file back, once nothing of it is needed any more."""
        if self._file is not None and all(one.spooled is None for one in self._pieces):
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Forget everything."""
        self._pieces = []
        self.release()


def is_end(types: Longs) -> npt.NDArray[np.bool_]:
    """Which events end a transaction, or are one."""
    proto = messages()
    return np.isin(types, (proto.COMMIT, proto.DDL, proto.OTHER))


def _split(piece: BacklogEntry, count: int) -> tuple[BacklogEntry, BacklogEntry]:
    """The first `count` events, and the others."""
    data = piece.data()
    at = int(piece.places[count - 1, kernels.END])
    rest = piece.places[count:].copy()
    rest[:, kernels.START :] -= at  # what an event lacks is from 0 to 0, and stays empty
    return BacklogEntry(piece.places[:count], data[:at]), BacklogEntry(rest, data[at:])


def _joined(pieces: Sequence[BacklogEntry]) -> Sequence[BacklogEntry]:
    """Small neighbours in memory as one: decoding a few large ones is cheaper than many small."""
    if any(one.held is None for one in pieces):
        return pieces
    runs = np.cumsum([one.size for one in pieces]) // _JOINED
    return [
        _as_one([one for one, of in zip(pieces, runs, strict=True) if of == run])
        for run in np.unique(runs)
    ]


def _as_one(pieces: Sequence[BacklogEntry]) -> BacklogEntry:
    if len(pieces) == 1:
        return pieces[0]
    begin, places = 0, []
    for one in pieces:
        moved = one.places.copy()
        moved[:, kernels.START :] += begin
        places.append(moved)
        begin += one.size
    return BacklogEntry(np.concatenate(places), np.concatenate([one.data() for one in pieces]))


@contextmanager
def _file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LakeError(
            f"a large transaction's rows cannot be kept in {tempfile.gettempdir()}: {error}",
            operation="read VStream",
            hint="make room there, or point TMPDIR to a larger disk",
        ) from error
