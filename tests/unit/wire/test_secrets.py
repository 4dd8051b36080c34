"""Passwords are not in what is pickled, and are found again where a connection is opened."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.core.errors import OperatorError
from ratchet.core.shard import ShardId
from ratchet.wire.connect import SourceConfig
from ratchet.wire.secrets import SecretName, Ways, reveal, sealed, set_ways
from ratchet.wire.vtgate import VtgateConfig, credentials

ROOT = Path(__file__).resolve().parents[3]
PASSWORD = "Planted \n é 0123456789"
OPEN = """
import pickle, sys
from ratchet.wire.secrets import reveal
print(ascii(reveal(pickle.loads(sys.stdin.buffer.read()).password)))
"""


@pytest.fixture(autouse=True)
def ways() -> Iterator[None]:
    yield
    set_ways(Ways())


def source(password: str = PASSWORD) -> SourceConfig:
    return SourceConfig(
        shard=ShardId("a", "-"), host="h", user="u", password=password, database="d"
    )


def gate() -> VtgateConfig:
    return VtgateConfig(host="h", port=1, user="u", password="plain")


@pytest.mark.parametrize("config", [source(), gate()])
def test_a_pickle_names_the_password_only(config: SourceConfig | VtgateConfig) -> None:
    assert isinstance(config.password, str)
    data = pickle.dumps(config)
    assert config.password.encode() not in data
    assert b"0123456789" not in data
    copy = pickle.loads(data)
    assert isinstance(copy.password, SecretName)
    assert reveal(copy.password) == config.password
    assert config.password not in repr(copy)
    again = pickle.loads(pickle.dumps(copy))
    assert again == copy
    assert hash(again) == hash(copy), "sessions are kept by it"
    assert pickle.loads(pickle.dumps(config)) == copy


def test_another_process_of_ours_finds_it() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", OPEN],
        input=pickle.dumps(source()), capture_output=True, check=True, env=env,
    )  # fmt: skip
    assert done.stdout.decode().strip() == ascii(PASSWORD)


def test_only_we_can_open_what_has_it() -> None:
    name = sealed(PASSWORD)
    assert isinstance(name, SecretName)
    assert stat.S_IMODE(Path(name.path).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(name.path).parent.stat().st_mode) == 0o500, "/proc's own rule"
    assert "memfd" in str(Path(name.path).readlink()), "on no disk"


def test_no_password_stays_none() -> None:
    assert pickle.loads(pickle.dumps(source(""))) == source("")
    assert credentials(pickle.loads(pickle.dumps(gate()))) == (
        ("username", "u"),
        ("password", "plain"),
    )


def elsewhere(name: str | SecretName, path: str = "/proc/0/fd/3") -> SecretName:
    """As it comes to another machine."""
    assert isinstance(name, SecretName)
    return SecretName(name.name, path, name.variable, name.sent)


def test_on_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(OperatorError) as caught:
        reveal(elsewhere(sealed(PASSWORD)))
    assert "spark.authenticate" in caught.value.hint
    set_ways(Ways(variables={PASSWORD: "SHOP_PASSWORD"}))
    named = elsewhere(sealed(PASSWORD))
    assert PASSWORD.encode() not in pickle.dumps(named)
    with pytest.raises(OperatorError) as caught:
        reveal(named)
    assert "set SHOP_PASSWORD in the environment of Spark's workers" in caught.value.hint
    monkeypatch.setenv("SHOP_PASSWORD", "as it is there")
    assert reveal(named) == "as it is there"
    # Something else may have the place of our file there.
    (tmp_path / "other").write_text("some text\nmore\n")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "other", tmp_path / "pipe", tmp_path):
        assert reveal(elsewhere(named, str(path))) == "as it is there"


def test_sent_where_spark_guards_it() -> None:
    set_ways(Ways(sends=True))
    name = elsewhere(sealed(PASSWORD))
    assert PASSWORD not in repr(name)
    assert reveal(pickle.loads(pickle.dumps(name))) == PASSWORD
