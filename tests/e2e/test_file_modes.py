"""Who may read what a run writes: Spark's logs nobody else, the lake as the config says."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix_e2e import PASSWORD, Ratchet

from lab.servers import create_ratchet_user


def modes(folder: Path) -> set[int]:
    """Of all that is in a folder, itself included, logs left out."""
    found = {stat.S_IMODE(folder.stat().st_mode)}
    for path, folders, files in os.walk(folder):
        if Path(path).name != "logs":
            found |= {stat.S_IMODE(Path(path, name).stat().st_mode) for name in folders + files}
    return found


@pytest.mark.long
@pytest.mark.parametrize("umask", [pytest.param(None, marks=pytest.mark.long), "077"])
def test_modes(
    make_ratchet: Callable[..., Ratchet],
    mariadb: Any,
    database: str,
    tmp_path: Path,
    umask: str | None,
) -> None:
    create_ratchet_user(mariadb, PASSWORD, [database])
    mariadb.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", database=database)
    mariadb.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')", database=database)
    mariadb.execute(
        "CREATE TABLE wide (id INT PRIMARY KEY, v LONGTEXT) AS "
        "SELECT seq AS id, REPEAT('x', 6000) AS v FROM seq_1_to_1000",
        database=database,
    )
    ratchet = make_ratchet({"-": mariadb}, database, lake_umask=umask)
    # A dump by Spark's tasks, and then the log and the merge: by Spark, and without it.
    ratchet.run("run", "--until-caught-up")
    mariadb.execute("TRUNCATE TABLE wide", database=database)
    ratchet.run("run", "--until-caught-up")
    mariadb.execute("INSERT INTO t VALUES (3, 'c')", database=database)
    ratchet.run("run", "--until-caught-up")
    ratchet.run("sql", "SELECT count(*) FROM shop.t", XDG_STATE_HOME=str(tmp_path / "state"))
    found = modes(ratchet.lake)
    if umask is None:
        assert found == {0o755, 0o644}
    else:
        assert found == {0o700, 0o600}
    logs = [*(ratchet.lake / "_ratchet" / "logs").iterdir()]
    assert {"run.log", "run.out"} <= {path.name for path in logs}
    assert {stat.S_IMODE(path.stat().st_mode) for path in logs} == {0o600}
