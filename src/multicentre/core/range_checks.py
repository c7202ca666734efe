"""Checks of declared ranges: where a value leaves a site, where it arrives, and where it was summed under masks.

A site checks its own answer against the range of each field. The coordinator checks every answer that arrives again,
with all engines and before anything is computed from it; an error names the sender. Masked answers are meaningful only
in the sum, so their total is checked. An error about a total names no site, because the masks hide whose value it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from multicentre.core.calls import Call, Lost, Outcome, Refused
from multicentre.core.messages import Declaration, M, Message, place
from multicentre.core.noise_plan import Noise
from multicentre.core.steps import Release
from multicentre.errors import IntegrityError, MessageError, MulticentreError, name_some

ROOM = {"gaussian": 16, "laplace": 50}
"""Range of noise in standard deviations or scales: values beyond have a probability below 1e-21 for either law."""

MAX_COUNT = 2.0**40
"""Bound of a count that declares none: about 10^12, more than any site has patients."""

_COUNTED = {"patients", "records", "persons", "pairs", "sites", "entries"}
"""Units whose values are never negative."""

_CHECK_DATA = (
    "Look for outliers at this site, or use another unit for columns and outcomes. If the data here are in order, "
    "another site may have sent a wrong value in an earlier sum."
)
_ASK_SENDER = "The site runs changed software or is not honest. Ask its steward, or leave the site out."
_ASK_STEWARDS = (
    "One of the sites sent a value beyond its range; the masks hide which. Ask the stewards, or run the study with "
    "fewer sites to find it."
)


def room_of(kind: type[Release], name: str, noise: Noise | None) -> float:
    """Return how far noise may move a field beyond its bound; 0 without noise.

    Examples
    --------
    >>> from multicentre.core.steps import Acknowledgement
    >>> room_of(Acknowledgement, "total", None)
    0.0
    """
    multiplier = noise.multipliers.get(name) if noise else None
    if noise is None or multiplier is None:
        return 0.0
    return ROOM[noise.mechanism] * multiplier * (kind.declarations()[name].sensitivity or 0.0)


def check_ranges(release: Release, noise: Noise | None = None) -> None:
    """Raise MessageError if a value is beyond the range that its field declares; values are never clipped.

    Parameters
    ----------
    release : Release
        One site's answer, as declared (``checked``).
    noise : Noise, optional
        Noise that the answer already includes.
    """
    _check(release, noise, 1, "a value", _CHECK_DATA, MessageError)


def check_total(total: Release, sites: Iterable[str], noise: Noise | None = None) -> None:
    """Raise IntegrityError if a total is beyond the largest sum of values within their ranges.

    Parameters
    ----------
    total : Release
    sites : iterable of str
        Sites whose values are in the total.
    noise : Noise, optional
        Noise that each of them added.
    """
    names = list(sites)
    _check(total, noise, len(names), f"the total over {name_some(names)}", _ASK_STEWARDS, IntegrityError)


def arrivals(calls: Mapping[str, Call], outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return outcomes in which an answer that violates its declaration is replaced by an error of its sender."""
    return {site: _checked_arrival(site, calls[site], outcome) for site, outcome in outcomes.items() if site in calls}


def check_alike(answers: Mapping[str, M]) -> None:
    """Raise MessageError, which names the sites, if answers to be summed differ in fields, names or shapes.

    Parameters
    ----------
    answers : mapping of str to Message
        By site.
    """
    outlines = {site: _outline(answer) for site, answer in answers.items()}
    for name in next(iter(outlines.values()), {}):
        groups: dict[object, list[str]] = {}
        for site, outline in outlines.items():
            groups.setdefault(outline[name], []).append(site)
        if len(groups) > 1:
            kind = type(next(iter(answers.values())))
            described = "; ".join(f"{name_some(sites)}: {_describe(outline)}" for outline, sites in groups.items())
            raise MessageError(
                f"answers to be summed must be alike; the sites answered with {_difference(groups)} ({described})",
                where=place(kind, name),
                hint="Compare the data and the software of the sites named.",
            )


def _checked_arrival(site: str, call: Call, outcome: Any) -> Outcome:
    if isinstance(outcome, Lost | Refused):
        return outcome
    try:
        # Under a mask the summation checks the class; here any release is accepted.
        if not isinstance(outcome, Release) or (call.mask is None and type(outcome) is not call.step.releases):
            raise MessageError(
                f"the answer must be {call.step.releases.__name__}; got {type(outcome).__name__}", where=call.step.name
            )
        outcome.checked()
        if call.mask is None:
            _check(outcome, call.noise, 1, "a value", _ASK_SENDER, MessageError)
    except MulticentreError as error:
        return Refused(error.at(site))
    return outcome


def _check(
    release: Release, noise: Noise | None, n_sites: int, what: str, hint: str, kind: type[IntegrityError]
) -> None:
    for field, key, declaration, value in release.items():
        extremes = extremes_of(value)
        if extremes is None:
            continue
        least, most = extremes
        room, bound = room_of(type(release), field, noise) if noise else 0.0, _bound(declaration)
        # Sums of values at their bound are rounded: a total may exceed n_sites times the bound by a factor of 1 +
        # 2^-40.
        limit = None if bound is None else n_sites * (bound + room) * (1.0 if n_sites == 1 else 1 + 2.0**-40)
        if limit is not None and not -limit <= least <= most <= limit:
            where = place(type(release), field, key)
            raise kind(f"{what} is beyond the declared range of {n_sites * (bound or 0.0):.3g}", where=where, hint=hint)
        if least < 0 and not room and is_tally(declaration):
            where = place(type(release), field, key)
            raise kind(f"{what} is a count and must not be negative; it is below 0", where=where, hint=hint)


def extremes_of(value: Any) -> tuple[float, float] | None:
    """Return the smallest and the largest value of an array or a number; None without numbers."""
    if isinstance(value, np.ndarray):
        if not value.size or value.dtype.kind not in "iuf":
            return None
        return np.minimum.reduce(value, axis=None).item(), np.maximum.reduce(value, axis=None).item()
    number = value.item() if isinstance(value, np.generic) else value
    return (number, number) if isinstance(number, (int, float)) and not isinstance(number, bool) else None


def _bound(declaration: Declaration) -> float | None:
    if declaration.bound is None and is_tally(declaration):
        return MAX_COUNT
    return declaration.bound


def is_tally(declaration: Declaration) -> bool:
    """Return whether values are counts, which are never negative."""
    is_count = declaration.kind == "count" and not declaration.signed
    return is_count or declaration.counts or declaration.unit in _COUNTED


def _outline(answer: Message) -> dict[str, object]:
    outline: dict[str, object] = {}
    for name, declaration in answer.declarations().items():
        value = getattr(answer, name)
        if declaration.keyed:
            outline[name] = tuple((key, np.shape(value[key])) for key in sorted(value))
        else:
            outline[name] = None if value is None else np.shape(value)
    return outline


def _difference(groups: Mapping[Any, list[str]]) -> str:
    if None in groups:
        return "and without a value: some left the field empty"
    names = {tuple(key for key, _ in one) for one in groups if _is_keyed(one)}
    return "different names" if len(names) > 1 else "different shapes"


def _is_keyed(outline: object) -> bool:
    return isinstance(outline, tuple) and bool(outline) and isinstance(outline[0], tuple)


def _describe(outline: Any) -> str:
    if outline is None:
        return "empty"
    if _is_keyed(outline):
        return ", ".join(f"{key} {_describe_shape(shape)}" for key, shape in outline)
    return _describe_shape(outline)


def _describe_shape(shape: Any) -> str:
    return " x ".join(map(str, shape)) or "one number"
