"""Texts of other parties, made safe to print, to store in tables and to escape in JSON and TOML."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

# Unicode categories that can move the cursor or change the text direction.
_MOVING = ("Cc", "Cf", "Cs", "Zl", "Zp")
# A spreadsheet reads a cell that begins with one of these as a formula; the last five in East Asian editions.
_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\u2212")
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Marks that change the direction of text, and control characters that JSON and TOML permit in a text.
_UNESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Replace characters that move a terminal's cursor or change the text direction by blanks.

    Parts of printed texts come from other parties and could otherwise forge output.

    >>> harmless("approved" + chr(27) + "[2K")
    'approved [2K'
    """
    moving = {letter for letter in set(text) if unicodedata.category(letter) in _MOVING and letter not in "\n\t"}
    return "".join(" " if letter in moving else letter for letter in text) if moving else text


def inert(cell: Any) -> Any:
    """Return the value of a cell of a CSV file as a text on one line that no spreadsheet reads as a formula.

    Numbers are unchanged, and so is a lone "-".

    >>> inert("=1+1"), inert("porto;=1"), inert(-1.5), inert("-1.5")
    ("'=1+1", 'porto,=1', -1.5, '-1.5')
    """
    if not isinstance(cell, str):
        return cell
    # A line break without quotes would start a row, whose first cell could be a formula. In locales where lists are
    # separated by semicolons, as in most of Europe, a semicolon would start a cell.
    plain = "".join(letter if letter.isprintable() else " " for letter in cell).replace(";", ",")
    if not plain.lstrip().startswith(_FORMULA_STARTS) or plain == "-" or _NUMBER.fullmatch(plain):
        return plain
    return f"'{plain}"


def restored(cell: Any) -> Any:
    """Return the value of a cell without the apostrophe of :func:`inert`, for a terminal.

    >>> restored("'-0.1 (1.0)"), restored("'quoted'"), restored(1.5)
    ('-0.1 (1.0)', "'quoted'", 1.5)
    """
    return cell[1:] if isinstance(cell, str) and cell.startswith("'") and inert(cell[1:]) == cell else cell


def escaped(text: str) -> str:
    r"""Return JSON or TOML with escapes in place of direction marks and control characters inside its texts.

    >>> escaped('"left' + chr(0x202E) + '"')
    '"left\\u202e"'
    """
    return _UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
