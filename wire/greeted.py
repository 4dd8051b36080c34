"""Whose process has greeted on a gRPC channel without TLS, before a password goes there.

Lives here: the look at the channel's own connection. Does not live here: whom to trust (`peer`),
the call with the password (`vtgate`).

Invariant: the look is at the connection that the call will take. A look at the port before there is
one would say nothing: another user could take the port between the two, as often as he likes; and
another stream's connection may be with a vtgate that listens no more. gRPC shows nobody its
sockets, so the channel has a number of its own for a time-out that the kernel keeps with each
socket, and is found by that. What is left is a vtgate that stops in the moment between the look and
the call.
"""

from __future__ import annotations

import itertools
import os
import socket as sockets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import grpc

from ratchet.core.errors import RetryableError
from ratchet.socketowners import read_entries
from ratchet.wire.failures import OWNER_HINT
from ratchet.wire.peer import distrusted

_NUMBERS: Final = itertools.count()
_LEAST: Final = 10_000  # ms
_MARKS: Final = 9_999  # 20,000 is what gRPC's servers have
_DESCRIPTORS: Final = "/proc/self/fd"
_ESTABLISHED: Final = 1
# Any server of gRPC answers it, if only that it knows no such method.
_KNOCK: Final = "/grpc.health.v1.Health/Check"
_NO_ANSWER: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNAVAILABLE,
    }
)


def new_mark() -> int:
    """A number for a channel's `grpc.keepalive_timeout_ms`, that no other of this process has."""
    return _LEAST + next(_NUMBERS) % _MARKS


def refuse_strangers(channel: grpc.Channel, config: tuple[str, int, float], mark: int) -> None:
    """Connect a channel, and raise if its other end must not be shown a password.

    Args:
        channel: to this machine.
        config: its host and port, and the seconds that connecting may take.
        mark: the channel's.

    Raises:
        RetryableError: it is another user's, who may have taken the port of a vtgate that is away.
        OSError: the connection is gone, or the kernel cannot be asked just now.
        grpc.RpcError: no connection has come about.
    """
    host, port, timeout = config
    _knock(channel, timeout)
    if read_entries(port) is None:
        return  # the kernel does not tell
    with ExitStack() as stack:
        ours = [stack.enter_context(one) for one in _marked(mark)]
        why = next(filter(None, map(distrusted, ours)), "")
        # Who hangs up while the table is read is in it no more, as if root had led us elsewhere.
        # But then our end is not as it was.
        if not why and not (ours and all(map(_is_established, ours))):
            raise ConnectionError("the connection is gone")
    if why:
        raise RetryableError(
            f"the password is not sent: {why}",
            operation="connect to vtgate",
            source=f"{host}:{port}",
            hint=f"{OWNER_HINT}. If vtgate runs as another one, give its ports a certificate "
            "(--grpc-cert, --grpc-key), and set tls: required and tls_ca; if it listens at another "
            "address of this name, name that (host: 127.0.0.1)",
        )


def _knock(channel: grpc.Channel, timeout: float) -> None:
    try:
        channel.unary_unary(_KNOCK)(b"", timeout=timeout)
    except grpc.RpcError as error:
        if not isinstance(error, grpc.Call) or error.code() in _NO_ANSWER:
            raise


def _marked(mark: int) -> Iterator[sockets.socket]:
    """The sockets of this process that have a mark, under numbers of their own; some come twice."""
    for descriptor in tuple(Path(_DESCRIPTORS).iterdir()):
        try:
            number = os.dup(int(descriptor.name))
        except OSError:  # closed meanwhile
            continue
        try:
            found = sockets.socket(fileno=number)
        except OSError:  # something else
            os.close(number)
            continue
        if _mark(found) == mark:
            yield found
        else:
            found.close()


def _mark(sock: sockets.socket) -> int:
    try:
        return sock.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_USER_TIMEOUT)
    except OSError:  # not of TCP
        return 0


def _is_established(sock: sockets.socket) -> bool:
    return sock.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, 1)[0] == _ESTABLISHED
