"""The log: one line per event, text or JSON, without secrets, without other people's noise."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from ratchet.jobs.reporting import logs


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    yield
    logs._secrets.clear()
    logs.set_up()


def written(form: logs.Format, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.set_up(level=level, form=form, stream=stream)
    return stream


def test_text() -> None:
    stream = written("text")
    logging.getLogger("ratchet.jobs.run.pipeline").info("round %d", 7)
    logging.getLogger("ratchet.ingest").warning("slow")
    logging.getLogger("ratchet.store").debug("too much")
    first, second = stream.getvalue().splitlines()
    assert first[8:] == " round 7"
    assert second[8:] == " warning: slow"


def test_json() -> None:
    stream = written("json", "debug")
    extra = {"fields": {"event": "round_committed", "round": 7}}
    logging.getLogger("ratchet.jobs.run.pipeline").debug("round 7", extra=extra)
    line = json.loads(stream.getvalue())
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "debug",
        "logger": "ratchet.jobs.run.pipeline",
        "message": "round 7",
        "event": "round_committed",
        "round": 7,
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_become_stars(form: logs.Format) -> None:
    """Also in tracebacks, in fields, and as they look inside a repr."""
    secret = 'pass"word\\1'
    stream = written(form)
    logs.hide({secret, "ab"})
    try:
        int(secret)
    except ValueError:
        logging.getLogger("ratchet.wire").exception(
            "tried %s, %r", secret, secret, extra={"fields": {"list": [secret, 1]}}
        )
    text = stream.getvalue()
    assert "word" not in text
    assert "***" in text
    assert "Traceback" in text


def test_other_packages_are_not_heard() -> None:
    stream = written("text")
    logging.getLogger("py4j.clientserver").error("noise")
    logging.getLogger().error("noise")
    assert stream.getvalue() == ""
