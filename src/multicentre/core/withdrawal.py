"""Answers that a site withdraws, because too few of its patients would decide them at the parameters of the request.

A step of a fit can lead to parameters at which a few patients decide the sums, although the maximum of the likelihood
lies elsewhere. A refusal would end the fit there. Instead, the site says that it withdrew its sums, and the coordinator
tries a shorter step. The coordinator learns what a refusal would tell it, and nothing else: without a mask the other
values are 0. Under a mask they are random numbers over their declared range, because a total without the summand of a
site would be that of the others.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from multicentre.core.messages import Declaration
from multicentre.core.range_checks import check_ranges, is_tally
from multicentre.core.steps import R, SitePart
from multicentre.errors import MessageError

FIELD = "n_withdrawn"
"""Field of a release that can be withdrawn: sites that withdrew their values."""

TENTATIVE, WITHDRAWN = "sums that too few patients would decide are withdrawn", "sites that withdrew their sums"
"""Meanings of the field of a request whose answer a site may withdraw, and of the field of the answer."""


class Tentative(Protocol):
    """Request whose answer a site may withdraw."""

    @property
    def tentative(self) -> bool:
        """True if the coordinator can go on without the answer."""


def unless_few(part: SitePart, request: Tentative, release: R, n_elsewhere: int) -> R:
    """Return an answer, or a withdrawn one if too few patients are behind it or a value is beyond its range.

    An answer that the guard would refuse at any parameters is not withdrawn.

    Parameters
    ----------
    part : SitePart
    request : Message
        Says whether the coordinator can go on without the answer.
    release : Release
        An answer with a field ``n_withdrawn``.
    n_elsewhere : int
        Largest number of records behind an answer at other parameters.
    """
    patients = release.patients
    if not request.tentative or n_elsewhere < part.least_in_answer:
        return release
    if not isinstance(patients, int) or patients >= part.least_in_answer:
        try:
            check_ranges(release)
        except MessageError:
            pass
        else:
            return release
    generator = np.random.default_rng(secrets.randbits(128)) if part.masked else None
    values: dict[str, Any] = {
        name: _without_meaning(declaration, getattr(release, name), generator)
        for name, declaration in release.declarations().items()
    }
    return replace(release, **values | {FIELD: 1.0}, patients=n_elsewhere)


def _without_meaning(declaration: Declaration, value: Any, generator: np.random.Generator | None) -> Any:
    """Return a random value over the declared range of a field, or 0 without a generator."""
    shape = np.shape(value)
    if generator is None:
        drawn = np.zeros(shape)
    else:
        bound = float(declaration.bound or 0.0)
        drawn = generator.uniform(0.0 if is_tally(declaration) else -bound, bound, shape)
    return np.asarray(drawn) if declaration.kind == "array" else float(drawn)
