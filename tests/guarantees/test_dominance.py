"""No patient makes most of an unmasked sum (the p % rule, limit 70 %), and the refusal comes before any sum."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.analytics.describe.messages import Groups
from multicentre.analytics.describe.site import DescribeSite
from multicentre.core.messages import Message
from multicentre.data.records import MAX_SHARE, fewest_different, is_dominated
from multicentre.errors import DisclosureRefused
from support.engines import with_engine
from support.lying import Wrapped

N, COST = 60, 4_000_000.0


class Keeping(Wrapped):
    """Keeps the answers to requests for sums."""

    def __init__(self, engine):
        super().__init__(engine)
        self.answers = []

    def exchange(self, calls, time_limit_s):
        outcomes = super().exchange(calls, time_limit_s)
        if next(iter(calls.values())).step.summed:
            self.answers += [answer for answer in outcomes.values() if isinstance(answer, Message)]
        return outcomes


def columns(seed):
    """Return costs of which one patient has nearly all, and ages."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(1, 9, N).round(), rng.normal(60, 10, N).round()])
    X[0, 0] = COST
    return X, rng


def with_class(seed):
    X, rng = columns(seed)
    return mc.data.TableData(X, rng.integers(0, 2, N), columns=["cost", "age"])


def with_cost(seed):
    X, _ = columns(seed)
    return mc.data.TableData(X[:, 1:], X[:, 0], columns=["age"], outcome="number")


def with_time(seed):
    X, rng = columns(seed)
    return mc.data.SurvivalData(X, rng.exponential(1.0, N), rng.integers(0, 2, N))


def with_views(seed):
    X, rng = columns(seed)
    return mc.data.MultiViewData({"costs": X, "other": rng.normal(size=(N, 2))})


def with_gap(seed):
    X, rng = columns(seed)
    X[-1, 1] = np.nan
    return mc.data.TableData(X, rng.integers(0, 2, N), columns=["cost", "age"])


FITS = {
    "describe": (lambda: mc.analytics.Describe(), with_class),
    "describe by group": (lambda: mc.analytics.Describe(by="outcome"), with_class),
    "logistic": (lambda: mc.regression.FedLogisticRegression(), with_class),
    "logistic, means for gaps": (lambda: mc.regression.FedLogisticRegression(missing="mean"), with_gap),
    "linear, outcome": (lambda: mc.regression.FedLinearRegression(), with_cost),
    "path": (lambda: mc.regression.FedGLMCV("gaussian", cv=2), with_cost),
    "cox": (lambda: mc.survival.FedCox("grid"), with_time),
    "views": (lambda: mc.multiview.FedMvPPCA(1), with_views),
}


def federation(make, **options):
    sites = {name: make(seed) for seed, name in enumerate("abc")}
    return mc.Federation.in_process(sites, policy=mc.Policy(min_patients=10), **options)


@pytest.mark.parametrize("case", FITS)
def test_an_unmasked_sum_of_one_patient_is_refused_before_any_sum(case):
    model, make = FITS[case]
    with federation(make, secure_sum=False) as opened:
        engine = Keeping(opened.engine)
        with pytest.raises(DisclosureRefused, match="at least 10 patients") as caught:
            model().fit(with_engine(opened, engine))
    assert "one patient makes most of the sum" in str(caught.value)
    values = np.concatenate([np.ravel(value) for answer in engine.answers for _, _, _, value in answer.items()] or [[]])
    numbers = values[values != 0].astype(float)
    assert not np.isclose(np.frexp(numbers)[0], np.frexp(COST)[0], rtol=2e-4).any()


def test_a_site_describes_itself_only_if_nobody_dominates():
    part = DescribeSite("a", with_class(0))
    part.least_behind = 10
    groups = Groups("", (), ("cost", "age"), ())
    assert part.describe_site(groups).patients == 1
    mean, deviation = part.check_quality(groups).moments[0]
    assert np.isnan([mean, deviation]).all()


def test_a_masked_total_that_only_one_site_adds_to_follows_the_rule_of_unmasked_sums():
    sites = {name: with_class(seed) for seed, name in enumerate("abc")}
    for name in "bc":
        X = sites[name].X.copy()
        X[3:, 0] = np.nan
        sites[name] = mc.data.TableData(X, sites[name].y, columns=["cost", "age"])
    policy = mc.Policy(min_patients=10, min_sites_in_sum=1)
    with pytest.raises(DisclosureRefused, match="at least 10 patients"):
        mc.analytics.Describe().fit(mc.Federation.in_process(sites, policy=policy))
    X = np.where(sites["a"].X == COST, 5.0, sites["a"].X)
    sites["a"] = mc.data.TableData(X, sites["a"].y, columns=["cost", "age"])
    model = mc.analytics.Describe(quartiles=False).fit(mc.Federation.in_process(sites, policy=policy))
    assert model.numbers().set_index("variable").loc["cost", "present"].max() == N + 6


def test_a_masked_total_of_several_sites_is_answered():
    with federation(with_class) as opened:
        assert mc.analytics.Describe().fit(opened).numbers().variable.nunique() == 2


def test_the_limit_is_a_share_of_the_sum_of_sizes():
    others = np.full(59, 1.0)
    limit = MAX_SHARE / (1 - MAX_SHARE) * others.sum()
    assert is_dominated(np.append(others, limit * 1.01))
    assert fewest_different(np.append(np.arange(59.0), limit * 100)[:, None]) == 1
    assert not is_dominated(np.random.default_rng(0).normal(size=60))
