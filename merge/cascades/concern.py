"""Which tables foreign keys may have changed by some captured changes, without following them.

For those who lay changes over a table without merging (`merge.fresh`, `verify`): what foreign keys
did behind a cut is in no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from ratchet.core.foreignkeys import ForeignKey
from ratchet.core.rounds import ChangeFile
from ratchet.core.types import InvalidValuePolicy, arrow_schema
from ratchet.merge.cascades.families import may_touch, touching
from ratchet.merge.cascades.follow import Layout, Link
from ratchet.merge.cascades.graph import KeyGraph
from ratchet.merge.cascades.rows import ShardRows, ShardTable
from ratchet.store.files import Lake
from ratchet.store.schemas import get_schema
from ratchet.store.segments import missing


def concerned(
    lake: Lake, policy: InvalidValuePolicy, graph: KeyGraph, files: Iterable[ChangeFile]
) -> dict[str, str]:
    """Table -> a parent of which a row was deleted, or changed in what children refer to.

    Tables that hang on such a table are named as well. A file that is gone counts as such a change.

    Args:
        lake: where the files are.
        policy: decides about the lake's types.
        graph: which tables hang on which.
        files: captured changes.

    Raises:
        LakeError: a file cannot be read.
    """
    found: dict[str, str] = {}
    for file in files:
        name = f"{file.keyspace}.{file.table}"
        keys = [key for _, key in graph.by_parent.get(name, ()) if touching(file, [key])]
        if keys and (missing(lake, [file.path]) or _touches(lake, policy, file, keys)):
            for below in graph.below(name):
                found.setdefault(below, name)
        if may_touch(file):
            for below in graph.unread:
                if below.startswith(f"{file.keyspace}."):
                    found.setdefault(below, name)
    return found


def _touches(
    lake: Lake, policy: InvalidValuePolicy, file: ChangeFile, keys: Sequence[ForeignKey]
) -> bool:
    schema = get_schema(lake, file.keyspace, file.table, file.schema)
    columns = arrow_schema(schema, policy)
    names = tuple(dict.fromkeys(name for key in keys for name in key.parent_columns))
    if not set(names) <= set(columns.names):
        return True
    name = f"{file.keyspace}.{file.table}"
    links = [
        Link(
            name=key.name,
            child="",
            columns=(),
            parent=name,
            parent_columns=tuple(names.index(one) for one in key.parent_columns),
            on_delete=key.on_delete,
            on_update=key.on_update,
            padded=tuple(False for _ in key.columns),
        )
        for key in keys
    ]
    narrow = pa.schema([columns.field(one) for one in names])
    part = ShardTable(name=name, layout=Layout(names), columns=narrow, files=[file])
    rows = ShardRows(lake, file.shard, {name: part}, links, alone=True)
    for event in rows.roots():
        if event.before is None:
            continue
        for link in links:
            new = None if event.after is None else link.referred(event.after)
            if link.rule(link.referred(event.before), new) != "none":
                return True
    return False
