"""The shrinker leaves what a failure needs, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.fuzz_sql.driver import LOOK
from tests.fuzz_sql.grammar import Step
from tests.fuzz_sql.shrink import shrunk, without_needless
from tests.fuzz_sql.text import Dialect, Piece, Sql, disguised


def test_needless_items_go() -> None:
    tries = 0

    def fails(some: Sequence[int]) -> bool:
        nonlocal tries
        tries += 1
        return {7, 40, 41, 93} <= set(some)

    assert without_needless(range(100), fails) == [7, 40, 41, 93]
    assert tries < 150


def test_nothing_goes_where_all_is_needed() -> None:
    assert without_needless([1, 2, 3], lambda some: list(some) == [1, 2, 3]) == [1, 2, 3]


def step(*texts: str, setup: tuple[str, ...] = (), much: float = 0.0) -> Step:
    rng = random.Random(4)
    body = tuple(disguised(text, Dialect("mysql"), rng, much=much) for text in texts)
    return Step(kind="some", setup=setup, body=body)


def test_a_step_loses_statements_modes_and_disguises() -> None:
    """It fails where t is there, is looked at, and then altered with a remark, in a mode."""
    remark = Sql(
        (Piece("ALTER", "ALTER"), Piece(" /* x */ ", " "), Piece("TABLE t", "TABLE t"),
         Piece("\n", " "), Piece("ADD c INT", "ADD c INT"))
    )  # fmt: skip
    bad = Step(
        kind="alter",
        setup=("SET a", "SET b", "SET c"),
        body=(Sql.of("SELECT 1"), remark, Sql.of("SELECT 2")),
    )
    steps = [
        step("CREATE TABLE u (id INT)"),
        step("CREATE TABLE t (id INT)", much=0.5),
        *(step(f"INSERT INTO t VALUES ({n})", much=0.3) for n in range(9)),
        LOOK,
        step("DELETE FROM u"),
        LOOK,
        bad,
        step("DELETE FROM t"),
    ]

    def fails(some: Sequence[Step]) -> bool:
        texts = [str(one) if one.kind != "look" else "look" for one in some]
        there = [n for n, text in enumerate(texts) if "CREATE" in text.upper() and "id" in text]
        made = [n for n in there if "u (" not in texts[n]]
        if not made or "look" not in texts[made[0] :]:
            return False
        looked = texts.index("look", made[0])
        return any("/* x */" in text and "SET b" in text for text in texts[looked:])

    assert fails(steps)
    small = shrunk(steps, fails, table="t")
    assert [one.kind for one in small] == ["some", "look", "alter"]
    assert small[0].body[0].text.strip() == "CREATE TABLE t (id INT)"
    assert small[2].setup == ("SET b",)
    assert [sql.text for sql in small[2].body] == ["ALTER /* x */ TABLE t ADD c INT"]
