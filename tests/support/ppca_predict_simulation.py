"""The simulated data of Fed-mv-PPCA, section 4: three views of five latent variables, two groups."""

from dataclasses import dataclass

import numpy as np

from multicentre.multiview.ppca.maths.ard import maximise_relevant
from multicentre.multiview.ppca.maths.invariant import SharedSums
from multicentre.multiview.ppca.maths.model import LatentLaw, Layout, Parameters, change_axes, square_root
from multicentre.multiview.ppca.maths.rows import sum_entries, update_law
from support.ppca_simulation import maximise_shared

LAYOUT = Layout(("first", "second", "third"), (15, 8, 10))
RANGES = np.array([10.0, 5.0, 15.0])
NOISE_SD = np.sqrt([2.0, 1.0, 3.0])


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
        parameters, _ = maximise_shared(sums, parameters, layout)
    return parameters, path


def law_of(sums: SharedSums) -> LatentLaw:
    return update_law(sums.latent_first, sums.latent_second, sums.n_rows)


def fit_shared(
    sites: list[np.ndarray], layout: Layout, n_components: int, *, rounds: int = 30, seed: int = 0
) -> tuple[Parameters, list[LatentLaw]]:
    """Shared loadings and mean, a latent law at each site."""
    parameters = random_start(np.vstack(sites), layout, n_components, np.random.default_rng(seed))
    laws = [LatentLaw.standard(n_components) for _ in sites]
    for _ in range(rounds):
        each = [sum_entries(rows, parameters, law) for rows, law in zip(sites, laws, strict=True)]
        parameters, gauge = maximise_shared(add_up(each), parameters, layout)
        laws = [change_axes(law_of(sums), gauge.mean, square_root(gauge.covariance)) for sums in each]
    return parameters, laws


def fit_relevant(
    sites: list[np.ndarray], layout: Layout, n_components: int, *, rounds: int = 30, seed: int = 0
) -> tuple[Parameters, list[LatentLaw], np.ndarray]:
    """The same with relevance determination."""
    parameters = random_start(np.vstack(sites), layout, n_components, np.random.default_rng(seed))
    laws = [LatentLaw.standard(n_components) for _ in sites]
    precisions = np.zeros((layout.n_views, n_components))
    for _ in range(rounds):
        each = [sum_entries(rows, parameters, law) for rows, law in zip(sites, laws, strict=True)]
        done = maximise_relevant(add_up(each), parameters, precisions, layout)
        parameters, precisions = done.parameters, done.precisions
        axes = square_root(done.gauge.covariance) @ done.turn
        laws = [change_axes(law_of(sums), done.gauge.mean, axes) for sums in each]
    return parameters, laws, precisions


def add_up(each: list[SharedSums]) -> SharedSums:
    total = each[0]
    for sums in each[1:]:
        total = total + sums
    return total


def hide(rows: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Hide a share of the entries completely at random."""
    return np.where(rng.random(rows.shape) < share, np.nan, rows)
