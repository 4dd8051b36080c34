"""A lake keeps the same promises in a folder and in an object store (S3)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lease_kit import Passing

from ratchet.core.errors import LakeError
from ratchet.store import layout, objects
from ratchet.store.delta.appendlog import DeltaLogTable, NumberRange
from ratchet.store.files import Lake
from ratchet.store.formats import is_unused, open_lake
from ratchet.store.lease import Lease, read_holder

pytestmark = pytest.mark.slow

NOW = 1_800_000_000.0


@pytest.fixture(params=["folder", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "folder":
        return Lake.at(tmp_path / "lake")
    return Lake.at(request.getfixturevalue("s3_root"))


def at_once(work: Callable[[int], Any], threads: int = 8) -> list[Any]:
    """What it gave in each thread; LakeErrors are given, too."""
    start = threading.Barrier(threads)
    gave: list[Any] = []

    def run(number: int) -> None:
        start.wait()
        try:
            gave.append(work(number))
        except LakeError as error:
            gave.append(error)

    runs = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    return gave


def test_an_empty_place_becomes_a_lake(lake: Lake) -> None:
    assert is_unused(lake)
    first = open_lake(lake.root, now=5).read_json(layout.FORMAT_FILE)["id"]
    assert open_lake(lake.root, now=9).read_json(layout.FORMAT_FILE)["id"] == first
    assert not is_unused(lake)


def test_files(lake: Lake) -> None:
    assert lake.list() == []
    with lake.open_output("a/b c@5F.bin") as stream:
        stream.write(b"12345")
    assert [(file.path, file.size) for file in lake.list("a")] == [("a/b c@5F.bin", 5)]
    with lake.open_input("a/b c@5F.bin") as stream:
        stream.seek(2)
        assert stream.read() == b"345"
    assert lake.exists("a/b c@5F.bin")
    assert lake.read_file("a/b c@5F.bin") == b"12345"
    assert lake.read_file("a/none") is None
    assert lake.size("a/b c@5F.bin") == 5
    lake.delete("a/b c@5F.bin")
    assert not lake.exists("a/b c@5F.bin")
    with pytest.raises(LakeError, match="size"):
        lake.size("a/b c@5F.bin")
    lake.write_json("x/1.json", 1)
    lake.write_json("x/2.json", 2)
    lake.delete_folder("x")
    assert lake.read_json("x/1.json") is None


def test_one_of_many_creates_a_file(lake: Lake) -> None:
    """Two runs that commit the same version: the other's changes must not vanish."""
    for version in range(5):
        path = f"t/_delta_log/{version}.json"
        made = at_once(lambda n, path=path: (lake.create_file(path, b"%d" % n), n))
        (winner,) = (n for created, n in made if created)
        with lake.open_input(path) as stream:
            assert stream.read() == b"%d" % winner
    assert not lake.create_file("t/_delta_log/0.json", b"again")


def test_a_file_is_changed_by_one_after_the_other(lake: Lake) -> None:
    def one_more(_number: int) -> None:
        for _ in range(5):
            lake.change_json("n.json", lambda value: (value or 0) + 1)

    assert at_once(one_more) == [None] * 8
    assert lake.read_json("n.json") == 40
    lake.change_json("n.json", lambda _: None)
    assert lake.read_json("n.json") is None
    lake.change_json("n.json", lambda value: value)
    assert lake.read_json("n.json") is None


def test_a_change_that_fails_changes_nothing(lake: Lake) -> None:
    lake.write_json("n.json", 1)

    def fail(value: Any) -> Any:
        raise LakeError(f"not {value}", operation="test")

    with pytest.raises(LakeError, match="not 1"):
        lake.change_json("n.json", fail)
    assert lake.read_json("n.json") == 1


def test_the_lease_has_one_holder(lake: Lake) -> None:
    open_lake(lake.root, now=1)

    def ask(_number: int) -> Lease:
        return Lease.acquire(lake, "ratchet run")

    got = at_once(ask)
    (held,) = (one for one in got if isinstance(one, Lease))
    assert sum("another run" in str(one) for one in got) == 7
    held.renew()
    held.release()
    assert read_holder(lake) is None
    ask(0).release()


def test_a_lease_that_was_taken_over_stays_with_the_other(lake: Lake) -> None:
    open_lake(lake.root, now=1)
    held = Lease.acquire(lake, "ratchet run")
    elsewhere = replace(held.holder, machine="elsewhere")
    lake.write_json(layout.LEASE_FILE, asdict(elsewhere))
    later = Lease.acquire(lake, "ratchet run", passing=Passing().time)
    with pytest.raises(LakeError, match="now held by"):
        held.renew()
    held.release()
    found = read_holder(lake)
    assert found is not None
    assert found.owner == later.holder.owner


def test_an_answer_that_was_lost_is_no_second_writer(s3_root: str) -> None:
    """The client tries again by itself, and then meets what it has written."""
    lake = Lake.at(s3_root)
    assert lake.create_file("v.json", b"mine")
    assert lake.create_file("v.json", b"mine")
    assert not lake.create_file("v.json", b"another's")


def test_conditions(s3_root: str) -> None:
    assert objects.read(s3_root, "v.json") is None
    assert objects.create(s3_root, "v.json", b"1")
    assert not objects.create(s3_root, "v.json", b"1")
    first = objects.read(s3_root, "v.json")
    assert first is not None
    assert objects.replace(s3_root, "v.json", b"2", first[1])
    assert not objects.replace(s3_root, "v.json", b"3", first[1])
    second = objects.read(s3_root, "v.json")
    assert second is not None
    assert second[0] == b"2"
    Lake.at(s3_root).delete("v.json")
    assert not objects.replace(s3_root, "v.json", b"3", second[1])


def test_a_store_out_of_reach_is_an_error_with_a_remedy(
    s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(objects, "RETRIES", {"max_retries": 0})
    lake = Lake.at(f"{s3_root}/elsewhere")
    with pytest.raises(LakeError) as caught:
        lake.create_file("v.json", b"")
    assert "reachable" in str(caught.value.hint)
    assert "no-secret" not in str(caught.value.__cause__)


def test_a_url_that_nobody_can_write_is_refused() -> None:
    with pytest.raises(LakeError, match="cannot open") as caught:
        Lake.at("ftp://host/lake").exists("x")
    assert "s3://" in str(caught.value.hint)


def test_a_log_is_put_together_pruned_and_read(lake: Lake) -> None:
    """What deltalake has rewritten of it is read like what we have written."""
    schema = pa.schema(
        [
            pa.field("number", pa.int64(), nullable=False),
            pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("text", pa.string(), nullable=False),
        ]
    )
    rows = [{"number": n, "at": n, "text": f"row {n}"} for n in range(1, 46)]
    log = DeltaLogTable(lake, "log", schema)
    for row in rows:
        assert log.version_of("app") == row["number"] - 1
        table = pa.Table.from_pylist([row], schema=schema)
        log.append(table, app_id="app", version=row["number"], operation="write")
        if row["number"] == 40:
            log.compact()
            log.delete_below("number", 21)
    assert lake.exists("log/_delta_log/_last_checkpoint")
    for reader in (log, DeltaLogTable(lake, "log", schema)):
        assert reader.version_of("app") == 45
        found = reader.read(columns=["number", "text"], where=NumberRange("number", 31, 43))
        assert sorted(one["number"] for one in found) == list(range(31, 44))
        assert {one["text"] for one in found} == {f"row {n}" for n in range(31, 44)}
        assert len(reader.read(columns=["at"])) == 25
    stale, other = (DeltaLogTable(lake, "log", schema) for _ in range(2))
    stale.version_of("app")
    other.delete_below("number", 31)  # upkeep comes in between, and does no harm
    more = pa.Table.from_pylist([{**rows[-1], "number": 46}], schema=schema)
    log.append(more, app_id="app", version=46, operation="write")
    with pytest.raises(LakeError, match="another process"):
        stale.append(more, app_id="app", version=46, operation="write")


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_parts_of_files(lake: Lake, size: int) -> None:
    """Read with the size at hand and without it."""
    content = random.Random(1).randbytes(size)
    with lake.open_output("a/file") as stream:
        stream.write(content)
    assert bytes(lake.read_buffer("a/file")) == content
    for known in (None, size):
        with lake.open_input("a/file", size=known) as stream:
            assert stream.size() == size
            stream.seek(size - 5)
            assert stream.read() == content[-5:]
    assert lake.read_range("a/file", 2, 4) == content[2:6]
    assert lake.read_range("a/file", size - 3, 100) == content[-3:]
    assert lake.is_file("a/file")
    assert not lake.is_file("a")
    assert not lake.is_file("b")
    for read in (lake.read_buffer, lambda path: lake.read_range(path, 0, 1)):
        with pytest.raises(LakeError) as error:
            read("missing")
        assert isinstance(error.value.__cause__, FileNotFoundError)
