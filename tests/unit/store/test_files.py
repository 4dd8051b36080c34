"""The lake's files: ours or not, atomic JSON, errors with a remedy."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.fs
import pytest

from ratchet.core.errors import LakeAwayError, LakeError
from ratchet.store.failures import lake_errors
from ratchet.store.files import Lake
from ratchet.store.formats import CARRIED_FORMAT, is_unused, open_lake
from ratchet.store.layout import FORMAT_FILE
from ratchet.store.requests import Request, Requests


def test_an_empty_place_becomes_a_lake_and_stays_it(tmp_path: Path) -> None:
    lake = open_lake(tmp_path / "new" / "lake", now=5)
    first = lake.read_json(FORMAT_FILE)["id"]
    assert open_lake(tmp_path / "new" / "lake", now=9).read_json(FORMAT_FILE)["id"] == first
    assert pickle.loads(pickle.dumps(lake)) == lake


def test_a_folder_with_other_files_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(LakeError, match="not a lake") as caught:
        open_lake(tmp_path, now=1)
    assert caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_folder_with_folders_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "music").mkdir()
    with pytest.raises(LakeError, match="not a lake"):
        open_lake(tmp_path, now=1)


def test_what_a_killed_or_failed_creation_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "_ratchet").mkdir()
    assert is_unused(Lake.at(tmp_path))
    (tmp_path / "_ratchet" / ".format.json.0123.tmp").write_bytes(b"")
    open_lake(tmp_path, now=1)
    assert not is_unused(Lake.at(tmp_path))
    other = tmp_path / "other"
    (other / "_ratchet").mkdir(parents=True)
    (other / "_ratchet" / "lease.json").write_text("{}")
    with pytest.raises(LakeError, match="not a lake"):
        open_lake(other, now=1)


def test_missing_lake_is_not_created_unless_asked(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no lake"):
        open_lake(tmp_path / "x", now=1, create=False)
    assert not (tmp_path / "x").exists()


def test_another_format_is_refused(tmp_path: Path) -> None:
    lake = open_lake(tmp_path, now=1)
    unknown = CARRIED_FORMAT + 1
    lake.write_json("_ratchet/format.json", {"format": unknown})
    with pytest.raises(LakeError, match=f"has format {unknown}, this is Ratchet for format"):
        open_lake(tmp_path, now=1)


def test_json_round_trip_and_put_if_absent(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    assert lake.read_json("a/b.json") is None
    assert lake.create_json("a/b.json", {"x": 1})
    assert not lake.create_json("a/b.json", {"x": 2})
    assert lake.read_json("a/b.json") == {"x": 1}
    lake.write_json("a/b.json", {"x": 3})
    assert lake.read_json("a/b.json") == {"x": 3}
    assert [f.path for f in lake.list()] == ["a/b.json"]
    assert lake.size("a/b.json") == lake.list("a")[0].size > 0


def test_what_is_just_being_written_is_in_no_list(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    writer = Lake.at(tmp_path)
    seen = []

    def look(_: int) -> None:
        seen.append([[f.path for f in lake.list("a", unfinished=one)] for one in (False, True)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratchet.store.files.os.fsync", look)
        writer.write_json("a/b.json", {"x": 1})
        writer.create_json("a/c.json", {"x": 1})
    (named, there), (named_then, there_then) = seen
    assert (named, len(there)) == ([], 1)
    assert (named_then, len(there_then)) == (["a/b.json"], 2)
    assert [f.path for f in lake.list("a", unfinished=True)] == ["a/b.json", "a/c.json"]


def test_a_request_that_is_just_being_asked_is_not_read(tmp_path: Path) -> None:
    """A run looks into the folder at any time; what a killed command left stays unread too."""
    requests = Requests(Lake.at(tmp_path))
    first, second = (
        Request(kind="redump", keyspace="shop", table=name, asked_at=at)
        for at, name in enumerate("ab")
    )
    requests.ask(first)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratchet.store.files.os.fsync", lambda _: seen.append(requests.pending()))
        requests.ask(second)
    assert seen == [[first]]
    assert requests.pending() == [first, second]


def test_damaged_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(LakeError, match="damaged"):
        Lake.at(tmp_path).read_json("x.json")


def test_a_lake_that_was_moved_away_is_not_made_anew_by_a_write(tmp_path: Path) -> None:
    """Nor one whose disk is not mounted any more: it would be hidden when that comes back."""
    open_lake(tmp_path / "lake", now=1)
    lake = replace(Lake.at(tmp_path / "lake"), epoch=3)
    lake.write_json("_ratchet/a.json", 1)
    (tmp_path / "lake").rename(tmp_path / "away")
    for write in (
        lambda: lake.write_json("_ratchet/a.json", 2),
        lambda: lake.create_file("_ratchet/b", b"x"),
        lambda: lake.change_json("_ratchet/c.json", lambda _: 1),
        lambda: lake.open_output("shop/t/d.parquet"),
    ):
        with pytest.raises(LakeAwayError, match="no longer a lake"):
            write()
    assert not (tmp_path / "lake").exists()
    (tmp_path / "away").rename(tmp_path / "lake")
    lake.write_json("_ratchet/a.json", 3)
    assert lake.read_json("_ratchet/a.json") == 3


def test_files_are_written_read_removed(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    with lake.open_output("d/e/f.bin") as out:
        out.write(b"abc")
    with lake.open_input("d/e/f.bin") as stream:
        assert stream.read() == b"abc"
    lake.delete("d/e/f.bin")
    lake.delete("d/e/f.bin")
    assert not lake.exists("d/e/f.bin")
    with pytest.raises(LakeError):
        lake.size("d/e/f.bin")
    with pytest.raises(LakeError):
        lake.open_input("d/e/f.bin")
    lake.delete_folder("d")
    assert not lake.exists("d")
    with pytest.raises(LakeError, match="lake itself"):
        lake.delete_folder("")


def test_a_full_disk_says_what_to_free() -> None:
    with pytest.raises(LakeError) as caught, lake_errors("write", "x.parquet"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "x.parquet" in str(caught.value)
    assert "free space" in caught.value.hint
    assert caught.value.exit_code == 7


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EIO, "dmesg"), (errno.EROFS, "mount it writable")]
)
def test_a_disk_that_fails_says_what_to_mend(number: int, remedy: str) -> None:
    with pytest.raises(LakeError) as caught, lake_errors("write", "x.parquet"):
        raise OSError(number, os.strerror(number))
    assert os.strerror(number) in str(caught.value)
    assert remedy in caught.value.hint
    assert "fsck" in caught.value.hint
    assert caught.value.exit_code == 7


def test_a_really_full_device_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    """Linux's /dev/full fails every write as a full disk does."""
    (tmp_path / "full").symlink_to("/dev/full")
    lake = Lake.at(tmp_path)
    with (
        pytest.raises(LakeError) as caught,
        lake_errors("write", "full"),
        lake.filesystem.open_append_stream(lake.absolute("full")) as out,
    ):
        out.write(b"x" * 100)
    assert "free space" in caught.value.hint


def test_uris_for_the_three_writers(tmp_path: Path) -> None:
    local = Lake.at(tmp_path)
    assert local.hadoop_uri("a/@5Fb") == f"file://{tmp_path}/a/@5Fb"
    assert local.delta_uri("a/@5Fb") == f"{tmp_path}/a/@5Fb"
    assert Lake.at(f"file://{tmp_path}") == local
    remote = Lake.at("s3://bucket/lake/")
    assert remote.hadoop_uri("a") == "s3a://bucket/lake/a"
    assert remote.delta_uri("@5Fb") == "s3://bucket/lake/@5Fb"


def test_storage_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert Lake.at("s3://b/l").storage_options["AWS_ALLOW_HTTP"] == "true"
    assert Lake.at("/tmp/l").storage_options == {}


def test_a_file_that_goes_while_it_is_looked_at_is_missing(tmp_path: Path) -> None:
    """As requests do, which a run takes while the command that asked looks for the answer."""
    lake = open_lake(tmp_path / "lake", now=1)
    end = time.monotonic() + 1

    def toggle() -> None:
        while time.monotonic() < end:
            lake.write_json("_ratchet/x.json", {"a": 1})
            lake.delete("_ratchet/x.json")

    def look(_: int) -> set[str]:
        seen = set()
        while time.monotonic() < end:
            seen.add(str(lake.read_json("_ratchet/x.json")))
            lake.delete("_ratchet/x.json")
        return seen

    with ThreadPoolExecutor(4) as pool:
        toggling = pool.submit(toggle)
        seen = set().union(*pool.map(look, range(3)))
        toggling.result()
    assert seen <= {"None", "{'a': 1}"}


def test_a_folder_that_others_make_and_remove_while_it_is_listed(tmp_path: Path) -> None:
    """It has files or none; that it comes or goes is no failure of the lake."""
    lake, end = Lake.at(tmp_path), threading.Event()

    def disturb() -> None:
        folder = tmp_path / "_ratchet" / "requests"
        while not end.is_set():
            (folder / "inner").mkdir(parents=True)
            (folder / "inner" / "a.json").write_text("1")
            shutil.rmtree(folder)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        for _ in range(3000):
            for path in ("_ratchet", "_ratchet/requests"):
                for file in lake.list(path):
                    assert file.path == "_ratchet/requests/inner/a.json"
    finally:
        end.set()
        other.join()


def test_a_list_has_what_arrow_lists(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    for name in ("x", "a/y", "a/b/z", "a/b/.z.tmp"):
        lake.create_file(name, name.encode())
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "lake" / "x")
    (tmp_path / "lake" / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "lake" / "a" / "empty").mkdir()
    for path in ("", "a", "a/b", "nothing"):
        for recursive in (True, False):
            selector = pyarrow.fs.FileSelector(
                lake.absolute(path), allow_not_found=True, recursive=recursive
            )
            found = [
                (one.path[len(lake.root) + 1 :], one.size, one.mtime_ns // 1000)
                for one in lake.filesystem.get_file_info(selector)
                if one.is_file
            ]
            listed = lake.list(path, recursive=recursive)
            assert [(one.path, one.size, one.modified_at) for one in listed] == sorted(found)
    with pytest.raises(LakeError, match="Not a directory"):
        lake.list("x")
