"""Tables whose index has other rows than they have: MyISAM's and Aria's, after a crash.

Such a server writes rows and keys apart. One that does not repair its tables by itself
(`myisam_recover_options`, off by default on MySQL; `aria_recover_options`) begins with what the
crash left: a read by key shows fewer rows than there are, until somebody repairs the table, which
no log tells of. Lives here: finding that out. Does not live here: what is done about it
(docs/operations.md).
"""

from __future__ import annotations

import time
from typing import Final

from ratchet.snapshot.chunks import TableSize
from ratchet.snapshot.keys import KeyPlan, Query
from ratchet.wire.decode.answers import as_count, single
from ratchet.wire.session import quoted

LARGEST: Final = 1 << 32  # bytes of rows; counting more would take as long as the dump itself
_ENGINES: Final = frozenset({"MYISAM", "ARIA"})
# Between tries, seconds: a row that is inserted between the two locks of a statement counts once.
_PAUSES: Final = (0.0, 0.1, 0.3, 1.0)


def rows_without_keys(query: Query, plan: KeyPlan, size: TableSize) -> int:
    """How many more rows a table has than the index that it is walked along; below 0: fewer.

    Args:
        query: runs a statement on the server.
        plan: how the table is walked.
        size: its rows, and its engine.
    """
    large = size.rows * size.row_bytes > LARGEST
    if large or not plan.walkable or size.engine not in _ENGINES:
        return 0
    table = f"{quoted(plan.database)}.{quoted(plan.table)}"
    # SUM and not COUNT: that the server knows without a look. Both are read under one lock.
    asked = (
        f"SELECT (SELECT COALESCE(SUM(1), 0) FROM {table} USE INDEX ()),"
        f" (SELECT COALESCE(SUM(1), 0) FROM {plan.source})"
    )
    lacking = 0
    for pause in _PAUSES:
        time.sleep(pause)
        rows, keys = single(query(asked), as_count, as_count)
        lacking = rows - keys
        if lacking == 0:
            break
    return lacking
