"""How a log's files ended, by answers as MySQL 9.7 and MariaDB 10.11 give them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

import pytest

from ratchet.core.errors import ServerRefusedError, SourceUnfitError
from ratchet.wire.logends import read_log_ends
from ratchet.wire.session import Session

SIZE = 1000


class Answers:
    """A server whose log's files end as told: "stop", "rotate", or cut ("")."""

    def __init__(self, ends: Sequence[str], *, first: int = 1, checksum: int = 4) -> None:
        self.ends, self.first, self.checksum = ends, first, checksum
        self.encrypted = False
        self.asked = 0

    def name(self, number: int) -> str:
        return f"bin.{self.first + number:06}"

    def query(self, sql: str, args: Sequence[object] = ()) -> Sequence[Sequence[object]]:
        size = SIZE + 512 * self.encrypted
        if sql == "SHOW BINARY LOGS":
            mark = "Yes" if self.encrypted else "No"
            return [(self.name(number), size, mark) for number in range(len(self.ends) + 1)]
        self.asked += 1
        (at,) = re.findall(r"FROM (\d+) LIMIT 1$", sql)
        number = int(str(args[0]).rpartition(".")[2]) - self.first
        kind = self.ends[number]
        length = 19 if kind == "Stop" else 27 + len(self.name(number + 1))
        place = SIZE - length - self.checksum
        if kind and int(at) <= place:  # MySQL may show the next event behind a place
            return [(args[0], place, kind, 1, SIZE, "")]
        raise ServerRefusedError("(1220, 'wrong offset')", operation="ask", source="shop/-")


def refuse(*_: object) -> Sequence[Sequence[object]]:
    raise SourceUnfitError("a privilege is missing", operation="ask", source="shop/-")


def unclean(answers: Answers, since: str = "") -> str:
    return read_log_ends(cast(Session, answers), since=since).unclean


@pytest.mark.parametrize("checksum", [0, 4])
@pytest.mark.parametrize("encrypted", [False, True])
def test_the_end_of_the_life_before(checksum: int, encrypted: bool) -> None:  # noqa: FBT001
    for ends, told in (
        (["Stop"], ""),
        (["Rotate", "Stop", "Rotate", "Rotate"], ""),
        ([""], "it did not close its log's file bin.000001"),
        (["Stop", "", "Rotate"], "it did not close its log's file bin.000002"),
        (["", "Stop", "Rotate"], ""),  # a life before that
        ([], ""),
        (["Rotate"], ""),  # the first life of all
    ):
        answers = Answers(ends, checksum=checksum)
        answers.encrypted = encrypted
        assert unclean(answers) == told, ends


def test_all_lives_since_it_was_asked_last() -> None:
    answers = Answers(["", "Rotate", "", "Stop", "Rotate"])
    assert "bin.000003" in unclean(answers, since="bin.000002")
    assert unclean(answers, since="bin.000004") == ""
    assert unclean(answers, since="bin.000006") == ""  # the one that is written
    assert unclean(answers, since="other.000002") == ""


def test_what_is_not_known_is_doubted() -> None:
    assert "before the file bin.000007" in unclean(Answers(["Rotate", "Rotate"], first=7))
    assert unclean(Answers(["Stop", "Rotate"], first=7)) == ""
    assert "before" in unclean(Answers(["Stop", "Rotate"] * 600, first=7), since="bin.000007")

    closed = Answers([])
    closed.query = refuse  # type: ignore[method-assign]
    assert "a privilege is missing" in unclean(closed)


def test_few_questions() -> None:
    answers = Answers(["Rotate"] * 300)
    assert unclean(answers, since="bin.000300") == ""
    assert answers.asked <= 4
