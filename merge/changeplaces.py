"""At which places of its stream the changes in a file stand."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.parquet as pq

from ratchet.core.errors import LakeError
from ratchet.core.rounds import ChangeFile
from ratchet.merge.failures import lost_changes
from ratchet.store.failures import data_file_errors
from ratchet.store.files import Lake
from ratchet.store.segments import open_changes


def seqs_of(lake: Lake, file: ChangeFile) -> Sequence[int]:
    """The `seq` of each change in a file.

    Raises:
        TableStoppedError: the file is gone.
        LakeError: it cannot be read.
    """
    try:
        with data_file_errors(lake, file.path, "change"), open_changes(lake, file.path) as stream:
            rows = pq.ParquetFile(stream).read(columns=["token.seq"])
    except LakeError as error:
        gone = lost_changes(lake, f"{file.keyspace}.{file.table}", [file.path])
        if gone is None:
            raise
        raise gone from error
    seqs: list[int] = rows.flatten().column("token.seq").to_pylist()
    return seqs
