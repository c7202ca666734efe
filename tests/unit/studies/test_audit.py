"""The mathematics of an audit against closed forms, and how a canary is made."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.data.records import add_record, amplify_record
from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre.privacy.guarantee import Guarantee
from multicentre.studies.audit import AuditResult, audit
from multicentre.studies.audit import scores as maths
from multicentre.studies.audit.result import Scores
from multicentre.studies.serialisation import to_json
from support.toy_private import PrivateMean, private_sites

DELTA = 1e-5
triples = st.lists(st.tuples(*[st.floats(-20, 20)] * 3), min_size=1, max_size=6)


@given(triples, st.floats(0.1, 10), st.sampled_from(["gaussian", "laplace"]))
def test_the_score_is_the_log_ratio_of_the_densities(values, scale, mechanism):
    x, m, v = np.array(values).T
    law = stats.norm if mechanism == "gaussian" else stats.laplace
    expected = (law.logpdf(x, m + v, scale) - law.logpdf(x, m, scale)).sum()
    assert maths.log_likelihood_ratio(x, m, v, scale, mechanism) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(st.lists(st.tuples(*[st.integers(-40, 40)] * 3), min_size=1, max_size=5), st.floats(0.5, 30))
def test_on_a_grid_it_is_that_of_the_discrete_laws(values, scale):
    x, m, v = np.array(values).T
    gauss = (-((x - m - v) ** 2) + (x - m) ** 2).sum() / (2 * scale**2)
    geometric = (stats.dlaplace.logpmf(x - m - v, 1 / scale) - stats.dlaplace.logpmf(x - m, 1 / scale)).sum()
    assert maths.log_likelihood_ratio(x, m, v, scale, "gaussian") == pytest.approx(gauss, rel=1e-9, abs=1e-9)
    assert maths.log_likelihood_ratio(x, m, v, scale, "laplace") == pytest.approx(geometric, rel=1e-9, abs=1e-9)


def exact(hits, n, false_alarms, m, delta, confidence):
    low = stats.binomtest(hits, n).proportion_ci(confidence, method="exact").low
    high = stats.binomtest(false_alarms, m).proportion_ci(confidence, method="exact").high
    return math.log((low - delta) / high) if low > delta else -math.inf


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_the_bound_is_that_of_clopper_and_pearson_on_the_other_half(confidence):
    random = np.random.default_rng(1)
    one, other = random.normal(2.5, 1, 240), random.normal(0, 1, 200)
    found = maths.lower_bound(one, other, DELTA, confidence)
    mine, others = (one[1::2], other[1::2]) if found.predicts == "present" else (-other[1::2], -one[1::2])
    limit = found.threshold if found.predicts == "present" else -found.threshold
    assert (found.hits, found.n_hit) == ((mine > limit).sum(), len(mine))
    assert (found.false_alarms, found.n_false) == ((others > limit).sum(), len(others))
    told = exact(found.hits, found.n_hit, found.false_alarms, found.n_false, DELTA, confidence)
    assert found.epsilon == pytest.approx(told, rel=1e-9)
    assert found.epsilon > 0.5


def test_the_half_that_chooses_does_not_prove():
    random = np.random.default_rng(2)
    one, other = random.normal(0, 1, 400), random.normal(0, 1, 400)
    one[::2] += 9
    assert maths.lower_bound(one, other, DELTA).epsilon == 0


@pytest.mark.parametrize("says", ["present", "absent"])
def test_both_directions_are_tried(says):
    random = np.random.default_rng(3)
    far, near = random.normal(0, 1, 400), random.normal(0, 1, 400)
    far[random.permutation(400)[:150]] += 30
    one, other = (far, near) if says == "present" else (-near, -far)
    found = maths.lower_bound(one, other, DELTA)
    assert found.predicts == says
    assert found.epsilon > 1.5
    assert abs(found.threshold) > 2


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_bound_holds_as_often_as_it_says(epsilon):
    random = np.random.default_rng(4)
    honest = math.exp(epsilon) / (1 + math.exp(epsilon))
    found = np.array(
        [
            maths.lower_bound(random.random(200) < honest, random.random(200) >= honest, 0.0, 0.8).epsilon
            for _ in range(600)
        ]
    )
    assert (found > epsilon).mean() <= 0.2
    assert np.median(found) > 0.5 * epsilon - 0.15


def test_scores_that_never_differ_prove_nothing():
    found = maths.lower_bound(np.zeros(50), np.zeros(50), DELTA)
    assert found.epsilon == 0
    assert maths.separation(np.zeros(50), np.zeros(50)).d_prime == 0
    assert maths.separation(np.zeros(50), np.zeros(50)).auc == 0.5


@pytest.mark.parametrize("n", [20, 501])
def test_the_largest_bound_is_reached_where_scores_never_overlap(n):
    found = maths.lower_bound(np.arange(n) + 1e6, np.arange(n), DELTA)
    assert found.epsilon == pytest.approx(maths.largest_bound(n, DELTA), rel=0.02)
    assert maths.largest_bound(1000, DELTA) == pytest.approx(math.log(1000 / 7.4), abs=0.01)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=12), st.lists(st.integers(0, 5), min_size=2, max_size=12))
def test_the_area_counts_pairs(one, other):
    pairs = np.subtract.outer(one, other)
    expected = ((pairs > 0) + 0.5 * (pairs == 0)).mean()
    assert maths.separation(one, other).auc == pytest.approx(expected)


@pytest.mark.slow
def test_separation_and_its_standard_error():
    random = np.random.default_rng(5)
    drawn = [maths.separation(random.normal(5, 2, 60), random.normal(2, 2, 80)) for _ in range(1500)]
    found = np.array([(one.d_prime, one.standard_error) for one in drawn])
    assert found[:, 0].mean() == pytest.approx(1.5, abs=0.03)
    assert found[:, 0].std() == pytest.approx(found[:, 1].mean(), rel=0.06)
    assert np.mean([one.auc for one in drawn]) == pytest.approx(maths.auc_of_gdp(1.5), abs=0.01)
    assert maths.auc_of_gdp(0.502) == pytest.approx(stats.norm.cdf(0.502 / math.sqrt(2)))


def views():
    x = np.array([[1.0, 2.0], [3.0, -4.0]])
    flags = np.array([[True], [False]])
    return MultiViewData({"blood": x, "image": np.array([[7.0], [np.nan]]), "flags": flags}, ids=["p", "q"])


def test_a_record_is_amplified_but_for_truth_values_and_missing_entries():
    record = amplify_record(views(), 0, 10.0)
    assert record.array("blood").tolist() == [[10.0, 20.0]]
    assert record.array("flags").tolist() == [[1.0]]
    assert record.kinds == views().kinds
    signed = amplify_record(np.ones((3, 50)), 2, 4.0, np.random.default_rng(0))
    assert set(signed.ravel()) == {-4.0, 4.0}


def test_a_record_is_added_below_the_others():
    data = views()
    larger = add_record(data, amplify_record(data, 0, 2.0))
    assert len(larger) == 3
    assert larger.schema == data.schema
    assert len(set(larger.ids)) == 3
    np.testing.assert_array_equal(larger.take([0, 1]).array("image"), data.array("image"))
    assert larger.array("blood")[2].tolist() == [2.0, 4.0]


def test_data_of_a_kind_that_nobody_registered():
    for call in (lambda: amplify_record([1.0], 0, 2.0), lambda: add_record([1.0], [2.0])):
        with pytest.raises(ConfigurationError, match="list"):
            call()


def result(**changes):
    told = maths.Separation(0.3, 0.1, 0.58)
    tested = maths.Attack("present", 0.1, 60, 100, 40, 100, 0.05)
    given_ = {
        "guarantee": Guarantee(1.0, DELTA),
        "protection": "unmasked",
        "site": "lyon",
        "canary": "a patient of the site",
        "n_runs": 200,
        "confidence": 0.95,
        "sensitivity_ratio": 1.0,
        "field": "Sums.total",
        "unprotected": (),
        "reach": 0.27,
        "mu": 0.27,
        "scores": Scores(told, tested),
    }
    return AuditResult(**{**given_, **changes})


def scored(d_prime=0.3, epsilon=0.05):
    return Scores(maths.Separation(d_prime, 0.1, 0.58), maths.Attack("absent", 0.1, 60, 100, 40, 100, epsilon))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scores": scored(epsilon=1.01)}, "Epsilon is at least 1.01"),
        ({"scores": scored(d_prime=0.27 + 0.51)}, "less noise than planned"),
        ({"scores": scored(d_prime=math.inf)}, "less noise than planned"),
        ({"sensitivity_ratio": 1.01, "scores": None}, "1.01 times the declared sensitivity"),
        ({"unprotected": ("Sums.names",), "scores": None}, "Sums.names has no noise"),
    ],
)
def test_what_speaks_against_the_claim(changes, said):
    found = result(**changes)
    assert found.verdict == "violated"
    assert said in str(found)
    assert json.loads(to_json(found.to_dict()))["verdict"] == "violated"


@pytest.mark.parametrize(
    "changes",
    [{}, {"scores": scored(0.27 + 0.49, 0.99)}, {"mu": None, "scores": scored(9.0)}, {"sensitivity_ratio": 0.5}],
)
def test_what_does_not(changes):
    found = result(**changes)
    assert found.verdict == "consistent"
    assert "never prove" in str(found)
    assert found.to_dict()["epsilon_lower_bound"] == found.scores.attack.epsilon


def test_what_cannot_be_audited():
    sites = private_sites(2, 30, 2)
    for model, options, message in [
        (PrivateMean(), {}, "must claim differential privacy"),
        (PrivateMean(1.0), {"runs": 9}, "at least 10"),
        (PrivateMean(1.0), {"site": "site-9"}, "site-1|site-0"),
        (PrivateMean(1.0), {"confidence": 1.0}, "between 0 and 1"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            audit(model, sites, **options)


def test_policies_hold_but_for_their_budgets(tmp_path):
    spent = mc.Policy(epsilon=0.01, account=str(tmp_path / "account.jsonl"))
    found = audit(PrivateMean(1.0), {"a": private_sites(1, 40, 2)["site-0"]}, policy=spent, runs=10)
    assert found.n_runs == 10
    assert not list(tmp_path.iterdir())
    with pytest.raises(RefusedByPolicy, match="does not permit"):
        audit(PrivateMean(1.0), private_sites(2, 40, 2), policy=mc.Policy(methods=("other",)), runs=10)


def test_the_claim_is_one_to_a_record_where_nobody_knows_whose_the_records_are():
    claims = {
        stated: audit(PrivateMean(epsilon=1.0), private_sites(1), runs=10, one_row_per_patient=stated).guarantee.unit
        for stated in (True, False)
    }
    assert claims == {True: "patient", False: "record"}


def test_patients_with_several_records_cannot_be_audited_by_one():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    data = MultiViewData({"blood": rows}).with_identifier([f"p{row // 2}" for row in range(40)])
    reference = {"blood": {"centre": [0.0, 0.0], "spread": [1.0, 1.0]}}
    model = mc.multiview.FedMvPPCA(n_components=1, epsilon=2.0, reference=reference)
    with pytest.raises(ConfigurationError, match=r"lyon.*each patient must have one record"):
        audit(model, {"lyon": data}, runs=10)
