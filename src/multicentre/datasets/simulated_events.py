"""Simulated events: the synthetic tensor of Ma et al. (CIKM 2019), section 5.1, and events of planted phenotypes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from multicentre.data import EventTensor
from multicentre.datasets import planted
from multicentre.datasets.labelled import LabelledEvents, PlantedTruth, SimulatedEvents
from multicentre.datasets.sources import SOURCES
from multicentre.errors import ConfigurationError

MIMIC_SIZES: Mapping[str, int] = MappingProxyType({"procedure": 202, "diagnosis": 316})
# The paper does not state its counts. With counts from 1 to 3, a model of zeros has an error of sqrt(14 / 3) = 2.16.
MAX_COUNT = 3
# Sparse phenotypes: 8 of the 202 procedures (4 %) and of the 316 diagnoses (2.5 %) of MIMIC_SIZES.
CODES_PER_PHENOTYPE = 8
# One draw in ten is a random code, so that cells outside the phenotypes occur; the others follow the phenotypes.
NOISE = 0.1
# Odds ratios from exp(-3) = 0.05 to exp(3) = 20: protective, neutral and harmful phenotypes all occur.
MAX_LOG_ODDS = 3.0


def simulate_paper_tensor(
    n_patients: int = 5000,
    sizes: tuple[int, int] = (300, 800),
    density: float = 1e-5,
    n_sites: int = 5,
    random_state: int | np.random.Generator = 0,
) -> LabelledEvents:
    """Draw the paper's synthetic tensor: entries at uniformly random cells, without any structure.

    The paper states the size, the density and the five equal sites, but not the counts. Here they are 1, 2 or 3 with
    equal probability. Their root mean square, ``(14 / 3) ** 0.5 = 2.160``, is the error of a model of zeros. A method
    with a smaller error on all cells has memorised noise.

    Parameters
    ----------
    n_patients : int
        Number of patients; some have no entry (9 % by default).
    sizes : pair of int
        Numbers of procedures and of diagnoses.
    density : float
        Share of non-zero cells, in (0, 0.5]. Their number is exact, apart from rounding.
    n_sites : int
        Number of sites: ``centre-1`` has the first patients, and so on. Sizes differ by at most one patient.
    random_state : int or Generator
        Seed of all random draws.

    Returns
    -------
    LabelledEvents
        Modes ``procedure`` and ``diagnosis``, without outcomes.

    Raises
    ------
    ConfigurationError
        A number is out of range.

    References
    ----------
    J. Ma, Q. Zhang, J. Lou, J. C. Ho, L. Xiong, X. Jiang (2019), Privacy-preserving tensor factorization for
    collaborative health data analysis, CIKM '19, doi 10.1145/3357384.3357878.

    Examples
    --------
    >>> simulate_paper_tensor().tensor
    EventTensor(5000 patients; 300 procedure codes x 800 diagnosis codes; 12000 entries)
    """
    where = "simulate_paper_tensor"
    size_of = dict(zip(("procedure", "diagnosis"), sizes, strict=True))
    _check_sizes(where, n_patients, size_of, n_sites)
    _check_range(where, "density", density, "(0, 0.5]", 0.0 < density <= 0.5)
    random = np.random.default_rng(random_state)
    shape = (n_patients, *sizes)
    cells = _draw_cells(random, math.prod(shape), max(1, round(density * math.prod(shape))))
    coordinates = np.column_stack(np.unravel_index(cells, shape))
    counts = random.integers(1, MAX_COUNT, size=len(cells), endpoint=True)
    tensor = EventTensor(coordinates, counts, _code_names(size_of), n_patients=n_patients, ids=range(n_patients))
    source = SOURCES["paper_tensor"]
    sites = np.array(_site_names(n_sites))[_spread(n_patients, n_sites, skew=0.0)]
    return LabelledEvents(tensor, sites, source.name, source.description, source.licence)


def simulate_planted(
    n_patients: int = 40_662,
    sizes: Mapping[str, int] = MIMIC_SIZES,
    n_phenotypes: int = 20,
    n_sites: int = 6,
    random_state: int | np.random.Generator = 0,
    *,
    windows: float = 2.4,
    codes_per_window: float = 2.45,
    site_skew: float = 0.15,
    n_exclusive: int | None = None,
    absent_share: float = 0.2,
    outcome_rate: float = 0.11,
) -> SimulatedEvents:
    """Draw patients' events from planted phenotypes: a mixture of one to three phenotypes per patient, and noise.

    - **Phenotypes.** A phenotype has eight random codes of every mode. Each code is 0.7 times as likely as the previous
      one. A tenth of the phenotypes are exclusive to one site and frequent there. The others are absent from a fifth of
      the sites.
    - **Patients.** A patient has one (half of the patients), two (30 %) or three phenotypes of those at the site. They
      are drawn by a prevalence that differs between sites (Dirichlet distribution). Their shares are uniform on the
      simplex.
    - **Events.** In every time window the patient has at least one code of every mode. Each code is drawn from the
      mixture or, with probability 0.1, uniformly from all codes of the mode. Entries count the windows with a
      combination of codes.
    - **Outcome.** It follows a logistic model of the shares, with log odds that are evenly spaced from -3 to 3 over
      phenotypes.

    The defaults resemble the paper's MIMIC-III data: about 430,000 entries, ten per patient, most of which are 1 (root
    mean square about 1.1). The following arguments resemble its other data sets:

    - CMS, about 700,000 entries: ``n_patients=82_307, sizes={"procedure": 2532, "diagnosis": 10_983}, n_phenotypes=50,
      n_sites=5, windows=1.85, site_skew=0``
    - synthetic, about 10,000 entries: ``n_patients=5000, sizes={"procedure": 300, "diagnosis": 800}, n_phenotypes=10,
      n_sites=5, windows=1, codes_per_window=1.5, site_skew=0``

    Parameters
    ----------
    n_patients : int
        Number of patients, at least one per site; each has an entry.
    sizes : mapping from str to int
        Names of the modes, at least two, and their numbers of codes.
    n_phenotypes : int
        Number of phenotypes.
    n_sites : int
        Number of sites: ``centre-1`` has the first patients, and so on.
    random_state : int or Generator
        Seed of all random draws.
    windows : float
        Mean number of windows per patient, at least 1 (1 plus a Poisson number).
    codes_per_window : float
        Mean number of draws per mode in a window, at least 1 (1 plus a Poisson number). Repeated codes count once.
    site_skew : float
        Skew of the sizes of sites: each site has ``exp(-site_skew)`` times the patients of the previous one. 0 gives
        sites of equal size.
    n_exclusive : int, optional
        Number of phenotypes that only one site has; by default a tenth of all, or none if there is one site.
    absent_share : float
        Share of the other pairs of site and phenotype that are absent, in [0, 1]. It may be smaller, because every
        phenotype that is not exclusive keeps two sites, and every site keeps half of these phenotypes.
    outcome_rate : float
        Mean probability of the outcome, in (0, 1).

    Returns
    -------
    SimulatedEvents
        Tensor with outcomes, site of every patient, and true phenotypes.

    Raises
    ------
    ConfigurationError
        A number is out of range.

    Examples
    --------
    >>> drawn = simulate_planted(500, {"procedure": 30, "diagnosis": 50}, n_phenotypes=10, n_sites=4)
    >>> drawn.tensor.modes, len(drawn.truth.exclusive)
    (('procedure', 'diagnosis'), 1)
    >>> list(drawn.by_site())
    ['centre-1', 'centre-2', 'centre-3', 'centre-4']
    """
    where = "simulate_planted"
    _check_sizes(where, n_patients, sizes, n_sites, n_phenotypes)
    _check_range(where, "windows", windows, "[1, inf)", 1.0 <= windows < math.inf)
    _check_range(where, "codes_per_window", codes_per_window, "[1, inf)", 1.0 <= codes_per_window < math.inf)
    _check_range(where, "site_skew", site_skew, "[0, inf)", 0.0 <= site_skew < math.inf)
    _check_range(where, "absent_share", absent_share, "[0, 1]", 0.0 <= absent_share <= 1.0)
    _check_range(where, "outcome_rate", outcome_rate, "(0, 1)", 0.0 < outcome_rate < 1.0)
    n_alone = _n_exclusive(where, n_exclusive, n_phenotypes, n_sites)
    random = np.random.default_rng(random_state)
    code_sets = planted.draw_code_sets(random, list(sizes.values()), n_phenotypes, CODES_PER_PHENOTYPE)
    n_absent = round(absent_share * n_sites * (n_phenotypes - n_alone))
    present = planted.draw_presence(random, n_sites, n_phenotypes, n_alone, n_absent)
    rows = _spread(n_patients, n_sites, site_skew)
    truth = _draw_truth(random, sizes, code_sets, present, rows, outcome_rate)
    tensor = _draw_tensor(random, sizes, code_sets, truth, windows, codes_per_window)
    source = SOURCES["planted"]
    sites = np.array(truth.sites)[rows]
    return SimulatedEvents(tensor, sites, source.name, source.description, source.licence, truth=truth)


def _draw_truth(
    random: np.random.Generator,
    sizes: Mapping[str, int],
    code_sets: list[planted.Integers],
    present: planted.Flags,
    rows: planted.Integers,
    outcome_rate: float,
) -> PlantedTruth:
    n_sites, rank = present.shape
    prevalence = planted.draw_prevalence(random, present)
    memberships = planted.draw_memberships(random, prevalence, rows)
    log_odds = random.permutation(np.linspace(-MAX_LOG_ODDS, MAX_LOG_ODDS, rank))
    return PlantedTruth(
        factors={mode: planted.factor(sets, sizes[mode]) for mode, sets in zip(sizes, code_sets, strict=True)},
        memberships=memberships,
        sites=_site_names(n_sites),
        present=present,
        prevalence=prevalence,
        log_odds=log_odds,
        intercept=planted.solve_intercept(memberships @ log_odds, outcome_rate),
    )


def _draw_tensor(
    random: np.random.Generator,
    sizes: Mapping[str, int],
    code_sets: list[planted.Integers],
    truth: PlantedTruth,
    windows: float,
    codes_per_window: float,
) -> EventTensor:
    n_patients = len(truth.memberships)
    patients = np.repeat(np.arange(n_patients), 1 + random.poisson(windows - 1.0, n_patients))
    mixtures = truth.memberships[patients]
    codes = [
        planted.draw_codes(random, mixtures, sets, size, codes_per_window, NOISE)
        for sets, size in zip(code_sets, sizes.values(), strict=True)
    ]
    coordinates, counts = planted.count_combinations(patients, planted.cross(codes), (n_patients, *sizes.values()))
    outcomes = random.random(n_patients) < planted.chances(truth.memberships @ truth.log_odds, truth.intercept)
    ids = range(n_patients)
    return EventTensor(coordinates, counts, _code_names(sizes), n_patients=n_patients, ids=ids, outcomes=outcomes)


def _n_exclusive(where: str, n_exclusive: int | None, n_phenotypes: int, n_sites: int) -> int:
    if n_exclusive is None:
        return n_phenotypes // 10 if n_sites > 1 else 0
    if not 0 <= n_exclusive < n_phenotypes or (n_exclusive and n_sites < 2):
        raise ConfigurationError(
            f"n_exclusive must be from 0 to below n_phenotypes ({n_phenotypes}), and 0 with one site; got "
            f"{n_exclusive} for {n_sites} sites",
            where=where,
            hint="Sites must have at least one phenotype in common.",
        )
    return n_exclusive


def _check_sizes(where: str, n_patients: int, sizes: Mapping[str, int], n_sites: int, n_phenotypes: int = 1) -> None:
    if len(sizes) < 2 or min(n_phenotypes, n_sites, *sizes.values()) < 1 or n_patients < n_sites:
        raise ConfigurationError(
            "there must be at least two modes, one code per mode, one phenotype, one site and one patient per site; "
            f"got modes of size {', '.join(str(size) for size in sizes.values())}, {n_phenotypes} phenotypes, "
            f"{n_sites} sites and {n_patients} patients",
            where=where,
            hint="Correct the numbers.",
        )
    if math.prod((n_patients, *sizes.values())) > np.iinfo(np.int64).max:
        raise ConfigurationError(
            f"the tensor must have fewer than 2**63 cells; got {math.prod((n_patients, *sizes.values()))}",
            where=where,
            hint="Use smaller modes.",
        )


def _check_range(where: str, name: str, value: float, interval: str, is_inside: bool) -> None:
    if not is_inside:
        raise ConfigurationError(f"{name} must be in {interval}; got {value}", where=where, hint="Correct the value.")


def _draw_cells(random: np.random.Generator, n_cells: int, n: int) -> NDArray[np.int64]:
    """Return `n` different cells; all sets of cells are equally likely."""
    cells = np.unique(random.integers(n_cells, size=n))
    while len(cells) < n:
        cells = np.unique(np.concatenate([cells, random.integers(n_cells, size=n - len(cells))]))
    return cells


def _spread(n_patients: int, n_sites: int, skew: float) -> NDArray[np.int64]:
    """Return the site of every patient, in ascending order; each site has at least one patient."""
    shares = np.exp(-skew * np.arange(n_sites))
    ends = np.round(np.cumsum(shares) / shares.sum() * (n_patients - n_sites)).astype(np.int64)
    return np.repeat(np.arange(n_sites), np.diff(ends, prepend=0) + 1)


def _site_names(n_sites: int) -> tuple[str, ...]:
    return tuple(f"centre-{site + 1}" for site in range(n_sites))


def _code_names(sizes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    return {
        mode: tuple(f"sim-{mode}:{code:0{len(str(size - 1))}d}" for code in range(size)) for mode, size in sizes.items()
    }
