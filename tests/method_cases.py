"""The methods that the contract suite runs: a method joins by one line in CASES."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import multicentre as mc
from event_sites import simulate_events
from multicentre.phenotyping.prediction import PhenotypeFactors, PhenotypeOutcome
from multicentre.phenotyping.trip import TRIP
from toy_method import FedMean, toy_sites

EXACT = mc.Policy(min_patients=0)


@dataclass(frozen=True)
class Case:
    """One method on small data.

    Parameters
    ----------
    make : callable
        Returns an unfitted estimator with ``fit(federation)``; small and seeded.
    sites : callable
        Returns data by site, at least three sites, each with 10 patients or more.
    numbers : callable
        From the fitted estimator to the arrays that must agree between engines.
    masked_error : float
        By how much masked sums may change the numbers (absolute).
    loses_sites : bool
        The method goes on when a site is lost.
    policy : Policy, optional
        The sites' policy. Methods that join what rests on few patients, unless it is masked, give the same numbers in
        clear under one that asks for no minimum.
    """

    make: Callable[[], Any]
    sites: Callable[[], Mapping[str, Any]]
    numbers: Callable[[Any], Mapping[str, np.ndarray]]
    masked_error: float = 1e-6
    loses_sites: bool = True
    policy: mc.Policy | None = None


def two_view_sites() -> dict[str, mc.data.MultiViewData]:
    """Return three sites that share two latent dimensions behind two views."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(7, 2))
    rows = [rng.normal(size=(30 + i, 2)) @ loadings.T + 0.3 * rng.normal(size=(30 + i, 7)) + i for i in range(3)]
    return {f"site-{i}": mc.data.MultiViewData({"a": x[:, :3], "b": x[:, 3:]}) for i, x in enumerate(rows)}


def real_arrays(fitted: Any) -> dict[str, np.ndarray]:
    """Return the arrays of real numbers of a fitted model."""
    arrays, _ = fitted._state()
    return {name: value for name, value in arrays.items() if value.dtype.kind == "f"}


def drawn_phenotypes() -> PhenotypeFactors:
    """Return the phenotypes that the simulated events were drawn from."""
    drawn = simulate_events()
    return PhenotypeFactors(drawn.factors, drawn.tensor.codes, np.linalg.norm(drawn.memberships, axis=0))


def timed_sites() -> dict[str, mc.data.SurvivalData]:
    """Return three sites with times to an event of two causes."""
    return {
        f"site-{i}": mc.datasets.simulate_survival(160 + 10 * i, n_columns=3, seed=i, competing=True) for i in range(3)
    }


CASES = {
    "toy-mean": Case(FedMean, toy_sites, lambda fit: {"mean": fit.mean_}),
    "fed-mv-ppca": Case(lambda: mc.multiview.FedMvPPCA(2, tol=1e-3), two_view_sites, real_arrays),
    "fed-mv-ppca, paper": Case(
        lambda: mc.multiview.FedMvPPCA(2, method="paper", max_rounds=3, n_local_iterations=3),
        two_view_sites,
        lambda fit: {**fit.loadings_, "mean": np.concatenate(list(fit.mean_.values()))},
    ),
    "fed-mv-ppca, hierarchical": Case(
        lambda: mc.multiview.FedMvPPCA(2, method="hierarchical", tol=1e-2, n_local_iterations=3),
        two_view_sites,
        lambda fit: {"mean": np.concatenate(list(fit.mean_.values())), **fit.noise_variance_},
        masked_error=5e-3,
    ),
    "dpfact": Case(lambda: mc.phenotyping.DPFact(3, tol=0.01), lambda: simulate_events().sites(3), real_arrays),
    "dpfact, poisson": Case(
        lambda: mc.phenotyping.DPFact(3, solver="poisson", tol=0.03), lambda: simulate_events().sites(3), real_arrays
    ),
    "dpfact, elastic": Case(
        lambda: mc.phenotyping.DPFact(3, solver="easgd", sparsity=0.05, tol=0.03, track_errors=True),
        lambda: simulate_events().sites(3),
        real_arrays,
    ),
    "dpfact, observed": Case(
        lambda: mc.phenotyping.DPFact(3, solver="observed", pull=5.0, learning_rate=1e-3, max_rounds=4),
        lambda: simulate_events().sites(3),
        real_arrays,
    ),
    "dpfact, three code modes": Case(
        lambda: mc.phenotyping.DPFact(2, init="random", tol=0.05),
        lambda: simulate_events(sizes=(5, 6, 4), rate=3.0).sites(3),
        real_arrays,
    ),
    "trip": Case(lambda: TRIP(3, max_rounds=60, tol=0.02), lambda: simulate_events().sites(3), real_arrays),
    "phenotype-outcome": Case(
        lambda: PhenotypeOutcome(drawn_phenotypes(), refit=True),
        lambda: simulate_events().sites(3),
        lambda fit: {**real_arrays(fit), "auc": np.array([fit.auc_, *fit.auc_bounds_])},
    ),
    "kaplan-meier": Case(lambda: mc.analytics.KaplanMeier("x2"), timed_sites, real_arrays, policy=EXACT),
    "aalen-johansen": Case(
        lambda: mc.analytics.AalenJohansen(),
        timed_sites,
        lambda fit: {"incidence": fit.incidence_, "variance": fit.variance_},
        policy=EXACT,
    ),
    "log-rank": Case(
        lambda: mc.analytics.LogRank("x2"),
        timed_sites,
        lambda fit: {"test": np.array([fit.statistic_, fit.p_value_]), "score": fit.score_},
        policy=EXACT,
    ),
    "log-rank, by site": Case(
        lambda: mc.analytics.LogRank("x2", stratify_by_site=True, weights="wilcoxon"),
        timed_sites,
        lambda fit: {"test": np.array([fit.statistic_, fit.p_value_]), "score": fit.score_},
        policy=EXACT,
    ),
}
