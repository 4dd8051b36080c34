"""Before a dump that reads some of a table's shards: the rows of the others stay, and no more.

What goes are the rows of shards that are over, and of the ones that are dumped now. What they hid
in the side table comes to light: the dump has a side table of its own, so whatever is alive has to
be in the mirrored table. Where two rows of a key are, the end of the catch-up chooses (`collapse`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ratchet.core.dumps import FORMAT_VERSION, app_id
from ratchet.core.types import InvalidValuePolicy
from ratchet.merge import reduce, side, sql
from ratchet.merge.ancestry import NO_ANCESTRY
from ratchet.merge.delta import append_delta, commit_session, read_delta, view
from ratchet.merge.failures import spark_errors
from ratchet.merge.plan import shape_of
from ratchet.store import layout
from ratchet.store.delta.tables import app_version, table_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ratchet.merge.shape import Shape
    from ratchet.store.files import Lake
    from ratchet.store.tables import TableState


def keep_rows(
    spark: SparkSession, lake: Lake, state: TableState, *, policy: InvalidValuePolicy
) -> None:
    """Leave the rows that a dump keeps in its table; once, whatever is killed.

    Args:
        spark: any session of the application.
        lake: the lake.
        state: the table; nothing of its dump has been read yet, or this does nothing.
        policy: decides about the lake's types.

    Raises:
        RetryableError: a conflict or a failure of Spark.
        OperatorError: the disk is full.
    """
    dump = state.dump
    if dump is None or dump.kept is None:
        return
    if app_version(lake, state.path, app_id(dump.id)) is not None:
        return
    shape = shape_of(state, policy, NO_ANCESTRY)
    with spark_errors("keep the rows of other shards", table=state.name):
        session = commit_session(
            spark,
            lake=lake,
            path=state.path,
            app_id=app_id(dump.id),
            version=0,
            metadata={"ratchet": FORMAT_VERSION, "kept": dump.id},
            now=time.time_ns() // 1000,
            extra=reduce.WINDOW_SETTINGS,
        )
        names = ", ".join(map(sql.text, dump.kept.names))
        goes = f"NOT (t.{sql.TOKEN}.shard IN ({names}))"
        target = f"delta.{sql.quoted(lake.hadoop_uri(state.path))}"
        statement = f"DELETE FROM {target} t WHERE {goes}"
        before = layout.side_path(state.keyspace, state.table, dump.kept.dump)
        if table_version(lake, before):
            uri = lake.hadoop_uri(before)
            waiting = f"kind = {side.TRUNCATED} AND shard IN ({names})"
            _copy(read_delta(session, uri).where(waiting), lake, state, shape)
            hidden = view(_hidden(session, uri, shape, names))
            statement = _merge(target, hidden, shape, goes)
        session.sql(statement).collect()


def _merge(target: str, hidden: str, shape: Shape, goes: str) -> str:
    columns = shape.columns.names
    listed = ", ".join(map(sql.quoted, columns))
    values = ", ".join(f"s.row.{sql.quoted(name)}" for name in columns)
    return (
        f"MERGE INTO {target} t USING {hidden} s "
        f"ON {shape.row_has_key('t', 's')} AND t.{sql.TOKEN}.shard = s.shard "
        f"WHEN NOT MATCHED THEN INSERT ({listed}, {sql.TOKEN}) VALUES ({values}, s.token) "
        f"WHEN NOT MATCHED BY SOURCE AND {goes} THEN DELETE"
    )


def _hidden(session: SparkSession, uri: str, shape: Shape, names: str) -> DataFrame:
    """Live registers of the kept shards that the side table knows; those shown may be among them.

    Of a register that the mirrored table shows, what the side table says is older.
    """
    recorded = read_delta(session, uri)
    known = side.registers(session, recorded, shape).where(f"shard IN ({names})")
    marks = side.read_marks(session, recorded)
    alive = reduce.newest_per(session, known.selectExpr("*", "false AS fresh"), shape).where(
        "NOT dead"
    )
    return alive.where(f"NOT ({sql.before_marks('token', marks)})") if marks else alive


def _copy(marks: DataFrame, lake: Lake, state: TableState, shape: Shape) -> None:
    """Truncations that wait for those of siblings (merge.ancestry) go on waiting."""
    if not marks.isEmpty():
        now = marks.selectExpr("unix_micros(max(written_at)) AS now").collect()[0].now
        dump = state.dump.id if state.dump else ""
        side.ensure_side(lake, state.side_path, shape, now=now)
        append_delta(marks, lake, state.side_path, app_id=app_id(dump), now=now)
