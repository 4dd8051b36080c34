"""What is no table: views, triggers, routines, sequences, upkeep of the server."""

from __future__ import annotations

from collections.abc import Sequence

from .ddl_tables import first_tables
from .dml import change
from .draw import Draw, kind


@kind("other.trigger", 1)
def _trigger(draw: Draw) -> str | None:
    """A trigger that writes to another mirrored table."""
    table, target = draw.table(), draw.table()
    if table is None or target is None or table.name == target.name:
        return None
    name = draw.n(f"tr{draw.rng.randrange(6)}")
    if draw.maybe(0.3):
        return f"DROP TRIGGER IF EXISTS {name}"
    when = draw.one(("BEFORE", "AFTER"))
    event = draw.one(("INSERT", "UPDATE", "DELETE"))
    body = change(draw, target)
    if draw.maybe(0.5):
        body = f"BEGIN {body}; END"
    return f"CREATE TRIGGER {name} {when} {event} ON {draw.t(table.name)} FOR EACH ROW {body}"


@kind("other.view", 1)
def _view(draw: Draw) -> str | None:
    table = draw.table()
    if table is None:
        return None
    name = draw.n(f"view{draw.rng.randrange(3)}")
    if draw.maybe(0.3):
        return f"DROP VIEW IF EXISTS {name}"
    if draw.maybe(0.2):
        return f"ALTER VIEW {name} AS SELECT 1 AS x"
    return f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {draw.t(table.name)}"


@kind("other.view_dml", 0.7, ddl=False)
def _through_view(draw: Draw) -> str | None:
    if not draw.model.views:
        return None
    return f"DELETE FROM {draw.n(draw.one(draw.model.views))} LIMIT 2"


@kind("other.routine", 1)
def _routine(draw: Draw) -> Sequence[str] | None:
    table = draw.table()
    if table is None:
        return None
    name = draw.n(f"proc{draw.rng.randrange(3)}")
    ddl = f"ALTER TABLE {draw.t(table.name)} COMMENT 'by routine'"
    body = f"BEGIN {change(draw, table)}; {ddl if draw.maybe(0.3) else change(draw, table)}; END"
    return [
        f"DROP PROCEDURE IF EXISTS {name}",
        f"CREATE PROCEDURE {name}() {body}",
        f"CALL {name}()",
    ]


@kind("other.prepared", 1)
def _prepared(draw: Draw) -> Sequence[str] | None:
    table = draw.table()
    if table is None:
        return None
    text = draw.one((change(draw, table), f"ALTER TABLE {draw.t(table.name)} ADD COLUMN pr INT"))
    return [f"PREPARE stmt FROM {draw.s(text)}", "EXECUTE stmt", "DEALLOCATE PREPARE stmt"]


@kind("other.event", 0.3)
def _event(draw: Draw) -> str | None:
    table = draw.table()
    if table is None:
        return None
    name = draw.n("nightly")
    if draw.maybe(0.5):
        return f"DROP EVENT IF EXISTS {name}"
    when = "EVERY 1 YEAR STARTS '2037-01-01 00:00:00'"
    return f"CREATE EVENT IF NOT EXISTS {name} ON SCHEDULE {when} DO {change(draw, table)}"


@kind("other.sequence", 0.5, only="mariadb")
def _sequence(draw: Draw) -> str | None:
    name = draw.free_name()
    if draw.model.sequences and draw.maybe(0.7):
        old = draw.t(draw.one(draw.model.sequences))
        return draw.one(
            (f"SELECT NEXTVAL({old})", f"DROP SEQUENCE {old}", f"ALTER SEQUENCE {old} RESTART 5")
        )
    return name and f"CREATE SEQUENCE {draw.t(name)}"


@kind("other.upkeep", 2)
def _upkeep(draw: Draw) -> str | None:
    table = draw.table()
    if table is None:
        return None
    name = draw.t(table.name)
    local = draw.one(("", "LOCAL ", "NO_WRITE_TO_BINLOG "))
    return draw.one(
        (f"ANALYZE {local}TABLE {name}", f"OPTIMIZE {local}TABLE {name}", f"CHECK TABLE {name}",
         f"REPAIR {local}TABLE {name}", "FLUSH TABLES", "FLUSH BINARY LOGS", f"FLUSH TABLES {name}",
         f"LOCK TABLES {name} WRITE", f"FLUSH TABLES {name} WITH READ LOCK")
    )  # fmt: skip


@kind("other.elsewhere", 1)
def _elsewhere(draw: Draw) -> Sequence[str] | None:
    """The same name in another database; a default database that is not ours."""
    table = draw.table()
    if table is None:
        return None
    name, other = draw.n(table.name), draw.n("other")
    ours = f"{draw.n(draw.database)}.{name}"
    if draw.maybe(0.5):
        return [f"USE {other}", f"CREATE TABLE IF NOT EXISTS {name} (id INT PRIMARY KEY)",
                f"TRUNCATE TABLE {name}", f"DROP TABLE {name}"]  # fmt: skip
    touch = (f"ALTER TABLE {ours} COMMENT 'afar'", f"DELETE FROM {ours} LIMIT 1",
             f"TRUNCATE TABLE {ours}")  # fmt: skip
    return [f"USE {other}", draw.one(touch)]


@kind("other.multi", 1)
def _multi(draw: Draw) -> str | None:
    """Several statements in one packet."""
    one, two = draw.table(), draw.table()
    if one is None or two is None:
        return None
    ddl = f"ALTER TABLE {draw.t(two.name)} COMMENT {draw.s('; x')}"
    return "; ".join((change(draw, one), draw.one((ddl, change(draw, two))), change(draw, one)))


@kind("other.database", 0.1)
def _database(draw: Draw) -> Sequence[str]:
    """All of it goes, and some of it comes again."""
    name = draw.n(draw.database)
    word = draw.one(("DATABASE", "SCHEMA"))
    exists = draw.one(("", "IF EXISTS "))
    table = f"{draw.n(draw.database)}.{draw.n('orders')}"
    return [
        f"DROP {word} {exists}{name}", f"CREATE {word} {name}", f"USE {name}",
        *first_tables(draw), f"INSERT INTO {table} (id) VALUES (1)",
    ]  # fmt: skip


@kind("other.names", 0.5, ddl=False)
def _names(draw: Draw) -> Sequence[str] | None:
    table = draw.table()
    if table is None:
        return None
    names = draw.one(("latin1", "utf8mb4", "utf8mb3", "cp1251", "binary"))
    return [f"SET NAMES {names}", change(draw, table), "SET NAMES utf8mb4"]


@kind("other.nonsense", 1)
def _nonsense(draw: Draw) -> str | None:
    """What the server refuses."""
    table = draw.table()
    if table is None:
        return None
    name = draw.t(table.name)
    return draw.one(
        (f"ALTER TABLE {name} ADD COLUMN", f"ALTER TABLE {name} DROP COLUMN nobody",
         f"INSERT INTO {name} VALUES (1,2,3,4,5,6,7,8,9,10,11,12)", f"DROP TABLE {name}, nobody",
         f"ALTER TABLE {name} ADD UNIQUE u_none (nobody)", f"RENAME TABLE {name} TO {name}",
         "CREATE TABLE x", f"ALTER TABLE {name} RENAME TO nobodys.t")
    )  # fmt: skip
