"""Which tables hang on which by the foreign keys that change rows.

Lives here: `KeyGraph`, put together from the tables' states and from what a run noted of all
others. Does not live here: what a change of a parent leads to (`follow`), what a statement about
one does (`reach`).

Invariant: a table that is being dumped, has stopped or is not in the lake yet is in the graph with
its keys as well: a server follows them, and leads on by it to tables that are merged. If these keys
are not known, what hangs on the table is `unread`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ratchet.core.foreignkeys import ForeignKey
from ratchet.store.files import Lake
from ratchet.store.keynotes import NO_KEY_NOTES, KeyNotes, read_key_notes
from ratchet.store.tables import TableState


@dataclass(frozen=True)
class KeyGraph:
    """The foreign keys between tables of the same keyspace. Tables are named keyspace.table.

    Attributes:
        by_child: table -> the tables to which its keys lead that change rows, and those keys; keys
            into other databases are left out.
        unknown: tables to which such keys lead, and whose own are not known.
    """

    by_child: Mapping[str, tuple[tuple[str, ForeignKey], ...]]
    unknown: frozenset[str] = frozenset()

    @classmethod
    def of(cls, states: Iterable[TableState], notes: KeyNotes = NO_KEY_NOTES) -> KeyGraph:
        """Put it together.

        Args:
            states: all tables'. What one past its dump says counts: it has been brought up to
                the round that is merged.
            notes: keys of the others.
        """
        told = {
            (state.keyspace, state.table): state.foreign_keys
            for state in states
            if state.is_past_dump and state.foreign_keys is not None
        }
        noted = {
            (keyspace, table): keys
            for keyspace, tables in notes.items()
            for table, keys in tables.items()
        }
        by_child: dict[str, tuple[tuple[str, ForeignKey], ...]] = {}
        unknown = set()
        for (keyspace, table), keys in (noted | told).items():
            own = [one for one in keys if one.changes_rows and not one.parent_database]
            if own:
                by_child[f"{keyspace}.{table}"] = tuple((f"{keyspace}.{k.parent}", k) for k in own)
            unknown |= {
                f"{keyspace}.{one.parent}"
                for one in own
                if keyspace not in notes and (keyspace, one.parent) not in told
            }
        return cls(by_child, frozenset(unknown))

    @cached_property
    def by_parent(self) -> Mapping[str, Sequence[tuple[str, ForeignKey]]]:
        """Table -> the tables that hang on it directly, and by which key."""
        found: dict[str, list[tuple[str, ForeignKey]]] = {}
        for child, keys in self.by_child.items():
            for parent, key in keys:
                found.setdefault(parent, []).append((child, key))
        return found

    @cached_property
    def unread(self) -> Mapping[str, str]:
        """Table -> one over which it hangs and whose own keys are not known."""
        return {below: name for name in sorted(self.unknown) for below in self.below(name)}

    @cached_property
    def switched(self) -> Mapping[str, Sequence[tuple[str, ForeignKey]]]:
        """`by_parent` with those keys alone of which the log may not tell if they were followed."""
        found = {
            parent: [(child, key) for child, key in hung if key.switched]
            for parent, hung in self.by_parent.items()
        }
        return {parent: hung for parent, hung in found.items() if hung}

    def below(self, name: str) -> frozenset[str]:
        """The tables that hang on one, directly or over others; itself if it is among them."""
        return _reached(name, self.by_parent)

    def above(self, name: str) -> frozenset[str]:
        """The tables over which one hangs, directly or over others; without itself."""
        return _reached(name, self.by_child) - {name}


def read_graph(lake: Lake, states: Iterable[TableState]) -> KeyGraph:
    """The graph of a lake's tables.

    Args:
        lake: where the notes are.
        states: all tables'.

    Raises:
        LakeError: the lake cannot be read.
    """
    states = list(states)
    if not any(state.foreign_keys for state in states):
        return KeyGraph.of(())  # no table can be reached that has no key: spares a look
    graph = KeyGraph.of(states)
    read = all(state.foreign_keys is not None for state in states if state.is_past_dump)
    return graph if read and not graph.unknown else KeyGraph.of(states, read_key_notes(lake))


def _reached(name: str, steps: Mapping[str, Sequence[tuple[str, ForeignKey]]]) -> frozenset[str]:
    found: set[str] = set()
    todo = [name]
    while todo:
        for other, _ in steps.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return frozenset(found)
