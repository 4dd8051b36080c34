"""When a Delta table's log gets a checkpoint, and what of the log is removed.

Lives here: writing checkpoints, and removing those that no reader needs. Does not live here:
reading them (`log`), the data files of old versions (`store.retention`).

A checkpoint has all files of the newest version, and all that were removed within the time that the
table's properties say. With a commit every two seconds and a history of a week that is a million of
names, 85 MB, of which a checkpoint behind each twentieth commit would write two thousand a day. So
a large one comes less often, and of the old ones few stay: a version is read from the checkpoint
before it and the commits between, which all stay.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from typing import Final

from deltalake import DeltaTable

from ratchet.core.errors import DAMAGE, LakeError
from ratchet.store.delta.errors import delta_errors
from ratchet.store.files import Lake, LakeFile

log: Final = logging.getLogger(__name__)

CHECKPOINT_EVERY: Final = 20  # commits at least, as `delta.checkpointInterval` of our tables says
_SELDOM: Final = 200  # commits at most: so many a reader may have to read
_NAMES: Final = 100  # that a checkpoint may write again for each commit before it comes less often
_APART: Final = 1000  # commits between two old checkpoints that stay
_IN_USE: Final = 3_600_000_000  # microseconds that a reader may take from the list to the file
_PLAIN: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")


def checkpoint_if_due(lake: Lake, path: str, version: int) -> None:
    """Write a checkpoint if one is due at this version, which has just been committed."""
    if version % CHECKPOINT_EVERY:
        return
    try:
        if version >= _due(lake, path):
            write_checkpoint(lake, path)
    except LakeError as error:
        # What was to be done is committed. The next one is due some commits from now.
        log.warning("%s: no checkpoint was written: %s", path, error)


def write_checkpoint(lake: Lake, path: str) -> None:
    """Put the state of the newest version into one file.

    Spark does so behind commits of its own only.

    Raises:
        LakeError: it cannot be written. The table is none the worse for it.
    """
    with delta_errors("write a checkpoint", path):
        DeltaTable(lake.delta_uri(path), storage_options=lake.storage_options).create_checkpoint()


def clean_log(lake: Lake, path: str, *, now: int) -> None:
    """Remove what of a table's log is older than its properties say, and needless checkpoints.

    Args:
        lake: the lake.
        path: the table's folder.
        now: microseconds UTC.

    Raises:
        LakeError: the log cannot be read or written.
    """
    with delta_errors("clean the log", path):
        # It keeps the checkpoint from which the oldest kept commit is read, and what is behind it.
        DeltaTable(lake.delta_uri(path), storage_options=lake.storage_options).cleanup_metadata()
    lake.delete_files(needless_checkpoints(lake.list(f"{path}/_delta_log"), now=now))


def needless_checkpoints(listed: Iterable[LakeFile], *, now: int) -> list[str]:
    """Those checkpoints without which each version is read with a thousand commits at most.

    The oldest and the newest one always stay, and young ones, whose names a reader may just hold.

    Args:
        listed: a log's files.
        now: microseconds UTC.
    """
    found = sorted(
        (int(match[1]), file)
        for file in listed
        if (match := _PLAIN.fullmatch(file.path.rpartition("/")[2]))
    )
    kept, needless = None, []
    for version, file in found[:-1]:
        is_old = 0 < file.modified_at < now - _IN_USE
        if kept is not None and version < kept + _APART and is_old:
            needless.append(file.path)
        else:
            kept = version
    return needless


def _due(lake: Lake, path: str) -> int:
    """The version behind which the next checkpoint is due."""
    text = lake.read_file(f"{path}/_delta_log/_last_checkpoint")
    try:
        last = json.loads(text or b"{}")
        version, names = int(last["version"]), int(last["size"])
    except DAMAGE:
        return 0  # there is none, or the file is torn: the next one mends it
    return version + min(max(CHECKPOINT_EVERY, names // _NAMES), _SELDOM)
