"""The simulated data of Fed-mv-PPCA, section 4: three views of five latent variables, two groups."""

from dataclasses import dataclass

import numpy as np

from multicentre.multiview.ppca.maths.ard import update_loadings, update_precisions
from multicentre.multiview.ppca.maths.entries import (
    FLAT_SCALE,
    FLAT_SHAPE,
    maximise_entries,
    sum_entries,
    update_law,
    update_noise,
)
from multicentre.multiview.ppca.maths.gauge import canonical_rotation, rotate_law, rotate_parameters
from multicentre.multiview.ppca.maths.model import LatentLaw, Layout, Parameters
from multicentre.multiview.ppca.maths.predict import absorb_law, square_root

LAYOUT = Layout(("first", "second", "third"), (15, 8, 10))
RANGES = np.array([10.0, 5.0, 15.0])
NOISE_SD = np.array([2.0, 1.0, 3.0])


@dataclass(frozen=True)
class Simulated:
    rows: np.ndarray
    group: np.ndarray
    parameters: Parameters


def simulate(seed: int, *, n: int = 400, n_shifted: int = 250, shift: str = "mild", scale: str = "view") -> Simulated:
    """Draw SD; `shift` is 'mild' (length 2) or 'paper' (uniform in a box), `scale` 'view' or 'none'."""
    rng = np.random.default_rng(seed)
    reach = RANGES[LAYOUT.view_of]
    W = rng.uniform(-1, 1, (33, 5)) * reach[:, None]
    mean = rng.uniform(-1, 1, 33) * reach
    x = rng.standard_normal((n, 5))
    direction = rng.uniform(-10, 10, 5)
    if shift == "mild":
        direction *= 2 / np.linalg.norm(direction)
    group = np.arange(n) < n_shifted
    x[group] += direction
    noise_sd = NOISE_SD[LAYOUT.view_of]
    rows = x @ W.T + mean + rng.standard_normal((n, 33)) * noise_sd
    order = rng.permutation(n)
    factor = view_scale(rows) if scale == "view" else np.ones(33)
    truth = Parameters(W / factor[:, None], mean / factor, (noise_sd / factor) ** 2)
    return Simulated(rows[order] / factor, group[order], truth)


def view_scale(rows: np.ndarray) -> np.ndarray:
    """One number a view: the root mean variance of its features."""
    variances = rows.var(axis=0)
    means = np.add.reduceat(variances, LAYOUT.starts) / np.asarray(LAYOUT.sizes)
    return np.sqrt(means)[LAYOUT.view_of]


def random_start(rows: np.ndarray, layout: Layout, n_components: int, rng: np.random.Generator) -> Parameters:
    variances = np.nanvar(rows, axis=0)
    W = rng.standard_normal((layout.n_features, n_components)) * np.sqrt(variances)[:, None]
    return Parameters(W, np.nanmean(rows, axis=0), variances)


def fit_entries(
    rows: np.ndarray, layout: Layout, n_components: int, *, iterations: int = 60, seed: int = 0
) -> tuple[Parameters, list[float]]:
    """Maximum likelihood by PX-EM over the observed entries, with the likelihood before every update."""
    parameters = random_start(rows, layout, n_components, np.random.default_rng(seed))
    path = []
    for _ in range(iterations):
        sums = sum_entries(rows, parameters)
        path.append(sums.log_likelihood)
        parameters = maximise_entries(sums, layout.view_of)
    return parameters, path


def hide(rows: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Hide a share of the entries completely at random."""
    return np.where(rng.random(rows.shape) < share, np.nan, rows)


def fit_shared(
    sites: list[np.ndarray],
    layout: Layout,
    n_components: int,
    *,
    rounds: int = 60,
    seed: int = 0,
    relevance: bool = False,
) -> tuple[Parameters, list[LatentLaw], list[float]]:
    """Shared loadings, a latent law at each site; with `relevance`, ARD in principal axes."""
    rng = np.random.default_rng(seed)
    parameters = random_start(np.vstack(sites), layout, n_components, rng)
    laws = [LatentLaw.standard(n_components) for _ in sites]
    precisions = np.zeros((layout.n_views, n_components))
    path = []
    for _ in range(rounds):
        each = [sum_entries(rows, parameters, law) for rows, law in zip(sites, laws, strict=True)]
        total = each[0]
        for sums in each[1:]:
            total = total + sums
        path.append(total.log_likelihood)
        F, spread = update_loadings(total.cross, total.second, parameters.noise, precisions, layout)
        noise = update_noise(F, total, layout.view_of, FLAT_SHAPE, FLAT_SCALE)
        pooled = update_law(total.latent_first, total.latent_second, total.n_rows)
        root = square_root(pooled.covariance)
        parameters = absorb_law(Parameters(F[:, :-1], F[:, -1], noise), pooled)
        turn = canonical_rotation(parameters) if relevance else np.eye(n_components)
        parameters = rotate_parameters(parameters, turn)
        laws = [
            carry_law(update_law(s.latent_first, s.latent_second, s.n_rows), pooled.mean, root, turn) for s in each
        ]
        if relevance:
            through = root @ turn
            precisions = update_precisions(parameters.loadings, through.T @ spread @ through, layout)
    return parameters, laws, path


def carry_law(law: LatentLaw, shift: np.ndarray, root: np.ndarray, turn: np.ndarray) -> LatentLaw:
    covariance = np.linalg.solve(root, np.linalg.solve(root, law.covariance).T)
    return rotate_law(LatentLaw(np.linalg.solve(root, law.mean - shift), (covariance + covariance.T) / 2), turn)
