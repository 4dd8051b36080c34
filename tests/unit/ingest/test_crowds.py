"""Statements by the thousand that put all tables in doubt: what is kept of them."""

from __future__ import annotations

from ratchet.core.patterns import TablePatterns
from ratchet.core.shard import ShardId
from ratchet.ingest.binlog.events import Query
from ratchet.ingest.binlog.watch import StatementWatch, TransactionStamp

KNOWN = frozenset(f"t{number}" for number in range(40))
UNTOLD = (
    "DROP PROCEDURE IF EXISTS `database` /*M!100500 */",
    "CREATE TABLE elsewhere.x (a INT) /*M!100500 b */ SELECT 1",
)


def watch() -> StatementWatch:
    return StatementWatch(
        shard=ShardId.parse("shop/-"), database="shop", patterns=TablePatterns(), mariadb=True
    )


def look(one: StatementWatch, statement: str, seq: int) -> None:
    now = TransactionStamp(gtid=f"0-1-{seq}", seq=seq, ts=seq)
    one.look(Query("shop", statement), known=KNOWN, now=now)


def test_the_first_and_the_last_are_kept_of_each_table() -> None:
    one = watch()
    for seq in range(1, 3001):
        look(one, UNTOLD[0], seq)
    assert {event.table for event in one.events} == KNOWN
    for table in KNOWN:
        seqs = [event.seq for event in one.events if event.table == table]
        assert (seqs[0], seqs[-1]) == (1, 3000)
        assert len(seqs) <= 3


def test_a_transaction_that_is_taken_back_leaves_those_before_it() -> None:
    """As the reader does where a server died in one."""
    one = watch()
    for seq in range(1, 10):
        look(one, UNTOLD[0], seq)
    one.events = [event for event in one.events if event.seq != 9]
    assert max(event.seq for event in one.events) == 8
    look(one, UNTOLD[0], 9)
    assert max(event.seq for event in one.events) == 9


def test_within_one_transaction_it_is_told_once() -> None:
    one = watch()
    for _ in range(500):
        look(one, UNTOLD[0], 7)
    assert len(one.events) == len(KNOWN)


def test_other_statements_between_are_all_kept() -> None:
    one = watch()
    for seq in range(1, 2001):
        look(one, UNTOLD[0] if seq % 2 else "TRUNCATE TABLE t1", seq)
    truncated = [event.seq for event in one.events if event.kind == "truncate"]
    assert truncated == list(range(2, 2001, 2))
    assert len(one.events) < 10_000
