"""Who is on the other side of a connection: this machine, or one that a network lies between.

Lives here: `is_local` for a config's host, `reaches_this_machine` for a socket. Does not live here:
what follows from it (`connect`, `connected`, `vtgate`).

Invariant: what is not surely this machine is another one.
"""

from __future__ import annotations

import ipaddress
import socket as sockets
from typing import Any


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


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
