"""Simulated patients of several hospitals, some of whom were treated in more than one hospital."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Seed = int | np.random.Generator

# As in Bey et al. (2020), section 3.1: nine covariates with an effect, and x10 without one.
N_COVARIATES = 10
COVARIATES = tuple(f"x{place + 1}" for place in range(N_COVARIATES))
COEFFICIENTS = (-2.0, 0.4, 0.8, 1.2, 0.4, 1.2, 3.0, 2.0)
PERSON = "person"
_EIGENVALUES = tuple(1.0 + 0.2 * place for place in range(N_COVARIATES))
_DRAWN_EIGENVALUES = (1.0, 3.0)
_DRAWN_COEFFICIENTS = (-5.0, 5.0)
# Bounds memory: 100,000 records * 10 covariates * 8 bytes = 8 MB per array.
_DRAWS_AT_A_TIME = 100_000


@dataclass(frozen=True, eq=False)
class DuplicatedTruth:
    """Parameters of the records of :func:`simulate_duplicated` (Bey et al. 2020, section 3.1).

    Parameters
    ----------
    covariance : array of shape (10, 10)
        Covariance of the covariates. Their means are 0.
    coefficients : array of shape (8,)
        Coefficients a0 to a7 of the log odds.

    Examples
    --------
    >>> truth = DuplicatedTruth(np.eye(10), np.array(COEFFICIENTS))
    >>> truth.probabilities(np.zeros((1, 10))).round(4).tolist()
    [0.1192]
    """

    covariance: Floats
    coefficients: Floats

    def log_odds(self, X: Floats) -> Floats:
        """Return the log odds of class 1 of every record (equation 5), shape (n,).

        They are a0 + a1 x1 + a2 x2 + a3 x3 + a4 x1 x2 + a5 x3 [x4 > 0] + a6 x5^2 [x6 > 0] + a7 x7 [x8 x9 > 0]. x10 has
        no effect.
        """
        x = dict(zip(COVARIATES, X.T, strict=True))
        terms = (
            *(np.ones(len(X)), x["x1"], x["x2"], x["x3"], x["x1"] * x["x2"]),
            *(x["x3"] * (x["x4"] > 0), x["x5"] ** 2 * (x["x6"] > 0), x["x7"] * (x["x8"] * x["x9"] > 0)),
        )
        return np.asarray(np.column_stack(terms) @ self.coefficients)

    def probabilities(self, X: Floats) -> Floats:
        """Return the probability of class 1 of every record, shape (n,)."""
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * self.log_odds(X))))

    def draw_covariates(self, n_records: int, random: np.random.Generator) -> Floats:
        """Draw covariates, shape (n_records, 10)."""
        return random.standard_normal((n_records, N_COVARIATES)) @ np.linalg.cholesky(self.covariance).T

    def optimal_accuracy(self, n_draws: int = 1_000_000, random_state: Seed = 0) -> float:
        """Return the largest possible accuracy of a model, E[max(p, 1 - p)], by Monte Carlo.

        Parameters
        ----------
        n_draws : int, default 1,000,000
            Number of records; the standard error is about 0.0002 with a million.
        random_state : int or Generator, default 0
        """
        random = np.random.default_rng(random_state)
        total, left = 0.0, n_draws
        while left > 0:
            p = self.probabilities(self.draw_covariates(min(left, _DRAWS_AT_A_TIME), random))
            total += float(np.maximum(p, 1.0 - p).sum())
            left -= _DRAWS_AT_A_TIME
        return total / n_draws


@dataclass(frozen=True, eq=False)
class SimulatedDuplicates:
    """Simulated records of several sites, and their true persons and parameters.

    Parameters
    ----------
    sites : dict of str to TableData
        Records by site, with the identifier ``person``.
    person : dict of str to array of int64, shape (n,)
        Number of the person of every record.
    original : dict of str to array of bool, shape (n,)
        True for original records, False for copies of a record at another site.
    truth : DuplicatedTruth
        Parameters of the simulation.
    """

    sites: dict[str, TableData]
    person: dict[str, NDArray[np.int64]]
    original: dict[str, Flags]
    truth: DuplicatedTruth

    @property
    def n_duplicates(self) -> int:
        """Number of copies."""
        return sum(int((~flags).sum()) for flags in self.original.values())

    def probabilities(self, site: str) -> Floats:
        """Return the true probability of class 1 of every record of a site, shape (n,)."""
        return self.truth.probabilities(self.sites[site].X)

    def __repr__(self) -> str:
        n_records = sum(len(data) for data in self.sites.values())
        return f"SimulatedDuplicates({n_records} records at {len(self.sites)} sites, {self.n_duplicates} duplicates)"


def simulate_duplicated(
    n_records: int = 10_000,
    n_duplicates: int = 2_000,
    n_sites: int = 5,
    *,
    covariance: Literal["published", "random"] | ArrayLike = "published",
    coefficients: ArrayLike | None = None,
    random_state: Seed = 0,
) -> SimulatedDuplicates:
    """Draw records with ten covariates and a class, and copy some of them to a second or third site.

    Every record is assigned to a random site. Copies are exact, including the outcome. Each pair of a record and
    another site is drawn at most once, so that a site has at most one record per person. The records of a site are in
    random order.

    Parameters
    ----------
    n_records : int, default 10,000
        Number of original records, one per person.
    n_duplicates : int, default 2000
        Number of copies, at most ``n_records * (n_sites - 1)``.
    n_sites : int, default 5
        Number of sites; at least 2 if there are duplicates.
    covariance : {"published", "random"} or array of shape (10, 10), default "published"
        Covariance of the covariates. "published" is :func:`published_covariance`. "random" has the eigenvalues 1.0,
        1.2, ..., 2.8 and a random rotation of all covariates except x10, which is independent of the others.
    coefficients : array of shape (8,), optional
        Coefficients a0 to a7 of the log odds; by default -2, 0.4, 0.8, 1.2, 0.4, 1.2, 3 and 2.
    random_state : int or Generator, default 0
        Seed of all random draws.

    Returns
    -------
    SimulatedDuplicates
        Sites ``centre-1``, ``centre-2``, ... with columns ``x1`` to ``x10`` and classes 0 and 1. A site without any
        record is left out.

    Raises
    ------
    ConfigurationError
        Numbers are out of range, or the covariance is not symmetric and positive definite.

    References
    ----------
    R. Bey, R. Goussault, F. Grolleau, M. Benchoufi, R. Porcher (2020), Fold-stratified cross-validation for unbiased
    and privacy-preserving federated learning, Journal of the American Medical Informatics Association 27(8),
    1244-1251.

    Examples
    --------
    >>> simulated = simulate_duplicated(200, 40, n_sites=3, random_state=1)
    >>> simulated
    SimulatedDuplicates(240 records at 3 sites, 40 duplicates)
    >>> simulated.sites["centre-1"]
    TableData(80 records; 10 columns, 2 classes)
    """
    _check_sizes(n_records, n_duplicates, n_sites)
    random = np.random.default_rng(random_state)
    truth = DuplicatedTruth(_covariance(covariance, random), _coefficients(coefficients))
    X = truth.draw_covariates(n_records, random)
    y = (random.uniform(size=n_records) < truth.probabilities(X)).astype(np.int64)
    person, site = _spread(n_records, n_duplicates, n_sites, random)
    places = [random.permutation(np.flatnonzero(site == place)) for place in range(n_sites)]
    chosen = {f"centre-{number}": rows for number, rows in enumerate(places, start=1) if len(rows)}
    width = len(str(n_records))
    return SimulatedDuplicates(
        {name: _at_site(X, y, person[rows], width) for name, rows in chosen.items()},
        {name: person[rows] for name, rows in chosen.items()},
        {name: rows < n_records for name, rows in chosen.items()},
        truth,
    )


def draw_duplicated_truth(random_state: Seed) -> DuplicatedTruth:
    """Draw parameters as for Figure 4: ten eigenvalues from 1 to 3, a rotation, eight coefficients from -5 to 5.

    Examples
    --------
    >>> truth = draw_duplicated_truth(random_state=3)
    >>> truth.covariance[9, :9].any(), truth.coefficients.round(1).tolist()
    (np.False_, [-1.1, 0.2, -0.7, 0.9, 2.4, 4.6, -2.2, 1.5])
    """
    random = np.random.default_rng(random_state)
    eigenvalues = random.uniform(*_DRAWN_EIGENVALUES, N_COVARIATES)
    coefficients = random.uniform(*_DRAWN_COEFFICIENTS, len(COEFFICIENTS))
    return DuplicatedTruth(_rotated(eigenvalues, random), coefficients)


@cache
def _published() -> Floats:
    text = files("multicentre.datasets").joinpath("published_covariance.csv").read_text(encoding="utf-8")
    return np.array([[float(cell) for cell in line.split(",")] for line in text.splitlines()])


def published_covariance() -> Floats:
    """Return the most likely covariance of the published figures, shape (10, 10).

    The paper does not print it. This covariance follows from the seed of the published script and the rotation that
    SciPy drew with it at the time. The share of class 1 and the optimal accuracy agree with those of the stored output
    of the script.

    Examples
    --------
    >>> published_covariance().diagonal().round(2).tolist()
    [1.8, 1.77, 1.61, 2.05, 2.12, 1.64, 1.58, 2.08, 1.54, 2.8]
    """
    return _published().copy()


def _rotated(eigenvalues: ArrayLike, random: np.random.Generator) -> Floats:
    """Return blockdiag(O diag(l1..l9) O', l10) with a random rotation O (equations 3 and 4)."""
    values = np.asarray(eigenvalues, dtype=np.float64)
    rotation, upper = np.linalg.qr(random.standard_normal((len(values) - 1, len(values) - 1)))
    rotation = rotation * np.sign(np.diagonal(upper))
    covariance = np.diag(values)
    covariance[:-1, :-1] = (rotation * values[:-1]) @ rotation.T
    return np.asarray((covariance + covariance.T) / 2)


def _covariance(covariance: Literal["published", "random"] | ArrayLike, random: np.random.Generator) -> Floats:
    if isinstance(covariance, str):
        if covariance not in ("published", "random"):
            raise ConfigurationError(
                f"covariance must be 'published', 'random' or an array; got {covariance!r}",
                where="simulate_duplicated",
                hint="Correct the name.",
            )
        return published_covariance() if covariance == "published" else _rotated(_EIGENVALUES, random)
    matrix = np.array(covariance, dtype=np.float64)
    if matrix.shape != (N_COVARIATES, N_COVARIATES) or not _is_covariance(matrix):
        raise ConfigurationError(
            "covariance must be symmetric and positive definite, of shape "
            f"{(N_COVARIATES, N_COVARIATES)}; got an array of shape {matrix.shape}",
            where="simulate_duplicated",
            hint="Correct the array.",
        )
    return matrix


def _is_covariance(matrix: Floats) -> bool:
    is_symmetric = bool(np.isfinite(matrix).all()) and np.allclose(matrix, matrix.T)
    return is_symmetric and float(np.linalg.eigvalsh(matrix).min()) > 0


def _coefficients(coefficients: ArrayLike | None) -> Floats:
    values = np.array(COEFFICIENTS if coefficients is None else coefficients, dtype=np.float64)
    if values.shape != (len(COEFFICIENTS),) or not np.isfinite(values).all():
        raise ConfigurationError(
            f"coefficients must be {len(COEFFICIENTS)} finite numbers; got an array of shape {values.shape}",
            where="simulate_duplicated",
            hint="Correct the array.",
        )
    return values


def _check_sizes(n_records: int, n_duplicates: int, n_sites: int) -> None:
    if n_records < 1 or n_sites < 1 or not 0 <= n_duplicates <= n_records * (n_sites - 1):
        raise ConfigurationError(
            "n_records and n_sites must be at least 1, and n_duplicates from 0 to n_records * (n_sites - 1); got "
            f"{n_records}, {n_sites} and {n_duplicates}",
            where="simulate_duplicated",
            hint="A record has at most one copy at every other site.",
        )


def _spread(
    n_records: int, n_duplicates: int, n_sites: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return person and site of every record, originals first; all pairs of person and site are different."""
    home = random.integers(n_sites, size=n_records)
    pairs = random.choice(n_records * (n_sites - 1), n_duplicates, replace=False) if n_duplicates else home[:0]
    copied, step = np.divmod(pairs, max(1, n_sites - 1))
    person = np.concatenate([np.arange(n_records), copied])
    return person, np.concatenate([home, (home[copied] + 1 + step) % n_sites])


def _at_site(X: Floats, y: NDArray[np.int64], person: NDArray[np.int64], width: int) -> TableData:
    names = [f"P{number:0{width}d}" for number in person.tolist()]
    return TableData(X[person], y[person], {PERSON: names}, columns=COVARIATES, classes=("0", "1"))
