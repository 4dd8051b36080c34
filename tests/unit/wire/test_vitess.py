"""What is made of a vtgate's answers."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.core.errors import ConfigError, SourceUnfitError
from ratchet.core.shard import ShardId
from ratchet.wire.connect import SourceConfig
from ratchet.wire.vitess import (
    Query,
    database_of,
    on_primary,
    refuse_other_settings,
    serving_shards,
    tablets,
    target_of,
)

ANSWERS: dict[str, list[tuple[Any, ...]]] = {
    "SHOW VITESS_KEYSPACES": [("shop",), ("store",), ("empty",)],
    "SHOW VITESS_SHARDS": [("shop/80-",), ("store/0",), ("shop/-40",), ("shop/40-80",)],
    "SHOW VITESS_TABLETS": [
        ("zone1", "shop", "-40", "PRIMARY", "SERVING", "zone1-1", "h", "2026-01-01T00:00:00Z"),
        ("zone1", "shop", "-40", "REPLICA", "NOT_SERVING", "zone1-2", "h", ""),
        ("zone1", "store", "0", "PRIMARY", "SERVING", "zone1-3", "h", ""),
    ],
}
SETTINGS = [
    ("sql_mode", ""),
    ("sql_select_limit", "18446744073709551615"),
    ("time_zone", "+00:00"),
    ("transaction_isolation", "REPEATABLE-READ"),
]


def answer(sql: str) -> list[tuple[Any, ...]]:
    return ANSWERS[sql]


def always(*rows: tuple[Any, ...]) -> Query:
    return lambda _: list(rows)


def config(target: str) -> SourceConfig:
    return SourceConfig(
        shard=ShardId("s", "-"), host="h", user="u", database="vt_shop", target=target
    )


def test_shards_in_the_order_of_their_key_ranges() -> None:
    assert serving_shards(answer, "shop") == ("-40", "40-80", "80-")
    assert serving_shards(answer, "store") == ("0",)


def test_keyspaces_without_shards() -> None:
    with pytest.raises(SourceUnfitError, match="none of its shards"):
        serving_shards(answer, "empty")
    with pytest.raises(ConfigError) as caught:
        serving_shards(answer, "shops")
    assert caught.value.hint == "did you mean 'shop'? it knows: empty, shop, store"
    with pytest.raises(ConfigError) as caught:
        serving_shards(answer, "x")
    assert caught.value.hint == "it knows: empty, shop, store"


def test_tablets_of_a_keyspace() -> None:
    found = [(t.alias, t.shard, t.kind, t.serving) for t in tablets(answer, "shop")]
    assert found == [
        ("zone1-1", "-40", "PRIMARY", True),
        ("zone1-2", "-40", "REPLICA", False),
    ]


def test_the_database_of_a_shard() -> None:
    assert database_of(always(("other_name",)), "shop/-40") == "other_name"
    for rows in ([], [(None,)]):
        with pytest.raises(SourceUnfitError) as caught:
            database_of(always(*rows), "shop/-40")
        assert "--init-db-name-override" in caught.value.hint


def test_targets() -> None:
    source = config("shop:-40@replica")
    assert target_of(source) == ("shop", "-40")
    assert on_primary(source).target == "shop:-40@primary"
    straight = config("")
    assert on_primary(straight) == straight


def test_settings_that_must_arrive() -> None:
    refuse_other_settings(always(*SETTINGS), "shop/-40")
    for name, _ in SETTINGS:
        others = [(n, "other" if n == name else value) for n, value in SETTINGS]
        with pytest.raises(SourceUnfitError, match=f"{name} = 'other'"):
            refuse_other_settings(always(*others), "shop/-40")
    with pytest.raises(SourceUnfitError, match="time_zone = None"):
        refuse_other_settings(always(), "shop/-40")
