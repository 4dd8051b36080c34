"""A dump's progress: added up, drawn as bars, told as lines."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from ratchet.core.errors import TableStoppedError
from ratchet.jobs.reporting import logs
from ratchet.jobs.reporting.board import Board
from ratchet.jobs.reporting.progress import Display, described, rendered
from ratchet.snapshot.records import (
    ChunkDone,
    Progress,
    TableDone,
    TableFailed,
    TableRestarted,
    TableStarted,
    Waiting,
)

TABLES = [("shop.orders", 1000), ("shop.items", 3000), ("shop.nokey", 10)]


def chunk(rows: int, *, table: str = "shop.orders", number: int = 0) -> ChunkDone:
    return ChunkDone(
        table=table, shard="shop/-", number=number, chunk_rows=100, seconds=0.1, misfits={},
        rows=rows, estimated_rows=1200, bytes=rows * 10, rows_per_second=500.0, eta=1.5,
    )  # fmt: skip


STORY: list[Progress] = [
    TableStarted(table="shop.orders", estimated_rows=1200, rows=50),
    chunk(150),
    Waiting(shard="shop/-", reason="9 threads running on shop/-"),
    chunk(250, number=1),
    TableFailed(
        table="shop.nokey", error=TableStoppedError("it has no primary key", hint="add one")
    ),
    TableDone(table="shop.orders", rows=1180, bytes=11800, seconds=3.0),
]


def test_added_up() -> None:
    board = Board(TABLES, 0.0)
    assert board.total(0.0).expected == 4010
    assert board.total(0.0).eta is None
    for second, record in enumerate(STORY, start=1):
        board.take(record, float(second))
        if isinstance(record, Waiting):
            assert board.waiting == "shop/-: 9 threads running on shop/-"
    orders, items, nokey = board.lines
    assert (orders.state, orders.rows, orders.expected) == ("done", 1180, 1180)
    assert (items.state, items.rows) == ("waiting", 0)
    assert (nokey.state, nokey.error) == ("failed", "it has no primary key")
    total = board.total(6.0)
    assert (total.rows, total.expected, total.state) == (1180, 4180, "reading")
    assert total.rate == pytest.approx(200 / 4)
    assert total.eta == pytest.approx(3000 / 50)
    assert board.waiting == ""


def test_a_table_that_begins_anew_starts_from_nothing() -> None:
    board = Board(TABLES, 0.0)
    board.take(chunk(900), 1.0)
    board.take(TableRestarted(table="shop.orders", reason="its columns changed"), 2.0)
    assert (board.lines[0].state, board.lines[0].rows) == ("waiting", 0)


def test_bars() -> None:
    board = Board(TABLES, 0.0)
    for second, record in enumerate(STORY[:3], start=1):
        board.take(record, float(second))
    out = io.StringIO()
    console = Console(file=out, width=140)
    console.print(rendered(board.lines, board.total(3.0), board.waiting))
    text = out.getvalue()
    for part in (
        "shop.orders",
        "150 of about 1,200 rows",
        "in all",
        "2 waiting",
        "waiting for shop/-",
    ):
        assert part in text


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.set_up(stream=stream)
    yield stream
    logs.set_up()


def test_lines(written: io.StringIO) -> None:
    """Without a terminal: each table's end, trouble, and the whole every few seconds."""
    times = iter(range(0, 1000, 2))
    with Display(TABLES, terminal=False, clock=lambda: float(next(times))) as display:
        for record in STORY:
            display.show(record)
    text = written.getvalue()
    for part in (
        "shop.orders: 1,180 rows in 0:03",
        "waiting for shop/-: 9 threads",
        "dump: 150 of about 4,210 rows",
        "dumped 1,180 rows in",
    ):
        assert part in text


def test_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up()
    with Display(TABLES, terminal=True) as display:
        for record in STORY:
            display.show(record)
    assert "shop.orders: 1,180 rows in 0:03" in capsys.readouterr().err


def test_described() -> None:
    total = Board(TABLES, 0.0).total(0.0)
    assert described(total) == "0 of about 4,010 rows"


def test_a_shard_that_is_waited_for_is_told_of_now_and_then(written: io.StringIO) -> None:
    """Not with each reason: a replica's lag is another one every time, and chunks come between."""
    now = 0.0
    with Display(TABLES, terminal=False, clock=lambda: now) as display:
        for second in range(61):
            now = float(second)
            display.show(Waiting(shard="shop/-", reason=f"{second} threads"))
            display.show(STORY[1])
    assert written.getvalue().count("waiting for shop/-") == 3


def test_what_the_throttle_holds_back_is_told_of_elsewhere(written: io.StringIO) -> None:
    """Its waits are one line after ten seconds, whoever reads; the bars show them all the while."""
    with Display(TABLES, terminal=False, clock=lambda: 0.0) as display:
        display.show(Waiting(shard="shop/-", reason="9 threads", throttled=True))
        assert display.board.waiting == "shop/-: 9 threads"
    assert "waiting for" not in written.getvalue()
