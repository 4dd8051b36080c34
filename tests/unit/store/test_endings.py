"""How the last run ended: kept, taken over by the next holder, removed when a run begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ratchet.store.endings import Ending, Endings
from ratchet.store.formats import open_lake

ENDING = Ending(command="run", at=7, exit_code=3, message="no binlog", hint="switch it on")


def test_kept_and_removed(tmp_path: Path) -> None:
    lake = open_lake(tmp_path / "lake", now=1)
    endings = Endings(lake)
    assert endings.last() is None
    endings.clear()
    endings.save(ENDING)
    endings.save(replace(ENDING, exit_code=4))
    assert Endings(lake).last() == replace(ENDING, exit_code=4)
    endings.clear()
    assert endings.last() is None
