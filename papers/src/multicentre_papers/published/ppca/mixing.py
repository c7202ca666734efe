"""Step of the penalised fit over right multiplication of the loadings, W -> W T.

It needs q x q matrices only. Alignment of the latent axes with those of the prior is a special case.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from multicentre.core.tie_breaking import first_least
from multicentre.multiview.ppca.maths.model import Floats, invert_positive

# Expected gain in nats below which the search is skipped. A larger value saves time and ends further from the optimum.
MIN_GAIN = 1e-7


def maximise_mixing(
    parts: list[tuple[int, Floats, Floats]],
    loadings: Floats,
    target: Floats,
    precision: Floats,
    *,
    n_steps: int = 20,
) -> Floats | None:
    """Return the mixing ``T`` that raises the objective at ``W T``, or None if the expected gain is negligible.

    Parameters
    ----------
    parts : list of (n, H, G)
        Per pattern: number of rows, ``W' Psi^-1 W`` and ``P' S_mu P``, both of shape (q, q).
    loadings, target : arrays of shape (d, q)
        Loadings of the site and of the prior.
    precision : array of shape (d,)
        Prior precision of the loadings of each feature.
    n_steps : int, default 20
        Maximum number of quasi-Newton iterations.
    """
    q = loadings.shape[1]
    weighted = loadings * precision[:, None]
    prior_curvature, prior_cross = loadings.T @ weighted, weighted.T @ target
    identity = np.eye(q)

    def value(flat: Floats) -> tuple[float, Floats]:
        mixing = flat.reshape(q, q)
        curved = prior_curvature @ mixing
        loss = float(mixing.ravel() @ (0.5 * curved - prior_cross).ravel())
        slope = curved - prior_cross
        for n, information, signal in parts:
            through = information @ mixing
            inverse, log_determinant = invert_positive(identity + mixing.T @ through)
            mixed = signal @ mixing
            gain = inverse @ (mixing.T @ mixed)
            loss += 0.5 * (n * log_determinant - float(gain.trace()))
            slope += (n * through - mixed + through @ gain) @ inverse
        return loss, slope.ravel()

    loss_at_identity, slope = value(identity.ravel())
    if (
        _expected_gain(slope.reshape(q, q), sum(part[0] for part in parts), float(prior_curvature.trace()) / q)
        < MIN_GAIN
    ):
        return None
    starts = identity, _guess(parts, prior_cross)
    start = starts[int(first_least([value(mixing.ravel())[0] for mixing in starts]))]
    result = minimize(value, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": n_steps, "ftol": 1e-12})
    return result.x.reshape(q, q) if result.fun < loss_at_identity else None


def _expected_gain(slope: Floats, n: int, prior_curvature: float) -> float:
    """Approximate the gain of a Newton step: the likelihood has curvature 0 along rotations and n along stretches."""
    turn, stretch = slope - slope.T, slope + slope.T
    return 0.125 * (float((turn**2).sum()) / prior_curvature + float((stretch**2).sum()) / (n + prior_curvature))


def _guess(parts: list[tuple[int, Floats, Floats]], prior_cross: Floats) -> Floats:
    """Return the step of parameter-expanded EM, rotated towards the prior."""
    latent = np.zeros_like(prior_cross)
    for n, information, signal in parts:
        covariance, _ = invert_positive(np.eye(len(prior_cross)) + information)
        latent += n * covariance + covariance @ signal @ covariance
    values, vectors = np.linalg.eigh(latent / sum(part[0] for part in parts))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    left, _, right = np.linalg.svd(root.T @ prior_cross)
    return np.asarray(root @ left @ right)
