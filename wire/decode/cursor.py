"""Reading small structures out of bytes, one field after the other, never past the end."""

from __future__ import annotations

from ratchet.core.errors import DecodeError


class ByteCursor:
    """A place in some bytes. Every reading method moves it, or raises DecodeError at the end."""

    def __init__(self, data: bytes, *, operation: str) -> None:
        self._data = data
        self._pos = 0
        self._operation = operation

    @property
    def left(self) -> int:
        """How many bytes are still to be read."""
        return len(self._data) - self._pos

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count > self.left:
            raise DecodeError(
                f"it ends in the middle of a field: {count} bytes wanted, {self.left} left",
                operation=self._operation,
                position=f"byte {self._pos}",
                hint="the stream may be damaged: try again",
            )
        found = self._data[self._pos : self._pos + count]
        self._pos += count
        return found

    def little(self, count: int) -> int:
        """A little-endian unsigned number of `count` bytes."""
        return int.from_bytes(self.take(count), "little")

    def lenenc(self) -> int:
        """A length-encoded number."""
        first = self.little(1)
        if first < 0xFB:
            return first
        sizes = {0xFC: 2, 0xFD: 3, 0xFE: 8}
        if first not in sizes:
            raise DecodeError(
                f"byte {first:#x} is not a length",
                operation=self._operation,
                position=f"byte {self._pos - 1}",
                hint="the stream may be damaged: try again",
            )
        return self.little(sizes[first])

    def lenenc_bytes(self) -> bytes:
        """As many bytes as the length-encoded number in front of them says."""
        return self.take(self.lenenc())

    def text(self, count: int) -> str:
        """The next `count` bytes as UTF-8."""
        raw = self.take(count)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(
                "a name is not UTF-8", operation=self._operation, position=f"byte {self._pos}"
            ) from error

    def lenenc_text(self) -> str:
        """As much UTF-8 as the length-encoded number in front of it says."""
        return self.text(self.lenenc())

    def bits(self, count: int) -> list[bool]:
        """`count` bits, the highest of each byte first, in whole bytes."""
        raw = self.take((count + 7) // 8)
        return [bool(raw[i // 8] >> (7 - i % 8) & 1) for i in range(count)]
