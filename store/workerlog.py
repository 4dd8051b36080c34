"""What tasks log in Spark's workers, told again where the run's log is.

Lives here: keeping the warnings of one task, and logging them once more. Does not live here: the
handlers that write the run's log (`jobs.reporting.logs`).

A worker has no handler of ours: what it logs ends in Spark's own log, which nobody reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

_ROOT: Final = "ratchet"
_MOST: Final = 50  # lines of one task: whoever writes to a source must not fill our log


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """One line.

    Attributes:
        logger: the name of its logger.
        level: as a number of `logging`.
        message: its text.
        fields: see `jobs.reporting.logs`.
    """

    logger: str
    level: int
    message: str
    fields: dict[str, Any]


class _Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[WorkerLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.lines) < _MOST:
            fields = getattr(record, "fields", {})
            self.lines.append(
                WorkerLine(record.name, record.levelno, record.getMessage(), dict(fields))
            )


@contextmanager
def kept_lines() -> Iterator[list[WorkerLine]]:
    """Keep what this process warns of meanwhile, from all threads, 50 lines at most."""
    keeper, logger = _Keeper(), logging.getLogger(_ROOT)
    logger.addHandler(keeper)
    try:
        yield keeper.lines
    finally:
        logger.removeHandler(keeper)


def tell_again(lines: Sequence[WorkerLine]) -> None:
    """Log what a worker has logged."""
    for line in lines:
        logging.getLogger(line.logger).log(
            line.level, "%s", line.message, extra={"fields": line.fields}
        )
