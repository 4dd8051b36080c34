"""`ratchet check` with a mirror that is there: what `run` would refuse is said before."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.schema import TableSchema
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.preflight.check import server_taken
from ratchet.jobs.preflight.finding import Finding, Status
from ratchet.jobs.preflight.mirrorfitness import judge_mirror
from ratchet.store.dumpstates import DumpState
from ratchet.store.files import Lake
from ratchet.store.formats import open_lake
from ratchet.store.rounds import StreamState
from ratchet.store.tables import Phase, Tables, TableState

HERE = Position(executed=GtidSet.parse("mysql", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = open_lake(tmp_path / "lake", now=1)
    save(lake, "orders", "streaming")
    return lake


def save(lake: Lake, table: str, phase: Phase, *, shard_in_key: bool = False) -> None:
    schema = TableSchema(keyspace="shop", table=table, columns=(), key=("id",))
    dump = DumpState(id="d", start_round=1, start={})
    Tables(lake).save(
        TableState(
            keyspace="shop", table=table, schema=schema, key=("id",), phase=phase, dump=dump,
            shard_in_key=shard_in_key,
        )
    )  # fmt: skip


def config(folder: Path, *listed: str) -> Config:
    servers = "".join(f'\n      "{name}": {{host: "db{name}", user: u}}' for name in listed)
    path = folder / "ratchet.yaml"
    path.write_text(
        "lake: ./lake\nsources:\n  shop:\n    kind: binlog\n    vitess: true\n"
        f"    tables: ['*', '!old']\n    shards:{servers}\n"
    )
    return load_config(path, {})


def judged(config: Config, lake: Lake, **ts: int) -> dict[str, Finding]:
    streams = {f"shop/{name}": StreamState(position=HERE, ts=value) for name, value in ts.items()}
    return {found.check: found for found in judge_mirror(config, lake, streams)}


def test_it_fits(lake: Lake, tmp_path: Path) -> None:
    found = judged(config(tmp_path, "-80", "80-"), lake, **{"-80": 5, "80-": 5})
    assert found["mirror"].status == "ok"
    assert found["mirror"].text == "1 table, 2 streams; the config fits them"
    assert len(found) == 1


@pytest.mark.parametrize(
    ("listed", "ts"),
    [(["0"], {"-80": 0, "80-": 0}), (["-"], {"-80": 5, "-": 5})],
)
def test_shards_that_are_missing(
    lake: Lake, tmp_path: Path, listed: list[str], ts: dict[str, int]
) -> None:
    """Begun by a journal and never read; or followed while another takes their part."""
    found = judged(config(tmp_path, *listed), lake, **ts)["mirror"]
    assert found.status == "fail"
    assert "sources.shop.shards lacks -80" in found.text
    assert "SHOW VITESS_SHARDS" in found.mend


def test_another_key_than_it_was_dumped_with(lake: Lake, tmp_path: Path) -> None:
    save(lake, "items", "streaming", shard_in_key=True)
    found = judged(config(tmp_path, "-"), lake)["mirror"]
    assert found.status == "fail"
    assert "dumped with shard+primary" in found.text


def test_stopped_tables_are_named(lake: Lake, tmp_path: Path) -> None:
    """Not those that the config leaves out."""
    save(lake, "items", "stopped")
    save(lake, "old", "stopped")
    found = judged(config(tmp_path, "-"), lake, **{"-": 5})["stopped tables"]
    assert (found.status, found.text) == ("warn", "1 table stopped: shop.items")


def test_an_empty_lake(tmp_path: Path) -> None:
    assert judged(config(tmp_path, "-"), open_lake(tmp_path / "other", now=1)) == {}


def test_a_run_goes_to_the_first_server_that_answers_and_has_what_is_needed() -> None:
    """An unfit one that answers is not passed over: a run refuses the source."""

    def one(check: str, status: Status = "fail") -> list[Finding]:
        return [Finding(place="shop/-", check=check, status=status, text="")]

    fit, away, behind = one("connection", "ok"), one("connection"), one("position")
    assert server_taken([fit, away]) == 0
    assert server_taken([away, behind, fit]) == 2
    assert server_taken([one("log_bin"), fit]) == 0
    assert server_taken([away, behind]) is None
