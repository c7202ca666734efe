"""The log-rank test over sites: strata, options, bad input and what leaves."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError
from multicentre.estimator.figures import Table
from multicentre.survival import LogRank
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.curves import log_rank as maths
from multicentre.survival.curves.log_rank import Compared, LogRankSite
from multicentre.survival.curves.tables.risk import RiskTable, count_table

OPEN = mc.Policy(min_patients=0, exact_times=True)


def simulated(n=150):
    return {f"site-{i}": mc.datasets.simulate_survival(n + 40 * i, random_state=i) for i in range(3)}


def fit(sites, *arguments, policy=None, **options):
    return LogRank(*arguments, **options).fit(mc.Federation.in_process(sites, policy=policy))


def a_site(data, masked=False, least=10):
    part = LogRankSite("lyon", data)
    d = len(data.columns)
    part.masked, part.least_behind = masked, least
    first = np.zeros(d + 1, dtype=np.int64)
    part.agree(Prepared(data.columns, "", 1, 1e3, 1e2, np.array([1e12]), np.zeros(d), np.ones(d), np.zeros(0), first))
    return part


def compared(column, **changes):
    fields = {
        "columns": (column, column),
        "levels": np.array([0.0, 1.0]),
        "causes": np.array([1]),
        "weights": "logrank",
        "rho": 1.0,
        "gamma": 0.0,
    }
    return Compared(**{**fields, **changes})


@pytest.mark.parametrize("weights", maths.WEIGHTS)
def test_a_stratified_test_sums_the_sites_own(weights):
    sites = simulated()
    model = fit(sites, "x2", weights=weights)
    answers = [a_site(data, masked=True).sum_scores(compared("x2", weights=weights)) for data in sites.values()]
    scale = {"wilcoxon": 1e3 / 570, "tarone-ware": np.sqrt(1e3 / 570)}.get(weights, 1.0)
    np.testing.assert_allclose(model.score_, scale * sum(answer.score for answer in answers), atol=1e-6)
    np.testing.assert_allclose(model.expected_, sum(answer.expected for answer in answers), atol=1e-6)
    assert model.observed_.tolist() == sum(answer.observed for answer in answers).tolist()


def test_strata_see_through_sites_that_differ():
    """Two sites with other hazards and other shares of the groups, which survive alike within each."""
    rng = np.random.default_rng(0)
    sites = {}
    for name, scale, share in [("a", 5.0, 0.8), ("b", 50.0, 0.2), ("c", 15.0, 0.5)]:
        arm = (rng.uniform(size=400) < share).astype(float)
        time, end = rng.exponential(scale, 400), rng.uniform(0, 60, 400)
        sites[name] = mc.data.SurvivalData(arm[:, None], np.minimum(time, end), time <= end, columns=["arm"])
    assert fit(sites, "arm", stratify_by_site=False).p_value_ < 1e-6
    assert fit(sites, "arm").p_value_ > 0.02


@pytest.mark.slow
def test_under_no_difference_p_values_are_uniform():
    rng = np.random.default_rng(3)
    values = []
    for _ in range(600):
        time, died, arm = rng.exponential(1.0, 90), rng.uniform(size=90) < 0.8, rng.integers(0, 3, 90)
        grid = np.unique(time[died])
        counts = count_table(time, died.astype(int), arm, grid, np.array([1]), 3)
        table = RiskTable(tuple("abc"), grid, *(count.astype(float) for count in counts), True)
        _, freedom, p_value = maths.chi_square(*maths.compare_groups(table.died, table.at_risk, np.ones(len(grid))))
        assert freedom == 2
        values.append(p_value)
    assert np.mean(np.array(values) < 0.05) == pytest.approx(0.05, abs=0.02)
    assert np.mean(values) == pytest.approx(0.5, abs=0.04)


def test_weights_change_the_scale_and_not_the_test():
    rng = np.random.default_rng(1)
    events, at_risk = rng.integers(0, 3, (2, 9)).astype(float), np.cumsum(np.full((2, 9), 5.0), axis=1)[:, ::-1]
    tests = [
        maths.chi_square(
            *maths.compare_groups(events, at_risk, maths.weigh_times(events, at_risk, "wilcoxon", scale=s))
        )
        for s in (1.0, 90.0)
    ]
    assert tests[0][0] == pytest.approx(tests[1][0])


def test_a_stratum_compares_all_its_groups_and_rests_on_the_smallest():
    rng = np.random.default_rng(2)
    arm = np.repeat([0.0, 1.0, 2.0], [60, 60, 4])
    data = mc.data.SurvivalData(arm[:, None], rng.exponential(5.0, 124), np.ones(124), columns=["arm"])
    request = compared("arm", columns=("arm",) * 3, levels=np.arange(3.0))
    unmasked, masked = a_site(data).sum_scores(request), a_site(data, masked=True).sum_scores(request)
    assert unmasked.sizes.tolist() == masked.sizes.tolist() == [60, 60, 4]
    assert (unmasked.patients, masked.patients) == (4, 124)
    np.testing.assert_array_equal(unmasked.score, masked.score)
    assert unmasked.score[2] != 0.0


@pytest.mark.parametrize(("n_events", "behind"), [(0, 40), (1, 1), (4, 2), (60, 30)])
def test_a_stratum_rests_on_its_events_where_it_has_some(n_events, behind):
    arm = np.tile([0.0, 1.0], 40)
    data = mc.data.SurvivalData(arm[:, None], np.arange(1.0, 81.0), np.arange(80) < n_events, columns=["arm"])
    answer = a_site(data).sum_scores(compared("arm"))
    assert answer.patients == behind
    assert answer.sizes.sum() == 80
    assert answer.covariance.any() == bool(n_events)


@pytest.mark.parametrize(
    "changes",
    [{"weights": "mine"}, {"rho": -1.0}, {"gamma": 1e3}, {"causes": np.array([1, 2])}, {"levels": np.zeros(2)}],
    ids=str,
)
def test_a_test_that_is_none_is_refused_at_the_site(changes):
    with pytest.raises(ConfigurationError):
        a_site(simulated()["site-0"]).sum_scores(compared("x2", **changes))


def test_a_site_compares_once():
    part = a_site(simulated()["site-0"])
    part.sum_scores(compared("x2"))
    with pytest.raises(ConfigurationError, match="other groups"):
        part.sum_scores(compared("x2", weights="wilcoxon"))


@pytest.mark.parametrize(
    "unfit",
    [
        {"weights": "mine"},
        {"rho": -1.0},
        {"group": None},
        {"group": "nothing"},
        {"times": "exact"},
        {"n_times": 20},
        {"times": "exact", "stratify_by_site": False, "n_times": 20},
        {"rho": 0.5},
    ],
    ids=str,
)
def test_options_that_are_none_are_refused(unfit):
    with pytest.raises(ConfigurationError):
        fit(simulated(), **{"group": "x2", **unfit})


@pytest.mark.parametrize("by_site", [False, True])
def test_one_group_is_nothing_to_compare(by_site):
    data = mc.data.SurvivalData(np.ones((40, 1)), np.arange(40.0), np.tile([0, 1], 20), columns=["stage=I"])
    with pytest.raises(DataError, match="fewer than two groups"):
        fit({"a": data}, "stage", stratify_by_site=by_site, policy=OPEN)


def test_a_group_that_is_absent_at_a_site_is_compared_elsewhere():
    sites = simulated()
    data = sites["site-0"]
    sites["site-0"] = data.take(np.flatnonzero(data.X[:, 2] == 0))
    for by_site in (False, True):
        model = fit(sites, "x2", stratify_by_site=by_site)
        assert model.degrees_of_freedom_ == 1
        assert np.isfinite(model.p_value_)


def test_strata_need_no_permission_and_send_no_times():
    federation = mc.Federation.in_process(simulated(), secure_sum=False)
    model = LogRank("x2").fit(federation)
    asked = {entry["step"] for ledger in federation.ledgers.values() for entry in ledger.entries}
    assert asked <= model.planned_steps()
    assert not asked & {"count_times", "tell_times", "sum_table"}
    left = {field["field"] for entry in federation.ledgers["site-0"].entries for field in entry.get("fields", [])}
    assert {"score", "covariance"} <= left


@pytest.mark.parametrize("by_site", [False, True])
def test_a_saved_test_is_the_same_and_is_shown(tmp_path, by_site):
    model = fit(simulated(), "x2", stratify_by_site=by_site)
    model.save(tmp_path)
    back = LogRank.load(tmp_path)
    assert (back.statistic_, back.p_value_, back.groups_) == (model.statistic_, model.p_value_, ("0", "1"))
    (table,) = back.figures({}, {})
    assert isinstance(table, Table)
    assert len(table.columns) == len(table.rows[0]) == 4
    assert "with 1 degree of freedom" in table.caption
    assert back.assess(simulated()["site-0"]) == {}


def test_later_events_do_not_count():
    sites = simulated()
    cut = {
        name: mc.data.SurvivalData(
            d.X, np.minimum(d.time, 12.0), np.where(d.time <= 12.0, d.event, 0), columns=d.columns
        )
        for name, d in sites.items()
    }
    one = fit(sites, "x2", horizon=12.0)
    assert one.statistic_ == pytest.approx(fit(cut, "x2").statistic_)
