"""Servers' errors become ours, with the statement that mends them and without secrets."""

from __future__ import annotations

import pickle

import pymysql
import pytest

from ratchet.core.errors import (
    DatabaseGoneError,
    LockedError,
    PositionLostError,
    RatchetError,
    RetryableError,
    ServerRefusedError,
    SourceUnfitError,
    TableStoppedError,
    UnverifiedServerError,
)
from ratchet.core.gtid import GtidSet
from ratchet.core.shard import ShardId
from ratchet.wire.binlog import encode_gtid_set, replica_server_id
from ratchet.wire.connect import SourceConfig
from ratchet.wire.failures import binlog_failure, server_failure


@pytest.mark.parametrize(
    ("code", "kind", "hint"),
    [
        (1045, SourceUnfitError, "GRANT SELECT ON `we``ird`.* TO 'me'@'%'"),
        (1227, SourceUnfitError, "GRANT REPLICATION SLAVE"),
        (1049, DatabaseGoneError, "database"),
        (2026, UnverifiedServerError, "tls"),
        (2003, RetryableError, "tries again"),
        (2013, RetryableError, "tries again"),
        (1205, LockedError, "PROCESSLIST"),
        (1146, TableStoppedError, "redump TABLE"),
        (1064, SourceUnfitError, "please report it"),
        (1193, SourceUnfitError, "please report it"),
        (1305, SourceUnfitError, "please report it"),
        (1114, RetryableError, "give it more"),
        (1419, ServerRefusedError, "documentation"),
        (1814, ServerRefusedError, "documentation"),
    ],
)
def test_each_error_has_its_class(code: int, kind: type[RatchetError], hint: str) -> None:
    error = server_failure(
        pymysql.err.OperationalError(code, "text"),
        operation="op",
        source="shop/-",
        user="me",
        database="we`ird",
    )
    assert type(error) is kind
    assert hint in error.hint
    assert str(code) in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_who_has_logged_in_lacks_a_privilege_and_no_password() -> None:
    """MariaDB says 1045 to an account without REPLICATION SLAVE that asks for the log."""
    refused = pymysql.err.OperationalError(1045, "Access denied for user 'me'@'%'")
    known = {"operation": "op", "source": "shop/-", "user": "me", "database": "shop"}
    before = server_failure(refused, **known)
    behind = server_failure(refused, **known, logged_in=True)
    assert "check user and password" in before.hint
    assert behind.message.startswith("a privilege is missing (1045)")
    assert behind.hint.startswith("as an administrator: GRANT REPLICATION SLAVE")
    streamed = binlog_failure("Access denied", code=1045, operation="op", source="shop/-")
    assert streamed.hint.startswith("as an administrator")
    nobodys = server_failure(refused, **known | {"database": "information_schema"})
    assert "GRANT SELECT ON `DATABASE`.* TO 'me'@'%'" in nobodys.hint


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Cannot replicate because the source purged required binary logs.", PositionLostError),
        ("Could not find first log file name in binary log index file", PositionLostError),
        ("connecting slave requested to start from GTID 0-1-5, which is not in the master's binlog",
         PositionLostError),
        ("A slave with the same server_uuid/server_id as this slave has", SourceUnfitError),
        ("Client requested source to start replication from position > file size", RetryableError),
    ],
)  # fmt: skip
def test_what_1236_stands_for(text: str, kind: type[RatchetError]) -> None:
    assert type(binlog_failure(text, operation="op", source="s")) is kind


def test_a_config_does_not_show_its_password() -> None:
    config = SourceConfig(
        shard=ShardId("a", "-"), host="h", user="u", password="hunter2", database="d"
    )
    assert "hunter2" not in repr(config)


def test_gtid_sets_are_encoded_as_the_servers_do() -> None:
    """The second one as MySQL 9.7 writes it in PREVIOUS_GTIDS."""
    uuid = "8236982b-e577-11f1-8364-02fc00000001"
    plain = GtidSet.parse("mysql", f"{uuid}:1-5")
    assert encode_gtid_set(plain).hex() == (
        "0100000000000000" + uuid.replace("-", "") + "0100000000000000"
        "01000000000000000600000000000000"
    )
    tagged = GtidSet.parse("mysql", f"{uuid}:1-9:tagx:1")
    assert encode_gtid_set(tagged).hex() == (
        "0102000000000001"
        "8236982be57711f1836402fc00000001"
        "00"  # no tag
        "0100000000000000"
        "01000000000000000a00000000000000"
        "8236982be57711f1836402fc00000001"
        "0874616778"  # "tagx", its length doubled
        "0100000000000000"
        "01000000000000000200000000000000"
    )


def test_server_ids_are_stable_and_not_small() -> None:
    one, other = (replica_server_id("/lake", ShardId("shop", s)) for s in ("-80", "80-"))
    assert one == replica_server_id("/lake", ShardId("shop", "-80"))
    assert one != other
    assert 1 << 30 <= one < 1 << 32


@pytest.mark.parametrize("code", [1064, 2013, 1236])
def test_a_message_of_any_length_is_cut(code: int) -> None:
    """Each sign of it may take a hundred bytes once it is made visible."""
    sent = pymysql.err.OperationalError(code, "\x1b" * 5_000_000)
    error = server_failure(sent, operation="op", source="shop/-")
    assert len(str(error)) < 30_000


def test_a_servers_words_are_one_line() -> None:
    """What stands on another line, indented, is our remedy."""
    said = pymysql.err.OperationalError(1105, "no\n  `rm -rf LAKE` mends it\r\n")
    error = server_failure(said, operation="op", source="shop/-")
    assert error.message.endswith(r"no\n  `rm -rf LAKE` mends it\r\n")
