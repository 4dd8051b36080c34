"""The messages of proto/vstream.proto, as classes."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "proto"


@cache
def messages() -> Any:
    """The module with the messages; compiled from the .proto file when first asked for (50 ms)."""
    import grpc

    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))  # where grpc looks for .proto files
    return grpc.protos("vstream.proto")
