"""Reading a YAML file into items that know their place in it.

Lives here: parsing within bounds, line numbers, `${NAME}` from the environment, and the scalar
conversions with their error messages. Does not live here: which keys exist (`config`).

Invariant: no value that came from the environment, and no value under a secret key, gets into a
message. YAML's own types are not used: a scalar is its text, and the key it stands under says what
it has to be. So the shard name `-80` needs no quotes, and `no` is not a boolean.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

import yaml

from ratchet.core.errors import ConfigError
from ratchet.jobs.reporting.terminal import is_text
from ratchet.owned import refuse_foreign_pipe

MAX_BYTES: Final = 1 << 20
MAX_ITEMS: Final = 20_000  # with every alias written out, so nested anchors cannot explode
MAX_DEPTH: Final = 20

_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NULL: Final = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigNode:
    """One value of the file, with its place.

    Attributes:
        file: the file's name as the user gave it.
        line: from 1.
        path: its keys joined by dots, "" for the whole file.
        text: a scalar's text with the environment put in; None for anything else and for null.
        entries: a mapping's entries in their order; None for anything else.
        elements: a list's elements; None for anything else.
        variables: names of the environment variables in `text`.
        unused: whether its value is not going to be used.
    """

    file: str
    line: int
    path: str
    text: str | None = None
    entries: Mapping[str, ConfigNode] | None = None
    elements: tuple[ConfigNode, ...] | None = None
    variables: tuple[str, ...] = ()
    unused: bool = False

    def __repr__(self) -> str:
        return f"Item({self.file}:{self.line} {self.path})"  # a text may be a secret

    def fail(self, message: str, *, hint: str = "") -> NoReturn:
        """Raise a ConfigError that names the place."""
        where = f"{self.file}:{self.line}"
        what = f"{self.path}: " if self.path else ""
        raise ConfigError(
            f"{where}: {what}{message}",
            operation="read the config",
            hint=hint or "conf/example.yaml explains every key",
        )

    def inner(self) -> Iterator[ConfigNode]:
        """Itself and all items in it, however deep."""
        yield self
        for one in (*(self.entries or {}).values(), *(self.elements or ())):
            yield from one.inner()

    def all_variables(self) -> frozenset[str]:
        """Names of the environment variables in it, however deep."""
        return frozenset(name for one in self.inner() for name in one.variables)

    def shown(self) -> str:
        """The value for a message; never one that came from the environment."""
        if self.variables:
            return "the value of " + ", ".join(f"${{{name}}}" for name in self.variables)
        if self.entries is not None:
            return "a mapping"
        if self.elements is not None:
            return "a list"
        return "nothing" if self.text is None else repr(self.text[:80])

    def mapping(self, known: Iterable[str] | None = None) -> Mapping[str, ConfigNode]:
        """Its entries; with `known`, any other key is an error that names the nearest one."""
        if self.entries is None:
            what = "a text" if self.text else self.shown()  # a URL may have a password in it
            self.fail(f"a mapping (key: value) is needed here, not {what}")
        if known is not None:
            names = list(known)
            for key, entry in self.entries.items():
                if key not in names:
                    shown = _shown_key(key)
                    place = entry if shown == repr(key) else replace(self, line=entry.line)
                    place.fail(f"unknown key {shown}{_nearest(key, names)}")
        return self.entries

    def sequence(self) -> tuple[ConfigNode, ...]:
        """Its elements."""
        if self.elements is None:
            self.fail(f"a list is needed here, not {self.shown()}")
        return self.elements

    def string(self, *, secret: bool = False) -> str:
        """Its text. With `secret`, no message shows the value."""
        if self.text is None:
            shown = "something else" if secret else self.shown()
            self.fail(
                f"a text is needed here, not {shown}",
                hint='an empty text is written as ""',
            )
        return self.text

    def integer(self, low: int, high: int) -> int:
        """Its value as an integer in the range."""
        text = (self.text or "").replace("_", "")
        if not re.fullmatch(r"[+-]?\d{1,20}", text):
            self.fail(f"a whole number is needed here, not {self.shown()}")
        return int(self._within(int(text), low, high))

    def number(self, low: float, high: float) -> float:
        """Its value as a number in the range."""
        if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", self.text or ""):
            self.fail(f"a number is needed here, not {self.shown()}")
        return self._within(float(self.text or ""), low, high)

    def boolean(self) -> bool:
        """Its value as true or false."""
        found = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        value = found.get((self.text or "").lower())
        if value is None:
            self.fail(f"true or false is needed here, not {self.shown()}")
        return value

    def choice(self, options: tuple[str, ...]) -> str:
        """Its text, which must be one of the options."""
        if self.text not in options:
            listed = " or ".join(repr(option) for option in options)
            near = "" if self.variables else _nearest(self.text or "", options)
            self.fail(f"{listed} is needed here, not {self.shown()}{near}")
        return self.text

    def seconds(self, low: float, high: float) -> float:
        """A duration: a number of seconds, or one with a unit (`500ms`, `15m`, `7d`)."""
        return self._scaled(
            {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400},
            low,
            high,
            "a duration (7d)",
        )

    def bytes(self, low: int, high: int) -> int:
        """A size: a number of bytes, or one with a unit (`64KB`, `256MB`, `2GB`; 1 KB = 1024)."""
        units = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
        return int(self._scaled(units, low, high, "a size (256MB)"))

    def _scaled(self, units: Mapping[str, float], low: float, high: float, what: str) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", (self.text or "").strip())
        if match is None or match[2] not in units:
            listed = ", ".join(unit for unit in units if unit)
            self.fail(f"{what} is needed here, not {self.shown()}", hint=f"the units are {listed}")
        return self._within(float(match[1]) * units[match[2]], low, high)

    def _within(self, value: float, low: float, high: float) -> float:
        if not low <= value <= high:
            self.fail(f"{self.shown()} is outside of {low:,} to {high:,}")
        return value


def _shown_key(key: str) -> str:
    """A key for a message. One with a colon has a value in it: a space is missing behind that."""
    name, colon, value = key.partition(":")
    if colon and value:
        return f"{name + ':...'!r} (a space belongs behind the colon)"
    return repr(key) if re.fullmatch(r"[\w.-]{1,40}", key) else "(not shown)"


def _nearest(key: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(key, list(names), n=1, cutoff=0.4)
    return f"; did you mean {found[0]!r}?" if found else ""


def read_yaml(path: Path, environment: Mapping[str, str], *, unused: str = "") -> ConfigNode:
    """Read a file.

    Args:
        path: the file.
        environment: where `${NAME}` is looked up.
        unused: a top-level key whose values are not going to be used: variables in them that are
            not set read as "1", which is a text and a number.

    Raises:
        ConfigError: it cannot be read, is not YAML, is too large, has a key twice, or names an
            environment variable that is not set.
    """
    try:
        refuse_foreign_pipe(path)
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(
                f"{path}: {size:,} bytes is too large for a config (at most {MAX_BYTES:,})",
                operation="read the config",
                hint="is this the right file?",
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        raise ConfigError(
            f"{path}: cannot be read{why}",
            operation="read the config",
            hint="the first argument is the YAML file; start from conf/example.yaml",
        ) from error
    return parse_yaml(text, str(path), environment, unused=unused)


def parse_yaml(
    text: str, file: str, environment: Mapping[str, str], *, unused: str = ""
) -> ConfigNode:
    """Parse the text of a file; see `read_yaml`."""
    try:
        _check_depth(text, file)
        # compose() builds nodes only: no tag of YAML's makes an object.
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (ValueError, OverflowError):
        # PyYAML's own: "\\U00110000", a %YAML directive with thousands of digits.
        raise ConfigError(
            f"{file}: there is an escaped character or a YAML version that does not exist",
            operation="read the config",
            hint="look for \\U in double quotes, and for a line that begins with %YAML",
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        # The parser's own text quotes the line, which may hold a password; so do some problems.
        problem = re.sub(r"'[^']{2,}'", "'...'", getattr(error, "problem", None) or "not YAML")
        raise ConfigError(
            f"{file}{line}: {problem}",
            operation="read the config",
            hint="this is about YAML's own rules: indentation, brackets, and quotes around a text "
            "that begins with *, &, ! or the like",
        ) from None
    if node is None:
        raise ConfigError(
            f"{file}: the file is empty",
            operation="read the config",
            hint="start from conf/example.yaml",
        )
    return _Builder(file, environment, unused).build(node, "", 0)


def _check_depth(text: str, file: str) -> None:
    # compose() recurses once a level, so it may only see what is known to be shallow; the events
    # come from a loop, whatever the depth.
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH or count > 2 * MAX_ITEMS:
            mark = event.start_mark
            line = f":{mark.line + 1}" if mark is not None else ""
            raise ConfigError(
                f"{file}{line}: nested too deeply, or too many entries",
                operation="read the config",
                hint=f"a config has at most {MAX_DEPTH} levels and {MAX_ITEMS:,} entries; "
                "is this the right file?",
            )


class _Builder:
    """Turns nodes into items, counting them so that aliases cannot multiply without bound."""

    def __init__(self, file: str, environment: Mapping[str, str], unused: str) -> None:
        self._file = file
        self._unused = unused
        self._environment = environment
        self._count = 0

    def build(self, node: yaml.Node, path: str, depth: int) -> ConfigNode:
        unused = bool(self._unused) and path.partition(".")[0] == self._unused
        here = ConfigNode(file=self._file, line=node.start_mark.line + 1, path=path, unused=unused)
        self._count += 1
        if self._count > MAX_ITEMS or depth > MAX_DEPTH:
            here.fail(
                "the file is nested too deeply or has too many entries",
                hint="do its anchors (&) and aliases (*) repeat each other?",
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, here, depth)
        if isinstance(node, yaml.SequenceNode):
            elements = tuple(
                self.build(child, f"{path}[{number}]", depth + 1)
                for number, child in enumerate(node.value)
            )
            return replace(here, elements=elements)
        if not isinstance(node, yaml.ScalarNode):
            here.fail("neither a text, a list nor a mapping")
        if node.tag == _NULL and node.style is None:
            return here
        return self._scalar(node.value, here)

    def _mapping(self, node: yaml.MappingNode, here: ConfigNode, depth: int) -> ConfigNode:
        entries: dict[str, ConfigNode] = {}
        for key, value in node.value:
            place = ConfigNode(file=self._file, line=key.start_mark.line + 1, path=here.path)
            if not isinstance(key, yaml.ScalarNode):
                place.fail("a key must be a plain text")
            if key.value in entries:
                place.fail(f"the key {key.value!r} is given twice", hint="remove one of them")
            path = f"{here.path}.{key.value}" if here.path else key.value
            entry = self.build(value, path, depth + 1)
            # The line of the key: that is where a reader looks for a key that is wrong.
            entries[key.value] = replace(entry, line=place.line)
        return replace(here, entries=entries)

    def _scalar(self, text: str, here: ConfigNode) -> ConfigNode:
        variables: list[str] = []

        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name is None:
                return "${"  # written as $${
            if not _NAME.fullmatch(name):
                here.fail(
                    "${...} must hold the name of an environment variable",
                    hint="write $${ for a literal ${",
                )
            if name not in self._environment:
                if here.unused:
                    return "1"
                here.fail(f"the environment variable {name} is not set", hint=f"export {name}=...")
            variables.append(name)
            return self._environment[name]

        full = _VARIABLE.sub(value, text)
        if "\0" in full or not is_text(full):
            here.fail("a text holds a zero byte or half a character")
        return replace(here, text=full, variables=tuple(variables))
