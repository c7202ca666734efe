"""Texts of other parties, made safe to print."""

from __future__ import annotations

import unicodedata

# Unicode categories that can move the cursor or change the text direction.
_MOVING = ("Cc", "Cf", "Cs", "Zl", "Zp")


def harmless(text: str) -> str:
    """Replace characters that move a terminal's cursor or change the text direction by blanks.

    Parts of printed texts come from other parties and could otherwise forge output.

    >>> harmless("approved" + chr(27) + "[2K")
    'approved [2K'
    """
    moving = {letter for letter in set(text) if unicodedata.category(letter) in _MOVING and letter not in "\n\t"}
    return "".join(" " if letter in moving else letter for letter in text) if moving else text
