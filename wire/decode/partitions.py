"""How a database's tables are partitioned by RANGE, as its server describes it.

Lives here: the query. Does not live here: the connection (a query function comes in from outside),
what the bounds mean (`core.partitions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from ratchet.core.partitions import Partition, RangeLayout
from ratchet.wire.decode.answers import as_name, as_text, or_null, shaped
from ratchet.wire.decode.views import beside_views

Query = Callable[[str, Sequence[object]], Sequence[Sequence[Any]]]

_PARTITIONS: Final = """
SELECT DISTINCT table_name, partition_expression, partition_ordinal_position, partition_name,
       partition_description
  FROM information_schema.partitions
 WHERE table_schema = %s AND partition_method IN ('RANGE', 'RANGE COLUMNS'){beside_views}
 ORDER BY table_name, partition_ordinal_position
"""


def read_partitions(query: Query, *, database: str) -> dict[str, RangeLayout]:
    """Table -> how it is partitioned; without those that are not, or not by RANGE.

    Args:
        query: runs a statement with arguments (%s) and returns its rows.
        database: the database's name on the server.

    Raises:
        DecodeError: the server's answer has another shape.
        RatchetError: what `query` raises.
    """
    asked = _PARTITIONS.format(beside_views=beside_views(query, database, "table_name"))
    text = or_null(as_text)
    rows = shaped(query(asked, [database]), as_name, text, text, as_name, text)
    found = {}
    for table, every in groupby(rows, key=itemgetter(0)):
        own = list(every)
        partitions = tuple(Partition(name, bound or "") for *_, name, bound in own)
        found[table] = RangeLayout(own[0][1] or "", partitions)
    return found
