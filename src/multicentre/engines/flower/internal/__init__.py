"""All that is used of flwr beyond its public interface, for the sake of speed. Nothing needs it.

The public interface reaches a site through a new process per message, and the coordinator waits a second wherever a
reply has not wholly arrived. What stands here spares both, and may break with any release of flwr. Nothing of it is to
be imported before :func:`self_test` found no reason against it.
"""

from __future__ import annotations

import importlib
import importlib.metadata

SUPPORTED = (">=1.41", "<1.43")


def self_test() -> str | None:
    """Return why the installed flwr cannot be used like this, or None where it can."""
    try:
        version = importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        return "flwr is not installed: install multicentre[flower]"
    if not _is_supported(version):
        return f"flwr {version} was never tried; tried are {' and '.join(SUPPORTED)}"
    try:
        changes = importlib.import_module("multicentre.engines.flower.internal.checks").find_changes()
        return f"flwr {version} has changed: {changes}" if changes else None
    except ImportError as error:
        return f"flwr {version} has changed: {error.name or 'a module'} cannot be imported"
    except Exception as error:
        return f"flwr {version} has changed: it behaves otherwise than expected ({type(error).__name__})"


def _is_supported(version: str) -> bool:
    found = _release(version)
    return _release(SUPPORTED[0][2:]) <= found < _release(SUPPORTED[1][1:])


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int("".join(digit for digit in minor if digit.isdigit()) or 0)
