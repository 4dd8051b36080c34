"""Deletion vectors: which rows of a data file are gone, as Delta's PROTOCOL.md writes them down.

Lives here: reading one, and writing several into one file. Does not live here: which rows go
(`merge.direct`), the log (`log`).

A file of vectors is a version byte, then for each vector its size (4 bytes, big-endian), the
vector, and its CRC-32. A vector is a magic number (4 bytes, little-endian) and a 64-bit Roaring
bitmap in the portable format, of positions counted from 0.
"""

from __future__ import annotations

import array
import base64
import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ratchet.core.errors import TableFileError
from ratchet.store.delta.actions import DataFile, VectorDescriptor
from ratchet.store.failures import lake_errors, lost_file_hint
from ratchet.store.files import Lake

Vector = BitMap64
Positions = npt.NDArray[np.int64]

_VERSION: Final = b"\x01"
_MAGIC: Final = struct.pack("<i", 1681511377)
_UUID_TEXT: Final = 20  # characters of a UUID in base 85
_TO_Z85: Final = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
_FROM_Z85: Final = bytes.maketrans(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)

# Python fills its table of digits at the first call, and a thread that calls meanwhile finds it
# half empty: "bad base85 character", of a vector that is sound. A module is imported by one thread.
base64.b85decode(b"")


def vector_of(positions: Positions) -> Vector:
    """The vector of some positions."""
    return BitMap64(array.array("Q", positions.astype(np.uint64).tobytes()))


def positions_of(vector: Vector) -> Positions:
    """The positions of the rows that are gone, ascending."""
    found = np.frombuffer(vector.to_array(), np.uint64) if vector else np.empty(0, np.uint64)
    return found.astype(np.int64)


def read_vector(lake: Lake, table: str, descriptor: VectorDescriptor) -> Vector:
    """A file's vector.

    Args:
        lake: the lake.
        table: the table's folder.
        descriptor: where it stands.

    Raises:
        LakeError: it cannot be read, or is damaged.
    """
    size, text = descriptor.size, descriptor.place
    path = table
    if descriptor.storage == "i":
        data = _z85_decoded(text)[:size]
        whole = len(data) == size
    elif descriptor.storage == "u":
        path = f"{table}/{_path_of(text)}"
        raw = lake.read_range(path, descriptor.offset or 0, size + 8)
        data = raw[4:-4]
        whole = raw[:4] == struct.pack(">i", size) and raw[-4:] == _crc(data)
    else:
        raise _damaged(path, f"it lies outside of the table ({descriptor.storage})")
    if not whole or data[:4] != _MAGIC:
        raise _damaged(path, "its size, its checksum or its head is wrong")
    return BitMap64.deserialize(data[4:])


def gone_rows(lake: Lake, table: str, file: DataFile) -> Vector:
    """The rows of a data file that are gone; none if it has no vector.

    Args:
        lake: the lake.
        table: the table's folder.
        file: the data file.

    Raises:
        LakeError: its vector cannot be read, or is damaged.
    """
    return Vector() if file.vector is None else read_vector(lake, table, file.vector)


def vector_path(descriptor: VectorDescriptor) -> str | None:
    """The file that a vector stands in, under the table's folder; None: none, or one elsewhere."""
    if descriptor.storage != "u":
        return None
    return _path_of(descriptor.place)


def write_vectors(lake: Lake, table: str, vectors: Sequence[Vector]) -> list[VectorDescriptor]:
    """Write some into one new file; where each stands.

    Args:
        lake: the lake.
        table: the table's folder.
        vectors: of a file each.

    Raises:
        LakeError: they cannot be written.
    """
    name = uuid.uuid4()
    content, descriptors = bytearray(_VERSION), []
    for vector in vectors:
        data = _MAGIC + vector.serialize()
        descriptors.append(
            VectorDescriptor(
                storage="u",
                place=_z85_encoded(name.bytes),
                offset=len(content),
                size=len(data),
                rows=len(vector),
            )
        )
        content += struct.pack(">i", len(data)) + data + _crc(data)
    path = f"{table}/deletion_vector_{name}.bin"
    with lake_errors("write a deletion vector", path), lake.open_output(path) as sink:
        sink.write(bytes(content))
    return descriptors


def _path_of(text: str) -> str:
    prefix, name = text[:-_UUID_TEXT], uuid.UUID(bytes=_z85_decoded(text[-_UUID_TEXT:]))
    return f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"


def _crc(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))


# Z85 is base 85 with other characters; Python's own is that of RFC 1924.
def _z85_encoded(data: bytes) -> str:
    return base64.b85encode(data).translate(_TO_Z85).decode()


def _z85_decoded(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_FROM_Z85))


def _damaged(path: str, what: str) -> TableFileError:
    return TableFileError(
        f"a deletion vector cannot be used: {what}: {path}",
        operation="read a deletion vector",
        table=path,
        hint=lost_file_hint(path),
    )
