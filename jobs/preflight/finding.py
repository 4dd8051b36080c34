"""One line of `ratchet check`, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ratchet.jobs.preflight.facts import LogFacts

Status = Literal["ok", "info", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of `ratchet check`.

    Attributes:
        place: what it is about: "config", "lake", or keyspace/shard.
        check: what was looked at.
        status: ok, info, warn (works, but), fail (not fit).
        text: what was found.
        mend: the statement or the change that mends it.
    """

    place: str
    check: str
    status: Status
    text: str
    mend: str = ""


def finding(facts: LogFacts, check: str, status: Status, text: str, mend: str = "") -> Finding:
    """A finding about one server."""
    return Finding(place=str(facts.shard), check=check, status=status, text=text, mend=mend)
