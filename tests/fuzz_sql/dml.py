"""Statements that change rows, in all the ways that a log may tell of them, or not."""

from __future__ import annotations

from collections.abc import Sequence

from .draw import OTHER, Draw, kind
from .model import Column, Table


def columns_and_rows(draw: Draw, table: Table, most: int = 4) -> str:
    """`(columns) VALUES (...), (...)`."""
    keys = {column.name for column in table.key}
    chosen = [c for c in table.plain if c.name in keys or draw.maybe(0.85)]
    if not chosen:
        return "() VALUES ()"
    names = ", ".join(draw.n(column.name) for column in chosen)
    rows = ", ".join(
        f"({', '.join(_given(draw, table, column) for column in chosen)})"
        for _ in range(draw.rng.randint(1, most))
    )
    return f"({names}) VALUES {rows}"


def _given(draw: Draw, table: Table, column: Column) -> str:
    if column.auto and draw.maybe(0.2):
        return draw.one(("NULL", "DEFAULT", "0"))
    referring = any(column.name in index.columns for index in table.indexes) and table.references
    if column in table.key or referring:
        return "NULL" if column.nullable and draw.maybe(0.1) else draw.key_value(column)
    return draw.value(column)


def where(draw: Draw, table: Table, alias: str = "") -> str:
    """A condition that meets some rows."""
    dot = f"{alias}." if alias else ""
    chosen = table.key or table.columns[:1]
    if not chosen or draw.maybe(0.1):
        return ""
    column = draw.one(chosen)
    name = dot + draw.n(column.name)
    how = draw.rng.random()
    if how < 0.6:
        return f" WHERE {name} = {draw.key_value(column)}"
    if how < 0.8:
        values = ", ".join(draw.key_value(column) for _ in range(3))
        return f" WHERE {name} IN ({values})"
    return f" WHERE {name} {draw.one(('>', '<=', '<>'))} {draw.key_value(column)}"


def assignments(draw: Draw, table: Table, most: int = 3, alias: str = "") -> str:
    """`SET` without its SET."""
    dot = f"{alias}." if alias else ""
    pool = list(table.values) or list(table.plain)
    if draw.maybe(0.25):
        pool = list(table.plain)
    if not pool:
        return f"{dot}nothing = 1"
    return ", ".join(
        f"{dot}{draw.n(column.name)} = {_changed(draw, table, column, dot)}"
        for column in draw.some(pool, most)
    )


def _changed(draw: Draw, table: Table, column: Column, dot: str) -> str:
    name = dot + draw.n(column.name)
    if column in table.key:
        return draw.key_value(column)
    if draw.maybe(0.15):
        return "DEFAULT"
    if column.kind in {"int", "bigint", "decimal", "double"} and draw.maybe(0.4):
        return f"{name} + 1"
    if column.kind in {"varchar", "char", "text"} and draw.maybe(0.3):
        return draw.one((f"UPPER({name})", f"CONCAT({name}, 'x')", f"LEFT({name}, 2)"))
    return draw.value(column)


def insert(draw: Draw, table: Table) -> str:
    """An INSERT of some kind."""
    ignore = draw.one(("", "", "IGNORE ", "IGNORE ", "LOW_PRIORITY "))
    return f"INSERT {ignore}INTO {draw.t(table.name)} {columns_and_rows(draw, table)}"


def update(draw: Draw, table: Table) -> str:
    """An UPDATE."""
    ignore = "IGNORE " if draw.maybe(0.3) else ""
    condition = where(draw, table)
    order = ""
    if draw.maybe(0.1) and table.columns:
        order = f" ORDER BY {draw.n(table.columns[0].name)} LIMIT 2"
    return f"UPDATE {ignore}{draw.t(table.name)} SET {assignments(draw, table)}{condition}{order}"


def delete(draw: Draw, table: Table) -> str:
    """A DELETE."""
    return f"DELETE FROM {draw.t(table.name)}{where(draw, table)}"


def odd(draw: Draw, table: Table) -> str:
    """What few people write."""
    name = draw.t(table.name)
    condition = where(draw, table) or " WHERE 1 = 0"
    alike = f"SELECT * FROM {name}"
    common = (
        f"INSERT IGNORE INTO {name} SET {assignments(draw, table)}",
        f"REPLACE {name} SET {assignments(draw, table)}",
        f"DELETE QUICK FROM {name}{condition} LIMIT 1",
        f"DELETE x FROM {name} AS x{condition}",
        f"UPDATE {name} AS x, (SELECT 1 AS one) AS y SET {assignments(draw, table, alias='x')}",
        f"INSERT IGNORE INTO {name} {alike} LIMIT 1",
    )
    if draw.dialect.mariadb:
        own = (
            f"DELETE FROM {name}{condition} RETURNING 1",
            f"INSERT IGNORE INTO {name} {columns_and_rows(draw, table)} RETURNING 1",
            f"EXECUTE IMMEDIATE {draw.s(delete(draw, table))}",
            f"BEGIN NOT ATOMIC {insert(draw, table)}; {delete(draw, table)}; END",
        )
    else:
        own = (
            f"WITH w AS (SELECT 1 AS one) DELETE FROM {name}{condition}",
            f"WITH w AS (SELECT 1 AS one) UPDATE {name} SET {assignments(draw, table)}{condition}",
            f"INSERT IGNORE INTO {name} TABLE {name} LIMIT 1",
            f"DELETE FROM {name} x{condition}",
        )
    return draw.one((*common, *own))


def change(draw: Draw, table: Table) -> str:
    """Any of them."""
    return draw.one((insert, insert, insert, update, update, delete, odd))(draw, table)


@kind("dml.odd", 2, ddl=False)
def _odd(draw: Draw) -> str | None:
    table = draw.table()
    return odd(draw, table) if table else None


@kind("dml.insert", 14, ddl=False)
def _insert(draw: Draw) -> str | None:
    table = draw.table()
    return insert(draw, table) if table else None


@kind("dml.update", 8, ddl=False)
def _update(draw: Draw) -> str | None:
    table = draw.table()
    return update(draw, table) if table else None


@kind("dml.delete", 4, ddl=False)
def _delete(draw: Draw) -> str | None:
    table = draw.table()
    return delete(draw, table) if table else None


@kind("dml.replace", 4, ddl=False)
def _replace(draw: Draw) -> str | None:
    table = draw.table()
    return f"REPLACE INTO {draw.t(table.name)} {columns_and_rows(draw, table)}" if table else None


@kind("dml.duplicate", 4, ddl=False)
def _duplicate(draw: Draw) -> str | None:
    table = draw.table()
    if table is None:
        return None
    rows = columns_and_rows(draw, table)
    return (
        f"INSERT INTO {draw.t(table.name)} {rows} ON DUPLICATE KEY UPDATE "
        f"{assignments(draw, table)}"
    )


@kind("dml.parents", 6, ddl=False)
def _parents(draw: Draw) -> str | None:
    """What lets foreign keys act."""
    parents = {name for table in draw.model.tables.values() for name in table.references.values()}
    table = draw.table(lambda one: one.name in parents)
    if table is None or not table.key:
        return None
    column = draw.one(table.key)
    here, there = draw.key_value(column), draw.key_value(column)
    name = draw.n(column.name)
    return draw.one(
        (
            f"DELETE FROM {draw.t(table.name)} WHERE {name} = {here}",
            f"UPDATE {draw.t(table.name)} SET {name} = {there} WHERE {name} = {here}",
            f"UPDATE IGNORE {draw.t(table.name)} SET {name} = {there} WHERE {name} = {here}",
            f"REPLACE INTO {draw.t(table.name)} {columns_and_rows(draw, table)}",
            f"DELETE FROM {draw.t(table.name)}",
        )
    )


@kind("dml.multi", 2, ddl=False)
def _multi(draw: Draw) -> str | None:
    one, two = draw.table(), draw.table()
    if one is None or two is None or one.name == two.name or not (one.key and two.key):
        return None
    on = f"p.{draw.n(one.key[0].name)} = q.{draw.n(two.key[0].name)}"
    tables = f"{draw.t(one.name)} p JOIN {draw.t(two.name)} q ON {on}"
    condition = where(draw, one, "p")
    return draw.one(
        (
            (
                f"UPDATE {tables} SET {assignments(draw, one, alias='p')}, "
                f"{assignments(draw, two, alias='q')}{condition}"
            ),
            f"DELETE p, q FROM {tables}{condition}",
            f"DELETE FROM q USING {tables}{condition}",
        )
    )


@kind("dml.select", 1, ddl=False)
def _select(draw: Draw) -> str | None:
    table = draw.table()
    if table is None or not table.plain:
        return None
    names = ", ".join(draw.n(column.name) for column in table.plain)
    verb = draw.one(("INSERT IGNORE", "REPLACE"))
    return f"{verb} INTO {draw.t(table.name)} ({names}) SELECT {names} FROM {draw.t(table.name)}"


@kind("dml.transaction", 6, ddl=False)
def _transaction(draw: Draw) -> Sequence[str] | None:
    if not draw.model.tables:
        return None
    texts = [draw.one(("BEGIN", "START TRANSACTION", "SET autocommit = 0"))]
    points = 0
    for _ in range(draw.rng.randint(1, 7)):
        what = draw.rng.random()
        if what < 0.15:
            points += 1
            texts.append(f"SAVEPOINT {draw.n(f'p{points}')}")
        elif what < 0.25 and points:
            texts.append(f"ROLLBACK TO SAVEPOINT {draw.n(f'p{draw.rng.randint(1, points)}')}")
        else:
            table = draw.table()
            assert table is not None
            texts.append(change(draw, table))
    return [*texts, draw.one(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))]


@kind("dml.xa", 2, ddl=False)
def _xa(draw: Draw) -> Sequence[str] | None:
    """Rows that are logged when it is prepared, and happen later, or never."""
    if not draw.model.tables:
        return None
    name = f"'fuzz{draw.rng.randint(0, 10**9)}'"
    texts = [f"XA START {name}"]
    for _ in range(draw.rng.randint(1, 4)):
        table = draw.table()
        assert table is not None
        texts.append(change(draw, table))
    texts.append(f"XA END {name}")
    if draw.maybe(0.15):
        return [*texts, f"XA COMMIT {name} ONE PHASE"]
    how = draw.one(("COMMIT", "COMMIT", "ROLLBACK"))
    return [*texts, f"XA PREPARE {name}", f"XA {how} {name}"]


@kind("dml.statement", 2, ddl=False)
def _statement(draw: Draw) -> Sequence[str] | None:
    """Logged as a statement: row events tell nothing."""
    table = draw.table()
    if table is None:
        return None
    texts = [change(draw, table)]
    if draw.maybe(0.3):
        texts.append(change(draw, table))
    if draw.maybe(0.2):
        texts = ["BEGIN", *texts, draw.one(("COMMIT", "ROLLBACK"))]
    return [f"SET SESSION binlog_format = {draw.one(('STATEMENT', 'STATEMENT', 'MIXED'))}", *texts]


@kind("dml.reached", 1, ddl=False)
def _reached(draw: Draw) -> Sequence[str] | None:
    """A statement logged as its text that changes a table which it does not name."""
    table, other = draw.table(), draw.table()
    if table is None or other is None:
        return None
    name = draw.one(("reaches", "max", "count", "trim"))  # the last three with a space behind
    call = f"{name} (1)"
    through = draw.n("reaching")
    here = draw.t(other.name)
    odd = draw.one(("", f" {draw.n('o')}", " USE INDEX ()", " IGNORE INDEX FOR JOIN (PRIMARY)"))
    forms = [
        f"DO {call}",
        f"SELECT {call}",
        f"SET @x = {call}",
        f"CREATE TEMPORARY TABLE t_reached AS SELECT {call} AS x",
        f"CREATE TEMPORARY TABLE t_reached AS SELECT r.x FROM {here}{odd}, {through} r",
        f"UPDATE {here} SET {assignments(draw, other)} WHERE 1 = (SELECT 1 FROM {through})",
        f"DELETE FROM {here} WHERE 7 IN (SELECT r.x FROM {here}{odd} JOIN {through} r)",
        f"DELETE FROM {here} WHERE {call} = 2",
        f"INSERT INTO {draw.n(OTHER)}.heartbeat SELECT {call}, 2",
        f"INSERT INTO {draw.n(OTHER)}.heartbeat SELECT r.x, 2 FROM {here}{odd}, {through} r",
    ]
    made = f"CREATE FUNCTION {draw.n(name)} (i INT) RETURNS INT DETERMINISTIC"
    return [
        f"DROP FUNCTION IF EXISTS {draw.n(name)}",
        f"{made} BEGIN {change(draw, table)}; RETURN i; END",
        f"CREATE OR REPLACE VIEW {through} AS SELECT {call} AS x",
        "SET SESSION binlog_format = STATEMENT",
        draw.one(forms),
    ]


@kind("dml.bulk", 1, ddl=False)
def _bulk(draw: Draw) -> Sequence[str] | None:
    """Rows put into an empty table without a look at keys: MariaDB takes all back for one error."""
    table = draw.table()
    if table is None:
        return None
    texts = [insert(draw, table) for _ in range(draw.rng.randint(1, 4))]
    if draw.maybe(0.5):
        texts = ["BEGIN", *texts, "COMMIT"]
    off = "SET unique_checks = 0, foreign_key_checks = 0"
    return [off, f"TRUNCATE TABLE {draw.t(table.name)}", *texts]


@kind("dml.heartbeat", 1, ddl=False)
def _heartbeat(draw: Draw) -> Sequence[str]:
    """Logged as a statement, and none of our business."""
    other = draw.n(OTHER)
    change = f"REPLACE INTO {other}.heartbeat VALUES ({draw.rng.randrange(3)}, 1)"
    if draw.maybe(0.3):
        own = f"REPLACE INTO heartbeat VALUES ({draw.rng.randrange(3)}, 2)"
        return ["SET SESSION binlog_format = STATEMENT", f"USE {other}", own]
    return ["SET SESSION binlog_format = STATEMENT", change]


@kind("dml.timestamp", 1, ddl=False)
def _timestamp(draw: Draw) -> Sequence[str] | None:
    table = draw.table()
    if table is None:
        return None
    moment = draw.one((1893456000, 5, 1700000000.123456, 1000000000))
    return [f"SET TIMESTAMP = {moment}", change(draw, table)]


@kind("dml.truncate", 1, ddl=False)
def _truncate(draw: Draw) -> str | None:
    table = draw.table()
    if table is None:
        return None
    wait = draw.one(("", "", " NOWAIT", " WAIT 3")) if draw.dialect.mariadb else ""
    return f"TRUNCATE {draw.one(('TABLE ', ''))}{draw.t(table.name)}{wait}"


@kind("dml.temporary", 1, ddl=False)
def _temporary(draw: Draw) -> Sequence[str] | None:
    """A temporary table of a mirrored one's name: what is done to it is nobody's business."""
    table = draw.table()
    if table is None:
        return None
    name = draw.t(table.name)
    texts = [
        draw.one((f"CREATE TEMPORARY TABLE {name} (id INT PRIMARY KEY, v INT)",
                  f"CREATE TEMPORARY TABLE {name} LIKE {name}"))
    ]  # fmt: skip
    rest = [
        f"INSERT INTO {name} VALUES (1, 1)", f"TRUNCATE TABLE {name}",
        f"ALTER TABLE {name} ADD COLUMN tmp INT", f"DELETE FROM {name}",
        f"ALTER TABLE {name} DROP COLUMN v", f"DROP TEMPORARY TABLE {name}",
        f"ALTER TABLE {name} RENAME TO {draw.n('tmp_other')}",
    ]  # fmt: skip
    texts += draw.some(rest[:5], 3)
    if draw.maybe(0.6):
        texts.append(draw.one(rest[5:]))
    return texts


@kind("dml.load", 1, ddl=False)
def _load(draw: Draw) -> str | None:
    """The driver puts the path of a file of three lines for @FILE@."""
    table = draw.table()
    if table is None or len(table.plain) < 2 or not table.key:
        return None
    one = draw.n(table.key[0].name)
    ignore = draw.one(("IGNORE", "REPLACE"))
    return (
        f"LOAD DATA LOCAL INFILE '@FILE@' {ignore} INTO TABLE {draw.t(table.name)} "
        f"FIELDS TERMINATED BY ',' ({one}, @rest)"
    )
