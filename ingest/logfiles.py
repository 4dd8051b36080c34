"""Change files read back in the order of the log, for the comparison with the server's log.

Lives here: `changes_in`. Does not live here: writing them (`files`), merging them (`merge`).

Invariant: memory for a batch of each file, or for its largest row, however long they are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow.parquet as pq

from ratchet.core.rounds import ChangeFile
from ratchet.core.schema import TableSchema
from ratchet.ingest.logcheck import LakeChange, LogDifference
from ratchet.store.batches import row_batches
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake
from ratchet.store.schemas import get_schema
from ratchet.store.segments import open_changes

_COLUMNS: Final = (
    "op", "token.shard", "token.gtid", "token.generation", "token.seq", "token.idx", "before",
    "after",
)  # fmt: skip


def changes_in(
    lake: Lake,
    files: Sequence[tuple[int, ChangeFile]],
    *,
    differ: Callable[[LogDifference], None],
) -> Iterator[LakeChange]:
    """The row changes of one shard's files, by seq and idx.

    Args:
        lake: the lake.
        files: with their rounds, in the order of rounds.
        differ: gets what is wrong with a file by itself: its order, and how many rows it has.

    Raises:
        LakeError: a file or a schema cannot be read.
    """
    schemas: dict[tuple[str, str], TableSchema] = {}
    rounds: dict[int, list[ChangeFile]] = {}
    for number, file in files:
        rounds.setdefault(number, []).append(file)
        if (file.table, file.schema) not in schemas:
            found = get_schema(lake, file.keyspace, file.table, file.schema)
            schemas[file.table, file.schema] = found
    for number, together in rounds.items():
        yield from heapq.merge(
            *(
                _changes(lake, number, file, schemas[file.table, file.schema], differ)
                for file in together
            ),
            key=lambda change: (change.token["seq"], change.token["idx"]),
        )


def _changes(
    lake: Lake,
    number: int,
    file: ChangeFile,
    schema: TableSchema,
    differ: Callable[[LogDifference], None],
) -> Iterator[LakeChange]:
    last: tuple[int, int] = (-1, -1)
    count = 0
    for row in _rows(lake, file):
        token = row["token"]
        place = token["seq"], token["idx"]
        if place <= last:
            differ(_of_file("rows of a change file are not in the log's order", number, file, row))
        last = place
        count += 1
        yield LakeChange(
            round=number,
            schema=schema,
            op=row["op"],
            token=token,
            before=row["before"],
            after=row["after"],
        )
    if count != file.rows:
        differ(
            LogDifference(
                what="a change file has another number of rows than its round says",
                round=number,
                gtid="",
                table=file.table,
                lake=f"{count:,}",
                server=f"{file.rows:,} by the round",
            )
        )


def _rows(lake: Lake, file: ChangeFile) -> Iterator[dict[str, Any]]:
    with data_file_errors(lake, file.path, "change"), open_changes(lake, file.path) as stream:
        for batch in row_batches(pq.ParquetFile(stream), _COLUMNS):
            yield from batch.to_pylist()


def _of_file(what: str, number: int, file: ChangeFile, row: dict[str, Any]) -> LogDifference:
    token = row["token"]
    return LogDifference(
        what=what,
        round=number,
        gtid=str(token["gtid"]),
        table=file.table,
        row=int(token["idx"]),
        lake=f"seq {token['seq']}",
    )
