"""Privacy loss of a patient: the cost of releases with noise, its composition, and an accountant for users."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from multicentre.core.noise_plan import Mechanism, Noise
from multicentre.errors import ConfigurationError
from multicentre.privacy.conversions import (
    epsilon_of_gdp,
    epsilon_of_zcdp,
    require_not_negative,
    require_positive,
    require_positive_integer,
    zcdp_of_gaussian,
    zcdp_of_laplace,
)


@dataclass(frozen=True)
class Spent:
    """Privacy loss of a patient by one or more releases. ``+`` composes losses; ``Spent()`` is no loss.

    Parameters
    ----------
    rho : float, >= 0
        Loss in zero-concentrated differential privacy; infinite if a value left without noise.
    gaussian : bool, default True
        True if all noise is Gaussian. The exact conversion of Gaussian differential privacy then applies.
    pure : float, >= 0
        Epsilon at delta 0 if all noise is Laplace noise; otherwise infinite.

    Examples
    --------
    >>> year = Spent(0.02) + Spent(0.02)
    >>> round(year.epsilon(delta=1e-4), 5)
    0.88893
    """

    rho: float = 0.0
    gaussian: bool = True
    pure: float = math.inf

    def __post_init__(self) -> None:
        require_not_negative(self.rho, "rho")
        require_not_negative(self.pure, "pure")

    def __add__(self, other: Spent) -> Spent:
        parts = [one for one in (self, other) if one.rho > 0]
        pure = sum(one.pure for one in parts)
        return Spent(self.rho + other.rho, all(one.gaussian for one in parts), pure if parts else math.inf)

    def epsilon(self, delta: float) -> float:
        """Return the smallest proven epsilon at `delta`; 0 if nothing was spent.

        It is exact for Gaussian noise. Otherwise it is the bound of zCDP, or the pure epsilon if that is smaller.
        """
        if self.gaussian:
            return epsilon_of_gdp(math.sqrt(2 * self.rho), delta)
        return min(epsilon_of_zcdp(self.rho, delta), self.pure)

    def at_sites(self, k: int, *, shared: bool) -> Spent:
        """Return the loss of a patient with records at up to `k` sites, where this object is the loss at one site.

        Parameters
        ----------
        k : int, >= 1
        shared : bool
            True if a single noise, which has this loss for one sensitivity, covers the sum over sites. False if each
            site adds noise.

        Notes
        -----
        If each site adds noise, k sites make k releases about the patient, and zCDP composes to ``k rho``. Shared noise
        covers one release, which the patient changes by up to k times the sensitivity. Gaussian noise has
        ``rho = sensitivity² / (2 sigma²)``, and k times the sensitivity gives ``k² rho``. By group privacy, the same
        holds for any other noise (Bun & Steinke [1]_, proposition 1.9).
        """
        times = require_positive_integer(k, "k")
        return Spent(self.rho * (times**2 if shared else times), self.gaussian, self.pure * times)


def cost_of(noise: Noise, times: int = 1) -> Spent:
    """Return the privacy loss of a patient of one site by releases with this noise: the sum of rho over fields.

    Examples
    --------
    >>> cost_of(Noise("gaussian", {"sums": 5.0, "patients": 10.0}), times=2).rho
    0.05
    """
    gaussian = noise.mechanism == "gaussian"
    law = zcdp_of_gaussian if gaussian else zcdp_of_laplace
    rho = sum(law(multiplier) for multiplier in noise.multipliers.values())
    pure = math.inf if gaussian else times * sum(1 / multiplier for multiplier in noise.multipliers.values())
    return Spent(times * rho, gaussian, pure)


def worst_patient(by_site: Mapping[str, Spent], k: int = 1) -> Spent:
    """Return the largest privacy loss of any patient by the combined releases of all sites.

    Parameters
    ----------
    by_site : mapping of str to Spent
        Loss at each site, with separate noise.
    k : int, >= 1, default 1
        Largest number of sites at which a patient has records. With one, sites compose in parallel (maximum); otherwise
        the k largest losses are added.

    Notes
    -----
    The total is Gaussian only if the loss of every site is. Otherwise the k sites with the largest loss depend on the
    conversion, and the bound of zCDP at the largest rho is valid for every choice.

    Examples
    --------
    >>> worst_patient({"lyon": Spent(0.1), "turin": Spent(0.3), "ghent": Spent(0.2)}).rho
    0.3
    >>> worst_patient({"lyon": Spent(0.1), "turin": Spent(0.3), "ghent": Spent(0.2)}, k=2).rho
    0.5
    """
    spending = [spent for spent in by_site.values() if spent.rho > 0]
    rho, pure = (_largest([getattr(spent, name) for spent in spending], k) for name in ("rho", "pure"))
    return Spent(rho, all(spent.gaussian for spent in spending), pure if spending else math.inf)


def _largest(values: list[float], k: int) -> float:
    return math.fsum(sorted(values, reverse=True)[: require_positive_integer(k, "k")])


class Accountant:
    """Privacy loss of a patient over a series of releases with noise.

    Compose mechanisms with :meth:`spend` and read the total with :meth:`epsilon`. The privacy unit is one patient, with
    all of the patient's records at one site. Two data sets are neighbours if one has one patient more.

    Parameters
    ----------
    sites_per_patient : int, >= 1, default 1
        Number of sites at which one patient may have records. Each site adds separate noise, and the losses add up.

    Attributes
    ----------
    spent : Spent
        Total loss so far, for one site.

    Raises
    ------
    ConfigurationError
        A parameter is out of its range.

    See Also
    --------
    multicentre.privacy.budget.Account : Budget of one site, written to disk.

    Notes
    -----
    Losses are composed as zero-concentrated differential privacy (zCDP) [1]_. If all mechanisms are Gaussian, the
    conversion to epsilon is that of Gaussian differential privacy [2]_, which is exact. Otherwise it is the bound of
    zCDP [3]_ or, if all mechanisms are Laplace, the sum of the pure epsilons if that is smaller. There is no
    amplification by subsampling: each patient counts in each release.

    References
    ----------
    .. [1] Bun, Steinke (2016). Concentrated differential privacy: simplifications, extensions, and lower bounds. TCC.
    .. [2] Dong, Roth, Su (2022). Gaussian differential privacy. J. R. Stat. Soc. B 84(1), 3-37.
    .. [3] Canonne, Kamath, Steinke (2020). The discrete Gaussian for differential privacy. NeurIPS.

    Examples
    --------
    >>> import multicentre as mc
    >>> accountant = mc.privacy.Accountant()
    >>> accountant.spend("gaussian", 5.0, times=2)
    >>> round(accountant.epsilon(delta=1e-4), 3)
    0.889
    >>> accountant.spend("laplace", 20.0)
    >>> round(accountant.epsilon(delta=1e-4), 3)
    1.008
    """

    def __init__(self, sites_per_patient: int = 1) -> None:
        self.sites_per_patient = require_positive_integer(sites_per_patient, "sites_per_patient")
        self.spent = Spent()

    def spend(self, mechanism: Mechanism, noise_multiplier: float, *, times: int = 1) -> None:
        """Add the loss of releases with one noise.

        Parameters
        ----------
        mechanism : {"gaussian", "laplace"}
        noise_multiplier : float, > 0
            Scale of the noise in units of the sensitivity: standard deviation over l2 sensitivity of a Gaussian,
            scale over l1 sensitivity of a Laplace law.
        times : int, >= 1, default 1
            Number of releases.

        Raises
        ------
        ConfigurationError
            A parameter is out of its range.
        """
        if mechanism not in get_args(Mechanism):
            expected = " or ".join(repr(name) for name in get_args(Mechanism))
            raise ConfigurationError(f"mechanism must be {expected}; got {mechanism!r}", where="mechanism")
        require_positive(noise_multiplier, "noise_multiplier")
        cost = cost_of(Noise(mechanism, {"release": noise_multiplier}), require_positive_integer(times, "times"))
        self.spent = self.spent + cost

    def epsilon(self, delta: float = 1e-5) -> float:
        """Return the smallest proven epsilon at `delta`; 0 if nothing was spent.

        Parameters
        ----------
        delta : float, in (0, 1), default 1e-5
            Choose a value well below one over the number of patients.
        """
        return self.spent.at_sites(self.sites_per_patient, shared=False).epsilon(delta)

    def __repr__(self) -> str:
        return f"Accountant(rho={self.spent.rho:.4g}, sites_per_patient={self.sites_per_patient})"
