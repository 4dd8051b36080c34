"""A table whose dump has ended, and that is not to be caught up yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from direct_kit import streaming

from ratchet.merge.rounds import Merger
from ratchet.merge.step import MergeOptions
from ratchet.store.anew import to_be_dumped
from ratchet.store.cuts import Cuts
from ratchet.store.delta.tables import create_mirrored_table
from tests.merge_kit import POLICY

NO_SPARK: Any = None


def test_cuts_go_on_to_show_what_is_shown_of_it(tmp_path: Path) -> None:
    source = streaming(tmp_path)
    shown = Cuts(source.lake).last()
    assert shown is not None
    other = source.tables.save(replace(source.state, table="u"))
    create_mirrored_table(
        source.lake, other.path, source.columns, key=("id",), name=other.name, now=1
    )
    source.tables.save(to_be_dumped(source.lake, source.state))
    source.dump_begin("d2", anew=True)
    source.chunk("-")
    source.dump_end()
    source.tx("-", ("put", {"id": 1, "v": "one"}))
    source.round()
    waiting = {"t"}
    with Merger(
        NO_SPARK,
        source.lake,
        MergeOptions(policy=POLICY),
        waits=lambda state: state.table in waiting,
        clock=lambda: source.clock,
    ) as merging:
        cut = merging.step().cut
        assert cut is not None
        assert (cut.tables["shop.t"], cut.stopped) == (shown.tables["shop.t"], ("shop.t",))
        assert (source.state.phase, "shop.u" in cut.tables) == ("catching_up", True)
        waiting.clear()
        source.round()
        cut = merging.step().cut
    assert cut is not None
    assert (source.state.phase, cut.stopped) == ("streaming", ())
    source.assert_mirrored()
