"""What follows by foreign keys in one merge step: found, written as change files, and told.

Lives here: the changes that follow for each table of a step, and doubts where they cannot be told.
Does not live here: which tables hang together (`families`); merging them: to the merge they are
changes like others.

Invariant: what follows is computed from the tables as they were before the step, so a step that was
killed between two tables comes to the same when it is done again. A step in which no parent's row
was deleted, or changed in a column that children refer to, costs a look at the rounds' records.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.change import DELETE, TOKEN_TYPE, UPDATE, change_schema
from ratchet.core.errors import LakeAwayError, LakeError, TableStoppedError
from ratchet.core.foreignkeys import ForeignKey
from ratchet.core.rounds import ChangeFile, Round
from ratchet.core.schema import TableSchema
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.merge.cascades.explore import TooManyError, explore
from ratchet.merge.cascades.families import (
    applies,
    families,
    links_by_parent,
    may_touch,
    tables_below,
    touched,
)
from ratchet.merge.cascades.follow import DerivedChange, Layout, Link, descendants
from ratchet.merge.cascades.graph import KeyGraph
from ratchet.merge.cascades.openparents import first_began, written_meanwhile
from ratchet.merge.cascades.rows import ShardRows, ShardTable, UnknownRowsError
from ratchet.merge.lostparts import lost_parts
from ratchet.store import layout
from ratchet.store.delta.log import TableFiles
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake
from ratchet.store.schemas import get_schema
from ratchet.store.segments import missing
from ratchet.store.stops import Doubt
from ratchet.store.tables import TableState
from ratchet.store.unchecked import Unchecked

log: Final = logging.getLogger("ratchet.jobs.run")

_SEQ: Final = TOKEN_TYPE.get_field_index("seq")
_MESSAGE: Final = "foreign keys changed rows of it at the source, and not all of them are known: {}"


@dataclass(frozen=True, kw_only=True)
class Child:
    """A table of the step that has foreign keys which change its rows, or is between such.

    Attributes:
        state: the table.
        begin: changes of rounds behind this one are followed.
        table: the table as it was then; None: it cannot be told any more.
        holds: the round that it holds: in a step that was killed, one behind `begin`.
        catches_up: whether its dump has just ended.
        many_shards: whether rows of several shards meet in it.
        unclear: why its rows cannot be followed on any shard; empty: they can.
        floors: shard -> chunk number -> `seq` of its floor, where it is not the token's.
    """

    state: TableState
    begin: int
    table: TableFiles | None
    holds: int
    catches_up: bool = False
    many_shards: bool = False
    unclear: str = ""
    floors: Mapping[str, Sequence[int | None]] = field(default_factory=dict)


@dataclass(slots=True)
class CascadeResult:
    """What followed for one table.

    Attributes:
        files: change files that no round names.
        doubts: shard -> why not all of it can be told.
    """

    files: list[ChangeFile] = field(default_factory=list)
    doubts: dict[str, Doubt] = field(default_factory=dict)


def _first_left(child: Child, shard: str, rounds: Sequence[Round]) -> int:
    """The first `seq` of a shard that a table does not hold: all before it is merged."""
    if child.holds <= child.begin:
        return 0
    pieces = (p for r in rounds if r.number > child.holds for p in r.slices if p.shard == shard)
    return min((run.seq for piece in pieces for run in piece.runs), default=1 << 62)


def _refers_to_nothing(
    children: Mapping[str, Child], shard: str, name: str, key: ForeignKey
) -> bool:
    """Whether a key's column is NULL in all rows, so that it has not come into the lake yet."""
    child = children.get(name)
    if child is None:
        return False
    have = {column.name for column in child.state.whole.columns}
    return any(one not in have and one in child.state.nulls.get(shard, ()) for one in key.columns)


@dataclass(frozen=True, kw_only=True)
class Cascades:
    """The foreign keys of one step.

    Attributes:
        lake: the lake.
        policy: decides about the lake's types.
        states: all tables' states, whatever their phase.
        keys: which tables hang on which.
        rounds: the rounds of the step, and those before it that a table which catches up needs.
        round: the one that the step goes to.
        child: gives what is known of a table that takes part in the step; None: it does not.
        unchecked: when tables were written last without a look at foreign keys.
    """

    lake: Lake
    policy: InvalidValuePolicy
    states: Sequence[TableState]
    keys: KeyGraph
    rounds: Sequence[Round]
    round: int
    child: Callable[[TableState], Child | None]
    unchecked: Unchecked = field(default_factory=dict)

    def found(self) -> dict[str, CascadeResult]:
        """What followed, by table.

        Raises:
            LakeError: a file cannot be read or written.
        """
        keys = self.keys
        if not (touched(keys, self.rounds) or keys.unknown or keys.switched):
            return {}
        children = {
            state.name: one
            for state in self.states
            if state.name in self.keys.by_child and (one := self.child(state)) is not None
        }
        found: dict[str, CascadeResult] = {}
        streaming = {name: one for name, one in children.items() if not one.catches_up}
        if streaming:
            self._family(streaming, min(one.begin for one in streaming.values()), found)
        for name, one in children.items():
            if one.catches_up:
                self._family({name: one}, one.begin, found)
            if name in self.keys.unread:
                self._unread(one, found)
        self._switched(children, found)
        return found

    def _unread(self, child: Child, found: dict[str, CascadeResult]) -> None:
        """A table that hangs on one whose keys are not known: any change may have led to it."""
        name = child.state.name
        for value in self.rounds:
            for file in value.files if value.number > child.begin else ():
                if file.keyspace == child.state.keyspace and may_touch(file):
                    why = f"the foreign keys of {self.keys.unread[name]} are not known"
                    found.setdefault(name, CascadeResult()).doubts[file.shard] = self._doubt(why)

    def _switched(self, children: Mapping[str, Child], found: dict[str, CascadeResult]) -> None:
        """Tables with keys of which the log may not tell whether the server followed them."""
        for value in self.rounds:
            for file in value.files:
                parent = f"{file.keyspace}.{file.table}"
                for name, key in self.keys.switched.get(parent, ()):
                    if not applies(file, key):
                        continue
                    why = f"{key.switched} may have switched foreign_key_checks"
                    for below in {name, *self.keys.below(name)} & children.keys():
                        if value.number > children[below].begin:
                            mine = found.setdefault(below, CascadeResult())
                            mine.doubts.setdefault(file.shard, self._doubt(why))

    def _family(
        self, children: Mapping[str, Child], begin: int, found: dict[str, CascadeResult]
    ) -> None:
        """Tables whose rows are known as of the same round; all others are not known."""
        rounds = [one for one in self.rounds if begin < one.number <= self.round]
        for shard, names in touched(self.keys, rounds).items():
            links, layouts = self._links(children, names, shard)
            # What cannot be told of one family says nothing of another one.
            for family in families(links):
                members = {name for link in family for name in (link.child, link.parent)}
                mine = {name: layouts[name] for name in sorted(members)}
                self._on_shard(shard, children, rounds, (family, mine, names), found)

    def _links(
        self, children: Mapping[str, Child], names: set[str], shard: str
    ) -> tuple[list[Link], dict[str, Layout]]:
        """The keys by which changes of some tables may reach others, and the columns they need."""
        parents = {
            parent: [one for one in hung if not _refers_to_nothing(children, shard, *one)]
            for parent, hung in self.keys.by_parent.items()
        }
        keys: list[tuple[str, ForeignKey, str]] = []
        todo, seen = sorted(names), set(names)
        while todo:
            parent = todo.pop()
            for name, key in parents.get(parent, ()):
                keys.append((name, key, parent))
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        # Keys to parents that were not touched matter as well: which of two comes first.
        columns: dict[str, list[str]] = {name: [] for name in seen}
        for name in seen & children.keys():
            columns[name] += children[name].state.key
        for name, key, parent in keys:
            columns[name] += key.columns
            columns[parent] += key.parent_columns
        layouts = {}
        for name, wanted in columns.items():
            unique = tuple(dict.fromkeys(wanted))
            own = children[name].state.key if name in children else ()
            layouts[name] = Layout(unique, tuple(unique.index(one) for one in own))
        links = []
        for name, key, parent in keys:
            mine, theirs = layouts[name].columns, layouts[parent].columns
            child = children.get(name)
            links.append(
                Link(
                    name=key.name,
                    child=name,
                    columns=tuple(mine.index(one) for one in key.columns),
                    parent=parent,
                    parent_columns=tuple(theirs.index(one) for one in key.parent_columns),
                    on_delete=key.on_delete,
                    on_update=key.on_update,
                    padded=tuple(one in key.padded for one in key.columns),
                    unclear=key.unclear or (child.unclear if child else ""),
                    blurred=key.blurred,
                )
            )
        return links, layouts

    def _on_shard(
        self,
        shard: str,
        children: Mapping[str, Child],
        rounds: Sequence[Round],
        family: tuple[list[Link], dict[str, Layout], set[str]],
        found: dict[str, CascadeResult],
    ) -> None:
        links, layouts, changed = family
        parts, untold = self._parts(layouts, children, shard, rounds)
        layouts = {name: part.layout for name, part in parts.items()}
        links = [
            replace(link, unclear=link.unclear or untold.get(link.child, "")) for link in links
        ]
        try:
            rows = ShardRows(
                self.lake,
                shard,
                parts,
                links,
                alone=not any(one.many_shards for one in children.values()),
            )
            hazy = frozenset(name for name in children if name in parts)
            outcome = explore(layouts, links, rows, hazy=hazy)
            doubts = dict(outcome.doubts)
            moved = {name: why for name, why in untold.items() if name in changed}
            for name, why in {**tables_below(links, moved), **self._misfits(links, parts)}.items():
                doubts.setdefault(name, why)
            derived: dict[str, list[DerivedChange]] = {}
            for one in outcome.derived:
                if one.cause[_SEQ] >= _first_left(children[one.table], shard, rounds):
                    derived.setdefault(one.table, []).append(one)
            for name, changes in derived.items():
                file = self._written(children[name].state, shard, parts[name], rows, changes)
                found.setdefault(name, CascadeResult()).files.append(file)
            late = self._written_meanwhile(derived, shard, rounds, changed)
            below = {
                name: why for name, why in tables_below(links, late).items() if name in derived
            }
            for name, why in {**below, **late}.items():
                doubts.setdefault(name, why)
        except (TooManyError, UnknownRowsError, pa.ArrowInvalid) as error:
            why = str(error) or "they are too many to be followed"
            doubts = dict.fromkeys((link.child for link in links), why)
        except LakeError as error:
            why = self._lost(shard, children, rounds, parts, error)
            doubts = dict.fromkeys((link.child for link in links), why)
        doubts |= self._below_doubtful(links, children, doubts)
        for name, why in doubts.items():
            if name in children:
                found.setdefault(name, CascadeResult()).doubts[shard] = self._doubt(why)

    def _lost(
        self,
        shard: str,
        children: Mapping[str, Child],
        rounds: Sequence[Round],
        members: Collection[str],
        error: LakeError,
    ) -> str:
        """What is gone of what a family's changes are told from.

        The table that has lost it is stopped by name when it is merged or compared itself.

        Raises:
            LakeError: the one given: nothing is gone, so it failed for another reason.
        """
        if isinstance(error, LakeAwayError):
            raise error
        captured = {
            file.path: f"{file.keyspace}.{file.table}"
            for value in rounds
            for file in value.files
            if file.shard == shard and f"{file.keyspace}.{file.table}" in members
        }
        gone = missing(self.lake, captured)
        if gone:
            return f"captured changes of {captured[gone[0]]} are gone"
        for name in sorted(children.keys() & members):
            if lost_parts(self.lake, children[name].state, error):
                return f"a part of {name} is gone or damaged"
        raise error

    def _written_meanwhile(
        self,
        derived: Mapping[str, object],
        shard: str,
        rounds: Sequence[Round],
        parents: set[str],
    ) -> dict[str, str]:
        """Tables of which rows change that may have come while a parent's change was open."""
        mine = [name for name in sorted(derived) if (name, shard) in self.unchecked]
        if not mine:
            return {}
        files = (
            (value, file)
            for value in rounds
            for file in value.files
            if file.shard == shard
            and f"{file.keyspace}.{file.table}" in parents
            and may_touch(file)
        )
        return written_meanwhile(mine, shard, first_began(files), self.unchecked)

    def _doubt(self, why: str) -> Doubt:
        return Doubt(message=_MESSAGE.format(why), statement="", round=self.round)

    def _parts(
        self,
        layouts: Mapping[str, Layout],
        children: Mapping[str, Child],
        shard: str,
        rounds: Sequence[Round],
    ) -> tuple[dict[str, ShardTable], dict[str, str]]:
        """What is known of each table; and those of which nothing is, with the reason."""
        parts, untold = {}, {}
        for name, wanted in layouts.items():
            try:
                parts[name] = self._part(name, wanted, children.get(name), shard, rounds)
            except UnknownRowsError as error:
                untold[name] = str(error)
                nothing = pa.schema([(column, pa.null()) for column in wanted.columns])
                parts[name] = ShardTable(name=name, layout=Layout(wanted.columns), columns=nothing)
        return parts, untold

    def _part(
        self,
        name: str,
        wanted: Layout,
        child: Child | None,
        shard: str,
        rounds: Sequence[Round],
    ) -> ShardTable:
        files = [
            file
            for value in rounds
            for file in value.files
            if f"{file.keyspace}.{file.table}" == name and file.shard == shard
        ]
        truncated = [
            (piece.generation, event.seq, 0)
            for value in rounds
            for piece in value.slices
            if piece.shard == shard
            for event in value.events
            if event.kind == "truncate"
            and (f"{event.keyspace}.{event.table}", event.shard) == (name, shard)
        ]
        state = child.state if child else next((s for s in self.states if s.name == name), None)
        columns = self._columns(name, wanted, state, files, looked_at=child is not None)
        self._refuse_other_shapes(name, wanted, columns, state, files)
        if child is None:
            return ShardTable(name=name, layout=wanted, columns=columns, files=files)
        return ShardTable(
            name=name,
            layout=wanted,
            columns=columns,
            files=files,
            truncated=truncated,
            folder=child.state.path,
            table=child.table,
            floors=child.floors.get(shard, ()),
            dumping=child.catches_up,
        )

    def _columns(
        self,
        name: str,
        wanted: Layout,
        state: TableState | None,
        files: Sequence[ChangeFile],
        *,
        looked_at: bool,
    ) -> pa.Schema:
        """A table's columns in the lake: those of its state, or of what was captured of it."""
        known = [state.whole] if state is not None and state.schema.columns else []
        for schema in known or [self._schema(file) for file in files[-1:]]:
            found = arrow_schema(schema, self.policy)
            if set(wanted.columns) <= set(found.names):
                return found
        if not files and not looked_at:
            return pa.schema([(column, pa.null()) for column in wanted.columns])
        raise UnknownRowsError(f"{name} lacks columns that a foreign key needs")

    def _refuse_other_shapes(
        self,
        name: str,
        wanted: Layout,
        columns: pa.Schema,
        state: TableState | None,
        files: Sequence[ChangeFile],
    ) -> None:
        """Changes that were captured in another shape than the lake's cannot be laid beside it.

        Their table stops by them; what its changes led to until then is not told apart here.

        Raises:
            UnknownRowsError: there are such.
        """
        come = {column.name for column in state.added} if state is not None else set()
        for schema in {file.schema: self._schema(file) for file in files}.values():
            try:
                found = arrow_schema(schema, self.policy)
            except TableStoppedError as error:
                raise UnknownRowsError(f"{name}: {error.message}") from error
            lacks = set(wanted.columns) - set(found.names) - come
            others = [
                one.name
                for one in columns
                if one.name in found.names and found.field(one.name).type != one.type
            ]
            if lacks or others:
                raise UnknownRowsError(f"{name} has changed its columns")

    def _schema(self, file: ChangeFile) -> TableSchema:
        return get_schema(self.lake, file.keyspace, file.table, file.schema)

    def _misfits(self, links: Sequence[Link], parts: Mapping[str, ShardTable]) -> dict[str, str]:
        """Children of which a parent's values are not in the lake as they are at the source."""
        by_parent = links_by_parent(links)
        found: dict[str, str] = {}
        for link in links:
            part = parts[link.parent]
            names = {part.layout.columns[at] for at in link.parent_columns}
            if any(not names.isdisjoint(file.misfits) for file in part.files):
                why = f"{link.parent} has values that do not fit into the lake"
                found |= dict.fromkeys({link.child, *descendants(link.child, by_parent)}, why)
        return found

    @staticmethod
    def _below_doubtful(
        links: Sequence[Link], children: Mapping[str, Child], doubts: Mapping[str, str]
    ) -> dict[str, str]:
        """Tables that hang on one whose rows may be wrong already."""
        by_parent = links_by_parent(links)
        found = {}
        for name in {link.child for link in links} & children.keys():
            if children[name].state.doubts:
                for below in descendants(name, by_parent) - doubts.keys():
                    found[below] = f"it depends on {name}, which is in doubt"
        return found

    def _written(
        self,
        state: TableState,
        shard: str,
        part: ShardTable,
        rows: ShardRows,
        changes: Sequence[DerivedChange],
    ) -> ChangeFile:
        """A change file of what followed."""
        schema = change_schema(part.columns)
        places = part.layout.columns
        updates = [one for one in changes if one.after is not None]
        whole = rows.whole(part.name, [one.image for one in updates])
        for at, name in enumerate(places):
            values = [one.after[at] for one in updates if one.after is not None]
            number = part.columns.names.index(name)
            field = part.columns.field(name)
            whole = whole.set_column(number, field, pa.array(values, field.type))
        deletes = [one for one in changes if one.after is None]
        ordered = [*updates, *deletes]
        after = pa.StructArray.from_arrays(
            [column.combine_chunks() for column in whole.columns], fields=list(part.columns)
        )
        image = schema.field("after").type
        after = pa.concat_arrays([after.cast(image), pa.nulls(len(deletes), image)])
        before = pa.array([dict(zip(places, one.before, strict=True)) for one in ordered], image)
        names = [one.name for one in TOKEN_TYPE]
        tokens = pa.array([dict(zip(names, one.cause, strict=True)) for one in ordered], TOKEN_TYPE)
        op = pa.array([UPDATE] * len(updates) + [DELETE] * len(deletes), pa.int8())
        table = pa.Table.from_arrays([op, tokens, before, after], schema=schema)
        path = layout.derived_file_path(
            state.keyspace, state.table, round_number=self.round, part=secrets.randbits(60)
        )
        doing = "write what foreign keys changed"
        with lake_errors(doing, path), self.lake.open_output(path) as sink:
            pq.write_table(table, sink, compression="zstd")
        seqs = [one.cause[_SEQ] for one in ordered]
        return ChangeFile(
            keyspace=state.keyspace,
            table=state.table,
            shard=shard,
            schema=state.schema.fingerprint,
            path=path,
            rows=len(ordered),
            bytes=self.lake.size(path),
            min_seq=min(seqs),
            max_seq=max(seqs),
            inserts=0,
            updates=len(updates),
            deletes=len(deletes),
            misfits={},
        )
