"""FedSurvBoost as published is bagging."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.estimator.base import FederatedEstimator
from multicentre.survival.surv_boost.site import BoostSite
from multicentre_papers.published import FedSurvBoostAsPublished

SITES = {f"site-{i}": mc.datasets.simulate_survival(160 + 10 * i, n_columns=3, random_state=i) for i in range(3)}
NEW = mc.datasets.simulate_survival(300, n_columns=3, random_state=8)


def fit(learner="tree", **options):
    return FedSurvBoostAsPublished(learner, n_estimators=4).fit(mc.Federation.in_process(SITES, **options))


def test_weights_never_change_and_votes_are_equal():
    model = fit()
    assert model.votes_.tolist() == [1.0] * 4
    runtimes = model.session.engine._runtimes.values()
    parts = [part for one in runtimes for (_, kind), part in one.sessions.parts.items() if kind is BoostSite]
    assert len(parts) == 3
    assert all(len(np.unique(part.memory.log_weights)) == 1 for part in parts)


@pytest.mark.parametrize("learner", ["cox", "tree"])
def test_it_ranks_better_than_chance_under_the_default_policy(learner):
    model = fit(learner, policy=mc.Policy())
    assert model.score(NEW) > 0.55
    curves = model.predict_survival_function(NEW, return_array=True)
    assert ((curves >= 0) & (curves <= 1)).all()
    assert (np.diff(curves, axis=1) <= 1e-12).all()


def test_a_model_comes_back_from_its_folder(tmp_path):
    model = fit()
    model.save(tmp_path)
    again = FederatedEstimator.load(tmp_path)
    assert type(again) is FedSurvBoostAsPublished
    assert again.predict(NEW).tobytes() == model.predict(NEW).tobytes()
    assert again.predict_time(NEW, "weighted_median").tobytes() == model.predict_time(NEW, "weighted_median").tobytes()
