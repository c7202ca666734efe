"""Survival data for tests: simulated patients, shared out between sites in several ways."""

import numpy as np

import multicentre as mc
from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.rounds import Needs, agree
from multicentre.survival.agreement.site import SurvivalPart

EXACT = mc.Policy(min_patients=0)


class ProbePart(SurvivalPart):
    """A site part that only agrees."""

    method = "probe"


def draw_patients(n=300, *, seed=0, causes=1):
    """Return patients with a normal, a binary and a skewed column; hazards depend on the first two."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(50.0, 8.0, n), rng.integers(0, 2, n), rng.lognormal(1.0, 1.0, n)])
    risk = 0.06 * (X[:, 0] - 50.0) + 0.7 * X[:, 1]
    time, censoring = rng.exponential(30.0 * np.exp(-risk)), rng.exponential(50.0, n)
    event = np.where(time <= censoring, rng.integers(1, causes + 1, n), 0)
    return SurvivalData(X, np.minimum(time, censoring), event, columns=["age", "sex", "marker"], unit="months")


def shared_out(data, n_sites=4, *, by="chance", seed=1):
    """Return the patients by site: by chance, or in order of their times."""
    order = np.argsort(data.time) if by == "time" else np.random.default_rng(seed).permutation(len(data))
    return {f"site-{place}": data.take(rows) for place, rows in enumerate(np.array_split(order, n_sites))}


def agreed_on(sites, needs=None, **options):
    """Return what sites agree on, the federation of the fit, and a part at every site."""
    federation = mc.Federation.in_process(sites, **options).begin(ProbePart)
    return agree(federation, ProbePart, needs or Needs(n_bins=64), "mean")[0], federation
