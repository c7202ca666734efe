"""The step of the penalised fit over right multiplication of the loadings, W -> W T.

Only q x q matrices enter it, and it holds the alignment of the latent axes with the prior's as a special case.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from multicentre.multiview.ppca.maths.model import Floats

# A relative gain below this is not worth the search.
SETTLED = 1e-9


def maximise_mixing(
    parts: list[tuple[int, Floats, Floats]],
    loadings: Floats,
    target: Floats,
    precision: Floats,
    *,
    n_steps: int = 20,
) -> Floats | None:
    """Return the mixing ``T`` that raises the objective at ``W T``, or None when the gain would be nil.

    Parameters
    ----------
    parts : list of (n, H, G)
        Per pattern: number of rows, ``W' Psi^-1 W`` and ``P' S_mu P``, both of shape (q, q).
    loadings, target : arrays of shape (d, q)
        The site's and the prior's.
    precision : array of shape (d,)
        Prior precision of every feature's loadings.
    n_steps : int, default 20
        Most quasi-Newton iterations.
    """
    q = loadings.shape[1]
    n = np.array([float(part[0]) for part in parts])
    information, signal = np.stack([part[1] for part in parts]), np.stack([part[2] for part in parts])
    weighted = loadings * precision[:, None]
    pull, aim = loadings.T @ weighted, weighted.T @ target
    identity = np.eye(q)

    def value(flat: Floats) -> tuple[float, Floats]:
        mixing = flat.reshape(q, q)
        through = information @ mixing
        inner = identity + mixing.T @ through
        root = np.linalg.cholesky(inner)
        inverse = np.linalg.inv(inner)
        seen = signal @ mixing
        middle = mixing.T @ seen
        gain = inverse @ middle
        log_determinant = 2.0 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        pulled = pull @ mixing
        loss = 0.5 * (n @ log_determinant - np.trace(gain, axis1=1, axis2=2).sum())
        loss += 0.5 * float((mixing * pulled).sum()) - float((mixing * aim).sum())
        slope = (n[:, None, None] * through - seen + through @ gain) @ inverse
        return float(loss), (slope.sum(axis=0) + pulled - aim).ravel()

    here, slope = value(identity.ravel())
    if float(np.abs(slope).max()) < SETTLED * (float(n.sum()) + float(np.trace(pull))):
        return None
    start = min((identity, *_guesses(n, information, signal, pull, aim)), key=lambda m: value(m.ravel())[0])
    found = minimize(value, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": n_steps, "maxls": 30})
    return found.x.reshape(q, q) if found.fun < here else None


def _guesses(n: Floats, information: Floats, signal: Floats, pull: Floats, aim: Floats) -> list[Floats]:
    """The expanded-parameter step turned towards the prior, and that turn alone."""
    covariance = np.linalg.inv(np.eye(len(pull)) + information)
    latent = (n[:, None, None] * covariance + covariance @ signal @ covariance).sum(axis=0) / n.sum()
    values, vectors = np.linalg.eigh(latent)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    left, _, right = np.linalg.svd(root.T @ aim)
    return [root @ left @ right]
