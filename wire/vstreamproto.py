"""The messages of proto/vstream.proto, as classes."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from ratchet.resources import PROTO


@cache
def messages() -> Any:
    """The module with the messages; compiled from the .proto file when first asked for (50 ms)."""
    import grpc

    if str(PROTO) not in sys.path:
        sys.path.append(str(PROTO))  # where grpc looks for .proto files
    return grpc.protos("vstream.proto")
