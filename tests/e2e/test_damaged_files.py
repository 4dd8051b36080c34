"""Each JSON file that a run leaves in a lake is torn, and what the next run says is typed."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from fix_e2e import PASSWORD, Ratchet, assert_identical, status

from lab.servers import create_ratchet_user
from ratchet.store.cuts import Cuts
from ratchet.store.files import Lake
from ratchet.store.rounds import RoundLog
from ratchet.store.segments import part_of

TABLES = ("a", "b")


def begun(server: Any, database: str, make_ratchet: Callable[..., Ratchet], **more: Any) -> Ratchet:
    for table in TABLES:
        server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database=database)
        server.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)", database=database)
    create_ratchet_user(server, PASSWORD, [database])
    return make_ratchet({"-": server}, database, **more)


@pytest.mark.long
def test_every_json_file_of_a_lake(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    ratchet = begun(mariadb, database, make_ratchet)
    for value in (10, 20):
        ratchet.run("run", "--until-caught-up")
        for table in TABLES:
            mariadb.execute(f"UPDATE {table} SET v = {value} WHERE id = 1", database=database)
    lake = Path(ratchet.lake)
    whole = f"{lake}-whole"
    shutil.copytree(lake, whole)
    files = [
        file.relative_to(lake)
        for file in sorted((lake / "_ratchet").rglob("*.json"))
        if "_delta_log" not in file.parts
    ]
    assert len(files) > 8, files
    told = []
    for file in files:
        shutil.rmtree(lake)
        shutil.copytree(whole, lake)
        (lake / file).write_bytes(b"")
        done = ratchet.run("run", "--until-caught-up", expect=None)
        assert done.returncode in {0, 6, 7}, (file, done.stderr)
        if done.returncode:
            told.append(file)
            follow(ratchet, done.stderr)
        # Fewer rows than before a table was dumped again, or as many: they are the source's.
        assert_identical(ratchet.lake, [mariadb], database, TABLES)
        ratchet.run("verify")
    assert {"format.json", "a.json", "starts.json"} <= {file.name for file in told}


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def misplaced_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def misplaced_file(path: Path) -> None:
    if path.exists():  # a table without hidden rows has no side table yet
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")


def newest(pattern: str) -> Callable[[Path], Path]:
    return lambda table: max(table.glob(f"_delta_log/{pattern}"))


def shown(table: Path) -> Path:
    """The commit that the newest cut names; behind it there may be some of the upkeep's."""
    cut = Cuts(Lake.at(table.parents[1])).last()
    assert cut is not None
    return table / "_delta_log" / f"{cut.tables[f'{table.parent.name}.{table.name}']:020d}.json"


def lost(path: Path) -> None:
    """It and all behind it, as where a folder is put back from a copy."""
    for one in path.parent.glob("*.json"):
        if one.name >= path.name:
            one.unlink()


def side_of(table: Path) -> Path:
    return table.parents[1] / "_ratchet" / "side" / table.parent.name / table.name


# What is hurt of a table, and how. "gone" and "empty" are what a power failure may leave.
DAMAGE: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "commit torn": (newest("*.json"), torn),
    "commit empty": (newest("*.json"), lambda path: path.write_bytes(b"")),
    "commits gone": (shown, lost),
    "commit a folder": (newest("*.json"), misplaced_folder),
    "commit before it gone": (
        lambda table: sorted(table.glob("_delta_log/*.json"))[-2],
        Path.unlink,
    ),
    "checkpoint torn": (newest("*.checkpoint.parquet"), torn),
    "name of the checkpoint torn": (newest("_last_checkpoint"), torn),
    "log a file": (lambda table: table / "_delta_log", misplaced_file),
    "table a file": (lambda table: table, misplaced_file),
    "side tables a file": (side_of, misplaced_file),
    "state torn": (lambda table: max(side_of(table).parents[2].rglob("tables/*/a.json")), torn),
}


@pytest.mark.parametrize("leased", [True, False])
@pytest.mark.parametrize(
    "kind",
    [
        one
        if one in {"commits gone", "table a file", "state torn"}
        else pytest.param(one, marks=pytest.mark.long)
        for one in DAMAGE
    ],
)
def test_a_table_is_damaged(
    mariadb: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    kind: str,
    *,
    leased: bool,
) -> None:
    """It stops by name, the others go on, and the command that is printed gets out.

    Also where the run that was there has not ended well, and is taken over.
    """
    ratchet = begun(mariadb, database, make_ratchet)
    for value in (5, 6):
        ratchet.run("run", "--until-caught-up")
        for table in TABLES:
            mariadb.execute(f"UPDATE {table} SET v = {value} WHERE id = 1", database=database)
            if "side" in kind:
                mariadb.execute(f"DELETE FROM {table} WHERE id = 2", database=database)
    table = ratchet.lake / "shop" / "a"
    if "checkpoint" in kind:
        DeltaTable(table).create_checkpoint()
    find, hurt = DAMAGE[kind]
    hurt(find(table))
    if not leased:
        (ratchet.lake / "_ratchet" / "lease.json").unlink()
    done = ratchet.run("run", "--until-caught-up", expect=None)
    harmless = kind in {"name of the checkpoint torn", "state torn"}
    assert done.returncode == (0 if harmless else 6), done.stderr
    assert_identical(ratchet.lake, [mariadb], database, ["b"])
    if kind == "state torn":
        assert "shop.a is dumped again" in done.stderr
        assert "its new dump is shown" in done.stderr, "it could be read all the time"
    if not harmless:
        assert "a is stopped" in done.stderr
        assert len(done.stderr) < 4000, done.stderr
        ratchet.redump_as_told(done.stderr)
        ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, TABLES)
    ratchet.run("verify")


@pytest.mark.parametrize(
    "hurt",
    [
        torn,
        pytest.param(lambda path: path.write_bytes(b""), id="empty", marks=pytest.mark.long),
    ],
)
def test_a_table_is_damaged_in_its_dump(
    mariadb: Any,
    database: str,
    make_ratchet: Callable[..., Ratchet],
    hurt: Callable[[Path], object],
) -> None:
    """Nothing of it counts yet: it is dumped from the start, and no command has to be typed."""
    ratchet = begun(mariadb, database, make_ratchet, snapshot={"chunk_rows": 300})
    ratchet.run("run", "--until-caught-up")
    mariadb.execute("CREATE TABLE big (id INT PRIMARY KEY, v INT)", database=database)
    mariadb.execute("INSERT INTO big SELECT seq, seq FROM seq_1_to_4000", database=database)
    ratchet.run("run", "--until-caught-up", crash_at="dump.after_commit", expect=-signal.SIGKILL)
    hurt(newest("*.json")(ratchet.lake / "shop" / "big"))
    (big,) = (one for one in status(ratchet)["tables"] if one["table"] == "big")
    assert big["phase"] == "dumping"
    assert hurt is not torn or "cannot be read" in big["stopped"]
    done = ratchet.run("run", "--until-caught-up")
    assert "what stood in shop/big could not be read" in done.stderr
    assert_identical(ratchet.lake, [mariadb], database, [*TABLES, "big"])


@pytest.mark.parametrize(
    "kind",
    [
        one if one == "commit empty" else pytest.param(one, marks=pytest.mark.long)
        for one in ("commit empty", "commit torn", "commit a folder", "commit before it gone")
    ],
)
def test_a_table_is_damaged_whose_new_dump_is_to_be_shown(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], kind: str
) -> None:
    """It stops by name as well: the dump cannot take the place of what is not known any more."""
    ratchet = begun(mariadb, database, make_ratchet)
    ratchet.run("run", "--until-caught-up")
    ratchet.run("table", "redump", "shop.a")
    ratchet.run("run", "--until-caught-up", crash_at="staged.after_copies", expect=-signal.SIGKILL)
    for table in TABLES:
        mariadb.execute(f"UPDATE {table} SET v = 7 WHERE id = 1", database=database)
    find, hurt = DAMAGE[kind]
    hurt(find(ratchet.lake / "shop" / "a"))
    done = ratchet.run("run", "--until-caught-up", expect=6)
    assert "shop.a is stopped" in done.stderr
    assert_identical(ratchet.lake, [mariadb], database, ["b"])
    ratchet.redump_as_told(done.stderr)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, TABLES)
    ratchet.run("verify")


def data_of(log: Path) -> Path:
    return max(log.glob("*.parquet"), key=lambda one: one.stat().st_mtime_ns)


def flipped(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-9] ^= 255
    path.write_bytes(raw)


LOG_DAMAGE: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "commit torn": (newest("*.json"), torn),
    "rows gone": (data_of, Path.unlink),
    "rows torn": (data_of, torn),
    "rows flipped": (data_of, flipped),
    "checkpoint torn": (newest("*.checkpoint.parquet"), torn),
}


@pytest.mark.parametrize("log", ["rounds", "cuts"])
@pytest.mark.parametrize(
    "kind",
    [
        one if one == "commit torn" else pytest.param(one, marks=pytest.mark.long)
        for one in LOG_DAMAGE
    ],
)
def test_a_log_of_the_lake_is_damaged(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet], kind: str, log: str
) -> None:
    """Every command says the same, and what it says gets out: without a new lake, too."""
    ratchet = begun(mariadb, database, make_ratchet)
    for value in (5, 6):
        ratchet.run("run", "--until-caught-up")
        for table in TABLES:
            mariadb.execute(f"UPDATE {table} SET v = {value} WHERE id = 1", database=database)
    folder = ratchet.lake / "_ratchet" / log
    if "checkpoint" in kind:
        DeltaTable(folder).create_checkpoint()
    find, hurt = LOG_DAMAGE[kind]
    hurt(find(folder))
    if "checkpoint" in kind:  # its commits tell the same
        for command in ("check", "status", "verify"):
            ratchet.run(command)
    else:
        assert ratchet.run("check", expect=2).returncode == 2
        for command in ("status", "verify", "heal", "repair"):
            said = ratchet.run(command, expect=7).stderr
            assert re.search(f"remove the folders? .*_ratchet/{log} ", said), said
        said = ratchet.run("run", "--until-caught-up", expect=7).stderr
        for name in re.findall(r"folders? (\S+)(?: and (\S+))? in", said)[0]:
            if name:
                shutil.rmtree(ratchet.lake / name)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, TABLES)
    ratchet.run("verify")
    ratchet.run("check")


def test_a_byte_of_a_file_of_rows_is_another_one(
    mariadb: Any, database: str, make_ratchet: Callable[..., Ratchet]
) -> None:
    """A data file, a side table's, a vector and captured changes: each table stops by name.

    What Arrow says of such a file has no number, as what an object store says.
    """
    tables = ("data", "side", "vectors", "changes", "sound")
    for table in tables:
        mariadb.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database=database)
        mariadb.execute(f"INSERT INTO {table} SELECT seq, seq FROM seq_1_to_50", database=database)
    create_ratchet_user(mariadb, PASSWORD, [database])
    ratchet = make_ratchet({"-": mariadb}, database)
    ratchet.run("run", "--until-caught-up")
    for table in tables:
        mariadb.execute(f"DELETE FROM {table} WHERE id > 45", database=database)
    ratchet.run("run", "--until-caught-up")
    for table in tables:
        mariadb.execute(f"UPDATE {table} SET v = 7 WHERE id < 9", database=database)
    ratchet.run("run", "--until-caught-up", crash_at="capture.after_commit", expect=-signal.SIGKILL)
    lake = Lake.at(ratchet.lake)
    change = next(file for file in RoundLog(lake).since(0)[-1].files if file.table == "changes")
    part = part_of(change.path)
    assert part is not None
    for path, end in (
        *((one, 0) for one in (ratchet.lake / "shop" / "data").glob("*.parquet")),
        *((one, 0) for one in side_of(ratchet.lake / "shop" / "side").rglob("*.parquet")),
        *((one, 0) for one in (ratchet.lake / "shop" / "vectors").glob("*.bin")),
        (ratchet.lake / part.path, part.offset + part.length),
    ):
        raw = bytearray(path.read_bytes())
        raw[(end or len(raw)) - 9] ^= 255  # the end of a footer
        path.write_bytes(raw)
    done = ratchet.run("run", "--until-caught-up", expect=6)
    for table in tables:
        assert (f"shop.{table} is stopped" in done.stderr) is (table != "sound"), done.stderr
    assert_identical(ratchet.lake, [mariadb], database, ["sound"])
    ratchet.redump_as_told(done.stderr)
    ratchet.run("run", "--until-caught-up")
    assert_identical(ratchet.lake, [mariadb], database, tables)
    ratchet.run("verify")


def follow(ratchet: Ratchet, said: str) -> None:
    """Do what it says, and run again."""
    for path in re.findall(r"remove the file (\S+) in", said):
        (ratchet.lake / path).unlink()
    for content, path in re.findall(r"put (\{.*\}) into the file (\S+) in it", said):
        (ratchet.lake / path).write_text(content)
    done = ratchet.run("run", "--until-caught-up", expect=None)
    assert done.returncode in {0, 6}, done.stderr
    if done.returncode == 6:
        ratchet.redump_as_told(done.stderr)
        ratchet.run("run", "--until-caught-up")
