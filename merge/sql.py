"""Pieces of Spark SQL: identifiers, keys, ranks. Pure functions from names to text.

Every comparison of ranks in the project's SQL comes from here. Nothing here compares ranks of
different shards. Keys are compared by Spark's default collation, which is bytewise: two strings
that the source's collation takes for equal are two keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ratchet.core.change import FLOOR_IDX, TOKEN_COLUMN
from ratchet.store.delta.tables import quoted

__all__ = ["quoted"]

TOKEN: Final = quoted(TOKEN_COLUMN)
RANK_PARTS: Final = ("generation", "seq", "idx")


def text(value: str) -> str:
    """A string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def field(*path: str) -> str:
    """A column or a field inside structs: `a`.`b`."""
    return ".".join(quoted(part) for part in path)


def rank(token: str) -> str:
    """A token's rank as a struct: structs compare part by part. Within one shard only.

    Args:
        token: SQL that gives a token struct.
    """
    return f"struct({token}.generation, {token}.seq, {token}.idx)"


def below(token: str, generation: int, seq: int, *, token_seq: str = "") -> str:
    """Whether a token stands before the transaction with that generation and seq.

    Args:
        token: SQL that gives a token struct.
        generation: of the transaction.
        seq: of the transaction.
        token_seq: SQL for the token's seq, if it is not simply its field (`floor_seq`).
    """
    return (
        f"({token}.generation < {generation} OR "
        f"({token}.generation = {generation} AND {token_seq or f'{token}.seq'} < {seq}))"
    )


def any_of(conditions: Iterable[str]) -> str:
    """Whether any condition holds; false if there is none."""
    return " OR ".join(f"({condition})" for condition in conditions) or "false"


def before_marks(
    token: str,
    marks: Mapping[str, tuple[int, int]],
    floors: Mapping[str, Sequence[int | None]] | None = None,
) -> str:
    """Whether a token stands before its shard's mark.

    Args:
        token: SQL that gives a token struct.
        marks: shard -> (generation, seq) of the newest TRUNCATE there.
        floors: see `newer`.
    """
    seq = floor_seq(token, floors or {})
    return any_of(
        f"{token}.shard = {text(shard)} AND {below(token, *mark, token_seq=seq)}"
        for shard, mark in sorted(marks.items())
    )


def differs(left: str, right: str, names: Sequence[str]) -> str:
    """Whether two structs differ in one of the fields."""
    return any_of(f"NOT ({left}.{quoted(n)} <=> {right}.{quoted(n)})" for n in names)


def newer(change: str, row: str, floors: Mapping[str, Sequence[int | None]]) -> str:
    """The merge rule: whether a change applies to a row of the same shard.

    Applies unless the row's rank is the same or higher; a row without a token always loses.

    Args:
        change: SQL that gives the change's token.
        row: SQL that gives the row's token.
        floors: shard -> for each chunk number the `seq` that its rows really have, or None where
            the token's own is right (core.floor).
    """
    seq = floor_seq(row, floors)
    return (
        f"({row} IS NULL OR {row}.generation < {change}.generation OR "
        f"({row}.generation = {change}.generation AND ({seq} < {change}.seq OR "
        f"({seq} = {change}.seq AND {row}.idx < {change}.idx))))"
    )


def floor_seq(row: str, floors: Mapping[str, Sequence[int | None]]) -> str:
    """A row's `seq`, with dumped rows put where their chunk's floor resolves to.

    The chunks' values are one constant array per shard, looked up by chunk number: a CASE with a
    branch for each of thousands of chunks would not be compiled by Spark.
    """
    if not floors:
        return f"{row}.seq"
    cases = " ".join(
        f"WHEN {text(shard)} THEN try_element_at(cast(split({text(_joined(values))}, ',') "
        f"AS array<bigint>), cast({row}.idx - {FLOOR_IDX} + 1 AS int))"
        for shard, values in sorted(floors.items())
    )
    return (
        f"CASE WHEN {row}.idx >= {FLOOR_IDX} "
        f"THEN coalesce(nullif(CASE {row}.shard {cases} END, -1), {row}.seq) ELSE {row}.seq END"
    )


def _joined(values: Sequence[int | None]) -> str:
    # An unchanged chunk is written as -1: no seq is negative.
    return ",".join("-1" if value is None else str(value) for value in values)
