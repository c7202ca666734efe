"""Documentation of estimators as ``help()`` shows it: inherited attributes and sections, and values of type aliases."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator

# In numpydoc's order, attributes follow the parameters and precede all other sections.
_BEFORE_ATTRIBUTES = ("Parameters",)
_HEADER = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


def complete_documentation(cls: type) -> None:
    """Add the attributes that base classes document to a class's docstring, and resolve the types in its signature.

    ``help()`` shows only the docstring of the class itself, and a type alias by its name instead of its values. A
    method that overrides another one inherits its sections (parameters, returned values) unless it documents any.
    """
    if "__init__" in vars(cls):
        # Python types __init__ as a method that may not be changed.
        hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
        cls.__init__.__annotations__ = {**hints, "return": None}  # type: ignore[misc]
    if "__doc__" in vars(cls) and cls.__doc__:
        cls.__doc__ = add_attributes(inspect.cleandoc(cls.__doc__), inherited_attributes(cls))
    for name, method in vars(cls).items():
        if inspect.isfunction(method) and method.__doc__ and not _HEADER.search(inspect.cleandoc(method.__doc__)):
            method.__doc__ = f"{inspect.cleandoc(method.__doc__)}{inherited_sections(cls, name)}"


def inherited_sections(cls: type, name: str) -> str:
    """Return the sections that a base class documents for a method that a class overrides; empty without any."""
    for base in cls.__mro__[1:]:
        docstring = inspect.cleandoc(getattr(vars(base).get(name), "__doc__", None) or "")
        if header := _HEADER.search(docstring):
            return f"\n\n{docstring[header.start() :]}"
    return ""


def inherited_attributes(cls: type) -> dict[str, str]:
    """Return the entries on attributes in the docstrings of a class's bases, by the names that they document.

    An entry of the most derived class replaces those of its bases.
    """
    entries: dict[str, str] = {}
    for base in reversed(cls.__mro__[1:]):
        documented = dict(read_attributes(inspect.cleandoc(vars(base).get("__doc__") or "")))
        for names, entry in documented.items():
            for replaced in [earlier for earlier in entries if set(earlier.split(", ")) & set(names.split(", "))]:
                del entries[replaced]
            entries[names] = entry
    return entries


def read_attributes(docstring: str) -> Iterator[tuple[str, str]]:
    r"""Yield the names and the text of each entry in the section on attributes.

    Examples
    --------
    >>> list(read_attributes("Model.\n\nAttributes\n----------\ncoef_ : array\n    Coefficients."))
    [('coef_', 'coef_ : array\n    Coefficients.')]
    """
    section = _sections(docstring).get("Attributes", "")
    for entry in re.split(r"\n(?=\S)", section.strip("\n")):
        if names := entry.partition(" : ")[0].partition("\n")[0]:
            yield names, entry


def add_attributes(docstring: str, entries: dict[str, str]) -> str:
    """Return a docstring whose section on attributes also has the entries that it lacks.

    Examples
    --------
    >>> add_attributes("Model.", {"coef_": "coef_ : array"}).splitlines()
    ['Model.', '', 'Attributes', '----------', 'coef_ : array']
    """
    documented = {name for names, _ in read_attributes(docstring) for name in names.split(", ")}
    lacking = [entry for names, entry in entries.items() if not documented & set(names.split(", "))]
    if not lacking:
        return docstring
    sections = _sections(docstring)
    text = "\n".join(lacking)
    if "Attributes" in sections:
        section = sections["Attributes"]
        return docstring.replace(section, f"{section.rstrip()}\n{text}{section[len(section.rstrip()) :]}", 1)
    place = next((match.start() for match in _HEADER.finditer(docstring) if match[1] not in _BEFORE_ATTRIBUTES), None)
    before, after = (docstring, "") if place is None else (docstring[:place], f"\n\n{docstring[place:]}")
    return f"{before.rstrip()}\n\nAttributes\n----------\n{text}{after}"


def _sections(docstring: str) -> dict[str, str]:
    """Return the text of each section, without its header, by its name."""
    headers = list(_HEADER.finditer(docstring))
    ends = [*(header.start() for header in headers), len(docstring)][1:]
    return {header[1]: docstring[header.end() : end] for header, end in zip(headers, ends, strict=True)}
