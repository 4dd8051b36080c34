"""The side table: what the mirrored table cannot show, but must not be forgotten.

Rows of it are appended only, and read as a log: for a key and a shard the highest rank holds.
  TOMBSTONE  the key is deleted on the shard as of the token
  SHADOW     a live row of the shard that loses against the row of another shard; `row` is whole
  TRUNCATED  all rows of the shard are gone as of the token; no key
Invariant: a register (what one shard last said of one key) that leaves the mirrored table has been
appended here before, in a commit of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ratchet.merge import sql
from ratchet.merge.delta import view
from ratchet.merge.reduce import Mark
from ratchet.merge.shape import Shape
from ratchet.store.delta.tables import create_delta_table, stats_columns
from ratchet.store.files import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOMBSTONE: Final = 1
SHADOW: Final = 2
TRUNCATED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SideStats:
    """What a merge must know of a side table before it can leave it unread.

    Attributes:
        highest: shard -> the highest (generation, seq) of its tombstones and truncations.
        shadows: whether there may be shadows.
    """

    highest: Mapping[str, Mark]
    shadows: bool = False

    def with_marks(self, marks: Mapping[str, Mark], *, shadows: bool) -> SideStats:
        """After a commit that recorded those, and shadows or none."""
        highest = dict(self.highest)
        for shard, mark in marks.items():
            highest[shard] = max(mark, highest.get(shard, mark))
        return SideStats(highest=highest, shadows=self.shadows or shadows)

    def may_matter(self, lowest: Mapping[str, Mark]) -> bool:
        """Whether changes that begin there may be older than something recorded.

        In the normal flow they never are: along one stream ranks only rise.
        """
        return any(
            shard in self.highest and mark <= self.highest[shard] for shard, mark in lowest.items()
        )


EMPTY: Final = SideStats(highest={})


def ensure_side(lake: Lake, path: str, shape: Shape, *, now: int) -> None:
    """Create the side table unless there is one."""
    create_delta_table(
        lake,
        path,
        shape.side_schema,
        name=f"{shape.name} (side)",
        description=f"Ratchet's tombstones and shadows of {shape.name}.",
        now=now,
        stats=stats_columns(shape.side_schema.field("key").type, shape.key, inside="key"),
    )


def read_stats(session: SparkSession, table: DataFrame) -> SideStats:
    """Look through a whole side table once."""
    rows = session.sql(
        "SELECT shard, bool_or(kind = 2) AS shadows, "
        "max(struct(token.generation AS generation, token.seq AS seq)) "
        f"FILTER (WHERE kind <> 2) AS highest FROM {view(table)} GROUP BY shard"
    ).collect()
    return SideStats(
        highest={r.shard: (r.highest.generation, r.highest.seq) for r in rows if r.highest},
        shadows=any(r.shadows for r in rows),
    )


def tombstones(session: SparkSession, changes: DataFrame, shape: Shape) -> DataFrame:
    """The reduced changes that delete, as rows of the side table (without `round`)."""
    return session.sql(
        f"SELECT {shape.key_struct} AS key, shard, cast({TOMBSTONE} AS tinyint) AS kind, token, "
        f"CAST(NULL AS {shape.row_ddl}) AS row FROM {view(changes)} WHERE dead"
    )


def shadows(session: SparkSession, losers: DataFrame, shape: Shape) -> DataFrame:
    """Losing live registers as rows of the side table (without `round`)."""
    return session.sql(
        f"SELECT {shape.key_struct} AS key, shard, cast({SHADOW} AS tinyint) AS kind, token, row "
        f"FROM {view(losers)}"
    )


def truncations(
    session: SparkSession, marks: Mapping[str, tuple[Mark, int]], shape: Shape
) -> DataFrame:
    """Truncations as rows of the side table (without `round`).

    Args:
        session: where the query runs.
        marks: shard -> ((generation, seq), commit time in microseconds).
        shape: the table.
    """
    rows = " UNION ALL ".join(
        f"SELECT CAST(NULL AS {shape.key_ddl}) AS key, {sql.text(shard)} AS shard, "
        f"cast({TRUNCATED} AS tinyint) AS kind, named_struct('ts', timestamp_micros({ts}), "
        f"'shard', {sql.text(shard)}, 'gtid', CAST(NULL AS string), "
        f"'generation', {mark[0]}L, 'seq', {mark[1]}L, 'idx', 0L) AS token, "
        f"CAST(NULL AS {shape.row_ddl}) AS row"
        for shard, (mark, ts) in sorted(marks.items())
    )
    return session.sql(rows)


def truncation_rows(
    marks: Mapping[str, tuple[Mark, int]], shape: Shape, *, round_number: int, now: int
) -> pa.Table:
    """The same without Spark, and ready to be appended."""
    schema = shape.side_schema
    return pa.Table.from_pylist(
        [
            {
                "key": None,
                "shard": shard,
                "kind": TRUNCATED,
                "token": {
                    "ts": ts, "shard": shard, "gtid": None,
                    "generation": generation, "seq": seq, "idx": 0,
                },
                "row": None,
                "round": round_number,
                "written_at": now,
            }
            for shard, ((generation, seq), ts) in sorted(marks.items())
        ],
        schema=schema,
    )  # fmt: skip


def stamped(frame: DataFrame, *, round_number: int, now: int) -> DataFrame:
    """Those rows ready to be appended."""
    return frame.selectExpr(
        "*", f"{round_number}L AS round", f"timestamp_micros({now}L) AS written_at"
    )


def registers(session: SparkSession, table: DataFrame, shape: Shape) -> DataFrame:
    """Its tombstones and shadows, with the key as k0, k1 ...; there may be several per register."""
    return session.sql(
        f"SELECT {shape.key_from('key')}, shard, token, kind = {TOMBSTONE} AS dead, row, kind "
        f"FROM {view(table)} WHERE kind IN ({TOMBSTONE}, {SHADOW})"
    )


def read_marks(session: SparkSession, table: DataFrame) -> dict[str, Mark]:
    """Shard -> its newest truncation that a side table tells of."""
    rows = session.sql(
        "SELECT shard, max(struct(token.generation AS generation, token.seq AS seq)) AS mark "
        f"FROM {view(table)} WHERE kind = {TRUNCATED} GROUP BY shard"
    ).collect()
    return {r.shard: (r.mark.generation, r.mark.seq) for r in rows}
