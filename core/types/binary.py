"""BINARY, VARBINARY, BLOB, the geometry types and VECTOR: whatever the lake holds as bytes."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ratchet.core.schema import ColumnType
from ratchet.core.types.rule import Rules, TypeRule, always

GEOMETRIES: Final = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geomcollection",
    "geometrycollection",
)
_BLOBS: Final = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")

_BLOB: Final = TypeRule(family="binary", arrow=pa.binary())
_BINARY: Final = TypeRule(
    family="padded",
    arrow=pa.binary(),
    note="padded with zero bytes to its length, as SELECT gives it",
)
_GEOMETRY: Final = TypeRule(
    family="binary",
    arrow=pa.binary(),
    note="the server's own form: SRID in 4 bytes (little-endian), then WKB",
)
_VECTOR: Final = TypeRule(
    family="binary",
    arrow=pa.binary(),
    note="32-bit floats (little-endian), one after the other",
)

RULES: Final[Rules] = {
    **dict.fromkeys(_BLOBS, always(_BLOB)),
    **dict.fromkeys(GEOMETRIES, always(_GEOMETRY)),
    "binary": always(_BINARY),
    "vector": always(_VECTOR),
}

EXAMPLES: Final = (
    ColumnType(name="binary", length=16),
    *(ColumnType(name=name) for name in _BLOBS),
    *(ColumnType(name=name) for name in GEOMETRIES),
    ColumnType(name="vector", length=12),
)
