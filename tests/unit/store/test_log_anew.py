"""A log that is made anew begins above all numbers that were used there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from ratchet.store import anew
from ratchet.store.anew import clear_place, forget_old_log, highest_number, used_numbers
from ratchet.store.delta.actions import CommitInfo, DataFile
from ratchet.store.delta.checkpoints import write_checkpoint
from ratchet.store.delta.commits import LateError, commit_files
from ratchet.store.delta.datafiles import write_data_file
from ratchet.store.delta.log import TableFiles, replay, replay_existing
from ratchet.store.delta.tables import create_mirrored_table
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.removals import Removals

T = "shop/t"
create_file = Lake.create_file
COLUMNS = pa.schema([("id", pa.int64())])


@pytest.fixture(params=["folder", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Of the first epoch."""
    there = request.getfixturevalue("s3_root") if request.param == "s3" else tmp_path / "lake"
    return replace(open_lake(there, now=1), epoch=1)


def begin(lake: Lake) -> int:
    """Make the place for a dump, and the table, as a dump does; the numbers that were used."""
    clear_place(lake, "shop", "t", T)
    used = used_numbers(lake, "shop", "t", T)
    create_mirrored_table(lake, T, COLUMNS, key=["id"], name="shop.t", now=1, above=used)
    forget_old_log(lake, "shop", "t", T, used)
    return used


def add(lake: Lake, *ids: int, files: TableFiles | None = None) -> TableFiles | None:
    """Add a file with rows."""
    files = files or replay_existing(lake, T, "test")
    token = files.schema.field("_token")
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    rows = rows.append_column(token, pa.nulls(len(ids), token.type))
    one: DataFile = write_data_file(
        lake, T, [rows], files.schema, kind="test", described=["id"], now=1
    )
    return commit_files(lake, T, files, [CommitInfo(operation="WRITE", made_at=1, blind=True), one])


def shown(lake: Lake) -> list[int]:
    """What a reader sees."""
    table = DeltaTable(lake.delta_uri(T), storage_options=lake.storage_options)
    files = replay(lake, T)
    assert files is not None
    assert files.version == table.version()
    found = QueryBuilder().register("t", table).execute("SELECT id FROM t ORDER BY id").read_all()
    return pa.table(found).column("id").to_pylist()


def with_rows(lake: Lake) -> list[str]:
    """A table of versions 0 to 2 with a checkpoint; what is in its log."""
    assert begin(lake) == -1
    add(lake, 1)
    write_checkpoint(lake, T)
    add(lake, 2)
    assert shown(lake) == [1, 2]
    return [file.path for file in lake.list(f"{T}/_delta_log")]


def damage(lake: Lake) -> None:
    lake.delete(f"{T}/_delta_log/{2:020d}.json")
    lake.create_file(f"{T}/_delta_log/{2:020d}.json", b"damaged")


def test_a_late_removal_meets_nothing_of_it(lake: Lake) -> None:
    listed = with_rows(lake)
    damage(lake)
    heir = replace(lake, epoch=2)
    assert begin(heir) == 2
    add(heir, 7)
    assert shown(lake) == [7]
    lake.delete_files(listed)
    assert shown(lake) == [7]
    for number in range(30):
        add(heir, 100 + number)
    write_checkpoint(heir, T)
    lake.delete_files(listed)  # the file that names the newest checkpoint is one of them
    assert len(shown(lake)) == 31
    assert used_numbers(heir, "shop", "t", T) == -1


def test_a_late_commit_comes_to_nothing(lake: Lake) -> None:
    with_rows(lake)
    known = replay_existing(lake, T, "test")
    older = replace(known, version=1, last=b"")
    damage(lake)
    heir = replace(lake, epoch=2)
    assert begin(heir) == 2
    add(heir, 7)
    assert add(lake, 8, files=replace(known, last=b"")) is None, "its number is taken"
    with pytest.raises(LateError):
        add(lake, 8)
    add(lake, 9, files=older)  # a number below the new log's
    assert shown(lake) == [7]
    add(heir, 10)
    assert shown(lake) == [7, 10]


def test_a_table_that_is_removed_and_added_again(lake: Lake) -> None:
    listed = with_rows(lake)
    removals = Removals(lake)
    removals.begin("shop", "t", last=highest_number(lake, T))
    lake.delete_seen(T, lambda: None)
    assert not lake.list(T)
    assert begin(lake) == 2
    assert not removals.is_begun("shop", "t")
    add(lake, 5)
    lake.delete_files(listed)
    assert shown(lake) == [5]
    assert begin(lake) == -1


def test_a_removal_that_has_not_begun(lake: Lake) -> None:
    """The note is there, and whoever was to remove the table stands still."""
    listed = with_rows(lake)
    heir = replace(lake, epoch=2)  # the note is copied at a take-over
    Removals(heir).begin("shop", "t", last=highest_number(lake, T))
    assert begin(heir) == 2
    add(heir, 5)
    assert shown(lake) == [5]
    lake.delete_files(listed)
    assert shown(lake) == [5]


def test_killed_in_between_it_begins_above_that_too(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rows(lake)
    damage(lake)
    with monkeypatch.context() as patched:
        patched.setattr(Lake, "create_file", killed)
        with pytest.raises(KeyboardInterrupt):
            begin(lake)
    assert begin(lake) == 3, "of the first try there is a commit"
    add(lake, 5)
    assert shown(lake) == [5]
    # Killed before the old log was removed: it is complete, and what is left does no harm.
    damage_all(lake)
    with monkeypatch.context() as patched:
        patched.setattr(anew, "check_epoch", stopped)
        with pytest.raises(KeyboardInterrupt):
            begin(lake)
    begin(lake)
    add(lake, 6)
    assert shown(lake) == [6]


def damage_all(lake: Lake) -> None:
    for file in lake.list(f"{T}/_delta_log"):
        lake.delete(file.path)
        lake.create_file(file.path, b"damaged")


def killed(lake: Lake, path: str, content: bytes) -> bool:
    if path.endswith(".checkpoint.parquet") and path.startswith(T):
        raise KeyboardInterrupt
    return create_file(lake, path, content)


def stopped(*_: object) -> None:
    raise KeyboardInterrupt
