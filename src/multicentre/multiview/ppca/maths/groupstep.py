"""The step of the penalised fit over right multiplication of the loadings, W -> W T.

Only q x q matrices enter it, and it holds the alignment of the latent axes with the prior's as a special case.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from multicentre.federation.ties import first_least
from multicentre.multiview.ppca.maths.expectation import invert_positive
from multicentre.multiview.ppca.maths.model import Floats

# Nats that the search must promise to be worth its time.
SETTLED = 1e-7


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
    weighted = loadings * precision[:, None]
    pull, aim = loadings.T @ weighted, weighted.T @ target
    identity = np.eye(q)

    def value(flat: Floats) -> tuple[float, Floats]:
        mixing = flat.reshape(q, q)
        pulled = pull @ mixing
        loss = float(mixing.ravel() @ (0.5 * pulled - aim).ravel())
        slope = pulled - aim
        for n, information, signal in parts:
            through = information @ mixing
            inverse, log_determinant = invert_positive(identity + mixing.T @ through)
            seen = signal @ mixing
            gain = inverse @ (mixing.T @ seen)
            loss += 0.5 * (n * log_determinant - float(gain.trace()))
            slope += (n * through - seen + through @ gain) @ inverse
        return loss, slope.ravel()

    here, slope = value(identity.ravel())
    if _promise(slope.reshape(q, q), sum(part[0] for part in parts), float(pull.trace()) / q) < SETTLED:
        return None
    starts = identity, _guess(parts, aim)
    start = starts[int(first_least([value(mixing.ravel())[0] for mixing in starts]))]
    found = minimize(value, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": n_steps, "ftol": 1e-12})
    return found.x.reshape(q, q) if found.fun < here else None


def _promise(slope: Floats, n: int, pull: float) -> float:
    """Gain of a Newton step, roughly: the likelihood is flat along rotations and curved as n along stretches."""
    turn, stretch = slope - slope.T, slope + slope.T
    return 0.125 * (float((turn**2).sum()) / pull + float((stretch**2).sum()) / (n + pull))


def _guess(parts: list[tuple[int, Floats, Floats]], aim: Floats) -> Floats:
    """The expanded-parameter step, turned towards the prior."""
    latent = np.zeros_like(aim)
    for n, information, signal in parts:
        covariance, _ = invert_positive(np.eye(len(aim)) + information)
        latent += n * covariance + covariance @ signal @ covariance
    values, vectors = np.linalg.eigh(latent / sum(part[0] for part in parts))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    left, _, right = np.linalg.svd(root.T @ aim)
    return np.asarray(root @ left @ right)
