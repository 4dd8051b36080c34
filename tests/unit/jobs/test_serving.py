"""What `ratchet table` asks of a run: done as the config says, or refused with a reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lease_kit import hold

from ratchet.core.errors import ConfigError, RetryableError
from ratchet.core.schema import TableSchema
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.config.selection import RoundBarrier, Selection
from ratchet.jobs.run.serving import ConfigFile, TableRequestHandler
from ratchet.store import layout
from ratchet.store.delta.commits import LateError
from ratchet.store.dumpstates import DumpState
from ratchet.store.formats import open_lake
from ratchet.store.removals import Removals
from ratchet.store.requests import Kind, Refusal, Request, Requests
from ratchet.store.tables import Phase, Tables, TableState

DUMP = DumpState(id="d", start_round=1, start={})


def write_config(folder: Path, *patterns: str, more: str = "") -> Config:
    path = folder / "ratchet.yaml"
    tables = ", ".join(f'"{pattern}"' for pattern in patterns)
    path.write_text(
        f"lake: ./lake\n{more}\nsources:\n  shop:\n    kind: binlog\n    tables: [{tables}]\n"
        "    shards: {'-': {host: h, user: u}}\n"
    )
    return load_config(path)


class Stage:
    """A lake with two tables that stream, `a` and `b`, of a config that mirrors all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = open_lake(folder / "lake", now=1)
        self.tables = Tables(self.lake)
        self.requests = Requests(self.lake)
        config = write_config(folder, "*")
        self.file = ConfigFile(config)
        self.selection = Selection(config.sources)
        self.looks = 0
        self.now = 0.0
        self.serving = TableRequestHandler(
            self.lake, self.file, self.selection, look=self.look, clock=lambda: self.now
        )
        for name in ("a", "b"):
            self.put(name, "streaming")

    def look(self) -> None:
        self.looks += 1

    def put(self, name: str, phase: Phase) -> None:
        schema = TableSchema(keyspace="shop", table=name, columns=(), key=("id",))
        self.tables.save(
            TableState(
                keyspace="shop", table=name, schema=schema, key=("id",), phase=phase, dump=DUMP
            )
        )

    def phases(self) -> dict[str, str]:
        return {state.table: state.phase for state in self.tables.list()}

    def ask(self, kind: Kind, table: str, *, delete: bool = False) -> Refusal | str:
        """Ask, let it be served, and give the answer."""
        request = Request(kind=kind, keyspace="shop", table=table, delete=delete, asked_at=1)
        self.requests.ask(request)
        self.now += 10
        self.serving.serve()
        return self.requests.answer(request)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_table_is_dumped_again_and_the_dump_looks_at_once(stage: Stage) -> None:
    assert stage.ask("redump", "a") == "done"
    assert stage.phases() == {"a": "new", "b": "streaming"}
    assert stage.looks == 1
    state = stage.tables.load("shop", "a")
    assert state is not None
    assert state.dump is None


def test_a_table_comes_when_the_config_takes_it_in(stage: Stage) -> None:
    write_config(stage.folder, "a")
    assert stage.ask("drop", "b") == "done"
    refused = stage.ask("add", "b")
    assert isinstance(refused, Refusal)
    assert "the config leaves it out" in refused.message
    assert "let 'b' match `sources.shop.tables`" in refused.hint
    write_config(stage.folder, "*")
    assert stage.ask("add", "b") == "done"
    assert stage.selection.patterns("shop").matches("b")
    assert stage.phases() == {"a": "streaming"}  # the dump finds it


def test_a_table_goes_when_the_config_leaves_it_out(stage: Stage) -> None:
    refused = stage.ask("drop", "b")
    assert isinstance(refused, Refusal)
    assert "the config mirrors it" in refused.message
    assert 'add "!b" to `sources.shop.tables`' in refused.hint
    write_config(stage.folder, "*", "!b")
    path = f"{layout.table_path('shop', 'b')}/some.parquet"
    stage.lake.create_file(path, b"x")
    assert stage.ask("drop", "b") == "done"
    assert stage.phases() == {"a": "streaming"}
    assert not stage.selection.patterns("shop").matches("b")
    assert stage.lake.exists(path)
    assert stage.ask("drop", "b", delete=True) == "done"
    assert not stage.lake.exists(path)


def test_tables_that_come_or_go_by_the_way_are_dumped_anew(stage: Stage) -> None:
    """Nobody asked for them; but a table whose changes were left out must not stream on."""
    write_config(stage.folder, "*", "!b")
    assert stage.ask("redump", "a") == "done"
    assert stage.phases() == {"a": "new", "b": "new"}
    stage.put("b", "catching_up")  # its dump was under way, say
    write_config(stage.folder, "*")
    assert stage.ask("redump", "a") == "done"
    assert stage.phases() == {"a": "new", "b": "new"}


def test_a_table_that_is_being_dumped_is_left_alone(stage: Stage) -> None:
    """With all that the config changed besides: it comes into force when it is asked again."""
    stage.put("b", "dumping")
    write_config(stage.folder, "*", "!b")
    for kind, table in (("drop", "b"), ("redump", "a")):
        refused = stage.ask(kind, table)  # type: ignore[arg-type] # of a tuple of literals
        assert isinstance(refused, Refusal)
        assert refused.passes
        assert "shop.b is being dumped" in refused.message
    assert stage.phases() == {"a": "streaming", "b": "dumping"}
    assert stage.selection.patterns("shop").matches("b")
    stage.put("b", "streaming")
    assert stage.ask("drop", "b") == "done"
    assert stage.phases() == {"a": "streaming"}


def test_a_config_with_errors_changes_nothing(stage: Stage) -> None:
    (stage.folder / "ratchet.yaml").write_text("lake: ./lake\nsources: {shop: {kind: binlogs}}\n")
    refused = stage.ask("redump", "a")
    assert isinstance(refused, Refusal)
    assert "binlogs" in refused.message
    assert stage.phases() == {"a": "streaming", "b": "streaming"}


def test_what_else_changed_waits_for_the_next_start(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    write_config(stage.folder, "*", more="capture: {round_seconds: 9}")
    before = stage.file.config.capture
    assert stage.ask("redump", "a") == "done"
    assert "changed in more than `tables`" in caplog.text
    assert stage.file.config.capture == before


def test_a_request_waits_for_its_time_and_for_the_next_run(stage: Stage) -> None:
    request = Request(kind="redump", keyspace="shop", table="a", asked_at=5)
    stage.now = 100
    stage.serving.serve()
    stage.requests.ask(request)
    stage.now = 101
    stage.serving.serve()
    assert stage.requests.answer(request) == "waiting"
    again = TableRequestHandler(stage.lake, stage.file, stage.selection)
    again.serve()
    assert stage.requests.answer(request) == "done"


def test_a_late_run_removes_no_files(tmp_path: Path) -> None:
    """It was halted before it looked for requests: the one that it finds is its successor's."""
    root = open_lake(tmp_path / "lake", now=1)
    lakes = [hold(root), hold(root)]
    config = write_config(tmp_path, "*", "!b")
    path = f"{layout.table_path('shop', 'b')}/some.parquet"
    root.create_file(path, b"x")
    request = Request(kind="drop", keyspace="shop", table="b", delete=True, asked_at=1)
    Requests(root).ask(request)
    late, new = (
        TableRequestHandler(lake, ConfigFile(config), Selection(config.sources)) for lake in lakes
    )
    with pytest.raises(LateError):
        late.serve()
    assert root.exists(path)
    assert Requests(root).answer(request) == "waiting"
    new.serve()
    assert not root.exists(path)
    assert Requests(root).answer(request) == "done"


def test_an_unknown_table(stage: Stage) -> None:
    request = Request(kind="redump", keyspace="shop", table="c", asked_at=5)
    with pytest.raises(ConfigError, match=r"shop\.c is not in the mirror"):
        stage.serving.do(request)
    stage.put("a", "dumping")
    with pytest.raises(RetryableError, match="is being dumped"):
        stage.serving.do(Request(kind="redump", keyspace="shop", table="a", asked_at=5))


def test_a_table_that_the_dump_has_taken_is_left_to_it(stage: Stage) -> None:
    """Its state says "new" until the dump has begun; one that is removed then would come back."""
    stage.put("b", "new")
    stage.selection.begin_dumping("shop.b")
    write_config(stage.folder, "a")
    refused = stage.ask("drop", "b")
    assert isinstance(refused, Refusal)
    assert refused.passes
    assert "shop.b is being dumped" in refused.message
    stage.selection.end_dumping("shop.b")
    assert stage.ask("drop", "b") == "done"


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_turnstile_waits_for_what_was_begun_before_and_for_nothing_else() -> None:
    turnstile = RoundBarrier()
    turnstile.wait(lambda: False)  # nothing is under way
    inside, leave, passed = threading.Event(), threading.Event(), threading.Event()

    def rounds() -> None:
        with turnstile:
            inside.set()
            leave.wait(10)
        with turnstile:
            passed.wait(10)  # begun after the other thread came: it need not end

    def other() -> None:
        turnstile.wait(lambda: False)
        passed.set()

    capture, dump = threading.Thread(target=rounds), threading.Thread(target=other)
    capture.start()
    inside.wait(10)
    dump.start()
    time.sleep(0.1)
    assert not passed.is_set()
    leave.set()
    wait_for(passed.is_set)
    capture.join(10)
    dump.join(10)
    with turnstile:
        turnstile.wait(lambda: True)  # whoever gives up need not wait


def test_the_config_is_read_again_without_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are taken out of the environment when Spark starts, and a run reads the file later."""
    path = tmp_path / "ratchet.yaml"
    text = (
        "lake: ./lake\nsources:\n  shop:\n    kind: binlog\n"
        "    shards: {'-': {host: h, user: u, password: '${SHOP_PASSWORD}'}}\n"
    )
    path.write_text(text)
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    file = ConfigFile(load_config(path))
    monkeypatch.delenv("SHOP_PASSWORD")
    path.write_text(f"{text}    tables: [a]\n")
    read, changed = file.read_again()
    assert set(changed) == {"shop"}
    assert read.sources["shop"].shards["-"].password == "secret"


def test_a_late_drop_leaves_a_successors_dump_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still behind its last look whether it is late; the new dump was of a later run."""
    write_config(stage.folder, "*", "!b")
    old = layout.staged_path("shop", "b", "old")
    new = layout.staged_path("shop", "b", "new")
    for name in ("1.parquet", "_delta_log/0.json"):
        stage.lake.create_file(f"{old}/{name}", b"x")
    check = Requests.check

    def halted(self: Requests) -> None:
        check(self)
        stage.lake.create_file(f"{new}/1.parquet", b"x")

    monkeypatch.setattr(Requests, "check", halted)
    assert stage.ask("drop", "b") == "done"
    assert [file.path for file in stage.lake.list(layout.STAGED)] == [f"{new}/1.parquet"]


def test_a_removal_is_noted_until_there_is_another_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed amid it or not, a new dump knows that somebody may remove files there still."""
    write_config(stage.folder, "*", "!b")
    removals = Removals(stage.lake)
    with monkeypatch.context() as patch:
        patch.setattr(Requests, "check", _killed)
        with pytest.raises(KeyboardInterrupt):
            stage.serving.do(
                Request(kind="drop", keyspace="shop", table="b", delete=True, asked_at=1)
            )
    assert stage.phases() == {"a": "streaming"}
    assert removals.is_begun("shop", "b")
    assert stage.ask("drop", "b") == "done"  # it is to stay after all
    assert not removals.is_begun("shop", "b")
    assert stage.ask("drop", "b", delete=True) == "done"
    assert removals.is_begun("shop", "b")


def _killed(_: Requests) -> None:
    raise KeyboardInterrupt
