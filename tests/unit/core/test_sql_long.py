"""Statements of any length: linear time, bounded memory, and a doubt where they are not read."""

# ruff: noqa: E501 - a statement stands on one line

from __future__ import annotations

import random
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lexer_kit import plain_lex

from ratchet.core.sql import names
from ratchet.core.sql.effects import TableName
from ratchet.core.sql.found import Log, Statement
from ratchet.core.sql.lexer import MOST_TOKENS, Mode, SqlToken, lex, lex_head
from ratchet.core.sql.names import Scope, occurring
from ratchet.core.sql.statements import classify
from tests.fuzz_sql.grammar import Grammar
from tests.fuzz_sql.test_grammar import MODEL

pytestmark = pytest.mark.slow

SIZE = 6 << 20  # more than `MOST_TOKENS` tokens of each kind
MODES = [
    Mode(mariadb=mariadb, ansi_quotes=ansi, plain_backslashes=plain)
    for mariadb in (False, True)
    for ansi in (False, True)
    for plain in (False, True)
]
UNKNOWN = [Mode(mariadb=mariadb, known=False) for mariadb in (False, True)]
# A statement's beginning, what is repeated, its end, and what it does to `orders`.
LONG = {
    "a procedure with a string": ("CREATE PROCEDURE shop.p() SELECT '", "x", "'", set()),
    "a procedure with a string that does not end": ("CREATE PROCEDURE p() SELECT '", "x", "", set()),
    "a function": ("CREATE DEFINER=`a`@`%` FUNCTION f() RETURNS INT BEGIN ", "SELECT 1;", "END", set()),
    "an event": ("CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT '", "orders ", "'", set()),
    "a view": ("CREATE OR REPLACE VIEW v AS SELECT ", "1,", "1 FROM orders", set()),
    "a grant": ("GRANT SELECT ON orders TO ", "`u`,", "`u`", set()),
    "a setting": ("SET @a = '", "x", "'", set()),
    "a string": ("ALTER TABLE orders COMMENT '", "x", "'", set()),
    "a string of quotes": ("ALTER TABLE orders COMMENT '", "\\'", "'", set()),
    "a string that does not end": ("ALTER TABLE orders ADD a '", "x", "", {"doubt"}),
    "a remark": ("ALTER TABLE orders /*", "x", "*/ ADD a INT", {"columns"}),
    "a remark that does not end": ("ALTER TABLE orders /*", "/*", "", {"doubt"}),
    "remarks": ("ALTER TABLE orders ", "/**/", "ADD a INT", {"doubt"}),
    "lines": ("ALTER TABLE orders ", "#\n", "ADD a INT", {"doubt"}),
    "executable remarks": ("ALTER TABLE orders ", "/*!*/", "ADD a INT", {"doubt"}),
    "names": ("ALTER TABLE orders ", "ab,", "c", {"doubt"}),
    "a name": ("ALTER TABLE orders ADD ", "a", " INT", {"doubt"}),
    "backticks": ("ALTER TABLE orders ADD ", "``", "", {"doubt"}),
    "tables": ("DROP TABLE ", "`ab`,", "orders", {"doubt"}),
    "parentheses": ("ALTER TABLE orders ADD a INT DEFAULT ", "(", "1", {"doubt"}),
    "settings": ("", "SET STATEMENT a=1 FOR ", "ALTER TABLE orders ADD a INT", {"doubt"}),
    "values": ("INSERT INTO orders VALUES ", "(1,'a'),", "(1,'a')", {"doubt"}),
    "a value": ("INSERT INTO orders VALUES ('", "x", "')", {"untold"}),
    "selects": ("INSERT INTO orders SELECT 1 ", "FROM t1 ", "", {"doubt"}),
    "points": ("REPAIR TABLE `x` '", "shop.", "orders'", {"doubt"}),
    "another table": ("ALTER TABLE t1 ADD a INT, ", "ab,", "c", set()),
    "another database": ("ALTER TABLE other.t1 ADD a INT, ", "ab,", "orders", {"doubt"}),
}  # fmt: skip
# Of these the memory is looked at in `make test`, too: it takes ten times as long as reading them.
MEASURED = {"a procedure with a string", "a string", "remarks", "names", "values"}
KNOWN = ("orders", "t1", *(f"table_{number}" for number in range(20)))


def look(text: str, mode: Mode | None = None, database: str = "shop", **log: bool) -> Statement:
    scope = Scope(database="shop", default=database, known=KNOWN, folds=False)
    return classify(text, mode=mode or Mode(mariadb=True), scope=scope, log=Log(**log))


def effects(found: Statement) -> set[str]:
    return {change.effect for table, change in found.changes if table == "orders"}


def text_of(what: str) -> str:
    begin, piece, end, _ = LONG[what]
    return begin + piece * (SIZE // len(piece)) + end


@pytest.mark.parametrize("what", LONG)
def test_any_long_statement_takes_little(what: str) -> None:
    """Of 64 MB the slowest takes about a second of a busy machine's time, once many minutes."""
    text = text_of(what)
    began = time.process_time()
    found = look(text)
    took = time.process_time() - began
    assert effects(found) == LONG[what][-1]
    assert took < 20


@pytest.mark.parametrize(
    "what",
    [one if one in MEASURED else pytest.param(one, marks=pytest.mark.long) for one in LONG],
)
def test_any_long_statement_takes_little_memory(what: str) -> None:
    text = text_of(what)
    tracemalloc.start()
    look(text)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2 * SIZE + (70 << 20), f"{most >> 20} MB"


def test_a_long_statement_of_an_unknown_mode_takes_little() -> None:
    text = "INSERT INTO orders VALUES " + "('a\\'', \"b\")," * (SIZE // 13)
    tracemalloc.start()
    assert effects(look(text, Mode(known=False))) == {"doubt"}
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2 * SIZE + (70 << 20), f"{most >> 20} MB"


def test_as_many_tokens_as_are_read_are_understood() -> None:
    fits = "ALTER TABLE orders ADD KEY a (" + "a," * ((MOST_TOKENS - 100) // 2) + "a)"
    assert effects(look(fits)) == set()
    assert effects(look(fits[:-1] + ",a" * 100 + ")")) == {"doubt"}


def test_what_a_long_statement_hides_is_in_doubt_in_any_quotes() -> None:
    tail = " ADD a INT, " + "ab," * MOST_TOKENS
    scope = Scope(database="a`b", default="else", known=('x"y', "p`q", "Other"), folds=None)
    text = f"ALTER TABLE `a``b`.`p``q`{tail} RENAME `a``b`.OTHER"
    found = classify(text, mode=Mode(), scope=scope)
    assert {table for table, _ in found.changes} == {"p`q", "Other"}
    quoted = f'ALTER TABLE "a`b"."x""y" {tail}'
    found = classify(quoted, mode=Mode(ansi_quotes=True), scope=scope)
    assert {table for table, _ in found.changes} == {'x"y'}
    assert not classify(f"ALTER TABLE t {tail}", mode=Mode(), scope=scope).changes


def test_what_is_not_read_may_have_taken_a_trigger_away() -> None:
    """So tables that were trusted for what the server said of their triggers no longer are."""
    assert look("DROP TABLE " + "`ab`," * MOST_TOKENS).frees


def test_first_words_tell_what_a_long_trigger_is_about() -> None:
    body = "SET @a = '" + "x" * 10_000 + "'"
    found = look(
        "CREATE DEFINER=`a`@`b` TRIGGER shop.x AFTER INSERT ON orders FOR EACH ROW " + body
    )
    assert found.tables == ("orders",)
    assert not found.changes
    far = (
        "CREATE TRIGGER x /*" + "y" * 10_000 + "*/ AFTER INSERT ON shop.orders FOR EACH ROW " + body
    )
    assert look(far, database="other").tables == ("orders",)
    assert look("DROP VIEW " + "a," * 5000 + "b").frees
    assert look("CREATE OR REPLACE VIEW v AS SELECT " + "1," * 5000 + "1").frees


def test_first_words_are_believed_only_where_they_are_sure() -> None:
    body = "CREATE PROCEDURE p() SELECT 'orders " + "x" * 10_000 + "'"
    assert effects(look(body)) == set()
    assert effects(look("/*!90900 CREATE */" + body)) == {"doubt"}
    assert effects(look(body, Mode(mariadb=True, other_grammar=True))) == {"doubt"}
    assert effects(look(body, clear=False)) == {"doubt"}
    assert effects(look('CREATE DEFINER="a" PROCEDURE p() ' + body, Mode(known=False))) == {"doubt"}
    assert look("CREATE TABLE orders (a INT COMMENT '" + "x" * 10_000 + "')").changes
    assert look("ROLLBACK /*" + "x" * 10_000 + "*/ TO a").form == "rollback to"
    assert look("SET STATEMENT a=1 FOR DROP TABLE orders /*" + "x" * 10_000 + "*/").changes


def test_very_many_names_are_looked_up_at_once() -> None:
    """Once each was compared with each known table."""
    scope = Scope(
        database="shop", default="shop", known={f"k{n}" for n in range(20_000)}, folds=None
    )
    began = time.process_time()
    assert not any(scope.tables(TableName(None, f"x{n}"))[1] for n in range(20_000))
    assert scope.tables(TableName(None, "K7")) == (["K7"], ["k7"])
    assert time.process_time() - began < 5


# --- the plain twin -------------------------------------------------------------------------------

_PIECES = st.sampled_from([
    *("'", '"', "`", "\\", "#", "--", "-- ", "/*", "*/", "/*!", "/*M!", "*", "/", "!", "M", "50000"),
    *("/*!50701 ", "/*M!100100", "\n", " ", "\0", "\t", "a", "B1", "ß", "\u00a0", ";", "(", "''"),
])  # fmt: skip


@settings(max_examples=400)
@given(st.lists(_PIECES, max_size=30).map("".join))
def test_any_text_has_the_tokens_that_its_plain_twin_finds(text: str) -> None:
    for mode in (*MODES, *UNKNOWN):
        assert lex(text, mode) == plain_lex(text, mode)


@settings(max_examples=400)
@given(st.lists(_PIECES, max_size=20).map("".join), st.integers(0, 40))
def test_a_head_is_the_beginning_of_the_whole(text: str, size: int) -> None:
    for mode in MODES:
        head, whole = lex_head(text, mode, size), lex(text, mode)
        assert head.tokens == whole.tokens[: len(head.tokens)]
        if not head.cut:
            assert head == whole


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_the_fuzzers_statements_have_the_tokens_that_the_plain_twin_finds(flavor: str) -> None:
    grammar, rng = Grammar(flavor, "fuzzed", ()), random.Random(86)  # type: ignore[arg-type]
    texts = [sql.text for _ in range(1500) for sql in grammar.step(rng, MODEL).body]
    assert len(texts) >= 1500
    for text in texts:
        for mode in (*MODES, *UNKNOWN):
            assert lex(text, mode) == plain_lex(text, mode), text


@given(st.text(max_size=300), st.lists(st.text(min_size=1, max_size=4), max_size=5))
def test_words_are_found_wherever_they_stand(text: str, words: list[str]) -> None:
    wanted = [one.casefold() for one in words]
    assert occurring(text, wanted) == {one for one in wanted if one in text.casefold()}


def one_by_one(text: str, wanted: set[str]) -> set[str]:
    """What `occurring` gives, looked for word by word."""
    left, found = set(wanted), set[str]()
    more = max(map(len, left), default=0)
    for at in range(0, len(text), 1 << 20):
        low = text[at : at + (1 << 20) + more].casefold()
        found |= {one for one in left if one in low}
        left -= found
    return found


_LIKE = st.text("abAB\u0130\u00df`", max_size=6)
_PARTS = st.lists(_LIKE, max_size=12).map("".join)


@settings(max_examples=1000)
@given(st.sets(_LIKE | _PARTS, max_size=40), st.lists(_LIKE, max_size=40), st.integers(0, 20))
def test_many_words_are_found_as_one_by_one(words: set[str], parts: list[str], room: int) -> None:
    """With much in common, one within the other, and where no more of the search is kept."""
    wanted = {one.casefold() for one in words}
    names._search.cache_clear()
    names._search(frozenset(wanted)).room = room
    for text in ("".join(parts), "".join([*parts, *words]), "-".join([*words, *parts])):
        assert occurring(text, wanted) == one_by_one(text, wanted)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(names, "_MANY", 0)  # as if there were more
            assert occurring(text, wanted) == one_by_one(text, wanted)


def test_many_words_are_found_across_pieces() -> None:
    wanted = {f"{'t' * n}{end}" for n in range(20) for end in ("", "x", "\u00e9")}
    for at in ((1 << 20) - 20, (1 << 20) - 1, 1 << 20):
        text = "#" * at + "T" * 19 + "\u00c9"
        assert occurring(text, wanted) == one_by_one(text, wanted)


def test_strings_and_hidden_texts_name_tables_that_are_much_alike() -> None:
    known = tuple(f"{'t' * 40}{n}" for n in range(300))
    scope = Scope(database="shop", default="shop", known=known, folds=False)
    text = "t" * 100_000
    assert scope.hidden(text) == []
    assert scope.hidden(text + "12") == sorted((f"{'t' * 40}1", f"{'t' * 40}12"))
    strings = [SqlToken("string", f"'{'t' * 1000}{n}'") for n in (7, 123, 500)]
    found = set[str]().union(*(one_by_one(one.text, set(known)) for one in strings))
    assert scope.mentioned(strings) == sorted(found)
    assert {f"{'t' * 40}{n}" for n in (1, 12, 123, 5, 50, 7)} == found


def test_the_number_of_names_costs_nothing_by_the_character() -> None:
    text, took = "t" * (1 << 20), {}
    for count in (10, 1000):
        wanted = {f"{'t' * 40}{n}" for n in range(count)}
        occurring("t", wanted)
        began = time.process_time()
        assert occurring(text, wanted) == set()
        took[count] = time.process_time() - began
    assert took[1000] < 5 * took[10] + 0.1  # one by one: a hundred times


def test_words_are_found_across_pieces() -> None:
    for at in range((1 << 20) - 8, (1 << 20) + 2):
        assert occurring("\u00df" * at + "oRdErS" + "x" * 50, ["orders", "none"]) == {"orders"}


def test_a_text_that_is_made_of_beginnings_of_names_may_name_any_table() -> None:
    """64 MB of them took seconds; beyond some it is not looked for which of them are whole."""
    wanted = [f"orders_{n}_of_a_year" for n in range(40)]
    beginnings = "orders_7_of_" * 100_000
    assert occurring(beginnings, wanted) == set()
    assert occurring(beginnings * 12, wanted) == set(wanted)
    assert occurring("other words " * 1_200_000, wanted) == set()
    assert occurring("other words " * 1_200_000 + wanted[3], wanted) == {wanted[3]}
