"""Names that Vitess keeps for itself, and the order of shards."""

from __future__ import annotations

import pytest

from ratchet.core.vitess import is_internal, shard_order

UUID = "6ace8bcef73211ea87e9f875a4d24e90"
PARTS = "4e5dcf80_354b_11eb_82cd_f875a4d24e90"


@pytest.mark.parametrize(
    "table",
    [
        # From Vitess's own tests.
        f"_vt_hld_{UUID}_20200915120410_",
        f"_vt_prg_{UUID}_20200915120410_",
        f"_vt_evc_{UUID}_20200915120410_",
        f"_vt_drp_{UUID}_20200915120410_",
        f"_vt_vrp_{UUID}_20200915120410_",
        f"_vt_xyz_{UUID}_20200915120410_",
        f"_{PARTS}_20201203213847_gho",
        f"_{PARTS}_20201203213847_ghc",
        f"_{PARTS}_20201203213847_del",
        f"_{PARTS}_20201203213847_new",
        f"_{PARTS}_20201203213847_vrepl",
        "_table_old",
        "__table_old",
        # From before Vitess 19.
        f"_vt_HOLD_{UUID}_20200915120410",
        f"_vt_DROP_{UUID}_20200915120410",
    ],
)
def test_tables_of_vitess(table: str) -> None:
    assert is_internal(table)


@pytest.mark.parametrize(
    "table",
    [
        "",
        "t",
        "_table_new",
        "_table_gho",
        "table_old",
        "_vt_hold",
        f"_vt_hld_{UUID}_20200915120410",
        f"_vt_hld_{UUID}_202009151204_",
        f"x_vt_hld_{UUID}_20200915120410_",
        f"_vt_hold_{UUID}_20200915120410_",
        f"_vt_hld_{UUID}_20200915120410_\n",
        f"_{PARTS}_20201203213847_old_",
        f"_{PARTS}_2020120321_gho",
        PARTS,
    ],
)
def test_tables_of_others(table: str) -> None:
    assert not is_internal(table)


def test_shards_in_the_order_of_their_ranges() -> None:
    names = ["c0-", "40-80", "-40", "80-c0"]
    assert sorted(names, key=shard_order) == ["-40", "40-80", "80-c0", "c0-"]
    assert sorted(["4080-80", "40-4080", "-40"], key=shard_order) == ["-40", "40-4080", "4080-80"]
