"""`check` tells who else may change the config or read a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.jobs.config.config import load_config
from ratchet.jobs.preflight.fileguard import guarded

CONFIG = """\
lake: ./lake
sources:
  shop: {kind: binlog, shards: {"-": {host: h, user: u, password: %s}}}
"""


@pytest.mark.parametrize(
    ("password", "mode", "secret_mode", "parts"),
    [
        ('"${PW}"', 0o644, 0o600, []),
        ('"${PW}"', 0o646, 0o600, ["ratchet.yaml can be written by everybody"]),
        ("literal", 0o600, 0o600, []),
        ("literal", 0o640, 0o600, []),
        ("literal", 0o644, 0o600, ["ratchet.yaml holds a password and can be read by everybody"]),
        ("literal", 0o666, 0o600, ["ratchet.yaml can be written", "ratchet.yaml holds a password"]),
        ("{file: secret}", 0o644, 0o600, []),
        ("{file: secret}", 0o644, 0o644, ["secret holds a password"]),
        ("{file: secret}", 0o644, 0o622, ["secret can be written by everybody"]),
    ],
)
def test_files(
    tmp_path: Path, password: str, mode: int, secret_mode: int, parts: list[str]
) -> None:
    path, secret = tmp_path / "ratchet.yaml", tmp_path / "secret"
    path.write_text(CONFIG % password)
    path.chmod(mode)
    secret.write_text("x")
    secret.chmod(secret_mode)
    found = list(guarded(load_config(path, {"PW": "x"})))
    assert len(found) == len(parts)
    for finding, part in zip(found, parts, strict=True):
        assert part in finding.text
        assert finding.status == "warn"
        assert "chmod" in finding.mend
