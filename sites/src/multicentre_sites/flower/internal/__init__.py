"""Use of flwr's internals, for speed only. The package works without it.

The public interface starts a new process at the site per message, and the coordinator waits a second for a reply that
has not arrived completely. These modules avoid both, and may break with any release of flwr. Import them only after
:func:`self_test` found no reason against it.
"""

from __future__ import annotations

import importlib
import importlib.metadata

SUPPORTED = (">=1.41", "<1.43")  # the versions that the end-to-end tests have run with


def self_test() -> str | None:
    """Return why the internals of the installed flwr cannot be used; None if they can."""
    try:
        version = importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        return "flwr is not installed: install multicentre-sites"
    if not _is_supported(version):
        return f"flwr must be {' and '.join(SUPPORTED)} for the fast mode; got {version}"
    try:
        changes = importlib.import_module("multicentre_sites.flower.internal.checks").find_changes()
        return f"flwr {version} has changed: {changes}" if changes else None
    except ImportError as error:
        return f"flwr {version} has changed: {error.name or 'a module'} cannot be imported"
    except Exception as error:
        return f"flwr {version} has changed: unexpected behaviour ({type(error).__name__})"


def _is_supported(version: str) -> bool:
    release = _release(version)
    return _release(SUPPORTED[0][2:]) <= release < _release(SUPPORTED[1][1:])


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int("".join(digit for digit in minor if digit.isdigit()) or 0)
