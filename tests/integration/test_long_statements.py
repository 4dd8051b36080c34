"""Statements of many MB in a log: capture reads on, in little memory, and rows are right."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from capture_kit import Capturer, run, server_rows, source_of

from lab.servers import Server

ROOT = Path(__file__).parents[2]
TEXT = 15_500_000  # MariaDB takes packets of 16 MB
MOST = 1 << 20  # KB that the whole process may take
# Peak memory by the kernel's book, since RLIMIT_AS also counts what threads only reserve.
CHILD = """
import pickle, sys
from pathlib import Path
from capture_kit import Capturer
from ratchet.ingest.capture import close_streams
source, folder, begin, known, seconds = pickle.loads(sys.stdin.buffer.read())
capturer = Capturer(source, Path(folder))
capturer.begin = begin
capturer.catch_up(known=known, seconds=seconds)
close_streams()
status = Path("/proc/self/status").read_text().splitlines()
print(*(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def test_a_long_statement_does_not_take_the_workers_memory(
    server: Server, database: str, tmp_path: Path
) -> None:
    """Of a procedure of 16 MB, in any database of the server, the worker took 4.6 GB."""
    other = f"{database}_other"
    run(server, f"CREATE DATABASE {other}", database=database)
    run(server, "CREATE TABLE t (id INT PRIMARY KEY, a INT)", database=database)
    run(server, "CREATE TABLE u (id INT PRIMARY KEY, a INT)", database=database)
    capturer = Capturer(source_of(server, database), tmp_path / "parent")
    text = "x" * TEXT
    try:
        run(server, "INSERT INTO t VALUES (1, 1)", database=database)
        run(server, f"CREATE PROCEDURE p() SELECT '{text}'", database=other)
        run(server, f"CREATE PROCEDURE p() SELECT '{text}'", database=database)
        remarks = "/* */" * (TEXT // 5)
        run(server, f"CREATE PROCEDURE q() SELECT 1 {remarks}", database=other)
        run(server, f"ALTER TABLE t COMMENT 'c' /* {text} */", database=database)
        run(server, f"CREATE TABLE t (a INT /* {text} */ COMMENT 'u')", database=other)
        run(server, "UPDATE t SET a = 2 WHERE id = 1", database=database)
        run(server, "INSERT INTO t VALUES (2, 7)", database=database)
        known = ("t", "u")
        given = pickle.dumps((
            capturer.source, str(tmp_path / "child"), capturer.begin, known, 300.0,
        ))  # fmt: skip
        ran = subprocess.run(
            [sys.executable, "-c", CHILD],
            input=given,
            capture_output=True,
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "/usr/bin:/bin"},
            timeout=600,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr.decode()[-3000:]
        assert int(ran.stdout) < MOST, ran.stdout
        again = Capturer(capturer.source, tmp_path / "child")
        rows = {key: row["a"] for key, row in again.final("t").items()}
        told = {key: row["a"] for key, row in server_rows(server, database, "t").items()}
        assert rows == told == {1: 2, 2: 7}
        # The ALTER rewrote nothing; nothing is in doubt.
        assert {event.effect for event in again.events()} <= {"rebuild"}
    finally:
        run(server, f"DROP DATABASE {other}", database=database)
