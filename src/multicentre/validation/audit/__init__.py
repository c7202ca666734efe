"""Proof that no person is in two folds, wherever records lie; and how stable a key is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.validation.audit.interfold import Audit, check_interfold
    from multicentre.validation.audit.stability import KeyStability, key_stability

__all__ = ["Audit", "KeyStability", "check_interfold", "key_stability"]

_HOMES = {
    "Audit": "interfold",
    "check_interfold": "interfold",
    "KeyStability": "stability",
    "key_stability": "stability",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
