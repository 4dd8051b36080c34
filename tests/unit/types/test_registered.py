"""Every column type is known wherever types are named: else it fails by name.

CONTRIBUTING.md lists the places. How the log holds a type is seen by the integration tests alone.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest

from ratchet.core.schema import Column, TableSchema
from ratchet.core.sql.columns import definition
from ratchet.core.sql.cursor import TokenCursor
from ratchet.core.sql.lexer import Mode, lex
from ratchet.core.types import FAMILIES, Family, InvalidValuePolicy, rule_for
from ratchet.ingest import logvalues
from ratchet.snapshot import keys
from ratchet.wire.decode import catalog, foreignkeys, logcolumns, samples, textcolumns

POLICY = InvalidValuePolicy()
NAMES = sorted({name for family in FAMILIES.values() for name in family.RULES})
EXAMPLES = {one.name: one for family in FAMILIES.values() for one in family.EXAMPLES}
SPATIAL = {
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geomcollection", "geometrycollection",
}  # fmt: skip
# A table whose key has one of these is dumped as a whole, or by another index.
NO_KEYS = {"float", "double", "json", "vector", *SPATIAL}
# Equal values of these are not always the same bytes: a cascade through one is a doubt.
NOT_EXACT = {
    "float", "double", "json", "vector", "char", "varchar", "tinytext", "text", "mediumtext",
    "longtext", "tinyblob", "blob", "mediumblob", "longblob", *SPATIAL,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_type_has_an_example(name: str) -> None:
    """Its row of docs/types.md comes from it, and so does what is tried with it."""
    assert name in EXAMPLES
    assert rule_for(EXAMPLES[name], POLICY).family in get_args(Family)


@pytest.mark.parametrize("family", get_args(Family))
@pytest.mark.parametrize(
    "registry",
    [logcolumns._READERS, textcolumns._READERS, logvalues._FORMS],
    ids=["log", "SELECT", "second decoder"],
)
def test_a_family_is_read_everywhere(registry: dict[str, Any], family: str) -> None:
    assert family in registry


def test_a_sample_goes_through_every_reader() -> None:
    """Kernels are compiled with it."""
    tried = {rule_for(column.type, POLICY).family for column in samples.every_reader().columns}
    assert tried >= set(get_args(Family)) - {"padded"}  # compiled with "binary"


@pytest.mark.parametrize("name", NAMES)
def test_whether_a_type_may_be_a_key_was_thought_of(name: str) -> None:
    assert (name in keys._KINDS) != (name in NO_KEYS)


@pytest.mark.parametrize("name", NAMES)
def test_whether_equal_values_are_the_same_was_thought_of(name: str) -> None:
    assert (name in foreignkeys._EXACT) != (name in NOT_EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_a_type_is_understood_in_an_alter(name: str) -> None:
    """Else a table stops at each ALTER that names it."""
    declared = name + ("('a', 'b')" if name in {"enum", "set"} else "")
    cursor = TokenCursor(lex(declared, Mode()).tokens)
    definition(cursor)
    assert cursor.done


# Their tables' maps name them, or all that a value's bytes are read by.
NAMED_BY_THE_LOG = set(NAMES) - {"uuid", "inet4", "inet6"}


@pytest.mark.parametrize("name", NAMES)
def test_whether_the_log_names_a_type_was_thought_of(name: str) -> None:
    """One that it does not name is asked of the server: by one list, for question and answer."""
    column = Column(name="c", type=EXAMPLES[name], nullable=True)
    schema = TableSchema(keyspace="k", table="t", columns=(column,), key=())
    hinted = catalog.hints(schema)
    assert (name not in hinted.values()) == (name in NAMED_BY_THE_LOG)
