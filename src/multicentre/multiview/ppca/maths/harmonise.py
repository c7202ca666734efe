"""Rows as they would have been measured under the shared law: centre effects out, case mix kept."""

from __future__ import annotations

import numpy as np

from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Parameters
from multicentre.multiview.ppca.maths.predict import posterior_latent


def harmonise(X: Floats, local: Parameters, shared: Parameters, law: LatentLaw | None = None) -> Floats:
    """Carry a centre's rows from its own law to the shared one.

    ``t' = mu~ + W~ x^ + sqrt(s~ / s_c) (t - mu_c - W_c x^)``, x^ the posterior mean under the centre's law:
    the centre's offset, its loadings and its noise scale go; where its patients lie in the latent space stays.

    Parameters
    ----------
    X : array of shape (n, d)
        The centre's rows, NaN where missing; missing entries stay missing.
    local : Parameters
        The centre's own parameters, in the same latent gauge as `shared`, from a fit that gave each centre its latent
        law: one that did not lets the local mean take up the case mix, and harmonising then removes it.
    shared : Parameters
        The federation's parameters.
    law : LatentLaw, optional
        The centre's case mix; N(0, I) by default.

    Returns
    -------
    array of shape (n, d)

    Notes
    -----
    A centre effect inside the span of the shared loadings looks like case mix and is kept: no method can tell
    the two apart without rows measured at both places.

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
