"""Logs of our own: one line per event on stderr, as text or as JSON, without secrets.

Lives here: the handlers, the formats and the filter. Does not live here: results (they go to
stdout) and Spark's log, which goes to a file (`spark`).

Invariant: no configured secret gets through, whatever a message or an exception of a library holds;
and nothing that is not ours gets to the terminal.
"""

from __future__ import annotations

import datetime
import io
import json
import logging
import sys
import threading
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, TextIO

from ratchet.jobs.reporting.terminal import dumped, lines, visible

Format = Literal["text", "json"]

OURS: Final = ("ratchet", "lab")
LEVELS: Final = ("debug", "info", "warning", "error")
# Shorter ones would turn every "a" of a text into stars, and are no secrets.
_MIN_SECRET: Final = 4


def set_up(
    *,
    level: str = "info",
    form: Format = "text",
    stream: TextIO | None = None,
) -> None:
    """Send our packages' log records at `level` and above to `stream` (default: stderr).

    Calling it again replaces what was set up before.
    """
    if isinstance(sys.stderr, Stray):
        sys.stderr.finish()
        sys.stderr = sys.stderr.under
    if form == "json" and stream is None:
        sys.stderr = Stray(sys.stderr)
    handler = logging.StreamHandler(stream) if stream else _Stderr()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    for name in OURS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    # Libraries report what they raise as well, and what they raise we show.
    root = logging.getLogger()
    root.handlers = [logging.NullHandler()]


class _Stderr(logging.StreamHandler[TextIO]):
    """Whatever sys.stderr is at the moment: rich puts lines above its bars by replacing it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """Where to write."""
        return sys.stderr.under if isinstance(sys.stderr, Stray) else sys.stderr


class Stray(io.TextIOBase):
    """Standard error of a JSON log: each line that a library writes to it is a record as well.

    A thread of Python's or Spark's that dies prints its traceback, wherever logs are sent.

    Attributes:
        under: where the records go.
    """

    def __init__(self, under: TextIO) -> None:
        """Begin with nothing written."""
        self.under = under
        self._line = ""
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Take some text; what is not a whole line waits for its end."""
        with self._lock:
            *whole, self._line = (self._line + text).split("\n")
            for line in whole:
                self._emit(line)
        return len(text)

    def flush(self) -> None:
        """Hand on what is whole."""
        self.under.flush()

    def fileno(self) -> int:
        """That of the stream below."""
        return self.under.fileno()

    def finish(self) -> None:
        """Hand on what has no end of line yet."""
        with self._lock:
            rest, self._line = self._line, ""
            self._emit(rest)

    def _emit(self, line: str) -> None:
        if line.strip():
            record = logging.LogRecord("stderr", logging.WARNING, "", 0, line, None, None)
            self.under.write(JsonFormatter().format(record) + "\n")


def hide(secrets: Collection[str]) -> None:
    """From now on these texts are shown as stars, in every message of this process."""
    for secret in secrets:
        if len(secret) >= _MIN_SECRET:
            # Also as it looks inside a repr or a JSON text.
            _secrets.update({secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]})


def clean(text: str) -> str:
    """The text with stars in the place of secrets."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


_secrets: Final[set[str]] = set()


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """What was given as `extra={"fields": {...}}`."""
    found: Mapping[str, Any] = getattr(record, "fields", {})
    return found


def _time(record: logging.LogRecord) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(record.created, tz=datetime.UTC)


class TextFormatter(logging.Formatter):
    """`12:34:56 info jobs.pipeline: message key=value`, in UTC as everything here."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line, and the traceback below it if there is one."""
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        parts = [f"{_time(record):%H:%M:%S} {level}{clean(record.getMessage())}"]
        parts[0] = visible(parts[0])
        if record.exc_info:
            parts.append("  " + lines(clean(self.formatException(record.exc_info))))
        return "\n".join(parts)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, logger, message, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
        data: dict[str, Any] = {
            "ts": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            data["traceback"] = self.formatException(record.exc_info)
        return dumped(_clean_values(data))


def _clean_values(value: Any) -> Any:
    # Before the dump to JSON, whose escapes would hide a secret with quotes in it from the filter.
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {key: _clean_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_values(inner) for inner in value]
    return value
