"""What `ratchet table` says of a table that a run has in hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from lease_kit import Passing, held

from ratchet.core.errors import ConfigError, LakeError
from ratchet.core.rounds import Round
from ratchet.core.schema import TableSchema
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.run import serving, tablecommands
from ratchet.jobs.run.tablecommands import run_table
from ratchet.jobs.topology.discover import DiscoveredTable
from ratchet.store import layout
from ratchet.store.cuts import Cut, Cuts
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import Lease, read_holder
from ratchet.store.requests import Request, Requests
from ratchet.store.rounds import RoundLog
from ratchet.store.tables import Phase, Tables, TableState


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A config whose server, if it were asked, would have the table `shop.items`."""
    path = tmp_path / "ratchet.yaml"
    path.write_text(
        "lake: ./lake\nsources:\n  shop:\n    kind: binlog\n    tables: ['*']\n"
        "    shards: {'-': {host: h, user: u}}\n"
    )
    found = DiscoveredTable(keyspace="shop", table="items", shards=("shop/-",), rows=1)
    monkeypatch.setattr(tablecommands, "_look", lambda *_: [found])
    monkeypatch.setattr(tablecommands, "_POLL", 0.02)
    return load_config(path)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """One with the round that the cuts show."""
    made = open_lake(tmp_path / "lake", now=1)
    RoundLog(made).append(Round(number=1, committed_at=1, slices=(), files=(), events=()))
    return made


def items(phase: Phase, dump: str) -> TableState:
    schema = TableSchema(keyspace="shop", table="items", columns=(), key=("id",))
    return TableState(
        keyspace="shop",
        table="items",
        schema=schema,
        key=("id",),
        phase=phase,
        dump=DumpState(id=dump, start_round=1, start={}),
    )


def stream(lake: Lake, state: TableState, shown_after: float = 0.0) -> None:
    """Let a table stream, and a cut show it that many seconds later, as a merge step does."""
    lake = held(lake)
    Tables(lake).save(replace(state, phase="streaming"))
    time.sleep(shown_after)
    before = Cuts(lake).last()
    number = before.number + 1 if before else 1
    tables = {state.name: 1}
    Cuts(lake).append(
        Cut(number=number, round=1, merged_at=1, shards={}, tables=tables, stopped=())
    )


@contextmanager
def a_run(lake: Lake, take: Callable[[Request], None]) -> Iterator[None]:
    """Hold the lease as a run does, and do to each request what the test says."""
    halt = threading.Event()

    def serve(requests: Requests) -> None:
        while not halt.wait(0.01):
            for request in requests.pending():
                take(request)
                requests.done(request)

    with Lease.acquire(lake, "ratchet run ratchet.yaml") as lease:
        lease.start(lambda _: None)
        thread = threading.Thread(target=serve, args=(Requests(lease.lake),))
        thread.start()
        try:
            yield
        finally:
            halt.set()
            thread.join()


def test_an_added_table_is_waited_for_however_fast_its_dump_is(
    config: Config, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    def take(_: Request) -> None:
        state = Tables(held(lake)).save(
            items("catching_up", "new")
        )  # dumped before the request is answered
        threading.Timer(0.5, stream, (lake, state)).start()

    with a_run(lake, take):
        assert run_table(config, "add", "items", wait=True) == 0
    out = capsys.readouterr().out
    assert "already" not in out
    assert out.endswith("shop.items: streams\n")


def test_a_table_that_the_config_had_left_out_is_no_old_one(
    config: Config, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    stream(lake, items("catching_up", "old"))

    def take(_: Request) -> None:
        stream(lake, items("catching_up", "new"))

    with a_run(lake, take):
        assert run_table(config, "add", "items", wait=True) == 0
    out = capsys.readouterr().out
    assert "already" not in out
    assert out.endswith("shop.items: streams\n")


def test_it_streams_once_a_cut_shows_it(config: Config, lake: Lake) -> None:
    state = Tables(lake).save(items("catching_up", "new"))
    Path(lake.absolute(f"{state.path}/_delta_log")).mkdir(parents=True)  # its dump has made it

    def take(_: Request) -> None:
        threading.Timer(0.1, stream, (lake, state, 0.5)).start()

    with a_run(lake, take):
        assert run_table(config, "add", "items", wait=True) == 0
        cut = Cuts(lake).last()
    assert cut is not None
    assert cut.shows("shop.items")


@pytest.mark.parametrize("wait", [True, False])
def test_a_table_that_is_there_has_its_end_waited_for_too(
    config: Config, lake: Lake, capsys: pytest.CaptureFixture[str], *, wait: bool
) -> None:
    tables = Tables(lake)
    state = tables.save(items("dumping", "old"))
    timers: list[threading.Timer] = []

    def take(_: Request) -> None:
        # Who does not wait is gone long before.
        timers.append(threading.Timer(0.5 if wait else 600, stream, (lake, state)))
        timers[-1].start()

    with a_run(lake, take):
        began = time.monotonic()
        assert run_table(config, "add", "items", wait=wait) == 0
        took = time.monotonic() - began
    for timer in timers:  # else it went off amid another test
        timer.cancel()
        timer.join()
    out = capsys.readouterr().out
    assert "in the mirror already, in phase dumping: nothing to do" in out
    assert out.endswith("shop.items: streams\n") == wait
    assert not wait or took > 0.4


@pytest.mark.usefixtures("lake")
def test_a_redump_before_the_first_dump(config: Config) -> None:
    """The table is no wrong name: it has not been begun."""
    with pytest.raises(ConfigError, match="its first dump has not begun"):
        run_table(config, "redump", "items", wait=False)
    with pytest.raises(ConfigError, match="there is no table item in the mirror"):
        run_table(config, "redump", "item", wait=False)


def test_a_redump_of_which_the_new_holder_does_not_know_is_no_success(
    config: Config, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still before it noted the wish; the next run went by the notes of the new holder."""
    held(lake)
    Tables(lake).save(items("streaming", "a"))
    to_be_dumped = serving.to_be_dumped

    def overtaken(late: Lake, state: TableState) -> TableState:
        holder = read_holder(lake)
        assert holder is not None
        lake.write_json(layout.LEASE_FILE, asdict(replace(holder, machine="elsewhere")))
        with Lease.acquire(lake, "ratchet run", passing=Passing().time):
            pass
        return to_be_dumped(late, state)

    monkeypatch.setattr(serving, "to_be_dumped", overtaken)
    with pytest.raises(LakeError) as failed:
        run_table(config, "redump", "items", wait=False)
    assert failed.value.exit_code == 7
    now = Tables(held(lake)).load("shop", "items")
    assert now is not None
    assert now.phase == "streaming"


def test_a_lease_that_was_lost_is_told_at_the_end(lake: Lake) -> None:
    """What was noted last may count no more: the end of a command is no success then."""
    own = Lease.acquire(lake, "ratchet x")

    def work() -> None:
        with own:
            lake.write_json(layout.LEASE_FILE, asdict(replace(own.holder, machine="elsewhere")))
            with Lease.acquire(lake, "ratchet run", passing=Passing().time):
                pass

    with pytest.raises(LakeError, match="lost its lease"):
        work()
