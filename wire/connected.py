"""A PyMySQL connection that takes neither a server's word nor any number of its bytes.

Lives here: `RawConnection`: what a server may send in each phase, to whom the password is shown,
and the few places where PyMySQL's inner parts are used (its version is pinned). Does not live here:
which TLS there is to be (`connect`), what errors mean (`failures`).

Invariants:
- Before the bytes of a packet are taken, they are counted: a handshake has HANDSHAKE, the answer
  to a statement RESULT, a packet of a log's LOG_PACKET.
- Each of these has its time, too, all in all: a time-out between two bytes is none for a server
  that sends a byte now and then.
- The password itself, or what only hides it under a key that came from the other side, goes to a
  server whose certificate was verified, or to a process of this machine that runs as an account to
  trust (wire.peer); never to anybody else. Whose process it is, is asked each time.
- Whatever else a server answers, it ends in an error of PyMySQL's. `UnsoundAnswer` is the one for
  what is no answer, and the connection is closed then.
"""

from __future__ import annotations

import hmac
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import pymysql
from pymysql import _auth
from pymysql.connections import Connection
from pymysql.constants import CR
from pymysql.cursors import Cursor
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

from ratchet.wire.failures import UnprovenPeer, UnsoundAnswer, UntrustedOwner, UnverifiedPeer
from ratchet.wire.peer import distrusted, reaches_this_machine
from ratchet.wire.proof import PLUGIN, proof_of
from ratchet.wire.stream import LARGEST_PACKET, MOST_COLUMNS
from ratchet.wire.tls import tls_context

Verified = Literal["", "authority", "identity", "password"]

HANDSHAKE: Final = 64 << 10
# Of memory, not of the wire: a catalogue of a million columns. Rows of tables come another way
# (wire.stream), where they do not stand in memory together.
RESULT: Final = 256 << 20
LOG_PACKET: Final = LARGEST_PACKET
_SLOWEST: Final = 16 << 10  # bytes a second, of an answer that takes longer than twice its time-out
_PER_READ: Final = 64  # what PyMySQL keeps besides for each read, two of which make a packet,
_PER_VALUE: Final = 64  # and for each value
_PER_COLUMN: Final = 2048  # and for each column

_CLEAR_TEXT: Final = (b"mysql_clear_password", b"dialog")
_NARROW: Final = 0xFB  # a number above it is the width of the one that follows
_FULL_LOGIN: Final = b"\1\4"  # "the scramble did not do: show me the password"
# What PyMySQL raises where an answer is not as it should be.
_STRAY: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,  # a greeting that is too short leaves a variable without a value
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)

if TYPE_CHECKING:
    _Base = Connection[Cursor]
else:
    _Base = Connection  # generic in its stubs only


class _CachingSha2:
    """caching_sha2_password: a scramble of the password, and all of it if the server wants that."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        """Answer the server's packet; gives the next one."""
        connection = self._connection
        if connection.password and packet.is_auth_switch_request():
            connection.salt = packet.read_all().removesuffix(b"\0")
            scramble = _auth.scramble_caching_sha2(connection.password, connection.salt)
            connection.write_packet(scramble)
            packet = connection._read_packet()  # noqa: SLF001 - as PyMySQL's own plugins do
        if packet.get_all_data()[:2] == _FULL_LOGIN:
            connection.show_password_to_peer("caching_sha2_password, in full")
        return _auth.caching_sha2_password_auth(connection, packet)


class _Sha256:
    """sha256_password: nothing less than the password."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        """Answer the server's packet; gives the next one."""
        self._connection.show_password_to_peer("sha256_password")
        return _auth.sha256_password_auth(self._connection, packet)  # type: ignore[no-untyped-call]


PLUGINS: Final[dict[str, Callable[[Any], Any]]] = {
    "caching_sha2_password": _CachingSha2,
    "sha256_password": _Sha256,
}


class _PacedReader:
    """What a server sends, as PyMySQL reads it; told of each piece that comes."""

    def __init__(self, stream: Any, came: Callable[[int], None]) -> None:
        self._stream, self._came = stream, came

    def read(self, size: int) -> bytes:
        """So many bytes, fewer at the end."""
        found = bytearray()
        while len(found) < size and (piece := self._stream.read1(size - len(found))):
            found += piece
            self._came(len(piece))
        return bytes(found)

    def close(self) -> None:
        """Close it."""
        self._stream.close()


class RawConnection(_Base):
    """A PyMySQL connection that lets us send commands and read their answers ourselves.

    Attributes:
        verifies: what TLS verifies of the server before anything else is said.
        wants_proof: whether the server has to prove at the login that it knows the password.
        looks_at_owner: whether a process of this machine that runs as no account to trust is
            refused before anything is said.
    """

    verifies: Verified = ""
    looks_at_owner = False
    wants_proof = False
    _scramble = b""
    _said = b""  # the last packet of the login
    _read_timeout: float | None
    _sock: Any
    _result: Any
    _auth_plugin_name: str
    _room = HANDSHAKE
    _due = 0.0  # when the answer must have come, by the monotonic clock
    _paced: _PacedReader | None = None
    _columns = 0
    _at_head = False  # of an answer, where its columns are counted

    @property
    def socket(self) -> Any:
        """The socket, plain or TLS."""
        return self._sock

    @property
    def cipher(self) -> str:
        """The TLS cipher, as our own end has it; "" without TLS."""
        found = self._sock.cipher() if isinstance(self._sock, ssl.SSLSocket) else None
        return str(found[0]) if found else ""

    @property
    def verified(self) -> Verified:
        """What was verified of the server at the other end."""
        return self.verifies if isinstance(self._sock, ssl.SSLSocket) else ""

    # --- to whom the password goes ----------------------------------------------------------------

    def show_password_to_peer(self, how: str) -> None:
        """Raise if the password must not be shown to whoever asks for it.

        Raises:
            UnverifiedPeer: it might be anybody.
        """
        if not self.password or self.verified:
            return
        asks = f"the server asks for the password itself ({how}), and"
        if not reaches_this_machine(self._sock):
            raise UnverifiedPeer(
                CR.CR_SSL_CONNECTION_ERROR,
                f"{asks} it may be an impostor: its certificate was not verified",
            )
        if why := distrusted(self._sock):
            raise UntrustedOwner(CR.CR_SSL_CONNECTION_ERROR, f"{asks} {why}")

    def _is_ours(self) -> bool:
        """Whether it is a process of this machine that may see the password."""
        return reaches_this_machine(self._sock) and not distrusted(self._sock)

    def _get_server_information(self) -> None:
        if self.looks_at_owner and (why := distrusted(self._sock)):
            raise UntrustedOwner(CR.CR_SSL_CONNECTION_ERROR, f"{why}: nothing was sent to it")
        super()._get_server_information()  # type: ignore[misc]
        # PyMySQL would show the password at once, whatever the account's own plugin is.
        if self._auth_plugin_name == "sha256_password" and not (self.verifies or self._is_ours()):
            self._auth_plugin_name = "caching_sha2_password"
        if self.wants_proof:
            self._auth_plugin_name = PLUGIN.decode()
            self._scramble = self.salt  # type: ignore[attr-defined]

    def _request_authentication(self) -> None:
        super()._request_authentication()  # type: ignore[misc]
        if self.wants_proof:
            self._check_proof()

    def _check_proof(self) -> None:
        certificate = self._sock.getpeercert(binary_form=True)
        wanted = proof_of(self.password, self._scramble, certificate)
        if not hmac.compare_digest(self._said[-len(wanted) :], wanted):
            self._force_close()  # type: ignore[attr-defined]
            raise UnprovenPeer(
                CR.CR_SSL_CONNECTION_ERROR,
                "the server took the login and did not prove that it knows the password: it is "
                "older than MariaDB 11.4, or somebody stands in between",
            )
        self.wants_proof, self.verifies, self._said = False, "password", b""

    def _process_auth(self, plugin_name: bytes, auth_packet: Any, handler: Any = None) -> Any:
        if self.wants_proof:
            if plugin_name != PLUGIN:
                raise UnprovenPeer(
                    CR.CR_SSL_CONNECTION_ERROR,
                    f"the server asks for a login by {plugin_name[:64]!r}, which proves nothing",
                )
            self._scramble = auth_packet.get_all_data().partition(plugin_name + b"\0")[2]
        # PyMySQL would send the password as it is to whoever asks for it in that way.
        if plugin_name in _CLEAR_TEXT:
            if not isinstance(self._sock, ssl.SSLSocket):
                raise pymysql.err.OperationalError(
                    CR.CR_SSL_CONNECTION_ERROR,
                    f"the server asks for the password in clear text ({plugin_name.decode()}), and "
                    "the connection is not encrypted",
                )
            self.show_password_to_peer(plugin_name.decode())
        return super()._process_auth(plugin_name, auth_packet, handler)  # type: ignore[misc]

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        if sslp:
            return super()._create_ssl_ctx(sslp)  # type: ignore[misc, no-any-return]
        # PyMySQL would read the system's authorities for each connection that verifies nothing.
        return tls_context(ca="", cert="", key="", verify=False, verify_host=False, source="")

    # --- how much a server may send, and what -----------------------------------------------------

    def connect(self, sock: Any = None) -> None:
        """Connect and log in; `sock`: a socket that is connected already."""
        self._expect(HANDSHAKE)
        with self._sound():
            super().connect(sock)

    def query(self, sql: Any, unbuffered: bool = False) -> int:  # noqa: FBT001, FBT002 - PyMySQL's
        """Run one statement, which has one answer."""
        with self._sound():
            self._at_head = True
            affected: int = super().query(sql, unbuffered)
            result = self._result
            if result.has_next:
                raise UnsoundAnswer("more than one result came for one statement")
            if result.rows and {len(row) for row in result.rows} != {result.field_count}:
                raise UnsoundAnswer("a row has fewer values than the result has columns")
        return affected

    def _execute_command(self, command: int, sql: Any) -> None:
        super()._execute_command(command, sql)  # type: ignore[misc]
        self._expect(RESULT)

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Any:
        if packet_type is FieldDescriptorPacket:
            self._columns += 1
            if self._columns > MOST_COLUMNS:
                raise UnsoundAnswer(f"a result of more than {MOST_COLUMNS:,} columns")
            self._take(_PER_COLUMN)
        else:
            self._take(_PER_VALUE * self._columns)
        packet: Any = super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
        if self.wants_proof:
            self._said = packet.get_all_data()
        if self._at_head:
            self._at_head = False
            head = packet.get_all_data()
            if head[0] > _NARROW and int.from_bytes(head[1:9], "little") > MOST_COLUMNS:
                raise UnsoundAnswer(f"a result of more than {MOST_COLUMNS:,} columns")
        return packet

    def _read_bytes(self, num_bytes: int) -> bytes:
        self._take(num_bytes + _PER_READ)
        return super()._read_bytes(num_bytes)  # type: ignore[misc, no-any-return]

    @property
    def _rfile(self) -> _PacedReader | None:
        return self._paced

    @_rfile.setter
    def _rfile(self, stream: Any) -> None:
        self._paced = None if stream is None else _PacedReader(stream, self._came)

    def _came(self, size: int) -> None:
        self._due += size / _SLOWEST
        if time.monotonic() > self._due:
            raise TimeoutError("the answer comes too slowly")

    def _expect(self, room: int) -> None:
        """An answer of so many bytes at most, from now on."""
        self._room, self._columns = room, 0
        self._due = time.monotonic() + 2 * (self._read_timeout or 0.0)

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise UnsoundAnswer("the answer does not end: it is larger than any such answer may be")

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """Make one of PyMySQL's errors of whatever a wrong answer leads to in there."""
        try:
            yield
        except UnsoundAnswer:
            self._force_close()  # type: ignore[attr-defined]
            raise
        except pymysql.err.InternalError as error:
            if len(error.args) > 1:
                raise  # the server's own
            self._force_close()  # type: ignore[attr-defined]
            raise UnsoundAnswer(str(error)) from error
        except _STRAY as error:
            self._force_close()  # type: ignore[attr-defined]
            raise _told(error) from error

    # --- what PyMySQL has no methods for ----------------------------------------------------------

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
        self._execute_command(command, payload)

    def read_reply(self) -> None:
        """Read the OK packet that answers a command."""
        with self._sound():
            self._read_ok_packet()  # type: ignore[attr-defined]

    def read_log_packet(self) -> bytes | None:
        """The next packet of a log that was asked for; None at its end."""
        with self._sound():
            self._expect(LOG_PACKET)
            packet = self._read_packet()
            return None if packet.is_eof_packet() else packet.get_all_data()


def _told(error: Exception) -> pymysql.err.Error:
    text = str(error)
    if "package is required" in text:
        return pymysql.err.OperationalError(CR.CR_AUTH_PLUGIN_CANNOT_LOAD, text)
    if "LOAD_LOCAL" in text:
        return UnsoundAnswer("the server asks for a file of this machine (LOCAL INFILE)")
    return UnsoundAnswer(f"PyMySQL cannot read it: {error!r}")
