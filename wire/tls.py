"""TLS: a context from PEM files, and why a port that cannot be used does not take us.

Lives here: `tls_context`, `tls_trouble`, what an alert looks like. Does not live here: connections
that are used (`connect`, `vtgate`).

gRPC says of a failed handshake that the server is unavailable, as of one that is down, and of an
alert that its own data are corrupt. So where no stream comes about, `tls_trouble` tries the
handshake alone, with the same files, to tell what an operator has to change from what goes away.
"""

from __future__ import annotations

import re
import socket as sockets
import ssl
from typing import Final

from ratchet.core.errors import ConfigError

# What the other side says of our certificate, or of having seen none; of what we encrypt with.
ALERT: Final = re.compile(
    r"\[SSL: [A-Z0-9_]*ALERT_(CERTIFICATE|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|UNKNOWN_CA"
    r"|ACCESS_DENIED|HANDSHAKE_FAILURE|PROTOCOL_VERSION)"
)
_NO_TLS: Final = re.compile(r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|UNKNOWN_PROTOCOL")


def tls_context(
    *, ca: str, cert: str, key: str, verify: bool, verify_host: bool, source: str
) -> ssl.SSLContext:
    """A client's context.

    Args:
        ca: PEM file of the authority; empty: the system's own ones, if anything is verified. Those
            take 30 ms to read.
        cert: PEM file of our certificate; empty for none.
        key: PEM file of its key.
        verify: whether the server's certificate has to be signed by the authority.
        verify_host: whether it also has to name the host.
        source: for messages.

    Raises:
        ConfigError: a file cannot be read, is none of PEM, or certificate and key do not match.
    """
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = verify_host
        context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
        if ca:
            context.load_verify_locations(ca)
        elif verify:
            context.load_default_certs()
        if cert:
            context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"a TLS file cannot be read: {error}",
            operation="prepare TLS",
            source=source,
            hint="check tls_ca, tls_cert and tls_key",
        ) from error
    return context


def tls_trouble(host: str, port: int, context: ssl.SSLContext | None, *, timeout: float) -> str:
    """What an operator has to change for a gRPC port to take us; "" if that is not known.

    Args:
        host: name or address.
        port: of gRPC.
        context: what we encrypt with; None for a connection without TLS.
        timeout: seconds.
    """
    tried = context or tls_context(
        ca="", cert="", key="", verify=False, verify_host=False, source=host
    )
    tried.set_alpn_protocols(["h2"])  # gRPC's servers refuse others
    try:
        with (
            sockets.create_connection((host, port), timeout) as plain,
            tried.wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            if context is not None:
                # A server that misses our certificate says so behind its handshake.
                encrypted.recv(1)
    except ssl.SSLError as error:
        text = str(error)
        if context is None:
            return _WANTED if ALERT.search(text) else ""
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"vtgate's certificate is not accepted: {error.verify_message}"
        if ALERT.search(text):
            return f"vtgate does not accept our certificate, or requires one: {text}"
        return f"vtgate does not speak TLS on this port: {text}" if _NO_TLS.search(text) else ""
    except OSError:
        return ""
    return _WANTED if context is None else ""


_WANTED: Final = "vtgate accepts only encrypted connections"
