"""Names of transactions: the kernel's are those of its plain twin."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from ratchet.core.gtid import Flavor
from ratchet.ingest.binlog import places
from ratchet.ingest.binlog.names import gtid_column
from ratchet.ingest.binlog.notes import TransactionBatch

NAMES: dict[Flavor, list[str]] = {
    "mysql": [str(uuid.UUID(int=1)), f"{uuid.UUID(int=2)}:tag", str(uuid.UUID(int=2**128 - 1))],
    "mariadb": ["0", "17", str(2**32 - 1)],
    "file": ["bin", "mysql-bin", "x"],
}


def batch(flavor: Flavor, transactions: list[tuple[int, int, int]]) -> TransactionBatch:
    """A batch of (origin, server, number)."""
    txns = np.zeros(len(transactions), places.TXN)
    for txn, (origin, server, number) in zip(txns, transactions, strict=True):
        txn["origin"], txn["server"], txn["number"] = origin, server, number
    nothing: Any = np.zeros(0, np.uint8)
    return TransactionBatch(
        flavor=flavor,
        txns=txns,
        rows=np.zeros(0, places.ROWS),
        names=NAMES[flavor],
        maps=[],
        buffers=(nothing, nothing),
        rows_before=0,
        ended=len(transactions),
        events=(),
    )


@given(
    st.sampled_from(sorted(NAMES)),
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**63 - 1) | st.sampled_from([9, 10, 99, 100, 10**18 - 1, 10**18]),
        ),
        max_size=20,
    ),
)
@example("mysql", [(0, 0, 2**63 - 1), (1, 0, 0)])
@example("mariadb", [(2, 2**32 - 1, 2**63 - 1), (0, 0, 0)])
def test_the_column_and_its_twin_agree(
    flavor: Flavor, transactions: list[tuple[int, int, int]]
) -> None:
    one = batch(flavor, transactions)
    column = gtid_column(one)
    column.validate(full=True)
    assert column.type == pa.string()
    assert column.to_pylist() == one.gtids()
