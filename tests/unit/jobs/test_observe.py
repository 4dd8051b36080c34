"""What a run reports: each kind of it is told in the log, under a name of its own."""

from __future__ import annotations

import dataclasses
from typing import get_args

from ratchet.jobs.reporting import observe


def test_every_kind_that_says_something_is_a_record() -> None:
    """An observer takes a `Record`; what is left out of it is told by nobody."""
    there = {
        found
        for name, found in vars(observe).items()
        if not name.startswith("_")
        and dataclasses.is_dataclass(found)
        and hasattr(found, "sentence")
    }
    assert there == set(get_args(observe.Record))
    assert len(there) >= 8  # the look above finds them
