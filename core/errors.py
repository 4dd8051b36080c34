"""The errors of Ratchet, their classes and exit codes.

    RatchetError                what, where, why and what to do next
     +-- RetryableError         goes away by itself: the caller reconnects with backoff
     +-- OperatorError          needs a person: the hint says what to change
     |    +-- EngineGoneError   Spark has ended under us: start again     (exit 9)
     |    +-- ConfigError       the config file is wrong                  (exit 2)
     |    +-- SourceUnfitError  a server setting or privilege is missing  (exit 3)
     |    +-- PositionLostError the source no longer has what we need     (exit 5)
     |    |    +-- ShardGoneError  it was resharded away; a run heals it by itself
     |    +-- TableDifferentError rows differ from the source's, and it was told (exit 1)
     |    +-- TableStoppedError one table cannot go on, the others can    (exit 6)
     |    +-- LakeError         the lake is not ours, busy or broken      (exit 7)
     |    |    +-- TableFileError  only some of one table's data is
     +-- DecodeError            bytes from a server that we cannot accept (exit 8)
     +-- BugError               a broken invariant of our own             (exit 70)

Raise the concrete classes; the exit code follows the class (`RatchetError.exit_code`).
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from ratchet.core.shell import shell_word

_LONGEST: Final = 8192  # characters of a cause
_BACKTRACE: Final = re.compile(r"\s*\n\s*0: ")
_STRUCTURE: Final = "ParsedLogPath {"
_FILE_NAME: Final = re.compile(r'filename: "([^"]+)"')
_LONGEST_MESSAGE: Final = 32_768  # also of a position: a server may name a million origins


class RatchetError(Exception):
    """An error that names its operation, place, cause and remedy.

    Args:
        message: what went wrong, one sentence, no secrets.
        operation: what was being done ("open the binlog stream", "merge round 12").
        source: the shard it concerns, as "keyspace/shard".
        table: the table it concerns, as "keyspace.table".
        position: where in the stream, in the server's own notation.
        hint: what the reader should do next; empty only for bugs. "redump TABLE" names the table.
    """

    exit_code: ClassVar[int]  # each concrete class has its own

    def __init__(
        self,
        message: str,
        *,
        operation: str = "",
        source: str = "",
        table: str = "",
        position: str = "",
        hint: str = "",
    ) -> None:
        message = _cut(message, _LONGEST_MESSAGE)
        super().__init__(message)
        self.message = message
        self.operation = operation
        self.source = source
        self.table = table
        self.position = _cut(position, _LONGEST_MESSAGE)
        if "." in table and "/" not in table:  # some are paths in the lake
            hint = hint.replace("redump TABLE", f"redump {shell_word(table)}")
        self.hint = hint

    def fields(self) -> dict[str, str]:
        """The parts that are set, in reading order (for logs and JSON)."""
        names = ("operation", "source", "table", "position", "message", "hint")
        found = {name: getattr(self, name) for name in names if getattr(self, name)}
        if self.__cause__ is not None:
            found["cause"] = f"{type(self.__cause__).__name__}: {_shortened(self.__cause__)}"
        return found

    def __str__(self) -> str:
        where = ", ".join(
            f"{name} {value}"
            for name, value in (
                ("source", self.source),
                ("table", self.table),
                ("position", self.position),
            )
            if value
        )
        head = f"{self.operation}: " if self.operation else ""
        tail = f" ({where})" if where else ""
        cause = f"; cause: {_shortened(self.__cause__)}" if self.__cause__ is not None else ""
        return f"{head}{self.message}{tail}{cause}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark workers), so they must pickle with all their parts.
        parts = {
            name: getattr(self, name)
            for name in ("operation", "source", "table", "position", "hint")
        }
        return (_rebuild, (type(self), self.message, parts))


def _rebuild(cls: type[RatchetError], message: str, parts: dict[str, str]) -> RatchetError:
    return cls(message, **parts)


def _shortened(cause: BaseException) -> str:
    """What a cause says: a server's message may have megabytes, and is logged at each try."""
    # Libraries written in Rust may add where in their code it was.
    said = _BACKTRACE.split(str(cause), maxsplit=1)[0]
    if _STRUCTURE in said:  # likewise, all that they know of a file
        said = said.partition(_STRUCTURE)[0] + ", ".join(_FILE_NAME.findall(said))
    return _cut(said, _LONGEST)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]} ..."


class RetryableError(RatchetError):
    """The same call may succeed later: connection lost, server starting, conflict on commit."""

    exit_code = 4


class BehindError(RetryableError):
    """A server lacks transactions that the mirror holds, which may still come."""


class LockedError(RetryableError):
    """Another session of the source holds what is asked for, or has yet to commit it.

    The server is well, so no run ends by it.
    """


class OperatorError(RatchetError):
    """Will not go away by itself; the hint says what to change.

    Raised as it is for what is wrong with this machine: its temporary folder, Java, jars.
    """

    exit_code = 10


class EngineGoneError(OperatorError):
    """Spark's JVM has ended under us: another process may fare better."""

    exit_code = 9


class ConfigError(OperatorError):
    """The config file, or what TMPDIR names, is not what it should be."""

    exit_code = 2


class SourceUnfitError(OperatorError):
    """The source server lacks a setting, a privilege or an account that Ratchet needs."""

    exit_code = 3


class ServerRefusedError(SourceUnfitError):
    """The source server refuses a statement, by an error of which no more is known.

    Where it is about one table alone, whoever reads that one makes it a TableStoppedError.
    """


class DatabaseGoneError(SourceUnfitError):
    """The source's database is not there, or not now: somebody may be loading it anew."""


class UnverifiedServerError(SourceUnfitError):
    """TLS did not come about, or not with the right server."""


class PositionLostError(OperatorError):
    """The source has purged, or never had, transactions that the mirror needs."""

    exit_code = 5


class ShardGoneError(PositionLostError):
    """The shard is no more: a reshard was completed before its stream was read to the end."""


class UnsendableError(PositionLostError):
    """A tablet cannot send one transaction, whose table is not what it was by now.

    Attributes:
        reached: the stream's position behind that transaction; empty: the tablet does not tell.
    """

    reached: str = ""


class TableDifferentError(OperatorError):
    """Rows of the mirror differ from the source's; the config asks for no more than to be told."""

    exit_code: ClassVar[int] = 1


class TableStoppedError(OperatorError):
    """One table cannot be mirrored further; the others go on."""

    exit_code = 6


class TableLostError(TableStoppedError):
    """A part of one table in the lake is gone or damaged: somebody has to look, then dump it."""


class LakeError(OperatorError):
    """The lake cannot be used: not ours, in use by another run, full, or damaged."""

    exit_code = 7


class LakeAwayError(LakeError):
    """The lake cannot be used for now: full, busy or out of reach. A run waits for it a while."""


class DamagedFileError(LakeError):
    """A file of the lake, or a record of one of its logs, is not what was written."""


class TableFileError(LakeError):
    """A file of one table's data is gone or damaged: whoever merges it stops that table alone."""


class NoCutError(OperatorError):
    """What was asked for is in no cut: not yet, or no longer. An answer: the exit code is 1."""


class DecodeError(RatchetError):
    """The server sent bytes that we do not understand. Never skipped."""

    exit_code = 8


class BugError(RatchetError):
    """An invariant of Ratchet's own does not hold."""

    exit_code = 70


# What reading damaged JSON, or values of it that are not what they should be, leads to.
DAMAGE: Final = (
    ArithmeticError,
    AttributeError,
    DecodeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
