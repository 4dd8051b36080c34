"""Keyspaces of Vitess by their tablets: which of the listed shards are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.core.errors import ConfigError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import Journal
from ratchet.jobs.config.config import Config, load_config
from ratchet.jobs.topology.tablets import take_over, with_live_shards
from ratchet.store.formats import open_lake
from ratchet.store.rounds import RoundLog, StreamState
from ratchet.wire.session import Session

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
HERE = Position(executed=GtidSet.parse("mysql", f"{UUID}:1-9"))
ENDED = Journal(sources=("shop/-80", "shop/80-"), targets={"shop/-": HERE})


def config(folder: Path, *shards: str, vitess: str = "true") -> Config:
    path = folder / "ratchet.yaml"
    servers = "".join(
        f'\n      "{name}": {{host: h, port: {3306 + n}, user: u}}' for n, name in enumerate(shards)
    )
    path.write_text(
        "lake: ./lake\nsources:\n  shop:\n    kind: binlog\n"
        f"    vitess: {vitess}\n    shards:{servers}\n"
    )
    return load_config(path, {})


def stream(*, ts: int = 5, journal: Journal | None = None) -> StreamState:
    return StreamState(position=HERE, journal=journal, ts=ts)


def live(folder: Path, *listed: str, **streams: StreamState) -> set[str]:
    known = {f"shop/{name}": one for name, one in streams.items()}
    return set(with_live_shards(config(folder, *listed), known).sources["shop"].shards)


def test_before_anything_is_known_all_are_read(tmp_path: Path) -> None:
    assert live(tmp_path, "-80", "80-") == {"-80", "80-"}


def test_a_reshards_targets_wait_for_the_journal(tmp_path: Path) -> None:
    assert live(tmp_path, "0", "-80", "80-", **{"0": stream()}) == {"0"}
    half = {"-80": stream(), "80-": stream()}
    assert live(tmp_path, "-80", "80-", "80-c0", "c0-", **half) == {"-80", "80-"}


def test_shards_that_are_over_may_stay_listed(tmp_path: Path) -> None:
    halves = {"-80": stream(), "80-": stream()}
    assert live(tmp_path, "0", "-80", "80-", **halves) == {"-80", "80-"}


def test_a_merge_waits_for_its_last_source(tmp_path: Path) -> None:
    streams = {"-80": stream(journal=ENDED), "80-": stream()}
    assert live(tmp_path, "-80", "80-", "-", **streams) == {"80-"}


def test_a_part_that_nobody_follows_is_new(tmp_path: Path) -> None:
    assert live(tmp_path, "-80", "80-", **{"-80": stream()}) == {"-80", "80-"}


def test_overlapping_shards_at_the_first_start_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="0 and -80, whose key ranges overlap"):
        live(tmp_path, "0", "-80")


def test_names_mean_nothing_elsewhere(tmp_path: Path) -> None:
    known = {"shop/0": stream()}
    plain = config(tmp_path, "0", "1", "-80", vitess="false")
    assert with_live_shards(plain, known) == plain


def test_a_name_that_is_no_key_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'main-db' is no key range"):
        config(tmp_path, "main-db")


@pytest.mark.parametrize("listed", [["80-"], ["-40", "80-"], ["-40", "60-"], ["-80", "80-c0"]])
def test_a_part_that_no_shard_holds_is_refused(tmp_path: Path, listed: list[str]) -> None:
    with pytest.raises(ConfigError, match="do not cover all of the keyspace"):
        config(tmp_path, *listed)


def test_a_shard_that_a_journal_has_begun_has_to_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was never read, so it is new, and no heir has to be looked for."""
    monkeypatch.setattr(Session, "connect", None)  # no server is asked
    lake = open_lake(tmp_path / "lake", now=1)
    rounds = RoundLog(lake)
    streams = {"shop/-80": stream(ts=0), "shop/80-": stream(ts=0)}
    monkeypatch.setattr(rounds, "streams", lambda: streams)
    with pytest.raises(ConfigError, match=r"sources\.shop\.shards lacks -80, 80-"):
        take_over(config(tmp_path, "0"), lake, rounds, now=1)


def test_a_shard_whose_part_is_followed_otherwise_has_to_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken out of the list, while the ones that overlap it are followed already."""
    monkeypatch.setattr(Session, "connect", None)
    lake = open_lake(tmp_path / "lake", now=1)
    rounds = RoundLog(lake)
    streams = {"shop/-80": stream(), "shop/-": stream()}
    monkeypatch.setattr(rounds, "streams", lambda: streams)
    with pytest.raises(ConfigError, match=r"sources\.shop\.shards lacks -80"):
        take_over(config(tmp_path, "-"), lake, rounds, now=1)
