"""A process of another user of this machine, who serves a port as an impostor would.

Started by `stranger_kit`: KIND ADDRESS PORT UID; port 0 is any. It says its port, and at the end of
its input, as JSON, what each connection has told it: in hex, or as metadata.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - the other user may not be able to read it
import json
import os
import socket
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from server_kit import OK, Client, greeting

from lab.tls import make_certificates


def become(user: int) -> None:
    """Be another user, if we may."""
    if user != os.geteuid():
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def say(what: object) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def serve_mysql(address: str, port: int, folder: Path) -> None:
    """Ask everybody for the password in clear text, under a certificate of our own."""
    made = make_certificates(folder, self_signed=True)
    clients: list[Client] = []

    def play(client: Client) -> None:
        try:
            client.send(0, greeting(tls=True))
            client.to_tls(made.certificate, made.key)
            client.read()
            client.send(3, b"\xfemysql_clear_password\0")
            client.read()
            client.send(5, OK)
            while client.read():
                client.send(1, OK)
        except OSError:  # it has hung up
            pass

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    both = family == socket.AF_INET6 and address == "::"
    with socket.create_server((address, port), family=family, dualstack_ipv6=both) as server:

        def accept() -> None:
            while True:
                sock, _ = server.accept()
                clients.append(Client(sock))
                threading.Thread(target=play, args=(clients[-1],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        say(server.getsockname()[1])
        sys.stdin.read()
        say([client.heard.hex() for client in clients])


def serve_grpc(address: str, port: int) -> None:
    """Take every call."""
    told: list[dict[str, Any]] = []

    class Listener(grpc.GenericRpcHandler):
        def service(self, details: Any) -> None:
            told.append(dict(details.invocation_metadata))

    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, handlers=[Listener()])
        port = server.add_insecure_port(f"{address}:{port}")
        server.start()
        say(port)
        sys.stdin.read()
        server.stop(None).wait()
    say([str(one) for one in told if "password" in one])


if __name__ == "__main__":
    kind, where, number, uid = sys.argv[1:]
    become(int(uid))
    if kind == "grpc":
        serve_grpc(where, int(number))
    else:
        with tempfile.TemporaryDirectory() as place:
            serve_mysql(where, int(number), Path(place))
    os._exit(0)
