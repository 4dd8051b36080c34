"""Every column type is known to readers, samples, keys and foreign keys: else it fails by name.

CONTRIBUTING.md lists the other places, which nothing here sees: hints, and the words of an ALTER.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest

from ratchet.core.types import FAMILIES, Family, InvalidValuePolicy, rule_for
from ratchet.ingest import logvalues
from ratchet.snapshot import keys
from ratchet.wire.decode import foreignkeys, logcolumns, samples, textcolumns

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
