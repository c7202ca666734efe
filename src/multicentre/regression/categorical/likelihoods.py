"""Likelihoods of an outcome of K classes: all that the rounds, the sites and the results know of a model.

A model is a subclass of :class:`ClassLikelihood`, in pure functions of arrays, which :func:`register_likelihood` names.
Most models have K - 1 intercepts and one linear predictor: :class:`SingleIndexLikelihood` derives everything from their
probabilities and two derivatives. Covariates are standardised over all sites; classes are numbered from 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.likelihood.steps import cap_slopes
from multicentre.regression.categorical.maths import (
    SMALLEST,
    Derivatives,
    Ends,
    OrdinalLink,
    are_ordered,
    derive_multinomial,
    derive_ordinal,
    latent_quantile,
    multinomial_probabilities,
    multinomial_scores,
    ordinal_probabilities,
    with_ones,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Each = Floats | float
"""A number of each patient, shape (n,), or one for all."""
# Relative size of an eigenvalue of the second moments below which a start does not move along its axis.
DEPENDENT = 1e-10


@dataclass(frozen=True)
class ClassMoments:
    """Second moments of standardised covariates, and their sums by class, about the mean of all patients.

    Parameters
    ----------
    counts : array of shape (K,)
        Patients of each class, or the sum of their weights.
    products : array of shape (d, d)
    sums : array of shape (K, d)
    """

    counts: Floats
    products: Floats
    sums: Floats

    @property
    def correlations(self) -> Floats:
        """Correlations of the covariates, shape (d, d)."""
        return np.asarray(self.products / self.counts.sum(), dtype=np.float64)

    @property
    def null_log_likelihood(self) -> float:
        """Log-likelihood of a model without covariates."""
        return float(self.counts @ np.log(self.counts / self.counts.sum()))


class ClassLikelihood(ABC):
    """Likelihood of an outcome of K classes, with K - 1 intercepts a and slopes of shape (r, d).

    Attributes
    ----------
    takes_offset : bool
        True if the linear predictor may have an offset.
    """

    takes_offset: ClassVar[bool] = True

    @abstractmethod
    def names(self, classes: Sequence[str], covariates: Sequence[str]) -> list[str]:
        """Return the name of each parameter, in the order of the rounds."""

    @abstractmethod
    def n_predictors(self, k: int) -> int:
        """Return the number r of linear predictors of a model with k intercepts."""

    @abstractmethod
    def join(self, intercepts: Floats, slopes: Floats) -> Floats:
        """Return the parameters in the order of the rounds, shape (k + r * d,)."""

    @abstractmethod
    def split(self, parameters: Floats, k: int) -> tuple[Floats, Floats]:
        """Return intercepts, shape (k,), and slopes, shape (r, d)."""

    @abstractmethod
    def to_units(self, centre: Floats, spread: Floats, k: int) -> Floats:
        """Return the matrix from parameters of standardised covariates to parameters per unit, shape (q, q)."""

    def is_feasible(self, intercepts: Floats) -> bool:
        """Return whether all probabilities are positive at these intercepts."""
        return True

    @abstractmethod
    def null(self, counts: Floats) -> Floats:
        """Return the intercepts of the model without covariates, from the patients of each class."""

    @abstractmethod
    def start(self, moments: ClassMoments) -> Floats:
        """Return the parameters after a first step from those without covariates, shortened by `cap_slopes`."""

    @abstractmethod
    def null_gradient(self, moments: ClassMoments) -> Floats:
        """Return the first derivatives by the slopes in the model without covariates, shape (r * d,)."""

    @abstractmethod
    def null_information(self, moments: ClassMoments) -> Floats:
        """Return the expected information in the model without covariates, shape (q, q)."""

    @abstractmethod
    def derive(
        self,
        rows: Floats,
        classes: Ints,
        parameters: Floats,
        weights: Each = 1.0,
        offset: Each = 0.0,
    ) -> Derivatives:
        """Return the log-likelihood of patients and its derivatives."""

    @abstractmethod
    def scores(self, rows: Floats, classes: Ints, parameters: Floats, offset: Each = 0.0) -> Floats:
        """Return the first derivatives of each patient, shape (n, q)."""

    @abstractmethod
    def predict(self, intercepts: Floats, predictors: Floats) -> Floats:
        """Return the probability of each class, shape (n, K), from linear predictors of shape (n, r)."""

    def are_intercepts(self, k: int, d: int) -> NDArray[np.bool_]:
        """Flag the intercepts among the parameters, shape (q,)."""
        return self.join(np.ones(k), np.zeros((self.n_predictors(k), d))) > 0


class SingleIndexLikelihood(ClassLikelihood):
    """Likelihood of K classes with intercepts a of shape (K - 1,) and one linear predictor x'b.

    A subclass defines :meth:`null`, :meth:`probabilities`, :meth:`first`, and :meth:`second` or :meth:`derive`.

    Attributes
    ----------
    sign : float
        1 if intercepts and linear predictor are added, -1 if the predictor is subtracted from the intercepts.
    """

    sign: ClassVar[float] = 1.0

    @abstractmethod
    def probabilities(self, intercepts: Floats, predictor: Floats) -> Floats:
        """Return the probability of each class, shape (n, K)."""

    @abstractmethod
    def first(self, intercepts: Floats, predictor: Floats, classes: Ints) -> Floats:
        """Return the derivatives of log P(class) by the intercepts and the linear predictor, shape (n, K)."""

    def second(self, intercepts: Floats, predictor: Floats, classes: Ints) -> Floats:
        """Return the second derivatives of log P(class) by these, shape (n, K, K)."""
        raise NotImplementedError

    def names(self, classes: Sequence[str], covariates: Sequence[str]) -> list[str]:
        """Return the name of each parameter."""
        return [f"threshold {name}" for name in classes[:-1]] + list(covariates)

    def n_predictors(self, k: int) -> int:
        """Return 1."""
        return 1

    def join(self, intercepts: Floats, slopes: Floats) -> Floats:
        """Return intercepts, then slopes."""
        return np.concatenate([intercepts, slopes[0]])

    def split(self, parameters: Floats, k: int) -> tuple[Floats, Floats]:
        """Return intercepts, and slopes of shape (1, d)."""
        return parameters[:k], parameters[None, k:]

    def to_units(self, centre: Floats, spread: Floats, k: int) -> Floats:
        """Return the matrix from parameters of standardised covariates to parameters per unit, shape (q, q)."""
        matrix = np.diag(np.concatenate([np.ones(k), 1.0 / spread]))
        matrix[:k, k:] = np.broadcast_to(-self.sign * centre / spread, (k, len(spread)))
        return matrix

    def start(self, moments: ClassMoments) -> Floats:
        """Return the parameters after one Fisher step of the slopes."""
        intercepts = self.null(moments.counts)
        scores = self._at_null(moments)[:, -1]
        weight = moments.counts @ scores**2 / moments.counts.sum()
        slopes = np.linalg.lstsq(moments.products, scores @ moments.sums, rcond=DEPENDENT)[0] / weight
        return np.concatenate([intercepts, cap_slopes(slopes, moments.correlations)])

    def null_gradient(self, moments: ClassMoments) -> Floats:
        """Return the first derivatives by the slopes in the model without covariates."""
        return np.asarray(self._at_null(moments)[:, -1] @ moments.sums, dtype=np.float64)

    def null_information(self, moments: ClassMoments) -> Floats:
        """Return the expected information in the model without covariates, whose covariates have a mean of 0."""
        first, k, d = self._at_null(moments), len(moments.counts) - 1, len(moments.products)
        expected = first.T @ (first * moments.counts[:, None])
        information = np.zeros((k + d, k + d))
        information[:k, :k] = expected[:k, :k]
        information[k:, k:] = expected[k, k] / moments.counts.sum() * moments.products
        return information

    def derive(
        self,
        rows: Floats,
        classes: Ints,
        parameters: Floats,
        weights: Each = 1.0,
        offset: Each = 0.0,
    ) -> Derivatives:
        """Return the log-likelihood of patients and its derivatives; the information is the observed one."""
        k = len(parameters) - rows.shape[1]
        intercepts, predictor = parameters[:k], rows @ parameters[k:] + offset
        each = np.broadcast_to(weights, len(rows))
        first = self.first(intercepts, predictor, classes) * each[:, None]
        second = -self.second(intercepts, predictor, classes) * each[:, None, None]
        shares = self.probabilities(intercepts, predictor)
        chosen = np.maximum(np.take_along_axis(shares, classes[:, None], axis=1)[:, 0], SMALLEST)
        cross = second[:, :k, k].T @ rows
        return Derivatives(
            float(each @ np.log(chosen)),
            np.concatenate([first[:, :k].sum(axis=0), rows.T @ first[:, k]]),
            np.block([[second[:, :k, :k].sum(axis=0), cross], [cross.T, rows.T @ (rows * second[:, k, k][:, None])]]),
            each[:, None] * self._expected(intercepts, predictor, shares),
        )

    def scores(self, rows: Floats, classes: Ints, parameters: Floats, offset: Each = 0.0) -> Floats:
        """Return the first derivatives of each patient, shape (n, q)."""
        k = len(parameters) - rows.shape[1]
        first = self.first(parameters[:k], rows @ parameters[k:] + offset, classes)
        return np.column_stack([first[:, :k], rows * first[:, k:]])

    def predict(self, intercepts: Floats, predictors: Floats) -> Floats:
        """Return the probability of each class, shape (n, K)."""
        return self.probabilities(intercepts, predictors[:, 0])

    def _at_null(self, moments: ClassMoments) -> Floats:
        """Return the first derivatives of one patient of each class in the model without covariates, shape (K, K)."""
        n = len(moments.counts)
        return self.first(self.null(moments.counts), np.zeros(n), np.arange(n))

    def _expected(self, intercepts: Floats, predictor: Floats, shares: Floats) -> Floats:
        """Return the expected information of each patient on each intercept, shape (n, K - 1)."""
        total = np.zeros((len(predictor), len(intercepts)))
        for place, share in enumerate(shares.T):
            first = self.first(intercepts, predictor, np.full(len(predictor), place))[:, :-1]
            total += share[:, None] * first**2
        return total


@dataclass(frozen=True)
class CumulativeLikelihood(SingleIndexLikelihood):
    """Ordinal model of cumulative probabilities: P(y <= k) = F(a_k - x'b), with increasing a."""

    link: OrdinalLink = "logit"
    sign: ClassVar[float] = -1.0

    def is_feasible(self, intercepts: Floats) -> bool:
        """Return whether thresholds increase."""
        return are_ordered(intercepts)

    def null(self, counts: Floats) -> Floats:
        """Return the quantiles of the cumulative shares."""
        return latent_quantile(self.link, np.cumsum(counts / counts.sum())[:-1])

    def probabilities(self, intercepts: Floats, predictor: Floats) -> Floats:
        """Return the probability of each class, shape (n, K)."""
        return ordinal_probabilities(self.link, intercepts, predictor)

    def first(self, intercepts: Floats, predictor: Floats, classes: Ints) -> Floats:
        """Return the derivatives of log P(class), shape (n, K)."""
        return Ends.of(self.link, intercepts, predictor, classes).first

    def derive(
        self,
        rows: Floats,
        classes: Ints,
        parameters: Floats,
        weights: Each = 1.0,
        offset: Each = 0.0,
    ) -> Derivatives:
        """Return the log-likelihood of patients and its derivatives, without an array of shape (n, K, K)."""
        return derive_ordinal(self.link, rows, classes, parameters, weights, offset)


class MultinomialLikelihood(ClassLikelihood):
    """Baseline-category logit: log(P(k) / P(0)) = a_k + x'b_k."""

    takes_offset: ClassVar[bool] = False

    def names(self, classes: Sequence[str], covariates: Sequence[str]) -> list[str]:
        """Return the name of each parameter, class by class."""
        return [f"{column} ({name})" for name in classes[1:] for column in ("intercept", *covariates)]

    def n_predictors(self, k: int) -> int:
        """Return one predictor per class but the first."""
        return k

    def join(self, intercepts: Floats, slopes: Floats) -> Floats:
        """Return intercept and slopes of each class in turn."""
        return np.column_stack([intercepts, slopes]).ravel()

    def split(self, parameters: Floats, k: int) -> tuple[Floats, Floats]:
        """Return intercepts, and slopes of shape (k, d)."""
        table = parameters.reshape(k, -1)
        return table[:, 0], table[:, 1:]

    def to_units(self, centre: Floats, spread: Floats, k: int) -> Floats:
        """Return the matrix from parameters of standardised covariates to parameters per unit, shape (q, q)."""
        block = np.diag(np.concatenate([[1.0], 1.0 / spread]))
        block[0, 1:] = -centre / spread
        return np.asarray(np.kron(np.eye(k), block), dtype=np.float64)

    def null(self, counts: Floats) -> Floats:
        """Return the logarithms of the odds against the first class."""
        return np.asarray(np.log(counts[1:] / counts[0]), dtype=np.float64)

    def start(self, moments: ClassMoments) -> Floats:
        """Return the parameters of linear discriminant analysis."""
        means = moments.sums / moments.counts[:, None]
        within = (moments.products - moments.sums.T @ means) / moments.counts.sum()
        slopes = np.linalg.lstsq(within, (means[1:] - means[0]).T, rcond=DEPENDENT)[0].T
        slopes = cap_slopes(slopes, moments.correlations)
        middle = 0.5 * np.einsum("kd,kd->k", means[1:] + means[0], slopes)
        return self.join(self.null(moments.counts) - middle, slopes)

    def null_gradient(self, moments: ClassMoments) -> Floats:
        """Return the first derivatives by the slopes in the model without covariates."""
        return np.asarray(moments.sums[1:].ravel(), dtype=np.float64)

    def null_information(self, moments: ClassMoments) -> Floats:
        """Return the expected information in the model without covariates, shape (q, q)."""
        n, d = float(moments.counts.sum()), len(moments.products)
        shares = moments.counts[1:] / n
        block = np.zeros((d + 1, d + 1))
        block[0, 0], block[1:, 1:] = n, moments.products
        return np.asarray(np.kron(np.diag(shares) - np.outer(shares, shares), block), dtype=np.float64)

    def derive(
        self,
        rows: Floats,
        classes: Ints,
        parameters: Floats,
        weights: Each = 1.0,
        offset: Each = 0.0,
    ) -> Derivatives:
        """Return the log-likelihood of patients and its derivatives."""
        return derive_multinomial(with_ones(rows), classes, parameters, weights)

    def scores(self, rows: Floats, classes: Ints, parameters: Floats, offset: Each = 0.0) -> Floats:
        """Return the first derivatives of each patient, shape (n, q)."""
        return multinomial_scores(with_ones(rows), classes, parameters)

    def predict(self, intercepts: Floats, predictors: Floats) -> Floats:
        """Return the probability of each class, shape (n, K)."""
        return multinomial_probabilities(intercepts + predictors)


_LIKELIHOODS: dict[tuple[str, str], ClassLikelihood] = {
    ("multinomial", "logit"): MultinomialLikelihood(),
    ("ordinal", "logit"): CumulativeLikelihood("logit"),
    ("ordinal", "probit"): CumulativeLikelihood("probit"),
}


def register_likelihood(kind: str, link: str, likelihood: ClassLikelihood) -> None:
    """Name a likelihood, so that sites, results and saved models find it.

    Parameters
    ----------
    kind, link : str
        Those of the estimator and of `links` of its site part.
    likelihood : ClassLikelihood
        Functions of arrays that define the model.

    Raises
    ------
    ValueError
        Another class has this name.
    """
    registered = _LIKELIHOODS.setdefault((kind, link), likelihood)
    if type(registered).__qualname__ != type(likelihood).__qualname__:
        raise ValueError(f"{kind} with link {link} is {type(registered).__qualname__}; choose another name")


def is_registered(kind: str, link: str) -> bool:
    """Return whether there is a likelihood of this name."""
    return (kind, link) in _LIKELIHOODS


def likelihood_of(kind: str, link: str) -> ClassLikelihood:
    """Return the likelihood of a name that was checked."""
    return _LIKELIHOODS[kind, link]
