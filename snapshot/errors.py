"""What goes wrong with one table alone while it is read."""

from __future__ import annotations

from ratchet.core.errors import TableStoppedError


class ShapeChangedError(TableStoppedError):
    """A table changed its columns in the middle of its dump: only a new dump is right."""


class ShardsDifferError(TableStoppedError):
    """A table's shards differ in columns or keys: a statement goes from one to the next."""
