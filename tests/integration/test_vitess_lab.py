"""The lab's Vitess cluster: shards, a reshard there and back, and nothing left behind."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lab.server import ServerError
from lab.vitess import VitessCluster
from ratchet.wire.vstreamproto import messages
from ratchet.wire.vtgate import VStream, VtgateConfig

VSCHEMA: dict[str, Any] = {
    "sharded": True,
    "vindexes": {"hash": {"type": "hash"}},
    "tables": {"t": {"column_vindexes": [{"column": "id", "name": "hash"}]}},
}


def test_one_shard_serves_rows(vitess: VitessCluster) -> None:
    vitess.query("CREATE TABLE lab (id INT PRIMARY KEY)", target="commerce")
    vitess.query("INSERT INTO lab VALUES (7)", target="commerce")
    assert vitess.query("SELECT id FROM lab", target="commerce") == ((7,),)
    vitess.query("DROP TABLE lab", target="commerce")


@pytest.fixture
def own() -> Iterator[VitessCluster]:
    with VitessCluster() as cluster:
        yield cluster
    left = subprocess.run(
        ["pgrep", "-f", str(cluster.home)], check=False, capture_output=True, text=True
    )
    assert left.stdout == ""
    assert not cluster.home.exists()


@pytest.mark.long
@pytest.mark.usefixtures("vitess")
def test_a_shard_is_split_under_a_stream(own: VitessCluster) -> None:
    """The stream of the old shard brings the journal, which says where the new ones go on."""
    own.add_keyspace("shop", ["0"])
    own.apply_schema("shop", "CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
    own.query("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4)", target="shop")
    config = VtgateConfig(host="127.0.0.1", port=own.grpc_port)
    with VStream(config, [("shop", "0", "current")]) as stream:
        stream.receive()
        own.apply_vschema("shop", VSCHEMA)
        reshard = own.reshard("shop", ["0"], ["-80", "80-"])
        reshard.wait_until_running()
        reshard.switch()
        journal = None
        deadline = time.monotonic() + 60
        while journal is None and time.monotonic() < deadline:
            for event in messages().Response.FromString(stream.receive() or b"").events:
                if event.type == messages().JOURNAL:
                    journal = event.journal
    assert journal is not None
    assert journal.migration_type == messages().SHARDS
    assert {target.shard for target in journal.shard_gtids} == {"-80", "80-"}
    assert [source.shard for source in journal.participants] == ["0"]
    halves = [own.query("SELECT id FROM t", target=f"shop:{s}@primary") for s in ("-80", "80-")]
    assert sorted(row for half in halves for row in half) == [(1,), (2,), (3,), (4,)]
    reshard.reverse()
    own.query("INSERT INTO t VALUES (5, 5)", target="shop:0@primary")
    reshard.switch()
    reshard.complete()
    assert len(own.query("SELECT id FROM t", target="shop")) == 5
    first, *_ = own.tablets.values()
    own.kill_tablet(first)
    own.stop_vtgate()
    own.start_vtgate()
    own.wait(lambda: len(_rows(own)) == 5, "vtgate serves again")


def _rows(cluster: VitessCluster) -> tuple[Any, ...]:
    try:
        return cluster.query("SELECT id FROM t", target="shop")
    except ServerError:
        return ()
