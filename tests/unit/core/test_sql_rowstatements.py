"""Rows that were changed by a statement: which tables it may have reached."""

# ruff: noqa: E501 - a statement stands on one line

from __future__ import annotations

import pytest

from ratchet.core.sql.effects import TableName
from ratchet.core.sql.found import Log, Statement
from tests.statement_kit import KNOWN, effects, look


@pytest.mark.parametrize(
    "text",
    [
        "REPLACE INTO other.heartbeat VALUES (1, 2)",
        "insert ignore into other.h (id, ts) values (1, now(6)) on duplicate key update ts=values(ts)",
        "UPDATE other.heartbeat SET ts='2026-11-25T09:00:00', position=154 WHERE server_id=1",
        "DELETE FROM other.h WHERE id < unix_timestamp() - 5 ORDER BY id LIMIT 10",
        "REPLACE INTO other.sums SELECT 'w',COUNT(*),COALESCE(LOWER(CONV(BIT_XOR(CAST(CRC32(id) AS UNSIGNED)), 10, 16)), 0) FROM shop.w FORCE INDEX(`PRIMARY`)",
        "SET STATEMENT sql_log_bin=1 FOR INSERT INTO other.h SET a=1",
        "INSERT INTO other.h SELECT a, b FROM w x JOIN w y ON x.id=y.id WHERE a IN (1, 2) ORDER BY a, b",
        "INSERT INTO other.h SELECT a, b FROM w USE INDEX (a, b) ON DUPLICATE KEY UPDATE a=1, b=2",
        "INSERT INTO other.h TABLE w",
        "INSERT INTO other.h (SELECT a, b FROM w WHERE c IN (1, 2))",
        "INSERT INTO other.h (a, b) (SELECT a, b FROM w)",
        "INSERT INTO other.h VALUES (NOW(), 'it is now, at once'), (MAX(3), 'max')",
        "INSERT INTO other.h (a) VALUES (1) ON DUPLICATE KEY UPDATE a = IF (a IN (1, 2), 1, 2)",
    ],
)  # fmt: skip
def test_one_plain_table_of_another_database_concerns_nobody(text: str) -> None:
    """If it is a plain one, which only the server can say: else it may have triggers."""
    found = look(text)
    assert found.form == "rows"
    assert found.asks is not None
    assert found.asks.database == "other"
    assert found.changes_alone == ()
    assert set(effects(found)) == set(KNOWN)
    told = look(text, log=Log(written=frozenset({"other"})))
    assert (told.changes, told.asks) == ((), None)


def test_on_a_mirrored_table_it_is_in_doubt_alone_if_nothing_leads_on() -> None:
    found = look("UPDATE w SET a=1")
    assert found.asks == TableName("shop", "w")
    assert [(table, change.effect) for table, change in found.changes_alone] == [("w", "untold")]
    assert set(effects(found)) == set(KNOWN)
    told = look("UPDATE w SET a=1", log=Log(written=frozenset({"shop"})))
    assert set(effects(told)) == set(KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO other.h VALUES (other.f())",
        "INSERT INTO other.h (SELECT 1, other.f())",
        "INSERT INTO other.h ((SELECT 1, f()))",
        "INSERT INTO other.h (VALUES (1, f()))",
        "INSERT INTO other.h (SELECT * FROM other.v)",
        "REPLACE other.h (WITH c AS (SELECT f() y) SELECT 3, y FROM c)",
        "INSERT INTO other.h (SELECT a FROM w, other.v)",
        "INSERT INTO other.h VALUES (f())",
        "INSERT INTO other.h VALUES (`now`())",
        "INSERT INTO other.h VALUES (max (3))",
        "INSERT INTO other.h VALUES (NOW(), max\n(3))",
        "INSERT INTO other.h SET id=1, v=sum/* x */(3)",
        "INSERT INTO other.h SET id=1, v=trim -- x\n (3)",
        "INSERT INTO other.h SET id=1, v=/*!50000 count*/(3)",
        "INSERT INTO other.h VALUES (NEXT VALUE FOR s)",
        "INSERT INTO other.h SELECT * FROM other.v",
        "INSERT INTO other.h SELECT * FROM w, other.v",
        "INSERT INTO other.h SELECT * FROM w AS a, other.v",
        "INSERT INTO other.h SELECT * FROM w JOIN other.v",
        "INSERT INTO other.h SELECT w.id, 'x' FROM w USE INDEX (PRIMARY), other.v",
        "INSERT INTO other.h SELECT 1 FROM w AS y FORCE INDEX FOR JOIN (PRIMARY), other.v",
        "INSERT INTO other.h SELECT 1 FROM w PARTITION (p, q) x, other.v",
        "INSERT INTO other.h SELECT 1 FROM w FOR SYSTEM_TIME ALL, other.v",
        "INSERT INTO other.h SELECT 1 FROM w x JOIN w y ON x.id = y.id AND (1, 2) = (1, 2), other.v",
        "INSERT INTO other.h SELECT 1 FROM w x JOIN w y USING (id), other.v",
        "INSERT INTO other.h SELECT 1 FROM w `)`, other.v",
        "INSERT INTO other.h SELECT 1 FROM w WHERE id IN (SELECT 1 FROM w `)`, other.v)",
        "INSERT INTO other.h SELECT 1 FROM w WHERE id IN (SELECT 1 FROM w `(`, other.v)",
        "UPDATE other.h SET a=1 WHERE id IN (SELECT id FROM w USE INDEX (PRIMARY), other.v)",
        "INSERT INTO other.h SELECT * FROM (SELECT 1) x",
        "INSERT INTO other.h TABLE other.v",
        "UPDATE other.h, w SET a=1",
        "UPDATE other.h h SET a=1",
        "UPDATE other.h JOIN w SET w.a=1",
        "DELETE w FROM other.h",
        "DELETE FROM w USING other.h",
        "DELETE FROM other.h PARTITION (p)",
        "LOAD DATA INFILE 'x' INTO TABLE other.h",
        "WITH x AS (SELECT 1) DELETE FROM other.h",
        "SELECT other.f()",
    ],
)
def test_what_it_reaches_is_not_known(text: str) -> None:
    _reaches_any_table(text, {"untold"})


@pytest.mark.parametrize(
    "text",
    [
        "SET STATEMENT sql_mode='NO_BACKSLASH_ESCAPES' FOR INSERT INTO other.h VALUES (1)",
        "INSERT /*+ SET_VAR(sql_mode='ANSI_QUOTES') */ INTO other.h VALUES (1)",
        "SET STATEMENT max_statement_time=(SELECT other.f()) FOR UPDATE other.h SET a=1",
        "CALL other.p()",
        "EXECUTE p",
        "IMPORT TABLE FROM 'x'",
        "INSERT INTO other.h VALUES ('it does not end",
    ],
)
def test_it_may_have_been_more_than_rows(text: str) -> None:
    _reaches_any_table(text, {"doubt"})


def _reaches_any_table(text: str, what: set[str]) -> None:
    found = look(text)
    assert (found.asks, found.form) == (None, "rows")
    assert effects(found) == dict.fromkeys(KNOWN, what)
    assert look(text, log=Log(written=frozenset({"other"}))).changes == ()
    assert effects(look(text, log=Log(written=frozenset({"other", "shop"})))) != {}
    maybe = look(text, log=Log(written=frozenset({"Shop"})), folds=None)
    assert effects(maybe) != {}


def test_a_long_text_about_other_databases_is_not_split() -> None:
    told = Log(written=frozenset({"other"}))
    text = "/* x */ INSERT INTO other.h VALUES ('" + "x" * 5_000_000
    assert look(text, log=told) == Statement(form="rows")
    assert look(" " * 2000 + "UPDATE other.h SET a=1", log=told) == look(
        "UPDATE x.h SET a=1", log=told
    )
    assert set(effects(look(text, log=Log(written=frozenset({"shop"}))))) == set(KNOWN)


@pytest.mark.parametrize(
    ("text", "frees"),
    [
        ("DROP TRIGGER x", True),
        ("DROP VIEW x", True),
        ("DROP DATABASE other", True),
        ("CREATE OR REPLACE VIEW x AS SELECT 1", True),
        ("CREATE VIEW x AS SELECT 1", False),
        ("DROP EVENT x", False),
    ],
)
def test_what_led_from_one_table_to_another_may_go(text: str, frees: bool) -> None:  # noqa: FBT001
    assert look(text).frees is frees


def test_a_statement_of_rows_that_is_cut_short_doubts_all() -> None:
    assert effects(look("INSERT INTO w (a, b")) == {name: {"untold"} for name in KNOWN}
