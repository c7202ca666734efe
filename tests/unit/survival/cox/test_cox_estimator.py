"""The estimator of the Cox model: odd data, odd parameters, and what a fit offers afterwards."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, LeftOutWarning, QuorumLost, SeparationWarning
from multicentre.estimator.figures import Forest, Table, read_figure
from multicentre.survival.cox.estimator import FedCox

OPEN = mc.Policy(min_patients=0, exact_times=True)
TIMES = ["stratified", "grid", "exact"]


def simulate(sizes=(60, 70, 80), seed=0, effect=0.7):
    rng, sites = np.random.default_rng(seed), {}
    for number, size in enumerate(sizes):
        X = rng.normal(size=(size, 3)) * [1.0, 10.0, 1.0] + [0.0, 50.0, 0.0]
        time, end = rng.exponential(np.exp(-effect * X[:, 0])), rng.uniform(0.2, 3.0, size=size)
        sites[f"site-{number}"] = mc.data.SurvivalData(X, np.minimum(time, end), time <= end, columns=["a", "b", "c"])
    return sites


def with_column(sites, make):
    """Return sites whose last column is another."""
    found = {}
    for site, data in sites.items():
        X = data.X.copy()
        X[:, 2] = make(data)
        found[site] = mc.data.SurvivalData(X, data.time, data.event, columns=data.columns)
    return found


def fitted(sites, *args, secure_sum=True, **options):
    with mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure_sum) as federation:
        return FedCox(*args, **options).fit(federation)


@pytest.mark.parametrize("options", [*({"times": times} for times in TIMES), {"one_round": True}, {"alpha": 1.0}])
@pytest.mark.parametrize(("factor", "offset", "secure"), [(0.0, 3.0, True), (0.0, 0.1, False), (1e-7, 0.0, True)])
def test_a_column_without_resolved_variation_is_refused_by_name(options, factor, offset, secure):
    sites = with_column(simulate(), lambda data: offset + factor * data.X[:, 2])
    with pytest.raises(DataError, match=r"^columns must vary.*in c\. Leave constant columns out"):
        fitted(sites, secure_sum=secure, **options)


@pytest.mark.parametrize("times", TIMES)
def test_a_column_of_small_spread_gives_the_same_fit_or_none(times):
    """Masked sums resolve a thousandth; unmasked ones a millionth."""
    sites = simulate()
    expected = fitted(sites, times).coef_ * [1.0, 1.0, 1e3]
    small = with_column(sites, lambda data: 1e-3 * data.X[:, 2])
    np.testing.assert_allclose(fitted(small, times).coef_, expected, rtol=1e-4)
    tiny = with_column(sites, lambda data: 1e-6 * data.X[:, 2])
    np.testing.assert_allclose(fitted(tiny, times, secure_sum=False).coef_, expected * [1.0, 1.0, 1e3], rtol=1e-4)


def test_a_column_that_is_constant_within_each_site_leaves_the_other_ratios():
    sites = simulate()
    of_sites = {site: float(place) for place, site in enumerate(sites)}
    data = {
        s: mc.data.SurvivalData(
            np.column_stack([d.X[:, :2], np.full(len(d), of_sites[s])]), d.time, d.event, columns=d.columns
        )
        for s, d in sites.items()
    }
    with pytest.warns(UserWarning, match="^c: the column carries no information on a hazard ratio, because it is the"):
        model = fitted(data)
    assert model.coef_[2] == 0.0
    assert np.isnan([model.standard_errors_[2], model.p_values_[2], *model.hazard_ratios_[2, 1:]]).all()
    without = {site: mc.data.SurvivalData(d.X[:, :2], d.time, d.event, columns=["a", "b"]) for site, d in sites.items()}
    np.testing.assert_allclose(model.coef_[:2], fitted(without).coef_, rtol=0, atol=1e-9)
    assert model.tests_["wald"].degrees_of_freedom == 2
    assert list(model.tests_) == ["likelihood_ratio", "wald", "score"]  # the order of the table


@pytest.mark.parametrize("times", TIMES)
def test_columns_that_depend_on_each_other_need_a_ridge(times):
    sites = with_column(simulate(), lambda data: 2.0 * data.X[:, 0] - data.X[:, 1])
    with pytest.raises(DataError, match=r"combinations of others: a, b, c.*alpha above 0"):
        fitted(sites, times)
    model = fitted(sites, times, alpha=1.0)
    assert np.isfinite(model.coef_).all()
    assert np.isnan([*model.standard_errors_, *model.p_values_, *model.hazard_ratios_[:, 1]]).all()
    assert set(model.tests_) == {"score"}


@pytest.mark.parametrize("times", TIMES)
def test_separation_is_warned_of(times):
    sites = with_column(simulate(), lambda data: (data.event == 1).astype(float))
    with pytest.warns(SeparationWarning, match="^c: the likelihood may rise"):
        model = fitted(sites, times)
    assert np.isfinite(model.summary()["standard_error"]).tolist() == [True, True, False]
    assert {name: test.degrees_of_freedom for name, test in model.tests_.items()} == {"likelihood_ratio": 3, "score": 3}
    assert abs(fitted(sites, times, alpha=5.0).coef_[2]) < 10


@pytest.mark.parametrize("times", TIMES)
def test_sites_without_an_event_and_with_one_take_part(times):
    sites = simulate()
    first, second, third = sites.values()
    none = mc.data.SurvivalData(second.X, second.time, np.zeros(70), columns=second.columns)
    one = mc.data.SurvivalData(third.X, third.time, np.arange(80) == 7, columns=third.columns)
    model = fitted({"all": first, "none": none, "one": one}, times)
    assert np.isfinite(model.standard_errors_).all()
    assert model.n_patients_ == 210


@pytest.mark.parametrize("times", TIMES)
def test_one_site_alone_works(times):
    data = simulate((200,))
    model = fitted(data, times, **({} if times == "exact" else {"n_times": 256}))
    exact = fitted(data, "exact")
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=0.3 * exact.standard_errors_.max())


def test_no_event_anywhere_is_an_error():
    sites = {site: mc.data.SurvivalData(d.X, d.time, np.zeros(len(d))) for site, d in simulate().items()}
    with pytest.raises(DataError, match="at least one patient must have an event"):
        fitted(sites)


def test_missing_values_are_filled_with_the_means_of_all():
    sites = simulate()
    X = np.concatenate([data.X for data in sites.values()])
    known = np.random.default_rng(5).random(len(X)) < 0.8
    means = X[known, 0].mean()
    start, gaps, full = 0, {}, {}
    for site, data in sites.items():
        here = known[start : start + len(data)]
        start += len(data)
        for held, value in ((gaps, np.nan), (full, means)):
            rows = data.X.copy()
            rows[~here, 0] = value
            held[site] = mc.data.SurvivalData(rows, data.time, data.event, columns=data.columns)
    found, filled = fitted(gaps, missing="mean"), fitted(full)
    np.testing.assert_allclose(found.coef_, filled.coef_, rtol=0, atol=1e-5)


@pytest.mark.parametrize("times", TIMES)
def test_a_fit_that_is_saved_says_the_same(times, tmp_path):
    sites = simulate()
    model = fitted(sites, times, errors="HC0")
    model.save(tmp_path)
    loaded = FedCox.load(tmp_path)
    X = sites["site-0"].X
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.summary(), model.summary())
    assert loaded.tests_ == model.tests_
    with pytest.raises(NotFittedError):
        loaded.by_site()


def test_predictions_follow_the_hazard():
    model = fitted(simulate(effect=1.0), "exact")
    rows = np.array([[-1.0, 50.0, 0.0], [1.0, 50.0, 0.0]])
    risk = model.predict(rows)
    assert risk[0] < risk[1]
    curves = model.predict_survival_function(rows, return_array=True)
    assert (np.diff(curves, axis=1) <= 0).all()
    ratio = np.log(curves[1, 50]) / np.log(curves[0, 50])
    assert ratio == pytest.approx(np.exp(2 * model.coef_[0]))


def test_many_exact_times_are_thinned_to_what_a_model_may_hold(monkeypatch):
    monkeypatch.setattr("multicentre.survival.cox.rounds.MAX_MODEL_TIMES", 20)
    whole = fitted(simulate(), "exact")
    assert len(whole.times_) == 20
    assert whole.times_[-1] == whole.agreed_.times[-1]


@pytest.mark.parametrize("one_round", [False, True])
def test_estimates_by_site_and_together(one_round):
    sites = simulate((150, 160, 170))
    none = mc.data.SurvivalData(np.zeros((30, 3)), np.ones(30), np.zeros(30), columns=["a", "b", "c"])
    with mc.Federation.in_process({**sites, "without": none}, policy=OPEN) as federation:
        model = FedCox(one_round=one_round).fit(federation)
        effects = model.by_site()
    assert effects.sites == (*sites, "without")
    assert np.isnan(effects.coefficients[3]).all()
    alone = fitted({"only": sites["site-1"]}, "exact")
    np.testing.assert_allclose(effects.coefficients[1], alone.coef_, atol=1e-9)
    np.testing.assert_allclose(effects.standard_errors[1], alone.standard_errors_, rtol=1e-9)
    combined = mc.analytics.combine(effects).to_frame()
    np.testing.assert_allclose(combined["fixed"], model.coef_, atol=0.3 * model.standard_errors_.max())
    assert combined["sites"].tolist() == [3, 3, 3]


def test_a_site_gives_no_estimate_of_columns_that_depend_on_each_other_there():
    sites = simulate((100, 110, 120))
    twins = with_column({"site-1": sites["site-1"]}, lambda data: 3.0 * data.X[:, 0])
    with mc.Federation.in_process({**sites, **twins}, policy=OPEN) as federation:
        effects = FedCox().fit(federation).by_site()
    assert np.isnan(effects.standard_errors[1]).tolist() == [True, False, True]
    assert np.isfinite(effects.standard_errors[[0, 2]]).all()


def test_figures_show_ratios_and_tests_also_without_the_data():
    sites = simulate()
    with mc.Federation.in_process(sites, policy=OPEN) as federation:
        model = FedCox().fit(federation)
        shown = model.figures(sites, {})
        proportional = model.check_proportionality()
    assert [type(each) for each in shown] == [Table, Forest, Table]
    assert [row[0] for row in shown[0].rows] == shown[1].rows == list(model.feature_names_in_)
    assert [row[1] for row in shown[0].rows] == shown[1].estimates
    tests = {row[0]: row[3] for row in shown[2].rows}
    assert tests["all coefficients are 0, likelihood ratio"] == model.tests_["likelihood_ratio"].p_value
    assert tests["proportional hazards, b"] == proportional["b"].p_value
    assert tests["proportional hazards, all columns"] == proportional["global"].p_value
    assert all(read_figure(each.to_dict()) == each for each in shown)
    closed = model.figures({}, {})
    assert [type(each) for each in closed] == [Table, Forest, Table]
    assert closed[2] == shown[2]  # the tests were requested before


def test_hazards_that_cross_fail_the_test_of_proportionality():
    rng, sites = np.random.default_rng(0), {}
    for site in range(3):
        X = rng.normal(size=(300, 2))
        group = X[:, 0] > 0
        time = np.where(group, rng.exponential(1.0, 300) ** 0.4, rng.exponential(1.0, 300) ** 2.0)
        sites[f"site-{site}"] = mc.data.SurvivalData(np.column_stack([group, X[:, 1]]), time, np.ones(300))
    for times in TIMES:
        with mc.Federation.in_process(sites, policy=OPEN) as federation:
            model = FedCox(times, errors="HC0").fit(federation)
            tests = model.check_proportionality()
        assert tests["x0"].p_value < 1e-6
        assert tests["x1"].p_value > 1e-3
        assert tests["global"].degrees_of_freedom == 2
        assert model.answer().endswith("Proportional hazards were not tested (the federation is closed).")
    with pytest.raises(ConfigurationError, match="'km', 'rank'"):
        model.check_proportionality("square")


def test_a_rejected_proportionality_is_part_of_the_headline_of_saved_models_too(tmp_path):
    rng, sites = np.random.default_rng(0), {}
    for site in ("lyon", "oslo", "porto"):
        X = rng.normal(size=(200, 2))
        group = X[:, 0] > 0
        time = np.where(group, rng.exponential(1.0, 200) ** 0.4, rng.exponential(1.0, 200) ** 2.0)
        columns = ["arm", "age"]
        data = mc.data.SurvivalData(np.column_stack([group, X[:, 1]]), time, np.ones(200), columns=columns)
        sites[site] = data
    with mc.Federation.in_process(sites, policy=OPEN) as federation:
        model = FedCox().fit(federation)
        answer = model.answer()
        other = FedCox().fit(federation)
        other.exposure = "age"
        of_age = other.answer()
    assert answer.endswith(
        "Hazards are not proportional by arm (p < 0.001): the ratio is an average over the follow-up."
    )
    assert of_age.endswith("Hazards are not proportional by all covariates together (p < 0.001).")
    model.save(tmp_path / "model")
    assert FedCox.load(tmp_path / "model").answer() == answer
    assert fitted(sites).answer().endswith("Proportional hazards were not tested (the federation is closed).")


def test_too_few_rounds_are_warned_of():
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = fitted(simulate(), max_iter=1)
    assert not model.converged_
    assert np.isnan(model.summary()["standard_error"]["a"])


@pytest.mark.parametrize("options", [{"alpha": 0.5}, {"alpha": 8.0}, {"alpha": 60.0}, {"max_iter": 2}])
@pytest.mark.filterwarnings("ignore:the rounds ended at max_iter:sklearn.exceptions.ConvergenceWarning")
def test_errors_are_given_only_near_the_maximum_of_the_likelihood(options):
    sites = simulate(effect=1.0)
    maximum, model = fitted(sites), fitted(sites, **options)
    off = np.abs(model.coef_ - maximum.coef_) / maximum.standard_errors_
    given = np.isfinite(model.standard_errors_)
    for name in ("p_value", "lower", "upper"):
        np.testing.assert_array_equal(np.isfinite(model.summary()[name]), given)
    assert off[given].max(initial=0.0) < 0.28
    assert off[~given].min(initial=1.0) > 0.2
    assert given.all() == (options == {"alpha": 0.5})


def test_a_lead_is_named_among_the_sites():
    model = fitted(simulate(), one_round=True, lead="site-0")
    assert model.converged_
    assert model.lead_ == "site-0"
    with pytest.raises(ConfigurationError, match="lead must be one of"):
        fitted(simulate(), one_round=True, lead="paris")


def with_events(data, n_events):
    return mc.data.SurvivalData(data.X, data.time, np.arange(len(data)) < n_events, columns=data.columns)


@pytest.mark.parametrize("secure", [False, True])
def test_one_round_leads_with_the_site_that_has_most_events(secure):
    """Not the one with most patients, nor the first."""
    sites = {site: with_events(data, n) for (site, data), n in zip(simulate().items(), (30, 50, 40), strict=True)}
    with mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure) as federation:
        model = FedCox(one_round=True).fit(federation)
        asked = set(federation.traffic.calls) - {"advertise"}
    assert model.lead_ == "site-1"
    assert asked <= model.planned_steps()
    assert FedCox(one_round=True, lead="site-1").planned_steps() == model.planned_steps() - {"offer_lead"}
    assert asked > {"offer_lead", "solve_surrogate"}


def test_a_site_that_does_not_tell_its_events_does_not_lead():
    sites = simulate((80, 70, 60))
    policies = {"site-0": mc.Policy(secure_sums_only=True), "site-1": mc.Policy(), "site-2": mc.Policy()}
    with mc.Federation.in_process(sites, policy=policies) as federation:
        model = FedCox(one_round=True).fit(federation)
    assert model.lead_ == "site-1"
    few = {site: with_events(data, 9) for site, data in sites.items()}
    with (
        mc.Federation.in_process(few) as federation,
        pytest.raises(ConfigurationError, match=r"lead must be a site.*one_round=False"),
    ):
        FedCox(one_round=True, alpha=1.0).fit(federation)


def test_where_the_lead_is_lost_the_next_one_leads():
    faults = Faults(lose={"site-1": "solve_surrogate"})
    with (
        mc.Federation.in_process(simulate(), policy=OPEN, quorum=2, faults=faults) as federation,
        pytest.warns(LeftOutWarning, match="1 of 3 sites"),
    ):
        model = FedCox(one_round=True).fit(federation)
    assert model.session.sites == ("site-0", "site-2")
    assert model.lead_ == "site-2"
    alone = {site: data for site, data in simulate().items() if site != "site-1"}
    np.testing.assert_allclose(model.coef_, fitted(alone).coef_, rtol=0, atol=0.01)


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({}, "sum_derivatives"),
        ({}, "sum_baseline"),
        ({"errors": "HC0"}, "sum_own_scores"),
        ({"times": "grid"}, "sum_products"),
        ({"times": "exact", "errors": "HC0"}, "sum_exact_scores"),
        ({"one_round": True}, "solve_surrogate"),
    ],
)
def test_a_fit_that_loses_a_site_is_that_of_the_remaining_sites(options, step):
    faults = Faults(lose={"site-1": step})
    with (
        mc.Federation.in_process(simulate(), policy=OPEN, quorum=2, faults=faults) as federation,
        pytest.warns(LeftOutWarning, match="1 of 3 sites"),
    ):
        model = FedCox(**options).fit(federation)
    remaining = {site: data for site, data in simulate().items() if site != "site-1"}
    with mc.Federation.in_process(remaining, policy=OPEN) as federation:
        expected = FedCox(**options).fit(federation)
    pd.testing.assert_frame_equal(model.to_frame(), expected.to_frame(), rtol=1e-9)
    assert model.n_patients_ == expected.n_patients_ == sum(map(len, remaining.values()))
    assert model.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-12)
    assert {name: test.statistic for name, test in model.tests_.items()} == pytest.approx(
        {name: test.statistic for name, test in expected.tests_.items()}, rel=1e-7
    )
    assert model.model_.baseline == pytest.approx(expected.model_.baseline, rel=1e-9)
    assert list(model.left_out_) == ["site-1"]
    assert "site-1" in str(model.summary())


@pytest.mark.parametrize("step", ["sum_baseline", "sum_own_residuals", "sum_own_curvatures"])
def test_residuals_without_a_site_of_the_fit_are_no_test_of_the_fit(step):
    # The fit itself takes one sum_baseline of all sites; the sites answer it before the fault.
    faults = Faults(lose={"site-1": 10**6})
    with mc.Federation.in_process(simulate(), policy=OPEN, quorum=2, faults=faults) as federation:
        model = FedCox().fit(federation)
        faults.lose = {"site-1": step}
        with pytest.raises(QuorumLost, match="all sites of the fit"):
            model.check_proportionality()


@pytest.mark.parametrize("n_events", [9, 10])
def test_few_events_per_site_are_warned_of_where_baselines_are_the_sites_own(n_events):
    sites = {}
    for site, data in simulate().items():
        chosen = np.flatnonzero(data.event)[:n_events]
        event = np.isin(np.arange(len(data)), chosen)
        sites[site] = mc.data.SurvivalData(data.X, data.time, event, columns=data.columns)
    fitted(sites, "grid")
    if n_events == 10:
        fitted(sites)
        return
    with pytest.warns(UserWarning, match=r'9 events per site on average.*times="grid"'):
        fitted(sites)


@pytest.mark.filterwarnings("ignore:.* events per site on average:UserWarning")
def test_one_round_over_many_tiny_sites_is_far_from_the_fit_and_says_so():
    rng, sites = np.random.default_rng(0), {}
    for number in range(40):
        X = rng.normal(size=(12, 3))
        time, end = rng.exponential(np.exp(-2.5 * X[:, 0] + X[:, 1])), rng.exponential(0.3, 12)
        sites[f"site-{number:02}"] = mc.data.SurvivalData(
            X, np.minimum(time, end), time <= end, columns=["a", "b", "c"]
        )
    many = fitted(sites, secure_sum=False)
    with pytest.warns(ConvergenceWarning, match=r"^a, b: one round led by site-\d\d ends too far"):
        once = fitted(sites, secure_sum=False, one_round=True)
    off = np.abs(once.coef_ - many.coef_) / many.standard_errors_
    np.testing.assert_array_equal(np.isnan(once.standard_errors_), off > 0.25)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("times", "days"),
        ("ties", "exact"),
        ("alpha", -1.0),
        ("n_times", 0),
        ("cause", 1.5),
        ("errors", "HC1"),
        ("one_round", "yes"),
        ("confidence_level", 1.0),
        ("max_iter", True),
        ("tol", np.nan),
        ("horizon", 0.0),
    ],
)
def test_odd_parameters_are_refused(name, value):
    with pytest.raises(ConfigurationError, match=name):
        fitted(simulate(), **{"times": "grid", name: value})


def districts(spread_within):
    """Return sites of which the column "place" varies between them, and by a little within; "age" varies as usual."""
    rng, sites = np.random.default_rng(2), {}
    for number in range(6):
        place = rng.normal(number, spread_within, 100)
        age = rng.normal(60.0 + 5.0 * np.sin(5.0 * number), 10.0, 100)
        lethal = (np.arange(100) < 2).astype(float)  # has nearly all of its events before the others
        time = rng.exponential(10.0 * np.exp(-0.03 * (age - 60.0) - 0.1 * place - 4.0 * lethal))
        end = rng.exponential(30.0, 100)
        X = np.column_stack([age, place, lethal])
        sites[f"d{number}"] = mc.data.SurvivalData(
            X, np.minimum(time, end), time <= end, columns=["age", "place", "lethal"]
        )
    return sites


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("options", [{}, {"one_round": True}])
def test_only_columns_that_vary_between_sites_are_warned_of(secure, options):
    with pytest.warns(
        UserWarning, match=r"^place: less than a tenth of the variance lies within sites.*times=\"grid\""
    ):
        model = fitted(districts(0.2), secure_sum=secure, **options)
    assert np.isfinite(model.standard_errors_).all()
    fitted(districts(2.0), secure_sum=secure, **options)  # a warning would be an error
    for times in ("grid", "exact"):
        shared = fitted(districts(0.2), times, secure_sum=secure)
        assert shared.standard_errors_[1] < model.standard_errors_[1] / 3.0


@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_missing_entries_make_no_column_vary_between_sites(missing):
    sites = simulate()
    for place, data in enumerate(sites.values()):
        X = data.X.copy()
        X[20 + place :, 2] = np.nan
        sites[f"site-{place}"] = mc.data.SurvivalData(X, data.time, data.event, columns=data.columns)
    fitted(sites, missing=missing)


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("share", [0.1, 0.02])
def test_one_round_names_a_level_without_events(times, share, secure):
    rng, sites = np.random.default_rng(1), {}
    for number in range(4):
        x, level = rng.normal(size=200), (rng.random(200) < share).astype(float)
        time, end = rng.exponential(10.0 * np.exp(-0.5 * x)), rng.exponential(20.0, 200)
        data = np.column_stack([x, level]), np.minimum(time, end), (time <= end) & (level == 0)
        sites[f"s{number}"] = mc.data.SurvivalData(*data, columns=["x", "level"])
    with pytest.warns(SeparationWarning, match="^level: the likelihood may rise"):
        model = fitted(sites, times, one_round=True, secure_sum=secure)
    with pytest.warns(SeparationWarning, match="^level: "):
        in_rounds = fitted(sites, times, secure_sum=secure)
    assert model.coef_[0] == pytest.approx(in_rounds.coef_[0], abs=1e-3)
    assert np.isfinite(model.standard_errors_).tolist() == [True, False]
    assert np.isnan(model.hazard_ratios_[1, 1:]).all()


@pytest.mark.parametrize(("effect", "share"), [(3.0, 0.05), (-3.0, 0.2)])
def test_one_round_with_few_events_of_a_level_has_its_error(effect, share):
    rng, sites = np.random.default_rng(3), {}
    for number in range(4):
        level = (rng.random(300) < share).astype(float)
        time, end = rng.exponential(10.0 * np.exp(-effect * level)), rng.exponential(20.0, 300)
        sites[f"s{number}"] = mc.data.SurvivalData(level[:, None], np.minimum(time, end), time <= end)
    model = fitted(sites, one_round=True)  # a warning would be an error
    assert np.isfinite(model.standard_errors_).all()
