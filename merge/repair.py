"""Writes what a verification found to be the truth into a table: `ratchet repair`.

Lives here: the registers of a repair, their rank, the order of its two commits. Does not live here:
what the truth is (`snapshot.verify`), when a table may be repaired (`jobs.recovery.repair`).

All is said as of the cut that the table stands at, so the rank is (generation, seq of the cut's
position, REPAIR_IDX + number): at or above all that is merged, below all that is not. For the keys
of a repair every row of the table goes, whatever its token says (it is a row at the cut, and the
cut lacks it), and the registers take their place in one commit. What becomes a tombstone has been
appended to the side table before.

Where one shard's rows stand alone, and few are repaired, that is what a merge of the registers does
in this process (`merge.direct`): they are newer than all rows of the cut. What is not plain is left
to Spark.

Invariant: a repair's number is above that of every earlier one, of killed ones as well, so a later
repair's registers win over theirs.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ratchet.core.change import DELETE, INSERT, REPAIR_IDX, change_schema
from ratchet.core.errors import BugError
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge import reduce, side, sql
from ratchet.merge.ancestry import Ancestry
from ratchet.merge.batch import MergeBatch
from ratchet.merge.delta import append_delta, commit_session, view
from ratchet.merge.direct import merge_directly
from ratchet.merge.failures import spark_errors
from ratchet.merge.plan import shape_of
from ratchet.store import layout
from ratchet.store.crashpoints import reach
from ratchet.store.delta.errors import delta_errors
from ratchet.store.delta.tables import app_version, open_delta, table_version
from ratchet.store.failures import sound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ratchet.merge.shape import Shape
    from ratchet.store.cuts import Cut
    from ratchet.store.files import Lake
    from ratchet.store.rounds import StreamState
    from ratchet.store.tables import TableState

SCRATCH: Final = f"{layout.PRIVATE}/scratch"
_FORMAT: Final = 1

RowValues = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRow:
    """What the source had of a key at the cut.

    Attributes:
        key: the key's values as the lake has them.
        shard: only rows under this shard's name are meant; empty: all of the key.
        rows: shard -> its whole row there, or None if it had none. At most one has a row, unless
            `shard` is given.
    """

    key: RowValues
    shard: str
    rows: Mapping[str, RowValues | None]


def repair_table(
    spark: SparkSession,
    lake: Lake,
    state: TableState,
    truths: Sequence[ExpectedRow],
    *,
    cut: Cut,
    streams: Mapping[str, StreamState],
    policy: InvalidValuePolicy,
    now: int,
    direct: bool = True,
) -> int:
    """Put the truth about some keys in the place of what a table has of them.

    Args:
        spark: any session of the application.
        lake: the lake.
        state: the table; it streams, and its newest version stands at the cut exactly.
        truths: each key once.
        cut: see there.
        streams: the streams at the cut's round.
        policy: decides about the lake's types.
        now: microseconds UTC.
        direct: whether it may be done in this process (merge.direct).

    Returns:
        The table's Delta version afterwards.

    Raises:
        RetryableError: a conflict or a failure of Spark; nothing is half done that a second call
            would not mend.
        LakeError: the lake cannot be written.
    """
    shape = shape_of(state, policy, Ancestry.of(state, streams))
    app_id = _app_id(state)
    number = 1 + max(
        app_version(lake, state.path, app_id) or 0, app_version(lake, state.side_path, app_id) or 0
    )
    folder = f"{SCRATCH}/repair-{uuid.uuid4().hex[:12]}"
    metadata = {"ratchet": _FORMAT, "repair": number, "round": cut.round}
    try:
        registers = _registers(truths, shape, cut, streams, number)
        said = f"{folder}/registers.parquet"
        _write(lake, said, registers)
        if direct and _is_plain(shape, Ancestry.of(state, streams), registers, truths):
            batch = MergeBatch(
                shape=shape, path=state.path, side_path=state.side_path, app_id=app_id,
                round=number, files=[said], bytes=registers.nbytes,
                rows=registers.num_rows, may_delete=True, metadata=metadata, now=now,
                said_at=cut.round,
            )  # fmt: skip
            done = merge_directly(lake, batch, None, must_win=True)
            if done is not None:
                return done.files.version
        keys = _write(lake, f"{folder}/keys.parquet", _keys(truths, shape))
        with spark_errors("repair the table", table=state.name):
            session = commit_session(
                spark,
                lake=lake,
                path=state.path,
                app_id=app_id,
                version=number,
                metadata=metadata,
                now=now,
                extra=reduce.WINDOW_SETTINGS,
            )
            changes = reduce.newest(
                session,
                reduce.read_changes(session, lake, [said], shape),
                shape,
                ancestry=Ancestry.of(state, streams),
            ).localCheckpoint()
            reach("repair.before_side")
            _bury(session, lake, state, changes, shape, cut=cut, now=now)
            reach("repair.after_side")
            drops = session.read.parquet(keys)
            target = f"delta.{sql.quoted(lake.hadoop_uri(state.path))}"
            session.sql(_statement(target, view(_source(session, changes, drops, shape)), shape))
            reach("repair.after_merge")
    finally:
        lake.delete_folder(folder)
    return table_version(lake, state.path) or 0


def _is_plain(
    shape: Shape, ancestry: Ancestry, registers: pa.Table, truths: Sequence[ExpectedRow]
) -> bool:
    """Whether a merge of the registers puts each of them in the place of all rows of its key.

    It does unless a row is newer, or a key is there twice, which that merge finds out.
    """
    alone = not (shape.contested or ancestry) and registers.num_rows == len(truths)
    return alone and not any(truth.shard for truth in truths)


def newest_repair(lake: Lake, state: TableState) -> int:
    """The round of the cut at which a table was repaired last; 0 if it was not, since its dump.

    Raises:
        LakeError: the table cannot be read.
    """
    rounds = [0]
    for path in (state.path, state.side_path):
        if app_version(lake, path, _app_id(state)) is None:
            continue
        table = open_delta(lake, path)
        with delta_errors("look for repairs", path), sound(f"the history of {path}"):
            notes = [commit.get("userMetadata") for commit in table.history()] if table else []
            records = [json.loads(note) for note in notes if note]
        rounds += [record["round"] for record in records if "repair" in record]
    return max(rounds)


def _app_id(state: TableState) -> str:
    return f"ratchet.repair/{state.dump.id if state.dump else ''}"


def _registers(
    truths: Iterable[ExpectedRow],
    shape: Shape,
    cut: Cut,
    streams: Mapping[str, StreamState],
    number: int,
) -> pa.Table:
    """The truths as rows of a change file: an insert or a delete per key and shard.

    Of a key with a NULL in it nothing can come, so nothing is said of it.
    """
    found = []
    for truth in truths:
        if None in truth.key.values():
            continue
        if not truth.shard and sum(row is not None for row in truth.rows.values()) > 1:
            raise BugError("two shards have the key", operation="repair", table=shape.name)
        for shard, row in truth.rows.items():
            place = cut.shards[shard]
            token = {
                # Nothing in the cut was committed later; when the row was is not known.
                "ts": place.latest_ts,
                "shard": shard,
                "gtid": None,
                "generation": streams[shard].generation,
                "seq": place.position.seq,
                "idx": REPAIR_IDX + number,
            }
            found.append(
                {
                    "op": DELETE if row is None else INSERT,
                    "token": token,
                    "before": dict(truth.key) if row is None else None,
                    "after": None if row is None else dict(row),
                }
            )
    return pa.Table.from_pylist(found, schema=change_schema(shape.columns))


def _keys(truths: Iterable[ExpectedRow], shape: Shape) -> pa.Table:
    """The keys as k0, k1 ... and `shard`."""
    names = shape.key_list.split(", ")
    kinds = [shape.columns.field(name).type for name in shape.key]
    rows = [
        {**{n: truth.key[name] for n, name in zip(names, shape.key, strict=True)},
         "shard": truth.shard}
        for truth in truths
    ]  # fmt: skip
    fields = [pa.field(n, kind) for n, kind in zip(names, kinds, strict=True)]
    return pa.Table.from_pylist(rows, schema=pa.schema([*fields, pa.field("shard", pa.string())]))


def _write(lake: Lake, path: str, rows: pa.Table) -> str:
    with lake.open_output(path) as out:
        pq.write_table(rows, out)
    return lake.hadoop_uri(path)


def _bury(
    session: SparkSession,
    lake: Lake,
    state: TableState,
    changes: DataFrame,
    shape: Shape,
    *,
    cut: Cut,
    now: int,
) -> None:
    """Append the tombstones, those on the shards' ancestors among them: a shadow may be there."""
    dead = side.tombstones(session, changes, shape)
    if dead.isEmpty():
        return
    side.ensure_side(lake, state.side_path, shape, now=now)
    stamped = side.stamped(dead, round_number=cut.round, now=now)
    append_delta(stamped, lake, state.side_path, app_id=_app_id(state), now=now)


def _source(session: SparkSession, changes: DataFrame, keys: DataFrame, shape: Shape) -> DataFrame:
    """What goes (rows with `put` false, of a key or of a key and shard), and what comes."""
    names = shape.key_list
    return session.sql(
        f"SELECT {names}, shard, false AS put, NULL AS token, NULL AS row FROM {view(keys)} "
        f"UNION ALL SELECT {names}, shard, true AS put, token, row FROM {view(changes)} "
        "WHERE NOT dead"
    )


def _statement(target: str, source: str, shape: Shape) -> str:
    """One MERGE that removes and inserts; a row that comes matches nothing, so it is inserted.

    A MERGE that updated instead would leave a key doubled that is, and would have to ask whose
    token is newer; and here that is not the question.
    """
    columns = shape.columns.names
    pairs = zip(shape.key, shape.key_list.split(", "), strict=True)
    same = " AND ".join(f"t.{sql.quoted(name)} <=> s.{alias}" for name, alias in pairs)
    listed = ", ".join(map(sql.quoted, columns))
    values = ", ".join(f"s.row.{sql.quoted(name)}" for name in columns)
    return (
        f"MERGE INTO {target} t USING {source} s ON {same} AND NOT s.put "
        f"AND (s.shard = '' OR t.{sql.TOKEN}.shard <=> s.shard) "
        "WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED AND s.put THEN INSERT ({listed}, {sql.TOKEN}) VALUES ({values}, s.token)"
    )
