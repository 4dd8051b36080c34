"""A password is nowhere but where it was given: not in the lake, the logs, the output, the argument
lists of processes, Spark's event log or its temporary files, while commands run and afterwards."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from fix_e2e import Ratchet, end_of
from memory_kit import ChildWatch, pieces_of_memory
from process_kit import descendants

from lab.servers import create_ratchet_user

_ROUND_BYTES = 5 << 20
# Where a password may go wrong: quotes, backslashes, markup, what shells and formats read.
ODD = "p'\"\\<%s{0}$HOME`é"


class Watch(threading.Thread):
    """Looks for a text in every byte of some folders, and in the arguments of all processes.

    Attributes:
        found: where it was.
        looked: how many files, each version counted.
    """

    def __init__(self, text: str, folders: list[Path]) -> None:
        super().__init__(daemon=True)
        plain = text.encode()
        # As it is, in base64 at any offset, in UTF-16.
        coded = [base64.b64encode(b"\0" * n + plain)[4:-4] for n in range(3)]
        self._forms = [plain, *coded, text.encode("utf-16-le"), text.encode("utf-16-be")]
        self._folders = folders
        self._seen: dict[Path, tuple[int, int]] = {}
        self._over = threading.Event()
        self.found: set[str] = set()
        self.looked = self.processes = 0

    def run(self) -> None:
        while not self._over.wait(0.05):
            self.look()

    def finish(self) -> None:
        self._over.set()
        self.join()
        self.look()

    def holds(self, data: bytes) -> bool:
        return any(form in data for form in self._forms)

    def look(self) -> None:
        # Not Path.rglob: it fails where a folder goes while it is walked through.
        for folder, _, names in chain.from_iterable(map(os.walk, self._folders)):
            for name in names:
                # A file that is gone again was looked at before, or is too short-lived to be found.
                with contextlib.suppress(OSError):
                    self._look_at(Path(folder, name))
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                self.processes += 1
                if self.holds(path.read_bytes()):
                    self.found.add(f"the arguments of {path.parent.name}")

    def _look_at(self, path: Path) -> None:
        state = path.stat()
        version = state.st_size, state.st_mtime_ns
        if not path.is_file() or self._seen.get(path) == version:
            return
        self._seen[path] = version
        self.looked += 1
        if self.holds(path.read_bytes()) or self.holds(str(path).encode()):
            self.found.add(str(path))


@contextlib.contextmanager
def watched(ratchet: Ratchet, password: str, folder: Path) -> Iterator[Watch]:
    watch = Watch(password, [ratchet.lake, folder])
    watch.start()
    try:
        yield watch
    finally:
        watch.finish()


@pytest.fixture(
    params=[
        "environment",
        pytest.param("config", marks=pytest.mark.long),
        pytest.param("file", marks=pytest.mark.long),
    ]
)
def told(request: pytest.FixtureRequest) -> str:
    """How the config gets the password."""
    return str(request.param)


def prepared(
    make_ratchet: Callable[..., Ratchet], server: Any, database: str, folder: Path, told: str
) -> tuple[Ratchet, str]:
    """A config whose password nothing else has in it; all temporary files go into the folder."""
    unique = "Uniq" + secrets.token_hex(12)
    create_ratchet_user(server, f"{ODD}{unique}{ODD}", [database])
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", database=database)
    server.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')", database=database)
    # Small tables, and rounds behind which none was large, are read by the command itself.
    server.execute(
        "CREATE TABLE wide (id INT PRIMARY KEY, v LONGTEXT) AS "
        "SELECT seq AS id, REPEAT('x', 6000) AS v FROM seq_1_to_2000",
        database=database,
    )
    ratchet = make_ratchet({"-": server}, database, capture={"round_bytes": _ROUND_BYTES})
    ratchet.forks = False  # /proc shows its own command line and environment
    config = yaml.safe_load(ratchet.config.read_text())
    if told == "environment":
        ratchet.env["RATCHET_TEST_PASSWORD"] = f"{ODD}{unique}{ODD}"
    elif told == "config":
        text = f"{ODD}{unique}{ODD}".replace("${", "$${")
        config["sources"]["shop"]["shards"]["-"]["password"] = text
    else:
        secret = ratchet.config.parent / "secret"
        secret.touch(0o600)
        secret.write_text(f"{ODD}{unique}{ODD}\n")
        config["sources"]["shop"]["shards"]["-"]["password"] = {"file": "secret"}
    for name in ("tmp", "events", "logs"):
        (folder / name).mkdir(parents=True)
    config["spark"]["log_dir"] = str(folder / "logs")
    config["spark"]["conf"] |= {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.driver.extraJavaOptions": config["spark"]["conf"]["spark.driver.extraJavaOptions"]
        + f" -Djava.io.tmpdir={folder / 'tmp'}",
    }
    ratchet.config.write_text(yaml.safe_dump(config))
    ratchet.env |= {"TMPDIR": str(folder / "tmp"), "SPARK_LOCAL_DIRS": str(folder / "tmp")}
    return ratchet, unique


def change_much(server: Any, database: str) -> None:
    """Several rounds full of changes: from the second one on they are tasks of Spark's."""
    for part in range(4):
        server.execute(
            f"UPDATE wide SET v = REPEAT('y', 6000) WHERE id % 4 = {part}", database=database
        )


VERBOSE = ("--log-level", "debug", "--verbose")


def test_a_run_that_succeeds_and_one_that_fails(
    make_ratchet: Callable[..., Ratchet], mariadb: Any, database: str, tmp_path: Path, told: str
) -> None:
    folder = tmp_path / "watched"
    ratchet, unique = prepared(make_ratchet, mariadb, database, folder, told)
    with watched(ratchet, unique, folder) as watch:
        done = ratchet.run("run", "--until-caught-up", *VERBOSE)
        # Capture fails in a task of Spark's, with a traceback through everything.
        change_much(mariadb, database)
        for number in (1_000_000, 500_000):
            with mariadb.connect(database=database, autocommit=True) as connection:
                cursor = connection.cursor()
                cursor.execute(f"SET SESSION gtid_seq_no = {number}")
                cursor.execute("UPDATE t SET v = CONCAT(v, 'c')")
        failed = ratchet.run("run", "--until-caught-up", *VERBOSE, expect=3)
        assert "is not above the last one" in failed.stderr
        # And at once: the server does not know the account.
        mariadb.execute("ALTER USER ratchet@'%' IDENTIFIED BY 'another'")
        refused = ratchet.run("check", *VERBOSE, expect=3)
        told_so = refused.stdout + refused.stderr
        assert "login refused" in told_so
    for one in (done, failed, refused):
        assert not watch.holds((one.stdout + one.stderr).encode())
    assert watch.found == set()
    # It did look: at the lake, Spark's event log, its log, its temporary files.
    assert watch.looked > 30
    assert watch.processes > 10
    assert list((folder / "events").rglob("*"))
    assert list((folder / "logs").glob("run.*"))


def watched_children(ratchet: Ratchet, watch: Watch, *args: str) -> tuple[ChildWatch, str]:
    """A command to its end, with a look at all that it starts; and its output."""
    process = ratchet.start(*args)
    children = ChildWatch(process.pid, watch.holds)
    children.start()
    out, error = end_of(process, 600)
    children.finish()
    assert process.returncode == 0, error[-3000:]
    return children, out + error


@pytest.mark.long
def test_nothing_that_a_command_starts_holds_it(
    make_ratchet: Callable[..., Ratchet], mariadb: Any, database: str, tmp_path: Path, told: str
) -> None:
    """Not Java's memory, which hands tasks out; nobody's environment. Workers get it by name."""
    folder = tmp_path / "watched"
    ratchet, unique = prepared(make_ratchet, mariadb, database, folder, told)
    with watched(ratchet, unique, folder) as watch:
        for args in (("dump",), ("run", "--until-caught-up"), ("verify",)):
            if args[0] == "run":
                change_much(mariadb, database)
            children, said = watched_children(ratchet, watch, *args, *VERBOSE)
            assert children.found == set()
            assert children.java >= 3
            assert len(children.children) >= 3, "Java, and Python's workers"
            assert not watch.holds(said.encode())
    assert watch.found == set()


def test_the_look_at_memory_finds_what_is_there() -> None:
    text = f"Uniq{secrets.token_hex(12)}"
    command = "import sys; text = sys.stdin.readline(); print('read', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{text}\n")
        process.stdin.flush()
        process.stdout.readline()
        assert process.pid in descendants(os.getpid())
        assert any(text.encode() in piece for piece in pieces_of_memory(process.pid))
        process.stdin.close()


def test_the_watch_finds_what_it_looks_for(tmp_path: Path) -> None:
    watch = Watch("Uniq0123456789abcdef", [tmp_path])
    for number, data in enumerate(
        (
            b"x Uniq0123456789abcdef y",
            base64.b64encode(b"some json: Uniq0123456789abcdef, and more"),
            "Uniq0123456789abcdef".encode("utf-16-be"),
        )
    ):
        (tmp_path / str(number)).write_bytes(data)
    watch.look()
    assert len(watch.found) == 3
