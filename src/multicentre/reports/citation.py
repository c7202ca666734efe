"""Methods paragraph of a report, and BibTeX entries of the software and of the methods."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from multicentre.errors import MulticentreError
from multicentre.estimator.base import find_estimator

SOFTWARE_KEY = "multicentre"
# "D. R. Cox (1972), Regression models and life-tables, Journal of the Royal Statistical Society B 34, 187-202."
_YEAR_FIRST = re.compile(r"(?P<authors>.+?) \((?P<year>\d{4})\)[,.] (?P<title>.+?)[,.] (?P<place>[A-Z].+)")
# 'N. Mantel, "Evaluation of survival data", Cancer Chemotherapy Reports 50 (1966), 163-170.'
_QUOTED_TITLE = re.compile(r'(?P<authors>.+?), "(?P<title>.+?)"(?:, (?P<place>.*?))?(?P<year>\d{4})(?P<rest>.*)')
_NOT_IN_KEYS = re.compile(r"[^a-z0-9]")


@dataclass(frozen=True)
class Reference:
    """Publication that describes a method."""

    key: str
    text: str
    fields: Mapping[str, str]

    def bibtex(self) -> str:
        """Return the BibTeX entry."""
        kind = "article" if "journal" in self.fields else "misc"
        lines = [f"  {name} = {{{_escape(value)}}}" for name, value in self.fields.items()]
        return f"@{kind}{{{self.key},\n" + ",\n".join(lines) + "\n}"


def references_of(method: str, parameters: Mapping[str, Any] | None = None) -> list[Reference]:
    """Return the publications that the documentation of a method names; none if the method is not installed.

    With `parameters`, a publication that the documentation cites at a parameter is returned only if the parameter is
    among them, and is neither False nor its default.

    Examples
    --------
    >>> [reference.key for reference in references_of("log-rank")]
    ['mantel1966']
    >>> [reference.key for reference in references_of("fed-cox", {"errors": "HC0"})]
    ['cox1972', 'lu2015', 'lin1989', 'grambsch1994']
    """
    try:
        estimator = find_estimator(method)
    except MulticentreError:
        return []
    documentation = inspect.cleandoc(estimator.__doc__ or "")
    _, heading, rest = documentation.partition("\nReferences\n")
    if not heading:
        return []
    section = re.split(r"\n\S[^\n]*\n-{3,}\n", rest)[0]
    texts = enumerate(re.split(r"\.\. \[\d+\] ", section)[1:], start=1)
    defaults = inspect.signature(estimator).parameters
    set_by_hand = {
        name: value
        for name, value in (parameters or {}).items()
        if name not in defaults or value != defaults[name].default
    }
    unused = set() if parameters is None else _cited_at_other_parameters(documentation, set_by_hand)
    return [read_reference(" ".join(text.split())) for number, text in texts if number not in unused]


def _cited_at_other_parameters(documentation: str, parameters: Mapping[str, Any]) -> set[int]:
    """Return the numbers of the references that are cited at parameters without an effect in force."""
    blocks = re.split(r"\n(?=\w+ : )", documentation.partition("\nParameters\n")[2].partition("\nReferences\n")[0])
    cited: dict[bool, set[int]] = {True: set(), False: set()}
    for block in blocks:
        cited[bool(parameters.get(block.partition(" : ")[0].strip("-\n ")))] |= set(
            map(int, re.findall(r"\[(\d+)\]_", block))
        )
    return cited[False] - cited[True]


def read_reference(text: str) -> Reference:
    """Return a reference as the parts of a BibTeX entry; a text without a recognised form is a note.

    Examples
    --------
    >>> read_reference("D. R. Cox (1972), Regression models and life-tables, J. R. Stat. Soc. B 34, 187-202.").fields
    {'author': 'D. R. Cox', 'title': 'Regression models and life-tables', 'year': '1972', 'journal': 'J. R. Stat. Soc. \
B 34, 187-202'}
    """
    match = _QUOTED_TITLE.fullmatch(text) or _YEAR_FIRST.fullmatch(text)
    if match is None:
        year = re.search(r"\((\d{4})\)", text)
        return Reference(_key(text, year[1] if year else ""), text, {"note": text})
    parts = match.groupdict()
    place = f"{parts['place'] or ''}{parts.get('rest') or ''}".replace("(),", ",").replace(" ()", "")
    place = re.sub(r"\s+,", ",", place).strip(" .,")
    fields = {"author": _authors(parts["authors"]), "title": parts["title"], "year": parts["year"]}
    where = {"url" if place.startswith("http") else "journal": place} if place else {}
    return Reference(_key(parts["authors"], parts["year"]), text, fields | where)


def software_entry(version: str, year: int) -> str:
    """Return the BibTeX entry of this package."""
    fields = {
        "author": "{The multicentre developers}",
        "title": "multicentre: federated statistical learning on multi-centre health data",
        "version": version,
        "year": str(year),
    }
    return (
        f"@software{{{SOFTWARE_KEY},\n" + ",\n".join(f"  {name} = {{{text}}}" for name, text in fields.items()) + "\n}"
    )


def method_sentence(method: str, model: str, counts: Sequence[str], references: Sequence[Reference]) -> str:
    """Return a sentence on the model in force, with the counts of its fit and the keys of its references.

    Examples
    --------
    >>> model = "Log-rank test; groups of stage; stratified by site."
    >>> method_sentence("log-rank", model, ["120 patients"], references_of("log-rank"))
    'Log-rank test; groups of stage; stratified by site (LogRank; 120 patients) [mantel1966].'
    """
    try:
        name = find_estimator(method).__name__
    except MulticentreError:
        name = method
    cited = f" [{', '.join(reference.key for reference in references)}]" if references else ""
    return f"{model.rstrip('.') or 'Method'} ({'; '.join([name, ', '.join(counts)]) if counts else name}){cited}."


def _authors(text: str) -> str:
    others = text.endswith(" et al.")
    names = [name.strip() for name in text.removesuffix(" et al.").split(",") if name.strip()]
    return " and ".join([*names, "others"] if others else names)


def _key(authors: str, year: str) -> str:
    words = authors.split(",")[0].removesuffix(" et al.").split()
    return _NOT_IN_KEYS.sub("", (words[-1] if words else "reference").lower()) + year


def _escape(text: str) -> str:
    return re.sub(r"([&%$#_])", r"\\\1", text)
