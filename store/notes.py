"""Where the notes of a lake lie: the files that are replaced, without a condition.

A folder can replace a file only if it is a certain one by a lock, and a lock that a process holds
which stands still holds up everybody. So each epoch has a folder of notes of its own
(`layout.noted_path`): a late writer writes into one that nobody reads any more. A marker makes an
epoch's folder the current one, when all is copied into it (`takeover`); the highest one counts.

Invariant: who holds the lake reads and writes the folder of its own epoch, whatever comes after.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ratchet.core.errors import BugError, DamagedFileError
from ratchet.store import layout
from ratchet.store.failures import is_found_again, sound
from ratchet.store.files import Lake

T = TypeVar("T")

log: Final = logging.getLogger(__name__)


class Notes:
    """Paths of notes of one lake. Cheap to make."""

    def __init__(self, lake: Lake) -> None:
        """Nothing is read yet."""
        self._lake = lake

    def path(self, path: str) -> str:
        """Where a note, or a folder of notes, is read."""
        return layout.noted_path(path, self._lake.epoch or current_epoch(self._lake))

    def read(self, path: str, parse: Callable[[Any], T], otherwise: T) -> T:
        """What a note says; `otherwise` if there is none.

        A damaged one of those that a run finds out again, as a power failure may leave them, counts
        as none: who holds the lake writes it anew.

        Args:
            path: as in `layout`.
            parse: makes it of the JSON value; raises what `core.errors.DAMAGE` names if it cannot.
            otherwise: see above.

        Raises:
            DamagedFileError: it is damaged, and nobody would find out again what it says.
            LakeError: the lake cannot be read.
        """
        whole = self.path(path)
        try:
            found = self._lake.read_json(whole)
            if found is None:
                return otherwise
            with sound(whole):
                return parse(found)
        except DamagedFileError as error:
            if not is_found_again(whole):
                raise
            log.warning("%s: the run finds out again what it said", error.message)
            return otherwise

    def own(self, path: str) -> str:
        """Where it is written.

        Raises:
            BugError: the lake is not held.
        """
        if not self._lake.epoch and current_epoch(self._lake):
            raise BugError("a lake that nobody holds is only read", operation=f"write {path}")
        return layout.noted_path(path, self._lake.epoch)


def current_epoch(lake: Lake) -> int:
    """The epoch whose notes are to be read; 0: the lake was never held."""
    return max(epochs(lake), default=0)


def epochs(lake: Lake) -> list[int]:
    """The epochs whose notes are complete."""
    names = (file.path.rpartition("/")[2] for file in lake.list(layout.EPOCHS))
    numbers = (name.removesuffix(".json") for name in names)
    return sorted(int(number) for number in numbers if number.isdigit())
