"""Named points at which a test can have the process killed, as if by `kill -9`.

`RATCHET_CRASH_AT="merge.before_cut:2"` kills the process the second time that it reaches the point.
Without the variable a point costs one look at the environment. The points in use are listed in
docs/architecture.md under "Where it can be killed".
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Final

VARIABLE: Final = "RATCHET_CRASH_AT"
PROCESS: Final = "RATCHET_CRASH_PID"  # the run's own process, for points that Spark's workers reach
_reached: Final[Counter[str]] = Counter()


def reach(name: str) -> None:
    """Die here and now if this is the point that the environment names."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    point, _, nth = wanted.partition(":")
    if point != name:
        return
    _reached[name] += 1
    if _reached[name] >= int(nth or 1):
        os.kill(int(os.environ.get(PROCESS, os.getpid())), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
