"""Rounding of masked sums: which columns it leaves exact enough, and which tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.errors import DataError
from multicentre.regression import messages
from multicentre.regression.maths import DISPERSED

Floats = NDArray[np.float64]
# Rounding error of a site's masked sum with the range TOTAL of messages.py.
SITE_ROUNDING = 4e-8
# A sum of squares must be this many times the rounding: the scales of the rounds then differ from standard deviations
# by less than a thousandth, which changes no result.
COARSE = 1e3
# Tests follow from sums of products only if rounding changes their statistics by less than about this.
EXACT_TESTS = 1e-4


def rounding_of(session: Session) -> float:
    """Return the largest rounding error of a sum of columns or of products; 0 if sums are unmasked."""
    return SITE_ROUNDING * len(session.sites) if session.protection == "masked" else 0.0


def check_varying(names: tuple[str, ...], squares: Floats, weight: float, centre: Floats, least: float) -> None:
    """Raise DataError if a covariate is constant, or if its squares are sums that rounding makes useless.

    Parameters
    ----------
    names : tuple of str
    squares : array of shape (d,)
        Sums of squares about the means.
    weight : float
        Patients, or the sum of their weights.
    centre : array of shape (d,)
    least : float
        Smallest sum of squares that rounding leaves exact enough; 0 without rounding.
    """
    spread = np.sqrt(np.maximum(squares, 0.0) / weight)
    constant = (spread <= 1e-9 * np.abs(centre)) | (squares <= least)
    if not constant.any():
        return
    listed = ", ".join([names[place] for place in np.flatnonzero(constant).tolist()][:5])
    if least:
        raise DataError(
            "covariates must vary by more than the rounding of masked sums; these are the same for all patients, or "
            f"differ by too little in their unit: {listed}",
            where="columns",
            hint="Leave constant columns out; use a smaller unit for others (micromoles instead of moles).",
        )
    raise DataError(
        f"covariates must vary; got the same value for all patients in {listed}",
        where="columns",
        hint="Leave the columns out.",
    )


def needs_null_fit(
    centre: messages.Centre, totals: messages.Totals, moments: messages.Moments, rounding: float
) -> bool:
    """Return whether rounding of masked sums could change tests that follow from second moments and means.

    Through means of the outcome, it changes likelihood-ratio statistics by about the rounding divided by the mean;
    through second moments, by the rounding divided by the variance.
    """
    if not rounding:
        return False
    sizes = [float((np.diagonal(moments.products) / totals.weight).min(initial=np.inf))]
    if centre.family in DISPERSED:
        sizes.append(moments.outcome_squares / totals.weight)
    if centre.family in ("gamma", "poisson"):
        sizes.append(totals.outcome / totals.weight)
    return rounding > EXACT_TESTS * min(sizes)
