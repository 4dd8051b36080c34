"""What the log does not tell about a source's tables, asked of the server when it is needed.

Lives here: `ServerCatalog`. Does not live here: the queries (`wire.decode.catalog`).

The server tells how a table is now, the log how it was. A column that changed between UUID or INET
and plain bytes of the same width in that time is taken for what it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wire.decode import catalog
from wire.decode.unfit import unfit_tables
from wire.session import Session

# Cheap to ask, and most databases have none: only then all columns are read.
_SPECIAL: Final = """
SELECT COUNT(*) FROM information_schema.columns
 WHERE table_schema = %s AND (data_type IN ('uuid', 'inet4', 'inet6')
       OR column_type LIKE 'year(2)%%' OR column_type LIKE '%%mariadb-5.3%%'
       OR column_name REGEXP '^DB_ROW_HASH_[0-9]+$')
"""
_TABLES: Final = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"


class ServerCatalog:
    """Column hints of one database's tables, remembered until a table is forgotten."""

    def __init__(self, session: Session, *, keyspace: str) -> None:
        self._session = session
        self._keyspace = keyspace
        self._database = session.config.database
        self._hints: dict[str, Mapping[str, str]] | None = None
        self._unfit: Mapping[str, str] = {}
        self._names: Mapping[str, str] | None = None

    def hints(self, table: str) -> Mapping[str, str] | None:
        """Column hints for `parse_table_map`; None for what is no table that can be mirrored."""
        if not self._session.is_mariadb:
            return {}  # MySQL's log tells all
        if self._hints is None:
            self._hints = self._read()
        return None if table in self._unfit else self._hints.get(table, {})

    def spelling(self, table: str) -> str:
        """The server's own spelling of a table, on one that takes names in any letter case."""
        if self._names is None:
            rows = self._session.query(_TABLES, [self._database])
            self._names = {str(name).lower(): str(name) for (name,) in rows}
        return self._names.get(table.lower(), table)

    def forget(self, table: str) -> None:
        """The table may have changed: ask again."""
        del table  # one table costs as much as all of them
        self._hints = self._names = None

    def _read(self) -> dict[str, Mapping[str, str]]:
        query = self._session.query
        self._unfit = unfit_tables(query, database=self._database)
        if not query(_SPECIAL, [self._database])[0][0]:
            return {}
        schemas = catalog.read_schemas(query, keyspace=self._keyspace, database=self._database)
        return {name: catalog.hints(schema) for name, schema in schemas.items()}
