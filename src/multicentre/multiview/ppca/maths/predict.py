"""Predictions of a fitted law: latent positions, likelihood, missing views, new rows.

Rows are stacked over views (n, d), NaN where an entry or a whole view is missing. Everything conditions on
the entries that a row has, jointly over views: t ~ N(mu, W W^T + Psi). Every latent solve is q x q.

References
----------
Balelli, Silva and Lorenzi (2021), A probabilistic framework for modeling the variability across federated
datasets of heterogeneous multi-view observations, equations 1 and 3 and section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from multicentre.errors import ConfigurationError
from multicentre.multiview.ppca.maths.model import (
    LOG_TWO_PI,
    Booleans,
    Floats,
    Integers,
    LatentLaw,
    Layout,
    Parameters,
    absorb_law,
    square_root,
)
from multicentre.multiview.ppca.maths.moments import Rows, multiply_grouped


@dataclass(frozen=True)
class LatentPosterior:
    """Posterior of rows in the latent space: x_n | t_n ~ N(mean_n, covariance of its pattern).

    Parameters
    ----------
    mean : array of shape (n, q)
    covariances : array of shape (p, q, q)
        One covariance per pattern of observed features.
    pattern_of : int array of shape (n,)
        Index of the covariance of each row.
    """

    mean: Floats
    covariances: Floats
    pattern_of: Integers

    def sample(self, rng: np.random.Generator) -> Floats:
        """Draw one latent position per row, shape (n, q)."""
        roots = np.asarray(np.linalg.cholesky(self.covariances).transpose(0, 2, 1), dtype=np.float64)
        return np.asarray(self.mean + multiply_grouped(rng.standard_normal(self.mean.shape), roots, self.pattern_of))


@dataclass(frozen=True)
class Projection:
    """Rows under the standard latent law: posterior means, roots of the covariances, likelihood.

    Parameters
    ----------
    mean : array of shape (n, q)
    roots : array of shape (p, q, q)
        ``root.T @ root`` is the posterior covariance of a pattern.
    log_likelihood : array of shape (n,)
    """

    mean: Floats
    roots: Floats
    log_likelihood: Floats

    @property
    def covariances(self) -> Floats:
        """Posterior covariance of every pattern, shape (p, q, q)."""
        return np.asarray(self.roots.transpose(0, 2, 1) @ self.roots)


def project_rows(rows: Rows, parameters: Parameters) -> Projection:
    """Posterior of x ~ N(0, I) and likelihood of every row, by one product and one q x q solve per pattern."""
    W, noise = parameters.loadings, parameters.noise
    d, q = W.shape
    weighted = W / noise[:, None]
    outer = (W[:, :, None] * weighted[:, None, :]).reshape(d, q * q)
    precisions = (rows.patterns @ outer).reshape(-1, q, q)
    lower = np.linalg.cholesky((precisions + precisions.transpose(0, 2, 1)) / 2 + np.eye(q))
    roots = np.linalg.inv(lower)
    deviations = rows.deviations(parameters.mean)
    score = deviations @ weighted
    mean = multiply_grouped(score, roots.transpose(0, 2, 1) @ roots, rows.pattern_of)
    log_determinant = 2 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    constant = log_determinant + rows.patterns @ (np.log(noise) + LOG_TWO_PI)
    quadratic = np.square(deviations) @ (1 / noise) - (score * mean).sum(axis=1)
    return Projection(mean, roots, -(constant[rows.pattern_of] + quadratic) / 2)


def posterior_latent(X: Floats, parameters: Parameters, law: LatentLaw | None = None) -> LatentPosterior:
    """Posterior of the latent position of every row given the entries it has (E-step, section 3.3).

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, NaN where missing. A row without any entry gets the law itself.
    parameters : Parameters
        Of the same features.
    law : LatentLaw, optional
        Case mix of the rows' centre; N(0, I) by default.

    Returns
    -------
    LatentPosterior

    Examples
    --------
    >>> law_of_rows = Parameters(np.ones((2, 1)), np.zeros(2), np.ones(2))
    >>> posterior = posterior_latent(np.array([[3.0, 3.0], [3.0, np.nan]]), law_of_rows)
    >>> posterior.mean.ravel().round(9).tolist()
    [2.0, 1.5]
    """
    rows = Rows.read(X)
    if law is None:
        projection = project_rows(rows, parameters)
        return LatentPosterior(projection.mean, projection.covariances, rows.pattern_of)
    projection = project_rows(rows, absorb_law(parameters, law))
    root = square_root(law.covariance)
    return LatentPosterior(law.mean + projection.mean @ root, root @ projection.covariances @ root, rows.pattern_of)


def row_log_likelihood(X: Floats, parameters: Parameters) -> Floats:
    """Log density of the observed entries of every row, joint over views, in nats, shape (n,).

    A row without any entry has log density 0.

    Examples
    --------
    >>> law_of_rows = Parameters(np.ones((2, 1)), np.zeros(2), np.ones(2))
    >>> np.round(row_log_likelihood(np.array([[0.0, 0.0]]), law_of_rows), 4).tolist()
    [-2.3872]
    """
    return project_rows(Rows.read(X), parameters).log_likelihood


def reconstruct(X: Floats, parameters: Parameters) -> Floats:
    """Rows as the model sees them, W x^ + mu, with x^ the posterior mean, shape (n, d)."""
    return posterior_latent(X, parameters).mean @ parameters.loadings.T + parameters.mean


@dataclass(frozen=True)
class Spread:
    """Variances of parameters between centres, per feature (equations 4 and 5).

    Parameters
    ----------
    mean : array of shape (d,)
        Variance of ``mu_j`` between centres.
    loadings : array of shape (d,)
        Variance of every entry of row j of ``W`` between centres.
    """

    mean: Floats
    loadings: Floats


@dataclass(frozen=True)
class Imputation:
    """Law of some features of every row given the entries that the row has.

    Parameters
    ----------
    mean : array of shape (n, d_m)
    variance : array of shape (n, d_m)
    joint : callable
        Joint covariance of the wanted features of a row, shape (d_m, d_m), for the number of the row.
    freedom : float
        Degrees of freedom of Student's law of the errors; infinite for the normal law.
    """

    mean: Floats
    variance: Floats
    joint: Callable[[int], Floats]
    freedom: float = np.inf

    def covariance(self, row: int) -> Floats:
        """Joint covariance of the wanted features of one row, shape (d_m, d_m)."""
        return self.joint(row)

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Central interval of every wanted entry with probability `level`, in (0, 1): low and high, (n, d_m)."""
        if not 0 < level < 1:
            raise ConfigurationError(
                f"level must be a probability between 0 and 1; got {level!r}",
                where="level",
                hint="Set for example 0.9.",
            )
        probability = (1 + level) / 2
        quantile = float(ndtri(probability))
        if np.isfinite(self.freedom):
            quantile = float(stdtrit(self.freedom, probability) * np.sqrt((self.freedom - 2) / self.freedom))
        half_width = quantile * np.sqrt(self.variance)
        return self.mean - half_width, self.mean + half_width

    def in_units(self, centre: Floats, spread: Floats) -> Imputation:
        """Return the law of the features times `spread`, plus `centre`, two arrays of shape (d_m,)."""
        return Imputation(
            self.mean * spread + centre,
            self.variance * spread**2,
            lambda row: self.joint(row) * spread[:, None] * spread,
            self.freedom,
        )

    def calibrated(self, inflation: Floats, freedom: float) -> Imputation:
        """Return the law with variances times `inflation`, shape (d_m,), and other tails."""
        root = np.sqrt(inflation)
        return Imputation(
            self.mean, self.variance * inflation, lambda row: self.joint(row) * root[:, None] * root, freedom
        )


def impute(X: Floats, parameters: Parameters, wanted: Booleans, spread: Spread | None = None) -> Imputation:
    """Predict `wanted` features of every row from all the entries it has (conditional Gaussian).

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, NaN where missing. An entry that is both wanted and observed informs its own prediction:
        hide it to predict it from the others.
    parameters : Parameters
        Of all features.
    wanted : bool array of shape (d,)
        The features to predict, for example ``layout.features_of(["mri"])``.
    spread : Spread, optional
        Variances between centres. With them, the prediction holds for a centre that was not fitted, and its
        variance grows by ``spread.mean + spread.loadings * E ||x||^2``.

    Returns
    -------
    Imputation

    Examples
    --------
    >>> law_of_rows = Parameters(np.array([[1.0], [2.0]]), np.zeros(2), np.ones(2))
    >>> guess = impute(np.array([[3.0, np.nan]]), law_of_rows, np.array([False, True]))
    >>> guess.mean.round(9).tolist(), guess.variance.round(9).tolist()
    ([[3.0]], [[3.0]])
    """
    latent = posterior_latent(X, parameters)
    predicted = parameters.restrict(wanted)
    mean = latent.mean @ predicted.loadings.T + predicted.mean
    loadings, pattern_of = predicted.loadings, latent.pattern_of
    added = np.zeros_like(mean)
    if spread is not None:
        traces = np.trace(latent.covariances, axis1=1, axis2=2)[pattern_of]
        length = np.square(latent.mean).sum(axis=1) + traces
        added = spread.mean[wanted] + length[:, None] * spread.loadings[wanted]
    variance = ((loadings @ latent.covariances) * loadings).sum(axis=2) + predicted.noise

    def joint(row: int) -> Floats:
        within = loadings @ latent.covariances[pattern_of[row]] @ loadings.T
        return np.asarray(within + np.diag(predicted.noise + added[row]))

    return Imputation(mean, np.asarray(variance[pattern_of] + added), joint)


def sample(parameters: Parameters, n: int, rng: np.random.Generator) -> Floats:
    """Draw `n` new rows, shape (n, d): x from the latent law, then t = W x + mu + noise (equation 1)."""
    d, q = parameters.loadings.shape
    latent = rng.standard_normal((n, q))
    noise = rng.standard_normal((n, d)) * np.sqrt(parameters.noise)
    return np.asarray(latent @ parameters.loadings.T + parameters.mean + noise)


@dataclass(frozen=True)
class ErrorSums:
    """Absolute errors summed over entries; sites' sums add up to the federation's mean absolute error.

    Parameters
    ----------
    absolute : array
        Sum of absolute errors.
    counts : array, same shape
        Number of entries behind each sum.
    """

    absolute: Floats
    counts: Floats

    def __add__(self, other: ErrorSums) -> ErrorSums:
        return ErrorSums(self.absolute + other.absolute, self.counts + other.counts)

    @property
    def mean(self) -> Floats:
        """Mean absolute error; NaN where no entry was compared."""
        counts = np.where(self.counts > 0, self.counts, np.nan)
        return np.asarray(self.absolute / counts)


def absolute_errors(X: Floats, predicted: Floats, layout: Layout) -> ErrorSums:
    """Absolute errors over the observed entries of every view, shape (k,)."""
    by_feature = np.nansum(np.abs(X - predicted), axis=0)
    counts = np.isfinite(X).sum(axis=0).astype(np.float64)
    return ErrorSums(np.add.reduceat(by_feature, layout.starts), np.add.reduceat(counts, layout.starts))


def cross_view_errors(X: Floats, parameters: Parameters, layout: Layout, *, unit: Floats | float = 1.0) -> ErrorSums:
    """Sum the absolute errors of every view predicted from the other views of the same row, shape (k,).

    Rows without another view are left out.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, NaN where missing.
    parameters : Parameters
        Of the same features.
    layout : Layout
        The views.
    unit : array of shape (d,), default 1
        Factor of each feature's errors.
    """
    rows, unit = Rows.read(X), np.broadcast_to(unit, X.shape[1:])
    deviations, q = rows.deviations(parameters.mean), parameters.n_components
    views = [layout.columns(view) for view in layout.names]
    evidence = [_evidence_of_view(rows, deviations, parameters, columns) for columns in views]
    sums = ErrorSums(np.zeros(len(views)), np.zeros(len(views)))
    for k, columns in enumerate(views):
        others = [one for j, one in enumerate(evidence) if j != k]
        if not others:
            break
        precisions = np.eye(q) + np.sum([precision for precision, _ in others], axis=0)
        latent = multiply_grouped(
            np.sum([score for _, score in others], axis=0), np.linalg.inv(precisions), rows.pattern_of
        )
        holds_more = np.asarray(np.delete(rows.patterns, columns, axis=1).any(axis=1))
        has_others = holds_more if len(rows.patterns) == 1 else holds_more[rows.pattern_of]
        compared = rows.observed[:, columns] & has_others[:, None]
        errors = np.abs(deviations[:, columns] - latent @ parameters.loadings[columns].T) * compared
        sums.absolute[k] = float(errors.sum(axis=0) @ unit[columns])
        sums.counts[k] = float(np.broadcast_to(compared, errors.shape).sum())
    return sums


def _evidence_of_view(rows: Rows, deviations: Floats, parameters: Parameters, columns: slice) -> tuple[Floats, Floats]:
    """Return a view's evidence on the latents: a precision per pattern, (p, q, q), and a score per row, (n, q)."""
    loadings = parameters.loadings[columns]
    weighted = loadings / parameters.noise[columns, None]
    outer = (loadings[:, :, None] * weighted[:, None, :]).reshape(len(loadings), -1)
    q = parameters.n_components
    return (rows.patterns[:, columns] @ outer).reshape(-1, q, q), deviations[:, columns] @ weighted
