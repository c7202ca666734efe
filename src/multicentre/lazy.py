"""Names that a package offers and imports on first use, so that ``import multicentre`` stays fast."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str], names: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports its names on first use (PEP 562).

    Parameters
    ----------
    package : str
        ``__name__`` of the package.
    modules : mapping of str to str
        Module of each name, relative to the package; an empty text if the name is a module of the package.
    names : sequence of str
        ``__all__`` of the package.

    Examples
    --------
    >>> get, _ = lazy_names("multicentre.privacy", {"Policy": "policy"}, ["Policy"])
    >>> get("Policy").__name__
    'Policy'
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not modules[name]:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return get, lambda: sorted(names)
