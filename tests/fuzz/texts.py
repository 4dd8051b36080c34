"""Targets: GTID sets, statements, what Vitess writes, the config, what lies in the lake."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from ratchet.core.dumps import DumpCommit, DumpedChunk
from ratchet.core.errors import ConfigError, DecodeError, LakeError, OperatorError, RetryableError
from ratchet.core.gtid import Flavor, GtidSet, format_gtid, parse_gtid
from ratchet.core.patterns import TablePatterns
from ratchet.core.position import Position
from ratchet.core.rounds import GtidRange, Journal, Round, ShardSlice, TableEvent
from ratchet.core.schema import Column, ColumnType, TableSchema
from ratchet.core.shard import ShardId
from ratchet.core.sql.lexer import Mode
from ratchet.core.sql.names import Scope
from ratchet.core.sql.statements import classify
from ratchet.ingest.slices import CaptureRequest, SliceCollector, SliceLimits
from ratchet.ingest.vstream import feed
from ratchet.jobs.config.config import load_config
from ratchet.jobs.config.yamlfile import MAX_BYTES
from ratchet.store import cuts, layout, rounds
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import Holder, read_holder
from ratchet.store.schemas import get_schema
from ratchet.store.tables import Tables, TableState
from ratchet.wire.binlog import DumpOptions
from ratchet.wire.connect import SourceConfig
from ratchet.wire.journal import executed_of, journal_of, parse_journal, parse_source
from ratchet.wire.session import Session
from ratchet.wire.vstreamproto import messages
from ratchet.wire.vtgate import VtgateConfig
from tests.fuzz.record import statements
from tests.fuzz.target import Target, packed, unpacked

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
FLAVORS: tuple[Flavor, ...] = ("mysql", "mariadb", "file")
SHARD = ShardId("shop", "-80")


# --- GTIDs ----------------------------------------------------------------------------------------


def gtid_set(data: bytes) -> None:
    """What is read is written and read again as the same."""
    flavor = FLAVORS[data[0] % 3] if data else "mysql"
    found = GtidSet.parse(flavor, data[1:].decode("utf-8", "replace"))
    assert GtidSet.parse(flavor, str(found)) == found
    assert 0 <= found.cardinality < 1 << 63
    for spans in found.intervals.values():
        assert all(1 <= low <= high for low, high in spans)
        assert all(a[1] + 1 < b[0] for a, b in pairwise(spans))


def gtid_set_seeds() -> list[bytes]:
    return [
        b"\0" + f"{UUID}:1-5:7:tag:1-3:9, {uuid.UUID(int=7)}:1".encode(),
        b"\0",
        b"\0" + f"{UUID}:1-9223372036854775807".encode(),
        b"\0" + f"{UUID}:99999999999999999999".encode(),
        b"\0{" + f"{UUID}".encode() + b"}:1",
        b"\0" + f"{UUID}:".encode() + b"9" * 5000,
        b"\1" + b"0-1-100,3-4294967295-7",
        b"\1" + b"0-1-99999999999999999999",
        b"\2" + b"bin.000001:4",
        b"\2" + b"bin.99999999999999999999:4",
        b"\2" + b"bin.-1:4",
        b"\2" + b"bin.0:0",
    ]


def gtid(data: bytes) -> None:
    flavor = FLAVORS[data[0] % 3] if data else "mysql"
    found = parse_gtid(flavor, data[1:].decode("utf-8", "replace"))
    assert parse_gtid(flavor, format_gtid(flavor, found)) == found
    assert (flavor != "file") <= found.number < 1 << 63


def gtid_seeds() -> list[bytes]:
    return [
        b"\0" + f"{UUID}:tag:7".encode(),
        b"\0" + f"{UUID}:-7".encode(),
        b"\1" + b"0-1-100",
        b"\2" + b"bin.000001:4",
    ]


# --- statements -----------------------------------------------------------------------------------


def statement(data: bytes) -> None:
    """Any statement is judged; what it is said to name is mirrored, or is in its text."""
    flags, text = data[0] if data else 0, data[1:].decode("utf-8", "replace")
    mode = Mode(
        mariadb=bool(flags & 1),
        ansi_quotes=bool(flags & 2),
        plain_backslashes=bool(flags & 4),
        known=not flags & 8,
    )
    known = {"w", "a", "x`y"}
    scope = Scope(
        database="shop", default="shop", known=known, folds=(None, False, True)[flags % 3]
    )
    found = classify(text, mode=mode, scope=scope)
    assert all(name in known or len(name) <= len(text) for name in found.tables)
    assert {table for table, _ in found.changes} <= set(found.tables)


def statement_seeds() -> list[bytes]:
    texts = dict.fromkeys([*statements("mysql"), *statements("mariadb")])
    hard = [
        'CREATE TABLE `a``b` (x ENUM(\'a\\\'\', "b""c")) /* remark */ -- end',
        "/*!50100 DROP */ /*M!100100 TABLE */ IF EXISTS shop.w, `other`.`w`",
        # Once these took minutes: strings, remarks and blanks that do not end.
        "ALTER TABLE w COMMENT " + "'\\" * 30_000,
        'ALTER TABLE w COMMENT "' + "\\\"'" * 20_000,
        "/*" * 30_000,
        "XA START 'x'" + " " * 30_000 + "y",
        "XA START 'x'" + ", w" * 30_000,  # longer than what is read of a statement's head
        "`" * 60_001,
        "#" * 60_000,
    ]
    return [bytes([number % 16]) + text.encode() for number, text in enumerate((*texts, *hard))]


# --- Vitess ---------------------------------------------------------------------------------------


def journal(data: bytes) -> None:
    """Texts in Vitess's own tables, and the journal as a message."""
    kind, text = data[:1], data[1:]
    if kind == b"\0":
        parse_source(text)
    elif kind == b"\1":
        executed_of(text.decode("utf-8", "replace"))
    else:
        journal_of(parse_journal(text), SHARD)


def journal_seeds() -> list[bytes]:
    text = (
        'id:123 migration_type:SHARDS tables:"/.*" local_position:"MySQL56/' + UUID + ':1-5" '
        'shard_gtids:{keyspace:"shop" shard:"-40" gtid:"MySQL56/' + UUID + ':1-3"} '
        'participants:{keyspace:"shop" shard:"-80"} source_workflows:"w"'
    )
    return [
        b"\2" + text.encode(),
        b'\0keyspace:"shop" shard:"-80" filter:{rules:{match:"t" filter:"select * from t"}}',
        b"\1" + f"MySQL56/{UUID}:1-5".encode(),
        b"\2" + b"a:{" * 500,
        b"\2" + b"shard_gtids:{" * 500,
    ]


class Responses:
    """A stream that hands out what it was given, then nothing."""

    def __init__(self, responses: list[bytes]) -> None:
        self._responses = responses

    def receive(self, timeout: float | None = None) -> bytes | None:
        del timeout
        return self._responses.pop(0) if self._responses else None

    def close(self) -> None:
        """Nothing to close."""


class _Kept(SliceCollector):
    """Takes the changes and checks them."""

    def add(self, changes: Any) -> None:
        for one in changes:
            one.rows.validate(full=True)


def vstream(data: bytes) -> None:
    """A whole feed, from the responses of a vtgate."""
    with _fed(unpacked(data)) as stream:
        stream.read(known=frozenset(), limits=SliceLimits(max_seconds=0.0, min_seconds=0.0))


@contextmanager
def _fed(responses: list[bytes]) -> Iterator[feed.VStreamFeed]:
    def no_session(*_: object) -> None:
        raise RetryableError("the shard serves no queries")

    stream, connect = feed.VStream, Session.connect
    feed.VStream = lambda *_, **__: Responses(responses)  # type: ignore[assignment,misc]
    Session.connect = no_session  # type: ignore[assignment,method-assign]
    found = None
    try:
        request = CaptureRequest(
            source=SourceConfig(shard=SHARD, host="h", user="u", database="vt_shop", target="shop"),
            start=Position(executed=GtidSet.parse("mysql", f"{UUID}:1-5")),
            generation=3,
            round_number=1,
            lake="",
            patterns=TablePatterns(("*",)),
            dump=DumpOptions(server_id=1, deadline=0.0),
            vtgate=VtgateConfig(host="h", port=1),
        )
        found = feed.VStreamFeed(request, _Kept(3), vtgate=VtgateConfig(host="h", port=1))
        yield found
    finally:
        feed.VStream = stream  # type: ignore[misc]
        Session.connect = connect  # type: ignore[method-assign]
        if found is not None:
            found.close()


def vstream_seeds() -> list[bytes]:
    proto = messages()

    def event(kind: str, gtid: str = "", **more: Any) -> Any:
        name = f"MySQL56/{UUID}:{gtid}" if gtid else ""
        number = proto.EventType.Value(kind)
        return proto.Event(type=number, timestamp=100, event_gtid=name, **more)

    def position(upto: int) -> Any:
        found = event("VGTID")
        found.vgtid.shards.add(keyspace="shop", shard="-80", gtid=f"MySQL56/{UUID}:1-{upto}")
        return found

    def rows(number: int) -> list[Any]:
        row = event("ROW", str(number))
        row.row_event.table = "shop.t"
        after = row.row_event.changes.add().after
        after.lengths.extend([1, 2])
        after.values = b"1ab"
        end = event("COMMIT", str(number))
        return [event("BEGIN", str(number)), row, position(number), end]

    field = event("FIELD")
    field.field_event.table = "shop.t"
    field.field_event.fields.add(name="id", column_type="bigint unsigned", charset=63, flags=3)
    field.field_event.fields.add(name="v", column_type="varchar(10)", charset=255)
    wrong = event("FIELD")  # once a ValueError of Arrow's
    wrong.field_event.table = "shop.t"
    wrong.field_event.fields.add(name="d", column_type="decimal(400,2)")
    first = rows(6)
    first.insert(1, field)
    ddl = [position(7), event("DDL", "7", statement="ALTER TABLE t ADD COLUMN x int")]
    end = event("JOURNAL")
    end.journal.migration_type = proto.SHARDS
    end.journal.participants.add(keyspace="shop", shard="-80")
    end.journal.shard_gtids.add(keyspace="shop", shard="-40", gtid=f"MySQL56/{UUID}:1-3")
    streams = [
        [first],
        [first, ddl, [event("HEARTBEAT")]],
        [first[:3], first[3:], rows(7)],
        [first, [event("BEGIN", "7"), end, position(7), event("COMMIT", "7")]],
        [[position(7), event("OTHER", "7")]],
        [[event("BEGIN", "6"), wrong, position(6), event("COMMIT", "6")]],
    ]
    return [
        packed(*(proto.Response(events=one).SerializeToString() for one in stream))
        for stream in streams
    ]


# --- config ---------------------------------------------------------------------------------------


@cache
def folder() -> Path:
    """A folder for files; gone with the process."""
    made = tempfile.TemporaryDirectory(prefix="ratchet-fuzz-")
    _kept.append(made)
    return Path(made.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def config(data: bytes) -> None:
    """A whole config file; the password in the environment is in no message."""
    path = folder() / "ratchet.yaml"
    path.write_bytes(data[: MAX_BYTES + 1])
    try:
        found = load_config(
            path, {"SECRET": "s3cr3t-value", "SHOP_PASSWORD": "x", "SHOP_B_PASSWORD": "y"}
        )
        assert "s3cr3t-value" not in repr(found)
    except ConfigError as error:
        assert "s3cr3t-value" not in f"{error} {error.hint} {error!r} {error.__cause__!r}"
        raise


def config_seeds() -> list[bytes]:
    root = Path(__file__).parents[2]
    small = (
        b"lake: ./lake\nsources:\n  shop:\n    kind: binlog\n    shards:\n"
        b'      "-": {host: h, port: 3306, user: u, password: "${SECRET}", database: d}\n'
        b'    tables: ["*", "!tmp_*"]\n'
    )
    vitess = (
        b"lake: s3://b/l\nsources:\n  shop:\n    kind: vitess\n"
        b"    vtgate: {host: h, grpc_port: 1, mysql_port: 2, user: u, password: '${SECRET}'}\n"
    )
    bomb = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % (c, c, *[c - 1] * 9)
        for c in range(98, 108)
    )
    return [
        small,
        vitess,
        bomb,
        (root / "conf/example.yaml").read_bytes(),
        b"[" * 5000,
        b"a: " * 2000,
        b"- " * 5000,
        b"&a [*a]",
        b"? " * 2000,
        # Once a ValueError of PyYAML's, and a RuntimeError of pathlib's.
        b'lake: "\\U00110000"',
        b"%YAML 1." + b"9" * 5000 + b"\n--- a",
        small.replace(b"./lake", b"~nobody-of-that-name/lake"),
        b'lake: "\\ud800"',
        b'lake: "a\\0b"\n' + small[13:],
        small.replace(b"3306", b"9" * 5000),
    ]


# --- the lake -------------------------------------------------------------------------------------


@cache
def lake() -> Lake:
    return open_lake(folder() / "lake", now=1)


def _schema() -> TableSchema:
    kind = ColumnType(name="enum", charset="utf8mb4", members=("a", "b"))
    columns = (Column(name="id", type=ColumnType(name="int")), Column(name="e", type=kind))
    return TableSchema(keyspace="shop", table="t", columns=columns, key=("id",))


def _position() -> Position:
    return Position(executed=GtidSet.parse("mysql", f"{UUID}:1-5:7"), file="bin.000001", offset=4)


def lake_file(data: bytes) -> None:
    """Each of the lake's JSON files, with these bytes in it."""
    kind, content = (data[0] if data else 0) % 4, data[1:]
    place = lake()
    name = (
        layout.state_path("shop", "t"),
        layout.schema_path("shop", "t", "0123456789abcdef"),
        layout.LEASE_FILE,
        f"fuzz-{kind}/{layout.FORMAT_FILE}",
    )[kind]
    path = Path(place.absolute(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if kind == 0:
        found = Tables(place).load("shop", "t")
        assert found is not None
        json.dumps(found.to_json())
        Tables(place).list()
    elif kind == 1:
        json.dumps(get_schema(place, "shop", "t", "0123456789abcdef").to_json())
    elif kind == 2:
        holder = read_holder(place)
        assert holder is None or holder.describe()
    else:
        open_lake(place.absolute(f"fuzz-{kind}"), now=1)


def lake_file_seeds() -> list[bytes]:
    state = TableState(
        keyspace="shop",
        table="t",
        schema=_schema(),
        phase="dumping",
        key=("id",),
        dump=DumpState(id="d", start_round=1, start={"shop/-": _position()}),
    )
    holder = Holder(
        owner="i",
        machine="m",
        host="h",
        pid=1,
        process_start=2,
        command="run",
        started=3,
        renewed=4,
    )
    values: list[Any] = [state.to_json(), _schema().to_json(), asdict(holder)]
    found = [bytes([n]) + json.dumps(value).encode() for n, value in enumerate(values)]
    odd = [b"null", b"[]", b"{}", b"1", b'"x"', b"[" * 60_000, b'{"started": 1e999}', b"9" * 5000]
    return [
        *found,
        b'\3{"format": 1, "id": "x", "created_at": 1}',
        *(bytes([n]) + one for n in range(4) for one in odd),
    ]


def lake_record(data: bytes) -> None:
    """The records inside of the lake's Delta tables."""
    kind, text = (data[0] if data else 0) % 4, data[1:].decode("utf-8", "replace")
    if kind == 0:
        json.dumps(rounds._round({"round": 1, "record": text}).to_json())
    elif kind == 1:
        for one in rounds._streams(text).values():
            json.dumps(one.to_json())
    elif kind == 2:
        json.dumps(cuts._cut(1, [{"record": text}]).to_json())
    else:
        commit = DumpCommit.from_text(text)
        assert commit is None or commit.to_text()


def lake_record_seeds() -> list[bytes]:
    place = _position()
    piece = ShardSlice(
        shard="shop/-", generation=0, start=place, end=place, runs=(GtidRange(UUID, 1, 5, 1),),
        transactions=5, rows=7, bytes=100, min_ts=1, max_ts=2, observed_at=3, caught_up=True,
        journal=Journal(sources=("shop/-",), targets={"shop/-80": place}),
        ancestors={"shop/-": 1}, seen={"shop/-80": place},
    )  # fmt: skip
    event = TableEvent(
        keyspace="shop", table="t", shard="shop/-", kind="ddl", statement="DROP TABLE t",
        gtid=f"{UUID}:5", seq=5, ts=1,
    )  # fmt: skip
    one = Round(number=1, committed_at=5, slices=(piece,), files=(), events=(event,))
    stream = rounds.StreamState(position=place, generation=1)
    shard = cuts.CutShard(position=place, min_ts=1, max_ts=2, latest_ts=3, observed_at=4)
    cut = cuts.Cut(number=1, round=1, merged_at=2, shards={"shop/-": shard}, tables={"shop.t": 1})
    chunk = DumpedChunk(number=1, shard="shop/-", generation=0, rows=1, read_at=1, floor=place)
    commit = DumpCommit(
        dump="d", number=1, chunks=(chunk,), todo={"shop/-": ()}, next_chunk=2, rows=3, bytes=4
    )
    return [
        b"\0" + json.dumps(one.to_json()).encode(),
        b"\1" + json.dumps({"shop/-": stream.to_json()}).encode(),
        b"\2" + json.dumps(cut.to_json()).encode(),
        b"\3" + commit.to_text().encode(),
        *(
            bytes([kind]) + odd
            for kind in range(4)
            for odd in (b"[]", b"{}", b"null", b"[" * 60_000)
        ),
    ]


TARGETS: dict[str, Target] = {
    "gtid_set": Target(gtid_set, gtid_set_seeds),
    "gtid": Target(gtid, gtid_seeds),
    "statement": Target(statement, statement_seeds, inputs=600),
    "journal": Target(journal, journal_seeds),
    "vstream": Target(vstream, vstream_seeds, (DecodeError, OperatorError, RetryableError)),
    "config": Target(config, config_seeds, (ConfigError,), inputs=600),
    "lake_file": Target(lake_file, lake_file_seeds, (LakeError,)),
    "lake_record": Target(lake_record, lake_record_seeds, (LakeError,)),
}
