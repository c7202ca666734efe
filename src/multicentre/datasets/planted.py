"""Simulation of events of planted phenotypes for `simulate_planted`: patients, windows of codes, and outcomes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
Codes = tuple[Integers, Integers]
"""Window and position of every recorded code, sorted by window."""

# With eight codes, probabilities decrease from 0.32 to 0.03: a phenotype has some frequent and some rare codes.
DECAY = 0.7
# A gamma variable of shape 4 varies by half its mean (1 / sqrt(4)): sites differ, but no prevalence vanishes.
CONCENTRATION = 4.0
# Four times the mass of a shared phenotype, so that a single site has enough patients to recover it.
WEIGHT_OF_EXCLUSIVE = 4.0
# Shares of patients with one, two and three phenotypes: half of the patients are pure cases, the rest are mixtures.
SHARES_OF_MIXTURES = (0.5, 0.3, 0.2)


def draw_code_sets(random: np.random.Generator, sizes: Sequence[int], rank: int, n_codes: int) -> list[Integers]:
    """Return the codes of every phenotype, the most frequent first: one array of shape (rank, n_codes) per mode."""
    return [np.array([random.permutation(size)[:n_codes] for _ in range(rank)]) for size in sizes]


def code_weights(n_codes: int) -> Floats:
    """Return the probabilities of a phenotype's codes: each is `DECAY` times the previous one, and the sum is 1.

    Examples
    --------
    >>> code_weights(3).round(2).tolist()
    [0.46, 0.32, 0.22]
    """
    weights: Floats = DECAY ** np.arange(n_codes, dtype=np.float64)
    return np.asarray(weights / weights.sum())


def factor(code_sets: Integers, size: int) -> Floats:
    """Return the weights of all codes of a mode in every phenotype, shape (size, rank), with columns of length 1.

    Examples
    --------
    >>> factor(np.array([[2, 0]]), 3)[:, 0].round(2).tolist()
    [0.57, 0.0, 0.82]
    """
    weights = np.zeros((size, len(code_sets)))
    weights[code_sets, np.arange(len(code_sets))[:, None]] = code_weights(code_sets.shape[1])
    return np.asarray(weights / np.linalg.norm(weights, axis=0))


def draw_presence(random: np.random.Generator, n_sites: int, rank: int, n_exclusive: int, n_absent: int) -> Flags:
    """Draw the presence of each phenotype at each site, shape (n_sites, rank).

    Each exclusive phenotype is assigned to one site, in turn, in random order. Of the other phenotypes, `n_absent`
    random pairs of site and phenotype are removed. However, every such phenotype keeps two sites, and every site keeps
    half of these phenotypes.
    """
    present = np.ones((n_sites, rank), dtype=bool)
    columns = random.permutation(rank)
    exclusive, shared = columns[:n_exclusive], columns[n_exclusive:]
    homes = np.resize(random.permutation(n_sites), n_exclusive)
    present[:, exclusive] = np.arange(n_sites)[:, None] == homes
    left = n_absent
    for pair in random.permutation(n_sites * len(shared)):
        site, column = divmod(int(pair), len(shared))
        column = int(shared[column])
        if left and present[:, column].sum() > 2 and 2 * (present[site, shared].sum() - 1) >= len(shared):
            present[site, column] = False
            left -= 1
    return present


def draw_prevalence(random: np.random.Generator, present: Flags) -> Floats:
    """Draw the prevalence of every phenotype at every site, from a Dirichlet distribution over the present phenotypes.

    The result has the shape of `present`. An exclusive phenotype has `WEIGHT_OF_EXCLUSIVE` times the concentration, so
    that it is frequent at its site.
    """
    concentrations = np.where(present.sum(axis=0) == 1, WEIGHT_OF_EXCLUSIVE * CONCENTRATION, CONCENTRATION)
    masses = random.gamma(concentrations, size=present.shape) * present
    return np.asarray(masses / masses.sum(axis=1, keepdims=True))


def draw_memberships(random: np.random.Generator, prevalence: Floats, sites: Integers) -> Floats:
    """Draw the shares of one to three phenotypes in every patient's events, shape (n, rank); rows sum to 1.

    Phenotypes are drawn without replacement by the prevalence at the patient's site (by Gumbel maxima). Their shares
    are uniform on the simplex.
    """
    with np.errstate(divide="ignore"):
        scores = np.log(prevalence)[sites] + random.gumbel(size=(len(sites), prevalence.shape[1]))
    most = min(len(SHARES_OF_MIXTURES), prevalence.shape[1])
    chosen = np.argsort(-scores, axis=1)[:, :most]
    last = random.choice(len(SHARES_OF_MIXTURES), size=len(sites), p=SHARES_OF_MIXTURES)
    shares = random.exponential(size=chosen.shape) * (np.arange(most) <= last[:, None])
    shares *= np.isfinite(np.take_along_axis(scores, chosen, axis=1))
    memberships = np.zeros_like(scores)
    np.put_along_axis(memberships, chosen, shares / shares.sum(axis=1, keepdims=True), axis=1)
    return memberships


def draw_codes(
    random: np.random.Generator, mixtures: Floats, code_sets: Integers, size: int, mean: float, noise: float
) -> Codes:
    """Draw the codes of one mode in every window: 1 plus a Poisson number; repeated codes of a window count once.

    Parameters
    ----------
    mixtures : array, shape (windows, rank)
        Shares of the phenotypes in the events of every window.
    mean : float
        Mean number of draws per window, at least 1.
    noise : float
        Probability that a draw is a uniformly random code of the mode instead of a code of a phenotype.
    """
    windows = np.repeat(np.arange(len(mixtures)), 1 + random.poisson(mean - 1.0, len(mixtures)))
    phenotypes = draw_from_rows(random, mixtures, windows)
    steps = np.cumsum(code_weights(code_sets.shape[1]))
    steps[-1] = 1.0
    codes = code_sets[phenotypes, np.searchsorted(steps, random.random(len(windows)), side="right")]
    codes = np.where(random.random(len(windows)) < noise, random.integers(size, size=len(windows)), codes)
    distinct = np.unique(windows * size + codes)
    return distinct // size, distinct % size


def draw_from_rows(random: np.random.Generator, chances: Floats, rows: Integers) -> Integers:
    """Draw one column for every entry of `rows`, by the probabilities in that row; columns of 0 are never drawn.

    Examples
    --------
    >>> draw_from_rows(np.random.default_rng(0), np.array([[0.0, 1.0], [2.0, 0.0]]), np.array([1, 0, 1])).tolist()
    [0, 1, 0]
    """
    steps = np.cumsum(chances, axis=1)
    steps /= steps[:, -1:]
    return np.asarray((steps[rows] <= random.random(len(rows))[:, None]).sum(axis=1))


def cross(modes: Sequence[Codes]) -> Integers:
    """Return all combinations of codes of all modes in the same window, shape (combinations, 1 + modes).

    The first column is the window. Every mode must have a code in every window.

    Examples
    --------
    >>> procedures = np.array([0, 0, 1]), np.array([4, 6, 5])
    >>> diagnoses = np.array([0, 1]), np.array([9, 8])
    >>> cross([procedures, diagnoses]).tolist()
    [[0, 4, 9], [0, 6, 9], [1, 5, 8]]
    """
    columns = list(modes[0])
    for windows, codes in modes[1:]:
        counts = np.bincount(windows)
        first = np.cumsum(counts) - counts
        repeats = counts[columns[0]]
        ends = np.cumsum(repeats)
        nth = np.arange(ends[-1]) - np.repeat(ends - repeats, repeats)
        columns = [np.repeat(column, repeats) for column in columns]
        columns.append(codes[first[columns[0]] + nth])
    return np.column_stack(columns)


def count_combinations(patients: Integers, combinations: Integers, shape: Sequence[int]) -> tuple[Integers, Integers]:
    """Return the coordinates of non-zero cells and their counts: the number of a patient's windows per combination.

    `patients` contains the patient of every window. A combination is listed once per window.

    Examples
    --------
    >>> places, counts = count_combinations(np.array([3, 3]), np.array([[0, 1, 0], [1, 1, 0], [1, 1, 2]]), (4, 2, 3))
    >>> places.tolist(), counts.tolist()
    ([[3, 1, 0], [3, 1, 2]], [2, 1])
    """
    columns = (patients[combinations[:, 0]], *combinations[:, 1:].T)
    cells, counts = np.unique(np.ravel_multi_index(columns, tuple(shape)), return_counts=True)
    return np.column_stack(np.unravel_index(cells, tuple(shape))), counts


def solve_intercept(scores: Floats, rate: float) -> float:
    """Return the intercept for which the mean of ``1 / (1 + exp(-intercept - scores))`` is `rate`, by bisection.

    Examples
    --------
    >>> round(solve_intercept(np.array([1.0, 3.0]), 0.5), 6)
    -2.0
    """
    low, high = -40.0 - scores.max(), 40.0 - scores.min()
    for _ in range(80):
        middle = (low + high) / 2
        if chances(scores, middle).mean() < rate:
            low = middle
        else:
            high = middle
    return float((low + high) / 2)


def chances(scores: Floats, intercept: float) -> Floats:
    """Return the probabilities of the outcome in the logistic model, in the shape of `scores`.

    Examples
    --------
    >>> chances(np.array([0.0, 2.0]), -2.0).round(2).tolist()
    [0.12, 0.5]
    """
    return np.asarray(1.0 / (1.0 + np.exp(-intercept - scores)))
