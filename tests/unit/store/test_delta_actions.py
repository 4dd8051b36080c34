"""Actions of Delta's log: what others wrote of a file is given back to the letter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratchet.core.errors import LakeError
from ratchet.store.delta.actions import (
    Action,
    AppTransaction,
    DataFile,
    RemovedFile,
    TableMetadata,
    TableProtocol,
    VectorDescriptor,
    actions_of,
)
from ratchet.store.delta.log import replay
from ratchet.store.formats import open_lake

VECTOR = VectorDescriptor(storage="u", place="ab^-aqEH.-t@S}K{vb[*", offset=4, size=40, rows=6)
FILE = DataFile(
    uri="part%20one.parquet",
    size=841_454,
    modified_at=1_512_909_768_000,
    stats_text='{"numRecords":1,"minValues":{"d":0.10000000000000000001}}',
    vector=VECTOR,
    partition={"day": "2017-12-10", "none": None},
    tags={"by": "someone"},
)


@pytest.mark.parametrize(
    "action",
    [
        FILE,
        DataFile(uri="a", size=1, modified_at=2, changes_data=False),
        FILE.removed(now=5_000),
        RemovedFile(uri="a", vector=None, removed_at=None),
        AppTransaction(app_id="a", version=2**63 - 1, updated_at=1_000),
        AppTransaction(app_id="a", version=0),
        TableMetadata(id="i", schema_text="{}", configuration={"a": "b"}, partition_columns=("d",)),
        TableProtocol(reader=1, writer=2),
        TableProtocol(reader=3, writer=7, reader_features=(), writer_features=("appendOnly",)),
    ],
)
def test_an_action_is_read_as_it_was_written(action: Any) -> None:
    assert list(actions_of(json.loads(json.dumps(action.to_json())))) == [action]


def test_a_vector_in_the_log_itself_has_no_offset() -> None:
    place = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    vector = VectorDescriptor(storage="i", place=place, offset=None, size=40, rows=6)
    assert "offset" not in vector.to_json()
    assert VectorDescriptor.from_json(vector.to_json()) == vector


@pytest.mark.parametrize(
    ("stats", "bounds"),
    [
        ('{"numRecords":1,"tightBounds":true}', '{"numRecords":1,"tightBounds":false}'),
        ('{"n":0.10000000000000000001}', '{"n":0.10000000000000000001,"tightBounds":false}'),
        ("", ""),
    ],
)
def test_statistics_of_a_file_with_a_vector_are_bounds(stats: str, bounds: str) -> None:
    file = DataFile(uri="a", size=1, modified_at=2, stats_text=stats, changes_data=False)
    marked = file.with_vector(VECTOR)
    assert (marked.stats_text, marked.gone, marked.changes_data) == (bounds, 6, True)


def test_what_a_removal_keeps_of_its_file() -> None:
    gone: Action = FILE.removed(now=7_000_000)
    assert gone.to_json()["remove"] == {
        "path": FILE.uri,
        "partitionValues": dict(FILE.partition),
        "size": FILE.size,
        "tags": {"by": "someone"},
        "deletionVector": VECTOR.to_json(),
        "stats": FILE.stats_text,
        "deletionTimestamp": 7_000,
        "dataChange": True,
        "extendedFileMetadata": True,
    }
    assert FILE.path == "part one.parquet"


def test_kinds_that_make_up_no_state_are_left_out() -> None:
    assert list(actions_of({"commitInfo": {"x": 1}, "cdc": {}, "domainMetadata": {}})) == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"add": {}}',
        b'{"add": {"path": 1, "size": []}}',
        b'{"txn": 5}',
        b"[1]",
        b'{"protocol": {"minReaderVersion": "x"}}',
    ],
)
def test_a_line_of_another_shape_is_a_damaged_commit(tmp_path: Any, line: bytes) -> None:
    lake = open_lake(tmp_path, now=1)
    lake.create_file(f"t/_delta_log/{0:020d}.json", line)
    with pytest.raises(LakeError, match="cannot be read"):
        replay(lake, "t")
