"""Records of the same person at several sites: pseudonyms, alignment and duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multicentre.lazy import lazy_names

if TYPE_CHECKING:
    from multicentre.linkage.alignment.alignment import Alignment, align, find_places
    from multicentre.linkage.duplicates.estimator import estimate_duplicate_rate
    from multicentre.linkage.duplicates.rate import DuplicateRate
    from multicentre.linkage.pseudonyms import PseudonymKey

__all__ = ["Alignment", "DuplicateRate", "PseudonymKey", "align", "estimate_duplicate_rate", "find_places"]

_MODULES = {
    "Alignment": "alignment.alignment",
    "align": "alignment.alignment",
    "find_places": "alignment.alignment",
    "DuplicateRate": "duplicates.rate",
    "estimate_duplicate_rate": "duplicates.estimator",
    "PseudonymKey": "pseudonyms",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES, __all__)
