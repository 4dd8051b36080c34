"""Digests of the jars that Ratchet brings to Spark: Java runs them, with all that a run may do.

Lives here: the digests, made from the files as the repository of Maven gives them, and the check.
Does not live here: which jars a session needs (`jars`).

A new version of delta-spark or pyspark brings new jars: `scripts/fetch_jars.py` prints their lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

# File in Ivy's cache -> SHA-256, in hex.
DIGESTS: Final[Mapping[str, str]] = {
    "io.delta_delta-kernel-api-4.4.0.jar":
        "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    "io.delta_delta-kernel-defaults-4.4.0.jar":
        "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar":
        "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar":
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "io.delta_delta-storage-4.4.0.jar":
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar":
        "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar":
        "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150",
    "org.apache.hadoop_hadoop-aws-3.5.0.jar":
        "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
    "org.wildfly.openssl_wildfly-openssl-2.2.5.Final.jar":
        "71fb7932f99a727edb23c5a2cb8c6855ac7196fad41aa0669b3998e277165154",
    "software.amazon.awssdk_bundle-2.35.4.jar":
        "db4b55f24ad1b4e70f17eb1717a4de76a8dadc5a27d764be7c44ff67b2c1c677",
    "software.amazon.s3.analyticsaccelerator_analyticsaccelerator-s3-1.3.1.jar":
        "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
}  # fmt: skip


def digest(jar: Path) -> str:
    """SHA-256 of a file, in hex.

    Raises:
        OSError: it cannot be read.
    """
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def altered(jars: Iterable[Path]) -> list[Path]:
    """Those that are not what was released, or that nothing is known of.

    Raises:
        OSError: one cannot be read.
    """
    return [jar for jar in jars if DIGESTS.get(jar.name) != digest(jar)]
