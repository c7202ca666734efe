"""Privacy of a site's patients: policies, release checks, ledgers, disclosure cards and differential privacy.

Examples
--------
>>> import multicentre as mc
>>> mc.privacy.Policy(min_patients=20).min_patients
20
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multicentre.privacy.accountant import Accountant
    from multicentre.privacy.card import DisclosureCard
    from multicentre.privacy.guarantee import Guarantee
    from multicentre.privacy.ledger import Ledger, read_ledger, verify_ledger
    from multicentre.privacy.policy import Policy

_MODULES = {
    "Accountant": "accountant",
    "DisclosureCard": "card",
    "Guarantee": "guarantee",
    "Ledger": "ledger",
    "Policy": "policy",
    "read_ledger": "ledger",
    "verify_ledger": "ledger",
}

__all__ = ["Accountant", "DisclosureCard", "Guarantee", "Ledger", "Policy", "read_ledger", "verify_ledger"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"multicentre.privacy.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'multicentre.privacy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
