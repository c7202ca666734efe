"""FedDeepSurv: its rounds against sums by hand, a convex optimum, and what a site lets out."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize

import multicentre as mc
from multicentre.errors import ConfigurationError, DisclosureRefused, NotConverged
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.fitted_models.network import Network, count_parameters
from multicentre.survival.learners.cohort import Cohort
from multicentre.survival.times import nelson_aalen, to_bins
from multicentre_papers.baselines.deep_surv import FedDeepSurv
from multicentre_papers.baselines.deep_surv.site import DeepSite, Parts, Task

pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="torch is not installed (extra: deep)")

OPEN = mc.Policy(min_patients=0)
TIMES = np.array([1.0, 2.0, 4.0, 8.0, 20.0])


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [1.0, 10.0] + [0.0, 50.0]
    time = np.ceil(8.0 * rng.exponential(np.exp(-np.abs(X[:, 0]) * 1.5 - (X[:, 1] - 50.0) / 10.0)))
    return mc.data.SurvivalData(X, time, rng.random(n) < 0.7)


SITES = {"lyon": simulate(120, 1), "nice": simulate(80, 2), "lille": simulate(100, 3)}


def federate(sites=None, **options):
    return mc.Federation.in_process(SITES if sites is None else sites, **{"policy": OPEN, **options})


def agreed_by(sites):
    X, event = np.vstack([d.X for d in sites.values()]), np.concatenate([d.event for d in sites.values()])
    return Prepared(
        ("x0", "x1"), "", 1, float(len(X)), float(event.sum()), TIMES, X.mean(axis=0), X.std(axis=0),
        np.zeros(0), np.zeros(3, dtype=np.int64),
    )  # fmt: skip


def site_of(name="lyon", data=None, validation=0.2):
    part = DeepSite(name, SITES[name] if data is None else data)
    part.agree(agreed_by(SITES))
    part.split(Parts(validation, 0))
    return part


def task(hidden=(), norm="none", seed=0, **options):
    n = count_parameters(2, hidden, norm == "layer")
    parameters = np.random.default_rng(seed).normal(size=n) * 0.3
    chosen = {"dropout": 0.0, "learning_rate": 0.01, "weight_decay": 0.0, "batch_size": 1000, "n_epochs": 1}
    rest = {"proximal": 0.0, "seed": 0, "round_number": 1}
    return Task(np.array(hidden, dtype=np.int64), norm, parameters, **{**chosen, **rest, **options})


def cohort_of(data, agreed, part=slice(None)):
    time, happened = np.minimum(data.time, TIMES[-1]), (data.event == 1) & (data.time <= TIMES[-1])
    rows = (data.X - agreed.centre) / agreed.spread
    return Cohort.of(rows[part], time[part], happened[part], np.ones(len(time[part])))


def test_one_step_is_adamws_along_the_gradient_of_the_partial_likelihood():
    site, request = site_of(validation=0.0), task(weight_decay=0.1)
    cohort = cohort_of(SITES["lyon"], agreed_by(SITES))

    def loss(w):
        return -cohort.log_likelihood(cohort.rows @ w) / cohort.n_events

    steps = 1e-6 * np.eye(2)
    gradient = np.array([(loss(request.parameters + s) - loss(request.parameters - s)) / 2e-6 for s in steps])
    expected = request.parameters * (1 - 0.01 * 0.1) - 0.01 * gradient / (np.abs(gradient) + 1e-8)
    answer = site.train(request)
    np.testing.assert_allclose(answer.share, 120 / 300)
    np.testing.assert_allclose(answer.parameters / answer.share, expected, atol=1e-8)


def test_what_a_site_tells_of_its_held_out_patients_is_their_partial_likelihood():
    site, request = site_of(validation=0.2), task()
    answer, held_out = site.train(request), site.state.held_out.astype(bool)
    assert held_out.sum() == 24
    cohort = cohort_of(SITES["lyon"], site.agreed, held_out)
    expected = cohort.log_likelihood(cohort.rows @ request.parameters) / site.agreed.n_events
    np.testing.assert_allclose(answer.log_likelihood, expected, rtol=1e-12)
    assert answer.n_events == cohort.n_events
    np.testing.assert_allclose(answer.share, 96 / 300)


def test_a_round_is_the_average_weighted_with_patients():
    model = FedDeepSurv((), norm="none", max_iter=1, validation_fraction=0.0, dropout=0.0, n_times=5)
    with federate() as federation:
        model.fit(federation)
    start = np.random.default_rng(0).uniform(-1.0, 1.0, 2) / np.sqrt(2)
    moved = []
    for name, data in SITES.items():
        part = DeepSite(name, data)
        part.agree(model.agreed_)
        part.split(Parts(0.0, 0))
        answer = part.train(dataclasses.replace(task(weight_decay=1e-4, batch_size=256), parameters=start))
        moved.append(len(data) * answer.parameters / answer.share)
    np.testing.assert_allclose(model.model_.parameters, np.sum(moved, axis=0) / 300, rtol=1e-10)


def test_sites_that_agree_reach_coxs_model_with_a_linear_network():
    options = {"norm": "none", "dropout": 0.0, "weight_decay": 0.0, "validation_fraction": 0.0, "learning_rate": 0.003}
    with federate(dict.fromkeys(("a", "b"), SITES["lyon"])) as federation:
        model = FedDeepSurv((), max_iter=200, n_local_epochs=2, n_times=5, **options).fit(federation)
    data, horizon = SITES["lyon"], model.times_[-1]
    rows, happened = (data.X - model.agreed_.centre) / model.agreed_.spread, (data.event == 1) & (data.time <= horizon)
    cohort = Cohort.of(rows, np.minimum(data.time, horizon), happened, np.ones(len(data)))
    optimum = minimize(lambda w: -cohort.log_likelihood(cohort.rows @ w), np.zeros(2)).x
    np.testing.assert_allclose(model.model_.parameters, optimum, atol=0.01)


@pytest.fixture(scope="module")
def fitted():
    with federate() as federation:
        yield FedDeepSurv((16,), max_iter=40, n_times=5, n_iter_no_change=4).fit(federation)


def test_it_learns_a_risk_that_is_not_linear(fitted):
    unseen = simulate(400, 9)
    truth = np.abs(unseen.X[:, 0]) * 1.5 + (unseen.X[:, 1] - 50.0) / 10.0
    assert np.corrcoef(fitted.model_.log_hazard_ratio(unseen.X), truth)[0, 1] > 0.8
    assert fitted.score(unseen) > 0.72


def test_the_network_that_did_best_is_kept_and_the_rounds_end(fitted):
    scores = [entry["log_likelihood"] for entry in fitted.history_]
    assert len(scores) == 40 or len(scores) == int(np.argmax(scores)) + 1 + 4
    network = fitted.model_
    request = task(hidden=(16,), norm="layer", round_number=99)
    request = dataclasses.replace(request, parameters=network.parameters)
    again = fitted.session.sum(DeepSite.train, request)
    assert again.log_likelihood * fitted.agreed_.n_events / again.n_events == pytest.approx(max(scores), rel=1e-10)


def test_the_baseline_is_breslows_on_the_grid_over_all_patients(fitted):
    X, time = (np.concatenate([getattr(d, name) for d in SITES.values()]) for name in ("X", "time"))
    event = np.concatenate([d.event for d in SITES.values()]) == 1
    ratios, bins = np.exp(fitted.model_.log_hazard_ratio(X)), to_bins(time, fitted.times_)
    at_risk = np.array([ratios[bins >= k].sum() for k in range(len(fitted.times_))])
    events = np.array([(event & (bins == k)).sum() for k in range(len(fitted.times_))], dtype=float)
    np.testing.assert_allclose(fitted.model_.baseline, nelson_aalen(events, at_risk), rtol=1e-8)


def test_the_saved_model_predicts_the_same(fitted, tmp_path):
    fitted.save(tmp_path)
    again = FedDeepSurv.load(tmp_path)
    assert isinstance(again.model_, Network)
    assert again.predict(SITES["lyon"]).tobytes() == fitted.predict(SITES["lyon"]).tobytes()
    assert again.hidden_layer_sizes == [16]


def test_without_held_out_patients_all_rounds_are_made():
    with federate() as federation:
        model = FedDeepSurv((4,), max_iter=3, n_times=5, validation_fraction=0.0, n_iter_no_change=1).fit(federation)
    assert model.history_ == [{"round": 1.0}, {"round": 2.0}, {"round": 3.0}]


def test_only_named_steps_are_asked(fitted):
    assert set(fitted.session.traffic.calls) - {"advertise"} <= fitted.planned_steps()


def test_a_pull_to_the_network_that_was_sent_keeps_the_site_near_it():
    request = task(n_epochs=20)
    far, near = (site_of(validation=0.0).train(dataclasses.replace(request, proximal=mu)) for mu in (0.0, 10.0))
    moved = [np.abs(answer.parameters / answer.share - request.parameters).max() for answer in (far, near)]
    assert moved[1] < 0.5 * moved[0]


def test_the_default_policy_gives_a_model_under_masks_and_refuses_without():
    sites = {name: simulate(n, seed) for seed, (name, n) in enumerate({"a": 60, "b": 300, "c": 250}.items())}
    with mc.Federation.in_process(sites) as federation:
        model = FedDeepSurv((8,), max_iter=15, n_times=12).fit(federation)
    assert model.score(simulate(300, 7)) > 0.65
    with (
        mc.Federation.in_process(sites, secure_sum=False) as federation,
        pytest.raises(DisclosureRefused, match=r"at least 10 patients.*secure_sum=True"),
    ):
        FedDeepSurv((8,), max_iter=1, n_times=12).fit(federation)


def test_few_held_out_are_held_out_and_their_answers_rest_on_them():
    site = site_of(validation=0.1)
    held_out = site.state.held_out.astype(bool)
    assert held_out.sum() == 12
    for site.masked in (False, True):
        assert site.train(task()).patients == (120 if site.masked else 1)
    answers = []
    for site.masked in (False, True):
        answers.append(site.sum_risks(task()))
    unmasked, masked = answers
    np.testing.assert_array_equal(unmasked.at_risk, masked.at_risk)
    np.testing.assert_array_equal(unmasked.events, masked.events)
    assert unmasked.patients < 10 < masked.patients


def test_a_site_without_events_leaves_the_network_to_the_others():
    silent = SITES["nice"].take(np.flatnonzero(SITES["nice"].event == 0))
    answer = site_of("nice", silent, validation=0.0).train(task())
    assert answer.share == 0.0
    assert not answer.parameters.any()
    with federate({**SITES, "nice": silent}) as federation:
        model = FedDeepSurv((4,), max_iter=2, n_times=5).fit(federation)
    assert np.isfinite(model.predict(silent)).all()


def test_the_split_is_the_sites_own_and_made_once():
    one, other = site_of(), site_of(data=SITES["lyon"].take(np.arange(120)[::-1]))
    assert not np.array_equal(one.state.held_out, other.state.held_out[::-1])
    one.split(Parts(0.2, 0))
    with pytest.raises(ConfigurationError, match="must be the same throughout"):
        one.split(Parts(0.3, 0))


WRONG = {
    "another normalisation": {"norm": "batch"},
    "a parameter too few": {"parameters": np.zeros(1)},
    "a weight too large": {"parameters": np.full(2, 1e5)},
    "a layer too many": {"hidden": np.array([1, 1, 1, 1, 1])},
    "no passes": {"n_epochs": 0},
    "passes without end": {"n_epochs": 10**6},
    "a step too long": {"learning_rate": 7.0},
    "a pull below 0": {"proximal": -1.0},
    "all left out": {"dropout": 1.0},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_site_refuses_what_is_out_of_range(what):
    site = site_of()
    site.train(task())
    with pytest.raises(ConfigurationError):
        site.train(dataclasses.replace(task(), **WRONG[what]))


def test_a_site_trains_nothing_before_the_split():
    part = DeepSite("lyon", SITES["lyon"])
    part.agree(agreed_by(SITES))
    with pytest.raises(ConfigurationError, match="must have a split"):
        part.train(task())
    with pytest.raises(ConfigurationError, match="validation_fraction"):
        part.split(Parts(0.9, 0))


def test_training_that_diverges_is_named():
    with pytest.raises(NotConverged, match="lyon"):
        site_of(validation=0.0).train(
            dataclasses.replace(task(learning_rate=1.0, n_epochs=3), parameters=np.full(2, 4095.9))
        )


@pytest.mark.parametrize(
    "wrong",
    [{"norm": "batch"}, {"max_iter": 0}, {"n_local_epochs": 0}, {"n_iter_no_change": 0}, {"proximal_penalty": -1.0},
     {"hidden_layer_sizes": (0,)}, {"validation_fraction": 0.7}, {"dropout": 1.0}, {"batch_size": 1}],
    ids=str,
)  # fmt: skip
def test_parameters_out_of_range_are_refused_before_anything_is_asked(wrong):
    with federate() as federation:
        with pytest.raises(ConfigurationError):
            FedDeepSurv(**wrong).fit(federation)
        assert not federation.traffic.calls
