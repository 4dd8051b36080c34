"""`ratchet sql` as it is typed: what is refused, how it says so, and what --unsafe gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from fix_e2e import PASSWORD

from ratchet.store.formats import open_lake
from tests.merge_kit import Source

if TYPE_CHECKING:
    from fix_e2e import Ratchet

NOWHERE = SimpleNamespace(host="127.0.0.1", port=1)  # no command here asks a server


@pytest.fixture
def ratchet(make_ratchet: Callable[..., Ratchet]) -> Ratchet:
    found = make_ratchet({"-": NOWHERE}, "shop")
    open_lake(found.lake, now=0)
    source = Source(found.lake)
    source.tx("-", ("put", {"id": 1, "v": "one"}), ("put", {"id": 2, "v": "two"}))
    source.dump_all()
    return found


def test_a_query_that_acts_ends_with_2_and_its_remedy(ratchet: Ratchet, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    program = f"SELECT TRANSFORM(id) USING 'sh -c \"touch {mark}\"' AS (a STRING) FROM shop.t"
    said = ratchet.run("sql", program, expect=2).stderr
    assert "TRANSFORM, MAP and REDUCE: they start a program (line 1: SELECT TRANSFORM(id)" in said
    assert "--unsafe" in said
    files = sorted(ratchet.lake.rglob("*.parquet"))
    explained = f"EXPLAIN EXECUTE IMMEDIATE 'DELETE FROM delta.`{ratchet.lake}/shop/t`'"
    assert "only reads" in ratchet.run("sql", explained, "--unsafe", expect=2).stderr
    assert sorted(ratchet.lake.rglob("*.parquet")) == files
    assert not mark.exists()


def test_no_message_shows_the_environment(ratchet: Ratchet) -> None:
    """Spark's own words about a text that it cannot parse, with what it puts there itself."""
    query = "SELECT 1 FROM '${env:RATCHET_CANARY}' x"
    said = ratchet.run("sql", query, expect=2, RATCHET_CANARY="sang-in-the-mine").stderr
    assert "${env:RATCHET_CANARY}" in said
    assert "sang-in-the-mine" not in said


def test_what_is_trusted_may_do_all_but_find_a_password(ratchet: Ratchet) -> None:
    query = (
        "SELECT java_method('java.lang.System', 'getProperty', 'file.separator') AS a, "
        "java_method('java.lang.System', 'getenv', 'RATCHET_TEST_PASSWORD') AS b, "
        "'${env:RATCHET_TEST_PASSWORD}' AS c, "
        "(SELECT count(*) FROM text.`/proc/self/environ` WHERE contains(value, 'PASSWORD')) AS d, "
        "count(*) AS e FROM shop.t"
    )
    said = ratchet.run("sql", query, "--unsafe", "--format", "json").stdout
    assert json.loads(said) == [
        {"a": "/", "b": "null", "c": "${env:RATCHET_TEST_PASSWORD}", "d": 0, "e": 2}
    ]
    assert PASSWORD not in said


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT id / (id - 1) FROM shop.t", "DIVIDE_BY_ZERO"),
        # Values with line ends, and what a terminal would obey.
        (
            "SELECT raise_error(concat('n', char(10), '23:00:00 o', char(13), char(27), '[31m'))",
            r"USER_RAISED_EXCEPTION] n\n23:00:00 o\r\x1b[31m SQLSTATE: P0001",
        ),
        ("SELECT CAST(concat(v, char(10), id) AS INT) FROM shop.t", "CAST_INVALID_INPUT"),
        *(
            pytest.param(query, why, marks=pytest.mark.long)
            for query, why in (
                ("SELECT CAST(v AS INT) FROM shop.t", "CAST_INVALID_INPUT"),
                ("SELECT (SELECT v FROM shop.t) FROM shop.t", "SCALAR_SUBQUERY_TOO_MANY_ROWS"),
                ("SELECT raise_error('no') FROM shop.t", "USER_RAISED_EXCEPTION"),
            )
        ),
    ],
)
def test_a_query_that_its_rows_break_ends_with_2(ratchet: Ratchet, query: str, why: str) -> None:
    said = ratchet.run("sql", query, expect=2).stderr
    (line,) = (one for one in said.splitlines() if "the query ended in an error: " in one)
    assert f"error: [{why}" in line
    assert "SQLSTATE: " in line
    assert "Traceback" not in said
