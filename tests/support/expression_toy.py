"""Small views, and a direct solver of self-expression over both parts at once."""

import numpy as np

from multicentre.clustering.kernels.simplex import project_rows

EXACT = {"tol": 1e-8, "single": False, "max_iterations": 5000}


def two_groups(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 2.0 * np.outer(np.arange(n) % 2, np.ones(d))


def descend_both(K, a, lambda_3, pull=0.0, G=None, n_steps=4000):
    """Minimise over (C, U) by accelerated projected gradients with restarts: one row a sample."""
    n = len(K)
    G = np.zeros((n, n)) if G is None else G
    a = np.broadcast_to(np.asarray(a, dtype=float), (n, n))
    bound = 2.0 * np.linalg.eigvalsh(K)[-1] + max(a.max() + pull, lambda_3)
    both = np.hstack([np.ones((n, n)), np.ones((n, n))])
    off = np.tile(1.0 - np.eye(n), 2)
    both *= off / off.sum(axis=1, keepdims=True)
    ahead, momentum = both, 1.0
    for _ in range(n_steps):
        C, U = ahead[:, :n], ahead[:, n:]
        shared = (C + U - np.eye(n)) @ K
        slope = np.hstack([shared + a * C + pull * (C - G), shared + lambda_3 * U])
        aim = np.where(off > 0.0, ahead - slope / bound, -np.inf)
        moved = project_rows(aim, np.ones((1, 1)), np.full(n, -1))
        if np.vdot(ahead - moved, moved - both) > 0.0:
            momentum = 1.0
        grown = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = moved + (momentum - 1.0) / grown * (moved - both)
        both, momentum = moved, grown
    return both[:, :n], both[:, n:]
