"""What a command asks of a run that has the lease: one small file per request.

Lives here: `Request` and `Requests`. Does not live here: doing it (`jobs.run.serving`), asking
(`jobs.run.tablecommands`).

An answer is a note of the epoch of whoever gives it (`notes`): a run that was overtaken while it
stood still can do a request, but nobody reads its answer, and the request stays for its successor.

Invariant: a request stays until whoever holds the lake has done or refused it, over any number of
runs; whoever asked takes a refused one away.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from ratchet.core.errors import DamagedFileError
from ratchet.store import layout
from ratchet.store.delta.commits import check_epoch
from ratchet.store.failures import sound
from ratchet.store.fields import flag_of
from ratchet.store.files import Lake
from ratchet.store.notes import Notes
from ratchet.store.rounds import RoundLog

log: Final = logging.getLogger(__name__)

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
        self._notes = Notes(lake)

    # --- whoever asks -----------------------------------------------------------------------------

    def ask(self, request: Request) -> None:
        """Leave a request for whoever merges.

        Raises:
            LakeError: it cannot be written.
        """
        self._lake.write_json(request.path, {"request": asdict(request)})

    def answer(self, request: Request) -> Refusal | Literal["done", "waiting"]:
        """What has become of a request, as whoever holds the lake says."""
        data = self._lake.read_json(request.path)
        if data is None:
            return "done"
        with sound(request.path):
            if "refusal" in data:  # by a version that wrote it there
                return Refusal(**data["refusal"])
        return self._answered(request) or "waiting"

    def take_back(self, request: Request) -> None:
        """Nobody wants it any more, or its refusal was read."""
        self._lake.delete(request.path)

    # --- the run ----------------------------------------------------------------------------------

    def pending(self) -> list[Request]:
        """Those that wait, the oldest first; what was answered is cleared away.

        Raises:
            LateError: another run has taken the lake over.
        """
        files = sorted(self._lake.list(layout.REQUESTS), key=lambda file: file.path)
        if not files:
            return []
        answers = {
            file.path.rpartition("/")[2]: file.path
            for file in self._lake.list(self._notes.path(layout.ANSWERS))
        }
        found = []
        for file in files:
            answered = answers.pop(file.path.rpartition("/")[2], None)
            try:
                request = self._request(file.path)
            except DamagedFileError as error:
                log.warning("%s; ask again (`ratchet table`)", error.message)
                self._lake.delete(file.path)
                continue
            if request is None:
                continue
            answer = self._answered(request) if answered else None
            if answer is None:  # there is none, or nobody can read it
                found.append(request)
            elif answer == "done":
                self._clear(request)  # whoever answered was killed before
        for path in answers.values():
            self._lake.delete(path)  # whoever asked has read it
        return found

    def _request(self, path: str) -> Request | None:
        """A request that waits; None if it was taken back, or refused.

        Raises:
            DamagedFileError: nobody can read it.
        """
        data = self._lake.read_json(path)
        if data is None:
            return None
        with sound(path):
            return None if "refusal" in data else Request(**data["request"])

    def check(self) -> None:
        """Call before anything of a request is done that no fence would refuse.

        Raises:
            LateError: another run has taken the lake over.
        """
        check_epoch(self._lake, RoundLog(self._lake).epoch(), layout.REQUESTS, "do what is asked")

    def done(self, request: Request) -> None:
        """It is done.

        Raises:
            LateError: another run has taken the lake over: it does it itself.
        """
        self._lake.write_json(self._own(request), {"done": True})
        self._clear(request)

    def refuse(self, request: Request, refusal: Refusal) -> None:
        """It cannot be done."""
        self._lake.write_json(self._own(request), {"refusal": asdict(refusal)})

    def _clear(self, request: Request) -> None:
        # After an earlier take-over this look fails. A later one copies the answer, which stands in
        # the notes by now: nothing is done twice, and nothing forgotten.
        self.check()
        self._lake.delete(request.path)
        self._lake.delete(self._own(request))

    def _own(self, request: Request) -> str:
        return self._notes.own(_answer_path(request))

    def _answered(self, request: Request) -> Refusal | Literal["done"] | None:
        def parse(data: Any) -> Refusal | Literal["done"]:
            if "refusal" in data:
                return Refusal(**data["refusal"])
            flag_of(data, "done")
            return "done"

        return self._notes.read(_answer_path(request), parse, None)


def _answer_path(request: Request) -> str:
    return f"{layout.ANSWERS}/{request.path.rpartition('/')[2]}"
