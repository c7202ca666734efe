"""Ridge regression of a view on the others from completed second moments, and its comparison with the latent model.

A law of few latent dimensions leaves out correlations that predict a lacking view. The regression uses all of them. Its
moments are sums over patients in which entries that a patient lacks are replaced by their expectation, and its products
by theirs, given the patient's other entries and the law: one E-step of a Gaussian without structure. They are positive
definite whichever views the sites lack.

Correlations are multiplied by ``1 - shrinkage``, ``R -> (1 - a) R + a I``: ridge regression on standardised columns
(Hoerl and Kennard 1970), between ordinary regression at ``a = 0`` and the mean of the column at ``a = 1``. The
shrinkage is chosen where the truth is at hand: each site subtracts its own patients from the sums over all sites, and
predicts its views from the rest. Each error is that of a site that did not contribute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from multicentre.multiview.ppca.maths.model import Booleans, Floats, Integers, Layout, Parameters
from multicentre.multiview.ppca.maths.moments import Rows, members_of
from multicentre.multiview.ppca.maths.predict import Imputation, impute, posterior_latent

# From the mean of the column to nearly ordinary regression. On a finer grid the errors of neighbours hardly differ.
SHRINKAGES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05)
# The strongest shrinkage whose error is within this share of the least is chosen: sites that lack a view differ more
# from the others than the sites do that have it. The model is chosen where it is better by more than this share: the
# site that is left out of the moments contributed to the loadings.
TOLERANCE = 0.01
# Degrees of freedom of Student's law between which the tails of the errors are matched. Below, the variance hardly
# exists; above, the law is normal.
FREEDOM = np.concatenate([np.linspace(2.2, 10.0, 79), np.geomspace(10.5, 200.0, 60)])
# Degrees of freedom that stand for the normal law: quantiles then agree to eight digits.
NORMAL = 1e9


@dataclass(frozen=True)
class PredictionSums:
    """Errors of each column predicted from the other views, by candidate: the latent model, then each shrinkage.

    Parameters
    ----------
    absolute, squares : arrays of shape (d, c)
        Sums of absolute and squared errors.
    variances : array of shape (d, c)
        Sum of the variances that the candidates state.
    entries : array of shape (d,)
        Entries that were compared.
    """

    absolute: Floats
    squares: Floats
    variances: Floats
    entries: Floats


@dataclass(frozen=True)
class Regression:
    """Covariance for the prediction of views, with the shrinkage of each view.

    Parameters
    ----------
    covariance : array of shape (d, d)
    shrinkage : array of shape (k,)
    """

    covariance: Floats
    shrinkage: Floats


def complete_products(X: Floats, law: Parameters) -> Floats:
    """Sum ``(t - mu)(t - mu)'`` over rows, shape (d, d), lacking entries replaced by their expectation.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, NaN where missing.
    law : Parameters

    Examples
    --------
    >>> law = Parameters(np.array([[1.0], [2.0]]), np.zeros(2), np.ones(2))
    >>> complete_products(np.array([[2.0, np.nan]]), law).round(9).tolist()
    [[4.0, 4.0], [4.0, 7.0]]
    """
    rows = Rows.read(X)
    posterior = posterior_latent(X, law)
    complete = np.where(rows.observed, rows.deviations(law.mean), posterior.mean @ law.loadings.T)
    products = np.asarray(complete.T @ complete)
    counts = np.bincount(rows.pattern_of, minlength=len(rows.patterns))
    for count, pattern, latent in zip(counts, rows.patterns, posterior.covariances, strict=True):
        lacking = np.flatnonzero(~pattern)
        loadings = law.loadings[lacking]
        products[np.ix_(lacking, lacking)] += count * (loadings @ latent @ loadings.T + np.diag(law.noise[lacking]))
    return products


def compare_candidates(
    X: Floats, law: Parameters, products: Floats, n_rows: float, layout: Layout, sites: Floats
) -> PredictionSums:
    """Predict every view of a site's rows from the other views, with moments that leave the site out.

    The means of the law are freed from the site's share of them too, which is about one over the number of sites.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows of one site, NaN where missing.
    law : Parameters
    products : array of shape (d, d)
        Completed products over all sites.
    n_rows : float
        Patients of all sites.
    layout : Layout
    sites : array of shape (k,)
        Number of sites with each view, at least 2.
    """
    d, c = layout.n_features, len(SHRINKAGES) + 1
    sums = PredictionSums(np.zeros((d, c)), np.zeros((d, c)), np.zeros((d, c)), np.zeros(d))
    others = (products - complete_products(X, law)) / (n_rows - len(X))
    entries = (~np.isnan(X)).sum(axis=0)
    share = np.nansum(X - law.mean, axis=0) / np.maximum(entries, 1) / (sites[layout.view_of] - 1.0)
    law = replace(law, mean=law.mean - share)
    for view in layout.names:
        columns, wanted = layout.columns(view), layout.features_of([view])
        rows = X[~np.isnan(X[:, wanted]).all(axis=1) & ~np.isnan(X[:, ~wanted]).all(axis=1)]
        if not len(rows):
            continue
        truth, hidden = rows[:, wanted], np.where(wanted, np.nan, rows)
        held = ~np.isnan(truth)
        sums.entries[columns] = held.sum(axis=0)
        model = impute(hidden, law, wanted)
        predictions = [(model.mean, model.variance), *_regress(hidden, law, others, wanted, layout, SHRINKAGES)]
        for number, (mean, variance) in enumerate(predictions):
            errors = np.where(held, truth - mean, 0.0)
            sums.absolute[columns, number] = np.abs(errors).sum(axis=0)
            sums.squares[columns, number] = np.square(errors).sum(axis=0)
            sums.variances[columns, number] = np.where(held, variance, 0.0).sum(axis=0)
    return sums


def regress_view(X: Floats, law: Parameters, regression: Regression, view: str, layout: Layout) -> Imputation:
    """Predict a view of every row from its other views by ridge regression.

    Entries that a row lacks within a view are first replaced by their expectation under the law.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, NaN where missing; entries of `view` are not used.
    law : Parameters
    regression : Regression
    view : str
    layout : Layout
    """
    wanted = layout.features_of([view])
    shrinkage = float(regression.shrinkage[layout.names.index(view)])
    hidden = np.where(wanted, np.nan, X)
    mean, joint, pattern_of = _regress_jointly(hidden, law, regression.covariance, wanted, layout, shrinkage)
    return Imputation(
        mean=mean,
        variance=np.diagonal(joint, axis1=1, axis2=2)[pattern_of],
        joint=lambda row: joint[pattern_of[row]],
    )


@dataclass(frozen=True)
class _Slopes:
    """Standardised regression on some features, diagonal in the eigenvectors of their correlations."""

    features: Booleans
    axes: Floats
    values: Floats
    projected: Floats

    def of(self, shrinkage: float) -> Floats:
        """Slopes of the wanted features on the others, shape (d_o, d_m)."""
        weight = (1.0 - shrinkage) / ((1.0 - shrinkage) * self.values + shrinkage)
        return np.asarray(self.axes @ (weight[:, None] * self.projected))

    def explained(self, shrinkage: float) -> Floats:
        """Covariance of the predictions with the wanted features, shape (d_m, d_m)."""
        weight = (1.0 - shrinkage) ** 2 / ((1.0 - shrinkage) * self.values + shrinkage)
        return np.asarray(self.projected.T @ (weight[:, None] * self.projected))


def _slopes(covariance: Floats, features: Booleans, wanted: Booleans) -> _Slopes:
    scale = 1.0 / np.sqrt(np.diagonal(covariance)[features])
    correlations = covariance[np.ix_(features, features)] * scale[:, None] * scale
    values, vectors = np.linalg.eigh(0.5 * (correlations + correlations.T))
    axes = scale[:, None] * vectors
    return _Slopes(features, axes, np.maximum(values, 0.0), axes.T @ covariance[np.ix_(features, wanted)])


def _fill(X: Floats, law: Parameters, layout: Layout) -> tuple[Floats, list[tuple[Booleans, Integers]]]:
    """Return deviations from the mean, entries within a held view filled by the law, and rows by views held."""
    holds = np.logical_or.reduceat(~np.isnan(X), layout.starts, axis=1)
    expected = posterior_latent(X, law).mean @ law.loadings.T
    filled = np.where(np.isnan(X), expected, X - law.mean)
    patterns, pattern_of = np.unique(holds, axis=0, return_inverse=True)
    groups = [(patterns[p][layout.view_of], members) for p, members in members_of(pattern_of.reshape(-1))]
    return filled, groups


def _regress(
    X: Floats, law: Parameters, covariance: Floats, wanted: Booleans, layout: Layout, shrinkages: tuple[float, ...]
) -> list[tuple[Floats, Floats]]:
    """Return mean and variance of the wanted features of every row, for each shrinkage."""
    filled, groups = _fill(X, law, layout)
    shape = (len(X), int(wanted.sum()))
    predictions = [(np.empty(shape), np.empty(shape)) for _ in shrinkages]
    total = np.diagonal(covariance)[wanted]
    for features, members in groups:
        slopes = _slopes(covariance, features, wanted)
        for shrinkage, (mean, variance) in zip(shrinkages, predictions, strict=True):
            mean[members] = law.mean[wanted] + filled[np.ix_(members, features)] @ slopes.of(shrinkage)
            variance[members] = total - np.diagonal(slopes.explained(shrinkage))
    return predictions


def _regress_jointly(
    X: Floats, law: Parameters, covariance: Floats, wanted: Booleans, layout: Layout, shrinkage: float
) -> tuple[Floats, Floats, Integers]:
    """Return means (n, d_m), one joint covariance per pattern (p, d_m, d_m), and the pattern of each row."""
    filled, groups = _fill(X, law, layout)
    mean, pattern_of, joint = np.empty((len(X), int(wanted.sum()))), np.zeros(len(X), dtype=np.int64), []
    total = covariance[np.ix_(wanted, wanted)]
    total = (1.0 - shrinkage) * total + shrinkage * np.diag(np.diagonal(total))
    for number, (features, members) in enumerate(groups):
        slopes = _slopes(covariance, features, wanted)
        mean[members] = law.mean[wanted] + filled[np.ix_(members, features)] @ slopes.of(shrinkage)
        joint.append(total - slopes.explained(shrinkage))
        pattern_of[members] = number
    return mean, np.stack(joint), pattern_of


@dataclass(frozen=True)
class Choice:
    """Prediction of each view that left-out sites favour, and the calibration of its variances.

    Parameters
    ----------
    errors : array of shape (k, c)
        Mean absolute error by view and candidate, in the unit of the sums; NaN where no site could compare.
    candidate : int array of shape (k,)
        0 for the latent model, otherwise one more than the index of the shrinkage.
    regression : int array of shape (k,)
        The same among the shrinkages only.
    inflation : array of shape (d, c)
        Squared error over stated variance, by column and candidate.
    freedom : array of shape (k, c)
        Degrees of freedom of Student's law with the tails of the errors; `NORMAL` if they are those of the normal law.
    """

    errors: Floats
    candidate: Integers
    regression: Integers
    inflation: Floats
    freedom: Floats

    @property
    def shrinkage(self) -> Floats:
        """Shrinkage of the regression of each view, shape (k,)."""
        return np.asarray(SHRINKAGES)[self.regression - 1]


def choose_prediction(sums: PredictionSums, layout: Layout, unit: Floats) -> Choice:
    """Choose the prediction of each view by its mean absolute error at left-out sites.

    Parameters
    ----------
    sums : PredictionSums
        Over sites.
    layout : Layout
    unit : array of shape (d,)
        Factor of each column's errors.
    """
    held = sums.entries > 0
    entries = np.where(held, sums.entries, np.nan)[:, None]
    by_column = sums.absolute / entries * unit[:, None]
    errors = np.array([_mean_of(by_column[layout.columns(view)]) for view in layout.names])
    regression, candidate = np.ones(len(errors), dtype=np.int64), np.zeros(len(errors), dtype=np.int64)
    for k, row in enumerate(errors):
        if np.isfinite(row).all():
            regression[k] = 1 + int(np.flatnonzero(row[1:] <= (1.0 + TOLERANCE) * row[1:].min())[0])
            candidate[k] = 0 if row[0] < (1.0 - TOLERANCE) * row[regression[k]] else regression[k]
    stated = np.where(sums.variances > 0, sums.variances, 1.0)
    inflation = np.where(held[:, None] & (sums.squares > 0), sums.squares / stated, 1.0)
    deviation = np.sqrt(np.where(held[:, None], sums.squares, np.nan) / entries)
    ratios = by_column / unit[:, None] / np.where(deviation > 0, deviation, np.nan)
    freedom = np.array([_freedom_of(_mean_of(ratios[layout.columns(view)])) for view in layout.names])
    return Choice(errors, candidate, regression, inflation, freedom)


def _mean_of(values: Floats) -> Floats:
    """Mean over the columns that are finite, shape (c,); NaN without one."""
    finite = np.isfinite(values)
    counts = finite.sum(axis=0)
    return np.where(counts > 0, np.where(finite, values, 0.0).sum(axis=0) / np.maximum(counts, 1), np.nan)


def _freedom_of(ratios: Floats) -> Floats:
    """Degrees of freedom at which Student's law has these ratios of mean absolute to standard deviation (Geary 1935).

    Examples
    --------
    >>> _freedom_of(np.array([0.7351, 0.7979])).round(1).tolist()
    [5.0, 1000000000.0]
    """
    log_gamma = gammaln((FREEDOM + 1) / 2) - gammaln(FREEDOM / 2)
    expected = 2 * np.exp(log_gamma) * np.sqrt((FREEDOM - 2) / np.pi) / (FREEDOM - 1)
    freedom = np.interp(ratios, expected, FREEDOM)
    return np.where(np.isnan(ratios) | (ratios >= expected[-1]), NORMAL, freedom)
