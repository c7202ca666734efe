"""Privacy of a site's patients: policies, release checks, ledgers, disclosure cards and differential privacy.

Examples
--------
>>> import multicentre as mc
>>> mc.privacy.Policy(min_patients=20).min_patients
20
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
