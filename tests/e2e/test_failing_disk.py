"""A lake whose file system fails otherwise than by being full: input/output errors, and a file
system that has become read-only, while a run dumps and while it streams.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from fix_disk import FailingDisk, Failure
from fix_e2e import (
    PASSWORD,
    TABLES,
    Ratchet,
    Writer,
    assert_identical,
    create_tables,
    end_of,
    status,
    wait_while_running,
)

from lab.servers import create_ratchet_user

# What the operating system says -> what the reader is told to do.
SAYS: Final[dict[Failure, tuple[str, str]]] = {
    "gone": ("input/output error", "dmesg"),
    "read-only": ("read-only file system", "mount it writable"),
}
ROWS: Final = 20_000
CHUNK: Final = 500
PATIENCE: Final = 300.0  # seconds for what takes some 30 s on two cores


@pytest.mark.long
@pytest.mark.parametrize("how", ["gone", "read-only"])
def test_failing_disk(
    how: Failure,
    mariadb: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    make_failing_disk: Callable[[Path, int], FailingDisk],
) -> None:
    """The run ends by name each time; mended, the next one goes on, and no row differs."""
    create_tables(mariadb, database)
    _create_big(mariadb, database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet(
        {"-": mariadb}, database, lake="./disk/lake", snapshot={"parallel": 2, "chunk_rows": CHUNK}
    )
    disk = make_failing_disk(ratchet.config.parent / "disk", 500 << 20)
    ratchet.inside = disk.inside
    lake = disk.seen / "lake"
    writer = Writer(mariadb, database, seed=5)
    writer.start()

    # While it dumps: some chunks are in, and most are not.
    running = ratchet.start("run")
    wait_while_running(
        running, lambda: _count(lake / "shop" / "big", "dump-*.parquet") >= 10, within=PATIENCE
    )
    disk.fail(how)
    _ended(running, how)
    assert _count(lake / "shop" / "big", "dump-*.parquet") < ROWS // CHUNK
    _refused(ratchet, how)
    disk.mend()

    # While it streams.
    running = ratchet.start("run")
    cuts = lake / "_ratchet" / "cuts"
    seen = _count(cuts, "*.parquet")
    wait_while_running(running, lambda: _count(cuts, "*.parquet") > seen + 1, within=PATIENCE)
    disk.fail(how)
    _ended(running, how)
    disk.mend()

    writer.finish()
    ratchet.run("run", "--until-caught-up", timeout=600)
    found = disk.copy("lake", ratchet.config.parent / "found")
    rows = assert_identical(found, [mariadb], database, (*TABLES, "big"))
    assert rows > ROWS
    assert {table["phase"] for table in status(ratchet)["tables"]} == {"streaming"}


def _create_big(server: Any, database: str) -> None:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE big (id INT PRIMARY KEY, note VARCHAR(40) NOT NULL)")
        for first in range(0, ROWS, 5000):
            cursor.executemany(
                "INSERT INTO big VALUES (%s, %s)",
                [(number, f"note {number}") for number in range(first, first + 5000)],
            )


def _count(folder: Path, pattern: str) -> int:
    return len(list(folder.glob(pattern)))


def _ended(running: subprocess.Popen[str], how: Failure) -> None:
    _, err = end_of(running, PATIENCE)
    _assert_told(running.returncode, err, how)
    assert "error: lock the lease" not in err, "the first error is told, not the last"


def _refused(ratchet: Ratchet, how: Failure) -> None:
    """A run that is begun on it ends the same way; what can be read is shown."""
    done = ratchet.run("run", "--until-caught-up", expect=None)
    _assert_told(done.returncode, done.stderr, how)
    done = ratchet.run("status", expect=None)
    if how == "read-only":
        assert done.returncode == 0, done.stderr
    else:
        _assert_told(done.returncode, done.stderr, how)


def _assert_told(code: int, err: str, how: Failure) -> None:
    told, remedy = SAYS[how]
    assert code == 7, err
    message, hint = err.rpartition("ratchet: error: ")[2].split("\n", maxsplit=1)
    assert told in message.lower(), err
    assert remedy in hint, err
    assert "Traceback" not in err
    assert "trying again" not in err  # nothing is, that a person has to mend
