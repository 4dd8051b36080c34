"""What Vitess notes of its workflows, as values: the journal of a reshard, sources, positions.

It comes as a message (VStream) and as text in the rows of the sidecar database `_vt` (a tablet's
binlog). Both have the same names.
"""

from __future__ import annotations

from typing import Any, Final

from ratchet.core.errors import DecodeError
from ratchet.core.gtid import GtidSet
from ratchet.core.position import Position
from ratchet.core.rounds import Journal
from ratchet.core.shard import ShardId
from ratchet.wire.vstreamproto import messages

FLAVOR: Final = "MySQL56/"  # Vitess's name for MySQL's GTIDs, in front of every position
_OPERATION: Final = "follow a reshard"


def journal_of(message: Any, shard: ShardId) -> Journal | None:
    """How a journal ends a shard's stream; None if it does not: tables move, not shards.

    Args:
        message: a Journal of proto/vstream.proto.
        shard: whose stream it stands in.

    Raises:
        DecodeError: it is another shard's, or says less than it should.
    """
    if message.migration_type != messages().SHARDS:
        return None
    sources = [ShardId(one.keyspace, one.shard) for one in message.participants]
    targets = {
        str(ShardId(one.keyspace, one.shard)): Position(executed=executed_of(one.gtid))
        for one in message.shard_gtids
    }
    if shard not in sources or not targets:
        raise _refusal(f"a journal that is not of {shard}: {message}")
    return Journal(sources=tuple(map(str, sources)), targets=targets)


def parse_journal(text: bytes) -> Any:
    """The message in `_vt.resharding_journal.val`.

    Raises:
        DecodeError: the text is none.
    """
    return _parsed(text, messages().Journal())


def parse_source(text: bytes) -> ShardId:
    """The shard that a stream of VReplication copies from, of `_vt.vreplication.source`.

    Raises:
        DecodeError: the text names none.
    """
    found = _parsed(text, messages().KeyspaceShard())
    return ShardId(found.keyspace, found.shard)


def executed_of(text: str) -> GtidSet:
    """A position as Vitess writes it.

    Raises:
        DecodeError: it is not MySQL's.
    """
    if not text.startswith(FLAVOR):
        raise _refusal(f"a position that is not MySQL's: {text[:100]!r}")
    return GtidSet.parse("mysql", text.removeprefix(FLAVOR))


def _parsed(text: bytes, message: Any) -> Any:
    from google.protobuf import text_format

    try:
        # Of a source only keyspace and shard are read; a later Vitess may add fields.
        return text_format.Parse(text, message, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(f"a text that is not a {message.DESCRIPTOR.name}: {text[:200]!r}") from error


def _refusal(what: str) -> DecodeError:
    return DecodeError(
        f"Vitess wrote {what}",
        operation=_OPERATION,
        hint="nothing was skipped: use a version of Ratchet that knows it, or report it",
    )
