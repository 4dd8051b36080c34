"""From which round on a dump needs the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.snapshot.start import start_round
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from tests.unit.store.test_rounds import make_round, position


def test_a_shard_that_rests_is_not_looked_for_in_all_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fortnight's rounds were read, all at once, for a shard without a change for as long."""
    lake = Lake.at(tmp_path)
    log = RoundLog(lake)
    log.append(make_round(1, "k/-80", 1, 5))
    for number in range(2, 40):
        log.append(make_round(number, "k/80-", number, number + 1))
    read: list[int] = []
    since = RoundLog.since

    def noted(self: RoundLog, number: int) -> object:
        read.append(number)
        return since(self, number)

    monkeypatch.setattr(RoundLog, "since", noted)
    assert start_round(lake, {"k/-80": position(5), "k/80-": position(40)}) == 40
    assert read == []
    assert start_round(lake, {"k/-80": position(5), "k/80-": position(38)}) == 38
    assert start_round(lake, {"k/-80": position(4), "k/80-": position(40)}) == 1
    assert start_round(lake, {"k/-80": position(5), "k/new": position(1)}) == 40
