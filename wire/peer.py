"""Who is on the other side of a connection: this machine, or one that a network lies between.

Lives here: `is_local` for a config's host, `reaches_this_machine` for a socket, `distrusted`
for whose process it is there. Does not live here: what follows from it (`connect`, `connected`,
`greeted`, `vtgate`), how the kernel says it (`ratchet.socketowners`).

Invariant: what is not surely this machine is another one. Whoever serves a port of this machine
can be any of its users, as soon as the server that had it is stopped.
"""

from __future__ import annotations

import ipaddress
import socket as sockets
from typing import Any

from ratchet.socketowners import Owners, Place, is_trusted, owners, place, read_entries, user_name


def is_local(host: str) -> bool:
    """Whether a host in a config is this machine by its own name: no name is looked up."""
    return host.lower().rstrip(".") == "localhost" or _is_loopback(host.strip("[]"))


def reaches_this_machine(sock: Any) -> bool:
    """Whether a socket's other end is a process of this machine (a tunnel's entry also is)."""
    if sock.family == sockets.AF_UNIX:
        return True
    try:
        return _is_loopback(str(sock.getpeername()[0]))
    except OSError:  # it is gone
        return False


def distrusted(sock: Any) -> str:
    """Why the process at a socket's other end is none to trust with what is for a server.

    Empty if it may be, if it is on another machine, or if the kernel does not tell: that is so
    without Linux, and where root lets the address lead elsewhere.

    Raises:
        OSError: the kernel cannot be asked just now, or the connection is gone.
    """
    if sock.family == sockets.AF_UNIX:
        return ""
    peer, own = (place(*name[:2]) for name in (sock.getpeername(), sock.getsockname()))
    if not _is_loopback(peer[0]):
        return ""
    entries = read_entries(peer[1])
    return "" if entries is None else _complaint(peer, owners(entries, peer, own))


def _complaint(peer: Place, found: Owners) -> str:
    address = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
    if found.is_orphan:  # a server that stops; or one who hides
        raise ConnectionError(f"nobody serves {address} any more")
    if strangers := sorted(user for user in found.users if not is_trusted(user)):
        who = ", ".join(user_name(user) for user in strangers)
        return f"{address} is served by a process of {who}, who may be an impostor"
    return ""


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
