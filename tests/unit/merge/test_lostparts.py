"""Which parts of a table are gone, by its own log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lease_kit import hold

from ratchet.core.errors import LakeError
from ratchet.merge.failures import spark_failure
from ratchet.store.delta.actions import rewrite_info
from ratchet.store.delta.commits import commit_files
from ratchet.store.delta.log import replay
from ratchet.store.delta.tables import create_delta_table
from ratchet.store.formats import open_lake


def test_no_log_begins_in_its_midst(tmp_path: Path) -> None:
    """A table that is removed while it is held open is not made again by the next commit."""
    held = hold(open_lake(tmp_path / "lake", now=1))
    create_delta_table(
        held, "shop/t", pa.schema([pa.field("id", pa.int64())]), name="t", description="", now=1
    )
    files = replay(held, "shop/t")
    folder = Path(held.absolute("shop/t"))
    folder.rename(tmp_path / "away")
    with pytest.raises(LakeError, match="is gone"):
        commit_files(held, "shop/t", files, [rewrite_info("WRITE", read=0, now=1)])
    assert not folder.exists()


@pytest.mark.parametrize(
    "said",
    [
        "[PATH_NOT_FOUND] Path does not exist: file:/l/shop/a. SQLSTATE: 42K03",
        "[DELTA_TABLE_NOT_FOUND] Delta table `file:/l/shop/a` doesn't exist.",
        "java.io.FileNotFoundException: File file:/l/shop/a/_delta_log does not exist",
    ],
)
def test_what_spark_says_of_a_table_that_is_gone(said: str) -> None:
    from pyspark.errors import AnalysisException

    failure = spark_failure(AnalysisException(said), "merge round 4", table="shop.a")
    assert isinstance(failure, LakeError)
    assert "/l/shop/a" in failure.message
    assert "`ratchet table CONFIG redump 'shop.a'`" in failure.hint
