"""Comparison of two policies of a site: terms by which one permits more than the other."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from multicentre.errors import RefusedByPolicy
from multicentre.privacy.policy import MIN_DIFFERENCE, RELATIONS

_PLACES = ("account", "cohorts")


def _names_more(before: Any, now: Any) -> bool:
    return before is not None and (now is None or not set(now) <= set(before))


def _differs_less(before: int | None, now: int | None) -> bool:
    """Return whether a smaller difference is permitted; without a number, records without ids are not compared."""
    return bool(before) if now is None else now < (MIN_DIFFERENCE if before is None else before)


def _limit(value: float | None) -> float:
    """Return a limit as a number; 0 and None stand for no limit."""
    return value or math.inf


# Whether the second value of a term permits more than the first; of any other term, every change counts as permitting
# more, so that a term that is added later is not forgotten here.
_PERMITS_MORE: Mapping[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(("min_patients", "min_patients_in_total"), lambda before, now: now < before),
    "min_difference": _differs_less,
    # A memory or an account at another place begins again; a file of settings that was cut off names none.
    **dict.fromkeys(("account", "cohorts"), lambda before, _: before is not None),
    "min_patients_in_share": lambda before, now: now is not None and (before is None or now < before),
    **dict.fromkeys(("min_sites_in_sum", "colluding_sites"), lambda before, now: now < before),
    **dict.fromkeys(("max_parameters_per_patient", "epsilon"), lambda before, now: _limit(now) > _limit(before)),
    **dict.fromkeys(("methods", "columns"), _names_more),
    "delta": lambda before, now: now > before,
    "secure_sums_only": lambda before, now: before and not now,
    "exact_times": lambda before, now: now and not before,
    "relations": lambda before, now: RELATIONS.index(now) > RELATIONS.index(before),
}


def find_weaker_terms(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a text for each term by which a policy permits more than an earlier one, both as JSON values.

    Examples
    --------
    >>> find_weaker_terms({"min_patients": 500, "methods": ["a"]}, {"min_patients": 10, "methods": ["a"]})
    ['min_patients was 500 and is 10']
    """
    changed = [name for name in now if before.get(name) != now[name]]
    weaker = [
        name for name in changed if name not in before or _PERMITS_MORE.get(name, _differs)(before[name], now[name])
    ]
    return [
        f"{name} is at another place"
        if name in _PLACES
        else f"{name} was {json.dumps(before.get(name))} and is {json.dumps(now[name])}"
        for name in weaker
    ]


def check_as_strict(approved: Mapping[str, Any] | None, now: Mapping[str, Any], study: str) -> None:
    """Check that a site's policy permits no more than when its steward approved the study.

    Parameters
    ----------
    approved, now : mapping of str to value
        Terms of the policy at the approval and now. Approvals of earlier versions have none.
    study : str

    Raises
    ------
    RefusedByPolicy
        A term permits more; a cut-off file of settings looks the same.
    """
    weaker = [] if approved is None else find_weaker_terms(approved, now)
    if weaker:
        raise RefusedByPolicy(
            f"the site's policy must be as strict as when the study was approved; {'; '.join(weaker)}",
            where=study,
            hint="Restore site.toml and its policy file, or approve the study again: multicentre site approve.",
        )


def _differs(before: Any, now: Any) -> bool:
    return bool(before != now)
