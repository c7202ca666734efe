"""Installed packages: versions of the dependencies that the package declares, by extra."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from packaging.requirements import Requirement

BASE = ""  # the dependencies that every installation has, next to the names of extras


def declared_packages() -> dict[str, tuple[str, ...]]:
    """Return the names of the packages that each extra needs on this platform; `BASE` for those of every installation.

    Read from the metadata of the installed package, so that the list cannot differ from what pip installs.
    """
    packages: dict[str, list[str]] = {BASE: []}
    for requirement in map(Requirement, requires("multicentre") or ()):
        extra = _extra_of(requirement)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            packages.setdefault(extra, []).append(requirement.name)
    return {extra: tuple(sorted(names)) for extra, names in sorted(packages.items())}


def installed_version(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe_environment() -> dict[str, Any]:
    """Return the versions of Python, this package and its dependencies, and the platform."""
    from multicentre import __version__

    names = sorted({name for packages in declared_packages().values() for name in packages})
    versions = {name: installed_version(name) for name in names}
    return {
        "python": platform.python_version(),
        "multicentre": __version__,
        "platform": platform.platform(),
        "packages": {name: installed for name, installed in versions.items() if installed is not None},
    }


def _extra_of(requirement: Requirement) -> str:
    """Return the extra that a requirement belongs to; `BASE` for none."""
    _, _, condition = str(requirement.marker or "").partition("extra == ")
    return condition.split('"')[1] if condition else BASE
