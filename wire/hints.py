"""What the log does not tell about a source's tables, asked of the server when it is needed.

So it is with columns whose type the log does not name, with how names are compared, and with what
leads from one table to others: triggers, views and foreign keys.

Lives here: `ServerCatalog`. Does not live here: the queries (`wire.decode.catalog`).

The server tells how a table is now, the log how it was. A column that changed between UUID or INET
and plain bytes of the same width in that time is taken for what it is now.

A session goes on with the privileges that it began with, while the lists of privileges show what
was granted since. Then an old one says that it would see triggers, and sees none that are there
(MySQL 9.7 and MariaDB 10.11, privileges on its own database or on all). So what depends on
privileges is asked in a session of its own, which is younger than they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from ratchet.core.errors import LockedError, RetryableError, TableStoppedError
from ratchet.core.shell import redump
from ratchet.core.types import network
from ratchet.wire.decode import catalog
from ratchet.wire.decode.answers import (
    as_count,
    as_flag,
    as_name,
    as_text,
    or_null,
    shaped,
    single,
    single_value,
)
from ratchet.wire.decode.triggers import Query, sees_triggers
from ratchet.wire.decode.unfit import SEQUENCE, unfit_tables
from ratchet.wire.decode.views import beside_views
from ratchet.wire.session import Session

_IS_SPECIAL: Final = f"""(data_type IN ({", ".join(map(repr, network.NAMES))})
       OR column_type LIKE 'year(2)%%' OR column_type LIKE '%%mariadb-5.3%%'
       OR column_name REGEXP '^DB_ROW_HASH_[0-9]+$')"""
# Cheap to ask, and most databases have none: only then all columns are read.
_SPECIAL: Final = f"""
SELECT COUNT(*) FROM information_schema.columns
 WHERE table_schema = %s AND {_IS_SPECIAL}
"""
# Of one table: how many columns it has, and how many of which more has to be asked.
_COLUMNS: Final = f"""
SELECT COUNT(*), COUNT(CASE WHEN {_IS_SPECIAL} OR UPPER(extra) LIKE '%%VIRTUAL%%' THEN 1 END)
  FROM information_schema.columns
 WHERE table_schema = %s AND table_name = %s
"""
_PAUSES: Final = (0.0, 0.0, 0.1, 0.5, 1.0)  # seconds, before it is asked once more
_TABLES: Final = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
# Written each second by Amazon's RDS, by statements; no trigger can stand on a table of `mysql`.
_SYSTEM: Final = frozenset({("mysql", "rds_heartbeat2")})
_PLAIN_ENGINES: Final = ("INNODB", "MYISAM", "ARIA", "MEMORY")
# Seconds for which a table counts as unfit: what made it so (a MERGE table) may be gone by then.
_REFUSED: Final = 10.0
_ALONE: Final = ("INNODB", "ARIA", "MEMORY")  # of those, they take no rows by a MERGE table
_BASE: Final = f"{_TABLES} AND table_name = %s AND table_type = 'BASE TABLE'"
_ENGINE: Final = """
SELECT engine FROM information_schema.tables
 WHERE table_schema = %s AND table_name = %s AND table_type = 'BASE TABLE'
"""
_LEADS_ON: Final = """
SELECT (SELECT COUNT(*) FROM information_schema.triggers
         WHERE event_object_schema = %s AND event_object_table = %s)
     + (SELECT COUNT(*) FROM information_schema.key_column_usage
         WHERE referenced_table_schema = %s AND referenced_table_name = %s)
     + (SELECT COUNT(*) FROM information_schema.key_column_usage
         WHERE table_schema = %s AND referenced_table_schema <> table_schema)
"""


T = TypeVar("T")


class ServerCatalog:
    """What one database's server says of tables; hints are kept until a table is forgotten.

    At first all tables are asked about at once, then those that may have changed, each by itself:
    who makes a table a second in a database of thousands must not have all of them read each time.
    """

    def __init__(self, session: Session, *, keyspace: str) -> None:
        self._session = session
        self._keyspace = keyspace
        self._database = session.config.database
        self._hints: dict[str, Mapping[str, str]] = {}
        self._unfit: dict[str, str] = {}
        self._refused_at: dict[str, float] = {}  # when these were asked about
        # Name in lower case -> the tables that were asked about; None: nothing was asked yet.
        self._asked_about: dict[str, set[str]] | None = None
        self._grants: object = None  # when the hints were read
        self._names: Mapping[str, str] | None = None

    def hints(self, table: str) -> Mapping[str, str]:
        """Column hints for `parse_table_map`.

        None of a sequence: the log shows by itself what is one (`is_sequence`), and a table may
        have had that name before.

        Raises:
            TableStoppedError: it cannot be mirrored, or not any more.
        """
        if not self._session.is_mariadb:
            return {}  # MySQL's log tells all
        if self._asked_about is None:
            self._ask_about_all()
        if not self._is_known(table) or (table in self._unfit and self._is_old(table)):
            self._ask_about(table)
        unfit = self._unfit.get(table)
        if unfit is not None and unfit != SEQUENCE:
            name = f"{self._keyspace}.{table}"
            raise TableStoppedError(
                unfit,
                operation="look at a table",
                table=name,
                hint=f"fix that, then {redump(name)}, or exclude it in `tables` of the config",
            )
        return self._hints.get(table, {})

    def spelling(self, table: str) -> str:
        """The server's own spelling of a table, on one that takes names in any letter case."""
        if self._names is None:
            rows = shaped(self._session.query(_TABLES, [self._database]), as_name)
            self._names = {name.lower(): name for (name,) in rows}
        return self._names.get(table.lower(), table)

    def forget(self, table: str) -> None:
        """The table may have changed: ask again."""
        self._names = None
        if self._asked_about is not None:
            self._asked_about.pop(table.lower(), None)

    def folds(self) -> bool | None:
        """Whether the server compares names of tables without regard to case."""
        return self._session.value("lower_case_table_names", as_flag)

    def base_tables(self) -> frozenset[str]:
        """The names of the database's tables as they are now, without views."""
        rows = self._session.query(f"{_TABLES} AND table_type = 'BASE TABLE'", [self._database])
        return frozenset(name for (name,) in shaped(rows, as_name))

    def is_base(self, table: str) -> bool:
        """Whether a name is that of a table now, and not of a view; False if that is locked."""
        try:
            rows = self._session.query(_BASE, [self._database, table])
        except LockedError:
            return False
        return (table,) in shaped(rows, as_name)

    def is_plain(self, database: str, table: str) -> bool:
        """Whether it is sure that changes of a table lead to no other table.

        So it is for a table with rows of its own, without triggers, that no foreign key refers to,
        if our account may see that: it has TRIGGER there. Nor may a foreign key lead from another
        database into ours, by whatever way. A view leads on. What a lock keeps from being told is
        not sure: somebody else's lock must not hold up a stream.
        """
        if (database.lower(), table.lower()) in _SYSTEM:
            return True
        if not sees_triggers(self._session.query, database, table):
            return False  # an old session does not say less than a new one

        def ask(query: Query) -> bool:
            if not sees_triggers(query, database, table):
                return False
            engines = shaped(query(_ENGINE, [database, table]), or_null(as_text))
            if len(engines) != 1 or (engines[0][0] or "").upper() not in _PLAIN_ENGINES:
                return False
            names = [database, table, database, table, self._database]
            return not single_value(query(_LEADS_ON, names), as_flag)

        try:
            return self._asked(ask)
        except LockedError:
            return False

    def _asked(self, ask: Callable[[Query], T]) -> T:
        """What a session says that has all privileges of now, and none that are gone.

        Raises:
            RetryableError: the privileges were others each time.
        """
        for pause in _PAUSES:
            time.sleep(pause)
            grants = self._granted()
            with Session.connect(self._session.config) as young:
                answer = ask(young.query)
            if self._granted() == grants:
                self._grants = grants
                return answer
        raise RetryableError(
            "the account's privileges change faster than they can be read",
            operation="look at the tables",
            source=str(self._session.config.shard),
            hint="a run tries again by itself; `SHOW GRANTS` gives the same result twice when "
            "nobody changes them",
        )

    def _granted(self) -> object:
        return self._session.query("SHOW GRANTS")

    def _is_known(self, table: str) -> bool:
        return table in (self._asked_about or {}).get(table.lower(), ())

    def _is_old(self, table: str) -> bool:
        """Whether what makes a table unfit may have gone meanwhile."""
        since = time.monotonic() - self._refused_at.get(table, -math.inf)
        return since >= _REFUSED or self._granted() != self._grants

    def _note(self, table: str) -> None:
        if self._asked_about is not None:
            self._asked_about.setdefault(table.lower(), set()).add(table)

    def _ask_about_all(self) -> None:
        try:
            names, self._unfit, self._hints = self._asked(self._read_all)
        except LockedError:
            names = []  # of a table that hangs nothing may ever be asked
        self._refused_at = dict.fromkeys(self._unfit, time.monotonic())
        self._asked_about = {}
        for name in names:
            self._note(name)

    def _ask_about(self, table: str) -> None:
        unfit: Mapping[str, str] = {}
        hints: Mapping[str, Mapping[str, str]] = {}
        if not self._is_ordinary(table):
            unfit, hints = self._asked(lambda query: self._read(query, table))
            self._refused_at[table] = time.monotonic()
        # Not before the answer is there: a table that is locked stays what it was.
        self._hints.pop(table, None)
        self._unfit.pop(table, None)
        self._hints |= hints
        self._unfit |= unfit
        self._note(table)

    def _is_ordinary(self, table: str) -> bool:
        """Whether nothing is to be said of a table, by what even an old session is sure of."""
        names = [self._database, table]
        engines = shaped(self._session.query(_ENGINE, names), or_null(as_text))
        if len(engines) != 1 or (engines[0][0] or "").upper() not in _ALONE:
            return False
        every, odd = single(self._session.query(_COLUMNS, names), as_count, as_count)
        return every > 0 and not odd

    def _read_all(
        self, query: Query
    ) -> tuple[list[str], dict[str, str], dict[str, Mapping[str, str]]]:
        # Their names first: one that comes meanwhile is asked about by itself.
        names = [name for (name,) in shaped(query(_TABLES, [self._database]), as_name)]
        special = _SPECIAL + beside_views(query, self._database, "table_name")
        if single_value(query(special, [self._database]), as_flag):
            return names, *self._read(query, None)
        return names, self._read_unfit(query, None), {}

    def _read(
        self, query: Query, table: str | None
    ) -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
        unfit = self._read_unfit(query, table)
        schemas = catalog.read_schemas(
            query, keyspace=self._keyspace, database=self._database, table=table
        )
        return unfit, {name: catalog.hints(schema) for name, schema in schemas.items()}

    def _read_unfit(self, query: Query, table: str | None) -> dict[str, str]:
        return unfit_tables(
            query,
            database=self._database,
            trusts_virtual=self._session.config.trusts_virtual,
            table=table,
        )
