"""Words of a command that a person is told to type.

Lives here: quoting them. Does not live here: SQL's names (`store.delta.tables.quoted`,
`wire.session.quoted`), patterns of the config (`patterns.exclusion`).
"""

from __future__ import annotations


def shell_word(text: str) -> str:
    r"""A name as one word of a POSIX shell, in quotes; nothing in it is run.

    >>> print(shell_word("shop.my table"), shell_word("a';id;'"))
    'shop.my table' 'a'\'';id;'\'''
    """
    return "'" + text.replace("'", r"'\''") + "'"


def redump(table: str) -> str:
    """The command that dumps a table again, keyspace.table, in backticks."""
    return f"`ratchet table CONFIG redump {shell_word(table)}`"
