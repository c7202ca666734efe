"""What differential privacy costs Fed-mv-PPCA: errors and angles by patients and epsilon, unmasked and masked."""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path

import numpy as np
from measuring import pin_threads, show, write_json
from scipy.linalg import subspace_angles

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.datasets import simulate_sd
from multicentre.datasets.labelled import SimulatedTruth
from multicentre.errors import NoiseWarning

N_SITES, N_HELD_OUT, Q = 3, 1000, 5
SHARE_SHIFTED = 5 / 8
Reference = dict[str, dict[str, list[float]]]


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=8, help="data sets behind each mean")
    arguments.add_argument("--patients", type=int, nargs="+", default=[100, 500, 2000], help="patients a site")
    arguments.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0, 10.0])
    arguments.add_argument("--delta", type=float, default=1e-5)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    pin_threads()
    results, rows = {}, []
    for n in given.patients:
        draws = [Draw(n, seed) for seed in range(given.seeds)]
        rows.append([str(n), "none", "", _told([draw.plain_error for draw in draws]), "", ""])
        for epsilon, secure_sum in itertools.product(given.epsilon, (False, True)):
            levels = np.array([draw.level(epsilon, given.delta, secure_sum=secure_sum) for draw in draws])
            sums = "masked" if secure_sum else "unmasked"
            results[f"{n}, {epsilon:g}, {sums}"] = levels.tolist()
            rows.append([str(n), f"{epsilon:g}", sums, _told(levels[:, 0]), *(f"{v:.1f}" for v in levels.mean(0)[1:])])
    show(
        f"{N_SITES} sites, 33 columns, q = {Q}, delta = {given.delta:g}; mean (standard deviation) over {given.seeds}",
        ["patients a site", "epsilon", "sums", "MAE", "angle", "foretold"],
        rows,
    )
    write_json(given.json, results)


class Draw:
    """Sites drawn from one law, held-out patients, and the fit without noise."""

    def __init__(self, n: int, seed: int) -> None:
        labelled = simulate_sd(seed, "mild", n_patients=n * N_SITES + N_HELD_OUT)
        rows = np.arange(n * N_SITES + N_HELD_OUT)
        self.sites = {f"site-{i}": labelled.data.take(rows[i * n : (i + 1) * n]) for i in range(N_SITES)}
        self.held_out: MultiViewData = labelled.data.take(rows[n * N_SITES :])
        self.reference = public_reference(labelled.truth)
        self.plain = mc.multiview.FedMvPPCA(Q).fit(mc.Federation.in_process(self.sites))
        self.plain_error = self.plain.assess(self.held_out)["mae"]

    def level(self, epsilon: float, delta: float, *, secure_sum: bool) -> tuple[float, float, float]:
        """Return the private fit's error, its angle to the fit without noise, and the angle that it foretold."""
        federation = mc.Federation.in_process(self.sites, secure_sum=secure_sum)
        model = mc.multiview.FedMvPPCA(Q, epsilon=epsilon, delta=delta, reference=self.reference)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoiseWarning)
            model.fit(federation)
        angle = subspace_angles(self._standard_loadings(model), self._standard_loadings(self.plain))[0]
        return model.assess(self.held_out)["mae"], float(np.degrees(angle)), model.noise_angle_

    def _standard_loadings(self, model: mc.multiview.FedMvPPCA) -> np.ndarray:
        return np.vstack([W / np.array(self.reference[view]["spread"])[:, None] for view, W in model.loadings_.items()])


def public_reference(truth: SimulatedTruth) -> Reference:
    """Return centre and spread of each column under the simulated law: what a published cohort would tell."""
    latent = np.eye(len(truth.shift)) + SHARE_SHIFTED * (1 - SHARE_SHIFTED) * np.outer(truth.shift, truth.shift)
    reference = {}
    for view, W in truth.loadings.items():
        spread = np.sqrt(np.einsum("dq,qr,dr->d", W, latent, W) + truth.noise_sd[view] ** 2)
        centre = truth.means[view] + W @ (SHARE_SHIFTED * truth.shift)
        reference[view] = {"centre": centre.tolist(), "spread": spread.tolist()}
    return reference


def _told(values: np.ndarray | list[float]) -> str:
    return f"{np.mean(values):.3f} ({np.std(values, ddof=1):.3f})"


if __name__ == "__main__":
    main()
