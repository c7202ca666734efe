"""Simulated views of clustered patients, and their split over the sites of a vertical federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.data import MultiViewData
from multicentre.datasets.labelled import Floats, LabelledMultiView, SimulatedMultiView, SimulatedTruth
from multicentre.datasets.sources import SOURCES
from multicentre.errors import ConfigurationError, DataError

Seed = int | np.random.Generator


@dataclass(frozen=True, eq=False)
class SubspaceTruth:
    """Parameters of simulated clusters.

    Parameters
    ----------
    bases : mapping from str to array, shape (n_clusters, d_k, q)
        Columns of length 1 that span the subspace of every cluster in a view.
    latent : array, shape (n, q)
        Coordinates of every patient in the subspace of its cluster, the same in every view; above 0.
    noise_sd : mapping from str to float
        Standard deviation of the noise of one entry of a view.
    """

    bases: Mapping[str, Floats]
    latent: Floats
    noise_sd: Mapping[str, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatedSubspaces(LabelledMultiView):
    """Simulated views of clusters with their true subspaces."""

    truth: SubspaceTruth


def simulate_views(
    n_patients: int = 300,
    n_clusters: int = 3,
    sizes: Sequence[int] = (40, 30, 50),
    *,
    n_dimensions: int = 3,
    noise: float = 0.5,
    random_state: Seed = 0,
) -> SimulatedSubspaces:
    """Draw clusters of patients; in every view, a cluster lies in a subspace.

    Let z_i be standard normal, and U_kc an orthonormal basis of a uniformly random subspace. Patient i of cluster c has
    the coordinates ``|z_i|``, and view k is ``U_kc |z_i|`` plus noise. Because coordinates are positive, a cluster lies
    in a cone, as is typical for weights of terms or intensities.

    Parameters
    ----------
    n_patients : int
        Number of patients, at least `n_clusters`. Sizes of clusters differ by at most one.
    n_clusters : int
        Number of clusters, at least 1.
    sizes : sequence of int
        Number of columns of every view, each at least `n_dimensions`. Views are named ``view_1``, ``view_2`` ...
    n_dimensions : int
        Dimension q of every subspace, at least 1.
    noise : float
        Root mean square length of a patient's noise in a view, relative to that of the signal; at least 0.
    random_state : int or Generator
        Seed of all random draws.

    Returns
    -------
    SimulatedSubspaces
        Views, labels ``cluster_1``, ``cluster_2`` ... in random order, and the true parameters.

    Raises
    ------
    ConfigurationError
        A number is out of range.

    Examples
    --------
    >>> drawn = simulate_views(90, sizes=(12, 8), random_state=1)
    >>> drawn.data
    MultiViewData(90 patients; view_1: 12 columns, 90 patients; view_2: 8 columns, 90 patients)
    >>> drawn.groups, drawn.truth.bases["view_2"].shape
    (('cluster_1', 'cluster_2', 'cluster_3'), (3, 8, 3))
    """
    _check_numbers(n_patients, n_clusters, sizes, n_dimensions, noise)
    random = np.random.default_rng(random_state)
    cluster = random.permutation(np.arange(n_patients) % n_clusters)
    latent = np.abs(random.standard_normal((n_patients, n_dimensions)))
    size_of = {f"view_{number}": size for number, size in enumerate(sizes, start=1)}
    bases = {view: _random_bases(random, n_clusters, size, n_dimensions) for view, size in size_of.items()}
    noise_sd = {view: noise * float(np.sqrt(n_dimensions / size)) for view, size in size_of.items()}
    views = {
        view: np.einsum("idq,iq->id", basis[cluster], latent)
        + noise_sd[view] * random.standard_normal((n_patients, size_of[view]))
        for view, basis in bases.items()
    }
    source = SOURCES["subspaces"]
    return SimulatedSubspaces(
        data=MultiViewData(views, ids=range(n_patients)),
        labels=np.char.add("cluster_", (cluster + 1).astype(str)),
        name=source.name,
        description=source.description,
        licence=source.licence,
        truth=SubspaceTruth(bases, latent, noise_sd),
    )


def split_views(
    data: LabelledMultiView | MultiViewData, groups: Mapping[str, Sequence[str]] | None = None
) -> dict[str, MultiViewData]:
    """Assign different views of the same patients to the sites, as in a vertical federation.

    Parameters
    ----------
    data : LabelledMultiView or MultiViewData
        Data with all views. The result has the identifiers of the patients, but not their labels.
    groups : mapping of str to sequence of str, optional
        Views of every site. Views of no site are left out. By default every view is a separate site with its name.

    Returns
    -------
    dict from str to MultiViewData
        Data by site.

    Raises
    ------
    ConfigurationError
        A site has no view, or a view is unknown or has two sites.

    Examples
    --------
    >>> drawn = simulate_views(90, random_state=1)
    >>> {site: data.views for site, data in split_views(drawn, {"a": ["view_1", "view_3"], "b": ["view_2"]}).items()}
    {'a': ('view_1', 'view_3'), 'b': ('view_2',)}
    """
    views = data.data if isinstance(data, LabelledMultiView) else data
    views_by_site = {view: [view] for view in views.views} if groups is None else groups
    _check_groups(views, views_by_site)
    return {
        site: views.drop(view for view in views.views if view not in selected)
        for site, selected in views_by_site.items()
    }


def lose_records(sites: Mapping[str, MultiViewData], share: float, random_state: Seed) -> dict[str, MultiViewData]:
    """Remove the records of a random share of the patients of every site; every patient remains at one site at least.

    Parameters
    ----------
    sites : mapping from str to MultiViewData
        Data with identifiers by site, such as the result of :func:`split_views`.
    share : float
        Share of the patients of a site to remove, from 0 to below 1. The number is rounded.
    random_state : int or Generator
        Seed of the selection.

    Returns
    -------
    dict from str to MultiViewData
        Remaining patients of every site, in their original order.

    Raises
    ------
    ConfigurationError
        The share is out of range, or so large that patients would not remain at any site.
    DataError
        A site has no identifiers.

    Examples
    --------
    >>> sites = lose_records(split_views(simulate_views(90, random_state=1)), 0.3, random_state=0)
    >>> [len(data) for data in sites.values()]
    [63, 63, 63]
    """
    if not 0.0 <= share < 1.0:
        raise ConfigurationError(f"share must be in [0, 1); got {share:g}", where="lose_records", hint="Example: 0.3.")
    ids = {site: _ids(site, data) for site, data in sites.items()}
    random = np.random.default_rng(random_state)
    keepers = _draw_keepers(ids, random)
    remaining: dict[str, MultiViewData] = {}
    for site, data in sites.items():
        free = np.flatnonzero([keepers[one] != site for one in ids[site]])
        n_lost = round(share * len(data))
        if n_lost > len(free):
            raise ConfigurationError(
                f"every patient must remain at one site at least; share={share:g} removes {n_lost} patients, of whom "
                f"{len(free)} can be removed",
                where=f"lose_records, {site}",
                hint="Use a smaller share, or more sites.",
            )
        lost = random.permutation(free)[:n_lost]
        remaining[site] = data.take(np.setdiff1d(np.arange(len(data)), lost))
    return remaining


def _draw_keepers(ids: Mapping[str, NDArray[np.str_]], random: np.random.Generator) -> dict[str, str]:
    """Return the site that keeps each patient, in turn among the sites with the patient."""
    sites_of: dict[str, list[str]] = {}
    for site, site_ids in ids.items():
        for one in site_ids:
            sites_of.setdefault(str(one), []).append(site)
    order = random.permutation(len(sites_of))
    return {
        one: places[turn % len(places)] for (one, places), turn in zip(sites_of.items(), order.tolist(), strict=True)
    }


def _ids(site: str, data: MultiViewData) -> NDArray[np.str_]:
    if data.ids is None:
        raise DataError(
            "patients must have identifiers; got none", where=f"site {site!r}", hint="Pass ids= to MultiViewData."
        )
    return data.ids


def _random_bases(random: np.random.Generator, n_clusters: int, size: int, n_dimensions: int) -> Floats:
    """Return orthonormal bases of uniformly random subspaces, shape (n_clusters, size, n_dimensions)."""
    basis, triangle = np.linalg.qr(random.standard_normal((n_clusters, size, n_dimensions)))
    signs: Floats = np.sign(np.diagonal(triangle, axis1=1, axis2=2))
    return np.asarray(basis * signs[:, None, :], dtype=np.float64)


def _check_groups(data: MultiViewData, groups: Mapping[str, Sequence[str]]) -> None:
    assigned = [view for views in groups.values() for view in views]
    unknown = sorted(set(assigned) - set(data.views))
    twice = sorted({view for view in assigned if assigned.count(view) > 1})
    empty = sorted(site for site, views in groups.items() if not views)
    for wrong, what in ((unknown, "unknown views"), (twice, "views at two sites"), (empty, "sites without a view")):
        if wrong:
            raise ConfigurationError(
                f"groups must assign views of the data to sites, each once, and at least one to every site; got {what} "
                f"({', '.join(wrong)})",
                where="split_views",
                hint=f"The views are {', '.join(data.views)}.",
            )


def _check_numbers(n_patients: int, n_clusters: int, sizes: Sequence[int], n_dimensions: int, noise: float) -> None:
    wrong = {
        f"n_clusters must be from 1 to n_patients ({n_patients}); got {n_clusters}": not 1 <= n_clusters <= n_patients,
        f"n_dimensions must be at least 1; got {n_dimensions}": n_dimensions < 1,
        f"sizes must be at least n_dimensions ({n_dimensions}) per view; got {list(sizes)}": (
            not sizes or min(sizes) < n_dimensions
        ),
        f"noise must be finite and non-negative; got {noise:g}": not 0.0 <= noise < np.inf,
    }
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise ConfigurationError(message, where="simulate_views", hint="Correct the argument.")


Shift = Literal["paper", "mild"]

# Dimensions of the latent space of the data set by Balelli et al. (2021).
N_LATENT = 5

_SIZES = {"view_1": 15, "view_2": 8, "view_3": 10}

_SPREADS = {"view_1": 10.0, "view_2": 5.0, "view_3": 15.0}

_NOISE_SD = {"view_1": 2.0**0.5, "view_2": 1.0, "view_3": 3.0**0.5}

# Two standard deviations of a latent position: the densities of the groups cross one deviation from either mean.
_MILD_DISTANCE = 2.0


def simulate_sd(
    random_state: int | np.random.Generator,
    shift: Shift = "paper",
    *,
    n_patients: int = 400,
    n_shifted: int | None = None,
) -> SimulatedMultiView:
    """Draw three views from a common five-dimensional latent space, with two groups of patients.

    A patient's latent position x is standard normal; that of patients of ``group_2`` is shifted by a common vector.
    View k is ``W_k x + mu_k + noise`` (equation 1 of the paper) with 15, 8 and 10 columns. Entries of ``W_k`` and
    ``mu_k`` are uniform within 10, 5 and 15 of zero, and the variance of the noise is 2, 1 and 3. These ranges are not
    in the paper, but in the published notebook of its authors.

    Parameters
    ----------
    random_state : int or Generator
        Seed of all random draws.
    shift : {"paper", "mild"}
        Distribution of the vector between the groups. "paper": uniform in (-10, 10) for each coordinate, which makes
        the groups trivial to separate. "mild": uniform direction with length 2, so that the groups overlap.
    n_patients : int
        Number of patients, at least 2.
    n_shifted : int, optional
        Number of patients in ``group_2``; by default five eighths, as in the paper (250 of 400).

    Returns
    -------
    SimulatedMultiView
        Views ``view_1`` to ``view_3``, labels ``group_1`` and ``group_2`` in random order, and the true parameters.

    Raises
    ------
    ConfigurationError
        The shift is unknown or a number of patients is out of range.

    Examples
    --------
    >>> drawn = simulate_sd(0)
    >>> drawn.data
    MultiViewData(400 patients; view_1: 15 columns, 400 patients; view_2: 8 columns, 400 patients; view_3: 10 columns,
    400 patients)
    >>> drawn.truth.loadings["view_2"].shape
    (8, 5)
    """
    if shift not in get_args(Shift):
        raise ConfigurationError(
            f"shift must be 'paper' or 'mild'; got {shift!r}", where="simulate_sd", hint="Correct the name."
        )
    # The paper shifts 250 of its 400 patients.
    n_moved = round(n_patients * 5 / 8) if n_shifted is None else n_shifted
    if n_patients < 2 or not 0 <= n_moved <= n_patients:
        raise ConfigurationError(
            f"n_patients must be at least 2 and n_shifted from 0 to n_patients; got {n_patients} and {n_moved}",
            where="simulate_sd",
            hint="Correct the numbers.",
        )
    random = np.random.default_rng(random_state)
    loadings = {view: random.uniform(-_SPREADS[view], _SPREADS[view], (d, N_LATENT)) for view, d in _SIZES.items()}
    means = {view: random.uniform(-_SPREADS[view], _SPREADS[view], d) for view, d in _SIZES.items()}
    vector = _draw_shift(random, shift)
    moved = random.permutation(n_patients) < n_moved
    latent = random.standard_normal((n_patients, N_LATENT)) + np.outer(moved, vector)
    views = {
        view: latent @ loadings[view].T + means[view] + _NOISE_SD[view] * random.standard_normal((n_patients, d))
        for view, d in _SIZES.items()
    }
    source = SOURCES["sd"]
    return SimulatedMultiView(
        data=MultiViewData(views, ids=range(n_patients)),
        labels=np.where(moved, "group_2", "group_1"),
        name=source.name,
        description=source.description,
        licence=source.licence,
        truth=SimulatedTruth(loadings, means, dict(_NOISE_SD), vector, latent),
    )


def _draw_shift(random: np.random.Generator, shift: Shift) -> NDArray[np.float64]:
    if shift == "paper":
        return random.uniform(-10.0, 10.0, N_LATENT)
    direction = random.standard_normal(N_LATENT)
    return direction * (_MILD_DISTANCE / np.linalg.norm(direction))
