"""VStream from a real vtgate: every type as the server's own SELECT has it, and what is refused."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lab.ports import Port
from lab.vitess import VitessCluster
from ratchet.core.change import DELETE, INSERT, UPDATE
from ratchet.core.errors import RetryableError, ShardGoneError, TableStoppedError
from ratchet.core.types import InvalidValuePolicy, ZeroDates
from ratchet.wire.decode.catalog import read_schemas
from ratchet.wire.decode.engine import engine
from ratchet.wire.decode.kernels import vstream as kernels
from ratchet.wire.decode.vstream import VStreamRowDecoder
from ratchet.wire.session import quoted
from ratchet.wire.vstreamproto import messages
from ratchet.wire.vtgate import VStream, VtgateConfig
from tests.fix_faker import every_type_tables
from tests.fix_vitess import TabletServer
from tests.integration.test_types_oracle import (
    Rows,
    compare,
    image_rows,
    misfits_of,
    own_rows,
    write,
)

DATABASE = "vt_commerce"
BIG_SET = "set of 64"
NAMES = [table.name for table in every_type_tables("mysql")]


@pytest.fixture
def tablet(vitess: VitessCluster) -> TabletServer:
    return TabletServer(vitess.tablets[1])


def config(vitess: VitessCluster) -> VtgateConfig:
    return VtgateConfig(host="127.0.0.1", port=vitess.grpc_port)


def executed(tablet: TabletServer) -> str:
    return "MySQL56/" + tablet.execute("SELECT @@global.gtid_executed")[0][0].replace("\n", "")


def responses(vitess: VitessCluster, start: str, tablet: TabletServer) -> Iterator[bytes]:
    """All responses from a position until now."""
    tablet.execute("CREATE TABLE IF NOT EXISTS fence (n INT AUTO_INCREMENT PRIMARY KEY)",
                   database=DATABASE)  # fmt: skip
    tablet.execute("INSERT INTO fence VALUES ()", database=DATABASE)
    (mark,) = tablet.execute("SELECT MAX(n) FROM fence", database=DATABASE)[0]
    wanted = str(mark).encode()
    with VStream(config(vitess), [("commerce", "0", start)]) as stream:
        while True:
            raw = stream.receive()
            yield raw
            for event in messages().Response.FromString(raw).events:
                rows = event.row_event
                if rows.table.endswith(".fence") and rows.changes[0].after.values == wanted:
                    return


def row_events(data: bytes, table: str) -> tuple[Any, Any]:
    """Where the row events of a table begin and end."""
    buf = np.frombuffer(data, np.uint8)
    count, status, _ = kernels.count_events(buf, 0, len(buf))
    assert status == kernels.OK
    places = np.zeros((int(count), kernels.FIELDS), np.int64)
    assert kernels.index_events(buf, 0, len(buf), places)[0] == kernels.OK
    found = [
        (place[kernels.BODY], place[kernels.BODY_END])
        for place in places[places[:, kernels.TYPE] == messages().ROW]
        if messages().RowEvent.FromString(data[place[kernels.BODY] : place[kernels.BODY_END]]).table
        == f"commerce.{table}"
    ]
    starts, ends = zip(*found, strict=True)
    return np.array(starts), np.array(ends)


@pytest.mark.parametrize(
    ("name", "zero_dates"), [*((name, "null") for name in NAMES), ("times", "text")]
)
def test_every_type(
    vitess: VitessCluster, tablet: TabletServer, name: str, zero_dates: ZeroDates
) -> None:
    """Each image that VStream brings equals what the server's own SELECT showed at that moment."""
    table = next(t for t in every_type_tables("mysql") if t.name == name)
    table = replace(table, columns=[c for c in table.columns if c.name != BIG_SET])
    policy = InvalidValuePolicy(zero_dates=zero_dates)
    start = executed(tablet)
    after: dict[str, Rows] = {}
    try:
        for step in write(tablet, DATABASE, table):  # type: ignore[arg-type]
            after[step] = own_rows(tablet, DATABASE, table, zero_dates)  # type: ignore[arg-type]
            if step == "insert":
                schema = read_schemas(tablet.execute, keyspace="k", database=DATABASE)[name]
        data = b"".join(responses(vitess, start, tablet))
    finally:
        tablet.execute(f"DROP TABLE IF EXISTS {quoted(name)}", database=DATABASE)
    starts, ends = row_events(data, name)
    buf = np.frombuffer(data, np.uint8)
    fast, plain = (
        VStreamRowDecoder(schema, policy, implementation=engine(one)).decode(buf, starts, ends)
        for one in ("kernel", "plain")
    )
    assert fast.op.tolist() == plain.op.tolist()
    assert fast.event.tolist() == plain.event.tolist()
    assert (fast.before, fast.after) == (plain.before, plain.after)
    assert fast.misfits == plain.misfits

    def images(which: pa.StructArray, op: int) -> Rows:
        return image_rows(which.filter(pa.array(fast.op == op)))

    compare("inserted", table, images(fast.after, INSERT), after["insert"])
    compare("deleted", table, images(fast.before, DELETE), after["update"])
    updated = images(fast.before, UPDATE).keys()
    first, then = ({n: after[step][n] for n in updated} for step in ("insert", "update"))
    compare("before an update", table, images(fast.before, UPDATE), first)
    compare("after an update", table, images(fast.after, UPDATE), then)
    assert fast.before.null_count == len(after["insert"])
    assert fast.after.null_count == len(after["update"])
    assert Counter(fast.misfits) == misfits_of(table, after["insert"], first, then, after["update"])


def test_a_set_of_64_members_is_refused(vitess: VitessCluster, tablet: TabletServer) -> None:
    """Because vtgate loses the last one without a word. When it no longer does, admit it."""
    members = ",".join(f"'m{n}'" for n in range(64))
    start = executed(tablet)
    tablet.execute(f"CREATE TABLE big (id INT PRIMARY KEY, s SET({members}))", database=DATABASE)
    tablet.execute("INSERT INTO big VALUES (1, 'm0,m63')", database=DATABASE)
    schema = read_schemas(tablet.execute, keyspace="k", database=DATABASE)["big"]
    data = b"".join(responses(vitess, start, tablet))
    tablet.execute("DROP TABLE big", database=DATABASE)
    ((begin, end),) = zip(*row_events(data, "big"), strict=True)
    (change,) = messages().RowEvent.FromString(data[begin:end]).changes
    assert change.after.values == b"1m0"
    with pytest.raises(TableStoppedError, match="SET of 64"):
        VStreamRowDecoder(schema, InvalidValuePolicy())


def test_an_idle_stream_brings_heartbeats(vitess: VitessCluster) -> None:
    with VStream(config(vitess), [("commerce", "0", "current")]) as stream:
        seen = set()
        while messages().HEARTBEAT not in seen:
            seen |= {e.type for e in messages().Response.FromString(stream.receive()).events}


def test_a_vtgate_that_is_not_there() -> None:
    port = Port()
    with (
        VStream(
            VtgateConfig(host="127.0.0.1", port=port.number), [("k", "0", "current")]
        ) as stream,
        pytest.raises(RetryableError, match="UNAVAILABLE"),
    ):
        stream.receive()
    port.release()


def test_a_vtgate_that_says_nothing() -> None:
    """A listening socket that never answers: the stream counts as lost, it does not hang."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = VtgateConfig(
            host="127.0.0.1", port=silent.getsockname()[1], connect_timeout=1.0, password="sesame"
        )
        assert "sesame" not in repr(there)
        with (
            VStream(there, [("k", "0", "current")], silence=2.0) as stream,
            pytest.raises(RetryableError, match="nothing was received"),
        ):
            stream.receive()


def test_a_shard_that_is_not_there(vitess: VitessCluster) -> None:
    with (
        VStream(config(vitess), [("commerce", "-80", "current")]) as stream,
        pytest.raises(ShardGoneError, match="-80"),
    ):
        stream.receive()


# --- JSON -----------------------------------------------------------------------------------------


def documents() -> list[str]:
    """SQL expressions of documents: objects in any order, numbers of every kind, nested."""
    rng = random.Random(11)
    names = ["zip", "city", "a", "half", "b", "é", "", "Z", "aa", "aB", "with a space", "ü-long",
             '"', "\\\\", "\\n", "\\t\\r", "\\b"]  # fmt: skip
    scalars = [
        "0.5", "-0.5", "0.050", "0.0", "-0.007", "12.50", "0.5e0", "1e300", "-1.5e-7", "1e21", "3",
        "18446744073709551615", "true", "null", "'in, {.5]'", "'\"'", "'\\\\'", "DATE'2024-02-29'",
        "TIMESTAMP'2024-01-01 00:00:01.5'", "TIME'10:11:12.25'", "TIME'31:59:59.999999'",
        "JSON_ARRAY()", "JSON_OBJECT()",
        "CONCAT('a', CHAR(1, 8, 9, 10, 12, 13, 31, 127 USING utf8mb4))",
    ]  # fmt: skip

    def document(depth: int) -> str:
        if depth == 0 or rng.random() < 0.4:
            return rng.choice(scalars)
        if rng.random() < 0.4:
            items = ", ".join(document(depth - 1) for _ in range(rng.randrange(4)))
            return f"JSON_ARRAY({items})"
        chosen = rng.sample(names, rng.randrange(6))
        members = ", ".join(f"'{name}', {document(depth - 1)}" for name in chosen)
        return f"JSON_OBJECT({members})"

    return [*scalars, *(document(4) for _ in range(400))]


def logged(vitess: VitessCluster, tablet: TabletServer, start: str) -> list[str | None]:
    """The documents of table `j` that the log brings since then, in order."""
    data = b"".join(responses(vitess, start, tablet))
    schema = read_schemas(tablet.execute, keyspace="k", database=DATABASE)["j"]
    starts, ends = row_events(data, "j")
    decoder = VStreamRowDecoder(schema, InvalidValuePolicy())
    found = decoder.decode(np.frombuffer(data, np.uint8), starts, ends)
    texts: list[str | None] = found.after.field("doc").to_pylist()
    return texts


@pytest.fixture
def table_j(tablet: TabletServer) -> Iterator[None]:
    columns = "id INT AUTO_INCREMENT PRIMARY KEY, doc JSON"
    tablet.execute(f"CREATE TABLE j ({columns})", database=DATABASE)
    yield
    tablet.execute("DROP TABLE j", database=DATABASE)


@pytest.mark.usefixtures("table_j")
def test_documents_are_as_mysql_prints_them(vitess: VitessCluster, tablet: TabletServer) -> None:
    """vtgate writes them otherwise: another order of members, decimals without their zero."""
    start = executed(tablet)
    wanted = documents()
    values = ", ".join(f"(JSON_EXTRACT(JSON_ARRAY({one}), '$[0]'))" for one in wanted)
    tablet.execute(f"INSERT INTO j (doc) VALUES {values}", database=DATABASE)
    shown = [row[0] for row in tablet.execute("SELECT doc FROM j ORDER BY id", database=DATABASE)]
    found = logged(vitess, tablet, start)
    assert found == shown, next(x for x in zip(found, shown, wanted, strict=True) if x[0] != x[1])


@pytest.mark.usefixtures("table_j")
@pytest.mark.parametrize(
    "document", ["JSON_OBJECT('b', x'00ff')", "JSON_ARRAY(b'101', 1)", "JSON_OBJECT('b', x'01')"]
)
def test_binary_values_in_documents_are_refused(
    vitess: VitessCluster, tablet: TabletServer, document: str
) -> None:
    """vtgate loses what stands before them. When it no longer does, admit them."""
    start = executed(tablet)
    tablet.execute(f"INSERT INTO j (doc) VALUES ({document})", database=DATABASE)
    with pytest.raises(TableStoppedError, match="not JSON as MySQL prints it"):
        logged(vitess, tablet, start)


@pytest.mark.usefixtures("table_j")
def test_what_no_trace_is_left_of(vitess: VitessCluster, tablet: TabletServer) -> None:
    """docs/vitess.md names it: when vtgate no longer does this, that can go."""
    start = executed(tablet)
    values = ", ".join(
        f"(JSON_ARRAY(TIME'{time}'))" for time in ("-10:00:00.25", "838:59:59", "32:00:00")
    )
    tablet.execute(f"INSERT INTO j (doc) VALUES {values}", database=DATABASE)
    assert logged(vitess, tablet, start) == [
        '[""]', '["06:59:59.000000"]', '["00:00:00.000000"]'
    ]  # fmt: skip
