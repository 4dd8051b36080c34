"""How far apart merge steps are: each makes a version of every table that has changed.

A version is three files or so, kept as long as it can be read, and some names in each checkpoint of
its log. A table that changes all day would get 40,000 versions a day if each round were merged at
once, and forty such tables a million and more. So a run merges at once as long as steps are rare.
Where they are not it makes about one version a second, of whichever table.
"""

from __future__ import annotations

from typing import Final

BURST: Final = 10  # steps that may follow each other at once
SECONDS: Final = 1.0  # to the next step behind these, for each table that a step has changed
SHORTEST: Final = 5.0  # seconds; at least so many
LONGEST: Final = 60.0  # seconds; at most


class StepPace:
    """When the next step may begin. For one thread.

    Args:
        interval: seconds from step to step; None: at once while steps are rare, and then by how
            many tables they change.
        now: seconds, rising.
    """

    def __init__(self, interval: float | None, *, now: float = 0.0) -> None:
        self._interval = interval
        self._steps = float(BURST)  # that may begin at once
        self._counted = now
        self._every = SHORTEST

    @property
    def is_given(self) -> bool:
        """Whether the config says how far apart steps are."""
        return self._interval is not None

    def took_step(self, began: float, tables: int) -> float:
        """Note a step; when the next one may begin.

        Args:
            began: when it began, seconds, rising.
            tables: how many it has changed.
        """
        if self._interval is not None:
            return began + self._interval
        more = max(0.0, began - self._counted) / self._every
        self._steps = min(float(BURST), self._steps + more) - 1.0
        self._counted = max(began, self._counted)
        self._every = min(max(SHORTEST, tables * SECONDS), LONGEST)
        # Below one: when what is lacking has come.
        return began + max(0.0, 1.0 - self._steps) * self._every
