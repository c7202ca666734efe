"""Fit of a law to rows, as sums that add over blocks of rows and over sites; harmonisation of rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from multicentre.multiview.ppca.maths.gauge import sum_variances
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Layout, Parameters
from multicentre.multiview.ppca.maths.predict import (
    absolute_errors,
    cross_view_errors,
    posterior_latent,
    reconstruct,
    row_log_likelihood,
)


@dataclass(frozen=True)
class DescriptionSums:
    """Sums over rows.

    Parameters
    ----------
    log_likelihood : float
        In nats.
    n_rows : float
    absolute_error, entries : arrays of shape (k,)
        Reconstruction errors by view, and the entries behind them.
    cross_view_error, cross_view_entries : arrays of shape (k,)
        The same for each view predicted from the others.
    total_square : array of shape (k,)
        Squared deviations from the mean.
    square_after_axis : array of shape (k, q)
        The same after each latent dimension.
    square_after_all : array of shape (k,)
        The same after all of them.
    """

    log_likelihood: float
    n_rows: float
    absolute_error: Floats
    entries: Floats
    cross_view_error: Floats
    cross_view_entries: Floats
    total_square: Floats
    square_after_axis: Floats
    square_after_all: Floats


def describe_rows(X: Floats, law: Parameters, layout: Layout, unit: Floats) -> DescriptionSums:
    """Sum log-likelihood, errors and variance explained over rows.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, NaN where missing.
    law : Parameters
    layout : Layout
    unit : array of shape (d,)
        By which errors are multiplied.
    """
    errors = absolute_errors(X * unit, reconstruct(X, law) * unit, layout)
    across = cross_view_errors(X, law, layout, unit=unit)
    squares = sum_variances(X, law, layout)
    return DescriptionSums(
        log_likelihood=float(row_log_likelihood(X, law).sum()),
        n_rows=float(len(X)),
        absolute_error=errors.absolute,
        entries=errors.counts,
        cross_view_error=across.absolute,
        cross_view_entries=across.counts,
        total_square=squares.total,
        square_after_axis=squares.after_axis,
        square_after_all=squares.after_all,
    )


def add_up(parts: Iterable[DescriptionSums]) -> DescriptionSums:
    """Add sums over blocks of rows; there is at least one block."""
    first, *others = parts
    totals = {field.name: getattr(first, field.name) for field in fields(first)}
    for part in others:
        totals = {name: total + getattr(part, name) for name, total in totals.items()}
    return DescriptionSums(**totals)


def harmonise(X: Floats, local: Parameters, shared: Parameters, law: LatentLaw | None = None) -> Floats:
    """Map a centre's rows from its local law to the shared one.

    ``t' = mu~ + W~ x^ + sqrt(s~ / s_c) (t - mu_c - W_c x^)``, where x^ is the posterior mean under the centre's law.
    The centre's offset, loadings and noise scale are removed; the latent positions of its patients are unchanged.

    Parameters
    ----------
    X : array of shape (n, d)
        The centre's rows, NaN where missing; missing entries stay missing.
    local : Parameters
        Parameters of the centre, in the same latent gauge as `shared`, from a fit with a latent law per centre.
        Without one, the local mean absorbs the case mix, and harmonisation removes it.
    shared : Parameters
        The federation's parameters.
    law : LatentLaw, optional
        The centre's case mix; N(0, I) by default.

    Returns
    -------
    array of shape (n, d)

    Notes
    -----
    A centre effect inside the span of the shared loadings is not removed, since it cannot be distinguished from case
    mix without rows measured at both places.

    Examples
    --------
    >>> shared = Parameters(np.ones((2, 1)), np.zeros(2), np.ones(2))
    >>> local = Parameters(np.ones((2, 1)), np.array([5.0, 5.0]), 4 * np.ones(2))
    >>> harmonise(np.array([[5.0, 5.0], [9.0, 5.0]]), local, shared).round(4).tolist()
    [[0.0, 0.0], [2.3333, 0.3333]]
    """
    x = posterior_latent(X, local, law).mean
    residual = X - local.mean - x @ local.loadings.T
    return np.asarray(shared.mean + x @ shared.loadings.T + np.sqrt(shared.noise / local.noise) * residual)
