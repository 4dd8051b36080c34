"""Names that Spark does not take, and queries that use them all the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.jobs.inspect.viewnames import quoted, rename, view_names

ODD = ("my-shop", "wei`rd 1")
NAMES = view_names([ODD, ("my-shop", "orders"), ("shop", "Orders"), ("shop", "orders")])


def test_views() -> None:
    assert NAMES == {
        ("my-shop", "wei`rd 1"): ("my_shop", "wei_rd_1"),
        ("my-shop", "orders"): ("my_shop", "orders"),
        ("shop", "Orders"): ("shop", "Orders"),
        ("shop", "orders"): ("shop", "orders_2"),
    }


@pytest.mark.parametrize(
    ("query", "renamed"),
    [
        ("SELECT * FROM shop.Orders", "SELECT * FROM shop.Orders"),
        ("SELECT * FROM `my-shop`.`wei``rd 1` w", "SELECT * FROM `my_shop`.`wei_rd_1` w"),
        (
            "SELECT `my-shop` . `orders`.id FROM `my-shop`.orders",
            "SELECT `my_shop`.`orders`.id FROM `my_shop`.`orders`",
        ),
        ("SELECT 'it''s `my-shop`.orders'", "SELECT 'it''s `my-shop`.orders'"),
        (r"SELECT 'a\' `my-shop`.orders'", r"SELECT 'a\' `my-shop`.orders'"),
        ('SELECT "`my-shop`.orders"', 'SELECT "`my-shop`.orders"'),
        ("SELECT 1 -- `my-shop`.orders\n", "SELECT 1 -- `my-shop`.orders\n"),
        ("SELECT 1 /* `my-shop`.orders\n */", "SELECT 1 /* `my-shop`.orders\n */"),
        ("SELECT a.b, 1.5 FROM other.t", "SELECT a.b, 1.5 FROM other.t"),
    ],
)
def test_queries(query: str, renamed: str) -> None:
    assert rename(query, NAMES) == renamed


def test_in_any_case() -> None:
    """As Spark finds tables, whose names it does not tell apart by case."""
    query = "SELECT Shop.ORDERS.id FROM `SHOP`.orders, 'shop.orders', other.orders"
    assert rename(query, {("shop", "orders"): ("g", "o")}, any_case=True) == (
        "SELECT `g`.`o`.id FROM `g`.`o`, 'shop.orders', other.orders"
    )


@given(st.sets(st.tuples(st.text("aA-_é`", min_size=1), st.text("bB-_.` ", min_size=1))))
def test_views_are_distinct_and_plain(tables: set[tuple[str, str]]) -> None:
    """Whatever the tables are called."""
    views = view_names(tables)
    assert set(views) == tables
    lowered = {(database.lower(), view.lower()) for database, view in views.values()}
    assert len(lowered) == len(tables)
    assert all(re.fullmatch(r"\w+", part, re.ASCII) for view in views.values() for part in view)
    for keyspace, table in tables:
        view = ".".join(map(quoted, views[keyspace, table]))
        renamed = rename(f"{quoted(keyspace)}.{quoted(table)}", views)
        assert renamed in {view, f"{quoted(keyspace)}.{quoted(table)}"}
