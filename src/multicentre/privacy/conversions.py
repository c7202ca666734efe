"""Conversions between privacy measures: zCDP, Gaussian differential privacy (GDP) and (epsilon, delta).

Releases compose by adding their rho of zero-concentrated differential privacy (zCDP). If all noise is Gaussian, the
total is exactly mu-Gaussian differential privacy (GDP) with ``mu = sqrt(2 rho)``, and its conversion to epsilon is
exact. Otherwise the conversion of zCDP applies.

References
----------
.. [1] Bun, Steinke (2016). Concentrated differential privacy: simplifications, extensions, and lower bounds. TCC.
.. [2] Dong, Roth, Su (2022). Gaussian differential privacy. J. R. Stat. Soc. B 84(1), 3-37.
.. [3] Canonne, Kamath, Steinke (2020). The discrete Gaussian for differential privacy. NeurIPS.
"""

from __future__ import annotations

import math

from multicentre.errors import ConfigurationError


def zcdp_of_gaussian(multiplier: float) -> float:
    """Return rho = 1 / (2 z²) of Gaussian noise (Bun & Steinke [1]_, proposition 1.6).

    Parameters
    ----------
    multiplier : float, > 0
        z, the standard deviation in units of the l2 sensitivity.

    Examples
    --------
    >>> zcdp_of_gaussian(5.0)
    0.02
    """
    return 0.5 / require_positive(multiplier, "multiplier") / multiplier


def zcdp_of_laplace(multiplier: float) -> float:
    """Return rho = epsilon² / 2 of Laplace noise, discrete or continuous, which has pure epsilon = 1 / z.

    Parameters
    ----------
    multiplier : float, > 0
        z, the scale in units of the l1 sensitivity.

    Notes
    -----
    Any epsilon-DP mechanism has (epsilon² / 2)-zCDP (Bun & Steinke [1]_, proposition 1.4).

    Examples
    --------
    >>> zcdp_of_laplace(2.0)
    0.125
    """
    return zcdp_of_gaussian(multiplier)


def gdp_delta(mu: float, epsilon: float) -> float:
    """Return the delta of mu-Gaussian differential privacy at `epsilon` (Dong et al. [2]_, corollary 2.13).

    ``delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)``

    Parameters
    ----------
    mu : float, >= 0
        Distance between two unit normal distributions that are as hard to distinguish as neighbouring data sets. The
        result is accurate for mu from 1e-6 to beyond 50.
    epsilon : float, >= 0
        At epsilon 0, delta is the total variation distance.

    Examples
    --------
    >>> round(gdp_delta(1.0, 1.0), 6)
    0.126937
    """
    if not epsilon >= 0:
        raise ConfigurationError(f"epsilon must be at least 0; got {epsilon}", where="epsilon", hint="Example: 1.0.")
    return math.exp(_log_gdp_delta(require_not_negative(mu, "mu"), epsilon))


def epsilon_of_gdp(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which mu-GDP has `delta`: the inverse of `gdp_delta`.

    Parameters
    ----------
    mu : float, >= 0
        0 if nothing was spent, infinite without noise.
    delta : float, in (0, 1)

    Examples
    --------
    >>> round(epsilon_of_gdp(0.08**0.5, 1e-4), 5)
    0.88893
    """
    from scipy.optimize import brentq

    target = math.log(require_fraction(delta))
    if math.isinf(require_not_negative(mu, "mu")) or _log_gdp_delta(mu, 0.0) <= target:
        return mu if math.isinf(mu) else 0.0
    above = epsilon_bun_steinke(mu * mu / 2, delta)
    return float(brentq(lambda epsilon: _log_gdp_delta(mu, epsilon) - target, 0.0, above, xtol=1e-15 * above))


def epsilon_of_zcdp(rho: float, delta: float) -> float:
    """Return the epsilon of rho-zCDP at `delta` (Canonne, Kamath & Steinke [3]_, proposition 12).

    For every a > 1, ``epsilon = a rho + log(1 - 1/a) - (log delta + log a) / (a - 1)`` is a bound. It is quasi-convex
    in a, and the smallest bound is returned.

    Parameters
    ----------
    rho : float, >= 0
        0 if nothing was spent, infinite without noise.
    delta : float, in (0, 1)

    Examples
    --------
    >>> round(epsilon_of_zcdp(0.04, 1e-4), 4)
    0.9913
    """
    from scipy.optimize import minimize_scalar

    log_delta = math.log(require_fraction(delta))
    if require_not_negative(rho, "rho") == 0 or math.isinf(rho):
        return rho

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)
        return rho * (1 + excess) - math.log1p(1 / excess) - (log_delta + math.log1p(excess)) / excess

    centre = 0.5 * math.log(-log_delta / rho)
    best = minimize_scalar(bound, bounds=(centre - 20, centre + 20), method="bounded", options={"xatol": 1e-9})
    return max(0.0, min(float(best.fun), epsilon_bun_steinke(rho, delta)))


def epsilon_bun_steinke(rho: float, delta: float) -> float:
    """Return epsilon = rho + 2 sqrt(rho log(1/delta)), the simplest bound of rho-zCDP (Bun & Steinke [1]_, prop. 1.3).

    Parameters
    ----------
    rho : float, >= 0
    delta : float, in (0, 1)

    Examples
    --------
    >>> round(epsilon_bun_steinke(0.04, 1e-4), 4)
    1.2539
    """
    return require_not_negative(rho, "rho") + 2 * math.sqrt(rho * -math.log(require_fraction(delta)))


def rho_of_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest rho that Gaussian noise may spend within (`epsilon`, `delta`).

    This is the inverse of ``epsilon_of_gdp(sqrt(2 rho), delta)``. The search starts at the bound of Bun and Steinke,
    which is never too large.

    Parameters
    ----------
    epsilon : float, > 0
    delta : float, in (0, 1)

    Examples
    --------
    >>> round(rho_of_epsilon(1.0, 1e-5), 5)
    0.03593
    """
    from scipy.optimize import brentq

    target = math.log(require_fraction(delta))
    if math.isinf(require_positive(epsilon, "epsilon")):
        return epsilon
    low = math.sqrt(2) * epsilon / (math.sqrt(epsilon - target) + math.sqrt(-target))
    high = 2 * low
    while _log_gdp_delta(high, epsilon) < target:
        high *= 2
    mu = float(brentq(lambda mu: _log_gdp_delta(mu, epsilon) - target, low, high, xtol=1e-15 * low))
    return mu * mu / 2


def _log_gdp_delta(mu: float, epsilon: float) -> float:
    """Return the logarithm of delta.

    Let upper = mu/2 - epsilon/mu and lower = -mu/2 - epsilon/mu. The normal density at lower is e^-epsilon times that
    at upper, so that ``delta = density(upper) (R(-upper) - R(-lower))``, where R is Mills' ratio. R is computed from
    the scaled error function, which avoids the exponential of epsilon. If upper is above 0, R grows without bound, and
    Phi(upper) is used instead.
    """
    from scipy.special import erfcx, ndtr

    if mu == 0 or math.isinf(epsilon):
        return -math.inf
    if math.isinf(mu):
        return 0.0
    upper, lower = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    log_density = -0.5 * upper**2 - math.log(2)
    below = float(erfcx(-lower / math.sqrt(2)))
    if upper > 0:
        log_density, excess = 0.0, float(ndtr(upper)) - math.exp(log_density) * below
    else:
        excess = float(erfcx(-upper / math.sqrt(2))) - below
    return log_density + math.log(excess) if excess > 0 else -math.inf


def require_positive(value: float, name: str) -> float:
    """Return a number above 0, or raise ConfigurationError."""
    if not value > 0:
        raise ConfigurationError(f"{name} must be above 0; got {value}", where=name)
    return value


def require_not_negative(value: float, name: str) -> float:
    """Return a number of at least 0, or raise ConfigurationError."""
    if not value >= 0:
        raise ConfigurationError(f"{name} must be at least 0; got {value}", where=name)
    return value


def require_fraction(delta: float) -> float:
    """Return a number between 0 and 1, or raise ConfigurationError."""
    if not 0 < delta < 1:
        raise ConfigurationError(f"delta must be between 0 and 1; got {delta}", where="delta", hint="Example: 1e-5.")
    return delta


def require_positive_integer(value: object, name: str) -> int:
    """Return an integer of at least 1, or raise ConfigurationError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} must be an integer of at least 1; got {value!r}", where=name)
    return value
