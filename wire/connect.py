"""Opening a connection: PyMySQL's handshake, authentication and TLS, with our time-outs and errors.

Lives here: `SourceConfig`, TLS settings, and the few places where PyMySQL's inner parts are used
(its version is pinned). Does not live here: what is said on the connection (`session`, `binlog`).

Invariant: the password is in no message, no `repr` and no pickle.
"""

from __future__ import annotations

import socket as sockets
import ssl
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CR
from pymysql.cursors import Cursor

from core.errors import ConfigError
from core.shard import ShardId
from wire.failures import server_failure
from wire.secrets import Sealed, reveal, state_without
from wire.tls import tls_context

_CLEAR_TEXT: Final = (b"mysql_clear_password", b"dialog")
Tls = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]

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
        tls: "preferred" encrypts if the server offers it and verifies nothing; "verify_ca" checks
            the certificate, "verify_identity" also the host name.
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
    password: str | Sealed = field(default="", repr=False)
    database: str
    target: str = ""
    tls: Tls = "preferred"
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

    def servers(self) -> tuple[SourceConfig, ...]:
        """Each of its servers alone, itself first."""
        places = ((self.host, self.port), *self.standbys)
        return tuple(replace(self, host=host, port=port, standbys=()) for host, port in places)


if TYPE_CHECKING:
    _Base = Connection[Cursor]
else:
    _Base = Connection  # generic in its stubs only


class Connected(_Base):
    """A PyMySQL connection that lets us send commands and read their answers ourselves."""

    _read_timeout: float | None
    _sock: Any

    @property
    def socket(self) -> Any:
        """The socket, plain or TLS."""
        return self._sock

    @property
    def cipher(self) -> str:
        """The TLS cipher; "" without TLS."""
        found = self._sock.cipher() if isinstance(self._sock, ssl.SSLSocket) else None
        return str(found[0]) if found else ""

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        if sslp:
            return super()._create_ssl_ctx(sslp)  # type: ignore[misc, no-any-return]
        # PyMySQL would read the system's authorities for each connection that verifies nothing.
        return tls_context(ca="", cert="", key="", verify=False, verify_host=False, source="")

    def _process_auth(self, plugin_name: bytes, auth_packet: Any, handler: Any = None) -> Any:
        # PyMySQL would send the password as it is to whoever asks for it in that way.
        if plugin_name in _CLEAR_TEXT and not isinstance(self._sock, ssl.SSLSocket):
            raise pymysql.err.OperationalError(
                CR.CR_SSL_CONNECTION_ERROR,
                f"the server asks for the password in clear text ({plugin_name.decode()}), and the "
                "connection is not encrypted",
            )
        return super()._process_auth(plugin_name, auth_packet, handler)  # type: ignore[misc]

    def _write_bytes(self, data: bytes) -> None:
        sock = self._sock
        if not isinstance(sock, ssl.SSLSocket):
            super()._write_bytes(data)  # type: ignore[misc]
            return
        sock.settimeout(self._write_timeout)  # type: ignore[attr-defined]
        try:
            sock.sendall(data)
        except OSError as error:
            # A server that does not take our certificate says so, and hangs up: what it said has
            # come, although nothing can be sent.
            said: OSError = error
            try:
                sock.recv(1)
            except OSError as alert:
                said = alert
            self._force_close()  # type: ignore[attr-defined]
            raise pymysql.err.OperationalError(
                CR.CR_SERVER_GONE_ERROR, f"the server has gone away ({said!r})"
            ) from said

    def set_read_timeout(self, seconds: float) -> None:
        """How long statements may be silent from now on."""
        self._read_timeout = seconds

    def send_command(self, command: int, payload: bytes) -> None:
        """Send one command without reading anything."""
        self._execute_command(command, payload)  # type: ignore[attr-defined]

    def read_reply(self) -> None:
        """Read the OK packet that answers a command."""
        self._read_ok_packet()  # type: ignore[attr-defined]


def open_connection(config: SourceConfig) -> Connected:
    """A PyMySQL connection that is logged in; see `Session.connect` for its errors."""
    operation = f"connect to {config.address}"
    connection: Connected = Connected(
        host=config.host,
        port=config.port,
        user=config.user,
        password=reveal(config.password).encode(),  # PyMySQL would take text for latin1
        database=config.target or config.database,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=config.connect_timeout,
        # Until logged in: a port that accepts and never answers must not hold us for long.
        read_timeout=config.connect_timeout,
        write_timeout=max(config.connect_timeout, 60.0),
        program_name="ratchet",
        defer_connect=True,
        **_tls_arguments(config),
    )
    try:
        connection.connect()
    except (pymysql.err.Error, ssl.SSLError) as error:
        if not isinstance(error, pymysql.err.Error):
            error = pymysql.err.OperationalError(2026, str(error))
        cause = getattr(error, "original_exception", None)
        if isinstance(cause, ssl.SSLError):
            error = pymysql.err.OperationalError(2026, str(cause))
        raise server_failure(
            error,
            operation=operation,
            source=str(config.shard),
            user=config.user,
            database=config.database,
            vtgate=config.through_vtgate,
        ) from cause
    connection.set_read_timeout(config.read_timeout)
    connection.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.socket.setsockopt(sockets.IPPROTO_TCP, option, value)
    return connection


def _tls_arguments(config: SourceConfig) -> dict[str, Any]:
    if config.tls == "disabled":
        return {"ssl_disabled": True}
    if config.tls == "preferred":
        if config.tls_ca or config.tls_cert or config.tls_key:
            raise ConfigError(
                "tls_ca, tls_cert and tls_key have no use with tls: preferred",
                operation="prepare TLS",
                source=str(config.shard),
                hint="set tls to required, verify_ca or verify_identity",
            )
        return {}
    verified = config.tls in {"verify_ca", "verify_identity"}
    return {
        "ssl": tls_context(
            ca=config.tls_ca,
            cert=config.tls_cert,
            key=config.tls_key,
            verify=verified,
            verify_host=config.tls == "verify_identity",
            source=str(config.shard),
        )
    }
