"""Asking a vtgate through its MySQL port: keyspaces, shards that serve, tablets, databases.

Lives here: what only a vtgate can be asked, and whether a session's settings arrive behind it. Does
not live here: the session itself (`session`), VStream (`vtgate`).

Invariant: nothing is guessed; what vtgate does not tell is an error with the way out.

A session that names a shard (`SourceConfig.target`) talks to that shard's MySQL: vtgate passes its
statements on as they are, SHOW VITESS_... too, which MySQL then refuses. So what is asked of vtgate
itself needs a connection that names none: `gateway`. Measured on vtgate 24, see
docs/decisions/0061-reads-through-vtgate.md.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pymysql

from ratchet.core.errors import ConfigError, SourceUnfitError
from ratchet.core.vitess import shard_order
from ratchet.wire.connect import SourceConfig, open_connection
from ratchet.wire.decode.answers import as_is, as_name, as_text, or_null, shaped, single_value
from ratchet.wire.failures import server_failure

Query = Callable[[str], list[tuple[Any, ...]]]

# What a read relies on: values, their meaning, and that none is missing.
_NEEDED: Final = {
    "time_zone": "+00:00",
    "sql_mode": "",
    "transaction_isolation": "REPEATABLE-READ",
    "sql_select_limit": str(2**64 - 1),
}


@dataclass(frozen=True, slots=True)
class ServingTablet:
    """A tablet as vtgate sees it.

    Attributes:
        keyspace: what it serves.
        shard: which shard of it.
        kind: "PRIMARY", "REPLICA", "RDONLY".
        serving: whether vtgate sends it queries.
        alias: its name in the topology.
    """

    keyspace: str
    shard: str
    kind: str
    serving: bool
    alias: str


@contextmanager
def gateway(config: SourceConfig) -> Iterator[Query]:
    """Ask the vtgate of a shard's config, whether or not any shard can be read.

    Raises:
        RetryableError: vtgate cannot be reached.
        SourceUnfitError: it refuses us.
    """
    bare = replace(config, database="", target="")

    def query(sql: str) -> list[tuple[Any, ...]]:
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        except pymysql.err.Error as error:
            raise server_failure(
                error,
                operation="ask vtgate",
                source=f"{config.host}:{config.port}",
                user=config.user,
                vtgate=True,
            ) from error

    with closing(open_connection(bare)) as connection:
        yield query


def version(query: Query) -> str:
    """What vtgate says of itself, as "Version: 24.0.0 (Git revision ...".

    `VERSION()` is a MySQL version that it pretends to be.
    """
    return single_value(query("SELECT @@version_comment"), as_text)


def keyspaces(query: Query) -> tuple[str, ...]:
    """The keyspaces that vtgate knows."""
    return tuple(name for (name,) in shaped(query("SHOW VITESS_KEYSPACES"), as_name, wider=True))


def serving_shards(query: Query, keyspace: str) -> tuple[str, ...]:
    """The shards whose primaries serve a keyspace now, in the order of their key ranges.

    In a reshard these are the old shards until the traffic is switched, and the new ones from then
    on; never both, although vtgate also answers for new shards that are still being filled.

    Args:
        query: of `gateway`.
        keyspace: its name.

    Raises:
        ConfigError: there is no such keyspace.
        SourceUnfitError: it has no shard that serves.
    """
    rows = shaped(query("SHOW VITESS_SHARDS"), as_name, wider=True)
    named = [name.rpartition("/") for (name,) in rows]
    found = sorted((shard for where, _, shard in named if where == keyspace), key=shard_order)
    if not found:
        raise _no_shards(keyspace, keyspaces(query))
    return tuple(found)


def tablets(query: Query, keyspace: str) -> tuple[ServingTablet, ...]:
    """The tablets of a keyspace that vtgate has heard of."""
    rows = shaped(query("SHOW VITESS_TABLETS"), as_is, *[as_text] * 5, wider=True)
    return tuple(
        ServingTablet(keyspace, shard, kind, state == "SERVING", alias)
        for _, of, shard, kind, state, alias in rows
        if of == keyspace
    )


def database_of(query: Query, shard: str) -> str:
    """The MySQL database behind a shard: `vt_` and the keyspace, unless an operator chose another.

    `SELECT DATABASE()` would answer with the target. But the tablet's connection with its MySQL is
    in that database, and sees itself in the list of connections.

    Args:
        query: of a session with the shard (`SourceConfig.target`).
        shard: for messages.

    Raises:
        SourceUnfitError: the tablet does not tell.
    """
    asked = "SELECT DB FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()"
    rows = shaped(query(asked), or_null(as_text))
    if len(rows) != 1 or not rows[0][0]:
        raise SourceUnfitError(
            "the tablet does not show its MySQL database",
            operation="look for a shard's database",
            source=shard,
            hint="it is vt_ and the keyspace's name, or what --init-db-name-override of vttablet "
            "says; check whether vttablet's account sees itself in information_schema.PROCESSLIST",
        )
    return str(rows[0][0])


def target_of(config: SourceConfig) -> tuple[str, str]:
    """Keyspace and shard of a config's target, as Vitess calls them."""
    keyspace, _, shard = config.target.rpartition("@")[0].partition(":")
    return keyspace, shard


def on_primary(config: SourceConfig) -> SourceConfig:
    """The config that reads the same shard from its primary."""
    shard, at, _ = config.target.rpartition("@")
    return replace(config, target=f"{shard}@primary") if at else config


def refuse_other_settings(query: Query, shard: str) -> None:
    """Refuse a session whose settings do not arrive at the tablet's MySQL.

    vtgate takes every SET without complaint, and where it must not or cannot pass one on, leaves
    it out.

    Raises:
        SourceUnfitError: times, strings or the number of rows would not be what the server has.
    """
    names = ", ".join(f"'{name}'" for name in _NEEDED)
    rows = query(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})")
    found: dict[str, str] = dict(shaped(rows, as_name, as_text))
    odd = [f"{name} = {found.get(name)!r}" for name in _NEEDED if found.get(name) != _NEEDED[name]]
    if odd:
        raise SourceUnfitError(
            f"these settings are not those that Ratchet has to read with: {', '.join(odd)}",
            operation="prepare a session through vtgate",
            source=shard,
            hint="run vtgate with --enable-system-settings (its default), and on the tablets' "
            "MySQL: SET PERSIST sql_select_limit = DEFAULT; then restart the vttablets",
        )


def _no_shards(keyspace: str, known: tuple[str, ...]) -> Exception:
    operation = f"look for the shards of {keyspace}"
    if keyspace in known:
        return SourceUnfitError(
            "none of its shards has a serving primary",
            operation=operation,
            source=keyspace,
            hint="look at `vtctldclient GetTablets`; a keyspace needs a primary for each shard",
        )
    near = difflib.get_close_matches(keyspace, known, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return ConfigError(
        f"vtgate knows no keyspace {keyspace!r}",
        operation=operation,
        source=keyspace,
        hint=f"{meant}it knows: {', '.join(sorted(known)) or 'none'}",
    )
