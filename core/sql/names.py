"""Whose table a name in a statement is: the mirror's, somebody else's, or perhaps the mirror's.

Lives here: `Scope`. Does not live here: where names stand in statements (`statements`).

Servers compare names of tables by their letters or without regard to case, as their
`lower_case_table_names` says. Where that is not known, a name of other case may be the table's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from operator import getitem
from typing import Final

from ratchet.core.filenames import PREFIX, may_stand_for, stands_for
from ratchet.core.sql.effects import TableName
from ratchet.core.sql.lexer import SqlToken

_LONG: Final = 1000  # characters of a token, of which no name has so many
_PIECE: Final = 1 << 20
_FEW: Final = 8  # words that are sooner looked for one by one
_MANY: Final = 32  # the same, where one of them begins
# Characters that are searched word by word: a statement in which names may begin on each page of a
# longer text may be about any table.
_MOST: Final = 10 << 20
_LOOKED_AT: Final = 8  # letters of each word that are enough to know that most pieces have none
_KEPT: Final = 1 << 16
UNREAD: Final = "\ufffd"  # stands in a text for characters that could not be read
_PLAIN: Final = re.compile(r"[0-9A-Za-z_$]+")


class _State(dict[str, "_State"]):
    """Where a search for many words at once stands: the longest beginning of one that was read.

    As a dictionary: the next state by the next character. Those of the words are put in at once,
    the others as they are met, up to `_KEPT` of them: then they are looked for again each time,
    which takes no more steps than there are characters.

    Attributes:
        shorter: the next shorter such beginning; None for the empty one.
        root: the empty one.
        ends: the words that end here.
        room: how many more states the root lets be kept.
    """

    __slots__ = ("ends", "room", "root", "shorter")
    __hash__ = object.__hash__  # type: ignore[assignment]  # it is a place, not its content

    def __init__(self, root: _State | None = None) -> None:
        self.root: _State = self if root is None else root  # an empty one is false
        self.shorter: _State | None = None
        self.ends: tuple[str, ...] = ()
        self.room = _KEPT

    def __missing__(self, character: str) -> _State:
        at, found = self.shorter, None
        while at is not None and (found := at.get(character)) is None:
            at = at.shorter
        found = self.root if found is None else found
        if self.root.room > 0:
            self.root.room -= 1
            self[character] = found
        return found


@lru_cache(maxsize=2)  # it may take some 40 MB: 2,000 names of 60 letters with nothing in common
def _search(words: frozenset[str]) -> _State:
    """The search for these words, at its beginning (Aho and Corasick, 1975)."""
    root = _State()
    for word in words:
        at = root
        for character in word:
            following = at.get(character)
            if following is None:
                following = at[character] = _State(root)
            at = following
        at.ends = (word,)
    row = [root]
    for at in row:
        for character, following in list(at.items()):
            shorter = at.shorter
            while shorter is not None and character not in shorter:
                shorter = shorter.shorter
            following.shorter = root if shorter is None else shorter[character]
            following.ends += following.shorter.ends
            row.append(following)
    return root


def occurring(text: str, wanted: Collection[str]) -> set[str]:
    """Which of some casefolded words stand anywhere in a text, in whatever letter case."""
    return _occurring([text], frozenset(wanted))


@lru_cache(maxsize=2)
def _beginnings(words: frozenset[str]) -> Callable[[str], bool]:
    """Tells of a text whether one of the words may begin in it, before it is searched.

    Letters are looked for a hundred times as fast as the search goes, a few beginnings twenty
    times, a pattern for any number of them ten times.
    """
    letters = {one[:1] for one in words}
    cut = [{one[:size] for one in words} for size in range(_LOOKED_AT, 1, -1)]
    heads = next((few for few in cut if len(few) <= _FEW), None)
    columns = zip(*words, strict=False)  # as far as all of them have letters
    some = itertools.islice(columns, _LOOKED_AT)
    form = re.compile("".join(f"[{re.escape(''.join(sorted(set(one))))}]" for one in some))

    def may_begin(text: str) -> bool:
        if not any(letter in text for letter in letters):
            return False
        if heads is not None:
            return any(head in text for head in heads)
        return form.search(text) is not None

    return may_begin


def _occurring(texts: Iterable[str], wanted: frozenset[str]) -> set[str]:
    """Which of some casefolded words stand in any of the texts.

    Many words are looked for at once: their number and likeness must not count, as others than the
    mirror's owner may choose names and texts. Piece by piece: Python takes twelve bytes for each
    character of a text that it folds. Where very much would have to be searched, all of them may
    stand there.
    """
    found, searched = set[str](), 0
    more = max(map(len, wanted), default=0)  # folding makes no text shorter
    for text in texts:
        for at in range(0, len(text), _PIECE):
            if len(found) == len(wanted):
                return found
            low = text[at : at + _PIECE + more].casefold()
            if len(wanted) > _FEW:
                if not _beginnings(wanted)(low):
                    continue
                searched += len(low)
                if searched > _MOST:
                    return set(wanted)
            if len(wanted) <= _MANY:
                found |= {one for one in wanted - found if one in low}
            else:
                passed = set(accumulate(low, getitem, initial=_search(wanted)))
                found.update(*(one.ends for one in passed))
    return found


def _in_any_quotes(text: str, names: Collection[str]) -> set[str]:
    """Which names stand anywhere in a text, casefolded: bare, or in one of the quotes.

    Where characters of the text could not be read, any name that holds more than plain letters may.
    """
    odd = names if UNREAD in text else ()
    unread = {one.casefold() for one in odd if not _PLAIN.fullmatch(one)}
    forms = {
        form.casefold(): name.casefold()
        for name in names
        for form in (name, name.replace("`", "``"), name.replace('"', '""'))
    }
    return {forms[one] for one in occurring(text, forms)} | unread


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a statement ran, and what is mirrored there.

    Attributes:
        database: the database whose tables are mirrored; empty: any may be it.
        default: the one that the statement ran in.
        known: names of the tables that are mirrored.
        folds: whether the server compares names without regard to case; None: not known.
        is_base: whether a known name is still that of a table, and not of a view by now.
        is_copy: whether a name that is not known is that of a copy whose changes are captured.
    """

    database: str
    default: str
    known: Collection[str]
    folds: bool | None = None
    is_base: Callable[[str], bool] = field(default=lambda _: True, repr=False, compare=False)
    is_copy: Callable[[str], bool] = field(default=lambda _: False, repr=False, compare=False)
    _by_fold: dict[str, list[str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def is_ours(self, database: str | None) -> bool | None:
        """Whether a database is the mirrored one; None: perhaps."""
        if not self.database:
            return True
        name = self.default if database is None else database
        if name.startswith(PREFIX):  # only one of the servers takes it for another name
            return None if may_stand_for(name, [self.database]) else False
        return self._same(name, self.database)

    def tables(self, named: TableName) -> tuple[list[str], list[str]]:
        """The mirror's tables that a name stands for, and those that it may stand for.

        One that is not known is among the first, as it is written.
        """
        ours = self.is_ours(named.database)
        if ours is False:
            return [], []
        name = named.table
        if name.startswith(PREFIX):
            own = stands_for(name)
            return [], self._may_be(name) or ([own] if own else [])
        if name in self.known:
            found, maybe = [name], []
        else:
            alike = self._alike(name)
            same = [one for one in alike if self._same(name, one) is True]
            maybe = [one for one in alike if self._same(name, one) is None]
            found = same or [name]
        if ours is None:
            return [], [*found, *maybe]
        return found, maybe

    def mentioned(self, tokens: Sequence[SqlToken]) -> list[str]:
        """The known tables whose name occurs in a statement, wherever that is; and copies."""
        names, long, copies = set(), list[str](), set[str]()
        for at, token in enumerate(tokens):
            if token.kind == "sign":
                continue
            qualified = at >= 2 and tokens[at - 1] == SqlToken("sign", ".")
            database = tokens[at - 2].inner if qualified else None
            if qualified and tokens[at - 2].kind == "sign":
                continue
            # t.c, with t a table of the default database, is no c of a database t.
            if len(token.text) <= _LONG and self.is_ours(database) is not False:
                names.add(token.inner.casefold())
                copies |= {token.inner} if self._may_be_copy(token.inner) else set()
                if token.inner.startswith(PREFIX):
                    names |= {one.casefold() for one in self._may_be(token.inner)}
            if token.kind == "string" and len(token.text) <= _LONG:
                parts = token.inner.split(".")
                names |= {part.casefold() for part in parts}
                copies |= set(filter(self._may_be_copy, parts))
            elif token.kind == "string":
                long.append(token.text)
        if long:
            names |= _occurring(long, frozenset(one.casefold() for one in self.known))
        return [*self._folded(names), *sorted(copies - {*self.known})]

    def hidden(self, text: str) -> list[str]:
        """The known tables whose name occurs in a text that could not be split into tokens."""
        if self.is_ours(None) is False and not _in_any_quotes(text, [self.database]):
            return []
        if PREFIX in text:  # the name of a file stands for one that may be written otherwise
            return sorted(self.known)
        return self._folded(_in_any_quotes(text, self.known))

    def _may_be_copy(self, name: str) -> bool:
        """Whether it is a copy's: looked at for each word, so what is quick comes first."""
        return name.startswith("_") and self.is_copy(name)

    def _may_be(self, name: str) -> list[str]:
        """The known tables that the name of a file may stand for."""
        return sorted(may_stand_for(name, self.known))

    def _alike(self, name: str) -> Sequence[str]:
        """The known tables of this name in any letter case: a statement may name very many."""
        if not self._by_fold:
            for one in sorted(self.known):
                self._by_fold.setdefault(one.casefold(), []).append(one)
        return self._by_fold.get(name.casefold(), ())

    def _folded(self, names: Iterable[str]) -> list[str]:
        wanted = set(names)
        return [table for table in sorted(self.known) if table.casefold() in wanted]

    def _same(self, name: str, other: str) -> bool | None:
        if name == other:
            return True
        if self.folds is False or name.casefold() != other.casefold():
            return False
        return True if self.folds and name.lower() == other.lower() else None
