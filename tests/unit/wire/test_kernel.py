"""What is kept of compiled kernels is used for what it was compiled from, and for nothing else.

Each look runs in a process of its own, as a new run would; NUMBA_CACHE_DIR is the test's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
PARTS = "FACTOR = {factor}\n"
CALLED = """
from parts import FACTOR
from ratchet.wire.kernel import kernel

@kernel
def weighed(value):
    return value * FACTOR{more}
"""
CALLS = """
import numpy as np
import called
from ratchet.wire.kernel import kernel

@kernel
def total(values):
    found = 0
    for value in values:
        found += called.weighed(value)
    return found
"""
# Of a strided array the code for arrays without gaps would read what lies between.
LOOK = """
import numpy as np
from calls import total
numbers = np.arange(10)
print(total(numbers[{step}]), len(total.overloads), sum(total.stats.cache_hits.values()))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "calls", CALLS)
    write(tmp_path, "called", CALLED.format(more=""))
    write(tmp_path, "parts", PARTS.format(factor=1))
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)


def begin(
    folder: Path, step: str, *, stderr: int | None = None, **env: str
) -> subprocess.Popen[str]:
    paths = os.pathsep.join((str(folder), str(ROOT)))
    # Bytecode goes by the seconds of its source's time: two versions in one second look the same.
    more = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **env}
    return subprocess.Popen(
        [sys.executable, "-c", LOOK.format(step=step)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "kept"), **more},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def look(folder: Path, step: str, **env: str) -> tuple[int, bool]:
    """The total, and whether it was computed by what had been kept."""
    out, _ = begin(folder, step, **env).communicate(timeout=120)
    total, variants, kept = map(int, out.split())
    assert variants == 1
    return total, kept == 1


def kept(folder: Path, name: str) -> list[Path]:
    return sorted((folder / "kept").rglob(f"{name}-*.nbc"))


def test_what_is_kept_is_used(folder: Path) -> None:
    """Whatever the process's hash seed is."""
    assert look(folder, ":5", PYTHONHASHSEED="1") == (10, False)
    assert look(folder, ":5", PYTHONHASHSEED="2") == (10, True)


def test_code_under_other_types(folder: Path) -> None:
    """As two processes can leave it in numba's cache: the wrong one is not run."""
    assert look(folder, ":5") == (10, False)
    assert look(folder, "::2") == (20, False)
    one, other = kept(folder, "calls.total")
    whole = one.read_bytes(), other.read_bytes()
    one.write_bytes(whole[1])
    other.write_bytes(whole[0])
    assert look(folder, "::2") == (20, False)
    assert look(folder, ":5") == (10, False)
    assert [look(folder, step) for step in ("::2", ":5")] == [(20, True), (10, True)]


def test_a_called_kernel_changes_in_another_file(folder: Path) -> None:
    """So does a constant in a third one: what was built with it is built anew."""
    assert look(folder, ":5") == (10, False)
    write(folder, "called", CALLED.format(more=" + 1"))
    assert look(folder, ":5") == (15, False)
    write(folder, "parts", PARTS.format(factor=3))
    assert look(folder, ":5") == (35, False)
    assert look(folder, ":5") == (35, True)
    assert len(kept(folder, "calls.total")) == 1, "what is of no use any more is overwritten"


@pytest.mark.parametrize("left", [0, 1, 1000])
def test_a_file_cut_short(folder: Path, left: int) -> None:
    """As a machine that loses its power leaves it."""
    assert look(folder, ":5") == (10, False)
    (file,) = kept(folder, "calls.total")
    file.write_bytes(file.read_bytes()[:left])
    assert look(folder, ":5") == (10, False)
    assert look(folder, ":5") == (10, True)


@pytest.mark.parametrize("above", [0, 1, 2])
def test_what_others_may_have_written_is_refused_unread(folder: Path, above: int) -> None:
    """Unpickling runs whatever a file says."""
    assert look(folder, ":5") == (10, False)
    (file,) = kept(folder, "calls.total")
    assert file.stat().st_mode & 0o022 == 0
    evil = f"cos\nsystem\n(S'touch {folder / 'ran'}'\ntR."
    file.write_text(evil)
    open_to_all = (file, *file.parents)[above]
    open_to_all.chmod(0o777)
    process = begin(folder, ":5", stderr=subprocess.PIPE)
    _, error = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "can be written by everybody" in error
    assert not (folder / "ran").exists()
    open_to_all.chmod(0o755)
    look(folder, ":5")
    assert (folder / "ran").exists(), "ours is unpickled: the test can fail"


def test_no_place_to_keep_it(folder: Path) -> None:
    """A file is in the way of the folder: every process compiles for itself."""
    (folder / "kept").touch()
    (folder / "__pycache__").touch()
    home = {"HOME": str(folder / "kept"), "XDG_CACHE_HOME": str(folder / "kept")}
    for _ in range(2):
        assert look(folder, ":5", NUMBA_CACHE_DIR="", **home) == (10, False)


def test_several_processes_at_once(folder: Path) -> None:
    """All begin without anything that is kept; what they leave is right."""
    looks = [begin(folder, step) for step in (":5", "::2") * 2]
    totals = [int(one.communicate(timeout=240)[0].split()[0]) for one in looks]
    assert totals == [10, 20] * 2
    assert [look(folder, step) for step in ("::2", ":5")] == [(20, True), (10, True)]
    assert not list((folder / "kept").rglob("*.nbc.*")), "no part of a file stays"


def test_a_folder_that_is_made_under_any_umask(folder: Path) -> None:
    """The next run takes from it what this one has kept, and nobody else can write there."""
    kept_in = folder / "cache" / "numba"
    before = os.umask(0)
    try:
        assert look(folder, ":5", NUMBA_CACHE_DIR=str(kept_in)) == (10, False)
        assert look(folder, ":5", NUMBA_CACHE_DIR=str(kept_in)) == (10, True)
    finally:
        os.umask(before)
    made = [folder / "cache", *(folder / "cache").rglob("*")]
    assert len(made) > 3
    assert [one for one in made if one.stat().st_mode & 0o022] == []
