"""A server whose transactions go by the names of others: RESET, a restored backup, a failover.

In each case the server's set contains all that the mirror holds, so the names tell nothing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from capture_kit import Capturer, close_streams, run, source_of
from fix_servers import purge_binlogs
from history_kit import (
    SHORT,
    MakeServer,
    a_second_later,
    caught_up,
    prepared,
    reset,
    with_gtids,
    write,
)

from lab.servers import replicate_from, stop_replication, wait_for_replica
from ratchet.core.errors import ConfigError, PositionLostError
from ratchet.core.position import Position
from ratchet.core.shard import ShardId
from ratchet.ingest.binlog import history
from ratchet.ingest.binlog.history import check_position
from ratchet.jobs.topology.positions import ask
from ratchet.store.rounds import StreamState
from ratchet.wire.session import Session


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    close_streams()


def can_go_on(capture: Capturer, position: Position | None = None) -> None:
    with Session.connect(capture.source) as session:
        check_position(session, position or capture.position)


def assert_other_history(capture: Capturer) -> PositionLostError:
    """Whoever asks: `check` and `heal`, and a stream that is opened."""
    with Session.connect(capture.source) as session:
        assert session.head().executed.contains_all(capture.position.executed)
    with pytest.raises(PositionLostError) as raised:
        can_go_on(capture)
    error = capture.fail(limits=SHORT)
    assert isinstance(error, PositionLostError)
    assert error.message.startswith(raised.value.message)
    assert "another history" in error.message
    assert "heal" in error.hint
    return raised.value


@with_gtids
def test_a_reset_and_as_many_transactions_again(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    """Told by the log's own file and offset, and by GTID where those are not known."""
    server = prepared(make_server(flavor))
    capture = caught_up(server, tmp_path)
    can_go_on(capture)
    a_second_later()
    reset(server)
    write(server, 40)
    assert_other_history(capture)
    last = capture.position.last
    assert last is not None
    for forgotten in (replace(last, file="", offset=0), replace(last, offset=last.offset + 1)):
        with pytest.raises(PositionLostError, match="another history"):
            can_go_on(capture, replace(capture.position, last=forgotten))


@with_gtids
def test_a_reset_after_which_the_same_happens_again(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    """The same statements in the same places of the same files: only the times differ."""
    server = prepared(make_server(flavor))
    source_of(server, "d")  # makes its user, which is a transaction as well
    reset(server)
    capture = caught_up(server, tmp_path)
    a_second_later()
    reset(server)
    source_of(server, "d")
    write(server)
    with Session.connect(capture.source) as session:
        assert session.head().executed == capture.position.executed
    assert_other_history(capture)


@with_gtids
@pytest.mark.parametrize("also", [(), ("FLUSH BINARY LOGS",)], ids=["", "flushed"])
def test_a_reset_before_a_stream_has_delivered_anything(
    make_server: MakeServer, flavor: str, tmp_path: Path, also: tuple[str, ...]
) -> None:
    """A dump begins with what the server has executed; the log has the last transaction of it."""
    server = prepared(make_server(flavor))
    source_of(server, "d")
    reset(server)
    write(server)
    run(server, *also)
    source = source_of(server, "d")
    with Session.connect(source) as session:
        begin = history.with_witness(session, session.beginning())
    assert begin.last is not None
    capture = Capturer(source, tmp_path)
    can_go_on(capture, begin)
    a_second_later()
    can_go_on(capture, replace(begin, server="", file="", offset=0))
    reset(server)
    write(server, 40)
    with pytest.raises(PositionLostError, match="another history"):
        can_go_on(capture, begin)


def test_a_stream_begins_without_a_witness_where_the_log_has_none(
    make_server: MakeServer,
) -> None:
    for flavor in ("mariadb", "mysql"):
        server = prepared(make_server(flavor))
        source = source_of(server, "d")
        reset(server)
        with Session.connect(source) as session:
            begin = session.beginning()
            assert history.with_witness(session, begin) == begin
        write(server)
        purge_binlogs(server)
        with Session.connect(source) as session:
            begin = session.beginning()
            assert history.with_witness(session, begin) == begin


@with_gtids
def test_a_backup_that_was_restored(make_server: MakeServer, flavor: str, tmp_path: Path) -> None:
    first = prepared(make_server(flavor))
    write(first)
    source_of(first, "d")
    first.stop()
    shutil.copytree(first.datadir, tmp_path / "backup")
    first.start()
    capture = caught_up(first, tmp_path)
    first.stop()
    a_second_later()
    shutil.rmtree(first.datadir)
    shutil.copytree(tmp_path / "backup", first.datadir)
    first.start()
    write(first, 10)
    error = assert_other_history(capture)
    assert "was committed at" in error.message


@with_gtids
def test_a_transaction_is_the_same_on_every_server(
    make_server: MakeServer, flavor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that executes it later, in files of its own, says the same of it."""
    primary, replica = prepared(make_server(flavor)), make_server(flavor)
    capture = caught_up(primary, tmp_path)
    a_second_later()
    replicate_from(replica, primary)
    wait_for_replica(replica, primary)
    stop_replication(replica)
    capture.source = replace(capture.source, port=replica.port)
    looked_at = []
    true = history.differs
    monkeypatch.setattr(history, "differs", lambda *args: looked_at.append(args) or true(*args))
    can_go_on(capture)
    assert len(looked_at) == 1


@with_gtids
def test_a_purged_transaction_is_not_asked_for(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    """An idle server, whose logs are all gone but a new one that is empty."""
    server = prepared(make_server(flavor))
    capture = caught_up(server, tmp_path)
    purge_binlogs(server)
    can_go_on(capture)
    write(server)
    assert len(capture.catch_up()) == 1


@with_gtids
def test_a_file_that_ends_with_the_last_transaction(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    server = prepared(make_server(flavor))
    capture = caught_up(server, tmp_path)
    server.execute("FLUSH BINARY LOGS")
    capture.take()
    last = capture.position.last
    assert last is not None
    close_streams()
    can_go_on(capture)
    a_second_later()
    reset(server)
    write(server, 40)
    assert_other_history(capture)


def test_numbers_that_another_server_has_used_as_well(
    make_server: MakeServer, tmp_path: Path
) -> None:
    """MariaDB counts by domain: what a failover lost has the names of what came after it."""
    primary, replica = prepared(make_server("mariadb")), make_server("mariadb")
    replicate_from(replica, primary)
    wait_for_replica(replica, primary)
    source_of(primary, "d")
    wait_for_replica(replica, primary)
    stop_replication(replica)
    capture = caught_up(primary, tmp_path)
    write(replica, 10)
    capture.source = replace(capture.source, port=replica.port)
    with pytest.raises(PositionLostError, match="diverged"):
        can_go_on(capture)
    error = capture.fail(limits=SHORT)
    assert isinstance(error, PositionLostError)
    assert "heal" in error.hint


def test_numbers_that_another_server_has_used_where_nothing_was_read_yet(
    make_server: MakeServer, tmp_path: Path
) -> None:
    """A position that knows no transaction; but the server is asked for it."""
    primary, replica = prepared(make_server("mariadb")), make_server("mariadb")
    replicate_from(replica, primary)
    source_of(primary, "d")
    wait_for_replica(replica, primary)
    stop_replication(replica)
    write(primary, 10)
    capture = Capturer(source_of(primary, "d"), tmp_path)
    assert capture.position.last is None
    can_go_on(capture)
    write(replica, 30)
    capture.source = replace(capture.source, port=replica.port)
    with pytest.raises(PositionLostError, match="diverged"):
        can_go_on(capture)
    error = capture.fail(limits=SHORT)
    assert isinstance(error, PositionLostError)
    assert "heal" in error.hint


def test_a_number_that_is_the_newest_of_both(make_server: MakeServer, tmp_path: Path) -> None:
    """Of its newest number MariaDB does not say that it is another transaction's than ours."""
    primary, replica = prepared(make_server("mariadb")), make_server("mariadb")
    replicate_from(replica, primary)
    source_of(primary, "d")
    wait_for_replica(replica, primary)
    stop_replication(replica)
    capture = caught_up(primary, tmp_path)
    capture.source = replace(capture.source, port=replica.port)
    with Session.connect(capture.source) as session:
        lost = capture.position.executed.minus(session.head().executed)
    write(replica, lost.cardinality)
    error = assert_other_history(capture)
    assert f"the server has 0-{replica.port}-" in error.message


def test_the_last_transaction_is_the_first_of_a_new_primary(
    make_server: MakeServer, tmp_path: Path
) -> None:
    """MariaDB: the one before it has the id of another server, which nobody remembers."""
    primary, replica = prepared(make_server("mariadb")), make_server("mariadb")
    replicate_from(replica, primary)
    source_of(primary, "d")
    write(primary)
    wait_for_replica(replica, primary)
    stop_replication(replica)
    capture = Capturer(replace(source_of(primary, "d"), port=replica.port), tmp_path)
    write(replica, 1)
    capture.catch_up()
    close_streams()
    last = capture.position.last
    assert last is not None
    assert last.gtid.server == replica.port
    can_go_on(capture)
    can_go_on(capture, replace(capture.position, last=replace(last, file="", offset=0)))


def test_two_domains(make_server: MakeServer, tmp_path: Path) -> None:
    server = prepared(make_server("mariadb"))
    run(server, "SET gtid_domain_id = 7", "INSERT INTO t (v) VALUES (1)")
    capture = caught_up(server, tmp_path)
    run(server, "SET gtid_domain_id = 7", "INSERT INTO t (v) VALUES (2)")
    can_go_on(capture)
    capture.catch_up()
    close_streams()
    last = capture.position.last
    assert last is not None
    assert last.gtid.origin == "7"
    can_go_on(capture)
    a_second_later()
    reset(server)
    run(server, "SET gtid_domain_id = 7", *["INSERT INTO t (v) VALUES (1)"] * 3)
    write(server, 20)
    assert_other_history(capture)


@pytest.mark.parametrize("flushes", [0, 2])
def test_a_domain_that_was_deleted_and_counts_anew(
    make_server: MakeServer, tmp_path: Path, flushes: int
) -> None:
    """What it counts up to the mirror's number the server would leave out."""
    server, own = prepared(make_server("mariadb")), "SET gtid_domain_id = 9"
    insert = "INSERT INTO t (v) VALUES (1)"
    run(server, own, insert, insert)
    capture = caught_up(server, tmp_path)
    for _ in range(flushes):
        server.execute("FLUSH BINARY LOGS")
    can_go_on(capture)
    write(server)
    capture.catch_up()
    close_streams()
    purge_binlogs(server)
    can_go_on(capture)
    server.execute("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (9)")
    write(server)
    run(server, own, *[insert] * 4)
    error = assert_other_history(capture)
    assert "of its domain 9" in error.message


def test_a_tagged_transaction(make_server: MakeServer, tmp_path: Path) -> None:
    server = prepared(make_server("mysql"))
    capture = caught_up(server, tmp_path)
    tagged = ["SET gtid_next = 'AUTOMATIC:mine'", "INSERT INTO t (v) VALUES (1)"]
    run(server, *tagged)
    capture.catch_up()
    close_streams()
    last = capture.position.last
    assert last is not None
    assert last.gtid.origin.endswith(":mine")
    can_go_on(capture)
    a_second_later()
    reset(server)
    write(server, 20)
    run(server, *tagged)
    assert_other_history(capture)


def test_without_gtids_by_place_alone(make_server: MakeServer, tmp_path: Path) -> None:
    server = prepared(make_server("mysql", gtid=False))
    source_of(server, "d")
    server.execute("RESET BINARY LOGS AND GTIDS")
    capture = caught_up(server, tmp_path)
    can_go_on(capture)
    time.sleep(0.1)
    server.execute("RESET BINARY LOGS AND GTIDS")
    write(server, 10)
    with pytest.raises(PositionLostError, match="another history"):
        can_go_on(capture)


def test_without_gtids_a_purged_file_is_not_asked_for(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = prepared(make_server("mysql", gtid=False))
    capture = caught_up(server, tmp_path)
    server.execute("FLUSH BINARY LOGS")
    capture.take()
    close_streams()
    last = capture.position.last
    assert last is not None
    assert last.file < capture.position.file
    deadline = time.monotonic() + 60
    while server.execute("SHOW BINARY LOGS")[0][0] <= last.file:
        assert time.monotonic() < deadline, "a binlog is still in use"
        server.execute(f"PURGE BINARY LOGS TO '{capture.position.file}'")
    can_go_on(capture)


@with_gtids
def test_servers_that_were_swapped_in_the_config(
    make_server: MakeServer, flavor: str, tmp_path: Path
) -> None:
    """Each has another history than its shard; it is told whose server it is."""
    left, right = (prepared(make_server(flavor)) for _ in range(2))
    mirrors = {
        name: caught_up(server, tmp_path / name) for name, server in (("l", left), ("r", right))
    }
    streams = {
        f"shop/{name}": StreamState(position=capture.position) for name, capture in mirrors.items()
    }
    a_second_later()
    write(left)  # in MariaDB's numbers the left one has all that the right one had
    sources = {
        name: replace(capture.source, shard=ShardId("shop", name))
        for name, capture in mirrors.items()
    }
    for source in sources.values():
        ask(source, streams)
    swapped = replace(sources["r"], port=left.port)
    with pytest.raises(ConfigError, match="is the server that shop/l was read from") as raised:
        ask(swapped, streams)
    assert "swapped" in raised.value.hint
