"""Another user of the machine, who speaks Spark's wire protocol to whatever port listens.

Spark's messages: eight bytes of length (their own included), a byte for the kind, a head, a body.
An outsider has no secret; these functions send what such a one would, and tell what came back.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from pathlib import Path

_RPC, _RPC_ANSWER, _RPC_FAILURE = 3, 4, 5
_CHUNK, _CHUNK_ANSWER = 0, 1
_NOTHING = -1
_OPEN_BLOCKS = 0
_PATIENCE = 8.0  # seconds


def listening_ports(pid: int) -> list[int]:
    """The TCP ports on which a process listens, of this machine alone: none, if it has ended.

    Raises:
        AssertionError: it listens on an address that other machines reach.
    """
    try:
        found = _listeners(pid)
    except (FileNotFoundError, ProcessLookupError):
        # A zombie's descriptors can be listed, its network cannot be read.
        return []
    open_to_all = sorted(
        f"{address}:{port}" for address, port in found if not _is_loopback(address)
    )
    assert not open_to_all, f"process {pid} listens for other machines: {open_to_all}"
    return sorted({port for _, port in found})


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _is_loopback(address: Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _address(text: str) -> Address:
    """As /proc writes it: words of four bytes, each as a number of this machine."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    return ipaddress.ip_address(packed)


def _listeners(pid: int) -> set[tuple[Address, int]]:
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].rsplit(":", 1)
                found.add((_address(address), int(port, 16)))
    return found


def ask(port: int, body: bytes) -> tuple[str, bytes]:
    """Send one RPC: how it was answered ("answer", "failure", "closed"), and with what."""
    with socket.create_connection(("127.0.0.1", port), _PATIENCE) as connection:
        kind, data = _rpc(connection, body)
        names = {_RPC_ANSWER: "answer", _RPC_FAILURE: "failure"}
        return names.get(kind, "closed"), data


def java_call() -> bytes:
    """The body of an RPC as drivers, masters and executors send them: two addresses and a name.

    What follows goes to Java's deserialization; here it is none of its objects.
    """
    return b"\0" + b"\1\0\4here\0\0\0\1" + b"\0\4name" + b"no Java object"


def open_blocks(app: str, executor: str, blocks: list[str]) -> bytes:
    """The body of a request for blocks."""
    body = bytes([_OPEN_BLOCKS]) + _text(app) + _text(executor)
    return body + struct.pack(">i", len(blocks)) + b"".join(map(_text, blocks))


def blocks_of(port: int, app: str, names: list[str]) -> dict[str, bytes]:
    """Those blocks that the port hands out."""
    found = {}
    for name in names:
        with socket.create_connection(("127.0.0.1", port), _PATIENCE) as connection:
            kind, data = _rpc(connection, open_blocks(app, "driver", [name]))
            if kind == _NOTHING:
                return found  # not one of Spark's, or it hung up
            if kind != _RPC_ANSWER:
                continue
            stream = struct.unpack_from(">q", data, 1)[0]  # behind the message's kind
            _send(connection, _CHUNK, struct.pack(">qi", stream, 0))
            kind, data = _receive(connection)
            if kind == _CHUNK_ANSWER:
                found[name] = data
    return found


def _text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def _rpc(connection: socket.socket, body: bytes) -> tuple[int, bytes]:
    _send(connection, _RPC, struct.pack(">qi", 7, len(body)), body)
    kind, data = _receive(connection)
    # The number of the request, the length of what follows.
    return kind, data[12:]


def _send(connection: socket.socket, kind: int, head: bytes, body: bytes = b"") -> None:
    size = 9 + len(head) + len(body)
    connection.sendall(struct.pack(">qb", size, kind) + head + body)


def _receive(connection: socket.socket) -> tuple[int, bytes]:
    """Kind and the rest of a message; `_NOTHING` when the other side hangs up or stays silent."""
    connection.settimeout(_PATIENCE)
    try:
        head = _exactly(connection, 9)
        size, kind = struct.unpack(">qb", head)
        return kind, _exactly(connection, size - 9)
    except (OSError, EOFError):
        return _NOTHING, b""


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 16))
        if not part:
            raise EOFError
        data += part
    return data
