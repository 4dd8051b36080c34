"""A place that is a lake, and the format of it, by which earlier versions are kept out.

Lives here: opening a lake, making one, and what each format number means. Does not live here: its
files (`files`), where they are (`layout`), what is in them (docs/formats.md).
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

from ratchet.core.errors import LakeError
from ratchet.store import layout
from ratchet.store.failures import damage_hint, lake_errors, sound
from ratchet.store.fields import number_of
from ratchet.store.files import Lake

FORMAT_VERSION = 1  # of a lake that was never held with an epoch
HELD_FORMAT = 2  # of one that was: earlier versions would not find its notes, and dump all again
PARTS_FORMAT = 3  # of one with segments: earlier versions would take what is in them for gone
STAGED_FORMAT = 4  # of one with staged tables: earlier versions would merge into what is shown
COMPUTED_FORMAT = 5  # of one with computed tables: earlier versions would dump into one as well
BUNDLES_FORMAT = 6  # of one with bundles: earlier versions would remove one with its first round
ASKED_FORMAT = 7  # of one with columns read again: earlier versions would show half of that
# Of one with a staged table that has files of the shown one: earlier versions would add each to it
# by the commit that takes it away.
CARRIED_FORMAT = 8
_KNOWN = (
    FORMAT_VERSION, HELD_FORMAT, PARTS_FORMAT, STAGED_FORMAT, COMPUTED_FORMAT, BUNDLES_FORMAT,
    ASKED_FORMAT, CARRIED_FORMAT,
)  # fmt: skip


def open_lake(root: str | os.PathLike[str], *, now: int, create: bool = True) -> Lake:
    """The lake at `root`, checked to be ours; an empty place becomes a new lake.

    Args:
        root: path or URL.
        now: the time noted in a new lake, microseconds UTC.
        create: whether an empty place may become a lake.

    Raises:
        LakeError: the place holds something else, a lake of another format, or nothing and
            `create` is False.
    """
    lake = Lake.at(root)
    found = lake.read_json(layout.FORMAT_FILE)
    if found is None:
        if not is_unused(lake):
            if lake.list(f"{layout.ROUNDS}/_delta_log", recursive=False):
                raise LakeError(
                    f"{layout.FORMAT_FILE} is gone from {lake.root}",
                    operation="open the lake",
                    hint=damage_hint(layout.FORMAT_FILE),
                )
            raise LakeError(
                f"{lake.root} holds files, but is not a lake of Ratchet's",
                operation="open the lake",
                hint="point `lake:` at an empty or new folder",
            )
        if not create:
            raise LakeError(
                f"there is no lake at {lake.root}",
                operation="open the lake",
                hint="check `lake:` in the config; `ratchet run` creates it",
            )
        value = {"format": FORMAT_VERSION, "id": str(uuid.uuid4()), "created_at": now}
        lake.create_json(layout.FORMAT_FILE, value)
        found = lake.read_json(layout.FORMAT_FILE)
    with sound(layout.FORMAT_FILE):
        version = number_of(found, "format")
    if version not in _KNOWN:
        raise LakeError(
            f"the lake has format {version}, this is Ratchet for format {_KNOWN[-1]}",
            operation="open the lake",
            hint="use the version of Ratchet that wrote it, or another lake",
        )
    return lake


def need_format(lake: Lake, version: int) -> None:
    """Keep out versions of Ratchet that know only lower formats; it never gets lower again.

    To be called before what they would misread is there. Whoever comes late may have read the
    format before its successor raised it: it is looked at again when it is changed.

    Args:
        lake: the lake.
        version: the format that a reader has to know.

    Raises:
        LakeError: the lake cannot be read or written.
    """

    def raised(found: Any) -> Any:
        with sound(layout.FORMAT_FILE):
            lower = found is not None and number_of(found, "format") < version
        return {**found, "format": version} if lower else found

    before = lake.read_json(layout.FORMAT_FILE)
    if raised(before) != before:
        lake.change_json(layout.FORMAT_FILE, raised)


def is_unused(lake: Lake) -> bool:
    """Whether a lake may be made there: nothing is in the way but what a killed try has left."""
    if _names(lake) not in ([], [layout.PRIVATE]):
        return False
    folder, _, name = layout.FORMAT_FILE.rpartition("/")
    left = (file.path.rpartition("/")[2] for file in lake.list(folder, unfinished=True))
    return all(one.startswith(f".{name}.") for one in left)


def _names(lake: Lake) -> list[str]:
    """What is in the lake's own folder."""
    with lake_errors("list the lake"):
        if lake.is_local:
            try:
                return [one.name for one in Path(lake.absolute()).iterdir()]
            except FileNotFoundError:
                return []
        selector = pa.fs.FileSelector(lake.absolute(), allow_not_found=True)
        return [info.base_name for info in lake.filesystem.get_file_info(selector)]
