"""Centres drawn from one law whose centre and spread are public, for tests of the private Fed-mv-PPCA."""

import functools
import warnings
from types import SimpleNamespace

import numpy as np
from scipy.linalg import subspace_angles

import multicentre as mc
from multicentre.datasets import simulate_sd
from multicentre.errors import NoiseWarning
from support.ppca_federations import SIZES, federate, small_sites

FedMvPPCA = mc.multiview.FedMvPPCA
SHARE_SHIFTED = 5 / 8
DELTA = 1e-5


def small_reference(sites=None, *, sizes=SIZES):
    """Return a reference for `small_sites`: mean 1 and spread 1.5 for every column."""
    return {view: {"centre": [1.0] * d, "spread": [1.5] * d} for view, d in sizes.items()}


def fit_privately(sites=None, n_components=2, *, epsilon=20.0, options=None, **parameters):
    """Fit over an in-process federation, the noise's size being of no matter here."""
    parameters = {"reference": small_reference(), **parameters}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        model = FedMvPPCA(n_components, epsilon=epsilon, **parameters)
        return model.fit(federate(sites or small_sites(), **(options or {})))


def reference_of(truth):
    """Centre and spread of every column under the simulated law."""
    moved = SHARE_SHIFTED * truth.shift
    latent = np.eye(len(moved)) + SHARE_SHIFTED * (1 - SHARE_SHIFTED) * np.outer(truth.shift, truth.shift)
    reference = {}
    for view, W in truth.loadings.items():
        variance = np.einsum("dq,qr,dr->d", W, latent, W) + truth.noise_sd[view] ** 2
        reference[view] = {
            "centre": (truth.means[view] + W @ moved).tolist(),
            "spread": np.sqrt(variance).tolist(),
        }
    return reference


@functools.cache
def drawn(n, seed, n_sites=3, n_held_out=1000):
    """Draw centres of n patients (33 columns, five dimensions behind them), and a fit of theirs without noise."""
    labelled = simulate_sd(seed, "mild", n_patients=n * n_sites + n_held_out)
    rows = np.arange(n * n_sites + n_held_out)
    sites = {f"centre-{i}": labelled.data.take(rows[i * n : (i + 1) * n]) for i in range(n_sites)}
    plain = FedMvPPCA(5).fit(federate(sites))
    held_out = labelled.data.take(rows[n * n_sites :])
    return SimpleNamespace(sites=sites, held_out=held_out, reference=reference_of(labelled.truth), plain=plain)


def loadings(model, reference):
    """Loadings in standard deviations of the columns."""
    return np.vstack([model.loadings_[view] / np.array(known["spread"])[:, None] for view, known in reference.items()])


def level(n, epsilon, seed, *, secure_sum=True):
    """Return the private fit's error on held-out patients, its angle to the one without noise, and that foretold."""
    one = drawn(n, seed)
    model = fit_privately(
        one.sites, 5, epsilon=epsilon, reference=one.reference, options={"secure_sum": secure_sum}, delta=DELTA
    )
    angle = np.degrees(subspace_angles(loadings(model, one.reference), loadings(one.plain, one.reference))[0])
    return model.assess(one.held_out)["mae"], angle, model.noise_angle_
