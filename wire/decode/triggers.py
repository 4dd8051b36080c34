"""Whether an account may see triggers: that information_schema shows none says nothing by itself.

Lives here: the question, asked by whoever draws a conclusion from there being none. Does not live
here: the triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ratchet.wire.decode.answers import as_flag, single_value

Query = Callable[[str, Sequence[object]], Sequence[Sequence[Any]]]

# Shown to those only who may make them. A privilege by a role is not seen here.
_SHOWN: Final = """
SELECT (SELECT COUNT(*) FROM information_schema.user_privileges
         WHERE privilege_type = 'TRIGGER' AND grantee = me.account)
     + (SELECT COUNT(*) FROM information_schema.schema_privileges
         WHERE privilege_type = 'TRIGGER' AND grantee = me.account AND %s LIKE table_schema)
     + (SELECT COUNT(*) FROM information_schema.table_privileges
         WHERE privilege_type = 'TRIGGER' AND grantee = me.account
           AND table_schema = %s AND table_name = %s)
  FROM (SELECT CONCAT("'", REPLACE(CURRENT_USER(), '@', "'@'"), "'") AS account) AS me
"""


def sees_triggers(query: Query, database: str, table: str = "") -> bool:
    """Whether this account sees the triggers of a database's tables, or of one of them."""
    return single_value(query(_SHOWN, [database, database, table]), as_flag)
