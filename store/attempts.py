"""Tables whose merges have ended a run, or are being tried: a JSON file.

Lives here: the record and its file. Does not live here: what is counted, and when a table is set
aside (`merge.attempts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ratchet.store import layout
from ratchet.store.files import Lake
from ratchet.store.notes import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is known of the merges of one table above one round.

    Attributes:
        above: the round that the table holds; another one is another matter.
        runs: how many runs have tried, and did not get further.
        error: what the last one of them said; empty if it said nothing, as one that was killed.
        aside: whether the table was set aside although no other one's merge had gone well, and
            none has since.
    """

    above: int
    runs: int = 0
    error: str = ""
    aside: bool = False


def read_attempts(lake: Lake) -> dict[str, Attempt]:
    """App id of a table's merges -> what is known of them.

    Raises:
        LakeError: the lake cannot be read.
    """

    def parse(noted: Any) -> dict[str, Attempt]:
        return {key: Attempt(**one) for key, one in noted.items()}

    return Notes(lake).read(layout.ATTEMPTS_FILE, parse, {})


def write_attempts(lake: Lake, attempts: Mapping[str, Attempt]) -> None:
    """Note them.

    Raises:
        LakeError: the lake cannot be written.
    """
    noted = {key: asdict(one) for key, one in sorted(attempts.items())}
    lake.write_json(Notes(lake).own(layout.ATTEMPTS_FILE), noted)
