"""The lake as a command of recovery has it: held, or only read, for a dry run.

Lives here: that choice. Does not live here: the lease (`store.lease`), what is done with the lake.

Invariant: a lake whose log of rounds is older than its newest cut is refused in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ratchet.store.files import Lake
from ratchet.store.lease import Lease
from ratchet.store.takeover import refuse_older_rounds


@contextmanager
def held_lake(
    lake: Lake, command: str, *, dry_run: bool
) -> Iterator[tuple[Lake, Callable[[], None]]]:
    """The lake to work with, and what is to be called before anything is committed.

    Args:
        lake: a lake that is ours.
        command: for messages about whoever holds it.
        dry_run: whether it is only read: then nobody is kept out, and nothing is written.

    Raises:
        LakeError: another run holds it, or its parts are of different ages.
    """
    if dry_run:
        refuse_older_rounds(lake)
        yield lake, _nothing
        return
    with Lease.acquire(lake, command) as lease:
        lease.start(lambda _: None)  # `check` tells of it
        yield lease.lake, lease.check


def _nothing() -> None:
    """A dry run has no lease to lose."""
