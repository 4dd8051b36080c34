"""Notes about bundles: segments that hold the small change files of many old rounds.

Lives here: what is noted of one, and the notes. Does not live here: making bundles, and removing
what they have taken the place of (`merge.bundle`); their names (`layout`).

A bundle is noted before there is anything of it. So what a kill leaves can be told by the round
log: either its rounds name the bundle, and what it was copied from can go, or the bundle can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What is noted of a bundle.

    Attributes:
        path: the bundle's, relative to the lake's root.
        round: the last of its rounds with a file in it.
        objects: what was copied into it, and is named by no round once the bundle is.
        replaced_at: when its rounds were first seen to name it, microseconds UTC; None: they may
            not name it yet.
    """

    path: str
    round: int
    objects: tuple[str, ...] = ()
    replaced_at: int | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Bundle:
        """Read what `asdict` made."""
        return cls(**{**data, "objects": tuple(data["objects"])})


class Bundles:
    """The notes of one lake. For whoever holds the lease; every call looks at the files."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._notes = Notes(lake)

    def each(self) -> Iterator[Bundle]:
        """All of them, the one with the oldest rounds first; each is read when it is its turn.

        Raises:
            LakeError: one is damaged, or the lake cannot be read.
        """
        for file in self._lake.list(self._notes.path(layout.BUNDLES)):
            name = file.path.rpartition("/")[2]
            found = self._notes.read(f"{layout.BUNDLES}/{name}", Bundle.from_json, None)
            if found is None:  # it was damaged: what it named goes with its rounds
                self._lake.delete(file.path)
            else:
                yield found

    def save(self, bundle: Bundle) -> Bundle:
        """Note it; gives it back."""
        path = layout.bundle_note_path(bundle.path)
        self._lake.write_json(self._notes.own(path), asdict(bundle))
        return bundle

    def remove(self, bundle: Bundle) -> None:
        """Forget it."""
        self._lake.delete(self._notes.own(layout.bundle_note_path(bundle.path)))
