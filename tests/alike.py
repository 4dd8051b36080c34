"""Two names of tables that would share a folder in the lake: their SHA-256 begins alike.

It took three quarters of an hour to find them.
"""

from __future__ import annotations

from typing import Final

ALIKE: Final = [
    "\u4e00" * 22 + one
    for one in ("\u5478\u61de\u530f\u6ad2\u5300", "\u6bba\u5bd3\u5ede\u5a98\u591e")
]
