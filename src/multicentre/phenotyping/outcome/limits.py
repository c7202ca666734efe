"""What a site refuses of an ask, whoever asks: what could tell of one patient."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError

Floats = NDArray[np.float64]
MOST_BINS = 2**14  # 256 kB of counts; half the default's resolution is .0001 of an area
STEEPEST = 1e3
FINEST_SPREAD = 1e-3


def check_bins(n_bins: int) -> None:
    """Raise ConfigurationError unless scores are counted in 2 to 16,384 bins.

    Examples
    --------
    >>> check_bins(4096)
    """
    if not 2 <= n_bins <= MOST_BINS:
        raise ConfigurationError(f"{n_bins} is not from 2 to {MOST_BINS}", where="n_bins", mend="Give 4096, say.")


def check_share(holdout: float) -> None:
    """Raise ConfigurationError unless a share, rounded to tenths, is from 0 to 0.9.

    Examples
    --------
    >>> check_share(0.4)
    """
    if not 0 <= round(10 * holdout) <= 9:
        raise ConfigurationError(f"{holdout:g} is not from 0 to 0.9", where="holdout", mend="Give 0.4, say.")


def check_coefficients(coefficients: Floats) -> None:
    """Raise ConfigurationError where a coefficient is so large that chances step from 0 to 1 between two patients.

    Examples
    --------
    >>> check_coefficients(np.array([-2.0, 1.0]))
    """
    if np.abs(coefficients).max() > STEEPEST:
        raise ConfigurationError(
            f"a coefficient is above {STEEPEST:g}", where="coefficients", mend="Fit with a larger penalty."
        )


def check_spread(spread: Floats, memberships: Floats) -> None:
    """Raise ConfigurationError where deviations are far below the memberships that they are to bring to one scale.

    Parameters
    ----------
    spread : array of shape (r,)
    memberships : array of shape (n, r)
        The site's own; a deviation is at least a thousandth of their root mean square.

    Examples
    --------
    >>> check_spread(np.array([0.5]), np.array([[1.0], [2.0]]))
    """
    size = np.sqrt((memberships**2).mean(axis=0))
    if (spread <= 0).any() or (spread < FINEST_SPREAD * size).any():
        raise ConfigurationError(
            "a deviation of memberships is far below the site's own memberships",
            where="spread",
            mend="Give the deviations over all patients; leave out a phenotype that all have alike.",
        )


def check_unchanged(known: Floats | None, given: Floats, where: str) -> None:
    """Raise ConfigurationError where a site was given something else before.

    Examples
    --------
    >>> check_unchanged(None, np.ones(2), "spread")
    """
    if known is not None and not np.array_equal(known, given):
        raise ConfigurationError("the site was given another before", where=where, mend="Begin a new fit.")
