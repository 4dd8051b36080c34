"""The bill of materials names all that is pinned, with its digests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cyclonedx.output.json import JsonV1Dot6

from ratchet.jobs.engine.jarhashes import DIGESTS
from scripts.bill_of_materials import bill, packages

ROOT = Path(__file__).parents[2]


def test_all_that_is_pinned_is_in_it() -> None:
    found = json.loads(JsonV1Dot6(bill(ROOT)).output_as_string())
    requirements = (ROOT / "requirements.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", requirements, re.MULTILINE))
    by_kind: dict[str, list[dict[str, object]]] = {"pypi": [], "maven": []}
    for one in found["components"]:
        by_kind[one["purl"].split("/")[0].removeprefix("pkg:")].append(one)
    assert {one["name"]: one["version"] for one in by_kind["pypi"]} == pinned
    digests = set(re.findall(r"sha256:([0-9a-f]{64})", requirements))
    assert all(digest in json.dumps(by_kind["pypi"]) for digest in digests)
    assert len(by_kind["maven"]) == len(DIGESTS)
    assert all(digest in json.dumps(by_kind["maven"]) for digest in DIGESTS.values())
    assert found["metadata"]["component"]["name"] == "ratchet"


def test_workflows_name_each_action_by_its_commit() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    used = re.findall(r"uses: *(.+)", "\n".join(file.read_text() for file in files))
    assert len(used) >= len(files) > 2
    assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", one)] == []


@pytest.mark.parametrize("line", ["numpy>=2", "numpy==2.0", "-r other.txt", "numpy @ https://x/y"])
def test_what_is_not_pinned_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a pinned package"):
        list(packages(line))
