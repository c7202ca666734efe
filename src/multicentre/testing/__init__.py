"""Contract tests that the author of a method runs on it, with the pytest plugin :mod:`multicentre.testing.plugin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.testing.contract import MethodContract

__all__ = ["MethodContract"]

# The plugin must not import the contract: pytest can show the values of its assertions only if it imports it first.
__getattr__, __dir__ = lazy_names(__name__, {"MethodContract": "contract"}, __all__)
