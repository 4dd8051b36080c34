"""Which transactions a stream has delivered: the executed set, origins by number, runs.

Lives here: `GtidTracker`. Does not live here: where a transaction begins and ends (`walk`,
`reader`).

Invariant: `executed` holds exactly the start's transactions and those that were folded in; an
origin keeps its number as long as the ledger lives.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from ratchet.core.errors import DecodeError, PositionLostError
from ratchet.core.gtid import Gtid, GtidSet, pack_file
from ratchet.core.position import LastTransaction, Position
from ratchet.core.rounds import GtidRange
from ratchet.ingest.binlog import places
from ratchet.ingest.binlog.notes import (
    Records,
    add_runs,
    join_runs,
    last_servers,
    origin_bytes,
    origin_name,
    runs_of,
)
from ratchet.wire.failures import HEAL_HINT

_ORIGINS: Final = 64


class GtidTracker:
    """The transactions of one stream.

    Attributes:
        executed: the start's and all that were folded in.
        origins: see places.Arrays.
        highs: see places.Arrays.
        runs: the folded ones since the last `restart`, in stream order.
        last: the newest transaction that was folded in, or the start's.
    """

    def __init__(self, start: Position, state: places.Ints) -> None:
        """Begin with what `start` holds; the number of origins is kept in the walker's state."""
        self.flavor = start.flavor
        self.executed = start.executed
        self.runs: list[GtidRange] = []
        self.last = start.last
        self._begun = start.executed
        self._state = state
        self._names = list(start.executed.intervals)
        room = max(_ORIGINS, 2 * len(self._names))
        self.origins = np.zeros((room, 16), np.uint8)
        self.highs = np.zeros(room, np.int64)
        for number, name in enumerate(self._names):
            self.origins[number] = np.frombuffer(self._bytes_of(name), np.uint8)
            self.highs[number] = start.executed.intervals[name][-1][1]
        state[places.ORIGINS] = len(self._names)
        state[places.SEQ] = start.seq

    @property
    def is_full(self) -> bool:
        """Whether the kernel has no room for another origin."""
        return bool(self._state[places.ORIGINS] == len(self.origins))

    def grow(self) -> None:
        """Make room for as many origins again."""
        self.origins = np.concatenate((self.origins, np.zeros_like(self.origins)))
        self.highs = np.concatenate((self.highs, np.zeros_like(self.highs)))

    def names(self) -> list[str]:
        """Origins by number, those included that the kernel has found by itself."""
        for number in range(len(self._names), int(self._state[places.ORIGINS])):
            self._names.append(origin_name(self.flavor, self.origins[number].tobytes()))
        return self._names

    def origin(self, name: str) -> int:
        """The number of an origin, a new one if need be."""
        names = self.names()
        if name in names:
            return names.index(name)
        if self.is_full:
            self.grow()
        number = len(names)
        self.origins[number] = np.frombuffer(self._bytes_of(name), np.uint8)
        self.highs[number] = 0
        self._state[places.ORIGINS] = number + 1
        names.append(name)
        return number

    def contains(self, origin: int, number: int) -> bool:
        """Whether a transaction is in the executed set."""
        return self.executed.contains(Gtid(self.names()[origin], number))

    def repeats(self, origin: int, number: int) -> bool:
        """Whether this stream has delivered another transaction under that name.

        A server that is told what is contained leaves it out, so it stands twice in its log.
        """
        begun = self._begun.contains(Gtid(self.names()[origin], number))
        return not begun and self.contains(origin, number)

    def follows(self, origin: int, number: int) -> bool:
        """Whether a transaction is the one right behind what its origin has delivered."""
        spans = self.executed.intervals.get(self.names()[origin], ())
        return number == (spans[-1][1] + 1 if spans else 1)

    def fold(self, whole: Records) -> None:
        """Take whole transactions in, which follow the ones before."""
        if not whole.size:
            return
        names = self.names()
        runs = runs_of(self.flavor, whole, names)
        self.executed = add_runs(self.executed, runs, last_servers(self.flavor, whole, names))
        self.runs = join_runs(self.flavor, self.runs, runs)

    def pass_over(self, gtids: GtidSet) -> Gtid:
        """Count transactions as delivered that the stream has passed over without a word.

        They rank behind all that were delivered, as chunks may be read behind them. Only for a
        stream that stands between two transactions, all of which are folded in.

        Args:
            gtids: at least one; none of them was delivered, nor, on a MariaDB, a later one.

        Returns:
            The one that ranks last.
        """
        seq = self.executed.cardinality + 1
        for name, spans in gtids.intervals.items():
            origin = self.origin(name)
            for first, last in spans:
                self.runs = join_runs(self.flavor, self.runs, [GtidRange(name, first, last, seq)])
                seq += last - first + 1
                # The kernel takes a higher number for a new one, without asking.
                self.highs[origin] = max(self.highs[origin], last)
        self.executed = self.executed.union(gtids)
        self._state[places.SEQ] = self.executed.cardinality
        return Gtid(name, last, gtids.servers.get(name, 0))

    def holes(self, whole: Records) -> list[tuple[int, str]]:
        """MariaDB: numbers that a domain has left out, though they were counted by the server.

        Args:
            whole: transactions that follow those which were folded in.

        Returns:
            The place in `whole` of the one behind each hole, and the numbers, for people.
        """
        found: list[tuple[int, str]] = []
        last: dict[str, int] = {}
        for at, (origin, number) in enumerate(whole[["origin", "number"]].tolist()):
            name = self.names()[origin]
            spans = self.executed.intervals.get(name, ())
            before = last.get(name, spans[-1][1] if spans else number - 1)
            if number > before + 1:
                found.append((at, f"{before + 1} to {number - 1} of domain {name}"))
            last[name] = number
        return found

    def witness(self, txn: np.void, file: str) -> None:
        """Remember the last of the transactions that were folded in, and the file it is in."""
        gtid = Gtid(self.names()[int(txn["origin"])], int(txn["number"]), int(txn["server"]))
        self.last = LastTransaction(
            gtid=gtid,
            committed=int(txn["committed"]),
            file=file,
            offset=int(txn["begin"]) if file else 0,
        )

    def file_number(self, name: str) -> int:
        """Flavour `file`: the packed number that the file's transactions begin from; else 0.

        Raises:
            DecodeError: it is not the name of a binlog file.
            PositionLostError: it is a file of another series than the position's.
        """
        if self.flavor != "file":
            return 0
        try:
            gtid = pack_file(name, 0)
        except ValueError as error:
            raise DecodeError(f"not the name of a binlog file: {name!r}") from error
        if gtid.origin not in self.names():
            raise PositionLostError(
                f"the binlog files' name is {gtid.origin!r} now, it was {self.names()}",
                operation="follow the binlog",
                hint=f"without GTIDs a position is valid only for one series of files: {HEAL_HINT}",
            )
        return gtid.number

    def at_file(self, file: str, offset: int) -> None:
        """Flavour `file`: everything before this place has been delivered."""
        gtid = pack_file(file, offset)
        self.executed = self.executed.with_interval(gtid.origin, 1, gtid.number)
        self._state[places.SEQ] = self.highs[0] = gtid.number

    def _bytes_of(self, name: str) -> bytes:
        if self.flavor == "file" or ":" in name:
            # Nothing in the stream begins with these 16 bytes but by a chance of 2**-128.
            return hashlib.sha256(name.encode()).digest()[:16]
        return origin_bytes(self.flavor, name)
