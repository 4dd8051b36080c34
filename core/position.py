"""Where to resume a shard's stream. A token, which says when a row was written, is another thing.

A position is only ever taken at the end of a transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ratchet.core.gtid import Flavor, Gtid, GtidSet, format_gtid, parse_gtid


@dataclass(frozen=True, slots=True, kw_only=True)
class LastTransaction:
    """The last transaction of a position: what a server must still have the same.

    It is what a stream delivered last, or what the log had last where the stream begins.

    A set of GTIDs says which transactions, not that they are the same ones: a server whose history
    was reset, or that was restored from a backup, gives their names to others.

    Attributes:
        gtid: its name.
        committed: when it was committed, by the server that wrote it; microseconds UTC. All servers
            of a shard log the same.
        file: binlog file that it begins in, on the position's `server`; empty when unknown.
        offset: where it begins there; 0 when unknown.
    """

    gtid: Gtid
    committed: int
    file: str = ""
    offset: int = 0

    def to_json(self, flavor: Flavor) -> dict[str, Any]:
        """As plain JSON values; `from_json` reads it back."""
        return {
            "gtid": format_gtid(flavor, self.gtid),
            "committed": self.committed,
            "file": self.file,
            "offset": self.offset,
        }

    @classmethod
    def from_json(cls, flavor: Flavor, data: dict[str, Any]) -> LastTransaction:
        """Read what `to_json` wrote."""
        return cls(
            gtid=parse_gtid(flavor, data["gtid"]),
            committed=data["committed"],
            file=data["file"],
            offset=data["offset"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The end of a transaction in one shard's stream.

    Attributes:
        executed: every transaction the stream has delivered, or that was there before it began.
        server: identity of the server that `file` and `offset` belong to (MySQL: server UUID;
            MariaDB: "server_id@hostname:port"); empty when unknown.
        file: binlog file on that server, empty when unknown.
        offset: offset in bytes just behind the transaction in that file; 0 when unknown.
        last: the last transaction inside; None when it is not known: no stream has delivered one,
            and the log had none where the stream began.
    """

    executed: GtidSet
    server: str = ""
    file: str = ""
    offset: int = 0
    last: LastTransaction | None = None

    @property
    def flavor(self) -> Flavor:
        """The notation of `executed`."""
        return self.executed.flavor

    @property
    def seq(self) -> int:
        """The `seq` of the last transaction inside: the cardinality of `executed`."""
        return self.executed.cardinality

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; `from_json` reads it back."""
        return {
            "flavor": self.flavor,
            "executed": str(self.executed),
            "server": self.server,
            "file": self.file,
            "offset": self.offset,
            "last": None if self.last is None else self.last.to_json(self.flavor),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Position:
        """Read what `to_json` wrote, also before there was a `last`."""
        last = data.get("last")
        return cls(
            last=None if last is None else LastTransaction.from_json(data["flavor"], last),
            executed=GtidSet.parse(data["flavor"], data["executed"]),
            server=data["server"],
            file=data["file"],
            offset=data["offset"],
        )
