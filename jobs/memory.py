"""MEMORY tables, which a restart of their server empties; the log has it once they are opened.

Lives here: opening them at each look, so that the emptying stands in the log, and putting them in
doubt when their server is found to have been restarted. Does not live here: when it is looked
(`unfit`), comparing (`doubts`).

Measured on MySQL 9.7 and MariaDB 10.11: whoever opens such a table first makes the server log a
TRUNCATE for it, under read_only too. But MariaDB logs nothing where that session has
sql_log_bin=0 (mariadb-upgrade has), and then nothing ever tells of it.

Invariant: a restart is noted only when the tables that it concerns are in doubt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from core.errors import RetryableError, SourceUnfitError, TableStoppedError
from core.shard import ShardId
from store import layout
from store.files import Lake
from store.tables import Doubt, Tables
from wire.session import Session, quoted

log: Final = logging.getLogger("jobs.run")

_SLACK: Final = 10  # seconds by which two looks may differ about one start: clocks are set
_DOUBT: Final = "its server was restarted, which empties a MEMORY table, logged or not"
_PAST_DUMP: Final = ("catching_up", "streaming")
_TABLES: Final = (
    "SELECT TABLE_NAME FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'MEMORY'"
)
_SERVER: Final = "SELECT CONCAT_WS('/', @@hostname, @@port, @@server_id), UNIX_TIMESTAMP()"


@dataclass(frozen=True, slots=True)
class Held:
    """What one shard's server holds in memory only.

    Attributes:
        server: which server it is.
        started: when it was started, seconds since the epoch by its clock.
        tables: the names of its MEMORY tables that are mirrored.
    """

    server: str
    started: int
    tables: tuple[str, ...] = ()


def open_memory_tables(session: Session, matches: Callable[[str], bool]) -> Held | None:
    """Open a server's MEMORY tables; what was found emptied then is logged; None: it has none.

    Args:
        session: on the server, with the mirrored database.
        matches: which of its tables are mirrored.

    Raises:
        RetryableError: the server does not answer.
        SourceUnfitError: it refuses us.
    """
    database = session.config.database
    names = sorted(str(name) for (name,) in session.query(_TABLES, (database,)))
    tables = tuple(name for name in names if matches(name))
    if not tables:
        return None
    ((server, now),) = session.query(_SERVER)
    ((_, uptime),) = session.query("SHOW GLOBAL STATUS LIKE 'Uptime'")
    session.execute("SET SESSION lock_wait_timeout = 1")
    for name in tables:
        try:
            session.query(f"SELECT 1 FROM {quoted(database)}.{quoted(name)} LIMIT 1")
        except (RetryableError, SourceUnfitError, TableStoppedError) as error:
            log.debug("%s was not opened: %s", name, error)  # locked, or gone: at the next look
    return Held(str(server), int(now) - int(uptime), tables)


def doubt_emptied(lake: Lake, tables: Tables, held: Mapping[str, Held], *, last_round: int) -> None:
    """Put tables in doubt whose server was restarted, or is another one, since that was noted.

    Only while nobody else writes states.

    Args:
        lake: where starts are noted.
        tables: the states.
        held: ShardId as text -> what was found there.
        last_round: the restart is behind it, or in it.
    """
    noted = lake.read_json(layout.STARTS_FILE) or {}
    news = {shard: one for shard, one in held.items() if not _same(one, noted.get(shard))}
    if not news:
        return
    doubt = Doubt(message=_DOUBT, statement="", round=last_round)
    states = tables.list()
    for shard, one in news.items():
        keyspace = ShardId.parse(shard).keyspace
        concerned = [s for s in states if s.keyspace == keyspace and s.table in one.tables]
        if any(state.phase == "dumping" for state in concerned):
            continue  # its rows may be from before: it is put in doubt when they are all there
        for state in concerned:
            if state.phase in _PAST_DUMP:
                log.warning("%s is compared with its source: %s", state.name, _DOUBT)
                shards = state.dump.start if state.dump else ()
                tables.save(replace(state, doubts=state.doubts | dict.fromkeys(shards, doubt)))
        noted = {**noted, shard: [one.server, one.started]}
        states = tables.list()
    lake.write_json(layout.STARTS_FILE, noted)


def _same(held: Held, noted: list[object] | None) -> bool:
    """Whether it is the same life of the same server."""
    if noted is None:
        return False
    server, started = noted
    return server == held.server and abs(int(str(started)) - held.started) <= _SLACK
