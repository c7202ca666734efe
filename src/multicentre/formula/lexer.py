"""Tokens of a formula."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from multicentre.errors import ConfigurationError

TokenKind = Literal["name", "quoted", "text", "number", "sign", "end"]
_PATTERN = re.compile(
    r"\s*(?:(?P<name>[^\W\d][\w.]*)"
    r"|`(?P<quoted>[^`]+)`"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<sign>\*\*|==|!=|<=|>=|[~+\-*:^()\[\],=/<>]))"
)
# A formula names each covariate; a longer text is a mistake.
LONGEST = 20_000


@dataclass(frozen=True)
class Token:
    """Token of a formula, with its place in the text."""

    kind: TokenKind
    text: str
    place: int


def split_formula(formula: str) -> list[Token]:
    """Return the tokens of a formula, an end token last.

    Raises
    ------
    ConfigurationError
        The formula has a character that belongs to no token, or is too long.

    Examples
    --------
    >>> [token.text for token in split_formula("died ~ log(age)")]
    ['died', '~', 'log', '(', 'age', ')', '']
    """
    if len(formula) > LONGEST:
        raise ConfigurationError(
            f"a formula must have at most {LONGEST} characters; got {len(formula)}",
            where="formula",
            hint="Leave formula out to use all columns.",
        )
    tokens, place = [], 0
    text = formula.rstrip()
    while place < len(text):
        match = _PATTERN.match(text, place)
        if match is None:
            raise ConfigurationError(
                f"a formula must consist of names, numbers, texts and signs; got {text[place:].strip()[0]!r}",
                where=f"formula, character {place + 1}",
                hint="Put a name with other characters in backticks: `blood pressure`.",
            )
        kind: TokenKind = match.lastgroup  # type: ignore[assignment]
        value = match[kind]
        tokens.append(Token(kind, value[1:-1] if kind == "text" else value, match.start(kind)))
        place = match.end()
    return [*tokens, Token("end", "", len(text))]
