"""Where everything lies in the lake: the one place that builds paths (docs/formats.md).

Pure functions; all paths are relative to the lake's root, with "/" between parts.
Invariant: two different names give the same path only if somebody has looked for such long ones
(`jobs.topology.discover.sharing_folder`).
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

PRIVATE: Final = "_ratchet"
FORMAT_FILE: Final = f"{PRIVATE}/format.json"
LEASE_FILE: Final = f"{PRIVATE}/lease.json"
ROUNDS: Final = f"{PRIVATE}/rounds"
CUTS: Final = f"{PRIVATE}/cuts"
TABLES: Final = f"{PRIVATE}/tables"
CHANGES: Final = f"{PRIVATE}/changes"
SEGMENT_END: Final = ".segment"
# Segments with the change files of many old rounds. No keyspace has this folder: see segment_path.
BUNDLED: Final = f"{CHANGES}/@segments"
SCHEMAS: Final = f"{PRIVATE}/schemas"
SIDE: Final = f"{PRIVATE}/side"
# Tables that are dumped anew while what they were stays readable.
STAGED: Final = f"{PRIVATE}/staged"
# What the lake types of dates were chosen by when a run began last.
DATES_FILE: Final = f"{PRIVATE}/dates.json"
# Shard -> the database that its tables are read from.
DATABASES_FILE: Final = f"{PRIVATE}/databases.json"
# Keyspaces whose servers compare names without regard to letter case, as a JSON list.
FOLDED_FILE: Final = f"{PRIVATE}/folded.json"
# Shard -> its server, when that was started, and what else `jobs.preflight.restarts` notes of it.
STARTS_FILE: Final = f"{PRIVATE}/starts.json"
# When old files of which table were removed last.
UPKEEP_FILE: Final = f"{PRIVATE}/upkeep.json"
# Tables that the config names and a run leaves out.
LEFT_OUT_FILE: Final = f"{PRIVATE}/left_out.json"
# What ended the last run.
ENDING_FILE: Final = f"{PRIVATE}/ending.json"
# The sources that the run goes on without.
ASIDE_FILE: Final = f"{PRIVATE}/aside.json"
# The foreign keys of all tables, by keyspace.
FOREIGN_KEYS_FILE: Final = f"{PRIVATE}/foreign_keys.json"
# When rows were written last by sessions that do not look at foreign keys.
UNCHECKED_FILE: Final = f"{PRIVATE}/unchecked.json"
# Tables whose merges have ended runs, or are being tried.
ATTEMPTS_FILE: Final = f"{PRIVATE}/attempts.json"
DERIVED: Final = f"{PRIVATE}/derived"
LOG_CHECKED: Final = f"{PRIVATE}/log_checked"
# What bundles have taken the place of, and those that are being made.
BUNDLES: Final = f"{PRIVATE}/bundles"
REQUESTS: Final = f"{PRIVATE}/requests"
# What a run has answered to requests.
ANSWERS: Final = f"{PRIVATE}/answers"
# Tables whose files are being removed.
REMOVALS: Final = f"{PRIVATE}/removals"
# How tables are partitioned at the source.
PARTITIONS: Final = f"{PRIVATE}/partitions"
VERIFIED: Final = f"{PRIVATE}/verified"
PASS: Final = f"{PRIVATE}/pass"
# Notes are replaced, without a condition: each epoch's holders have a folder of their own.
NOTES: Final = f"{PRIVATE}/notes"
EPOCHS: Final = f"{PRIVATE}/epochs"
NOTED: Final = (TABLES, VERIFIED, PASS, LOG_CHECKED, ANSWERS, BUNDLES, REMOVALS, PARTITIONS)
NOTED_FILES: Final = (
    DATES_FILE,
    DATABASES_FILE,
    FOLDED_FILE,
    STARTS_FILE,
    UPKEEP_FILE,
    LEFT_OUT_FILE,
    ENDING_FILE,
    ASIDE_FILE,
    FOREIGN_KEYS_FILE,
    UNCHECKED_FILE,
    ATTEMPTS_FILE,
)

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$-")
_WHOLE = re.compile(r"(?:[^@]|@[0-9A-F]{2})+", re.DOTALL)  # an encoded part that is not cut
_LONGEST = 200  # bytes; file systems allow 255, and files add their own endings
_KEPT = 150


def encode_part(name: str) -> str:
    """A keyspace, table or shard name as one part of a path.

    Letters, digits, `_`, `$`, `-` and inner dots stay; everything else becomes @XX of its UTF-8
    bytes, and so does a leading `_`, which readers of Delta and Spark take for hidden. A result
    longer than 200 bytes is cut and ends in `@-` and a hash of the name. The escape is not `%`,
    because deltalake 1.6.6 decodes %XX in local paths when it reads, though not when it creates.

    >>> encode_part("orders"), encode_part("_tmp"), encode_part("a.b"), encode_part("größe/1")
    ('orders', '@5Ftmp', 'a.b', 'gr@C3@B6@C3@9Fe@2F1')
    >>> encode_part(".."), encode_part("-80")
    ('@2E@2E', '-80')

    Raises:
        ValueError: the name is empty.
    """
    if not name:
        raise ValueError("an empty name has no path")
    raw = name.encode()
    last = len(raw) - 1
    parts = [
        chr(byte)
        if (byte in _PLAIN and not (at == 0 and byte == ord("_")))
        or (byte == ord(".") and 0 < at < last and raw[at - 1] != byte)
        else f"@{byte:02X}"
        for at, byte in enumerate(raw)
    ]
    text = "".join(parts)
    if len(text) <= _LONGEST:
        return text
    head = ""
    for part in parts:
        if len(head) + len(part) > _KEPT:
            break
        head += part
    return f"{head}@-{hashlib.sha256(raw).hexdigest()[:16]}"


def table_path(keyspace: str, table: str) -> str:
    """The mirrored Delta table."""
    return f"{encode_part(keyspace)}/{encode_part(table)}"


def is_tables_own(path: str) -> bool:
    """Whether a path is a table's own: the other tables are none the worse if it is damaged.

    Args:
        path: in the lake.
    """
    return not path.startswith(f"{PRIVATE}/") or path.startswith((f"{SIDE}/", f"{STAGED}/"))


def is_of_logs(path: str) -> bool:
    """Whether a path is of the log of rounds, or of the cuts.

    Args:
        path: in the lake.
    """
    return path.startswith((f"{ROUNDS}/", f"{CUTS}/"))


def table_of_state(path: str) -> tuple[str, str] | None:
    """Keyspace and table of a state file; None if the path has only a part of a name.

    >>> table_of_state("_ratchet/notes/000000000003/tables/shop/a@2Eb.json")
    ('shop', 'a.b')

    Args:
        path: in the lake.
    """
    plain = plain_path(path).removeprefix(f"{TABLES}/").removesuffix(".json")
    keyspace, _, table = plain.partition("/")
    if not (_WHOLE.fullmatch(keyspace) and _WHOLE.fullmatch(table)):
        return None
    return _decode_part(keyspace), _decode_part(table)


def table_of(path: str) -> str:
    """keyspace.table, of a file among a table's own: rows, tombstones and shadows, changes.

    >>> table_of("shop/a@2Eb@2E/x.parquet"), table_of("_ratchet/side/shop/t/d/_delta_log/1.json")
    ('shop.a.b.', 'shop.t')
    >>> table_of("_ratchet/rounds/1.json"), table_of("shop/" + encode_part("ä" * 90) + "/x")
    ('', '')
    >>> table_of("_ratchet/changes/shop/@segments/1.segment"), table_of("shop")
    ('', '')
    >>> table_of("_ratchet/changes/@segments/1.segment")
    ''

    Args:
        path: in the lake.

    Returns:
        Empty: it is none's alone, or the path has only a part of the name.
    """
    for head in (f"{SIDE}/", f"{STAGED}/", f"{CHANGES}/"):
        path = path.removeprefix(head)
    keyspace, _, rest = path.partition("/")
    table = rest.partition("/")[0]
    if keyspace == PRIVATE or not (_WHOLE.fullmatch(keyspace) and _WHOLE.fullmatch(table)):
        return ""
    return f"{_decode_part(keyspace)}.{_decode_part(table)}"


def _decode_part(text: str) -> str:
    plain, *escaped = text.split("@")
    return b"".join(
        [plain.encode(), *(bytes.fromhex(one[:2]) + one[2:].encode() for one in escaped)]
    ).decode(errors="replace")


def side_path(keyspace: str, table: str, dump: str) -> str:
    """The Delta table of a mirrored table's tombstones and shadows since that dump began.

    A new dump begins with a new one: what the old one knew is not about the new rows.
    """
    return f"{SIDE}/{table_path(keyspace, table)}/{encode_part(dump)}"


def staged_path(keyspace: str, table: str, dump: str) -> str:
    """The Delta table that a dump fills before it takes the mirrored table's place."""
    return f"{STAGED}/{table_path(keyspace, table)}/{encode_part(dump)}"


def state_path(keyspace: str, table: str) -> str:
    """The TableState file."""
    return f"{TABLES}/{table_path(keyspace, table)}.json"


def removal_path(keyspace: str, table: str) -> str:
    """The note that a table's files are being removed."""
    return f"{REMOVALS}/{table_path(keyspace, table)}.json"


def partitions_path(keyspace: str, table: str) -> str:
    """How a table is partitioned at the source."""
    return f"{PARTITIONS}/{table_path(keyspace, table)}.json"


def verified_path(keyspace: str, table: str) -> str:
    """What the last comparison of a table with its source came to."""
    return f"{VERIFIED}/{table_path(keyspace, table)}.json"


def log_checked_path(keyspace: str, shard: str) -> str:
    """What samples of a shard's log came to."""
    return f"{LOG_CHECKED}/{encode_part(keyspace)}/{encode_part(shard)}.json"


def changes_path(keyspace: str, table: str) -> str:
    """The folder of a table's change files."""
    return f"{CHANGES}/{table_path(keyspace, table)}"


def change_file_path(
    keyspace: str, table: str, *, round_number: int, shard: str, schema: str, part: int
) -> str:
    """A new change file.

    Args:
        keyspace: keyspace of the table.
        table: its name.
        round_number: the round that will hold the file.
        shard: the shard's name, with or without its keyspace ("shop/-80" or "-80").
        schema: fingerprint of the table's schema.
        part: counts the files of the same round, shard, table and schema.
    """
    name = encode_part(shard.rpartition("/")[2])
    return f"{changes_path(keyspace, table)}/{round_number:012d}-{name}-{schema}-{part}.parquet"


def segment_path(keyspace: str, *, round_number: int, shard: str, part: int) -> str:
    """A new segment: small change files of several tables (store.segments).

    No table has its folder, since no name is encoded with an `@s` in it.

    Args:
        keyspace: of the tables.
        round_number: see change_file_path.
        shard: likewise.
        part: counts the segments of the same round and shard.
    """
    name = encode_part(shard.rpartition("/")[2])
    folder = f"{CHANGES}/{encode_part(keyspace)}/@segments"
    return f"{folder}/{round_number:012d}-{name}-{part}{SEGMENT_END}"


def bundle_path(first: int, last: int, *, part: int) -> str:
    """A new bundle: a segment with the small change files of many rounds (store.bundles).

    Args:
        first: the first of the rounds.
        last: the last one with a file in it. Its name begins with that: it goes with that round.
        part: makes it unique.
    """
    return f"{BUNDLED}/{last:012d}-{first:012d}-{part}{SEGMENT_END}"


def bundle_note_path(bundle: str) -> str:
    """The note about a bundle.

    Args:
        bundle: its path.
    """
    return f"{BUNDLES}/{bundle.rpartition('/')[2].removesuffix(SEGMENT_END)}.json"


def derived_file_path(keyspace: str, table: str, *, round_number: int, part: int) -> str:
    """A new file of changes that followed from others by foreign keys, for one merge step.

    Args:
        keyspace: keyspace of the table.
        table: its name.
        round_number: the round that the step goes to.
        part: makes it unique.
    """
    return f"{DERIVED}/{table_path(keyspace, table)}/{round_number:012d}-{part}.parquet"


def schema_path(keyspace: str, table: str, fingerprint: str) -> str:
    """The TableSchema file of that fingerprint."""
    return f"{SCHEMAS}/{table_path(keyspace, table)}/{fingerprint}.json"


def noted_path(path: str, epoch: int) -> str:
    """Where a note (a file that is replaced, not added to) lies for the holders of an epoch.

    Args:
        path: as it lies in a lake that was never held: below `_ratchet`.
        epoch: theirs; 0: the lake was written by a version without epochs, or never held.
    """
    if not epoch:
        return path
    return f"{NOTES}/{epoch:012d}/{path.removeprefix(PRIVATE + '/')}"


def plain_path(path: str) -> str:
    """A note's path as it lies in a lake that was never held; other paths as they are.

    >>> plain_path("_ratchet/notes/000000000003/ending.json"), plain_path("_ratchet/lease.json")
    ('_ratchet/ending.json', '_ratchet/lease.json')
    """
    if not path.startswith(NOTES + "/"):
        return path
    return f"{PRIVATE}/{path.removeprefix(NOTES + '/').partition('/')[2]}"


def epoch_path(epoch: int) -> str:
    """The marker by which the notes of an epoch become those that are read."""
    return f"{EPOCHS}/{epoch:012d}.json"
