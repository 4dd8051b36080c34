"""What the pieces of a soak before this one came to, kept beside its lake.

Lives here: the file, read and written. Does not live here: how a piece goes (`__main__`).

A soak of eight hours outlives what a machine is lent for. So it may be done in pieces: servers,
lake and this file stay, and the next piece goes on with them. In between everything is off.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from bench.soak.samples import Sample

_NAME: Final = "soak.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What was until now.

    Attributes:
        pieces: begun until now.
        seconds: of writing.
        changes: of rows.
        kills: of the run.
        ends: exit code -> runs that ended by themselves.
        samples: in the order of time; `at` counts the seconds of writing.
    """

    pieces: int = 0
    seconds: float = 0.0
    changes: int = 0
    kills: int = 0
    ends: Counter[int]
    samples: list[Sample]

    @classmethod
    def read(cls, home: Path) -> Self:
        """The past of the soak in this folder; an empty one, if there is none."""
        try:
            found = json.loads((home / _NAME).read_text())
        except FileNotFoundError:
            return cls(ends=Counter(), samples=[])
        ends = Counter({int(code): count for code, count in found.pop("ends").items()})
        samples = [Sample(**one) for one in found.pop("samples")]
        return cls(**found, ends=ends, samples=samples)

    def write(self, home: Path) -> None:
        """Keep it for the next piece, which may follow at any moment."""
        new = home / f"{_NAME}.new"
        new.write_text(json.dumps({**asdict(self), "ends": dict(self.ends)}))
        new.replace(home / _NAME)
