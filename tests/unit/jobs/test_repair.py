"""`ratchet repair` without servers or Spark: the lease, the cut it leaves, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.jobs import cli
from ratchet.jobs.recovery.repair import _unlike, note
from ratchet.snapshot.verify import Difference, VerifyResult
from ratchet.store.cuts import Cut, Cuts, CutShard
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.lease import Lease

CONFIG = """\
lake: ./lake
sources:
  shop: {kind: binlog, shards: {"-": {host: 127.0.0.1, port: 1, user: u, database: shop}}}
"""
PLACE = Position(executed=GtidSet.parse("mariadb", "0-1-5"))
RESULT = VerifyResult(
    table="shop.t", round=3, positions={}, ends={}, source_rows=1, source_bytes=9, mirror_rows=1,
    chunks=1, columns=("id",),
)  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(tmp_path / "lake", now=1)


def test_not_beside_a_run(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names who has the lake; nothing is asked of a server before."""
    (tmp_path / "ratchet.yaml").write_text(CONFIG)
    with Lease.acquire(lake, "ratchet run somewhere"):
        assert cli.invoke(["repair", str(tmp_path / "ratchet.yaml")]) == 7
    assert "ratchet run somewhere" in capsys.readouterr().err


def test_the_cut_of_a_repair_is_the_same_moment(lake: Lake) -> None:
    """Same round and positions, other versions; and none if nothing was written."""
    shard = CutShard(position=PLACE, min_ts=1, max_ts=2, latest_ts=2, observed_at=3)
    cut = Cut(
        number=1, round=3, merged_at=4, shards={"shop/-": shard},
        tables={"shop.t": 7, "shop.u": 8}, stopped=("shop.u",),
    )  # fmt: skip
    Cuts(lake).append(cut)
    assert note(lake, cut, {"shop.t": 7}) == cut
    after = note(lake, cut, {"shop.t": 9})
    assert Cuts(lake).last() == after
    assert after.merged_at > cut.merged_at
    assert replace(after, merged_at=4) == Cut(
        number=2, round=3, merged_at=4,
        shards={"shop/-": replace(shard, min_ts=None, max_ts=None)},
        tables={"shop.t": 9, "shop.u": 8}, stopped=("shop.u",),
    )  # fmt: skip


def test_a_table_of_other_columns_is_refused() -> None:
    """A column that only the mirror has is no reason as long as nothing is to be written."""
    assert _unlike(RESULT) == ""
    assert "lacks columns more" in _unlike(replace(RESULT, columns_missing=("more",)))
    old = replace(RESULT, columns_extra=("old",))
    assert _unlike(old) == ""
    odd = replace(old, differences=1, examples=(Difference(key={}, shard="", kind="extra"),))
    assert "redump 'shop.t'" in _unlike(odd)
