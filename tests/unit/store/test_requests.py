"""Requests and their answers, also by a run that was overtaken while it stood still."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from lease_kit import hold

from ratchet.store import layout
from ratchet.store.delta.commits import LateError
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.requests import Refusal, Request, Requests

REQUEST = Request(kind="redump", keyspace="shop", table="t", asked_at=5)
REFUSAL = Refusal(message="no", hint="ask again")


@pytest.fixture
def root(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


def answers(lake: Lake) -> list[str]:
    return [file.path for file in lake.list(layout.NOTES) if "/answers/" in file.path]


def test_a_request_is_done_once(root: Lake) -> None:
    run, asker = Requests(hold(root)), Requests(root)
    asker.ask(REQUEST)
    assert asker.answer(REQUEST) == "waiting"
    assert run.pending() == [REQUEST]
    run.done(REQUEST)
    assert asker.answer(REQUEST) == "done"
    assert run.pending() == []
    assert not root.exists(REQUEST.path)
    assert answers(root) == []


def test_a_refusal_stays_until_whoever_asked_takes_it_away(root: Lake) -> None:
    run, asker = Requests(hold(root)), Requests(root)
    asker.ask(REQUEST)
    run.refuse(REQUEST, REFUSAL)
    assert run.pending() == []
    assert asker.answer(REQUEST) == REFUSAL
    asker.take_back(REQUEST)
    asker.ask(replace(REQUEST, id="other"))
    assert [one.id for one in run.pending()] == ["other"]
    assert answers(root) == []  # the next look clears it away


def test_what_a_late_run_answers_is_not_heard(root: Lake) -> None:
    """It would be told as done, and the one that holds the lake would never do it."""
    late = Requests(hold(root))
    new, asker = Requests(hold(root)), Requests(root)
    asker.ask(REQUEST)
    assert late.pending() == [REQUEST]
    with pytest.raises(LateError):
        late.check()
    with pytest.raises(LateError):
        late.done(REQUEST)
    late.refuse(REQUEST, REFUSAL)
    assert asker.answer(REQUEST) == "waiting"
    assert new.pending() == [REQUEST]
    new.done(REQUEST)
    assert asker.answer(REQUEST) == "done"


@pytest.mark.parametrize("refused", [False, True])
def test_an_answer_outlives_who_gave_it(
    root: Lake, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    """Killed between the answer and the removal of the request: it is not done twice."""
    run, asker = Requests(hold(root)), Requests(root)
    asker.ask(REQUEST)
    if refused:
        run.refuse(REQUEST, REFUSAL)
    else:
        monkeypatch.setattr(run, "_clear", lambda _: None)
        run.done(REQUEST)
    successor = Requests(hold(root))
    assert successor.pending() == []
    assert asker.answer(REQUEST) == (REFUSAL if refused else "done")
    assert root.exists(REQUEST.path) == refused


def test_a_refusal_of_an_older_version_is_read(root: Lake) -> None:
    data = {"request": asdict(REQUEST), "refusal": asdict(REFUSAL)}
    root.write_json(REQUEST.path, data)
    assert Requests(root).answer(REQUEST) == REFUSAL
    assert Requests(hold(root)).pending() == []
