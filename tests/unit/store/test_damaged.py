"""Each small JSON file of a lake, torn or with nonsense in it: an error of the lake, whose remedy
gets out when it is done as it says."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pytest
from lease_kit import Passing, held, hold

from ratchet.core.errors import DamagedFileError, LakeError
from ratchet.core.schema import TableSchema
from ratchet.jobs.config.spelling import _noted
from ratchet.jobs.preflight.restarts import read_starts
from ratchet.store import layout
from ratchet.store.attempts import read_attempts
from ratchet.store.bundles import Bundles
from ratchet.store.comparisons import Comparison, Comparisons
from ratchet.store.databasenote import read_databases
from ratchet.store.datenote import dates_are_text
from ratchet.store.endings import Endings
from ratchet.store.failures import is_found_again
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.keynotes import read_key_notes
from ratchet.store.lease import (
    EXPIRY_SECONDS,
    Holder,
    Lease,
    machine_id,
    process_start,
    read_holder,
)
from ratchet.store.leftout import LeftOutTables
from ratchet.store.logchecks import LogChecks, ShardLogChecks
from ratchet.store.notes import Notes
from ratchet.store.partitionlooks import PartitionLooks
from ratchet.store.passes import Passes
from ratchet.store.requests import Request, Requests
from ratchet.store.rounds import RoundLog
from ratchet.store.schemas import get_schema, put_schema
from ratchet.store.tables import Tables, TableState
from ratchet.store.unchecked import read_unchecked
from ratchet.store.upkeeps import read_upkeep

LONG: Final = "ä" * 90  # its state's path has only a part of the name
REQUEST: Final = Request(kind="add", keyspace="shop", table="t", asked_at=1, id="x")
Reader = Callable[[Lake], object]


def _answered(lake: Lake) -> object:
    lake.create_json(REQUEST.path, {"request": asdict(REQUEST)})
    return Requests(lake).pending()


# Where it lies in a lake that was never held, and what reads it.
READERS: Final[Mapping[str, Reader]] = {
    layout.FORMAT_FILE: lambda lake: open_lake(lake.root, now=1),
    layout.DATES_FILE: dates_are_text,
    layout.DATABASES_FILE: read_databases,
    layout.FOLDED_FILE: _noted,
    layout.STARTS_FILE: read_starts,
    layout.UPKEEP_FILE: read_upkeep,
    layout.LEFT_OUT_FILE: lambda lake: LeftOutTables(lake).list(),
    layout.ENDING_FILE: lambda lake: Endings(lake).last(),
    layout.ASIDE_FILE: lambda lake: Endings(lake).aside(),
    layout.FOREIGN_KEYS_FILE: read_key_notes,
    layout.UNCHECKED_FILE: read_unchecked,
    layout.ATTEMPTS_FILE: read_attempts,
    layout.bundle_note_path("1-1-1.segment"): lambda lake: list(Bundles(lake).each()),
    layout.log_checked_path("shop", "-"): lambda lake: LogChecks(lake).of("shop/-"),
    REQUEST.path: lambda lake: Requests(lake).pending(),
    f"{layout.ANSWERS}/{REQUEST.path.rpartition('/')[2]}": _answered,
    layout.partitions_path("shop", "t"): lambda lake: PartitionLooks(lake).of("shop", "t"),
    layout.verified_path("shop", "t"): lambda lake: Comparisons(lake).last("shop", "t"),
    f"{layout.PASS}/schedule.json": lambda lake: Passes(lake).schedule(),
    f"{layout.PASS}/pass.json": lambda lake: Passes(lake).last(),
    layout.state_path("shop", LONG): lambda lake: Tables(lake).list(),
    layout.schema_path("shop", "t", "f"): lambda lake: get_schema(lake, "shop", "t", "f"),
}
NONSENSE: Final = {
    "empty": b"",
    "torn": b'{"format": 3, "te',
    "null": b"null\n",
    "number": b"5",
    "text": b'"x"',
    "true": b"true",
    "bytes": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "NaN": b"NaN",
    "huge": b"9" * 5000,
}
PASSED_OVER: Final = {REQUEST.path, layout.bundle_note_path("1-1-1.segment")}
# What of these is no JSON object; a list of names is a list, and of nothing an empty one.
LISTS: Final = {"list": b"[]"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    root = open_lake(tmp_path / "lake", now=1)
    hold(root)
    return root


def do_what_it_says(lake: Lake, hint: str) -> None:
    """Remove the file, or put into it what is said."""
    gone = re.search(r"remove the file (\S+) in", hint)
    if gone is not None:
        Path(lake.absolute(gone[1])).unlink()
        return
    put = re.search(r"put (\{.*\}) into the file (\S+) in it", hint)
    assert put is not None, hint
    Path(lake.absolute(put[2])).write_text(put[1])


def test_all_of_them() -> None:
    """A file that the layout names is here, or below."""
    elsewhere = {layout.LEASE_FILE}
    names = {value for name, value in vars(layout).items() if name.endswith("_FILE")}
    assert names - elsewhere == {path for path in READERS if path in names}
    assert set(layout.NOTED_FILES) <= set(READERS)
    # What is in a note of a removal is not read: that it is there says all.
    read = {*layout.NOTED, layout.REQUESTS, layout.SCHEMAS} - {layout.REMOVALS}
    for folder in read:
        assert any(path.startswith(folder + "/") for path in READERS)


@pytest.mark.parametrize("what", [*NONSENSE, *LISTS])
@pytest.mark.parametrize("path", READERS)
def test_one_that_is_damaged(
    lake: Lake, caplog: pytest.LogCaptureFixture, path: str, what: str
) -> None:
    """What a run finds out again counts as none. Of the others the remedy that is told gets out."""
    if path == layout.FOLDED_FILE and what in LISTS:
        assert READERS[path](lake) == []
        return
    notes = any(path.startswith(one) for one in (*layout.NOTED, *layout.NOTED_FILES))
    real = Notes(held(lake)).own(path) if notes else path
    file = Path(lake.absolute(real))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes({**NONSENSE, **LISTS}[what])
    if path in PASSED_OVER or is_found_again(real):
        found = READERS[path](held(lake))
        assert real in caplog.text, "it is told"
        assert path not in PASSED_OVER or not file.exists(), "and gone"
        file.unlink(missing_ok=True)
        assert found == READERS[path](held(lake)), "as if there were none"
        return
    with pytest.raises(LakeError) as caught:
        READERS[path](held(lake))
    assert real in str(caught.value)
    assert real in caught.value.hint
    do_what_it_says(lake, caught.value.hint)
    if path.startswith(layout.SCHEMAS):  # the remedy has a second half, which needs a server
        with pytest.raises(LakeError, match="is missing"):
            READERS[path](held(lake))
    else:
        READERS[path](held(lake))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, value) for name in ("samples", "rows", "last_at", "last_round", "differences",
          "different_round") for value in (2**63, 10**30, -1, 1.5, True, None, "1")),
        ("example", None), ("example", ["x"]), ("shard", "shop/-80"), ("shard", None),
    ],
)  # fmt: skip
def test_samples_of_a_log_that_nobody_took(
    lake: Lake, caplog: pytest.LogCaptureFixture, field: str, value: object
) -> None:
    """Such a note counts as none, as the remedy of a round that never was gets nobody out."""
    checks = LogChecks(held(lake))
    good = ShardLogChecks(shard="shop/-", samples=3, rows=9, last_round=4, different_round=2)
    assert checks.of(checks.save(good).shard) == good
    lake.write_json(
        Notes(held(lake)).own(layout.log_checked_path("shop", "-")), {**asdict(good), field: value}
    )
    assert checks.of("shop/-") == ShardLogChecks(shard="shop/-")
    assert "the run finds out again what it said" in caplog.text


def test_a_note_in_the_place_of_another_table_s(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    comparisons = Comparisons(held(lake))
    other = Comparison(keyspace="shop", table="u", dump="d", since=1, until=2, round=3)
    lake.write_json(Notes(held(lake)).own(layout.verified_path("shop", "t")), asdict(other))
    assert comparisons.last("shop", "t") is None
    assert "the run finds out again what it said" in caplog.text
    comparisons.save(other)
    assert comparisons.last("shop", "u") == other


def lease_of(lake: Lake) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(lake.absolute(layout.LEASE_FILE)).read_text())
    return found


def acquire(lake: Lake) -> Lease:
    return Lease.acquire(lake, "ratchet run", passing=Passing().time)


@pytest.mark.parametrize("what", [*NONSENSE, *LISTS])
def test_a_lease_that_is_damaged(lake: Lake, what: str) -> None:
    file = Path(lake.absolute(layout.LEASE_FILE))
    file.write_bytes({**NONSENSE, **LISTS}[what])
    with pytest.raises(DamagedFileError):
        read_holder(lake)
    passing = Passing()
    with Lease.acquire(lake, "ratchet run", passing=passing.time) as lease:
        assert lease.lake.epoch == 2
    assert passing.passed >= EXPIRY_SECONDS, "somebody could have written it again"


def test_a_lease_that_its_holder_writes_again(lake: Lake) -> None:
    file = Path(lake.absolute(layout.LEASE_FILE))
    alive = replace(Holder.from_json(lease_of(lake)), released=False, pid=os.getpid())
    alive = replace(alive, process_start=process_start(os.getpid()), machine=machine_id())
    file.write_bytes(b"")
    passing = Passing(lambda _: lake.write_json(layout.LEASE_FILE, asdict(alive)))
    with pytest.raises(LakeError, match="another run holds this lake"):
        Lease.acquire(lake, "ratchet run", passing=passing.time)


@pytest.mark.parametrize("what", [*NONSENSE, *LISTS])
def test_a_state_that_is_damaged(lake: Lake, what: str) -> None:
    """Its table is stopped by name, and no other is the worse for it."""
    file = Path(lake.absolute(Notes(held(lake)).own(layout.state_path("a.b", "_t"))))
    file.parent.mkdir(parents=True)
    file.write_bytes({**NONSENSE, **LISTS}[what])
    (state,) = Tables(held(lake)).list()
    assert (state.name, state.phase) == ("a.b._t", "stopped")
    assert state.stopped is not None
    assert "is damaged" in state.stopped.message
    assert "`ratchet table CONFIG redump 'a.b._t'` now" in state.stopped.hint


@pytest.mark.parametrize("name", ["t", LONG])
def test_a_state_that_is_another_tables(lake: Lake, name: str) -> None:
    """As of a file that was put in its place: one table would be there twice, another nowhere."""
    own = Notes(held(lake)).own
    schema = TableSchema(keyspace="shop", table="other", columns=(), key=())
    state = TableState(keyspace="shop", table="other", schema=schema, key=(), phase="streaming")
    Tables(held(lake)).save(state)
    file = Path(lake.absolute(own(layout.state_path("shop", name))))
    file.write_bytes(Path(lake.absolute(own(layout.state_path("shop", "other")))).read_bytes())
    if name == LONG:  # its path has only a part of the name
        with pytest.raises(DamagedFileError) as caught:
            Tables(held(lake)).list()
        do_what_it_says(lake, caught.value.hint)
        assert [one.name for one in Tables(held(lake)).list()] == ["shop.other"]
        return
    phases = {one.name: one.phase for one in Tables(held(lake)).list()}
    assert phases == {"shop.other": "streaming", "shop.t": "stopped"}


def test_a_schema_that_is_another_one(lake: Lake) -> None:
    """Changes would be read with other columns, or counted as another table's."""
    first = TableSchema(keyspace="shop", table="t", columns=(), key=())
    for other in (replace(first, key=("id",)), replace(first, table="u")):
        made = {put_schema(lake, one): one for one in (first, other)}
        paths = [layout.schema_path(one.keyspace, one.table, f) for f, one in made.items()]
        Path(lake.absolute(paths[1])).write_bytes(Path(lake.absolute(paths[0])).read_bytes())
        with pytest.raises(DamagedFileError):
            get_schema(lake, other.keyspace, other.table, other.fingerprint)
        assert get_schema(lake, "shop", "t", first.fingerprint) == first


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("epoch", value) for value in (2**63, 2**63 - 1, 2**63 - 2, 10**30, 10**15, 1_000_002)),
        *(("epoch", value) for value in (float("inf"), float("nan"), -5, 2.5, "9", True, None, [])),
        *(("renewed", value) for value in ("x", 1.5, -1, None, float("nan"), 2**63, True)),
        *(("started", value) for value in ("x", 1.5, -1, None, float("inf"), 2**63, False)),
        *(("pid", value) for value in ("1", -1, None, True, 0.5)),
        *(("process_start", value) for value in (None, "x", -1, 1.5)),
        *((name, value) for name in ("owner", "host", "machine", "command")
          for value in (1, None, [1], {"a": 1}, "x" * 10_001)),
        *(("released", value) for value in ("no", 0, None)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["clean", "killed"])
def test_a_lease_with_a_field_that_nobody_writes(
    lake: Lake, field: str, value: object, end: str
) -> None:
    """Nothing of it gets into the log of rounds. An epoch that nobody can have had is refused."""
    file = Path(lake.absolute(layout.LEASE_FILE))
    file.write_text(json.dumps({**lease_of(lake), "released": end == "clean", field: value}))
    before = file.read_bytes(), RoundLog(lake).epoch()
    if field == "epoch" and type(value) is int and 0 < value < 2**63:
        with pytest.raises(LakeError, match=re.escape(layout.LEASE_FILE)) as caught:
            acquire(lake)
        assert (file.read_bytes(), RoundLog(lake).epoch()) == before
        do_what_it_says(lake, caught.value.hint)
    with acquire(lake) as lease:
        assert lease.lake.epoch == 2, "the logs know the epoch"


@pytest.mark.parametrize("ahead", [1, 3, 1_000_000])
def test_a_lease_ahead_of_a_log_that_was_put_back(lake: Lake, ahead: int) -> None:
    found = lease_of(lake)
    Path(lake.absolute(layout.LEASE_FILE)).write_text(json.dumps({**found, "epoch": 1 + ahead}))
    with acquire(lake) as lease:
        assert lease.lake.epoch == 2 + ahead


def test_a_lease_of_a_version_without_epochs(lake: Lake) -> None:
    old = {k: v for k, v in lease_of(lake).items() if k not in {"epoch", "released"}}
    assert Holder.from_json(old).epoch == 0


@pytest.mark.parametrize("epoch", [2**63 - 1, 2**63])
def test_a_lake_that_has_come_to_the_last_epoch(lake: Lake, epoch: int) -> None:
    """As an earlier version of Ratchet has left it: it says so, and that a new lake is needed."""
    RoundLog(replace(lake, epoch=epoch)).claim("somebody")
    Path(lake.absolute(layout.LEASE_FILE)).unlink()
    for _ in range(2):
        with pytest.raises(LakeError, match=f"is at epoch {epoch}") as caught:
            acquire(lake)
        assert RoundLog(lake).epoch() == epoch
    assert "set `lake` in the config to a new folder" in caught.value.hint
    acquire(open_lake(f"{lake.root}2", now=1)).release()


@pytest.mark.parametrize("epoch", ["Infinity", "NaN", "[]"])
def test_a_log_of_rounds_with_an_epoch_that_is_no_number(lake: Lake, epoch: str) -> None:
    newest = max(Path(lake.absolute(layout.ROUNDS)).glob("_delta_log/*.json"))
    line = f'{{"txn": {{"appId": "ratchet.epoch", "version": {epoch}}}}}\n'
    newest.with_name(f"{int(newest.stem) + 1:020d}.json").write_text(line)
    for work in (acquire, lambda lake: RoundLog(lake).last()):
        with pytest.raises(LakeError, match="cannot be read") as caught:
            work(lake)
        assert "set `lake` in the config to a new folder" in caught.value.hint
