"""The grammar: the same for a seed, what it says apart from its disguises, and of many kinds."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from tests.fuzz_sql.draw import KINDS
from tests.fuzz_sql.grammar import Grammar, Step
from tests.fuzz_sql.model import Column, Index, Model, Table
from tests.fuzz_sql.text import Dialect, Flavor, disguised, tokens

COLUMNS = (
    Column(name="id", kind="int", full="int", nullable=False),
    Column(name="v", kind="varchar", full="varchar(20)", length=20, charset="utf8mb4"),
    Column(name="g", kind="bigint", full="bigint", generated=True),
    Column(name="s", kind="set", full="set('a','it''s')"),
)
MODEL = Model(
    tables={
        name: Table(
            name=name,
            columns=COLUMNS,
            indexes=(Index(name="PRIMARY", unique=True, columns=("id",)),),
            references=references,
            partitions=("p0", "p1") if name == "it's" else (),
            method="range" if name == "it's" else "",
        )
        for name, references in (("a#b", {}), ("it's", {"f": "a#b"}), ("t", {}))
    },
    views=("view1",),
)
FLAVORS: tuple[Flavor, ...] = ("mariadb", "mysql")


def steps(flavor: Flavor, seed: int, count: int, *without: str) -> list[Step]:
    grammar, rng = Grammar(flavor, "fuzzed", without), random.Random(seed)
    return [*grammar.beginning(rng), *(grammar.step(rng, MODEL) for _ in range(count))]


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_seed_makes_the_same_steps_again(flavor: Flavor) -> None:
    assert steps(flavor, 7, 300) == steps(flavor, 7, 300)
    assert steps(flavor, 7, 300) != steps(flavor, 8, 300)


@pytest.mark.parametrize("flavor", FLAVORS)
def test_every_kind_comes(flavor: Flavor) -> None:
    """But for those that nothing fits: a table of MyISAM, a sequence that is there."""
    made = Counter(step.kind for step in steps(flavor, 1, 6000))
    wanted = {kind.name for kind in KINDS.values() if flavor in kind.flavors}
    assert wanted - set(made) <= {"create.merge"}


def test_what_is_left_out_does_not_come() -> None:
    made = steps("mariadb", 3, 2000, "dml.statement", "alter", "disguise", "set_statement")
    assert not [one for one in made if one.kind.startswith(("dml.statement", "alter"))]
    assert not [sql for one in made for sql in one.body if sql.disguises()]
    assert not [sql for one in made for sql in one.body if "SET STATEMENT" in sql.text]


@pytest.mark.parametrize("flavor", FLAVORS)
def test_steps_are_kept_as_they_are(flavor: Flavor) -> None:
    made = steps(flavor, 5, 300)
    assert [Step.from_json(json.loads(json.dumps(one.to_json()))) for one in made] == made


@pytest.mark.parametrize(
    "dialect", [Dialect("mysql"), Dialect("mysql", ansi=True, backslash=False)]
)
def test_a_disguise_comes_off(dialect: Dialect) -> None:
    texts = (
        "ALTER TABLE `a#b` ADD COLUMN \"it's\" INT DEFAULT 'x -- y', DROP c",
        "UPDATE t SET v = CONCAT(v, '/* no */') WHERE id IN (1, 2)",
        "CREATE TABLE x (id INT COMMENT 'it''s', PRIMARY KEY (id))",
    )
    rng = random.Random(1)
    for text in texts:
        assert "".join(tokens(text, dialect)) == text
        for _ in range(50):
            sql = disguised(text, dialect, rng, much=0.5)
            assert sql.plain.strip() == text
            assert sql.without(frozenset(sql.disguises())).plain == sql.plain
            for quoted in ("`a#b`", "'x -- y'", "'/* no */'", "'it''s'"):
                assert (quoted in sql.text) == (quoted in text)
