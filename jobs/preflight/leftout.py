"""The dump's look at the servers: which tables it may dump, which are left out, and why.

Lives here: `LeftOutCheck`. Does not live here: the look itself (`discover`), the rules (`unfit`),
where those that are left out are noted for `ratchet status` (`store.leftout`).

Invariant: after each look the lake has all tables that the config names and the run leaves out, and
no others: one that has come while the run goes on, and one that has been mended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ratchet.jobs.preflight.unfit import UnfitReason
from ratchet.jobs.topology.discover import DiscoveredTable, Tell
from ratchet.store.leftout import LeftOutTable, LeftOutTables


class TableDiscovery(Protocol):
    """Asks the servers for their tables (`discover.look`)."""

    def __call__(self, *, unfit: Tell, locked: Callable[[str], None]) -> Sequence[DiscoveredTable]:
        """The tables there are; `unfit` and `locked` as of `discover.look`."""


class LeftOutCheck:
    """Looks, and notes what is left out. For one thread.

    Attributes:
        locked: keyspaces of which the last look does not tell: a table is kept locked there.

    Args:
        look: asks the servers.
        refused: why a table must not be mirrored; None: it may be.
        noted: where those are kept that are left out.
        tell: told of each table that nothing can mirror.
    """

    def __init__(
        self,
        look: TableDiscovery,
        refused: Callable[[str, str], UnfitReason | None],
        *,
        noted: LeftOutTables,
        tell: Tell,
    ) -> None:
        self._look, self._refused = look, refused
        self._noted, self._tell = noted, tell
        self.locked: frozenset[str] = frozenset()

    def tables(self) -> list[DiscoveredTable]:
        """The tables that may be mirrored.

        Raises:
            RetryableError: a server does not answer.
            SourceUnfitError: a server refuses us.
            LakeError: what is left out cannot be noted.
        """
        out: dict[str, LeftOutTable] = {}

        def leave_out(name: str, reason: str, hint: str) -> None:
            keyspace, _, table = name.partition(".")
            out[name] = LeftOutTable(keyspace=keyspace, table=table, reason=reason, hint=hint)
            self._tell(name, reason, hint)

        fit, locked = [], set[str]()
        for one in self._look(unfit=leave_out, locked=locked.add):
            why = self._refused(one.keyspace, one.table)
            if why is None:
                fit.append(one)
            else:
                leave_out(one.name, why.message, why.mend)
        before = [one for one in self._noted.list() if one.keyspace in locked]
        self._noted.save([*before, *out.values()])
        self.locked = frozenset(locked)
        return fit
