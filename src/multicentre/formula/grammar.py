"""Grammar of formulas, the usual one of R and patsy with a closed list of functions.

A formula is ``outcome ~ terms``; the outcome may be left out. Terms are joined by ``+``, removed by ``-``, crossed by
``:`` and ``*``, grouped by parentheses, and expanded by ``**``. ``- 1`` and ``+ 0`` leave the intercept out.

A term consists of factors: a column, or a function of a column. Nothing is evaluated. A function that is not in
:data:`SIGNATURES` is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from multicentre.errors import ConfigurationError
from multicentre.formula.lexer import Token, split_formula

Value = float | str | tuple[float | str, ...]
# Parameters of each function after its column, in order.
SIGNATURES: dict[str, tuple[str, ...]] = {
    "log": (),
    "log1p": (),
    "log2": (),
    "log10": (),
    "sqrt": (),
    "power": ("exponent",),
    "centre": ("value",),
    "scale": ("value", "deviation"),
    "C": ("ref", "levels"),
    "ns": ("df", "knots", "boundary"),
    "bs": ("df", "degree", "knots", "boundary"),
    "cr": ("df", "knots", "boundary"),
}
# Functions that give several columns and can be applied last only.
SPLINES = frozenset({"ns", "bs", "cr"})
ALIASES = {"center": "centre"}
# Highest power of a group of terms, and largest number of factors in a term. A product of more columns would rest on
# few patients with extreme values.
MAX_FACTORS = 3


@dataclass(frozen=True)
class Call:
    """Function of a factor, and its arguments by parameter."""

    function: str
    arguments: tuple[tuple[str, Value], ...] = ()

    def get(self, name: str) -> Value | None:
        """Return an argument, or None if it was left out."""
        return dict(self.arguments).get(name)


@dataclass(frozen=True)
class Factor:
    """A column and the functions that are applied to it, the inner one first.

    Attributes
    ----------
    name : str
        Factor as written, without blanks.
    """

    column: str
    calls: tuple[Call, ...] = ()
    name: str = ""


Term = tuple[Factor, ...]


@dataclass(frozen=True)
class Formula:
    """Content of a formula.

    Attributes
    ----------
    outcome : str
        Name of the outcome; empty if the formula has none.
    terms : tuple of tuple of Factor
        Terms by increasing number of factors, without the intercept.
    intercept : bool
    offset : Factor, optional
    """

    outcome: str
    terms: tuple[Term, ...]
    intercept: bool
    offset: Factor | None = None

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Factors of the terms, each once."""
        return tuple(dict.fromkeys(factor for term in self.terms for factor in term))

    @property
    def offset_name(self) -> str:
        """Name of the column of the offset; empty without one."""
        return "" if self.offset is None else f"offset({self.offset.name})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns and categories, each once."""
        offset = () if self.offset is None else (self.offset,)
        return tuple(dict.fromkeys(factor.column for factor in (*self.factors, *offset)))


def parse_formula(formula: str) -> Formula:
    """Return the content of a formula.

    Raises
    ------
    ConfigurationError
        The formula is not in the grammar, or names an unknown function or parameter.

    Examples
    --------
    >>> parsed = parse_formula("died ~ age * sex + log(creatinine) + offset(log(days))")
    >>> parsed.outcome, [":".join(factor.name for factor in term) for term in parsed.terms], parsed.offset.name
    ('died', ['age', 'sex', 'log(creatinine)', 'age:sex'], 'log(days)')
    """
    return _Parser(formula).formula()


def _united(left: list[Term], right: list[Term]) -> list[Term]:
    """Return terms without repetition; terms with the same factors are equal in any order."""
    by_factors: dict[frozenset[Factor], Term] = {}
    for term in (*left, *right):
        by_factors.setdefault(frozenset(term), term)
    return list(by_factors.values())


def _crossed(left: list[Term], right: list[Term]) -> list[Term]:
    return _united([tuple(dict.fromkeys(first + second)) for first, second in product(left, right)], [])


class _Parser:
    """Recursive descent over the tokens of one formula. The empty term is the intercept."""

    def __init__(self, formula: str) -> None:
        self._formula, self._tokens, self._next = formula, split_formula(formula), 0
        self._offset: Factor | None = None

    def formula(self) -> Formula:
        outcome = ""
        if any(token.kind == "sign" and token.text == "~" for token in self._tokens):
            token = self._take()
            if token.kind not in ("name", "quoted") or self._take().text != "~":
                raise self._error(
                    "the outcome must be one name, without functions", token, 'Example: "died ~ age + sex".'
                )
            outcome = token.text
        terms = self._sum([()])
        if self._peek.kind != "end":
            raise self._error("expected a sign between terms", self._peek, "Join terms by +, : or *.")
        columns = [term for term in terms if term]
        too_long = [term for term in columns if len(term) > MAX_FACTORS]
        if too_long or not columns:
            got = f"one of {len(too_long[0])}" if too_long else "no term"
            raise ConfigurationError(
                f"a formula must have terms of 1 to {MAX_FACTORS} factors; got {got}",
                where="formula",
                hint="Name at least one column, and leave out interactions of more columns.",
            )
        ordered = sorted(columns, key=len)
        return Formula(outcome, tuple(ordered), len(columns) < len(terms), self._offset)

    def _sum(self, terms: list[Term]) -> list[Term]:
        sign = "+"
        while True:
            if self._peek.text in ("+", "-") and self._peek.kind == "sign":
                sign = self._take().text
            start = self._peek
            right = self._product()
            removed = {frozenset(term) for term in right}
            if start.kind == "number" and start.text == "0":  # "+ 0" is "- 1", and "- 0" is "+ 1"
                sign, removed, right = "-" if sign == "+" else "+", {frozenset()}, [()]
            added = _united(terms, right)
            terms = added if sign == "+" else [term for term in terms if frozenset(term) not in removed]
            if self._peek.text not in ("+", "-") or self._peek.kind != "sign":
                return terms

    def _product(self) -> list[Term]:
        left = self._crossing()
        while self._takes("*"):
            right = self._crossing()
            left = _united(_united(left, right), _crossed(left, right))
        return left

    def _crossing(self) -> list[Term]:
        left = self._power()
        while self._takes(":"):
            left = _crossed(left, self._power())
        return left

    def _power(self) -> list[Term]:
        start = self._peek
        base = self._atom()
        if not (self._takes("**") or self._takes("^")):
            return base
        token = self._take()
        if token.kind != "number" or token.text not in ("2", "3") or len(base) < 2:
            raise self._error(
                "only a group of terms can be expanded, by 2 or 3",
                start,
                "Write power(age, 2) for the square of a column, and (age + sex)**2 for all interactions.",
            )
        expanded = base
        for _ in range(int(token.text) - 1):
            expanded = _united(expanded, _crossed(expanded, base))
        return expanded

    def _atom(self) -> list[Term]:
        token = self._peek
        if token.kind == "sign" and token.text == "(":
            self._take()
            terms = self._sum([])
            self._expect(")")
            return terms
        if token.kind == "number":
            if self._take().text not in ("0", "1"):
                raise self._error("a number in a formula must be 0 or 1", token, "Name a column.")
            return [()]
        if token.kind == "name" and token.text == "offset" and self._following == "(":
            self._take()
            self._expect("(")
            self._set_offset(self._factor(), token)
            self._expect(")")
            return []
        return [(self._factor(),)]

    def _set_offset(self, factor: Factor, token: Token) -> None:
        if self._offset not in (None, factor) or any(call.function in SPLINES | {"C"} for call in factor.calls):
            raise self._error(
                "a formula must have at most one offset, of numbers", token, "Example: offset(log(days))."
            )
        self._offset = factor

    def _factor(self) -> Factor:
        token = self._take()
        if token.kind == "quoted" or (token.kind == "name" and self._peek.text != "("):
            return Factor(token.text, (), token.text)
        if token.kind != "name":
            raise self._error("expected a column or a function", token, "Name a column in each term.")
        self._expect("(")
        if token.text in ("Q", "I"):
            factor = self._quoted() if token.text == "Q" else self._identity()
            self._expect(")")
            return factor
        function = ALIASES.get(token.text, token.text)
        if function not in SIGNATURES:
            raise self._error(
                f"the function must be one of {', '.join(SIGNATURES)}", token, "Compute other columns in the data."
            )
        inner = self._factor()
        arguments = self._arguments(function, token)
        self._expect(")")
        if inner.calls and inner.calls[-1].function in SPLINES | {"C"}:
            raise self._error("C and splines must be the outer function", token, "Example: ns(log(age), df=3).")
        if inner.calls and function == "C":
            raise self._error("C must be applied to a column", token, "Example: C(stage, ref='I').")
        return Factor(inner.column, (*inner.calls, Call(function, arguments)), self._text_since(token))

    def _quoted(self) -> Factor:
        token = self._take()
        if token.kind != "text":
            raise self._error("Q must contain a name in quotes", token, "Example: Q('blood pressure').")
        return Factor(token.text, (), token.text)

    def _identity(self) -> Factor:
        """Read the inside of I(column ** number), the only expression in I."""
        start = self._peek
        inner = self._factor()
        exponent = self._take() if self._takes("**") or self._takes("^") else self._peek
        if exponent.kind != "number":
            raise self._error("I must contain a power of a column", start, "Example: I(age**2), or power(age, 2).")
        name = f"power({inner.name}, {exponent.text})"
        return Factor(inner.column, (*inner.calls, Call("power", (("exponent", float(exponent.text)),))), name)

    def _arguments(self, function: str, token: Token) -> tuple[tuple[str, Value], ...]:
        arguments: dict[str, Value] = {}
        names = SIGNATURES[function]
        while self._takes(","):
            name = self._peek
            if name.kind == "name" and self._following == "=":
                self._take()
                self._expect("=")
                parameter = name.text
            else:
                unset = [each for each in names if each not in arguments]
                parameter = unset[0] if unset else ""
            if parameter not in names or parameter in arguments:
                options = f"one of {', '.join(names)}, each once" if names else "none"
                raise self._error(f"parameters of {function} after the column must be {options}", name, "Correct it.")
            arguments[parameter] = self._value()
        return tuple((name, arguments[name]) for name in names if name in arguments)

    def _value(self) -> Value:
        if self._takes("[") or self._takes("("):
            closing = "]" if self._tokens[self._next - 1].text == "[" else ")"
            values = []
            while not self._takes(closing):
                values.append(self._scalar())
                if self._peek.text != closing:
                    self._expect(",")
            return tuple(values)
        return self._scalar()

    def _scalar(self) -> float | str:
        sign = -1.0 if self._takes("-") else 1.0
        token = self._take()
        if token.kind == "number":
            return sign * float(token.text)
        if token.kind == "text" and sign > 0:
            return token.text
        raise self._error("the value of a parameter must be a number, a text or a list of these", token, "Correct it.")

    @property
    def _peek(self) -> Token:
        return self._tokens[self._next]

    @property
    def _following(self) -> str:
        return self._tokens[self._next + 1].text if self._next + 1 < len(self._tokens) else ""

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _takes(self, sign: str) -> bool:
        if self._peek.kind == "sign" and self._peek.text == sign:
            self._take()
            return True
        return False

    def _expect(self, sign: str) -> None:
        token = self._take()
        if token.kind != "sign" or token.text != sign:
            raise self._error(f"expected {sign!r}", token, "Check commas and parentheses.")

    def _text_since(self, token: Token) -> str:
        """Return the text from a token to the last one taken, with a blank only after commas."""
        end = self._tokens[self._next].place
        return "".join(self._formula[token.place : end].split()).replace(",", ", ")

    def _error(self, expected: str, token: Token, hint: str) -> ConfigurationError:
        got = repr(token.text) if token.kind != "end" else "the end"
        return ConfigurationError(f"{expected}; got {got}", where=f"formula, character {token.place + 1}", hint=hint)
