"""Named points at which a test can have the process killed, as if by `kill -9`, or halted.

`RATCHET_CRASH_AT="merge.before_cut:2"` kills the process the second time that it reaches the point;
`RATCHET_HALT_AT` stops it there, as a frozen machine does (SIGSTOP), until it gets SIGCONT. Without
the variables a point costs two looks at the environment. The points in use are listed in
docs/architecture.md under "Where it can be killed".
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Final

VARIABLE: Final = "RATCHET_CRASH_AT"
HALT: Final = "RATCHET_HALT_AT"
PROCESS: Final = "RATCHET_CRASH_PID"  # the run's own process, for points that Spark's workers reach
_reached: Final[Counter[tuple[str, str]]] = Counter()


def reach(name: str) -> None:
    """Die, or stand still, here and now if this is the point that the environment names."""
    if _is_it(name, VARIABLE):
        os.kill(int(os.environ.get(PROCESS, os.getpid())), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    if _is_it(name, HALT):
        os.kill(int(os.environ.get(PROCESS, os.getpid())), signal.SIGSTOP)


def _is_it(name: str, variable: str) -> bool:
    wanted = os.environ.get(variable)
    if not wanted:
        return False
    point, _, nth = wanted.partition(":")
    if point != name:
        return False
    _reached[variable, name] += 1
    # A process dies once; one that has stood still goes on.
    count, number = _reached[variable, name], int(nth or 1)
    return count == number if variable == HALT else count >= number
