"""ALTER TABLE: columns, types, keys, options, in every order and number."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from .draw import Draw, kind
from .model import INTEGERS, Table
from .near import near
from .values import new_type

DELETE_RULES: Final = (
    " ON DELETE CASCADE", " ON DELETE CASCADE", " ON DELETE SET NULL", " ON DELETE NO ACTION", "",
    " ON DELETE RESTRICT",
)  # fmt: skip
_DEFAULTS: Final = {
    "INT": ("0", "7", "NULL"), "BIGINT": ("1", "(1 + 1)"), "SMALLINT": ("3",), "TINYINT": ("1",),
    "VARCHAR": ("'d'", "''", "NULL", "'it''s # x'"), "CHAR": ("'c'",), "DECIMAL": ("1",),
    "DOUBLE": ("0.5",), "FLOAT": ("0.5",), "ENUM": ("'a'",), "SET": ("'a'",),
    "DATE": ("'2024-01-01'",),
    "DATETIME": ("CURRENT_TIMESTAMP", "'2024-01-01 00:00:00'", "NULL"),
    "TIMESTAMP": ("CURRENT_TIMESTAMP", "NULL"), "BINARY": ("'b'",), "VARBINARY": ("x'00'",),
}  # fmt: skip


def expression(draw: Draw, number: str) -> str:
    """Of a generated column, over a number."""
    name = draw.n(number)
    return draw.one((f"{name} * 2", f"{name} + 1", f"{name} * 3", f"ABS({name})", f"-{name}"))


def computed(draw: Draw, table: Table) -> str | None:
    """Type and expression of a generated column, over a column that is there."""
    column = draw.one(table.plain) if table.plain else None
    if column is None or column.auto:
        return None
    name = draw.n(column.name)
    always, stored = draw.one(("", "GENERATED ALWAYS ")), draw.one(("VIRTUAL", "STORED", ""))
    if column.kind in {"int", "bigint", "smallint"}:
        return f"BIGINT {always}AS ({expression(draw, column.name)}) {stored}"
    if column.kind in {"char", "varchar"}:
        body = draw.one((f"UPPER({name})", f"CONCAT({name}, '#')", f"LENGTH({name})", name))
        return f"VARCHAR(400) {always}AS ({body}) {stored}"
    if column.kind in {"datetime", "timestamp"}:
        body = draw.one((f"DAYNAME({name})", f"YEAR({name})", f"{name} + INTERVAL 1 DAY", name))
        return f"VARCHAR(40) {always}AS ({body}) {stored}"
    return None


def attributes(draw: Draw, full: str) -> str:
    """What stands behind a type."""
    word = full.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    text = ""
    if draw.maybe(0.25) and "NULL" not in full:
        text += draw.one((" NOT NULL", " NULL"))
    if draw.maybe(0.3) and (known := _DEFAULTS.get(word)):
        chosen = draw.one(known)
        fraction = full[full.find("(") : full.find(")") + 1] if "(" in full else ""
        if chosen == "CURRENT_TIMESTAMP":
            chosen += fraction + (f" ON UPDATE {chosen}{fraction}" if draw.maybe(0.4) else "")
        if not (chosen == "NULL" and "NOT NULL" in text):
            text += f" DEFAULT {chosen}"
    if draw.maybe(0.1):
        text += (
            f" COMMENT {draw.s(draw.one(('#', '-- x', 'it' + chr(39) + 's', '*/', ', DROP v')))}"
        )
    if draw.maybe(0.05):
        text += " INVISIBLE"
    return text


def place(draw: Draw, table: Table) -> str:
    """FIRST or AFTER another column."""
    if draw.maybe(0.7):
        return ""
    return draw.one((" FIRST", f" AFTER {draw.n(draw.one(table.columns).name)}"))


Spec = Callable[[Draw, Table], str | None]


def _definition(draw: Draw, table: Table) -> str:
    if draw.maybe(0.2) and (made := computed(draw, table)):
        return made
    full = new_type(draw.dialect, draw.rng)
    return full + attributes(draw, full)


def _add(draw: Draw, table: Table) -> str:
    word = draw.one(("ADD COLUMN ", "ADD "))
    exists = "IF NOT EXISTS " if draw.dialect.mariadb and draw.maybe(0.2) else ""
    name = draw.n(draw.free_column(table))
    return f"{word}{exists}{name} {_definition(draw, table)}{place(draw, table)}"


def _add_null(draw: Draw, table: Table) -> str:
    return f"ADD COLUMN {draw.n(draw.free_column(table))} {draw.one(('INT', 'TEXT', 'DATE'))}"


def _add_many(draw: Draw, table: Table) -> str:
    one, two = draw.free_column(table), f"m{draw.rng.randrange(99)}"
    return f"ADD COLUMN ({draw.n(one)} {_definition(draw, table)}, {draw.n(two)} INT)"


def _drop(draw: Draw, table: Table) -> str | None:
    if len(table.columns) < 3:
        return None
    column = draw.one(table.values or table.columns)
    word = draw.one(("DROP COLUMN ", "DROP "))
    exists = "IF EXISTS " if draw.dialect.mariadb and draw.maybe(0.2) else ""
    tail = draw.one(("", "", " RESTRICT")) if draw.dialect.mariadb else ""
    return f"{word}{exists}{draw.n(column.name)}{tail}"


def _drop_add(draw: Draw, table: Table) -> str | None:
    if not table.values:
        return None
    column = draw.one(table.values)
    name = draw.n(column.name)
    return f"DROP COLUMN {name}, ADD COLUMN {name} {column.full}"


def _rename(draw: Draw, table: Table) -> str | None:
    column = draw.one(table.columns)
    new = draw.free_column(table)
    return f"RENAME COLUMN {draw.n(column.name)} TO {draw.n(new)}"


def _rename_swap(draw: Draw, table: Table) -> str | None:
    same = [c for c in table.values if sum(o.full == c.full for o in table.values) > 1]
    if not same:
        return None
    one = draw.one(same)
    two = draw.one([c for c in same if c.full == one.full and c != one])
    a, b = draw.n(one.name), draw.n(two.name)
    if draw.maybe(0.5):
        return f"RENAME COLUMN {a} TO {b}, RENAME COLUMN {b} TO {a}"
    return f"CHANGE {a} {b} {one.full}, CHANGE {b} {a} {one.full}"


def _modify(draw: Draw, table: Table) -> str | None:
    if not table.columns:
        return None
    column = (
        draw.one(table.values or table.columns) if draw.maybe(0.85) else draw.one(table.columns)
    )
    full = near(draw, column)
    null = draw.one(("", "", "", " NOT NULL", " NULL"))
    if column in table.key:
        null = " NOT NULL"
    name = draw.n(column.name)
    if draw.maybe(0.2):
        new = column.name if draw.maybe(0.6) else draw.free_column(table)
        return f"CHANGE COLUMN {name} {draw.n(new)} {full}{null}{place(draw, table)}"
    word = draw.one(("MODIFY COLUMN ", "MODIFY "))
    return f"{word}{name} {full}{null}{place(draw, table)}"


def _generated(draw: Draw, table: Table) -> str | None:
    numbers = [c.name for c in table.plain if c.kind in {"int", "bigint"}]
    chosen = [c for c in table.columns if c.generated] or list(table.values)
    if not numbers or not chosen:
        return None
    column = draw.one(chosen)
    name = draw.n(column.name)
    if column.generated and draw.maybe(0.3):
        return f"MODIFY {name} {column.full}"
    sources = [number for number in numbers if number != column.name]
    if not sources:
        return None
    kind_ = "BIGINT" if draw.maybe(0.5) or column.kind not in INTEGERS else column.full
    stored = draw.one(("VIRTUAL", "STORED"))
    return f"MODIFY COLUMN {name} {kind_} AS ({expression(draw, draw.one(sources))}) {stored}"


def _default(draw: Draw, table: Table) -> str | None:
    if not table.values:
        return None
    column = draw.one(table.values)
    name = draw.n(column.name)
    return draw.one(
        (f"ALTER COLUMN {name} DROP DEFAULT", f"ALTER {name} SET DEFAULT {draw.value(column)}")
    )


def _index(draw: Draw, table: Table) -> str:
    fitting = [c for c in table.columns if not c.kind.endswith(("text", "blob", "json"))]
    names = ", ".join(draw.n(c.name) for c in draw.some(fitting or table.columns, 2))
    what = draw.one(("INDEX", "KEY", "INDEX", "UNIQUE", "UNIQUE INDEX"))
    name = draw.n(f"i{draw.rng.randrange(30)}")
    if draw.dialect.mariadb and draw.maybe(0.1):
        name = f"IF NOT EXISTS {name}"
    tail = draw.one(("", "", " COMMENT 'x'", " USING BTREE"))
    return f"ADD {what} {name} ({names}){tail}"


def _drop_index(draw: Draw, table: Table) -> str | None:
    if not table.indexes:
        return None
    index = draw.one(table.indexes)
    if index.name == "PRIMARY":
        return draw.one(("DROP PRIMARY KEY", _new_key(draw, table)))
    if draw.maybe(0.2):
        return f"RENAME {draw.one(('INDEX', 'KEY'))} {draw.n(index.name)} TO {draw.n('renamed i')}"
    return f"DROP {draw.one(('INDEX', 'KEY'))} {draw.n(index.name)}"


def _new_key(draw: Draw, table: Table) -> str:
    columns = [c for c in table.columns if c.kind in {*INTEGERS, "varchar", "char", "date"}]
    chosen = draw.some(columns or table.columns, 2)
    names = ", ".join(draw.n(column.name) for column in chosen)
    return f"DROP PRIMARY KEY, ADD PRIMARY KEY ({names})"


def _options(draw: Draw, table: Table) -> str:
    engines = ("InnoDB", "InnoDB", "MyISAM", "MEMORY", "BLACKHOLE")
    return draw.one(
        (
            f"COMMENT = {draw.s(draw.one(('see #42', '-- x', '/*', chr(39), 'x', 'RENAME TO y')))}",
            f"COMMENT {draw.s('# , DROP COLUMN v')}",
            f"AUTO_INCREMENT = {draw.rng.randrange(200)}",
            f"ENGINE = {draw.one(engines)}" if draw.maybe(0.5) else "FORCE",
            "ROW_FORMAT = COMPACT", "STATS_PERSISTENT = 0", "FORCE", "DEFAULT CHARSET latin1",
            "DISABLE KEYS", "ENABLE KEYS", f"ORDER BY {draw.n(draw.one(table.columns).name)}",
        )
    )  # fmt: skip


def _convert(draw: Draw, _: Table) -> str:
    charset = draw.one(
        ("utf8mb4", "latin1", "utf8mb3", "utf8mb4 COLLATE utf8mb4_bin", "ascii", "binary")
    )
    return f"CONVERT TO {draw.one(('CHARACTER SET', 'CHARSET'))} {charset}"


def _foreign(draw: Draw, table: Table) -> str | None:
    if table.references and draw.maybe(0.5):
        name = draw.n(draw.one(tuple(table.references)))
        return draw.one((f"DROP FOREIGN KEY {name}", f"DROP CONSTRAINT {name}"))
    parent = draw.table(lambda one: len(one.key) == 1 and one.engine == "innodb")
    if parent is None:
        return None
    fitting = [c for c in table.values if c.full == parent.key[0].full and c.nullable]
    if not fitting:
        return None
    rule = draw.one(DELETE_RULES) + draw.one(("", " ON UPDATE CASCADE", " ON UPDATE SET NULL"))
    name = draw.n(f"fk{draw.rng.randrange(9999)}")
    return (f"ADD CONSTRAINT {name} FOREIGN KEY ({draw.n(draw.one(fitting).name)}) REFERENCES "
            f"{draw.n(parent.name)} ({draw.n(parent.key[0].name)}){rule}")  # fmt: skip


def _check(draw: Draw, table: Table) -> str:
    name = draw.n(f"ck{draw.rng.randrange(99)}")
    if draw.maybe(0.3):
        return f"DROP CONSTRAINT {name}"
    return f"ADD CONSTRAINT {name} CHECK ({draw.n(draw.one(table.columns).name)} IS NOT NULL)"


def _odd(draw: Draw, table: Table) -> str:
    column, number = draw.n(draw.one(table.columns).name), draw.rng.randrange(30)
    common = (
        "ENABLE KEYS", "ALTER INDEX k1 INVISIBLE", f"RENAME INDEX i{number} TO `i {number}`",
        "DISCARD TABLESPACE", "IMPORT TABLESPACE", "REMOVE PARTITIONING", "ROW_FORMAT=DYNAMIC",
        f"ADD FULLTEXT INDEX ft{number} ({column})", f"ADD INDEX ((({column})))", "FORCE, FORCE",
        f"ADD UNIQUE KEY pre{number} ({column}(2))", f"MODIFY {column} SERIAL",
        "MAX_ROWS = 100, MIN_ROWS = 1", "UNION = ()", "ENCRYPTION = 'N'", "CHECKSUM = 1",
    )  # fmt: skip
    if draw.dialect.mariadb:
        own: tuple[str, ...] = (
            "ADD SYSTEM VERSIONING", "DROP SYSTEM VERSIONING", "ALTER INDEX IF EXISTS k1 IGNORED",
            "PAGE_COMPRESSED = 1", "TRANSACTIONAL = 1", f"DROP INDEX IF EXISTS i{number}",
            f"MODIFY IF EXISTS {column} TEXT", f"CHANGE IF EXISTS {column} {column} TEXT",
            f"ADD PRIMARY KEY IF NOT EXISTS ({column})", f"ALTER {column} SET DEFAULT (1)",
            f"MODIFY {column} TEXT COMPRESSED",
        )  # fmt: skip
    else:
        own = (
            f"ALTER COLUMN {column} SET INVISIBLE", f"ALTER COLUMN {column} SET VISIBLE",
            "SECONDARY_ENGINE = NULL", "ALTER CHECK ck1 NOT ENFORCED", "WITH VALIDATION, FORCE",
            f"MODIFY {column} BLOB STORAGE DISK", "TABLESPACE = innodb_file_per_table",
        )  # fmt: skip
    return draw.one((*common, *own))


_SPECS: Final[dict[str, tuple[Spec, float]]] = {
    "add": (_add, 4), "add_null": (_add_null, 2), "add_many": (_add_many, 0.5), "drop": (_drop, 2),
    "drop_add": (_drop_add, 1), "rename": (_rename, 1.5), "rename_swap": (_rename_swap, 1),
    "modify": (_modify, 9), "generated": (_generated, 2), "default": (_default, 1),
    "index": (_index, 2), "drop_index": (_drop_index, 2), "options": (_options, 2),
    "convert": (_convert, 1), "foreign": (_foreign, 1.5), "check": (_check, 0.5),
    "odd": (_odd, 2),
}  # fmt: skip


def _spec(draw: Draw, table: Table, first: str = "") -> str | None:
    names = list(_SPECS)
    chosen = first or draw.rng.choices(names, [_SPECS[name][1] for name in names])[0]
    return _SPECS[chosen][0](draw, table)


def altered(draw: Draw, first: str) -> str | None:
    """An ALTER of some table, with a specification of that kind among others."""
    table = draw.table()
    if table is None:
        return None
    specs = [_spec(draw, table, first)]
    if draw.maybe(0.25):
        specs.append(_spec(draw, table))
    if draw.maybe(0.1):
        specs.append(_spec(draw, table))
    known = [spec for spec in specs if spec]
    if not known:
        return None
    draw.rng.shuffle(known)
    if draw.maybe(0.1):
        known.append(
            draw.one(("ALGORITHM = COPY", "ALGORITHM=INPLACE", "LOCK = SHARED", "LOCK=NONE"))
        )
    head = f"ALTER{_words(draw)} TABLE{_exists(draw)} {draw.t(table.name)}{_wait(draw)}"
    return f"{head} {', '.join(known)}"


def _words(draw: Draw) -> str:
    if not draw.dialect.mariadb:
        return ""
    return draw.one(("",) * 12 + (" IGNORE", " IGNORE", " ONLINE", " ONLINE IGNORE"))


def _exists(draw: Draw) -> str:
    return " IF EXISTS" if draw.dialect.mariadb and draw.maybe(0.1) else ""


def _wait(draw: Draw) -> str:
    return draw.one((" NOWAIT", " WAIT 5")) if draw.dialect.mariadb and draw.maybe(0.05) else ""


def _register() -> None:
    for name, (_, weight) in _SPECS.items():
        kind(f"alter.{name}", weight)(partial(altered, first=name))


_register()


@kind("alter.index", 1)
def _create_index(draw: Draw) -> str | None:
    table = draw.table(lambda one: bool(one.indexes))
    if table is None:
        return None
    name = draw.n(f"i{draw.rng.randrange(30)}")
    if draw.maybe(0.4):
        return f"DROP INDEX {draw.n(draw.one(table.indexes).name)} ON {draw.t(table.name)}"
    column = draw.n(draw.one(table.columns).name)
    what = draw.one(("INDEX", "UNIQUE INDEX", "INDEX"))
    return f"CREATE {what} {name} ON {draw.t(table.name)} ({column})"


@kind("alter.duplicates", 0.7, only="mariadb")
def _duplicates(draw: Draw) -> str | None:
    """The server deletes rows, and says nothing of it."""
    table = draw.table(lambda one: bool(one.values))
    if table is None:
        return None
    fitting = [c for c in table.values if not c.kind.endswith(("text", "blob", "json"))]
    if not fitting:
        return None
    column = draw.n(draw.one(fitting).name)
    return f"ALTER IGNORE TABLE {draw.t(table.name)} ADD UNIQUE ({column})"
