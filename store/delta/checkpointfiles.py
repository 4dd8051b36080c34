"""What a Delta table's log has in checkpoints: which there are, and the actions in one.

Lives here: reading them, and where they and the commits lie. Does not live here: what a table is
made of (`log`), when one is written and removed (`checkpoints`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.parquet as pq

from ratchet.core.errors import DAMAGE, DamagedFileError, TableFileError
from ratchet.store.delta.actions import STATE_KINDS, RemovedFile, StateAction, actions_of
from ratchet.store.failures import content_errors, damage_hint
from ratchet.store.files import Lake


def commit_path(path: str, version: int) -> str:
    """Where the commit of a version lies."""
    return f"{path}/_delta_log/{version:020d}.json"


def newest_checkpoint(lake: Lake, path: str) -> int | None:
    """The version of the newest whole checkpoint; None if there is none of the plain kind.

    Where the file that names it is torn, as behind a power loss, or gone while the log does not go
    back to its first commit any more, the checkpoints that are there are looked at.
    """
    text = lake.read_file(f"{path}/_delta_log/_last_checkpoint")
    if text is None:
        is_whole = lake.is_file(commit_path(path, 0)) or not lake.exists(f"{path}/_delta_log")
        return None if is_whole else max(checkpoint_versions(lake, path), default=None)
    try:
        last = json.loads(text)
        version = int(last["version"])
    except DAMAGE:
        return max(checkpoint_versions(lake, path), default=None)
    if "parts" in last:
        return None
    return version if lake.is_file(checkpoint_path(path, version)) else None


def checkpoint_versions(lake: Lake, path: str) -> list[int]:
    """The versions of all plain checkpoints."""
    names = (file.path.rpartition("/")[2] for file in lake.list(f"{path}/_delta_log"))
    found = (name.split(".") for name in names if name.endswith(".checkpoint.parquet"))
    return [int(parts[0]) for parts in found if len(parts) == 3 and parts[0].isdigit()]


def checkpoint_path(path: str, version: int) -> str:
    """Where the checkpoint of a version lies."""
    return f"{path}/_delta_log/{version:020d}.checkpoint.parquet"


def checkpoint_actions(lake: Lake, path: str, version: int) -> Iterator[StateAction]:
    """The actions of a checkpoint, without removals.

    Raises:
        TableFileError: it is damaged.
        LakeError: it cannot be read.
    """
    name = checkpoint_path(path, version)
    with _sound(lake, name), lake.open_input(name) as stream:
        file = pq.ParquetFile(stream)
        kinds = [one for one in STATE_KINDS if one != "remove"]
        wanted = [one for one in kinds if one in file.schema_arrow.names]
        for batch in file.iter_batches(columns=wanted):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                yield from actions_of(row)


@contextmanager
def _sound(lake: Lake, name: str) -> Iterator[None]:
    try:
        with content_errors(lake, name, "read a checkpoint"):
            yield
    except DamagedFileError as error:
        raise TableFileError(
            f"a checkpoint of a Delta table is damaged ({type(error.__cause__).__name__})",
            operation="read a checkpoint",
            table=name,
            hint=damage_hint(name),
        ) from error.__cause__


def checkpoint_removals(lake: Lake, path: str, version: int) -> list[RemovedFile]:
    """The removals that a checkpoint keeps.

    Raises:
        TableFileError: it is damaged.
        LakeError: it cannot be read.
    """
    name = checkpoint_path(path, version)
    fields = [f"remove.{one}" for one in ("path", "deletionTimestamp", "deletionVector")]
    with _sound(lake, name), lake.open_input(name) as stream:
        found = pq.ParquetFile(stream)
        if "remove" not in found.schema_arrow.names:
            return []
        rows = (row["remove"] for batch in found.iter_batches(columns=fields)
                for row in batch.to_pylist())  # fmt: skip
        return [RemovedFile.from_json(one) for one in rows if one and one["path"] is not None]
