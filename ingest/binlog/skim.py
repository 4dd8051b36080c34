"""Reading through a binlog without capturing it: for what it says of its transactions.

Lives here: `LogScanner`. Does not live here: what is looked for (`seek`, `history`), following
(`feed`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Self

from ratchet.core.errors import RatchetError, RetryableError
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.ingest.binlog.notes import TransactionBatch
from ratchet.ingest.binlog.payload import LIMIT as SIDE_LIMIT
from ratchet.ingest.binlog.reader import Reader
from ratchet.ingest.binlog.workflows import SIDECAR
from ratchet.ingest.slices import DRAINED
from ratchet.wire.binlog import BinlogStream, DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.hints import ServerCatalog

# As many bytes have to come in so many seconds. A server that looks for the place to begin sends
# none, for as long as it takes to read a file of its log.
_WINDOW: Final = 300.0
_LEAST: Final = 1 << 20
_NOTHING: Final = TablePatterns(("!*",))


class LogScanner:
    """A stream that is read through, and left out but for what it says of itself.

    Args:
        source: the server.
        start: where to begin.
        options: how the binlog is asked for.
        watched: tables of Vitess's sidecar database whose rows are read.
        keep: gets each batch of transactions; see Reader.

    Raises:
        PositionLostError: the server does not have what follows `start`.
        RatchetError: the stream cannot be opened.
    """

    def __init__(
        self,
        source: SourceConfig,
        start: Position,
        options: DumpOptions,
        *,
        watched: frozenset[str] = frozenset(),
        keep: Callable[[TransactionBatch], int] = lambda _: 0,
    ) -> None:
        self._shard = source.shard
        self._stream = BinlogStream(source, start, options)
        self._reader = Reader(
            shard=source.shard,
            database=source.database,
            patterns=_NOTHING,
            start=self._stream.start,
            catalog=ServerCatalog(self._stream.control, keyspace=source.shard.keyspace),
            keep=keep,
            sidecar=(SIDECAR, watched),
        )
        self._head: GtidSet = self._stream.control.head().executed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(
        self, *, not_after: int | None = None, enough: Callable[[], bool] = lambda: False
    ) -> Position:
        """Up to a time, to the end that the log had at the beginning, or until it is enough.

        Raises:
            RetryableError: what is left comes too slowly, or never.
            RatchetError: the server does not give it.
        """
        stream, reader = self._stream, self._reader
        since, received = time.monotonic(), stream.received
        reader.start_slice(known=frozenset(), limit=1 << 62, not_after=not_after)
        while not enough():
            try:
                stream.first, limited = reader.feed(
                    stream.data, stream.index, stream.first, stream.count
                )
            except RatchetError:
                # What stands behind that which is looked for is of no concern: else no remedy for
                # it would get past this look.
                reader.flush()
                if enough():
                    break
                raise
            if limited:
                break
            if reader.between and reader.position().executed.contains_all(self._head):
                break
            if stream.is_full or reader.side_bytes > SIDE_LIMIT or stream.first == stream.count:
                reader.flush()
                stream.recycle()
            if time.monotonic() - since > _WINDOW:
                self._require_pace(stream.received - received)
                since, received = time.monotonic(), stream.received
            # Asked first: a server may refuse what stands behind that which is looked for.
            if not enough():
                stream.receive(DRAINED)
        reader.flush()
        return Position(executed=reader.position().executed)

    def _require_pace(self, received: int) -> None:
        """A run waits for this before it begins: who sends byte by byte holds up the others."""
        if received < _LEAST:
            raise RetryableError(
                f"the log comes too slowly: {received} bytes in {_WINDOW:.0f} s",
                operation="read through the binlog",
                source=str(self._shard),
                hint="check the network and the server's load",
            )
