"""Print what Ratchet is made of, as a CycloneDX bill of materials (JSON).

What is listed is what is pinned: the packages of requirements.txt and the jars that Java runs, each
with its digests.

usage: bill_of_materials.py [--output FILE]
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from ratchet.jobs.engine.jarhashes import DIGESTS

ROOT: Final = Path(__file__).parents[1]
_PINNED: Final = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
# Ivy's name of a file in its cache: group_artifact-version.jar
_JAR: Final = re.compile(r"^(?P<group>[a-z0-9.]+)_(?P<name>.+)-(?P<version>\d\S*)\.jar$")


def main() -> None:
    """Print the bill, or write it to a file."""
    parser = argparse.ArgumentParser(description="Print Ratchet's bill of materials.")
    parser.add_argument("--output", type=Path, help="a file instead of stdout")
    output = parser.parse_args().output
    text = JsonV1Dot6(bill(ROOT)).output_as_string(indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text)


def bill(root: Path) -> Bom:
    """What a checkout is made of.

    Args:
        root: the checkout's folder.

    Raises:
        ValueError: a line of requirements.txt, or a jar's name, is not understood.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    found = Bom(components=[*packages((root / "requirements.txt").read_text()), *jars()])
    found.metadata.component = Component(
        type=ComponentType.APPLICATION,
        name=project["name"],
        version=project["version"],
        bom_ref=project["name"],
    )
    found.register_dependency(found.metadata.component, found.components)
    return found


def packages(requirements: str) -> Iterator[Component]:
    """The pinned packages of a file that pip-compile wrote.

    A package has several files, of which one is installed: their digests stand with the place they
    come from, which is where CycloneDX has those of files.

    Raises:
        ValueError: a line is not understood.
    """
    for line in requirements.replace("\\\n", " ").splitlines():
        text = line.partition(" #")[0].strip()
        if not text or text.startswith("#"):
            continue
        pinned = _PINNED.match(text)
        digests = _HASH.findall(text)
        if pinned is None or not digests:
            raise ValueError(f"not a pinned package: {text[:80]}")
        name, version = pinned[1], pinned[2]
        place = PackageURL("pypi", None, name, version)
        files = ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(str(place)),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in digests],
        )
        yield Component(
            name=name,
            version=version,
            purl=place,
            bom_ref=str(place),
            external_references=[files],
        )


def jars() -> Iterator[Component]:
    """The jars that Java is given.

    Raises:
        ValueError: a name is not one of Ivy's.
    """
    for file, digest in DIGESTS.items():
        parts = _JAR.match(file)
        if parts is None:
            raise ValueError(f"not a jar of Ivy's: {file}")
        place = PackageURL("maven", parts["group"], parts["name"], parts["version"])
        yield Component(
            group=parts["group"],
            name=parts["name"],
            version=parts["version"],
            purl=place,
            bom_ref=str(place),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        )


if __name__ == "__main__":
    main()
