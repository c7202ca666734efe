"""Contract tests that the author of a method runs on it, with pytest.

pytest finds the plugin of this package by itself; see :mod:`multicentre.testing.plugin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.testing.contract import MethodContract

__all__ = ["MethodContract"]

# pytest imports this package at every start, so the contract and all that it needs are imported on first use.
__getattr__, __dir__ = lazy_names(__name__, {"MethodContract": "contract"}, __all__)
