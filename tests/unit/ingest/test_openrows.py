"""The reader where rows may never come into being: prepared, rolled back, never finished."""

from __future__ import annotations

import pytest
from event_kit import (
    MARIADB_MAP,
    MYSQL_MAP,
    SERVER,
    Collected,
    feed,
    make_reader,
)

from ratchet.core.rounds import GtidRange
from ratchet.ingest.binlog.reader import UnfinishedError
from tests.reader_kit import IMAGE, XA_PREPARE, mysql, opened, read


def test_a_server_that_died_in_a_transaction_never_made_it() -> None:
    log = opened().insert(1).gtid(2).query("BEGIN").table_map().rows(b"lost")
    log.rotate("bin.000002").format().insert(2, b"kept")
    found, position, runs = read(mysql(), log)
    assert found.gtids == [f"{SERVER}:1", f"{SERVER}:2"]
    assert [image for _, _, _, image in found.rows][1:] == [b"kept"]
    assert found.seqs == [1, 2]
    assert runs == (GtidRange(SERVER, 1, 2, 1),)
    assert (position.file, position.offset) == ("bin.000002", log.position)


def test_rows_of_it_that_were_handed_out_already_are_asked_back() -> None:
    log = opened().insert(1)
    begin = log.position
    log.gtid(2).query("BEGIN").table_map().rows(b"lost")
    head = len(log.events)
    log.rotate("bin.000002").format().insert(2, b"kept")
    found = Collected()
    reader = make_reader(mysql(), found)
    feed(reader, log.events[:head])
    reader.flush()
    with pytest.raises(UnfinishedError) as caught:
        feed(reader, log.events[head:])
    assert caught.value.place == ("bin.000001", begin)
    again, position, _ = read(mysql(), log, unfinished=caught.value.place)
    assert [image for _, _, _, image in again.rows][1:] == [b"kept"]
    assert str(position.executed) == f"{SERVER}:1-2"


def test_xa_in_one_phase_and_xa_of_other_tables_pass() -> None:
    log = opened().gtid(1).query("XA START X'61',X'',1").table_map().rows(IMAGE)
    log.query("XA END X'61',X'',1").add(38, b"\1" + XA_PREPARE[1:])
    other = b"\x05other" + MARIADB_MAP[5:]
    log.gtid(2).query("XA START X'61',X'',1").table_map(9, other).rows(IMAGE, 9)
    log.query("XA END X'61',X'',1").add(38, XA_PREPARE)
    log.gtid(3).query("XA COMMIT X'61',X'',1")
    found, position, _ = read(mysql(), log)
    assert len(found.rows) == 1
    assert position.seq == 3


def test_a_prepared_transaction_counts_when_it_is_committed() -> None:
    """Its rows are left out, and its tables are told of at the commit; at no other end."""
    prepared = opened().gtid(1).query("XA START X'61',X'',1").table_map().rows(IMAGE)
    prepared.query("XA END X'61',X'',1").add(38, XA_PREPARE).insert(2)
    log = prepared.gtid(3).query("XA COMMIT X'61',X'',1").insert(4)
    found, position, _ = read(mysql(), log, known=frozenset({"w", "other"}))
    assert len(found.rows) == 2
    assert position.seq == 4
    assert [(one.table, one.effect, one.seq) for one in found.told] == [("w", "prepared", 3)]
    undone = opened().gtid(1).query("XA START X'61',X'',1").table_map().rows(IMAGE)
    undone.query("XA END X'61',X'',1").add(38, XA_PREPARE).gtid(2).query("XA ROLLBACK X'61',X'',1")
    found, position, _ = read(mysql(), undone, known=frozenset({"w"}))
    assert (found.rows, found.told, position.seq) == ([], [], 2)
    unseen = opened().gtid(1).query("XA COMMIT X'61',X'',1")
    found, _, _ = read(mysql(), unseen, known=frozenset({"w", "other"}))
    told = [(one.table, one.effect, one.seq) for one in found.told]
    assert told == [("other", "prepared", 1), ("w", "prepared", 1)]
    # Prepared before our start, and sent again: what its rows are of was known then, not now.
    again = opened().gtid(1).query("XA START X'61',X'',1").table_map().rows(IMAGE)
    again.query("XA END X'61',X'',1").add(38, XA_PREPARE).gtid(2).query("XA COMMIT X'61',X'',1")
    found, _, _ = read(mysql(f"{SERVER}:1"), again, known=frozenset({"w", "other"}))
    told = [(one.table, one.effect, one.seq) for one in found.told]
    assert told == [("other", "prepared", 2), ("w", "prepared", 2)]


def test_rolled_back_without_rows_of_ours_passes() -> None:
    log = opened().gtid(1).query("BEGIN").query("SAVEPOINT a").query("ROLLBACK TO a")
    _, position, _ = read(mysql(), log.query("ROLLBACK"))
    assert position.seq == 1


def test_rows_that_were_rolled_back_are_left_out_and_their_tables_are_in_doubt() -> None:
    log = opened().gtid(1).query("BEGIN").table_map().rows(b"\0first")
    log.query("SAVEPOINT `a`").rows(b"\0second").query("SAVEPOINT `b`").rows(b"\0third")
    log.query("ROLLBACK TO `A`").rows(b"\0fourth").xid()
    log.gtid(2).query("BEGIN").table_map().rows(b"\0fifth").query("ROLLBACK")
    log.gtid(3).query("BEGIN").table_map().rows(b"\0sixth").query("ROLLBACK TO `c`").xid()
    log.gtid(4).query("BEGIN").table_map().rows(b"\0last").query("SAVEPOINT `a`").xid()
    found, position, _ = read(mysql(), log)
    kept = [b"\0first", b"\0fourth", b"\0sixth", b"\0last"]
    assert [image for _, _, _, image in found.rows] == kept
    told = [(one.seq, one.table, one.effect) for one in found.told]
    assert told == [(1, "w", "untold"), (2, "w", "untold"), (3, "w", "untold")]
    assert position.seq == 4


def test_rows_that_were_rolled_back_and_are_handed_out_already() -> None:
    """They cannot be taken back: their table is in doubt."""
    log = opened().gtid(1).query("BEGIN").table_map().query("SAVEPOINT `a`").rows(b"\0first")
    head = len(log.events)
    log.rows(b"\0second").query("ROLLBACK TO `a`").rows(b"\0third").query("ROLLBACK")
    found = Collected()
    reader = make_reader(mysql(), found)
    feed(reader, log.events[:head])
    reader.flush()
    feed(reader, log.events[head:])
    reader.flush()
    assert [image for _, _, _, image in found.rows] == [b"\0first"]
    assert [(one.table, one.effect) for one in found.told] == [("w", "untold")] * 2


def test_statements_of_a_prepared_transaction_count_when_it_is_committed() -> None:
    begin = opened().gtid(1).query("XA START X'61',X'',1").query("UPDATE w SET a=1")
    begin.query("XA END X'61',X'',1").add(38, XA_PREPARE)
    begin.gtid(2).query("ALTER TABLE w ADD b INT").gtid(3).query("XA COMMIT X'61',X'',1")
    found, _, _ = read(mysql(), begin, known=frozenset({"w"}))
    told = [(event.effect, event.seq) for event in found.told if event.table == "w"]
    assert told == [("untold", 1), ("columns", 2), ("rebuild", 2), ("untold", 3)]
    undone = opened().gtid(1).query("XA START X'61',X'',1").query("UPDATE w SET a=1")
    undone.query("XA END X'61',X'',1").add(38, XA_PREPARE).gtid(2).query("XA ROLLBACK X'61',X'',1")
    found, _, _ = read(mysql(), undone, known=frozenset({"w"}))
    assert [event.seq for event in found.told if event.table == "w"] == [1]
    # One that did nothing by statements has nothing of the transaction before.
    log = opened().gtid(1).query("TRUNCATE w").gtid(2).query("XA START X'61',X'',1")
    log.query("XA END X'61',X'',1").add(38, XA_PREPARE).gtid(3).query("XA COMMIT X'61',X'',1")
    found, _, _ = read(mysql(), log, known=frozenset({"w"}))
    assert [(event.kind, event.seq) for event in found.told] == [("truncate", 1)]


def test_a_table_that_is_taken_back_again_and_again_is_told_of_once() -> None:
    """Until what is noted is handed on, and again if something else was told in between."""
    other = b"\x04shop\0\x01v" + MYSQL_MAP[8:]
    log = opened().gtid(1).query("BEGIN").table_map().rows(b"\0kept").query("SAVEPOINT `a`")
    for n in range(3):
        log.query(f"SAVEPOINT `b{n}`").rows(b"\0gone").query(f"ROLLBACK TO `b{n}`")
    log.table_map(8, other).rows(b"\0other", 8).query("ROLLBACK TO `a`").query("ROLLBACK TO `a`")
    log.query("UPDATE w SET a=1").query("ROLLBACK TO `a`").rows(b"\0last")
    head = len(log.events)
    log.query("ROLLBACK TO `a`").query("ROLLBACK TO `a`").xid()
    log.gtid(2).query("BEGIN").table_map().rows(b"\0next").query("ROLLBACK TO `a`").xid()
    found = Collected()
    reader = make_reader(mysql(), found, known=frozenset({"v", "w"}))
    feed(reader, log.events[:head])
    reader.flush()
    feed(reader, log.events[head:])
    reader.flush()
    images = [image for _, _, _, image in found.rows]
    assert images == [b"\0kept", b"\0last", b"\0next"]
    undone = [(e.seq, e.table, e.statement) for e in found.told if "rolled back" in e.reason]
    assert undone == [
        (1, "w", "ROLLBACK TO `b0`"),
        (1, "v", "ROLLBACK TO `a`"),
        (1, "w", "ROLLBACK TO `a`"),  # behind the UPDATE; no row of v is left by then
        (1, "w", "ROLLBACK TO `a`"),  # what was handed on
        (2, "w", "ROLLBACK TO `a`"),
    ]


def test_a_transaction_that_never_was_has_told_nothing_for_the_next_one() -> None:
    log = opened().gtid(1).query("BEGIN").table_map().query("SAVEPOINT `a`").rows(b"\0lost")
    log.query("ROLLBACK TO `a`").rotate("bin.000002").format()
    log.gtid(1).query("BEGIN").table_map().rows(b"\0first").query("SAVEPOINT `a`").rows(b"\0gone")
    found, _, _ = read(mysql(), log.query("ROLLBACK TO `a`").xid())
    assert [image for _, _, _, image in found.rows] == [b"\0first"]
    assert [(one.table, one.effect, one.seq) for one in found.told] == [("w", "untold", 1)]
