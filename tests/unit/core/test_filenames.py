"""See core.filenames; what a server makes of such names is in the integration test of that name."""

from __future__ import annotations

import pytest

from ratchet.core.filenames import may_stand_for, stands_for
from ratchet.core.sql.effects import TableName
from ratchet.core.sql.lexer import Mode, lex
from ratchet.core.sql.names import Scope

TABLES = ("a", "m-x", "bä", "#mysql50#a")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("t", "t"),
        ("#mysql50#t", "t"),
        ("#MYSQL50#t", "#MYSQL50#t"),
        ("#mysql50#m@002dx@0040", "m-x@"),
        ("#mysql50#@00e4", "ä"),
        ("#mysql50#@0k", None),
        ("#mysql50#a b", None),
        ("#mysql50#a@", None),
    ],
)
def test_stands_for(name: str, own: str | None) -> None:
    assert stands_for(name) == own


def test_letters_of_the_servers_table_may_be_any() -> None:
    assert may_stand_for("#mysql50#b@0k", TABLES) == ["bä"]
    assert may_stand_for("#mysql50#M@002dX", TABLES) == ["m-x"]


def scope(default: str = "shop") -> Scope:
    return Scope(database="shop", default=default, known=TABLES, folds=False)


@pytest.mark.parametrize(
    ("name", "maybe"),
    [("#mysql50#m@002dx", ["m-x"]), ("#mysql50#b@0k", ["bä"]), ("#mysql50#new", ["new"])],
)
def test_a_statement_may_be_about_it(name: str, maybe: list[str]) -> None:
    assert scope().tables(TableName(None, name)) == ([], maybe)


def test_the_database_may_be_named_so() -> None:
    assert scope("#mysql50#shop").is_ours(None) is None
    assert scope("#mysql50#stock").is_ours(None) is False
    assert scope("#mysql50#shop").tables(TableName(None, "a")) == ([], ["a"])


def test_such_a_name_anywhere_in_a_statement() -> None:
    text = "SOMETHING NEW `#mysql50#m@002dx`"
    assert scope().mentioned(lex(text, Mode()).tokens) == ["m-x"]
    assert scope().hidden(text + " `") == sorted(TABLES)
