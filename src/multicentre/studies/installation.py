"""Installed packages: versions of the dependencies that the package declares, by extra."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from packaging.requirements import Requirement

BASE = ""  # the dependencies that every installation has, next to the names of extras


# Distributions of this project that the library works without.
COMPANIONS = ("multicentre-papers", "multicentre-sites")


def declared_packages(distribution: str = "multicentre") -> dict[str, tuple[str, ...]]:
    """Return the names of the packages that each extra needs on this platform; `BASE` for those of every installation.

    Read from the metadata of the installed distribution, so that the list cannot differ from what pip installs. Nothing
    is declared by a distribution that is not installed.
    """
    packages: dict[str, list[str]] = {BASE: []}
    declared = requires(distribution) if installed_version(distribution) else None
    for requirement in map(Requirement, declared or ()):
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

    declared = [*declared_packages().values(), *(declared_packages(name)[BASE] for name in COMPANIONS), COMPANIONS]
    names = sorted({name for packages in declared for name in packages} - {"multicentre"})
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
