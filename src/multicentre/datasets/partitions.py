"""Splits of a data set into sites that differ, with every patient at exactly one site.

Sites are named ``centre-1``, ``centre-2`` and so on. The same seed gives the same sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError, DataError, nearest_name

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]
Seed = int | np.random.Generator


class Patients(Protocol):
    """Data whose patients can be selected: SurvivalData, MultiViewData, EventTensor or a labelled set of them."""

    def __len__(self) -> int:
        """Return the number of patients."""

    def take(self, rows: ArrayLike) -> Self:
        """Return the patients at `rows`."""


P = TypeVar("P", bound=Patients)


def split_iid(data: P, n_sites: int, random_state: Seed) -> dict[str, P]:
    """Assign patients to random sites whose sizes differ by at most one.

    Parameters
    ----------
    data : SurvivalData, or other data of patients
        Patients to split.
    n_sites : int
        Number of sites, at most the number of patients.
    random_state : int or Generator
        Seed of the assignment.

    Returns
    -------
    dict from str to data
        Data by site.

    Raises
    ------
    ConfigurationError
        There are too few patients for this number of sites.

    Examples
    --------
    >>> from multicentre.datasets import simulate_survival
    >>> [len(site) for site in split_iid(simulate_survival(100), 3, random_state=0).values()]
    [34, 33, 33]
    """
    _check_enough(len(data), n_sites, 1)
    return _taken(data, np.array_split(np.random.default_rng(random_state).permutation(len(data)), n_sites))


def split_by_time(data: SurvivalData, n_sites: int, random_state: Seed) -> dict[str, SurvivalData]:
    """Sort patients by time and divide them: the first site has the shortest times, the last the longest.

    Parameters
    ----------
    data : SurvivalData
        Patients to split.
    n_sites : int
        Number of sites; their sizes differ by at most one.
    random_state : int or Generator
        Seed of the order of patients with equal times.

    Returns
    -------
    dict from str to SurvivalData
        Data by site.

    Raises
    ------
    ConfigurationError
        There are too few patients for this number of sites.

    Examples
    --------
    >>> from multicentre.datasets import simulate_survival
    >>> first, last = split_by_time(simulate_survival(100), 2, random_state=0).values()
    >>> bool(first.time.max() <= last.time.min())
    True
    """
    return _sorted_by(data, data.time, n_sites, random_state)


def split_by_column(data: SurvivalData, column: str, n_sites: int, random_state: Seed) -> dict[str, SurvivalData]:
    """Sort patients by a column, such as age, and divide them into sites with different patients (covariate shift).

    Parameters
    ----------
    data : SurvivalData
        Patients to split.
    column : str
        Name of the column; patients without a value are last.
    n_sites : int
        Number of sites; their sizes differ by at most one.
    random_state : int or Generator
        Seed of the order of patients with equal values.

    Returns
    -------
    dict from str to SurvivalData
        Data by site.

    Raises
    ------
    DataError
        The data lack the column.
    ConfigurationError
        There are too few patients for this number of sites.

    Examples
    --------
    >>> from multicentre.datasets import simulate_survival
    >>> low, high = split_by_column(simulate_survival(100), "x0", 2, random_state=0).values()
    >>> bool(low.X[:, 0].max() <= high.X[:, 0].min())
    True
    """
    if column not in data.columns:
        raise DataError(
            f"column must be one of the data's columns; got {column!r}",
            where="split_by_column",
            hint=f"{nearest_name([column], data.columns)}Use one of {', '.join(data.columns)}.",
        )
    return _sorted_by(data, data.X[:, data.columns.index(column)], n_sites, random_state)


def split_dirichlet(
    data: SurvivalData,
    n_sites: int,
    random_state: Seed,
    *,
    alpha: float = 1.0,
    n_bins: int = 10,
    min_patients: int = 10,
) -> dict[str, SurvivalData]:
    """Divide the times into bins of equal width, and each bin among sites in proportions from a Dirichlet distribution.

    Sites then differ in their times and in size. A site below the minimum receives random patients of the largest site.

    Parameters
    ----------
    data : SurvivalData
        Patients to split.
    n_sites : int
        Number of sites.
    random_state : int or Generator
        Seed of the proportions and of the assignment.
    alpha : float, default 1
        Concentration of the Dirichlet distribution; sites differ more if it is small.
    n_bins : int, default 10
        Number of bins, between the shortest and the longest time.
    min_patients : int, default 10
        Minimum number of patients per site.

    Returns
    -------
    dict from str to SurvivalData
        Data by site.

    Raises
    ------
    ConfigurationError
        A number is out of range, or there are too few patients for this number of sites.

    References
    ----------
    A. Archetti, E. Lomurno, F. Lattari, A. Martin, M. Matteucci (2023), Heterogeneous datasets for federated survival
    analysis simulation, ICPE Companion, 173-180. The bins are the same, but no patient is assigned to two sites.

    Examples
    --------
    >>> from multicentre.datasets import simulate_survival
    >>> [len(site) for site in split_dirichlet(simulate_survival(300), 4, random_state=0).values()]
    [56, 54, 114, 76]
    """
    _check_enough(len(data), n_sites, min_patients)
    if not alpha > 0 or n_bins < 1:
        raise ConfigurationError(
            f"alpha must be above 0 and n_bins at least 1; got {alpha:g} and {n_bins}",
            where="split_dirichlet",
            hint="Example: alpha=1.0, n_bins=10.",
        )
    random = np.random.default_rng(random_state)
    cuts = np.linspace(data.time.min(), data.time.max(), n_bins + 1)[1:-1]
    bins = np.searchsorted(cuts, data.time)
    site_of = np.empty(len(data), dtype=np.int64)
    for place in np.unique(bins):
        rows = random.permutation(np.flatnonzero(bins == place))
        counts = random.multinomial(len(rows), random.dirichlet(np.full(n_sites, alpha)))
        site_of[rows] = np.repeat(np.arange(n_sites), counts)
    _fill_up(site_of, n_sites, min_patients, random)
    return _taken(data, [np.flatnonzero(site_of == site) for site in range(n_sites)])


def split_sizes(
    data: P, n_sites: int, random_state: Seed, *, ratio: float = 0.5, min_patients: int = 10
) -> dict[str, P]:
    """Assign patients to random sites of very different sizes, each `ratio` times the previous one.

    Parameters
    ----------
    data : SurvivalData, or other data of patients
        Patients to split.
    n_sites : int
        Number of sites.
    random_state : int or Generator
        Seed of the assignment.
    ratio : float, default 0.5
        Size of a site divided by that of the previous site, above 0 and at most 1.
    min_patients : int, default 10
        Minimum number of patients per site; smaller sites receive patients of the largest site.

    Returns
    -------
    dict from str to data
        Data by site.

    Raises
    ------
    ConfigurationError
        The ratio is out of range, or there are too few patients for this number of sites.

    Examples
    --------
    >>> from multicentre.datasets import simulate_survival
    >>> [len(site) for site in split_sizes(simulate_survival(400), 5, random_state=0, min_patients=20).values()]
    [199, 104, 51, 26, 20]
    """
    _check_enough(len(data), n_sites, min_patients)
    if not 0 < ratio <= 1:
        raise ConfigurationError(
            f"ratio must be above 0 and at most 1; got {ratio:g}", where="split_sizes", hint="Example: 0.5."
        )
    shares = ratio ** np.arange(n_sites)
    borders = np.rint(len(data) * np.cumsum(shares) / shares.sum()).astype(np.int64)
    site_of = np.repeat(np.arange(n_sites), np.diff(borders, prepend=0))
    random = np.random.default_rng(random_state)
    random.shuffle(site_of)
    _fill_up(site_of, n_sites, min_patients, random)
    return _taken(data, [np.flatnonzero(site_of == site) for site in range(n_sites)])


def split_by_label(data: P, labels: Sequence[object], *, min_patients: int = 1, others: str = "others") -> dict[str, P]:
    """Return the patients by site, from a column of real sites.

    Parameters
    ----------
    data : SurvivalData, or other data of patients
        Patients to split.
    labels : sequence, length n
        Site of every patient.
    min_patients : int, default 1
        Sites with fewer patients are merged into one site.
    others : str, default "others"
        Name of the merged site.

    Returns
    -------
    dict from str to data
        Data by site, in order of first appearance, with the merged site last.

    Raises
    ------
    DataError
        The number of labels differs from the number of patients.

    Examples
    --------
    >>> from multicentre.datasets import simulate_survival
    >>> where = ["lyon", "oslo"] * 45 + ["graz"] * 6 + ["bari"] * 4
    >>> sites = split_by_label(simulate_survival(100), where, min_patients=10)
    >>> {name: len(site) for name, site in sites.items()}
    {'lyon': 45, 'oslo': 45, 'others': 10}
    """
    names = np.array([str(label) for label in labels])
    if len(names) != len(data):
        raise DataError(
            f"labels must have one value per patient ({len(data)}); got {len(names)}",
            where="labels",
            hint="Pass one label per patient.",
        )
    rows = {name: np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}
    sites = {name: data.take(places) for name, places in rows.items() if len(places) >= min_patients}
    small = [places for places in rows.values() if len(places) < min_patients]
    return {**sites, others: data.take(np.sort(np.concatenate(small)))} if small else sites


def censor_by_site(
    sites: Mapping[str, SurvivalData], ends: Mapping[str, float] | None = None, *, shortest: float = 0.3
) -> dict[str, SurvivalData]:
    """End the follow-up of every site at a different time, as if a study closed earlier at some sites.

    Parameters
    ----------
    sites : mapping from str to SurvivalData
        Data by site.
    ends : mapping from str to float, optional
        End of the follow-up by site, in the unit of the times. By default, evenly spaced quantiles of the times of all
        patients, from `shortest` at the first site to 1 (no change) at the last.
    shortest : float, default 0.3
        Quantile at the first site, above 0 and at most 1.

    Returns
    -------
    dict from str to SurvivalData
        Data by site; events after the end are censored at the end.

    Raises
    ------
    ConfigurationError
        The quantile is out of range, or a site has no positive end.

    Examples
    --------
    >>> from multicentre.datasets import simulate_survival
    >>> sites = split_iid(simulate_survival(200), 2, random_state=0)
    >>> ended = censor_by_site(sites, {"centre-1": 12.0, "centre-2": 24.0})
    >>> [float(site.time.max()) for site in ended.values()]
    [12.0, 24.0]
    """
    if not 0 < shortest <= 1:
        raise ConfigurationError(
            f"shortest must be above 0 and at most 1; got {shortest:g}", where="censor_by_site", hint="Example: 0.3."
        )
    if ends is None:
        times = np.concatenate([data.time for data in sites.values()])
        ends = dict(zip(sites, np.quantile(times, np.linspace(shortest, 1.0, len(sites))).tolist(), strict=True))
    without = [site for site in sites if not ends.get(site, 0.0) > 0]
    if without:
        raise ConfigurationError(
            f"ends must have a positive time for every site; got none for {', '.join(without[:5])}",
            where="ends",
            hint="Set a positive end for every site.",
        )
    return {site: _censored(data, ends[site]) for site, data in sites.items()}


def _censored(data: SurvivalData, end: float) -> SurvivalData:
    event = np.where(data.time <= end, data.event, 0).astype(data.event.dtype)
    return data.with_arrays(time=np.minimum(data.time, end), event=event)


def _sorted_by(data: SurvivalData, values: Floats, n_sites: int, random_state: Seed) -> dict[str, SurvivalData]:
    _check_enough(len(data), n_sites, 1)
    order = np.random.default_rng(random_state).permutation(len(data))
    return _taken(data, np.array_split(order[np.argsort(values[order], kind="stable")], n_sites))


def _fill_up(site_of: Rows, n_sites: int, least: int, random: np.random.Generator) -> None:
    """Move random patients of the largest site to sites with fewer than `least` patients."""
    for site in range(n_sites):
        while (lacking := least - int((site_of == site).sum())) > 0:
            largest = int(np.bincount(site_of, minlength=n_sites).argmax())
            rows = np.flatnonzero(site_of == largest)
            n_moved = min(lacking, len(rows) - least)
            site_of[random.choice(rows, n_moved, replace=False)] = site


def _check_enough(n_patients: int, n_sites: int, least: int) -> None:
    if n_sites < 1 or least < 0 or n_patients < n_sites * max(least, 1):
        raise ConfigurationError(
            f"n_sites must be at least 1, with at least {max(least, 1)} patients per site; got {n_sites} for "
            f"{n_patients} patients",
            where="n_sites",
            hint="Use fewer sites, or a lower minimum.",
        )


def _taken(data: P, rows: Iterable[Rows]) -> dict[str, P]:
    return {f"centre-{number}": data.take(np.sort(chosen)) for number, chosen in enumerate(rows, start=1)}
