"""Cross-validation side by side: the bits of one fold after the other, for every method, wherever sites are."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.core import side_by_side
from multicentre.engines.faults import Faults
from multicentre.validation import FederatedKFold, HashGroupKFold, cross_validate, leakage_report
from multicentre.validation.tuning import FederatedGridSearchCV
from support.method_cases import CASES, PREDICTS_NOTHING, each_of
from support.remote_sites import ByHand, RequestHandlers

NAMES = [name for name in CASES if name not in PREDICTS_NOTHING]


@pytest.fixture
def in_turn(monkeypatch):
    """Return a function after which branches run one after the other."""
    return lambda: monkeypatch.setattr(
        side_by_side, "run", lambda branches, *, at_once=None: [one() for one in branches]
    )


def validate(name, federation):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", ".* that sites fitted alone are constant", UserWarning)
        warnings.filterwarnings("ignore", "DPFactAsPublished minimises", UserWarning)
        estimator, cv = CASES[name].make(), FederatedKFold(2)
        return cross_validate(
            estimator, federation, cv=cv, allow_leakage=True, error_score="raise", return_train_score=True
        )


def in_process(name, **options):
    policy = CASES[name].policy or mc.Policy(min_patients=0)
    with mc.Federation.in_process(CASES[name].sites(), policy=policy, **options) as federation:
        result = validate(name, federation)
        return bits(result), result["communication"]["exchanges"], dict(federation.traffic.calls)


def bits(result):
    """Return the scores of a cross-validation; times differ."""
    return {
        key: value.tobytes()
        for key, value in result.items()
        if isinstance(value, np.ndarray) and key not in ("fit_time", "score_time")
    }


@pytest.mark.slow
@pytest.mark.dealt(4)
@each_of(NAMES)
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_the_scores_of_every_method_are_those_of_one_fold_after_the_other(name, secure, in_turn):
    together, n_together, calls = in_process(name, secure_sum=secure)
    in_turn()
    alone, n_alone, calls_alone = in_process(name, secure_sum=secure)
    assert together == alone
    assert calls == calls_alone
    assert n_together < n_alone == sum(calls_alone.values())


@pytest.mark.slow
@pytest.mark.dealt(4)
@each_of(NAMES)
def test_a_strict_wire_and_remote_sites_change_no_score(name, tmp_path):
    case = CASES[name]
    policy = case.policy or mc.Policy(min_patients=0)
    wanted, n_together, _ = in_process(name)
    assert in_process(name, strict=True)[0] == wanted
    mishaps = {2: "unsent", 7: "unanswered", 9: "twice"}
    carrier = ByHand(
        RequestHandlers(case.sites(), tmp_path, policy=policy).handles, lambda site, number: mishaps.get(number % 11)
    )
    with mc.Federation.over(carrier) as federation:
        result = validate(name, federation)
    assert bits(result) == wanted
    assert result["communication"]["exchanges"] == n_together


@pytest.fixture(scope="module")
def survival():
    sites = {f"site-{place}": mc.datasets.simulate_survival(200, 5, place) for place in range(3)}
    return {name: data.with_identifier([f"{name}-{row}" for row in range(len(data))]) for name, data in sites.items()}


def federate(sites, **options):
    return mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0), **options)


def test_five_folds_of_a_masked_cox_model_take_at_most_thirty_round_trips(survival):
    with federate(survival) as federation:
        result = cross_validate(mc.survival.FedCox(), federation, cv=5, error_score="raise")
        assert federation.traffic.round_trips == result["communication"]["exchanges"] <= 30
        assert sum(federation.traffic.calls.values()) > 100


@pytest.mark.slow
def test_a_boosted_survival_model_at_its_defaults_takes_at_most_250_round_trips(survival):
    with federate(survival) as federation:
        mc.survival.FedSurvBoost().fit(federation)
        assert federation.traffic.round_trips <= 250


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_cross_validation_that_is_resumed_has_the_same_bits(survival, part, tmp_path):
    def run(**options):
        with federate(survival, **options) as federation:
            result = cross_validate(mc.survival.FedCox(), federation, cv=3, error_score="raise")
            return bits(result), result["communication"]["exchanges"]

    wanted, n_exchanges = run()
    with pytest.raises(KeyboardInterrupt):
        run(folder=tmp_path, faults=Faults(interrupt_at=int(part * n_exchanges)))
    assert run(folder=tmp_path)[0] == wanted


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_boosted_survival_model_that_is_resumed_has_the_same_bits(survival, part, tmp_path):
    def run(**options):
        with federate(survival, **options) as federation:
            model = mc.survival.FedSurvBoost(n_estimators=4).fit(federation)
            return [model.votes_.tobytes(), model.predict(survival["site-0"].X).tobytes()], model.session.traffic

    wanted, traffic = run()
    with pytest.raises(KeyboardInterrupt):
        run(folder=tmp_path, faults=Faults(interrupt_at=int(part * traffic.round_trips)))
    assert run(folder=tmp_path)[0] == wanted


@pytest.mark.slow
def test_a_search_and_a_report_are_those_of_one_fit_after_the_other(survival, in_turn):
    def run():
        with federate(survival) as federation:
            search = FederatedGridSearchCV(mc.survival.FedCox(), {"alpha": [0.0, 0.1, 1.0, 10.0]}, cv=3)
            search.fit(federation)
            n_search = federation.traffic.round_trips
            report = leakage_report(mc.survival.FedCox(), federation, cv=HashGroupKFold(3))
            scores = [search.cv_results_["mean_test_score"], report.random, report.safe]
            return [one.tobytes() for one in scores], n_search, federation.traffic.round_trips - n_search

    together, *n_together = run()
    in_turn()
    alone, *n_alone = run()
    assert together == alone
    assert np.less(n_together, np.array(n_alone) / 3).all()


def test_fits_of_single_sites_take_the_round_trips_of_one(in_turn):
    def run():
        case = CASES["fed-cox, grid"]
        with mc.Federation.in_process(case.sites(), policy=case.policy) as federation:
            model = case.make().fit(federation)
            before = federation.traffic.round_trips
            fits = model.fit_each_site()
            n_round_trips = federation.traffic.round_trips - before
            return {site: one.coef_.tobytes() for site, one in fits.items()}, fits.refused, n_round_trips

    *together, n_together = run()
    in_turn()
    *alone, n_alone = run()
    assert together == alone
    assert n_together < n_alone / 2
