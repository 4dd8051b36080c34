"""When what is known of old shapes is thrown away."""

from __future__ import annotations

import pytest

from ratchet.ingest import shapes
from ratchet.ingest.shapes import ShapeCount


def test_old_shapes_are_many_once_they_outweigh_those_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shapes, "MOST_OLD", 10)
    count = ShapeCount()
    for n in range(50):
        count.add(f"t{n}", 4)  # many tables alone are no reason: all of it is in use
    assert not count.has_many_old
    for _ in range(50):
        count.add("t1", 4)
    assert not count.has_many_old  # as much again as is in use
    count.add("t1", 4)
    assert count.has_many_old
    small = ShapeCount()
    for columns in (6, 5, 5):
        small.add("w", columns)
    assert small.has_many_old is True
    assert ShapeCount().has_many_old is False
