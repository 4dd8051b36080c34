"""A round that names change files that are gone: its table stops by name, nothing else ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.core.errors import LakeError
from ratchet.store.segments import object_of
from ratchet.store.tables import Tables
from tests.merge_kit import Source, merger
from tests.unit.merge.test_directly import streaming


def test_its_table_stops_with_the_remedy(tmp_path: Path) -> None:
    """As a late writer of an earlier version leaves it, or whoever removed a file."""
    source = streaming(tmp_path)
    source.tx("-", ("put", {**_row(source), "id": 1}))
    source.round()
    (file,) = source.rounds.since(source.rounds.last_number() - 1)[0].files
    source.lake.delete(object_of(file.path))
    with merger(None, source) as merging:
        done = merging.step()
    error = done.stopped[source.state.name]
    assert object_of(file.path) in error.message
    assert f"`ratchet table CONFIG redump '{source.state.name}'`" in error.hint
    state = Tables(source.lake).load(source.state.keyspace, source.state.table)
    assert state is not None
    assert state.phase == "stopped"
    assert state.stopped is not None
    assert state.stopped.round == source.rounds.last_number(), "what is below it is merged"
    assert done.cut is not None
    assert done.cut.stopped == (source.state.name,)
    with merger(None, source) as merging:
        assert not merging.step().stopped


def test_another_failure_ends_the_step_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = streaming(tmp_path)
    source.tx("-", ("put", {**_row(source), "id": 1}))
    source.round()

    def fail(*_: object, **__: object) -> None:
        raise LakeError("the disk", operation="test")

    monkeypatch.setattr("ratchet.merge.onetable.merge_table", fail)
    with merger(None, source) as merging, pytest.raises(LakeError, match="the disk"):
        merging.step()


def _row(source: Source) -> dict[str, object]:
    return {column.name: None for column in source.schema.columns}
