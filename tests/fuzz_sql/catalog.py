"""The tables of a database, as information_schema tells: the model that the grammar draws from."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .model import Column, Index, Model, Table


def read_model(cursor: Any, database: str) -> Model:
    """All of a database's tables, as they are now."""
    names = _rows(
        cursor,
        "SELECT TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = %s",
        database,
    )
    columns = _columns(cursor, database)
    indexes = _indexes(cursor, database)
    references: dict[str, dict[str, str]] = defaultdict(dict)
    for table, name, parent in _rows(
        cursor,
        "SELECT TABLE_NAME, CONSTRAINT_NAME, REFERENCED_TABLE_NAME "
        "FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = %s",
        database,
    ):
        references[table][name] = parent
    parts: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for table, part, method in _rows(
        cursor,
        "SELECT TABLE_NAME, PARTITION_NAME, PARTITION_METHOD FROM information_schema.PARTITIONS "
        "WHERE TABLE_SCHEMA = %s AND PARTITION_NAME IS NOT NULL "
        "ORDER BY PARTITION_ORDINAL_POSITION",
        database,
    ):
        parts[table].append((part, (method or "").lower()))
    tables = {
        name: Table(
            name=name,
            engine=(engine or "").lower(),
            columns=tuple(columns[name]),
            indexes=tuple(indexes[name].values()),
            references=references[name],
            partitions=tuple(dict.fromkeys(part for part, _ in parts[name])),
            method=parts[name][0][1] if parts[name] else "",
        )
        for name, type_, engine in sorted(names)
        if type_ in {"BASE TABLE", "SYSTEM VERSIONED"} and columns[name] and name != "fence"
    }
    return Model(
        tables=tables,
        views=tuple(sorted(name for name, type_, _ in names if type_ == "VIEW")),
        sequences=tuple(sorted(name for name, type_, _ in names if type_ == "SEQUENCE")),
    )


def _columns(cursor: Any, database: str) -> dict[str, list[Column]]:
    found: dict[str, list[Column]] = defaultdict(list)
    for table, name, kind, full, nullable, length, charset, extra, generated in _rows(
        cursor,
        "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, "
        "CHARACTER_MAXIMUM_LENGTH, CHARACTER_SET_NAME, EXTRA, GENERATION_EXPRESSION "
        "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s "
        "ORDER BY TABLE_NAME, ORDINAL_POSITION",
        database,
    ):
        found[table].append(
            Column(
                name=name,
                kind=kind.lower(),
                full=full,
                nullable=nullable == "YES",
                generated=bool(generated),
                length=min(int(length or 0), 100_000),
                charset=charset or "",
                auto="auto_increment" in extra.lower(),
                hidden="INVISIBLE" in extra.upper(),
            )
        )
    return found


def _indexes(cursor: Any, database: str) -> dict[str, dict[str, Index]]:
    found: dict[str, dict[str, Index]] = defaultdict(dict)
    for table, name, other, column in _rows(
        cursor,
        "SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, COLUMN_NAME FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX",
        database,
    ):
        before = found[table].get(name)
        columns = (*(before.columns if before else ()), *([column] if column else []))
        found[table][name] = Index(name=name, unique=not int(other), columns=columns)
    return found


def _rows(cursor: Any, sql: str, database: str) -> list[Any]:
    cursor.execute(sql, (database,))
    return list(cursor.fetchall())
