"""Offset, weights and clusters of the Cox models: what they mean, with every baseline, and what sites refuse."""

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.data.missing.values import Handling
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, LeftOutWarning, SchemaMismatch
from multicentre.survival import FedCox, FedMixedCox, FedStack, SurvivalEvaluation
from multicentre.survival.agreement.messages import NamedColumns, OfCause
from multicentre.survival.cox.site import CoxSite

N, N_SITES = 600, 3
OPEN = mc.Policy(min_patients=0, exact_times=True)
FITS = {
    "stratified": lambda **options: FedCox(**options),
    "breslow": lambda **options: FedCox(ties="breslow", **options),
    "grid": lambda **options: FedCox("grid", n_times=30, **options),
    "exact": lambda **options: FedCox("exact", **options),
    "one round": lambda **options: FedCox(one_round=True, **options),
    "gamma effects": lambda **options: FedMixedCox(n_times=20, **options),
    "gaussian effects": lambda **options: FedMixedCox("gaussian", n_times=20, **options),
    "fixed effects": lambda **options: FedMixedCox("fixed", n_times=20, **options),
}
ALL = {"offset": "o", "weights": "w", "weight_type": "probability", "errors": "cluster", "cluster": "ward"}


def draw(seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"age": rng.normal(size=N), "dose": rng.normal(size=N), "o": rng.normal(0, 0.4, N)})
    site = np.arange(N) % N_SITES
    predictor = 0.5 * table["age"] - 0.3 * table["dose"] + table["o"] + 0.5 * np.sin(3.0 * site)
    time, end = rng.exponential(10 * np.exp(-predictor)), rng.exponential(20, N)
    table = table.assign(w=rng.integers(1, 4, N), ward=rng.integers(0, 12, N))
    return table.assign(time=np.ceil(2 * np.minimum(time, end)), event=(time <= end).astype(int))


def data_of(table):
    return mc.data.SurvivalData.from_frame(table.astype(float), time="time", event="event")


def federate(table, **terms):
    data = data_of(table)
    site = table.index.to_numpy() % N_SITES
    sites = {f"s{i}": data.take(np.flatnonzero(site == i)) for i in range(N_SITES)}
    terms.setdefault("secure_sum", False)
    terms.setdefault("policy", OPEN)
    return mc.Federation.in_process(sites, **terms)


def plain(table, *others):
    return table[["age", "dose", *others, "time", "event"]]


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("name", FITS)
def test_an_offset_moves_the_coefficient_of_its_column_and_no_prediction(name, masked):
    """An offset of 0.3 times a covariate takes 0.3 from its coefficient, and leaves likelihood and predictions."""
    table = draw().assign(o=lambda frame: 0.3 * frame["age"])
    tolerance = {"rel": 1e-4 if masked else 1e-6, "abs": 1e-4 if masked else 1e-6}
    with_offset = FITS[name](offset="o").fit(federate(plain(table, "o"), secure_sum=masked))
    without = FITS[name]().fit(federate(plain(table), secure_sum=masked))
    if name == "one round":  # starts elsewhere
        tolerance = {"rel": 1e-2, "abs": 1e-2}
    assert with_offset.feature_names_in_ == ("age", "dose")
    assert with_offset.coef_ == pytest.approx(without.coef_ - [0.3, 0.0], **tolerance)
    assert with_offset.standard_errors_ == pytest.approx(without.standard_errors_, **tolerance)
    assert with_offset.log_likelihood_ == pytest.approx(without.log_likelihood_, **tolerance)
    assert with_offset.predict_time(table, "restricted_mean") == pytest.approx(
        without.predict_time(table, "restricted_mean"), rel=1e-2 if name == "one round" else 1e-3
    )


@pytest.mark.parametrize("times", ["stratified", "exact"])
@pytest.mark.parametrize(
    "options", [{"errors": "HC0"}, {"alpha": 5.0}, {"missing": "mean"}, {"errors": "cluster", "cluster": "ward"}]
)
def test_frequency_weights_are_numbers_of_patients(times, options):
    """With Breslow's ties, which do not depend on the number of tied rows."""
    table = draw()
    table["w"] = np.random.default_rng(1).integers(0, 4, N)
    if "missing" in options:
        table.loc[::7, "dose"] = np.nan
    others = ["ward"] if "cluster" in options else []
    repeated = plain(table, *others).loc[table.index.repeat(table["w"])]
    model = FedCox(times, ties="breslow", weights="w", **options).fit(federate(plain(table, "w", *others)))
    expected = FedCox(times, ties="breslow", **options).fit(federate(repeated))
    assert model.coef_ == pytest.approx(expected.coef_, abs=1e-8)
    assert model.standard_errors_ == pytest.approx(expected.standard_errors_, rel=1e-7)
    assert model.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-9)
    assert model.n_patients_ == N
    assert model.predict_survival_function(table[:5], return_array=True)[:, 0] == pytest.approx(
        expected.predict_survival_function(table[:5], return_array=True)[:, 0], abs=0.05
    )


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_a_grid_is_the_fit_of_one_site_to_times_of_the_grid(ties):
    table = draw()
    options = {**ALL, "ties": ties}
    model = FedCox("grid", n_times=20, **options).fit(federate(table, secure_sum=True))
    places = np.searchsorted(model.times_, table["time"])
    moved = table.assign(
        time=model.times_[np.minimum(places, len(model.times_) - 1)],
        event=table["event"] * (places < len(model.times_)),
    )
    moved["ward"] += 100 * (moved.index % N_SITES)
    pooled = FedCox(**options).fit(mc.Federation.in_process({"all": data_of(moved)}, policy=OPEN))
    assert model.coef_ == pytest.approx(pooled.coef_, abs=1e-5)
    assert model.standard_errors_ == pytest.approx(pooled.standard_errors_, rel=1e-4)


def test_a_formula_with_its_offset_weights_and_clusters_is_the_fit_to_columns():
    table = draw()
    named = {key: ALL[key] for key in ("weights", "weight_type", "errors", "cluster")}
    log = np.log(np.exp(table["o"]))
    model = FedCox(formula="age + dose + offset(log(rate))", **named).fit(
        federate(table.drop(columns="o").assign(rate=np.exp(table["o"])))
    )
    expected = FedCox(**ALL).fit(federate(table.assign(o=log)))
    assert model.coef_ == pytest.approx(expected.coef_, rel=1e-8)
    assert model.standard_errors_ == pytest.approx(expected.standard_errors_, rel=1e-8)
    new = draw(1)[:20]
    rates = new[["age", "dose"]].assign(rate=np.exp(new["o"]))  # no weights, no clusters
    assert model.predict(rates) == pytest.approx(expected.predict(new[["age", "dose", "o"]]), rel=1e-8)


@pytest.mark.parametrize("formula", [None, "age + dose"])
@pytest.mark.parametrize("missing", ["complete", "mean"])
def test_evaluations_and_saved_models_need_only_covariates_and_offset(formula, missing, tmp_path):
    table = draw()
    if missing == "mean":
        table.loc[::7, "dose"] = np.nan
    federation = federate(table)
    model = FedCox("grid", formula=formula, missing=missing, **ALL).fit(federation)
    other = federate(plain(table, "o"))
    values = [SurvivalEvaluation(model).fit(sites).to_frame()["value"].to_numpy() for sites in (federation, other)]
    assert values[0] == pytest.approx(values[1], rel=1e-12, nan_ok=True)
    assert SurvivalEvaluation(model).fit(other).concordance_ == pytest.approx(model.score(data_of(table)), abs=2e-3)
    model.save(tmp_path / "model")
    loaded = FedCox.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(table), model.predict(plain(table, "o")))
    with pytest.raises(ConfigurationError, match="columns of the data; got FedCox with a formula, an offset"):
        FedStack([model, model]).fit(federation)


def test_a_site_of_its_own_has_robust_errors_too():
    table = draw()
    estimates = FedCox(**ALL).fit(federate(table)).by_site()
    alone = FedCox(**ALL).fit(mc.Federation.in_process({"s1": data_of(table[1::3])}, policy=OPEN))
    assert estimates.coefficients[1] == pytest.approx(alone.coef_, rel=1e-6)
    assert estimates.standard_errors[1] == pytest.approx(alone.standard_errors_, rel=1e-6)


def test_a_lost_site_leaves_no_trace():
    table = draw()
    faults = Faults(lose={"s2": "sum_derivatives"})
    with pytest.warns(LeftOutWarning):
        model = FedCox(**ALL).fit(federate(table, secure_sum=True, quorum=2, faults=faults))
    data = data_of(table)
    rest = {f"s{i}": data.take(np.arange(i, N, N_SITES)) for i in (0, 1)}
    alone = FedCox(**ALL).fit(mc.Federation.in_process(rest, policy=OPEN))
    assert model.coef_ == pytest.approx(alone.coef_, rel=1e-6)
    assert model.standard_errors_ == pytest.approx(alone.standard_errors_, rel=1e-6)


def test_results_name_the_weights_and_the_clusters():
    text = FedCox(**ALL).fit(federate(draw())).describe_model()
    for phrase in ("offset o", "probability weights w", "robust standard errors, clustered by ward"):
        assert phrase in text


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("times", ["stratified", "grid"])
def test_weights_that_leave_few_patients_refuse_every_sum(times, secure):
    """A column as weights would otherwise select the patients in whom it is not 0."""
    table = draw().assign(w=lambda frame: (frame.index < 9).astype(float))
    with pytest.raises(DisclosureRefused):
        FedCox(times, weights="w").fit(federate(plain(table, "w"), secure_sum=secure, policy=mc.Policy()))
    heavy = draw().assign(w=lambda frame: np.where(frame.index == 0, 1e4, 1.0))
    with pytest.raises(DisclosureRefused):
        FedCox(times, weights="w").fit(federate(plain(heavy, "w"), secure_sum=secure, policy=mc.Policy()))


def test_columns_are_named_once_and_before_the_first_sum():
    """Weights that change between two sums would show the patients whose weight changes."""
    session = federate(draw(), secure_sum=True).begin(CoxSite)
    session.sum(CoxSite.count_gaps, Handling("complete", ("age", "dose", "o", "w", "ward")))
    session.ask(CoxSite.set_aside, NamedColumns("", "w", "", True))
    session.ask(CoxSite.set_aside, NamedColumns("", "w", "", True))
    with pytest.raises(ConfigurationError, match="named once, before the first sum"):
        session.ask(CoxSite.set_aside, NamedColumns("", "o", "", True))
    session = federate(draw(), secure_sum=True).begin(CoxSite)
    session.sum(CoxSite.count_gaps, Handling("complete", ("age", "dose", "o", "w", "ward")))
    session.sum(CoxSite.sum_sizes, OfCause(1))
    with pytest.raises(ConfigurationError, match="named once, before the first sum"):
        session.ask(CoxSite.set_aside, NamedColumns("", "w", "", True))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"offset": "absent"}, SchemaMismatch, "must be columns; got absent"),
        ({"weights": "age"}, DataError, "weights must be at least 0"),
        ({"offset": "gap", "missing": "mean"}, DataError, "must be complete"),
        ({"weights": "w", "offset": "w"}, ConfigurationError, "must be different columns"),
        ({"cluster": "ward"}, ConfigurationError, "cluster must name a column with errors"),
        ({"errors": "cluster"}, ConfigurationError, "cluster must name a column with errors"),
        ({"errors": "HC1"}, ConfigurationError, "errors must be"),
        ({"weights": "w", "weight_type": "probability"}, ConfigurationError, "must be robust"),
        ({"weight_type": "probability"}, ConfigurationError, "weights"),
        ({"formula": "age + o", "offset": "o"}, ConfigurationError, "must not be in the formula; got o"),
        ({"formula": "age + offset(dose)", "offset": "o"}, ConfigurationError, "one offset"),
    ],
)
def test_clear_errors(options, error, message):
    table = draw().assign(gap=np.nan)
    table.loc[3:, "gap"] = 0.0
    with pytest.raises(error, match=message):
        FedCox(**options).fit(federate(table))
