"""Errors say what to do in words that can be typed."""

from __future__ import annotations

from ratchet.core.errors import LakeError, RetryableError, TableStoppedError


def test_a_remedy_names_its_table() -> None:
    hint = "dump it again (`ratchet table CONFIG redump TABLE`)"
    error = TableStoppedError("it changed", table="shop.orders", hint=hint)
    assert error.hint == "dump it again (`ratchet table CONFIG redump 'shop.orders'`)"


def test_a_cause_is_cut() -> None:
    """It may be a server's own message, of 16 MB and more."""
    error = TableStoppedError("no", operation="o")
    error.__cause__ = ValueError("x" * 10**6)
    assert len(str(error)) < 10_000
    assert len(error.fields()["cause"]) < 10_000


def test_a_message_has_a_bound() -> None:
    """A server may name a million origins, and is asked again every few seconds."""
    error = RetryableError("x" * 1_000_000, position="y" * 1_000_000, hint="z")
    assert len(str(error)) < 70_000
    assert str(error).endswith("y ...)")
    assert error.hint == "z"


def test_a_cause_names_files_and_not_all_that_is_known_of_them() -> None:
    error = LakeError("it cannot be read")
    one = 'ParsedLogPath { location: FileMeta { size: 2 }, filename: "%d.json", version: 3 }'
    error.__cause__ = ValueError(f"there is a gap: {one % 3} -> {one % 5}")
    assert str(error) == "it cannot be read; cause: there is a gap: 3.json, 5.json"
