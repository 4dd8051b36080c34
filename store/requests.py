"""What a command asks of a run that has the lease: one small file per request.

Lives here: `Request` and `Requests`. Does not live here: doing it (`jobs.run.serving`), asking
(`jobs.run.tablecommands`).

Invariant: a request stays until it has been done or refused, over any number of runs; whoever
asked takes a refusal away.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, field
from typing import Literal

from ratchet.store import layout
from ratchet.store.failures import sound
from ratchet.store.files import Lake

Kind = Literal["add", "redump", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One wish about one table.

    Attributes:
        kind: "add": mirror it, the config takes it in by now; "redump": dump it again; "drop":
            forget it, the config leaves it out by now.
        keyspace: its keyspace.
        table: its name.
        delete: drop: remove its files as well.
        asked_at: microseconds UTC.
        id: unique.
    """

    kind: Kind
    keyspace: str
    table: str
    delete: bool = False
    asked_at: int
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def name(self) -> str:
        """keyspace.table, for messages."""
        return f"{self.keyspace}.{self.table}"

    @property
    def path(self) -> str:
        """Its file, relative to the lake's root: in the order in which they were asked."""
        return f"{layout.REQUESTS}/{self.asked_at:020d}-{self.id}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request was not done.

    Attributes:
        message: one sentence.
        hint: the remedy.
        passes: whether it may be done later.
    """

    message: str
    hint: str
    passes: bool = False


class Requests:
    """The requests of one lake. Every call reads or writes files."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def ask(self, request: Request) -> None:
        """Leave a request for whoever merges.

        Raises:
            LakeError: it cannot be written.
        """
        self._lake.write_json(request.path, {"request": asdict(request)})

    def pending(self) -> list[Request]:
        """Those that wait, the oldest first."""
        found = []
        for file in sorted(self._lake.list(layout.REQUESTS), key=lambda file: file.path):
            data = self._lake.read_json(file.path)
            if data is not None and "refusal" not in data:
                with sound(file.path):
                    found.append(Request(**data["request"]))
        return found

    def done(self, request: Request) -> None:
        """It is done, or nobody wants it any more."""
        self._lake.delete(request.path)

    def refuse(self, request: Request, refusal: Refusal) -> None:
        """It cannot be done."""
        data = {"request": asdict(request), "refusal": asdict(refusal)}
        self._lake.write_json(request.path, data)

    def answer(self, request: Request) -> Refusal | Literal["done", "waiting"]:
        """What has become of a request."""
        data = self._lake.read_json(request.path)
        if data is None:
            return "done"
        with sound(request.path):
            return Refusal(**data["refusal"]) if "refusal" in data else "waiting"
