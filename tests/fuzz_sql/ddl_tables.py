"""Statements about whole tables: they come, go, change their names, get partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from .ddl_alter import DELETE_RULES, attributes, expression
from .draw import OTHER, Draw, kind
from .model import Column, Table
from .values import key_type, new_type

_PARTITIONED: Final = "range", "list", "hash", "key", "columns"


def columns_of(draw: Draw, keys: list[tuple[str, str]], values: list[str]) -> str:
    """What stands in a new table's parentheses."""
    parts = []
    auto = len(keys) == 1 and keys[0][1] in {"INT", "BIGINT", "BIGINT UNSIGNED"} and draw.maybe(0.3)
    for name, full in keys:
        extra = " AUTO_INCREMENT" if auto else ""
        parts.append(f"{draw.n(name)} {full} NOT NULL{extra}")
    # No expression may be over a column with AUTO_INCREMENT.
    numbers = [name for name, full in keys if full.startswith(("INT", "BIGINT")) and not auto]
    for name in values:
        if numbers and draw.maybe(0.12):
            stored = draw.one(("VIRTUAL", "STORED"))
            body = expression(draw, numbers[0])
            parts.append(f"{draw.n(name)} BIGINT AS ({body}) {stored}")
            continue
        full = new_type(draw.dialect, draw.rng)
        parts.append(f"{draw.n(name)} {full}{attributes(draw, full)}")
        if full in {"INT", "BIGINT"} or full.startswith("INT "):
            numbers.append(name)
    if values and draw.maybe(0.3):
        parts.append(f"KEY {draw.n('k1')} ({draw.n(keys[0][0])})")
    return ", ".join(parts)


def create(draw: Draw, name: str, *, partitioned: bool | None = None) -> str:
    """A new table."""
    keys = [("id", "INT" if draw.maybe(0.5) else key_type(draw.dialect, draw.rng))]
    if draw.maybe(0.2):
        keys.append(("k2", key_type(draw.dialect, draw.rng)))
    values = draw.rng.sample(("v", "w", "n", "x", "Name", "two words", "a#", "c1"), 4)
    values = values[: draw.rng.randint(1, 4)]
    if draw.maybe(0.4) and "v" not in values:
        values.append("v")
    inside = columns_of(draw, keys, values)
    names = ", ".join(draw.n(key) for key, _ in keys)
    split = draw.maybe(0.2) if partitioned is None else partitioned
    if draw.maybe(0.85) or split:
        inside += f", PRIMARY KEY ({names})"
    elif draw.maybe(0.9):
        inside += f", UNIQUE KEY {draw.n('u1')} ({names})"
    tail = ""
    if split and keys[0][1] in {"INT", "BIGINT", "SMALLINT"}:
        tail = partitioning(draw, draw.one(_PARTITIONED), "id")
    options = _options(draw, split=bool(tail))
    exists = draw.one(("", "", "IF NOT EXISTS "))
    return f"CREATE TABLE {exists}{draw.t(name)} ({inside}){options}{tail}"


def _options(draw: Draw, *, split: bool) -> str:
    options = []
    if draw.maybe(0.15) and not split:
        engines = ["MyISAM", "InnoDB", "MEMORY", "InnoDB"]
        engines += ["Aria", "BLACKHOLE"] if draw.dialect.mariadb else ["BLACKHOLE"]
        options.append(f"ENGINE = {draw.one(engines)}")
    if draw.maybe(0.2):
        options.append(
            draw.one(("DEFAULT CHARSET = latin1", "CHARSET utf8mb4 COLLATE utf8mb4_bin"))
        )
    if draw.maybe(0.2):
        options.append(f"COMMENT = {draw.s(draw.one(('see #42', 'x -- y', '/* z', chr(39))))}")
    if draw.maybe(0.1):
        options.append(draw.one(("ROW_FORMAT = DYNAMIC", "AUTO_INCREMENT = 100", "CHECKSUM = 1")))
    if draw.maybe(0.03) and draw.dialect.mariadb:
        options.append("WITH SYSTEM VERSIONING")
    return "".join(f" {option}" for option in options)


def partitioning(draw: Draw, how: str, column: str) -> str:
    """`PARTITION BY ...`."""
    name = draw.n(column)
    if how == "range":
        return (f" PARTITION BY RANGE ({name}) (PARTITION p0 VALUES LESS THAN (3), PARTITION p1 "
                "VALUES LESS THAN (6), PARTITION p2 VALUES LESS THAN MAXVALUE)")  # fmt: skip
    if how == "columns":
        return (f" PARTITION BY RANGE COLUMNS ({name}) (PARTITION p0 VALUES LESS THAN (4), "
                "PARTITION p1 VALUES LESS THAN (MAXVALUE))")  # fmt: skip
    if how == "list":
        return (f" PARTITION BY LIST ({name}) (PARTITION p0 VALUES IN (0,1,2,3), PARTITION p1 "
                "VALUES IN (4,5,6,7,8))")  # fmt: skip
    if how == "hash":
        return f" PARTITION BY {draw.one(('', 'LINEAR '))}HASH ({name}) PARTITIONS 3"
    return f" PARTITION BY KEY ({name}) PARTITIONS 2"


def child(draw: Draw, name: str, parent: Table) -> str | None:
    """A table that refers to another, or to itself."""
    if len(parent.key) != 1 or parent.engine != "innodb" or parent.method:
        return None
    key = parent.key[0]
    full = key.full + (f" CHARACTER SET {key.charset}" if key.charset else "")
    if key.charset:
        return None  # collations would have to be the same
    rule = draw.one(DELETE_RULES) + draw.one(("", " ON UPDATE CASCADE", " ON UPDATE SET NULL"))
    back = f"FOREIGN KEY ({draw.n('ref')}) REFERENCES {draw.n(parent.name)} ({draw.n(key.name)})"
    itself = ""
    if draw.maybe(0.3):
        itself = (f", up {full} NULL, FOREIGN KEY (up) REFERENCES {draw.n(name)} (id)"
                  f"{draw.one(DELETE_RULES)}")  # fmt: skip
    value = new_type(draw.dialect, draw.rng)
    own = "" if draw.maybe(0.5) else f", KEY ({draw.n('ref')})"
    return (
        f"CREATE TABLE {draw.t(name)} (id {full} NOT NULL PRIMARY KEY, "
        f"{draw.n('ref')} {full} NULL, {draw.n('v')} {value}{own}{itself}, "
        f"CONSTRAINT {draw.n(f'fk{draw.rng.randrange(9999)}')} {back}{rule})"
    )


@kind("create.table", 4)
def _create(draw: Draw) -> str | None:
    name = draw.free_name() if draw.maybe(0.9) else draw.one(tuple(draw.model.tables) or ("a",))
    return name and create(draw, name)


@kind("create.child", 3)
def _child(draw: Draw) -> str | None:
    name, parent = draw.free_name(), draw.table(lambda one: one.engine == "innodb")
    return child(draw, name, parent) if name and parent else None


@kind("create.like", 1)
def _like(draw: Draw) -> str | None:
    name, table = draw.free_name(), draw.table()
    if name is None or table is None:
        return None
    new, old = draw.t(name), draw.t(table.name)
    return draw.one(
        (f"CREATE TABLE {new} LIKE {old}", f"CREATE TABLE IF NOT EXISTS {new} (LIKE {old})")
    )


@kind("create.select", 1)
def _select(draw: Draw) -> str | None:
    name, table = draw.free_name(), draw.table(lambda one: bool(one.key))
    if name is None or table is None:
        return None
    key = ", ".join(draw.n(column.name) for column in table.key)
    if any(column.kind.endswith(("text", "blob")) for column in table.key):
        return None
    return f"CREATE TABLE {draw.t(name)} (PRIMARY KEY ({key})) SELECT * FROM {draw.t(table.name)}"


@kind("create.over", 0.7)
def _over(draw: Draw) -> str | None:
    """What a SELECT brings into a table that is new, or was there."""
    name, table = draw.free_name(), draw.table(lambda one: len(one.key) == 1)
    if name is None or table is None or table.key[0].kind.endswith(("text", "blob")):
        return None
    how = draw.one(("IGNORE ", "REPLACE ", ""))
    target = draw.t(draw.one((name, table.name)))
    key = draw.n(table.key[0].name)
    return (f"CREATE TABLE IF NOT EXISTS {target} (UNIQUE KEY ({key})) {how}SELECT * FROM "
            f"{draw.t(table.name)} WHERE {key} IS NOT NULL")  # fmt: skip


@kind("create.replace", 1, only="mariadb")
def _or_replace(draw: Draw) -> str | None:
    table = draw.table()
    if table is None:
        return None
    text = create(draw, table.name).replace("IF NOT EXISTS ", "")
    return text.replace("CREATE TABLE", "CREATE OR REPLACE TABLE", 1)


@kind("create.versioned", 0.3, only="mariadb")
def _versioned(draw: Draw) -> str | None:
    name = draw.free_name()
    return name and (f"CREATE TABLE {draw.t(name)} (id INT PRIMARY KEY, v INT) "
                     "WITH SYSTEM VERSIONING")  # fmt: skip


@kind("create.merge", 0.3, only="mariadb")
def _merge(draw: Draw) -> Sequence[str] | None:
    name, below = draw.free_name(), draw.table(lambda one: one.engine == "myisam")
    if name is None or below is None:
        return None
    new = draw.t(name)
    return [f"CREATE TABLE {new} LIKE {draw.t(below.name)}",
            f"ALTER TABLE {new} ENGINE = MERGE UNION = ({draw.n(below.name)})"]  # fmt: skip


@kind("drop.table", 1.5)
def _drop(draw: Draw) -> str | None:
    if not draw.model.tables:
        return None
    names = draw.some(tuple(draw.model.tables), 2 if draw.maybe(0.3) else 1)
    if draw.maybe(0.3):
        names.insert(draw.rng.randrange(2), draw.one(("nobody", "x#y", "it's")))
    exists = draw.one(("", "IF EXISTS "))
    tail = draw.one(("", "", " RESTRICT", " CASCADE"))
    if draw.dialect.mariadb and draw.maybe(0.2):
        tail = draw.one((" WAIT 3", " NOWAIT"))
    word = draw.one(("TABLE", "TABLE", "TABLES"))
    return f"DROP {word} {exists}{', '.join(draw.t(name) for name in names)}{tail}"


@kind("drop.create", 1)
def _drop_create(draw: Draw) -> Sequence[str] | None:
    table = draw.table()
    if table is None:
        return None
    return [f"DROP TABLE {draw.t(table.name)}", create(draw, table.name)]


@kind("rename.table", 1.5)
def _rename(draw: Draw) -> str | None:
    name, table = draw.free_name(), draw.table()
    if name is None or table is None:
        return None
    old, new = draw.t(table.name), draw.t(name)
    word = draw.one(("TABLE", "TABLES" if draw.dialect.mariadb else "TABLE"))
    wait = ("IF EXISTS ", draw.one(("", " WAIT 3"))) if draw.dialect.mariadb else ("", "")
    return draw.one(
        (
            f"RENAME {word} {old} TO {new}",
            f"RENAME TABLE {wait[0]}{old}{wait[1]} TO {new}",
            f"ALTER TABLE {old} RENAME TO {new}",
            f"ALTER TABLE {old} RENAME {new}",
            f"ALTER TABLE {old} RENAME AS {new}",
            f"ALTER TABLE {old} COMMENT {draw.s('see #42')}, RENAME TO {new}",
        )
    )


@kind("rename.swap", 1)
def _swap(draw: Draw) -> str | None:
    if len(draw.model.tables) < 2:
        return None
    one, two = draw.rng.sample(tuple(draw.model.tables), 2)
    between = draw.n("between it")
    return (f"RENAME TABLE {draw.t(one)} TO {between}, {draw.t(two)} TO {draw.t(one)}, "
            f"{between} TO {draw.t(two)}")  # fmt: skip


@kind("rename.shadow", 1)
def _shadow(draw: Draw) -> Sequence[str] | None:
    """As tools for online schema changes do."""
    table = draw.table(lambda one: bool(one.plain))
    if table is None:
        return None
    name, shadow = draw.t(table.name), draw.n(f"_{table.name[:20]}_new")
    old = draw.n(f"_{table.name[:20]}_old")
    columns = ", ".join(draw.n(column.name) for column in table.plain)
    return [
        f"CREATE TABLE {shadow} LIKE {name}",
        f"ALTER TABLE {shadow} ADD COLUMN {draw.n(draw.free_column(table))} INT",
        f"INSERT INTO {shadow} ({columns}) SELECT {columns} FROM {name}",
        f"RENAME TABLE {name} TO {old}, {shadow} TO {name}",
        f"DROP TABLE {old}",
    ]


@kind("rename.away", 0.5)
def _away(draw: Draw) -> Sequence[str] | None:
    table = draw.table()
    if table is None:
        return None
    there = f"{draw.n(OTHER)}.{draw.n('guest')}"
    here = f"{draw.n(draw.database)}.{draw.n(table.name)}"
    change = draw.one(("DELETE FROM other.guest", "TRUNCATE TABLE other.guest", "SELECT 1"))
    return [f"RENAME TABLE {here} TO {there}", change, f"RENAME TABLE {there} TO {here}"]


# --- partitions -----------------------------------------------------------------------------------


@kind("partition.manage", 3)
def _partition(draw: Draw) -> str | None:
    table = draw.table(lambda one: bool(one.partitions))
    if table is None:
        return None
    make = draw.one(_MANAGE)
    return f"ALTER TABLE {draw.t(table.name)} {make(draw, table)}"


def _some(draw: Draw, table: Table) -> str:
    return draw.n(draw.one(table.partitions))


def _add(draw: Draw, table: Table) -> str:
    name = draw.n(f"q{draw.rng.randrange(99)}")
    if "range" in table.method:
        return f"ADD PARTITION (PARTITION {name} VALUES LESS THAN ({draw.rng.randrange(7, 99)}))"
    if "list" in table.method:
        return f"ADD PARTITION (PARTITION {name} VALUES IN ({draw.rng.randrange(9, 99)}))"
    return f"ADD PARTITION PARTITIONS {draw.rng.randint(1, 2)}"


def _reorganize(draw: Draw, table: Table) -> str:
    first, name = table.partitions[0], draw.n(f"r{draw.rng.randrange(99)}")
    low = "(1)" if "range" in table.method else "(0,1)"
    word = "LESS THAN" if "range" in table.method else "IN"
    high = "(3)" if "range" in table.method else "(2,3)"
    return (f"REORGANIZE PARTITION {draw.n(first)} INTO (PARTITION {name} VALUES {word} {low}, "
            f"PARTITION {draw.n(first)} VALUES {word} {high})")  # fmt: skip


_MANAGE: Final[tuple[Callable[[Draw, Table], str], ...]] = (
    lambda draw, table: f"DROP PARTITION {_some(draw, table)}",
    lambda draw, table: f"TRUNCATE PARTITION {draw.one((_some(draw, table), 'ALL'))}",
    _add,
    _reorganize,
    lambda draw, _: f"COALESCE PARTITION {draw.rng.randint(1, 2)}",
    lambda draw, table: f"REBUILD PARTITION {draw.one((_some(draw, table), 'ALL'))}",
    lambda draw, table: f"OPTIMIZE PARTITION {_some(draw, table)}",
    lambda draw, table: f"ANALYZE PARTITION {_some(draw, table)}",
    lambda *_: "REMOVE PARTITIONING",
)


@kind("partition.by", 1)
def _by(draw: Draw) -> str | None:
    def fits(table: Table) -> bool:
        return bool(table.key) and _is_number(table.key[0]) and not table.references

    table = draw.table(fits)
    if table is None:
        return None
    how = partitioning(draw, draw.one(_PARTITIONED), table.key[0].name)
    return f"ALTER TABLE {draw.t(table.name)}{how}"


def _is_number(column: Column) -> bool:
    return column.kind in {"int", "bigint", "smallint"}


@kind("partition.exchange", 1)
def _exchange(draw: Draw) -> Sequence[str] | None:
    table = draw.table(lambda one: bool(one.partitions) and bool(one.key))
    name = draw.free_name()
    if table is None or name is None:
        return None
    new, old = draw.t(name), draw.t(table.name)
    key = table.key[0]
    texts = [
        f"CREATE TABLE {new} LIKE {old}",
        f"ALTER TABLE {new} REMOVE PARTITIONING",
        f"INSERT IGNORE INTO {new} ({draw.n(key.name)}) VALUES ({draw.key_value(key)})",
        (f"ALTER TABLE {old} EXCHANGE PARTITION {_some(draw, table)} WITH TABLE {new}"
         f"{draw.one(('', ' WITHOUT VALIDATION', ' WITH VALIDATION'))}"),
    ]  # fmt: skip
    if draw.dialect.mariadb and draw.maybe(0.4):
        there = draw.n(f"{name[:10]} out")
        texts = [f"ALTER TABLE {old} CONVERT PARTITION {_some(draw, table)} TO TABLE {there}"]
    return texts


# What a beginning has, besides what chance brings.
def first_tables(draw: Draw) -> list[str]:
    """The tables that a run begins with: profiles that statements need."""
    rule = draw.one(DELETE_RULES)
    split = partitioning(draw, draw.one(_PARTITIONED), "id")
    up, refers = "ON DELETE CASCADE ON UPDATE CASCADE", "FOREIGN KEY (ref) REFERENCES"
    inside = (
        "orders (id INT PRIMARY KEY, v VARCHAR(20), n INT, e ENUM('a','b','c'), KEY (n))",
        f"items (id INT PRIMARY KEY, ref INT, v VARCHAR(9), {refers} orders (id) {up})",
        f"child (id INT PRIMARY KEY, ref INT, s SET('a','b','c'), {refers} items (id){rule})",
        f"logs (id INT PRIMARY KEY, v DATETIME(6), b BINARY(4), u INT UNSIGNED){split}",
    )
    fixed = [f"CREATE TABLE {text}" for text in inside]
    names = draw.rng.sample(("a", "b", "t_one", "UPPER", "a#b", "it's", "c/*d*/", "select"), 5)
    return [*fixed, *(create(draw, name) for name in names)]
