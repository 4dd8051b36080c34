"""Where to resume a shard's stream. A token, which says when a row was written, is another thing.

A position is only ever taken at the end of a transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.gtid import Flavor, GtidSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The end of a transaction in one shard's stream.

    Attributes:
        executed: every transaction the stream has delivered, or that was there before it began.
        server: identity of the server that `file` and `offset` belong to (MySQL: server UUID;
            MariaDB: "server_id@hostname:port"); empty when unknown.
        file: binlog file on that server, empty when unknown.
        offset: offset in bytes just behind the transaction in that file; 0 when unknown.
    """

    executed: GtidSet
    server: str = ""
    file: str = ""
    offset: int = 0

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
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Position:
        """Read what `to_json` wrote."""
        return cls(
            executed=GtidSet.parse(data["flavor"], data["executed"]),
            server=data["server"],
            file=data["file"],
            offset=data["offset"],
        )
