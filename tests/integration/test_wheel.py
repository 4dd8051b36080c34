"""What is installed: one name, with all that it needs, far from any checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.servers import Server, create_ratchet_user

ROOT = Path(__file__).parents[2]
PACKAGES = Path(np.__file__).parents[1]  # where those are that Ratchet needs
PASSWORD = "of-a-wheel's-test"
CONFIG = """\
lake: ./lake
sources:
  shop:
    kind: binlog
    shards:
      "-": {{host: {host}, port: {port}, user: ratchet, password: "${{SHOP}}", database: shop}}
    tables: ["*"]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what is tracked, through an sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    for name in filter(None, names):
        place = source / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            place.symlink_to((ROOT / name).readlink())
        else:
            place.write_bytes((ROOT / name).read_bytes())
    build = "from setuptools.build_meta import build_sdist; print(build_sdist('dist'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (sdist,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.iterdir() if path.name.startswith("ratchet-"))
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('dist'))"
    subprocess.run([sys.executable, "-c", build], cwd=unpacked, check=True, capture_output=True)
    (found,) = (unpacked / "dist").glob("*.whl")
    return found


def test_a_wheel_has_one_name_and_what_goes_with_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"ratchet"}
    for needed in (
        "py.typed",
        "conf/example.yaml",
        "conf/log4j2.properties",
        "proto/vstream.proto",
    ):
        assert f"ratchet/{needed}" in names
    assert not [name for name in names if "/lab/" in name or "/tests/" in name]


def test_it_mirrors_a_server_from_where_no_checkout_is(
    wheel: Path, make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server("mariadb")
    server.execute("CREATE DATABASE shop")
    server.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
    server.execute("INSERT INTO shop.t VALUES (1, 1), (2, 2)")
    create_ratchet_user(server, PASSWORD, ["shop"])
    site, home = tmp_path / "site", tmp_path / "home"
    home.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    venv.create(tmp_path / "venv", with_pip=False)  # whose Python knows nothing of the checkout
    (home / "ratchet.yaml").write_text(CONFIG.format(host=server.host, port=server.port))
    python = str(tmp_path / "venv" / "bin" / "python")
    path = os.pathsep.join((str(site), str(PACKAGES)))
    env = {**os.environ, "PYTHONPATH": path, "SHOP": PASSWORD}

    def run(*args: str) -> subprocess.CompletedProcess[Any]:
        return subprocess.run(
            [python, *args], cwd=home, env=env, check=False, capture_output=True, text=True
        )

    where = run("-c", "import ratchet, sys; print(ratchet.__file__); print(*sys.path)").stdout
    assert where.startswith(str(site))
    assert str(ROOT) not in where.replace(str(PACKAGES), "")
    for command, *more in (("check",), ("run", "--until-caught-up"), ("verify",)):
        done = run("-m", "ratchet", command, "ratchet.yaml", *more)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "identical" in done.stdout
    refused = run("-m", "ratchet", "demo")
    assert refused.returncode == 2
    assert "make demo" in refused.stderr
