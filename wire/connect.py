"""Opening a connection: where to, with which TLS, with our time-outs and errors.

Lives here: `SourceConfig`, TLS settings. Does not live here: what a server may do to us at the
login (`connected`), what is said on the connection (`session`, `binlog`).

Invariants: the password is in no message, no `repr` and no pickle; to another machine nothing less
than `verify_identity` is used unless the config names it. On this machine a port that a stranger's
process serves is not spoken with, unless the config names what verifies it or accepts it.
"""

from __future__ import annotations

import socket as sockets
import ssl
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import pymysql
from pymysql.constants import CR

from ratchet.core.errors import ConfigError, RatchetError
from ratchet.core.shard import ShardId
from ratchet.wire.connected import PLUGINS, RawConnection, Verified
from ratchet.wire.failures import UntrustedOwner, server_failure
from ratchet.wire.peer import is_local
from ratchet.wire.secrets import SecretName, reveal, state_without
from ratchet.wire.tls import tls_context

TlsMode = Literal[
    "disabled", "preferred", "required", "verify_password", "verify_ca", "verify_identity"
]
Tls = TlsMode | Literal["auto"]

# Found by the kernel in 10 + 3 * 5 s when the other machine is gone without a word.
_KEEPALIVE: Final = (
    (sockets.TCP_KEEPIDLE, 10),
    (sockets.TCP_KEEPINTVL, 5),
    (sockets.TCP_KEEPCNT, 3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """Where a shard's server is and how to log in.

    Attributes:
        shard: the shard it serves.
        host: name or address.
        port: TCP port.
        standbys: host and port of other servers that can stand in for it, in this order.
        user: account name.
        password: never shown, and never pickled (`wire.secrets`).
        database: the database that is mirrored, as the server itself calls it.
        target: what to ask for at login where that is another name: on a vtgate the keyspace with
            its shard and tablet type, as in "commerce:-80@primary"; empty: `database`.
        tls: "auto" is "verify_identity", but "preferred" for a server of this machine where no
            file is given, and then whose process it is has to be in order (wire.peer);
            "preferred" encrypts if the server offers it and verifies nothing;
            "verify_ca" checks the certificate, "verify_identity" also the host name;
            "verify_password" lets the server prove that it knows the password (wire.proof).
        tls_ca: PEM file of the authority, the system's own ones when empty.
        tls_cert: PEM file of a client certificate; empty for none.
        tls_key: PEM file of its key.
        connect_timeout: seconds for connecting and logging in.
        read_timeout: seconds that a statement may be silent.
        trusts_virtual: whether VIRTUAL columns are taken as the log has them, also where a SELECT
            may have other values (wire.decode.volatile).
    """

    shard: ShardId
    host: str
    port: int = 3306
    standbys: tuple[tuple[str, int], ...] = ()
    user: str
    password: str | SecretName = field(default="", repr=False)
    database: str
    target: str = ""
    tls: Tls = "auto"
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    connect_timeout: float = 10.0
    read_timeout: float = 300.0
    trusts_virtual: bool = False

    def __getstate__(self) -> list[Any]:
        """For a task: without the password."""
        return state_without(self)

    @property
    def through_vtgate(self) -> bool:
        """Whether the server is a vtgate: a target is named, or nothing at all (wire.vitess)."""
        return bool(self.target) or not self.database

    @property
    def address(self) -> str:
        """host:port, for messages."""
        return f"{self.host}:{self.port}"

    @property
    def tls_mode(self) -> TlsMode:
        """What `tls` means for this host."""
        if self.tls != "auto":
            return self.tls
        files = self.tls_ca or self.tls_cert or self.tls_key
        return "preferred" if is_local(self.host) and not files else "verify_identity"

    @property
    def verifies(self) -> Verified:
        """What a connection verifies of the server.

        Of the system's authorities any will do for "verify_ca", so anybody's certificate does.
        """
        if self.tls_mode == "verify_identity":
            return "identity"
        return "authority" if self.tls_mode == "verify_ca" and self.tls_ca else ""

    def servers(self) -> tuple[SourceConfig, ...]:
        """Each of its servers alone, itself first."""
        places = ((self.host, self.port), *self.standbys)
        return tuple(replace(self, host=host, port=port, standbys=()) for host, port in places)


def open_connection(config: SourceConfig) -> RawConnection:
    """A PyMySQL connection that is logged in; see `Session.connect` for its errors."""
    password = reveal(config.password).encode()  # PyMySQL would take text for latin1
    if config.tls_mode == "verify_password" and not password:
        raise ConfigError(
            "tls: verify_password needs a password",  # anybody can prove that he knows none
            operation="prepare TLS",
            source=str(config.shard),
            hint="give the account a password, or set tls to verify_identity",
        )
    try:
        connection = _logged_in(config, password)
    except (pymysql.err.Error, ssl.SSLError) as error:
        cause = error if isinstance(error, ssl.SSLError) else None
        cause = cause or getattr(error, "original_exception", None)
        raise _failure(config, error, cause) from cause
    connection.set_read_timeout(config.read_timeout)
    connection.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.socket.setsockopt(sockets.IPPROTO_TCP, option, value)
    return connection


def _logged_in(config: SourceConfig, password: bytes) -> RawConnection:
    """At the first of its addresses that a server serves which may be trusted."""
    looks = config.tls == "auto" and config.tls_mode == "preferred"
    refused: pymysql.err.OperationalError | None = None
    for host in _addresses(config) if looks else (config.host,):
        connection = _connection(config, host, password)
        connection.looks_at_owner = looks
        try:
            connection.connect()
        except pymysql.err.OperationalError as error:
            if not (isinstance(error, UntrustedOwner) or error.args[0] == CR.CR_CONN_HOST_ERROR):
                raise
            # A server may listen at one address of `localhost`, and somebody else at another.
            refused = error if not isinstance(refused, UntrustedOwner) else refused
        else:
            return connection
    assert refused is not None  # noqa: S101 - there is an address at least
    raise refused


def _addresses(config: SourceConfig) -> tuple[str, ...]:
    """What a host of this machine is called in the network, in the system's order."""
    try:
        found = sockets.getaddrinfo(config.host, config.port, type=sockets.SOCK_STREAM)
    except OSError:
        return (config.host,)  # whoever connects to it tells why
    return tuple(dict.fromkeys(str(place[0]) for *_, place in found))


def _connection(config: SourceConfig, host: str, password: bytes) -> RawConnection:
    connection: RawConnection = RawConnection(
        host=host,
        port=config.port,
        user=config.user,
        password=password,
        database=config.target or config.database,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=config.connect_timeout,
        # Until logged in: a port that accepts and never answers must not hold us for long.
        read_timeout=config.connect_timeout,
        write_timeout=max(config.connect_timeout, 60.0),
        program_name="ratchet",
        defer_connect=True,
        auth_plugin_map=PLUGINS,
        **_tls_arguments(config),
    )
    connection.verifies = config.verifies
    connection.wants_proof = config.tls_mode == "verify_password"
    return connection


def _failure(
    config: SourceConfig, error: pymysql.err.Error | ssl.SSLError, cause: BaseException | None
) -> RatchetError:
    if isinstance(cause, ssl.SSLError):
        error = pymysql.err.OperationalError(CR.CR_SSL_CONNECTION_ERROR, str(cause))
    assert isinstance(error, pymysql.err.Error)  # noqa: S101 - the other kind is a cause of its own
    failure = server_failure(
        error,
        operation=f"connect to {config.address}",
        source=str(config.shard),
        user=config.user,
        database=config.database,
        vtgate=config.through_vtgate,
    )
    by_itself = config.tls == "auto" and config.tls_mode == "verify_identity"
    if by_itself and error.args[0] == CR.CR_SSL_CONNECTION_ERROR:
        failure.hint += f". {_BY_ITSELF}"
    return failure


_BY_ITSELF: Final = (
    "`tls` is not in the config, and for a server on another machine that means verify_identity: "
    "tls_ca is the PEM file of the authority (MySQL's own: ca.pem in its data directory, with tls: "
    "verify_ca, as its certificate names no host; a cloud's: its bundle). A MariaDB from 11.4 on "
    "that made its certificate itself: tls: verify_password. tls: required encrypts but does not "
    "verify"
)


def _tls_arguments(config: SourceConfig) -> dict[str, Any]:
    if config.tls_mode == "disabled":
        return {"ssl_disabled": True}
    if config.tls_mode == "preferred":
        if config.tls_ca or config.tls_cert or config.tls_key:
            raise ConfigError(
                "tls_ca, tls_cert and tls_key have no use with tls: preferred",
                operation="prepare TLS",
                source=str(config.shard),
                hint="set tls to required, verify_ca or verify_identity",
            )
        return {}
    if config.tls_mode == "verify_password" and config.tls_ca:
        raise ConfigError(
            "tls_ca has no use with tls: verify_password",
            operation="prepare TLS",
            source=str(config.shard),
            hint="set tls to verify_ca or verify_identity",
        )
    return {
        "ssl": tls_context(
            ca=config.tls_ca,
            cert=config.tls_cert,
            key=config.tls_key,
            verify=config.tls_mode in {"verify_ca", "verify_identity"},
            verify_host=config.tls_mode == "verify_identity",
            source=str(config.shard),
        )
    }
