"""Kinds of statements that change a table, each with what Ratchet does behind it.

Every kind has a table of its own, named after it, with the columns of `COLUMNS` and `ROWS` rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Done = Literal[
    "streams on", "compared", "computed", "column read", "taken", "dumped again", "dumped", "stops"
]

COLUMNS: Final = (
    "id INT NOT NULL, s VARCHAR(20) NOT NULL, n INT, e ENUM('a','b'), u SET('p','q'), "
    "l VARCHAR(20) CHARACTER SET latin1, d DECIMAL(10,2), f FLOAT, m DATETIME(6), "
    "a DATE NOT NULL DEFAULT '2024-02-29', w BIGINT, PRIMARY KEY (id)"
)
ROWS: Final = 300
PARTS: Final = (
    " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), "
    "PARTITION p1 VALUES LESS THAN (100000))"
)
BOTH: Final = ("mariadb", "mysql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of statement.

    Attributes:
        says: what the docs call it.
        does: what Ratchet does.
        typed: the statements; `{t}` is the table.
        before: statements that come before the mirror is filled.
        table: what CREATE TABLE has behind the columns.
        on: the flavours that know it.
        tool: the tool that is run instead of statements, with `typed` as what it is told.
    """

    says: str
    does: Done
    typed: Sequence[str]
    before: Sequence[str] = ()
    table: str = ""
    on: Sequence[str] = BOTH
    tool: str = ""


def _alter(what: str, does: Done, **more: Any) -> Kind:
    return Kind(
        says=what.replace("{t}", "t"), does=does, typed=[f"ALTER TABLE {{t}} {what}"], **more
    )


_STREAMS_ON: Final = {
    "converted": "CONVERT TO CHARACTER SET utf8mb4",
    "other_charset": "MODIFY l VARCHAR(20) CHARACTER SET utf8mb4",
    "may_be_null": "MODIFY s VARCHAR(20) NULL",
    "null_last": "ADD x INT",
    "null_first": "ADD x VARCHAR(9) NULL FIRST",
    "null_after": "ADD x DATE AFTER id, ALGORITHM=INSTANT",
    "null_many": "ADD (x INT, y TEXT)",
    "null_json": "ADD x JSON",
    "longer": "MODIFY s VARCHAR(200) NOT NULL",
    "member_last": "MODIFY e ENUM('a','b','c')",
    "member_between": "MODIFY e ENUM('a','between','b')",
    "reordered": "MODIFY n INT AFTER id",
    "indexed": "ADD INDEX i (n)",
    "unique_index": "ADD UNIQUE i (n, id)",
    "text_index": "ADD FULLTEXT i (s)",
    "commented": "COMMENT 'of a table', MODIFY n INT COMMENT 'of a column'",
    "default_set": "ALTER n SET DEFAULT 5",
    "default_gone": "ALTER a DROP DEFAULT",
    "rebuilt": "ENGINE=InnoDB",
    "forced": "FORCE",
    "checked": "ADD CONSTRAINT positive CHECK (id >= 0)",
    "next_number": "AUTO_INCREMENT = 5000",
    "format_of_rows": "ROW_FORMAT=DYNAMIC",
    "later_charset": "DEFAULT CHARACTER SET utf8mb4",
}
_COMPARED: Final = {
    "less_exact": "MODIFY m DATETIME",
    "shorter": "MODIFY s VARCHAR(19) NOT NULL",
    "not_null": "MODIFY n INT NOT NULL",
    "other_order": "MODIFY u SET('q','p')",
}
COMPUTED: Final = {
    "number": "ADD x INT NOT NULL DEFAULT 7",
    "words": "ADD x VARCHAR(20) NOT NULL DEFAULT 'it''s none' AFTER id",
    "digits": "ADD x DECIMAL(9,3) DEFAULT -1.5",
    "label": "ADD x ENUM('new','old') NOT NULL FIRST",
    "moment": "ADD x DATETIME NOT NULL DEFAULT '2024-02-29 12:00:00'",
    "stamped": "ADD x TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP",
    "time_of_it": "ADD x DATETIME DEFAULT CURRENT_TIMESTAMP",
    "implicit": "ADD x BIGINT UNSIGNED NOT NULL, ADD (y VARCHAR(9) NOT NULL, z DOUBLE NOT NULL)",
    "gone": "DROP COLUMN n",
    "renamed": "RENAME COLUMN n TO renamed_n",
    "changed": "CHANGE n changed_n BIGINT",
    "swapped": "RENAME COLUMN s TO l, RENAME COLUMN l TO s",
    "replaced": "DROP COLUMN n, ADD COLUMN n INT NOT NULL DEFAULT 5",
    "wider": "MODIFY n BIGINT",
    "wider_key": "MODIFY id BIGINT NOT NULL",
    "wider_digits": "MODIFY d DECIMAL(20,2)",
    "more_digits": "MODIFY d DECIMAL(38,10)",
    "number_to_digits": "MODIFY n DECIMAL(12,2)",
    "narrower": "MODIFY w INT",
    "number_to_text": "MODIFY n VARCHAR(20)",
    "not_negative": "MODIFY n INT UNSIGNED",
    "day_to_moment": "MODIFY a DATETIME(3) NOT NULL DEFAULT '2024-03-01'",
    "key_renamed": "RENAME COLUMN id TO ident, ADD INDEX i (n)",
    "other_key": "DROP PRIMARY KEY, ADD PRIMARY KEY (id, s)",
    "several": "ADD x INT DEFAULT 1, DROP COLUMN w, RENAME COLUMN f TO g",
}
ASKED: Final = {
    "is_stored": "ADD x INT AS (n + 1) STORED",
    "not_stored": "ADD x INT AS (n + 1) VIRTUAL",
    "expression": "ADD x INT NOT NULL DEFAULT (1 + 2)",
    "counted": "ADD x INT NOT NULL AUTO_INCREMENT UNIQUE",
    "fewer_digits": "MODIFY d DECIMAL(10,1)",
    "more_exact": "MODIFY f DOUBLE",
    "bytes": "MODIFY s VARBINARY(200) NOT NULL",
    "digits_to_number": "MODIFY d INT",
    "no_time_of_day": "MODIFY m DATE",
    "asked_and_told": "ADD x INT DEFAULT 1, ADD y INT AS (id * 2) STORED, DROP COLUMN w",
}
_DUMPED_AGAIN: Final = {
    "key_with_new_column": "DROP PRIMARY KEY, ADD k INT NOT NULL, ADD PRIMARY KEY (id, k)",
}

KINDS: Final[dict[str, Kind]] = {
    **{name: _alter(what, "streams on") for name, what in _STREAMS_ON.items()},
    "index_made": Kind(
        says="CREATE INDEX, DROP INDEX",
        does="streams on",
        typed=["CREATE INDEX i ON {t} (n)", "DROP INDEX i ON {t}"],
    ),
    "hidden_index": _alter(
        "ALTER INDEX i INVISIBLE", "streams on", table=", INDEX i (n)", on=["mysql"]
    ),
    "ignored_index": _alter(
        "ALTER INDEX i IGNORED", "streams on", table=", INDEX i (n)", on=["mariadb"]
    ),
    "index_renamed": _alter("RENAME INDEX i TO j", "streams on", table=", INDEX i (n)"),
    "optimized": Kind(
        says="OPTIMIZE TABLE, ANALYZE TABLE",
        does="streams on",
        typed=["OPTIMIZE TABLE {t}", "ANALYZE TABLE {t}"],
    ),
    "part_added": _alter(
        "ADD PARTITION (PARTITION p2 VALUES LESS THAN (MAXVALUE))", "streams on", table=PARTS
    ),
    "truncated": Kind(says="TRUNCATE TABLE", does="streams on", typed=["TRUNCATE TABLE {t}"]),
    **{name: _alter(what, "compared") for name, what in _COMPARED.items()},
    "referring": _alter("ADD FOREIGN KEY (n) REFERENCES {t}_up (id)", "compared"),
    **{name: _alter(what, "computed") for name, what in COMPUTED.items()},
    "ghost": Kind(
        says="gh-ost: ADD x INT NOT NULL DEFAULT 3, MODIFY n BIGINT, DROP COLUMN w",
        does="taken",
        typed=["ADD x INT NOT NULL DEFAULT 3, MODIFY n BIGINT, DROP COLUMN w"],
        tool="gh-ost",
    ),
    "toolkit": Kind(
        says="pt-online-schema-change: the same",
        does="taken",
        typed=["ADD x INT NOT NULL DEFAULT 3, MODIFY n BIGINT, DROP COLUMN w"],
        tool="pt-osc",
    ),
    **{name: _alter(what, "column read") for name, what in ASKED.items()},
    **{name: _alter(what, "dumped again") for name, what in _DUMPED_AGAIN.items()},
    "made_anew": Kind(
        says="DROP TABLE, CREATE TABLE",
        does="dumped again",
        typed=["DROP TABLE {t}", f"CREATE TABLE {{t}} ({COLUMNS})"],
    ),
    "away_and_back": Kind(
        says="RENAME TABLE away and back",
        does="dumped again",
        typed=["RENAME TABLE {t} TO {t}_x", "RENAME TABLE {t}_x TO {t}"],
    ),
    "put_aside": Kind(
        says="RENAME TABLE t TO old, new TO t",
        does="dumped again",
        typed=[
            "CREATE TABLE {t}_2 LIKE {t}",
            "INSERT INTO {t}_2 SELECT * FROM {t}",
            "RENAME TABLE {t} TO {t}_1, {t}_2 TO {t}",
        ],
    ),
    "part_exchanged": Kind(
        says="EXCHANGE PARTITION",
        does="dumped again",
        typed=["ALTER TABLE {t} EXCHANGE PARTITION p0 WITH TABLE {t}_other"],
        before=[f"CREATE TABLE {{t}}_other ({COLUMNS})"],
        table=PARTS,
    ),
    "part_truncated": _alter("TRUNCATE PARTITION p0", "computed", table=PARTS),
    "part_dropped": _alter("DROP PARTITION p0", "computed", table=PARTS),
    "part_reorganized": _alter(
        "REORGANIZE PARTITION p0 INTO (PARTITION q0 VALUES LESS THAN (50), "
        "PARTITION q1 VALUES LESS THAN (100))",
        "streams on",
        table=PARTS,
    ),
    "replaced_whole": Kind(
        says="CREATE OR REPLACE TABLE",
        does="dumped again",
        typed=[f"CREATE OR REPLACE TABLE {{t}} ({COLUMNS})"],
        on=["mariadb"],
    ),
    "created": Kind(
        says="CREATE TABLE", does="dumped", typed=[f"CREATE TABLE {{t}}_new ({COLUMNS})"]
    ),
    "created_like": Kind(
        says="CREATE TABLE ... LIKE", does="dumped", typed=["CREATE TABLE {t}_new LIKE {t}"]
    ),
    "created_select": Kind(
        says="CREATE TABLE ... SELECT",
        does="dumped",
        typed=["CREATE TABLE {t}_new (PRIMARY KEY (id)) SELECT * FROM {t}"],
    ),
}


def kinds_on(flavor: str) -> dict[str, Kind]:
    """The kinds that a flavour knows, by the names of their tables; `RATCHET_KINDS` names some."""
    some = os.environ.get("RATCHET_KINDS", "").split(",")
    return {
        name: kind
        for name, kind in KINDS.items()
        if flavor in kind.on and (some == [""] or name in some)
    }
