"""Each byte of a file of each kind, changed: it is read, or it is damaged by name.

All bits of a byte are flipped. Of single bits some make Arrow itself end the process: it checks how
many sizes a footer has of a column, and where Python asks for statistics nobody catches what it
raises then. That is a limit of pyarrow's, and nothing here gets around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ratchet.core.errors import DamagedFileError, LakeAwayError, LakeError, TableFileError
from ratchet.merge.contents import unreadable
from ratchet.merge.failures import UnreadFileError
from ratchet.merge.lostparts import lost_parts
from ratchet.merge.newest import NeedsSpark
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.failures import content_errors, data_file_errors
from ratchet.store.files import Lake
from tests.flip_kit import FileToFlip, files_of, lake_with_rows
from tests.merge_kit import Source

pytestmark = pytest.mark.slow

KINDS = ("data", "vector", "side", "change", "rounds", "cuts")
OF_A_TABLE = {"data", "vector", "side", "change"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    found = lake_with_rows(tmp_path_factory.mktemp("lake"))
    if Cuts(found.lake).last() is None:
        cut = Cut(number=1, round=1, merged_at=1, shards={}, tables={"shop.t": 1})
        Cuts(found.lake).append(cut)
    return found


def flipped(file: FileToFlip, positions: range) -> Iterator[int]:
    """With that byte changed, one after the other; the file is whole again behind them."""
    raw = file.path.read_bytes()
    try:
        with file.path.open("r+b") as stream:
            for at in positions:
                for value in (raw[at] ^ 255, raw[at]):
                    stream.seek(at)
                    stream.write(bytes([value]))
                    stream.flush()
                    if value != raw[at]:
                        yield at
    finally:
        file.path.write_bytes(raw)


@pytest.mark.parametrize("kind", KINDS)
def test_each_byte(source: Source, kind: str) -> None:
    """Nothing else is raised, and what is raised names the file and a way out."""
    file = files_of(source)[kind]
    for read in file.reads.values():
        read()
    wanted = TableFileError if kind in OF_A_TABLE else DamagedFileError
    found: list[LakeError] = []
    for at in flipped(file, range(file.begin, file.end)):
        for name, read in file.reads.items():
            try:
                read()
            except wanted as error:
                found.append(error)
            except NeedsSpark:
                assert kind in {"data", "change"}, (at, name)
    assert len(found) > (file.end - file.begin) // 10
    for error in found:
        assert "redump" in error.hint or "remove the folder" in error.hint
        assert file.path.name in str(error) or kind not in OF_A_TABLE
    for read in file.reads.values():
        read()


@pytest.mark.parametrize("kind", ["data", "side", "change"])
def test_what_spark_could_not_read(source: Source, kind: str) -> None:
    """It is read once more, and its table is stopped if it is damaged, and only then."""
    file = files_of(source)[kind]
    (change,) = source.rounds.since(source.rounds.last_number() - 1)[0].files
    error = UnreadFileError("Spark failed: [FAILED_READ_FILE.NO_HINT] ...")
    assert lost_parts(source.lake, source.state, error, [change.path]) is None
    for _ in flipped(file, range(file.end - 8, file.end - 7)):
        lost = lost_parts(source.lake, source.state, error, [change.path])
        assert lost is not None
        assert file.path.name in lost.message
        assert "redump 'shop.t'" in lost.hint
        # Another failure says nothing of files, and they are not read for it.
        assert lost_parts(source.lake, source.state, LakeError("x", operation="y")) is None
    assert not unreadable(source.lake, [change.path])


class _Failing:
    """A storage that hands out nothing, or all; near or far."""

    def __init__(self, *, well: bool, local: bool) -> None:
        self.well, self.is_local = well, local

    def read_through(self, path: str) -> None:
        assert path == "a.segment"
        if not self.well:
            raise LakeError("the storage failed", operation="read")


THRIFT = "Couldn't deserialize thrift: No more data to read"
NUMBERS = "Unexpected end of stream: Page was smaller (429) than expected (503)"
STORE = "When reading 'x': AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28"


@pytest.mark.parametrize(
    ("said", "well", "local", "damaged"),
    [
        (THRIFT, True, True, True),
        (THRIFT, False, True, False),
        (THRIFT, True, False, True),
        (THRIFT, False, False, False),
        (NUMBERS, True, True, True),
        (NUMBERS, True, False, True),
        (STORE, True, False, False),
        (STORE, False, False, False),
    ],
)
def test_an_error_without_a_number(said: str, *, well: bool, local: bool, damaged: bool) -> None:
    """It is the file's if the storage hands out all of the file; what a store says is its own."""
    wanted = TableFileError if damaged else LakeError
    with (
        pytest.raises(wanted) as caught,
        data_file_errors(_Failing(well=well, local=local), "a.segment#3+4", "change"),
    ):
        raise OSError(said)
    assert isinstance(caught.value, TableFileError) is damaged
    assert isinstance(caught.value, LakeAwayError) is (not damaged and said != THRIFT)
    assert said in str(caught.value)


def test_an_error_with_a_number_is_the_storage_s() -> None:
    with (
        pytest.raises(LakeError, match="Input/output error") as caught,
        content_errors(_Failing(well=True, local=True), "a.segment", "read"),
    ):
        raise OSError(5, "Input/output error")
    assert not isinstance(caught.value, DamagedFileError)


@pytest.mark.parametrize(("asked", "damaged"), [(1 << 62, True), (1 << 33, False)])
def test_more_memory_than_there_is_anywhere(asked: int, *, damaged: bool) -> None:
    with (
        pytest.raises(DamagedFileError if damaged else MemoryError),
        content_errors(_Failing(well=True, local=True), "a.segment", "read"),
    ):
        raise pa.ArrowMemoryError(f"malloc of size {asked} failed")


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    (tmp_path / "f").write_bytes(b"x" * 100_000)
    lake.read_through("f")
    with pytest.raises(LakeError):
        lake.read_through("g")
