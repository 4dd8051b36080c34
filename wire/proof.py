r"""How a MariaDB server proves, at a login, that it knows the password and owns its certificate.

Lives here: that one computation. Does not live here: when it is asked for (`connected`).

From 11.4 on a server without a certificate makes one at each start, which no authority has signed.
Its last answer to a login holds a digest of what only it and we know, with the certificate in it
(measured on 11.8.9): so somebody between us who has a certificate of his own cannot pass it on.

>>> proof_of(b"", bytes(20), b"")[:9].decode()
'\x010E982CBF'
"""

from __future__ import annotations

import hashlib
from typing import Final

PLUGIN: Final = b"mysql_native_password"
SCRAMBLE: Final = 20  # bytes; what comes behind them is an end mark


def proof_of(password: bytes, scramble: bytes, certificate: bytes) -> bytes:
    """What the message of the server's OK has to be.

    Args:
        password: as it is.
        scramble: the server's, of this login.
        certificate: the server's, in DER.
    """
    stored = hashlib.sha1(hashlib.sha1(password).digest()).digest()  # noqa: S324 - as the server does
    digest = hashlib.sha256(stored + scramble[:SCRAMBLE] + hashlib.sha256(certificate).digest())
    return b"\1" + digest.hexdigest().upper().encode()
