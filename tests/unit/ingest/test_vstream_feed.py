"""VStream's transactions, positions and refusals, from responses made up here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from change_kit import read_file

from ratchet.core.errors import DecodeError, RatchetError, RetryableError, SourceUnfitError
from ratchet.core.gtid import GtidSet
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange
from ratchet.core.shard import ShardId
from ratchet.ingest.capture import capture_slice, close_streams
from ratchet.ingest.slices import CaptureRequest, CaptureResult, SliceLimits
from ratchet.ingest.vstream import feed
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.session import Session
from ratchet.wire.vstreamproto import messages
from ratchet.wire.vtgate import VtgateConfig

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


class FakeStream:
    """Hands out responses, then nothing, or an error."""

    waiting: list[bytes]
    error: RatchetError | None = None

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def receive(self, timeout: float | None = None) -> bytes | None:
        del timeout
        if not self.waiting and FakeStream.error is not None:
            raise FakeStream.error
        return self.waiting.pop(0) if self.waiting else None

    def close(self) -> None:
        pass


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    def refuse(*_: object) -> None:
        raise RetryableError("the shard serves no queries")

    monkeypatch.setattr(feed, "VStream", FakeStream)
    monkeypatch.setattr(FakeStream, "error", None)
    monkeypatch.setattr(Session, "connect", refuse)
    yield
    close_streams()


def vgtid(position: str) -> Any:
    found = messages().Event(type=messages().VGTID)
    found.vgtid.shards.add(keyspace="shop", shard="-80", gtid=f"MySQL56/{position}")
    return found


def event(kind: str, gtid: str = "", ts: int = 100, **more: Any) -> Any:
    name = f"MySQL56/{gtid}" if gtid else ""
    return messages().Event(
        type=messages().EventType.Value(kind), timestamp=ts, event_gtid=name, **more
    )


def transaction(gtid: str, position: str, *rows: tuple[int, int], ts: int = 100) -> list[Any]:
    """Rows (id, v) inserted by one transaction."""
    found = [event("BEGIN", gtid, ts), field()]
    for key, value in rows:
        one = event("ROW", gtid, ts)
        one.row_event.table = "shop.t"
        after = one.row_event.changes.add().after
        texts = [str(key).encode(), str(value).encode()]
        after.lengths.extend(len(text) for text in texts)
        after.values = b"".join(texts)
        found.append(one)
    return [*found, vgtid(position), event("COMMIT", gtid, ts)]


def field(table: str = "t", sent: float = 0) -> Any:
    found = event("FIELD", current_time=int(sent * 1e9))
    found.field_event.table = f"shop.{table}"
    found.field_event.fields.add(name="id", column_type="bigint", charset=63, flags=3)
    found.field_event.fields.add(name="v", column_type="int", charset=63)
    return found


def take(
    lake: Lake,
    *responses: list[Any],
    start: str = f"{UUID}:1-5",
    known: tuple[str, ...] = (),
) -> CaptureResult:
    """One slice of those responses."""
    FakeStream.waiting = [
        messages().Response(events=response).SerializeToString() for response in responses
    ]
    return capture_slice(
        CaptureRequest(
            source=SourceConfig(
                shard=ShardId("shop", "-80"), host="h", user="u", database="vt_shop", target="shop"
            ),
            start=Position(executed=GtidSet.parse("mysql", start)),
            generation=3,
            round_number=1,
            lake=lake.root,
            patterns=TablePatterns(("*", "!left")),
            known=known,
            limits=SliceLimits(max_seconds=0.3, min_seconds=0.0),
            dump=DumpOptions(server_id=1, deadline=0.2),
            vtgate=VtgateConfig(host="h", port=1),
        )
    )


def seqs(lake: Lake, result: CaptureResult) -> list[tuple[int, str]]:
    """(seq, gtid) of the changes."""
    return [
        (row["token"]["seq"], row["token"]["gtid"])
        for file in result.files
        for row in read_file(lake, file).to_pylist()
    ]


def failure(result: CaptureResult) -> RatchetError:
    assert result.error is not None
    return result.error


def test_transactions_follow_each_other(lake: Lake) -> None:
    """Over responses that end anywhere; one that is not whole leaves no trace."""
    first = transaction(f"{UUID}:6", f"{UUID}:1-6", (1, 1), (2, 2), ts=100)
    second = transaction(f"{UUID}:7", f"{UUID}:1-7", (3, 3), ts=90)
    open_one = transaction(f"{UUID}:8", f"{UUID}:1-8", (4, 4))[:3]
    heartbeat = [event("HEARTBEAT")]
    result = take(
        lake, first[:3], heartbeat, first[3:] + second[:2], second[2:], heartbeat, heartbeat
    )
    assert result.slice is not None
    assert str(result.slice.end.executed) == f"{UUID}:1-7"
    assert result.slice.runs == (GtidRange(UUID, 6, 7, 6),)
    assert (result.slice.min_ts, result.slice.max_ts) == (100_000_000, 100_000_000)
    assert (result.slice.transactions, result.slice.rows) == (2, 3)
    assert seqs(lake, result) == [
        (6, f"{UUID}:6"), (6, f"{UUID}:6"), (7, f"{UUID}:7"),
    ]  # fmt: skip
    close_streams()
    unfinished = take(lake, first, open_one)
    assert "has not continued" in failure(unfinished).message
    assert unfinished.files == ()


def test_a_transaction_that_begins_once_more_counts_once(lake: Lake) -> None:
    """As when vtgate lost its tablet in the middle, and goes on at another one."""
    first = transaction(f"{UUID}:6", f"{UUID}:1-6", (1, 1), (2, 2))
    second = transaction(f"{UUID}:7", f"{UUID}:1-7", (3, 3), (4, 4))
    for responses in (
        (first[:3], first, second[:4], second),
        ([*first[:3], *first[:4], *first, *second[:3], *second],),
        (first, second[:3], [*second, event("HEARTBEAT")]),
    ):
        close_streams()
        result = take(lake, *responses)
        assert result.slice is not None
        assert (result.slice.rows, result.slice.transactions) == (4, 2)
        assert [seq for seq, _ in seqs(lake, result)] == [6, 6, 7, 7]


def test_what_was_passed_over_counts(lake: Lake) -> None:
    """Transactions that are in a position and never came stand before the one that did."""
    result = take(
        lake,
        transaction(f"{UUID}:6", f"{UUID}:1-6", (1, 1)),
        transaction(f"{UUID}:9", f"{UUID}:1-9,{OTHER}:1-2", (2, 2)),
        [*transaction(f"{OTHER}:3", f"{UUID}:1-9,{OTHER}:1-3", (3, 3)), event("HEARTBEAT")],
    )
    assert result.slice is not None
    assert [seq for seq, _ in seqs(lake, result)] == [6, 11, 12]
    assert str(result.slice.end.executed) == f"{UUID}:1-9,{OTHER}:1-3"
    assert {(run.origin, run.first, run.last) for run in result.slice.runs} == {
        (UUID, 6, 8), (OTHER, 1, 2), (UUID, 9, 9), (OTHER, 3, 3),
    }  # fmt: skip
    ranks = [run.seq for run in result.slice.runs]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    ("events", "kind", "words"),
    [
        ([event("INSERT", f"{UUID}:6")], SourceUnfitError, "logged as its text"),
        ([event("LASTPK", f"{UUID}:6")], DecodeError, "LASTPK"),
        ([messages().Event(type=99)], DecodeError, "type 99"),
        (
            transaction(f"{UUID}:6", f"{OTHER}:1-6", (1, 1)),
            DecodeError,
            "lacks what came before",
        ),
        (transaction(f"{UUID}:5", f"{UUID}:1-5", (1, 1)), DecodeError, "it had sent before"),
        ([event("BEGIN", f"{UUID}:6"), event("COMMIT", f"{UUID}:6")], DecodeError, "position"),
        ([vgtid(f"{UUID}:1-6"), event("COMMIT")], DecodeError, "name"),
    ],
)
def test_what_is_not_understood_is_refused(
    lake: Lake, events: list[Any], kind: type[RatchetError], words: str
) -> None:
    result = take(lake, [*events, vgtid(f"{UUID}:1-9"), event("OTHER", f"{UUID}:9")])
    assert isinstance(failure(result), kind)
    assert words in failure(result).message
    assert not [file for file in lake.list("_ratchet/changes") if file.path.endswith(".parquet")]


@pytest.mark.parametrize(
    ("statement", "effect"),
    [
        ("DELETE FROM t", "untold"),
        ("HELLO world", "doubt"),
        ("ALTER TABLE t ADD x INT", "columns"),
        # The session's mode is not in the stream.
        ('ALTER TABLE t ADD x INT COMMENT "a"', "doubt"),
        ("ALTER TABLE t MODIFY x INT COMMENT 'a'", "types"),
    ],
)
def test_what_statements_do_is_told_once(lake: Lake, statement: str, effect: str) -> None:
    events = [vgtid(f"{UUID}:1-6"), event("DDL", f"{UUID}:6", statement=statement)]
    result = take(lake, events, known=("t",))
    assert result.slice is not None
    # Rows that are written anew come with any ALTER.
    told = [(one.table, one.effect) for one in result.events if one.effect != "rebuild"]
    assert told == [("t", effect)]


def test_rows_without_a_table_are_refused(lake: Lake) -> None:
    events = transaction(f"{UUID}:6", f"{UUID}:1-6", (1, 1))
    del events[1]
    assert "FIELD" in failure(take(lake, events)).message


def test_tables_that_are_not_mirrored_leave_no_rows(lake: Lake) -> None:
    names = ("left", "_vt_hld_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_")
    events: list[Any] = []
    for number, name in enumerate(names, 6):
        found = transaction(f"{UUID}:{number}", f"{UUID}:1-{number}", (1, 1))
        found[1] = field(name)
        found[2].row_event.table = f"shop.{name}"
        events += found
    result = take(lake, events)
    assert result.slice is not None
    assert (result.slice.rows, result.slice.transactions, result.files) == (0, 2, ())


@pytest.mark.parametrize(
    ("name", "charset", "words"),
    [
        ("_token", 63, "Ratchet's own column (ALTER TABLE `bad` RENAME"),
        ("w", 0, "does not know its character set"),
    ],
)
@pytest.mark.parametrize("cut", [0, 4])
def test_a_table_that_cannot_be_taken_stops_and_no_other(
    lake: Lake, name: str, charset: int, words: str, cut: int
) -> None:
    """At the transaction of its first row; idx counts the rows that come out."""
    described = field("bad")
    described.field_event.fields.add(name=name, column_type="text", charset=charset)
    row = event("ROW", f"{UUID}:7")
    row.row_event.table = "shop.bad"
    row.row_event.changes.add().after.lengths.extend([-1, -1, -1])
    first = transaction(f"{UUID}:6", f"{UUID}:1-6", (1, 1))
    second = transaction(f"{UUID}:7", f"{UUID}:1-7", (2, 2), (3, 3), ts=110)
    second[2:3] = [described, row, second[2], row]
    third = transaction(f"{UUID}:8", f"{UUID}:1-8", (4, 4))
    events = [*first, *second, *third]
    result = take(lake, events[:cut], events[cut:])
    assert result.slice is not None
    assert (result.slice.rows, result.slice.transactions) == (4, 3)
    assert [seq for seq, _ in seqs(lake, result)] == [6, 7, 7, 8]
    (told,) = result.events
    assert (told.keyspace, told.table, told.shard) == ("shop", "bad", "shop/-80")
    assert (told.kind, told.gtid, told.seq) == ("unreadable", f"{UUID}:7", 7)
    assert told.ts == 110_000_000
    assert words in told.statement


@pytest.mark.parametrize(
    ("sent", "again", "doubts"),
    [(50.0, None, 0), (100.5, None, 1), (50.0, 300.0, 1), (300.0, None, 1)],
)
@pytest.mark.parametrize("cut", [0, 3, 5])
def test_rows_that_may_have_been_described_by_a_later_table(
    lake: Lake, sent: float, again: float | None, doubts: int, cut: int
) -> None:
    """A statement of second 100: the description in front of it was sent before, or not."""
    first = transaction(f"{UUID}:6", f"{UUID}:1-6", (1, 1))
    first[1] = field(sent=sent)
    second = transaction(f"{UUID}:7", f"{UUID}:1-7", (2, 2))
    second[1] = field(sent=again) if again is not None else event("HEARTBEAT")
    statement = [
        vgtid(f"{UUID}:1-8"),
        event("DDL", f"{UUID}:8", statement="ALTER TABLE t MODIFY v INT FIRST"),
    ]
    later = transaction(f"{UUID}:9", f"{UUID}:1-9", (3, 3))
    later[1] = field(sent=400.0)
    events = [*first, *second, *statement, *later]
    result = take(lake, events[:cut], events[cut:])
    assert [(one.kind, one.effect, one.table, one.seq) for one in result.events] == [
        ("ddl", "types", "t", 8), ("ddl", "rebuild", "t", 8),
        *[("doubt", "types", "t", 8)] * doubts,
    ]  # fmt: skip


def test_the_journal_ends_the_stream(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where vtgate sends an error right behind it, as to one of the shards of a merge."""
    found = event("JOURNAL", f"{UUID}:6")
    found.journal.migration_type = messages().SHARDS
    for name in ("-40", "40-80"):
        found.journal.shard_gtids.add(keyspace="shop", shard=name, gtid=f"MySQL56/{OTHER}:1-4")
    found.journal.participants.add(keyspace="shop", shard="-80")
    events = [
        event("BEGIN", f"{UUID}:6"), found, vgtid(f"{UUID}:1-6"), event("COMMIT", f"{UUID}:6"),
    ]  # fmt: skip
    result = take(lake, transaction(f"{UUID}:6", f"{UUID}:1-6", (1, 1)))
    assert result.slice is not None
    assert result.slice.journal is None
    close_streams()
    with monkeypatch.context() as patch:
        patch.setattr(FakeStream, "error", RetryableError("not all participants are here"))
        result = take(lake, events)
    assert result.slice is not None
    assert result.slice.journal is not None
    assert result.slice.journal.sources == ("shop/-80",)
    targets = {name: str(one.executed) for name, one in result.slice.journal.targets.items()}
    assert targets == {"shop/-40": f"{OTHER}:1-4", "shop/40-80": f"{OTHER}:1-4"}
    close_streams()
    found.journal.migration_type = messages().TABLES
    moved = take(lake, events)
    assert moved.slice is not None
    assert moved.slice.journal is None  # tables go elsewhere: the stream goes on
