"""Foreign keys that change while they are asked about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ratchet.core.errors import DecodeError, TableStoppedError
from ratchet.wire.decode import foreignkeys
from ratchet.wire.decode.foreignkeys import read_foreign_keys

LINE = "  CONSTRAINT `k` FOREIGN KEY (`p`) REFERENCES `w` (`id`) ON DELETE CASCADE"


class Restless:
    """A server, as it hides rules from who may only SELECT; the key goes, and comes back."""

    def __init__(self, answers: Sequence[str | TableStoppedError]) -> None:
        self.answers = list(answers)

    def __call__(self, sql: str, _: Sequence[object]) -> Sequence[Sequence[Any]]:
        if "key_column_usage" in sql:
            return [("child", "k", "p", "shop", "w", "id", "shop")]
        if sql.startswith("SHOW CREATE TABLE"):
            answer = self.answers.pop(0)
            if isinstance(answer, TableStoppedError):
                raise answer
            return [("child", answer)]
        return []


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreignkeys, "_PAUSES", (0.0, 0.0))


def test_a_key_that_is_changed_between_two_questions_is_read_again() -> None:
    gone = TableStoppedError("the table is gone", operation="ask", table="child")
    found = read_foreign_keys(Restless(["CREATE TABLE", gone, LINE]), database="shop")
    assert [key.on_delete for key in found.by_table["child"]] == ["cascade"]


@pytest.mark.parametrize("line_end", ["\u2028", "\u0085", "\v", "\f", "\x1c"])
def test_a_comment_is_no_line(line_end: str) -> None:
    """A comment may have what looks like a key without a rule, behind a sign that ends no line."""
    forged = f"  `p` int COMMENT 'x{line_end}{LINE.removesuffix(' ON DELETE CASCADE')}'"
    found = read_foreign_keys(Restless([f"{forged},\n{LINE}"]), database="shop")
    assert [key.on_delete for key in found.by_table["child"]] == ["cascade"]


def test_a_key_that_cannot_be_read_is_told() -> None:
    with pytest.raises(DecodeError, match="rule of the foreign key k"):
        read_foreign_keys(Restless(["CREATE TABLE"] * 3), database="shop")


class Still(Restless):
    """The same, which answers of columns and indexes too."""

    def __init__(self, *indexes: tuple[str, str, str | None, int | None, int]) -> None:
        super().__init__([LINE])
        self.indexes = indexes

    def __call__(self, sql: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        if "information_schema.statistics" in sql:
            return self.indexes
        if "information_schema.columns" in sql:
            column = ("int", "int(11)", None, None, "", None)
            return [("child", "p", *column), ("w", "id", *column)]
        return super().__call__(sql, values)


LACKS = "the parent has no index that begins with id"
DOUBLES = "the parent may have several rows of one id"


@pytest.mark.parametrize(
    ("indexes", "unclear"),
    [
        ([("w", "PRIMARY", "id", None, 0)], ""),
        ([("w", "k", "ID", None, 0)], ""),
        ([("w", "k", "ID", None, 1), ("w", "u", "id", None, 0)], ""),
        ([("w", "k", "ID", None, 1)], DOUBLES),
        ([("w", "k", "id", None, 0), ("w", "k", "v", None, 0)], DOUBLES),
        ([("w", "k", "id", None, 0), ("w", "k", "v", 10, 0)], DOUBLES),
        ([("w", "k", "v", None, 0), ("w", "k", "id", None, 0)], LACKS),
        ([("w", "k", "id", 10, 0)], LACKS),
        ([("w", "k", None, None, 0)], LACKS),
        ([("other", "PRIMARY", "id", None, 0)], LACKS),
        ([], LACKS),
    ],
)
def test_a_key_is_clear_by_a_unique_index_of_its_parent(
    indexes: list[tuple[str, str, str | None, int | None, int]], unclear: str
) -> None:
    (key,) = read_foreign_keys(Still(*indexes), database="shop").by_table["child"]
    assert key.unclear == unclear


class Switching(Still):
    """The same, with routines and triggers."""

    def __init__(self, *found: tuple[str, str, int | None, int | None]) -> None:
        super().__init__(("w", "PRIMARY", "id", None, 0))
        self.found = found
        self.native: Sequence[Sequence[Any]] = ()

    def __call__(self, sql: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        if "innodb_native_foreign_keys" in sql:
            return self.native
        return self.found if "information_schema.routines" in sql else super().__call__(sql, values)


@pytest.mark.parametrize(
    ("found", "switched"),
    [
        ([], ""),
        ([("trigger", "t", 0, 0), ("function", "f", None, None)], ""),
        ([("trigger", "t", 1, 0)], "the trigger t"),
        ([("function", "f", 1, 0), ("trigger", "t", 0, 0)], "the function f"),
        ([("procedure", "p", 1, 0), ("trigger", "t", 0, 0)], ""),
        ([("procedure", "p", 1, 0), ("trigger", "t", 0, 1)], "the procedure p"),
        ([("procedure", "p", 1, 1)], ""),
    ],
)
def test_what_switches_within_a_statement(
    found: list[tuple[str, str, int | None, int | None]], switched: str
) -> None:
    """A procedure's statements each have their own flags, but for those called within others."""
    (key,) = read_foreign_keys(Switching(*found), database="shop").by_table["child"]
    assert key.switched == switched


def test_where_cascades_are_logged_nothing_is_switched() -> None:
    server = Switching(("trigger", "t", 1, 0))
    server.native = [("innodb_native_foreign_keys", "OFF")]
    (key,) = read_foreign_keys(server, database="shop").by_table["child"]
    assert key.switched == ""
