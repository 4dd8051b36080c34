"""The reader and its plain twin see the same transactions in any stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from event_kit import (
    MARIADB_MAP,
    MYSQL_MAP,
    OTHER,
    SERVER,
    Collected,
    Log,
    NoCatalog,
    feed,
    make_reader,
    packet,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.core.errors import DecodeError, RatchetError
from ratchet.core.gtid import Flavor, GtidSet
from ratchet.core.position import Position
from ratchet.ingest.binlog.failures import refusal
from ratchet.ingest.binlog.machine import Action
from ratchet.ingest.binlog.plain import PlainReader, RefusedError
from ratchet.wire import framing

MAPS = {"mysql": MYSQL_MAP, "mariadb": MARIADB_MAP, "file": MYSQL_MAP}
STATEMENTS = (
    "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT a", "ROLLBACK TO a", "DROP TABLE x", "FLUSH LOGS",
    "XA START X'61',X'',1", "XA END X'61',X'',1", "INSERT INTO w VALUES (1)", "GIBBERISH",
)  # fmt: skip


TIMES = (100, 103, 101, 900, 102)  # commit times are not in order
ROWS = (23, 24, 25, 30, 31, 32)
FLAGS = (0x01, 0x00, 0x03, 0x11, 0x12, 0xFFED)  # foreign keys followed by the engine: 1, 2, 6


def add_any(log: Log, flavor: Flavor, what: tuple[str, int]) -> None:
    """One event: mostly what can follow, now and then what cannot."""
    kind, n = what
    log.seconds = TIMES[n % len(TIMES)]
    if kind == "gtid" and flavor == "mariadb":
        log.mariadb_gtid(n + 1, domain=n % 3, flags=n & 1)
    elif kind == "gtid":
        number = 34 if flavor == "file" else 33
        log.gtid(
            n + 1,
            server=OTHER if n % 3 else SERVER,
            kind=number,
            length=100 + n,
            ts=log.seconds * 1_000_000 + n,
        )
    elif kind == "query":
        log.query(STATEMENTS[n % len(STATEMENTS)])
    elif kind == "map":
        body = MAPS[flavor] if n % 3 else b"\x05other" + MAPS[flavor][5:]
        log.table_map(n % 4, body)
    elif kind == "rows":
        log.rows(bytes([n]), n % 4, ROWS[n % 6], flags=FLAGS[n % 5 if n % 7 else 5])
    elif kind == "end":
        log.xid()
    elif kind == "whole":
        add_any(log, flavor, ("gtid", n & ~1))
        if flavor != "mariadb":
            log.query("BEGIN")
        log.table_map(1, MAPS[flavor])
        log.rows(bytes([n]), 1, ROWS[n // 2 % 6], flags=FLAGS[n % 6]).xid()
    else:
        log.add((27, 29, 35, 160, 38, 26, 200, 3)[n % 8], bytes(20))


whats = st.tuples(
    st.sampled_from(["whole", "whole", "gtid", "query", "map", "rows", "rows", "end", "other"]),
    st.integers(0, 40),
)


Outcome = tuple[list[Any], str, int | None]


def outcome_of_plain(start: Position, log: Log, not_after: int | None = None) -> Outcome:
    twin = PlainReader(start, database="shop", not_after=not_after)
    problem = ""
    try:
        twin.read(log.bare())
    except RefusedError as error:
        problem = type(refusal(error.args[0], event="", source="", position="")).__name__
    except DecodeError:
        problem = "DecodeError"
    found = [
        (
            *(t.gtid, t.seq, t.ts),
            [
                (*row[1:], silent, began)
                for row, silent, began in zip(t.rows, t.silent, t.began, strict=True)
            ],
        )
        for t in twin.transactions
    ]
    return found, problem, twin.held_ts


def outcome_of_reader(
    start: Position, log: Log, pieces: list[int], bounds: tuple[int | None, ...] = (None,)
) -> list[Outcome]:
    """What has come in all when each of the bounds has been reached in turn."""
    found = Collected()
    reader = make_reader(start, found)
    raw = b"".join(packet(b"\0" + event) for event in log.events)
    data = np.frombuffer(bytearray(raw), np.uint8)
    index = np.zeros(1000, framing.EVENT)
    state = np.array([1, 1], np.int64)
    count, _, _ = framing.frame(data, 0, data.size, True, state, index, 0, framing.CRC_TABLES)
    problem, at = "", 0
    outcomes = []
    for bound in bounds:
        reader.start_slice(known=frozenset(), limit=1 << 60, not_after=bound)
        try:
            for stop in [*sorted(p % (count + 1) for p in pieces), count]:
                at, limited = reader.feed(data, index, at, max(at, stop))
                if reader.between:  # rows of an open one that is abandoned would be asked back
                    reader.flush()
                assert limited == (reader.held_ts is not None)
                if limited:
                    break
        except RatchetError as error:
            problem = type(error).__name__
        reader.flush()
        outcomes.append((_whole(found), problem, reader.held_ts))
        if problem:
            break
    return outcomes


def _whole(found: Collected) -> list[Any]:
    whole = set(found.gtids)
    rows: dict[str, list[Any]] = {gtid: [] for gtid in whole}
    noted = zip(found.rows, found.silent, found.began, strict=True)
    for (gtid, table, op, image), silent, began in noted:
        if gtid in whole:
            rows[gtid].append((table, op, image, silent, began))
    together = zip(found.gtids, found.seqs, found.ts, strict=True)
    return [(gtid, seq, ts, rows[gtid]) for gtid, seq, ts in together]


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(["mysql", "mariadb", "file"]),
    st.lists(whats, max_size=25),
    st.lists(st.integers(0, 1000), max_size=3),
)
def test_same_transactions_or_same_refusal(
    flavor: Flavor, content: list[tuple[str, int]], pieces: list[int]
) -> None:
    start, log = started(flavor, content)
    assert outcome_of_reader(start, log, pieces) == [outcome_of_plain(start, log)]


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(["mysql", "mariadb", "file"]),
    st.lists(whats, max_size=25),
    st.lists(st.integers(0, 1000), max_size=3),
    st.lists(st.sampled_from([0, *TIMES]), max_size=3),
)
def test_both_stop_before_the_same_transaction_and_go_on_alike(
    flavor: Flavor, content: list[tuple[str, int]], pieces: list[int], seconds: list[int]
) -> None:
    """A bound, then later ones, then none: nothing is lost or doubled at a stop."""
    start, log = started(flavor, content)
    bounds = (*(one * 1_000_000 + 20 for one in sorted(seconds)), None)
    expected = []
    for bound in bounds:
        expected.append(outcome_of_plain(start, log, bound))
        if expected[-1][1]:
            break
    assert outcome_of_reader(start, log, pieces, bounds) == expected


def started(flavor: Flavor, content: list[tuple[str, int]]) -> tuple[Position, Log]:
    held = {"mysql": f"{SERVER}:1-5:9", "mariadb": "0-1-4", "file": "bin.000001:4"}[flavor]
    start = Position(
        executed=GtidSet.parse(flavor, held),
        server="s",
        file="bin.000001" if flavor == "file" else "",
        offset=4 if flavor == "file" else 0,
    )
    log = Log().rotate("bin.000001")
    for what in content:
        add_any(log, flavor, what)
    return start, log


def test_the_twin_knows_every_refusal() -> None:
    """Each error's Action has an error class, so the comparison above compares something."""
    for action in Action:
        if action >= Action.STOP:
            error = refusal(action, event="e", source="s", position="p")
            assert isinstance(error, RatchetError)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["mysql", "mariadb", "file"]),
    st.lists(whats, min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=6),
    st.sampled_from([0, 19, 40, 42, 165, 166, 170]),
)
def test_damaged_events_are_read_or_refused_never_anything_else(
    flavor: Flavor, content: list[tuple[str, int]], damage: list[tuple[int, int]], extra: int
) -> None:
    held = "bin.000001:4" if flavor == "file" else ""
    start = Position(executed=GtidSet.parse(flavor, held), server="s", file="bin.000001", offset=4)
    log = Log(checksum=False).rotate("bin.000001")
    for what in content:
        add_any(log, flavor, what)
    log.add(extra, bytes(range(40)))
    events = [bytearray(event) for event in log.events]
    for place, value in damage:
        event = events[place % len(events)]
        at = place % len(event)
        if not 9 <= at < 13:  # the length is framing's, and tested there
            event[at] = value
    found = Collected()
    reader = make_reader(start, found)
    data = np.frombuffer(bytearray(b"".join(packet(b"\0" + e) for e in events)), np.uint8)
    index = np.zeros(1000, framing.EVENT)
    state = np.zeros(2, np.int64)
    count, _, _ = framing.frame(data, 0, data.size, True, state, index, 0, framing.CRC_TABLES)
    try:
        reader.feed(data, index, 0, count)
        reader.flush()
    except RatchetError as error:
        assert error.source == "shop/-"  # noqa: PT017 - both outcomes are right


@pytest.mark.parametrize("flags", [0x00, 0x01, 0x02, 0x03, 0x10, 0x11, 0x12, 0x13])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_who_follows_foreign_keys_is_in_the_flags(flavor: Flavor, flags: int) -> None:
    start, log = started(flavor, [])
    if flavor == "mysql":
        log.gtid(42).query("BEGIN")
    else:
        log.mariadb_gtid(42)
    log.table_map(7, MAPS[flavor]).rows(b"\1", flags=flags).xid()
    found = Collected()
    reader = make_reader(start, found)
    feed(reader, log.events)
    reader.flush()
    told = 0x02 if flavor == "mariadb" else 0x12
    assert found.silent == [not flags & told]
    assert (found.began[0] < 0) == (flags & told == 0x02)


class Views(NoCatalog):
    """A server that has these tables, and takes all of them for plain ones."""

    def __init__(self, *tables: str) -> None:
        self.tables = frozenset(tables)

    def folds(self) -> bool | None:
        return False

    def is_plain(self, database: str, table: str) -> bool:
        del database, table
        return True

    def is_base(self, table: str) -> bool:
        return table in self.tables


@pytest.mark.parametrize(
    ("before", "tables", "trusted"),
    [
        ((), ("t", "u"), True),
        ((), ("t",), False),  # it is a view by now, or gone
        (("DROP TABLE u",), ("t", "u"), False),
        (("RENAME TABLE u TO away",), ("t", "u"), False),
        (("DROP DATABASE shop",), ("t", "u"), False),
        (("ALTER TABLE u ADD x INT NULL",), ("t", "u"), True),
        (("CREATE OR REPLACE VIEW v AS SELECT 1",), ("t", "u"), True),
    ],
)
def test_a_table_that_may_be_a_view_by_now_leads_on(
    before: tuple[str, ...],
    tables: tuple[str, ...],
    trusted: bool,  # noqa: FBT001
) -> None:
    """A statement logged as its text that reads it may have changed any table."""
    start, log = started("mariadb", [])
    for number, text in enumerate((*before, "INSERT INTO t SELECT * FROM u"), 42):
        log.mariadb_gtid(number, flags=1).query(text)
    found = Collected()
    known = frozenset({"t", "u", "other"})
    reader = make_reader(start, found, known=known, catalog=Views(*tables))
    feed(reader, log.events)
    reader.flush()
    last = [event.table for event in found.told if event.gtid.endswith(f"-{42 + len(before)}")]
    assert sorted(last) == (["t"] if trusted else sorted(known))


@pytest.mark.parametrize("flags", [0x00, 0x02, 0x04, 0x06, 0x07])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_rows_that_may_have_been_taken_back_are_told_of(flavor: Flavor, flags: int) -> None:
    """Once a table and batch, by the last transaction."""
    start, log = started(flavor, [])
    for number in (42, 43):
        if flavor == "mysql":
            log.gtid(number).query("BEGIN")
        else:
            log.mariadb_gtid(number)
        log.table_map(7, MAPS[flavor]).rows(b"\1", flags=flags).xid()
    found = Collected()
    reader = make_reader(start, found)
    feed(reader, log.events)
    reader.flush()
    told = [(event.effect, event.gtid.rpartition("-")[2]) for event in found.told]
    bulk = flavor == "mariadb" and flags & 0x06 == 0x06
    assert told == ([("bulk", "43")] if bulk else [])


@pytest.mark.parametrize("unchecked", [True, False])
@pytest.mark.parametrize(
    ("statement", "effects"),
    [
        ("ALTER TABLE t DROP INDEX k", ["key"]),
        ("ALTER TABLE t MODIFY v BIGINT", ["types"]),
        ("ALTER TABLE t ADD v2 INT NULL", ["columns"]),
    ],
)
def test_what_a_foreign_key_needs_may_go_in_a_session_that_does_not_look(
    statement: str,
    effects: list[str],
    unchecked: bool,  # noqa: FBT001
) -> None:
    start, log = started("mariadb", [])
    flags = (1 << 26 if unchecked else 0).to_bytes(4, "little")
    log.mariadb_gtid(42, flags=1).query(statement, variables=b"\0" + flags)
    found = Collected()
    reader = make_reader(start, found, known=frozenset({"t"}))
    feed(reader, log.events)
    reader.flush()
    told = [event.effect for event in found.told if event.effect != "rebuild"]
    lost = ["foreign_key"] if unchecked and effects != ["columns"] else []
    assert told == [*effects, *lost]
