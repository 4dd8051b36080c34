"""VStream from a vtgate over gRPC: opening, authentication, receiving, errors.

Lives here: `VtgateConfig`, `VStream`, what the status codes of gRPC mean. Does not live here: what
is in a response (`wire.decode.vstream`, `ingest`).

Invariant: the password is in no message, no `repr` and no pickle. It goes to vtgate as it is, as
metadata of each call, which vtgate's static authentication compares: nothing hides it from the
network but `tls`. (MySQL's port has a challenge instead.) gRPC sends it when the other side has
greeted as a gRPC server, so not to a vtgate that wants TLS; and without TLS only when the process
that has greeted, on this machine, runs as an account to trust (wire.peer). A stream that is silent
for longer than its deadline ends as an error: vtgate sends a heartbeat in every idle second, so
silence is a lost link. A response is handed out as its bytes; nothing is parsed here.
"""

from __future__ import annotations

import math
import re
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import grpc

from ratchet.core.errors import (
    BugError,
    ConfigError,
    RatchetError,
    RetryableError,
    ShardGoneError,
    SourceUnfitError,
    UnsendableError,
)
from ratchet.wire.failures import HEAL_HINT
from ratchet.wire.greeted import new_mark, refuse_strangers
from ratchet.wire.peer import is_local
from ratchet.wire.secrets import SecretName, reveal, state_without
from ratchet.wire.tls import tls_context, tls_trouble
from ratchet.wire.vstreamproto import messages

TabletType = Literal["primary", "replica", "rdonly"]

_METHOD: Final = "/vtgateservice.Vitess/VStream"
_RECEIVE: Final = "receive from VStream"
_HEARTBEAT: Final = 1  # seconds
_ROOM: Final = 16 << 20  # bytes that wait to be taken; gRPC's flow control holds back the rest
# A response has as many bytes as vttablet packs together (256 KB), and one row more.
_LARGEST: Final = 1 << 30
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _LARGEST),
    # By a variable of the environment it would go through a machine that nobody has named here,
    # with the password, and a vtgate of this machine is not asked for TLS.
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # Our own pause between attempts is longer.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.primary_user_agent", "ratchet"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VtgateConfig:
    """Where a vtgate is and how to log in.

    Attributes:
        host: name or address.
        port: of gRPC.
        user: account of vtgate's static authentication; empty for none.
        password: never shown; printable ASCII, as gRPC carries it.
        tls: "required" encrypts and verifies the certificate against `tls_ca`; "disabled" does not
            encrypt, the password neither; "auto" is "required", but "disabled" for a vtgate of
            this machine where no file is given. gRPC knows no encryption without verification.
        tls_ca: PEM file of the authority, the system's own ones when empty.
        tls_cert: PEM file of a client certificate; empty for none.
        tls_key: PEM file of its key.
        tablet_type: from which tablets streams come.
        cells: cells to take tablets from, separated by commas; empty for the vtgate's own.
        connect_timeout: seconds until the first response must have come.
    """

    host: str
    port: int
    user: str = ""
    password: str | SecretName = field(default="", repr=False)
    tls: Literal["auto", "disabled", "required"] = "auto"
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tablet_type: TabletType = "primary"
    cells: str = ""
    connect_timeout: float = 10.0

    def __getstate__(self) -> list[Any]:
        """For a task: without the password."""
        return state_without(self)

    @property
    def encrypts(self) -> bool:
        """Whether there is TLS, which always verifies."""
        files = self.tls_ca or self.tls_cert or self.tls_key
        if self.tls == "auto":
            return bool(files) or not is_local(self.host)
        return self.tls == "required"


class VStream:
    """One open stream of the responses of some shards. Use it as a context; for one thread.

    Args:
        config: the vtgate.
        positions: (keyspace, shard, position) of each shard to be streamed; the position in
            Vitess's notation ("MySQL56/uuid:1-5"), or "current".
        tables: regular expression of the tables' names; all if empty.
        silence: seconds without any response after which the stream counts as lost.
    """

    def __init__(
        self,
        config: VtgateConfig,
        positions: Sequence[tuple[str, str, str]],
        *,
        tables: str = ".*",
        silence: float = 30.0,
    ) -> None:
        self._login = credentials(config)  # before anything is opened: it may not be given away
        self._config = config
        self._where = f"{config.host}:{config.port}"
        self._heard = False
        self._silence = silence
        self._heard_at = time.monotonic() + config.connect_timeout - silence
        self._bell = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._ended: Exception | None = None
        self._closed = False
        self._mark = new_mark()
        self._channel = open_channel(config, self._mark)
        self._request = request(config, positions, tables=tables)
        self._call: Any = None
        if not _is_shown(self._login, config):
            self._begin()
        # Receives while what came before is decoded.
        self._reader = threading.Thread(target=self._read, name="vstream", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def receive(self, timeout: float | None = None) -> bytes | None:
        """The next response; comes within a second where nothing happens (a heartbeat).

        Args:
            timeout: seconds after which there is None to have; None waits.

        Raises:
            RetryableError: the link is lost, or vtgate has lost its tablet.
            ShardGoneError: the shard is no more.
            SourceUnfitError: vtgate refuses us.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        with self._bell:
            while not self._waiting:
                now = time.monotonic()
                if self._ended is not None:
                    raise self._failure(self._ended) from None
                if now >= until:
                    return None
                silent_at = self._heard_at + self._silence
                if now >= silent_at:
                    raise self._silent()
                self._bell.wait(min(silent_at, until) - now)
            found = self._waiting.popleft()
            self._bytes -= len(found)
            self._bell.notify_all()
            return found

    def close(self) -> None:
        """End the stream. Harmless when repeated."""
        with self._bell:
            self._closed = True
            self._bell.notify_all()
        self._cancel()
        self._channel.close()

    def _begin(self) -> None:
        call = self._channel.unary_stream(
            _METHOD,
            request_serializer=messages().Request.SerializeToString,
            response_deserializer=None,
        )
        self._call = call(self._request, metadata=self._login)

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _read(self) -> None:
        try:
            if self._call is None:
                there = (self._config.host, self._config.port, self._config.connect_timeout)
                refuse_strangers(self._channel, there, self._mark)
                with self._bell:
                    if self._closed:
                        return
                    self._begin()
            for response in self._call:
                with self._bell:
                    self._heard = True
                    self._heard_at = time.monotonic()
                    self._waiting.append(response)
                    self._bytes += len(response)
                    self._bell.notify_all()
                    while self._bytes > _ROOM and not self._closed:
                        self._bell.wait()
                    # Whoever takes what waited has heard of it now.
                    self._heard_at = time.monotonic()
            ended: Exception = StopIteration()
        except Exception as error:  # noqa: BLE001 - whatever it is, the receiver has to know
            ended = error
        with self._bell:
            self._ended = ended
            self._bell.notify_all()

    def _silent(self) -> RatchetError:
        self._cancel()
        return RetryableError(
            f"nothing was received for {self._silence:g} s",
            operation=_RECEIVE,
            source=self._where,
            hint="check that vtgate runs and can be reached; a run tries again by itself",
        )

    def _failure(self, error: Exception) -> RatchetError:
        if isinstance(error, RatchetError):
            return error
        if isinstance(error, grpc.RpcError):
            if not self._heard and _code(error) is grpc.StatusCode.UNAVAILABLE:
                trouble = self._tls_trouble()
                if trouble is not None:
                    return trouble
            return failure(error, operation=_RECEIVE, source=self._where)
        if isinstance(error, OSError):
            kind, hint = _RETRY
            return kind(f"UNAVAILABLE: {error}", operation=_RECEIVE, source=self._where, hint=hint)
        if isinstance(error, StopIteration):
            return RetryableError(
                "vtgate has ended the stream",
                operation=_RECEIVE,
                source=self._where,
                hint="it is opened again by itself",
            )
        return BugError(f"receiving failed: {error!r}", operation=_RECEIVE, source=self._where)

    def _tls_trouble(self) -> RatchetError | None:
        config = self._config
        what = tls_trouble(
            config.host, config.port, _context(config), timeout=config.connect_timeout
        )
        if not what:
            return None
        return SourceUnfitError(
            what,
            operation="connect to vtgate",
            source=self._where,
            hint="check tls, tls_ca, tls_cert and tls_key in the config, and --grpc-cert, "
            "--grpc-key and --grpc-ca of vtgate; the certificate has to name the host"
            + (_BY_ITSELF if config.tls == "auto" and config.encrypts else ""),
        )


_BY_ITSELF: Final = (
    ". `tls` is not in the config, and for a vtgate on another machine that means required; tls: "
    "disabled sends rows over the network unencrypted, and is refused with a password"
)


def open_channel(config: VtgateConfig, mark: int) -> grpc.Channel:
    """A channel to a vtgate; connects when it is first used.

    Args:
        config: the vtgate.
        mark: milliseconds after which a keepalive without an answer ends it (wire.greeted).

    Raises:
        ConfigError: a file for TLS cannot be read.
    """
    address = f"{config.host}:{config.port}"
    options = (*_OPTIONS, ("grpc.keepalive_timeout_ms", mark))
    if not config.encrypts:
        return grpc.insecure_channel(address, options=options)
    _context(config)  # gRPC would say of a wrong file that vtgate is unavailable
    ca, cert, key = (_pem(path) for path in (config.tls_ca, config.tls_cert, config.tls_key))
    secure = grpc.ssl_channel_credentials(
        root_certificates=ca, private_key=key, certificate_chain=cert
    )
    return grpc.secure_channel(address, secure, options=options)


def credentials(config: VtgateConfig) -> tuple[tuple[str, str], ...]:
    """What vtgate's static authentication reads of a call.

    Raises:
        ConfigError: gRPC cannot carry them.
        SourceUnfitError: they would go over the network as they are, to whoever answers.
    """
    if not config.user:
        return ()
    password = reveal(config.password)
    if password and not config.encrypts and not is_local(config.host):
        raise SourceUnfitError(
            "the password is not sent: without TLS anybody on the network path could read it",
            operation="connect to vtgate",
            source=f"{config.host}:{config.port}",
            hint="give vtgate's ports a certificate (--grpc-cert, --grpc-key) and set tls: "
            "required; or reach it through a tunnel of this user or root that ends on this machine "
            "(host: 127.0.0.1)",
        )
    for name, value in (("user", config.user), ("password", password)):
        if not (value.isascii() and (value.isprintable() or not value)):
            raise ConfigError(
                f"the {name} has characters that gRPC cannot carry",
                operation="connect to vtgate",
                source=f"{config.host}:{config.port}",
                hint="use an account of vtgate whose name and password are printable ASCII",
            )
    return (("username", config.user), ("password", password))


def _is_shown(login: Sequence[tuple[str, str]], config: VtgateConfig) -> bool:
    """Whether a password is in it that whoever has the port would read."""
    return bool(dict(login).get("password")) and not config.encrypts


def request(config: VtgateConfig, positions: Sequence[tuple[str, str, str]], *, tables: str) -> Any:
    """The request of a VStream."""
    proto = messages()
    found = proto.Request(
        tablet_type=proto.TabletType.Value(config.tablet_type.upper()),
        # No minimize_skew: it stalls behind a reshard (docs/vitess.md).
        # The journal is the last that comes of a shard: what follows is another stream's.
        flags=proto.Flags(
            heartbeat_seconds=_HEARTBEAT,
            include_journal=True,
            stop_on_reshard=True,
            cells=config.cells,
        ),
    )
    for keyspace, shard, gtid in positions:
        found.start.shards.add(keyspace=keyspace, shard=shard, gtid=gtid)
    found.filter.rules.add(match=f"/{tables}")
    return found


def failure(error: grpc.RpcError, *, operation: str, source: str) -> RatchetError:
    """What an error of a call means."""
    if not isinstance(error, grpc.Call):
        return BugError(f"gRPC failed: {error}", operation=operation, source=source)
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.FAILED_PRECONDITION and _GONE in details:
        return ShardGoneError(
            "the shard no longer exists: a reshard was completed before its stream was read to the "
            f"end ({details[:300]})",
            operation=operation,
            source=source,
            hint="the next `ratchet run` dumps the keyspace's tables again by itself",
        )
    if any(text in details for text in _UNSENDABLE):
        lost = UnsendableError(
            "the tablet cannot read rows from before a DROP, RENAME or ALTER of their table "
            f"({details[-300:]})",
            operation=operation,
            source=source,
            hint="a tablet knows only the current form of its tables, so a stream cannot start "
            f"before such a statement: {HEAL_HINT}",
        )
        reached = _REACHED.search(details)
        lost.reached = reached[1] if reached else ""
        return lost
    kind, hint = _MEANINGS.get(code, _RETRY)
    return kind(f"{code.name}: {details[:500]}", operation=operation, source=source, hint=hint)


_GONE: Final = "shard provided in VGTID"  # vtgate 24 goes on: "-80, not found in the ... keyspace"
# Of a vttablet. It reads its tables anew before it says so, and would say it at every attempt.
_UNSENDABLE: Final = (
    " in schema\nfailed to build table replication plan",
    "cannot determine table columns",
)
# The last of the transactions in it is the one that could not be sent.
_REACHED: Final = re.compile(r"including the GTID we failed to process\) ([0-9a-fA-F:,-]+): ")
_RETRY: Final[tuple[type[RatchetError], str]] = (
    RetryableError,
    "check that vtgate and its tablets run, and the port of gRPC; a run tries again by itself",
)
_ACCOUNT_HINT: Final = (
    "check user and password; vtgate reads them from --grpc-auth-static-password-file"
)
_MEANINGS: Final[Mapping[grpc.StatusCode, tuple[type[RatchetError], str]]] = {
    grpc.StatusCode.UNAUTHENTICATED: (
        SourceUnfitError,
        _ACCOUNT_HINT,
    ),
    grpc.StatusCode.PERMISSION_DENIED: (
        SourceUnfitError,
        f"{_ACCOUNT_HINT}, and allow the user in the ACLs of vtgate and of the tablets",
    ),
    grpc.StatusCode.UNIMPLEMENTED: (
        SourceUnfitError,
        "start vtgate with grpc-vtgateservice in --service-map",
    ),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        SourceUnfitError,
        "a row is larger than vtgate or its tablets send: raise --grpc-max-message-size there",
    ),
}


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None


def _context(config: VtgateConfig) -> ssl.SSLContext | None:
    if not config.encrypts:
        return None
    return tls_context(
        ca=config.tls_ca,
        cert=config.tls_cert,
        key=config.tls_key,
        verify=True,
        verify_host=True,
        source=f"{config.host}:{config.port}",
    )


def _pem(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
