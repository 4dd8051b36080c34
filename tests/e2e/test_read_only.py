"""A root file system that cannot be written to: the lake and TMPDIR alone can be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix_e2e import PASSWORD, TABLES, Ratchet, Writer, assert_identical, create_tables

from lab.servers import create_ratchet_user

# In a mount namespace of its own, so that nothing of it is seen outside.
READ_ONLY = """
set -e
mount --rbind / /mnt
mount -o remount,bind,ro /mnt
mount --bind "$WRITABLE" "/mnt$WRITABLE"
if touch /mnt/usr/written 2>/dev/null; then echo "it can be written to"; exit 99; fi
exec chroot /mnt env -C "$PWD" "$@"
"""


@pytest.mark.long
def test_only_the_lake_and_temporary_files_are_written(
    mysql: Any, database: str, make_ratchet: Callable[..., Ratchet], tmp_path: Path
) -> None:
    create_tables(mysql, database)
    create_ratchet_user(mysql, PASSWORD, [database])
    writer = Writer(mysql, database, seed=5)
    writer.start()
    while writer.transactions < 50 and writer.is_alive():
        writer.join(0.05)
    writer.finish()
    ratchet = make_ratchet({"-": mysql}, database)
    ratchet.inside = ("unshare", "--mount", "--map-root-user", "sh", "-c", READ_ONLY, "ratchet")
    (tmp_path / "tmp").mkdir()
    writable = {"WRITABLE": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    for command in (
        ("check",),
        ("run", "--until-caught-up"),
        ("status",),
        ("verify",),
        ("sql", "SELECT count(*) FROM shop.items"),
    ):
        ratchet.run(*command, **writable)
    assert assert_identical(ratchet.lake, [mysql], database, TABLES)
    assert not list((tmp_path / "tmp").iterdir())
