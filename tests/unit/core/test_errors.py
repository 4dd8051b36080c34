"""Errors say what to do in words that can be typed."""

from __future__ import annotations

from core.errors import TableStoppedError


def test_a_remedy_names_its_table() -> None:
    hint = "dump it again (`ratchet table CONFIG redump TABLE`)"
    error = TableStoppedError("it changed", table="shop.orders", hint=hint)
    assert error.hint == "dump it again (`ratchet table CONFIG redump 'shop.orders'`)"
