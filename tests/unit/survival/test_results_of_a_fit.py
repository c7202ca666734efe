"""Results of survival methods: summaries, frames, errors before a fit, and checked options of predictions."""

import functools
import importlib
import re

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import multicentre as mc
from multicentre.data.missing.values import TabularPart
from multicentre.errors import ConfigurationError
from multicentre.survival import (
    AalenJohansen,
    FedCox,
    FedHazardBoost,
    FedRSF,
    FedStack,
    FedSurvBoost,
    KaplanMeier,
    LogRank,
    SurvivalEvaluation,
)
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.learners.tree import TreeSettings
from multicentre_papers.baselines import FedDeepSurv, FedSurF

SITES = {
    name: mc.datasets.simulate_survival(150, 3, seed, competing=True) for seed, name in enumerate(["lyon", "oslo"])
}
NEW = mc.datasets.simulate_survival(50, 3, 7)
FITS = {
    "cox": lambda: FedCox(),
    "rsf": lambda: FedRSF(4, n_times=8),
    "hazard": lambda: FedHazardBoost(10, n_times=6),
    "surf": lambda: FedSurF(6, n_local_estimators=6),
    "boost": lambda: FedSurvBoost("cox", n_estimators=3, recalibrate=False),
    "km": lambda: KaplanMeier("x2"),
    "aj": lambda: AalenJohansen("x2"),
    "log-rank": lambda: LogRank("x2"),
    "log-rank on a grid": lambda: LogRank("x2", stratify_by_site=False),
}


@functools.cache
def fitted(name):
    with mc.Federation.in_process(SITES, policy=mc.Policy(min_patients=0)) as federation:
        return FITS[name]().fit(federation)


@functools.cache
def evaluated():
    with mc.Federation.in_process(SITES, policy=mc.Policy(min_patients=0)) as federation:
        return SurvivalEvaluation(fitted("cox")).fit(federation)


@pytest.mark.parametrize("name", ["cox", "rsf", "boost"])
def test_an_unknown_kind_of_time_is_refused(name):
    with pytest.raises(ConfigurationError, match=r"kind must be one of 'median', 'restricted_mean'.*; got 'mean'"):
        fitted(name).predict_time(NEW, kind="mean")


@pytest.mark.parametrize("make", [lambda: FedCox("grid", horizon=1e5), lambda: KaplanMeier(horizon=1e5)])
def test_a_horizon_beyond_all_follow_up_is_warned_of(make):
    with (
        mc.Federation.in_process(SITES) as federation,
        pytest.warns(
            UserWarning, match="horizon must be at most the last follow-up of all sites, about .*; got 100000"
        ),
    ):
        make().fit(federation)


@pytest.mark.parametrize("make", [FedCox, FedRSF, FedSurF, FedHazardBoost, FedSurvBoost, FedDeepSurv, KaplanMeier])
def test_a_handling_of_missing_values_that_the_method_lacks_is_refused_before_the_first_call(make):
    with (
        mc.Federation.in_process(SITES) as federation,
        pytest.raises(ConfigurationError, match=r"missing must be .*'complete'.*; got 'native'"),
    ):
        make(missing="native").fit(federation)
    assert not any(ledger.entries for ledger in federation.ledgers.values())


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: AalenJohansen(causes=(1.5, 2.0)), "causes"),
        (lambda: AalenJohansen(causes=(1, 1)), "causes"),
        (lambda: AalenJohansen(causes=()), "causes"),
        (lambda: KaplanMeier("x2", levels=["0", "1"]), "levels"),
        (lambda: KaplanMeier(times="all"), "times"),
        (lambda: FedCox(cause=128), "cause"),
        (lambda: FedStack([FedCox()], weights="best"), "weights"),
    ],
)
def test_nonsense_is_refused_before_the_first_call(make, name):
    with mc.Federation.in_process(SITES) as federation, pytest.raises(ConfigurationError, match=f"{name} must be"):
        make().fit(federation)
    assert not any(ledger.entries for ledger in federation.ledgers.values())


@pytest.mark.parametrize(
    ("make", "method", "arguments"),
    [
        (KaplanMeier, "survival_at", ([1.0],)),
        (KaplanMeier, "numbers_at_risk", ([1.0],)),
        (KaplanMeier, "restricted_mean", ()),
        (KaplanMeier, "rmst_difference", ("0", "1")),
        (KaplanMeier, "assess", (NEW,)),
        (AalenJohansen, "incidence_at", ([1.0],)),
        (AalenJohansen, "assess", (NEW,)),
        (SurvivalEvaluation, "assess", (NEW,)),
        (FedHazardBoost, "effect_over_time", ("x0",)),
        *((make, "predict", (NEW,)) for make in (FedCox, FedRSF, FedSurF, FedStack, FedSurvBoost, FedDeepSurv)),
        *(
            (make, method, arguments)
            for make in (FedCox, FedRSF, FedHazardBoost, KaplanMeier, AalenJohansen, LogRank, SurvivalEvaluation)
            for method, arguments in {"to_frame": (), "summary": (), "figures": ({}, {})}.items()
        ),
        *((make, "to_frame", ()) for make in (FedSurF, FedStack, FedSurvBoost, FedDeepSurv)),
    ],
)
def test_what_needs_a_fit_says_so(make, method, arguments):
    with pytest.raises(NotFittedError):
        getattr(make(), method)(*arguments)


def test_summaries_of_curves_state_sizes_and_the_estimate_with_its_interval():
    km, aj = fitted("km").summary(), fitted("aj").summary()
    assert list(km) == ["patients", "events", "median", "lower", "upper"]
    assert km["patients"].to_dict() == fitted("km").n_patients_
    assert km.loc["1", "median"] == fitted("km").median_["1"].value
    assert ((km["lower"] < km["median"]) & (km["median"] < km["upper"])).all()
    assert list(aj) == ["patients", "events", "time", "incidence", "lower", "upper"]
    assert aj.index.tolist() == [("0", 1), ("0", 2), ("1", 1), ("1", 2)]
    assert aj["incidence"].tolist() == fitted("aj").incidence_[:, :, -1].ravel().tolist()


@pytest.mark.parametrize("name", ["log-rank", "log-rank on a grid"])
def test_the_summary_of_a_test_is_its_statistic_and_p_value(name):
    values = fitted(name).summary()["value"]
    assert values["statistic"] == fitted(name).statistic_
    assert values["p-value"] == fitted(name).p_value_
    assert values["events"] == fitted(name).observed_.sum()
    assert values["patients"] == 300


@pytest.mark.parametrize("name", ["rsf", "hazard", "surf", "boost"])
def test_summaries_of_models_use_the_same_labels(name):
    values = fitted(name).summary()["value"]
    assert values["patients"] == 300
    assert values["events"] == round(fitted(name).agreed_.n_events)
    assert {"rsf": "trees", "hazard": "trees", "surf": "trees", "boost": "hypotheses"}[name] in values


@pytest.mark.parametrize("name", ["rsf", "hazard"])
def test_importances_are_a_frame_and_lead_the_summary(name):
    model = fitted(name)
    frame, values = model.to_frame(), model.summary()["value"]
    assert len(model.feature_importances_) == model.n_features_in_ == len(frame)
    assert frame["importance"].is_monotonic_decreasing
    assert values[f"importance of {frame.loc[0, 'feature']}"] == frame.loc[0, "importance"]
    rest = getattr(model, "time_importance_", 0.0)
    assert model.feature_importances_.sum() + rest == pytest.approx(1.0)


def test_scores_come_with_standard_errors():
    evaluation = evaluated()
    frame = evaluation.to_frame()
    assert list(frame) == ["value", "standard_error", "lower", "upper"]
    assert frame.loc["concordance", "standard_error"] == evaluation.concordance_standard_error_
    assert frame.loc["integrated Brier score", "standard_error"] == evaluation.ibs_standard_error_
    assert isinstance(evaluation.n_events_, int)
    assert f"{evaluation.n_events_} events" in str(evaluation)
    table = next(iter(evaluation.calibration_.values())).to_frame()
    assert list(table) == ["patients", "predicted", "observed", "lower", "upper"]
    assert table["patients"].sum() == 300


@pytest.mark.parametrize("name", FITS)
def test_limits_of_intervals_have_one_name_in_every_frame(name):
    for frame in (fitted(name).to_frame(), fitted(name).summary()):
        assert not {"low", "high", "from", "to", "min", "max"} & set(frame.columns)
        assert ("lower" in frame) == ("upper" in frame)


def test_sizes_of_a_cox_model_are_whole_numbers():
    model = fitted("cox")
    assert isinstance(model.n_patients_, int)
    assert isinstance(model.n_events_, int)
    assert f"{model.n_patients_} patients, {model.n_events_} events" in str(model)


@pytest.mark.parametrize(
    ("value", "number"),
    [("sqrt", 3), ("log2", 3), (None, 10), (4, 4), (np.int64(4), 4), (40, 10), (0.35, 3), (1.0, 10)],
)
def test_columns_tried_at_a_node_are_chosen_as_in_scikit_learn(value, number):
    assert TreeSettings(max_features=value).number_of_columns(10) == number


@pytest.mark.parametrize("value", [0, 0.0, 1.5, "third", True])
def test_other_numbers_of_columns_are_refused(value):
    with pytest.raises(ConfigurationError, match="max_features must be"):
        TreeSettings(max_features=value)


@pytest.mark.parametrize(
    "module",
    [
        *(f"multicentre.survival.{name}.site" for name in ("cox", "evaluation", "hazard_boost", "rsf", "stack")),
        "multicentre.survival.surv_boost.site",
        "multicentre.survival.curves.tables.site",
        *(f"multicentre_papers.baselines.{name}.site" for name in ("deep_surv", "surf")),
    ],
)
def test_a_site_module_lists_the_steps_that_its_part_inherits(module):
    text = importlib.import_module(module).__doc__
    listed = re.search(r"Steps also inherited: (.*?)\. Of these", text, re.DOTALL)[1]
    own, gaps = listed.split(";")
    assert set(re.findall("``(\\w+)``", gaps)) == set(TabularPart.steps())
    assert set(re.findall("``(\\w+)``", own)) == set(SurvivalPart.steps()) - set(TabularPart.steps())
