"""Methods of the contract suite.

A method joins with one entry in ``CASES``. A name with a comma is a variant of the method before the comma; the tests
of variants, and of methods that need torch, are marked ``slow``.
"""

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

import multicentre as mc
from multicentre.phenotyping.outcome import PhenotypeFactors, PhenotypeOutcome
from multicentre.survival.fitted_models import CoxModel
from multicentre_papers import baselines, published
from multicentre_papers.baselines.trip import TRIP
from support.boosting_sites import CORRECTED_TEXT
from support.event_sites import simulate_events
from support.toy_method import FedMean, federate, toy_sites

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
        unmasked under one that requests for no minimum.
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
    """Return the arrays of real numbers of a fitted model that are not empty."""
    arrays, _ = fitted._state()
    return {name: value for name, value in arrays.items() if value.dtype.kind == "f" and value.size}


def drawn_phenotypes() -> PhenotypeFactors:
    """Return the phenotypes that the simulated events were drawn from."""
    drawn = simulate_events()
    return PhenotypeFactors(drawn.factors, drawn.tensor.codes, np.linalg.norm(drawn.memberships, axis=0))


def timed_sites() -> dict[str, mc.data.SurvivalData]:
    """Return three sites with times to an event of two causes."""
    return {
        f"site-{i}": mc.datasets.simulate_survival(160 + 10 * i, n_columns=3, random_state=i, competing=True)
        for i in range(3)
    }


def judged_cox() -> CoxModel:
    """Return a model that was fitted to nobody here."""
    times = np.linspace(5.0, 60.0, 12)
    return CoxModel(times, np.array([0.8, -0.4, 0.27]), np.zeros(3), (times / 30) ** 1.3)


def given_model(family: str) -> Any:
    """Return a model that names one column of the sites."""
    return mc.validation.model_from_mapping({"family": family, "intercept": 0.2, "coefficients": {"x1": 0.7}})


def validated_sites(outcome: str = "class") -> dict[str, mc.data.TableData]:
    """Return three sites with two classes, or a number."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(360, 2))
    numbers = X[:, 0] + rng.normal(size=360)
    y = numbers if outcome == "number" else (numbers > 0).astype(int)
    data = mc.data.TableData(X, y, columns=["x1", "x2"], outcome=outcome)
    return {f"site-{i}": data.take(np.arange(i, 360, 3)) for i in range(3)}


def scores_of(fit: Any) -> dict[str, np.ndarray]:
    """Return the scores of an evaluation."""
    benefits = {f"net benefit by {time:g}": found for time, found in fit.net_benefit_.items()}
    observed = {f"observed by {time:g}": found.observed for time, found in fit.calibration_.items()}
    shares = np.array(
        [fit.concordance_, fit.concordance_standard_error_, fit.ibs_, fit.ibs_standard_error_, fit.mean_auc_]
    )
    curves = {"brier": fit.brier_, "reference": fit.brier_reference_, "spread": fit.d_calibration_.counts}
    return {"shares": shares, **curves, **observed, **benefits}


def boosted_sites() -> dict[str, mc.data.SurvivalData]:
    """Return three sites with whole days up to an event."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(270, 3))
    time = np.ceil(20 * rng.exponential(np.exp(-X[:, 0] - np.abs(X[:, 1]))))
    end = np.ceil(rng.uniform(5, 60, 270))
    data = mc.data.SurvivalData(X, np.minimum(time, end), time <= end, unit="days")
    return {f"site-{i}": data.take(np.arange(i, 270, 3)) for i in range(3)}


def labelled_sites() -> dict[str, mc.data.TableData]:
    """Return three sites with patients of three classes."""
    rng = np.random.default_rng(6)
    X = np.round(rng.normal(size=(240, 3)), 1)
    y = (X[:, 0] + rng.normal(size=240) > 0).astype(int) + (X[:, 1] > 0.5)
    data = mc.data.TableData(X, y, classes=["a", "b", "c"])
    return {f"site-{i}": data.take(np.arange(i, 240, 3)) for i in range(3)}


def weighted_classes() -> dict[str, mc.data.TableData]:
    """Return the sites of :func:`labelled_sites` with a column of weights."""
    rng = np.random.default_rng(11)
    return {
        site: mc.data.TableData(
            np.column_stack([data.X[:, :2], rng.integers(1, 6, size=len(data))]),
            data.y,
            columns=["x0", "x1", "weight"],
            classes=data.classes,
        )
        for site, data in labelled_sites().items()
    }


def boosted_numbers(fit: Any) -> dict[str, np.ndarray]:
    """Return votes and curves of a boosted fit."""
    return {"votes": fit.votes_, "curves": curves_of(fit)}


def grouped_sites() -> dict[str, mc.data.MultiViewData]:
    """Return three sites with two views of patients of three groups; some patients lack the second."""
    rng = np.random.default_rng(8)
    group = np.arange(120) % 3
    first = 4 * np.eye(3, 4)[group] + rng.normal(size=(120, 4))
    second = 4 * np.eye(3)[group] + rng.normal(size=(120, 3))
    second[::7] = np.nan
    data = mc.data.MultiViewData({"a": first, "b": second})
    return {f"site-{i}": data.take(np.arange(i, 120, 3)) for i in range(3)}


def one_view_sites() -> dict[str, mc.data.MultiViewData]:
    """Return four sites with a view each of the same patients."""
    rng = np.random.default_rng(11)
    group, ids = np.repeat([0, 1, 2], 12), np.array([f"p{i:02d}" for i in range(36)])
    sites = {}
    for i, d in enumerate((4, 6, 9, 5)):
        rows, order = rng.normal(size=(3, d))[group] + 0.4 * rng.normal(size=(36, d)), rng.permutation(36)
        sites[f"site-{i}"] = mc.data.MultiViewData({f"view-{i}": rows[order]}, ids=ids[order])
    return sites


def factorised_numbers(fit: Any) -> dict[str, np.ndarray]:
    """Return embedding, clusters and weights of a factorisation."""
    weights = np.array(list(fit.view_weights_.values()))
    return {"embedding": fit.embedding_, "labels": fit.labels_.astype(float), "weights": weights}


TABLES_OF_PAIRS = dataclasses.replace(EXACT, relations="dense")


def vertical_sites() -> dict[str, mc.data.MultiViewData]:
    """Return three sites with a view each of the same patients, who are of three groups, in orders of their own."""
    rng = np.random.default_rng(8)
    group = np.repeat(np.arange(3), 14)
    names = np.array([f"p{number}" for number in range(42)])
    sites = {}
    for site in ("lab", "radiology", "ward"):
        rows, own = rng.permutation(42), rng.normal(size=(3, 6))
        view = own[group] + 0.7 * rng.normal(size=(42, 6))
        sites[site] = mc.data.MultiViewData({"view": view[rows]}, ids=names[rows])
    return sites


def clustered_numbers(fit: Any) -> dict[str, np.ndarray]:
    """Return the affinity and the clusters of a fit."""
    return {"affinity": fit.affinity_.toarray(), "labels": fit.labels_.astype(float)}


class TriedStratifier:
    """The choice of a covariate as a fit."""

    def fit(self, federation: Any) -> Any:
        """Choose among the columns."""
        self.found = mc.validation.suggest_stratifier(federation, n_splits=3, n_rounds=3)
        return self


def stratifier_numbers(fit: Any) -> dict[str, np.ndarray]:
    """Return information and predicted bias of every covariate."""
    found = sorted(fit.found.candidates, key=lambda one: one.name)
    return {
        "information": np.array([one.information for one in found]),
        "bias": np.array([[one.predicted_bias, one.lower, one.upper] for one in found]),
    }


def voted_numbers(fit: Any) -> dict[str, np.ndarray]:
    """Return votes and shares of a boosted classifier."""
    return {"votes": fit.votes_, "shares": fit.predict_proba(np.eye(3))}


def curves_of(fit: Any) -> np.ndarray:
    """Return a fit's survival curves of three patients."""
    return fit.predict_survival_function(np.eye(3), return_array=True)


@functools.cache
def fitted_survival() -> list[Any]:
    """Return fits of several methods, made once."""
    survival = mc.survival
    with federate(timed_sites(), policy=EXACT) as federation:
        return [
            made.fit(federation)
            for made in (
                survival.FedHazardBoost(n_estimators=1, n_times=6),
                survival.FedHazardBoost(n_estimators=10, n_times=6),
                survival.FedCox(n_times=12),
            )
        ]


def cox_numbers(fit: Any) -> dict[str, np.ndarray]:
    """Return what a Cox fit found."""
    return {"coefficients": fit.coef_, "errors": fit.standard_errors_, "baseline": fit.model_.baseline}


def split_numbers(outcome: Literal["class", "number"]) -> dict[str, mc.data.TableData]:
    """Return three sites with a class or a number to predict, and gaps."""
    rng = np.random.default_rng(7)
    X = np.round(rng.normal(size=(240, 3)), 1)
    X[rng.random(X.shape) < 0.1] = np.nan
    mean = np.nan_to_num(X[:, 0]) - np.nan_to_num(X[:, 1])
    y = 50 + 9 * mean if outcome == "number" else (mean + rng.normal(size=240) > 0).astype(int)
    data = mc.data.TableData(X, y, outcome=outcome)
    return {f"site-{i}": data.take(np.arange(i, 240, 3)) for i in range(3)}


def measured_sites() -> dict[str, mc.data.TableData]:
    """Return three sites with a noisy number to predict and a column of weights."""
    rng = np.random.default_rng(9)
    X = np.column_stack([rng.normal(size=(240, 2)), rng.integers(1, 6, size=240)])
    y = 50 + 9 * X[:, 0] + 3 * rng.normal(size=240)
    data = mc.data.TableData(X, y, columns=["age", "dose", "weight"], outcome="number")
    return {f"site-{i}": data.take(np.arange(i, 240, 3)) for i in range(3)}


def shifted_sites() -> dict[str, mc.data.TableData]:
    """Return three sites whose outcomes have different means and slopes."""
    sites = {}
    for number, data in enumerate(measured_sites().values()):
        X, y = data.X[:, :2], data.y + 10.0 * number + 3.0 * number * data.X[:, 0]
        sites[f"site-{number}"] = mc.data.TableData(X, y, columns=["age", "dose"], outcome="number")
    return sites


def mixed_numbers(fit: Any) -> dict[str, np.ndarray]:
    """Return coefficients, standard errors and variances of a mixed model."""
    return {**regression_numbers(fit), "variances": fit.random_covariance_}


def counted_sites() -> dict[str, mc.data.TableData]:
    """Return three sites with a count to predict that varies more than under the Poisson law."""
    rng = np.random.default_rng(10)
    X = rng.normal(size=(240, 2))
    y = rng.poisson(np.exp(0.8 + 0.4 * X[:, 0]) * rng.gamma(2.0, 0.5, 240)).astype(np.float64)
    data = mc.data.TableData(X, y, columns=["age", "dose"], outcome="number")
    return {f"site-{i}": data.take(np.arange(i, 240, 3)) for i in range(3)}


def regression_numbers(fit: Any) -> dict[str, np.ndarray]:
    """Return coefficients and standard errors of a regression."""
    return {"coefficients": fit.coef_, "errors": fit.standard_errors_}


CASES = {
    "toy-mean": Case(FedMean, toy_sites, lambda fit: {"mean": fit.mean_}),
    "fed-mv-ppca": Case(lambda: mc.multiview.FedMvPPCA(2, tol=1e-3), two_view_sites, real_arrays),
    "fed-mv-ppca, as published": Case(
        lambda: published.FedMvPPCAAsPublished(2, max_iter=3, n_local_iter=3),
        two_view_sites,
        lambda fit: {**fit.loadings_, "mean": np.concatenate(list(fit.mean_.values()))},
    ),
    "fed-mv-ppca, hierarchical": Case(
        lambda: mc.multiview.FedMvPPCA(2, method="hierarchical", tol=1e-2, n_local_iter=3),
        two_view_sites,
        lambda fit: {"mean": np.concatenate(list(fit.mean_.values())), **fit.noise_variance_},
        masked_error=5e-3,
    ),
    "dpfact": Case(
        lambda: mc.phenotyping.DPFact(3, tol=0.01), lambda: simulate_events().sites(3), real_arrays, policy=EXACT
    ),
    "dpfact, poisson": Case(
        lambda: mc.phenotyping.DPFact(3, solver="poisson", tol=0.03),
        lambda: simulate_events().sites(3),
        real_arrays,
        policy=EXACT,
    ),
    "dpfact, elastic": Case(
        lambda: mc.phenotyping.DPFact(3, solver="easgd", sparsity=0.05, tol=0.03, track_errors=True),
        lambda: simulate_events().sites(3),
        real_arrays,
        policy=EXACT,
    ),
    "dpfact, as published": Case(
        lambda: published.DPFactAsPublished(3, elastic_penalty=5.0, learning_rate=1e-3, max_iter=4),
        lambda: simulate_events().sites(3),
        real_arrays,
        policy=EXACT,
    ),
    "dpfact, three code modes": Case(
        lambda: mc.phenotyping.DPFact(2, init="random", tol=0.05),
        lambda: simulate_events(sizes=(5, 6, 4), rate=3.0).sites(3),
        real_arrays,
        policy=EXACT,
    ),
    "trip": Case(lambda: TRIP(3, max_iter=60, tol=0.02), lambda: simulate_events().sites(3), real_arrays, policy=EXACT),
    "phenotype-outcome": Case(
        lambda: PhenotypeOutcome(drawn_phenotypes(), refit=True),
        lambda: simulate_events().sites(3),
        lambda fit: {**real_arrays(fit), "auc": np.array([fit.auc_, *fit.auc_bounds_])},
        policy=EXACT,
    ),
    "fed-msgl": Case(lambda: mc.clustering.FedMSGL(3), vertical_sites, clustered_numbers, policy=TABLES_OF_PAIRS),
    "fed-msgl, rounds": Case(
        lambda: mc.clustering.FedMSGL(3, max_iter=3),
        vertical_sites,
        clustered_numbers,
        masked_error=1e-4,
        policy=TABLES_OF_PAIRS,
    ),
    "fed-msgl, landmarks": Case(
        lambda: mc.clustering.FedMSGL(3, landmarks=12), vertical_sites, clustered_numbers, policy=TABLES_OF_PAIRS
    ),
    "fed-msgl, as published": Case(
        lambda: published.FedMSGLAsPublished(3, n_rounds=2, n_neighbours=8),
        vertical_sites,
        clustered_numbers,
        policy=TABLES_OF_PAIRS,
    ),
    "fed-mvl": Case(
        lambda: baselines.FedMVL(3, max_iter=5), one_view_sites, factorised_numbers, policy=TABLES_OF_PAIRS
    ),
    "fed-mvfcm": Case(lambda: baselines.FedMVFCM(3, n_init=2), grouped_sites, real_arrays, policy=EXACT),
    "fed-mvfpc": Case(lambda: baselines.FedMVFPC(3, n_init=2, squared=False), grouped_sites, real_arrays, policy=EXACT),
    "kaplan-meier": Case(lambda: mc.survival.KaplanMeier("x2"), timed_sites, real_arrays, policy=EXACT),
    "aalen-johansen": Case(
        lambda: mc.survival.AalenJohansen(),
        timed_sites,
        lambda fit: {"incidence": fit.incidence_, "variance": fit.variance_},
        policy=EXACT,
    ),
    "log-rank": Case(
        lambda: mc.survival.LogRank("x2", stratify_by_site=False),
        timed_sites,
        lambda fit: {"test": np.array([fit.statistic_, fit.p_value_]), "score": fit.score_},
        policy=EXACT,
    ),
    "log-rank, weighted": Case(
        lambda: mc.survival.LogRank("x2", weights="wilcoxon"),
        timed_sites,
        lambda fit: {"test": np.array([fit.statistic_, fit.p_value_]), "score": fit.score_},
        policy=EXACT,
    ),
    "classifier-validation": Case(
        lambda: mc.validation.ClassifierValidation(given_model("binomial"), subgroups="x2", subgroup_limits=[0.0]),
        validated_sites,
        lambda fit: {"scores": fit.to_frame()["value"].to_numpy(), "line": np.array(fit.line())},
        policy=EXACT,
    ),
    "regressor-validation": Case(
        lambda: mc.validation.RegressorValidation(given_model("gaussian")),
        lambda: validated_sites("number"),
        lambda fit: {"scores": fit.to_frame()["value"].to_numpy(), "line": np.array(fit.line())},
        policy=EXACT,
    ),
    "survival-evaluation": Case(
        lambda: mc.survival.SurvivalEvaluation(
            judged_cox(), horizon=20.0, n_bins=2, n_times=2, at=[10.0], n_groups=2, thresholds=[0.4]
        ),
        lambda: {f"site-{i}": mc.datasets.simulate_survival(300 + i, 3, i, censoring=0.5) for i in range(3)},
        scores_of,
        policy=EXACT,
    ),
    "survival-evaluation, within sites": Case(
        lambda: mc.survival.SurvivalEvaluation(
            judged_cox(), concordance="within_sites", scoring=("concordance",), by_site=True
        ),
        timed_sites,
        lambda fit: {"shares": np.array([fit.concordance_, fit.concordance_standard_error_])},
        policy=EXACT,
    ),
    "fed-cox": Case(lambda: mc.survival.FedCox(), timed_sites, cox_numbers, policy=EXACT),
    "fed-cox, grid": Case(
        lambda: mc.survival.FedCox("grid", n_times=32, errors="HC0"), timed_sites, cox_numbers, policy=EXACT
    ),
    "fed-cox, one round": Case(lambda: mc.survival.FedCox(one_round=True), timed_sites, cox_numbers, policy=EXACT),
    "fed-hazard-boost": Case(
        lambda: mc.survival.FedHazardBoost(
            n_estimators=6, n_times=6, max_bins=8, min_child_hessian=2.0, subsample=0.8, early_stopping=True
        ),
        timed_sites,
        lambda fit: {**real_arrays(fit), "curves": curves_of(fit)},
        masked_error=1e-12,
        policy=EXACT,
    ),
    "fed-rsf": Case(
        lambda: mc.survival.FedRSF(n_estimators=8, n_times=6, max_bins=8, min_samples_leaf=10),
        timed_sites,
        lambda fit: {**real_arrays(fit), "curves": curves_of(fit)},
        masked_error=1e-12,
        policy=EXACT,
    ),
    "fed-surv-boost": Case(
        lambda: mc.survival.FedSurvBoost("tree", n_estimators=2, n_splits=2),
        boosted_sites,
        boosted_numbers,
        policy=EXACT,
    ),
    "fed-surv-boost, corrected text": Case(
        lambda: mc.survival.FedSurvBoost("cox", n_estimators=3, **CORRECTED_TEXT),
        boosted_sites,
        boosted_numbers,
        policy=EXACT,
    ),
    "fed-surv-boost, pool": Case(
        lambda: mc.survival.FedSurvBoost(
            "tree", candidates="pool", loss="brier", n_iter_no_change=2, recalibrate=False, n_estimators=4
        ),
        boosted_sites,
        boosted_numbers,
        policy=EXACT,
    ),
    "ada-boost-f": Case(lambda: baselines.AdaBoostF(4), labelled_sites, voted_numbers, policy=EXACT),
    "dist-boost-f": Case(lambda: baselines.DistBoostF(3), labelled_sites, voted_numbers, policy=EXACT),
    "pre-weak-f": Case(lambda: baselines.PreWeakF(4), labelled_sites, voted_numbers, policy=EXACT),
    "fed-surf": Case(
        lambda: baselines.FedSurF(12, n_local_estimators=8, sampling="ibs"),
        timed_sites,
        lambda fit: {"curves": curves_of(fit)},
        policy=EXACT,
    ),
    "local-forests": Case(
        lambda: baselines.LocalForests(4), timed_sites, lambda fit: {"curves": curves_of(fit)}, policy=EXACT
    ),
    "fed-xgb": Case(
        lambda: mc.boosting.FedXGBClassifier(2, max_depth=3, max_bins=16),
        lambda: split_numbers("class"),
        real_arrays,
        masked_error=0.0,
        policy=EXACT,
    ),
    "fed-xgb, classes": Case(
        lambda: mc.boosting.FedXGBClassifier(2, max_depth=2, max_bins=16),
        labelled_sites,
        real_arrays,
        masked_error=0.0,
        policy=EXACT,
    ),
    "fed-xgb, numbers": Case(
        lambda: mc.boosting.FedXGBRegressor(2, max_depth=3, max_bins=16),
        lambda: split_numbers("number"),
        real_arrays,
        masked_error=0.0,
        policy=EXACT,
    ),
    "describe": Case(
        lambda: mc.analytics.Describe(by="outcome", histograms=True, correlations=True),
        labelled_sites,
        real_arrays,
        policy=EXACT,
    ),
    "fed-glm": Case(
        lambda: mc.regression.FedLogisticRegression(missing="indicator"),
        lambda: split_numbers("class"),
        regression_numbers,
        policy=EXACT,
    ),
    "fed-glm, formula": Case(
        lambda: mc.regression.FedLinearRegression(formula="ns(x0, df=3) + power(x1, 2) + x0:x2"),
        lambda: split_numbers("number"),
        regression_numbers,
        policy=EXACT,
    ),
    "fed-glm-cv": Case(
        lambda: mc.regression.FedGLMCV("binomial", l1_ratio=0.5, alphas=3, cv=2, missing="indicator"),
        lambda: split_numbers("class"),
        lambda fit: {"coefficients": fit.coef_, "deviances": fit.fold_deviance_},
        policy=EXACT,
    ),
    "fed-glm-cv, numbers": Case(
        lambda: mc.regression.FedGLMCV(alphas=3, cv=2),
        lambda: split_numbers("number"),
        lambda fit: {"coefficients": fit.coef_, "deviances": fit.fold_deviance_},
        policy=EXACT,
    ),
    "fed-glm, numbers": Case(
        lambda: mc.regression.FedLinearRegression(weights="weight", errors="HC1"),
        measured_sites,
        regression_numbers,
        policy=EXACT,
    ),
    "fed-glm, sites": Case(
        lambda: mc.regression.FedLogisticRegression(missing="mean", site_effects="fixed"),
        lambda: split_numbers("class"),
        regression_numbers,
        policy=EXACT,
    ),
    "fed-linear-mixed-model": Case(
        lambda: mc.regression.FedLinearMixedModel(["age"]),
        shifted_sites,
        mixed_numbers,
        masked_error=1e-5,  # variances of about 100
        policy=EXACT,
    ),
    "fed-linear-mixed-model, formula": Case(
        lambda: mc.regression.FedLinearMixedModel(["age"], formula="age + power(age, 2)"),
        shifted_sites,
        mixed_numbers,
        masked_error=1e-5,  # variances of about 100
        policy=EXACT,
    ),
    "fed-glmm, formula": Case(
        lambda: mc.regression.FedGLMM(formula="ns(x0, df=3) + x1:x2"),
        lambda: split_numbers("class"),
        mixed_numbers,
        masked_error=1e-5,
        policy=EXACT,
    ),
    "fed-glmm, classes": Case(
        lambda: mc.regression.FedGLMM(missing="indicator"),
        lambda: split_numbers("class"),
        mixed_numbers,
        masked_error=1e-5,
        policy=EXACT,
    ),
    "fed-glm, counts": Case(
        lambda: mc.regression.FedGLM("negative_binomial"),
        counted_sites,
        lambda fit: {**regression_numbers(fit), "overdispersion": np.array(fit.overdispersion_)},
        policy=EXACT,
    ),
    "fed-multinomial-regression": Case(
        lambda: mc.regression.FedMultinomialRegression(missing="mean"),
        labelled_sites,
        regression_numbers,
        policy=EXACT,
    ),
    "fed-multinomial-regression, formula": Case(
        lambda: mc.regression.FedMultinomialRegression(formula="ns(x0, df=3)"),
        labelled_sites,
        regression_numbers,
        policy=EXACT,
    ),
    "fed-ordinal-regression, formula": Case(
        lambda: mc.regression.FedOrdinalRegression(formula="bs(x0, df=4)", missing="mean"),
        labelled_sites,
        regression_numbers,
        policy=EXACT,
    ),
    "fed-ordinal-regression, weights": Case(
        lambda: mc.regression.FedOrdinalRegression(weights="weight", weight_type="probability", errors="HC1"),
        weighted_classes,
        regression_numbers,
        policy=EXACT,
    ),
    "fed-ordinal-regression": Case(
        lambda: mc.regression.FedOrdinalRegression(missing="indicator"),
        labelled_sites,
        regression_numbers,
        policy=EXACT,
    ),
    "fed-xgb, weights": Case(
        lambda: mc.boosting.FedXGBRegressor(2, max_depth=2, max_bins=16, sample_weight="weight", subsample=0.9),
        measured_sites,
        real_arrays,
        masked_error=0.0,
        policy=EXACT,
    ),
    "fed-mixed-cox, gamma": Case(
        lambda: mc.survival.FedMixedCox(n_times=12),
        timed_sites,
        lambda fit: {**regression_numbers(fit), "variance": np.array([fit.variance_])},
        masked_error=1e-5,
        policy=EXACT,
    ),
    "fed-mixed-cox, fixed": Case(
        lambda: mc.survival.FedMixedCox("fixed", n_times=12), timed_sites, regression_numbers, policy=EXACT
    ),
    "suggest-stratifier": Case(TriedStratifier, labelled_sites, stratifier_numbers, policy=EXACT),
    "fed-stack": Case(
        lambda: mc.survival.FedStack(fitted_survival(), weights="brier"),
        timed_sites,
        lambda fit: {"weights": fit.weights_, "brier": fit.brier_},
        policy=EXACT,
    ),
}
NEED_TORCH = {"fed-deep-surv"}
if importlib.util.find_spec("torch"):
    CASES["fed-deep-surv"] = Case(
        lambda: baselines.FedDeepSurv(hidden_layer_sizes=(4,), max_iter=3, n_times=8),
        timed_sites,
        lambda fit: {"curves": curves_of(fit), "parameters": fit.model_.parameters},
        policy=EXACT,
    )


CLUSTERS = {name for name in CASES if name.startswith(("fed-msgl", "fed-mvl", "fed-mvfcm", "fed-mvfpc"))}
PREDICTS_NOTHING = CLUSTERS | {
    "suggest-stratifier",
    "describe",
    "toy-mean",
    "kaplan-meier",
    "aalen-johansen",
    "log-rank",
    "log-rank, weighted",
    "classifier-validation",
    "regressor-validation",
    "survival-evaluation",
    "survival-evaluation, within sites",
}


# Methods that exist to be compared with.
COMPARED = {"trip", "fed-mvl", "fed-mvfcm", "fed-mvfpc", "ada-boost-f", "dist-boost-f", "pre-weak-f", "local-forests"}


def each_of(names: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrise a test by the names of cases; variants, compared methods and those that need torch are dealt out."""
    apart = NEED_TORCH | COMPARED
    marks = pytest.mark.slow, pytest.mark.dealt(3)
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=marks) if "," in name or name in apart else name for name in names]
    )


each_case = each_of(CASES)
