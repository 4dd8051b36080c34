"""Keys that two shards hold at the same time: which row is shown, and what becomes of the others.

What one shard last said of one key is a register: a row or a tombstone, with a rank. Registers of
one shard are ordered by rank; registers of different shards never are. Of the live registers of a
key the table shows one: that of the latest commit time, and of the highest shard name among equal
times (docs/ordering.md). Times closer than the clock bound do not say which is newer: then the
choice is arbitrary, but it is the same in every order of arrival.
Invariant: the choice is a function of the registers, not of how they came to be known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ratchet.merge import sql
from ratchet.merge.ancestry import NO_ANCESTRY, Ancestry
from ratchet.merge.delta import view
from ratchet.merge.reduce import Mark
from ratchet.merge.shape import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Where a register is known from.
_MAIN: Final = 0
_BATCH: Final = 1
_SIDE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is known of a table's keys.

    Attributes:
        main: the mirrored table.
        side: tombstones and shadows (merge.side.registers); None if there are none that matter.
        batch: the reduced changes (merge.reduce); None if there are none.
        marks: shard -> its newest truncation.
        truncated: whether the batch truncates: then every hidden row may come to be shown.
        prune: a condition on the main table's row `t` that every contested key fulfils.
        ancestry: what the batch's streams descend from.
    """

    main: DataFrame
    side: DataFrame | None
    batch: DataFrame | None
    marks: Mapping[str, Mark]
    truncated: bool = False
    prune: str = "true"
    ancestry: Ancestry = NO_ANCESTRY


def contested_keys(
    session: SparkSession, batch: DataFrame, sources: Sources, shape: Shape
) -> DataFrame:
    """The keys that a plain merge by key and shard would get wrong, as k0, k1 ...

    - a key that is new on one shard while the table shows another shard's row of it. Not a row
      that the change supersedes by descent; but of streams with ancestors old keys count as well:
      a sibling that wrote the key too has ended the ancestor's row that an update is for
    - a key that two shards write in the same batch
    - a key with a shadow: its fate hangs on other shards' changes (all of them, in a truncation)
    In the normal flow there are none.
    """
    changes, ancestry = view(batch), sources.ancestry
    own = f"t.{sql.TOKEN}.shard <=> s.shard"
    settled = f"{own} OR {ancestry.supersedes('s.shard', f't.{sql.TOKEN}')}" if ancestry else own
    new = f"(s.fresh OR {ancestry.is_heir('s.shard')})" if ancestry else "s.fresh"
    queries = [
        (
            f"SELECT {_keys('s', shape)} FROM {changes} s JOIN {view(sources.main)} t "
            f"ON {shape.row_has_key('t', 's')} AND ({sources.prune}) "
            f"AND NOT ({settled}) WHERE {new} AND NOT s.dead"
        ),
        (
            f"SELECT {shape.key_list} FROM {changes} WHERE NOT dead "
            f"GROUP BY {shape.key_list} HAVING count(*) > 1"
        ),
    ]
    if sources.side is not None:
        side = view(sources.side)
        queries.append(
            f"SELECT {_keys('s', shape)} FROM {changes} s JOIN {side} d "
            f"ON {shape.same_key('s', 'd')} WHERE NOT d.dead"
        )
        if sources.truncated:
            queries.append(f"SELECT {shape.key_list} FROM {side} WHERE NOT dead")
    return session.sql(" UNION ".join(queries))


def doubled_keys(session: SparkSession, main: DataFrame, shape: Shape) -> DataFrame:
    """The keys that the table holds more than once: each shard's dump brought its own row."""
    rows = f"SELECT {shape.key_from('t')} FROM {view(main)} t"
    return session.sql(
        f"SELECT {shape.key_list} FROM ({rows}) GROUP BY {shape.key_list} HAVING count(*) > 1"
    )


def resolve(session: SparkSession, keys: DataFrame, sources: Sources, shape: Shape) -> DataFrame:
    """What has to happen to each register of those keys, one row per key and shard.

    Columns: k0, k1 ..., shard, token, dead, row (of the newest register), and
      wins    the row is the one to be shown
      put     the row must be written into the table
      drop    the table's row of this shard must go, whatever its rank
      shadow  the row must stand in the side table
    """
    newest = view(newest_registers(session, keys, sources, shape))
    ranked = (
        f"SELECT *, NOT dead AND row_number() OVER (PARTITION BY {shape.key_list} "
        f"ORDER BY dead, token.ts DESC, shard DESC) = 1 AS wins FROM {newest}"
    )
    return session.sql(
        f"SELECT {shape.key_list}, shard, token, dead, row, wins, "
        f"wins AND origin <> {_MAIN} AS put, "
        "NOT wins AND shown AND shard IS NOT NULL AS drop, "
        f"NOT wins AND NOT dead AND origin <> {_SIDE} AS shadow "
        f"FROM ({ranked})"
    )


def newest_registers(
    session: SparkSession, keys: DataFrame, sources: Sources, shape: Shape
) -> DataFrame:
    """The newest register per key and shard, of those keys.

    Columns: k0, k1 ..., shard, token, dead, row, and
      origin  where it is known from; of equal ranks the table's own row comes first
      shown   whether the table has a row of this key and shard
    """
    found = " UNION ALL ".join(_registers(sources, shape, view(keys)))
    per_shard = f"PARTITION BY {shape.key_list}, shard"
    parts = ", ".join(f"token.{part} DESC" for part in sql.RANK_PARTS)
    gone = sql.before_marks("token", sources.marks)
    return session.sql(
        f"SELECT {shape.key_list}, shard, token, dead, row, origin, shown FROM "
        f"(SELECT {shape.key_list}, shard, token, dead OR ({gone}) AS dead, row, origin, "
        f"row_number() OVER ({per_shard} ORDER BY {parts}, origin) AS nth, "
        f"min(origin) OVER ({per_shard}) = {_MAIN} AS shown FROM ({found})) WHERE nth = 1"
    )


def over_shadows(
    session: SparkSession, side: DataFrame, sources: Sources, shape: Shape
) -> DataFrame:
    """Up to which rank the shadows of a key and shard are over.

    Columns: k0, k1 ..., shard, generation, seq, idx. Of the newest shadow everything older is over;
    it is over itself if the newest register is not a shadow, or a truncation came later.
    """
    keys = session.sql(f"SELECT DISTINCT {shape.key_list} FROM {view(side)} WHERE NOT dead")
    newest = view(newest_registers(session, keys, sources, shape))
    return session.sql(
        f"SELECT {shape.key_list}, shard, token.generation AS generation, token.seq AS seq, "
        f"CASE WHEN dead OR origin = {_MAIN} THEN token.idx ELSE token.idx - 1 END AS idx "
        f"FROM {newest} WHERE shard IS NOT NULL"
    )


def not_outdated(
    session: SparkSession,
    batch: DataFrame,
    side: DataFrame,
    marks: Mapping[str, Mark],
    shape: Shape,
) -> DataFrame:
    """The batch without rows that a newer tombstone or truncation of their shard has removed.

    Needed only where changes may be older than something recorded: see SideStats.may_matter.
    Deletes stay: applied again, they change nothing.
    """
    return session.sql(
        f"SELECT s.* FROM {view(batch)} s LEFT ANTI JOIN {view(side)} d "
        f"ON {shape.same_key('s', 'd')} AND s.shard = d.shard AND d.dead AND NOT s.dead "
        f"AND {sql.rank('s.token')} < {sql.rank('d.token')} "
        f"WHERE s.dead OR NOT ({sql.before_marks('s.token', marks)})"
    )


def without(session: SparkSession, batch: DataFrame, keys: DataFrame, shape: Shape) -> DataFrame:
    """The batch without those keys."""
    return session.sql(
        f"SELECT s.* FROM {view(batch)} s LEFT ANTI JOIN {view(keys)} c "
        f"ON {shape.same_key('s', 'c')}"
    )


def _registers(sources: Sources, shape: Shape, keys: str) -> list[str]:
    names = ", ".join(f"{sql.text(n)}, t.{sql.quoted(n)}" for n in shape.columns.names)
    token = f"t.{sql.TOKEN}"
    queries = [
        (
            f"SELECT {shape.key_from('t')}, {token}.shard AS shard, {token} AS token, "
            f"false AS dead, CAST(named_struct({names}) AS {shape.row_ddl}) AS row, "
            f"{_MAIN} AS origin "
            f"FROM {view(sources.main)} t JOIN {keys} c ON {shape.row_has_key('t', 'c')} "
            f"AND ({sources.prune})"
        )
    ]
    for origin, frame in ((_BATCH, sources.batch), (_SIDE, sources.side)):
        if frame is not None:
            queries.append(
                f"SELECT {_keys('r', shape)}, r.shard, r.token, r.dead, r.row, {origin} AS origin "
                f"FROM {view(frame)} r JOIN {keys} c ON {shape.same_key('r', 'c')}"
            )
    return queries


def _keys(alias: str, shape: Shape) -> str:
    return ", ".join(f"{alias}.{name}" for name in shape.key_list.split(", "))
