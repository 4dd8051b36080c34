"""A table whose log was removed, wholly or in part, while others know what it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import ratchet.store.delta.commits
from ratchet.store.anew import clear_place, end_removal, forget_old_log, is_readable
from ratchet.store.delta.actions import CommitInfo
from ratchet.store.delta.commits import commit_files, epoch_of, fence
from ratchet.store.delta.log import replay
from ratchet.store.delta.tables import create_delta_table
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.removals import Removals
from tests.lease_kit import hold

PATH = "shop/t"
SCHEMA = pa.schema([pa.field("id", pa.int64())])
INFO = CommitInfo(operation="MERGE", made_at=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake that is held, with a table of ten versions."""
    held = hold(open_lake(tmp_path / "lake", now=1))
    make(held, 10)
    return held


def make(lake: Lake, commits: int) -> None:
    create_delta_table(lake, PATH, SCHEMA, name="t", description="", now=1)
    files = replay(lake, PATH)
    for _ in range(1, commits):
        files = commit_files(lake, PATH, files, [INFO])


@pytest.mark.parametrize("gone", [1, 4, 9])
def test_what_a_removal_has_left_that_was_broken_off(lake: Lake, gone: int) -> None:
    """The first commits are gone: what is left would come to stand behind those of a new table."""
    log = Path(lake.root) / PATH / "_delta_log"
    for version in range(gone):
        (log / f"{version:020d}.json").unlink()
    assert not is_readable(lake, PATH)
    assert clear_place(lake, "shop", "t", PATH)
    assert is_readable(lake, PATH), "there is none"
    assert not clear_place(lake, "shop", "t", PATH)
    make(lake, 2)
    found = replay(lake, PATH)
    assert found is not None
    assert found.version == 1


def test_a_removal_that_was_begun_is_ended_before_a_new_dump(lake: Lake) -> None:
    """The log that stands is not gone on with; one that was only dropped is."""
    end_removal(lake, "shop", "t")
    assert replay(lake, PATH) is not None
    Removals(lake).begin("shop", "t")
    end_removal(lake, "shop", "t")
    assert replay(lake, PATH) is None
    make(lake, 2)
    forget_old_log(lake, "shop", "t", PATH, -1)
    end_removal(lake, "shop", "t")
    assert replay(lake, PATH) is not None, "the note has gone"


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_fence_meets_a_table_that_is_removed_at_that_moment(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, *, is_made_anew: bool
) -> None:
    """By the one that is to be fenced: a dump's folder, once the dump is shown."""
    genuine, heir = ratchet.store.delta.commits.put_commit, replace(lake, epoch=lake.epoch + 1)
    known = replay(lake, PATH)

    def put(*args: object, **more: object) -> bool:
        monkeypatch.setattr(ratchet.store.delta.commits, "put_commit", genuine)
        lake.delete_folder(PATH)
        if is_made_anew:
            make(lake, 2)
        return genuine(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ratchet.store.delta.commits, "put_commit", put)
    done = fence(heir, PATH, now=1, known=known)
    assert (done is not None) == is_made_anew
    assert epoch_of(replay(lake, PATH)) == (heir.epoch if is_made_anew else 0)
