"""Counting patients by group, outcome and time, and what leaves a site of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError, RefusedByPolicy
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.curves.kaplan_meier.estimator import KaplanMeierSite
from multicentre.survival.curves.tables.groups import check_groups, find_groups, find_members
from multicentre.survival.curves.tables.risk import RiskTable, count_table
from multicentre.survival.curves.tables.rounds import asks_exactly, needs_of
from multicentre.survival.curves.tables.site import ByGroup, TableMemory

times = st.lists(st.integers(0, 12), min_size=1, max_size=60)


def table_of(time, event, grid, group=None, causes=(1,), n_groups=1, exact=True):
    group = np.zeros(len(time), dtype=np.int64) if group is None else group
    events, leaving = count_table(np.asarray(time, float), np.asarray(event), group, grid, np.array(causes), n_groups)
    return RiskTable(tuple("abc"[:n_groups]), grid, events.astype(float), leaving.astype(float), exact)


@given(times, st.data())
def test_numbers_at_risk_are_those_of_the_patients(time, data):
    time = np.array(time, dtype=float)
    event = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(time), max_size=len(time))))
    if not (event == 1).any():
        return
    grid = np.unique(time[event == 1])
    table = table_of(time, event, grid)
    np.testing.assert_array_equal(table.at_risk[0], [(time >= t).sum() for t in grid])
    np.testing.assert_array_equal(table.died[0], [((time == t) & (event == 1)).sum() for t in grid])
    np.testing.assert_array_equal(table.count_at(grid)[0], table.at_risk[0])
    before = np.concatenate([[-1.0], grid[:-1]])
    np.testing.assert_array_equal(table.entering[0], [(time > t).sum() for t in before])


def test_those_who_leave_between_two_times_of_a_coarse_grid_count_half():
    table = table_of([1.0, 1.5, 2.0, 2.0, 5.0], [1, 0, 0, 1, 1], np.array([2.0, 4.0]), exact=False)
    assert table.at_risk.tolist() == [[4.5, 1.0]]
    assert table.censored.tolist() == [[2.0, 0.0]]
    assert table.count_at(np.array([0.0, 2.0, 3.0, 9.0])).tolist() == [[5.0, 2.0, 1.0, 1.0]]


def test_groups_by_a_category():
    columns = ("age", "stage=I", "stage=II", "stages=x")
    found = find_groups("stage", None, columns)
    assert found.labels == ("I", "II")
    X = np.array([[50.0, 1.0, 0.0, 0.0], [60.0, 0.0, 0.0, 0.0], [np.nan, 0.0, 1.0, 0.0]])
    assert find_members(X, columns, found.columns, np.array(found.levels)).tolist() == [0, -1, 1]


@pytest.mark.parametrize("group", ["weight", "stage=III", ""])
def test_an_unknown_column_is_named(group):
    with pytest.raises(ConfigurationError, match="must be a column or category"):
        find_groups(group, None, ("age", "stage=I"))
    with pytest.raises(ConfigurationError, match="must be a column or category"):
        find_members(np.zeros((2, 1)), ["age"], [group], np.ones(1))


@pytest.mark.parametrize(
    ("columns", "values", "reason"),
    [
        (
            ["sex", "sex"],
            [[0.0], [2.0]],
            "'sex' is a column of numbers, not a category, and some patients have a number",
        ),
        (["a", "b"], [[1.0, 1.0], [0.0, 1.0]], "got some patients in two"),
    ],
)
def test_a_value_that_makes_no_group_is_refused_without_telling_whose(columns, values, reason):
    levels = np.array([0.0, 1.0]) if columns[0] == "sex" else np.ones(2)
    with pytest.raises(DataError, match=reason) as caught:
        find_members(np.array(values), list(dict.fromkeys(columns)), columns, levels)
    assert "2" not in caught.value.what


def test_too_many_groups_are_refused():
    with pytest.raises(ConfigurationError, match="at most 32 levels"):
        check_groups(["age"] * 40, np.arange(40.0))
    with pytest.raises(ConfigurationError, match="levels must be different"):
        check_groups(["age"] * 2, np.zeros(2))


@pytest.mark.parametrize(
    "unfit",
    [
        {"times": "daily"},
        {"times": [3.0, 2.0]},
        {"times": [1.0], "horizon": 3.0},
        {"horizon": -1.0},
        {"horizon": float("nan")},
        {"n_times": 1},
        {"n_times": 257},
        {"n_times": 3.5},
    ],
    ids=str,
)
def test_a_grid_that_is_none_is_refused(unfit):
    with pytest.raises(ConfigurationError):
        needs_of(**{"times": None, "n_times": 64, "horizon": None, "cause": 1, **unfit})


def test_more_times_than_a_coarse_grid_has_are_exact_ones():
    assert not asks_exactly(None)
    assert not asks_exactly(np.arange(256.0))
    assert asks_exactly(np.arange(257.0))


def a_site(data, grid, masked=False, least=10):
    part = KaplanMeierSite("lyon", data)
    n_columns = len(data.columns)
    agreed = Prepared(
        data.columns, "", 1, 1e3, 1e2, grid, np.zeros(n_columns), np.ones(n_columns), np.zeros(0),
        np.zeros(n_columns + 1, dtype=np.int64),
    )  # fmt: skip
    part.masked, part.least_behind = masked, least
    part.agree(agreed)
    return part


def everyone(causes=(1,)):
    return ByGroup((), np.zeros(0), np.array(causes))


DATA = mc.datasets.simulate_survival(300, random_state=3)
DAYS = np.linspace(0.05, 60.0, 1200)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("step", ["sum_table", "tell_table"])
def test_a_grid_as_fine_as_the_days_is_refused(step, masked):
    with pytest.raises(ConfigurationError, match="too fine"):
        getattr(a_site(DATA, DAYS, masked=masked), step)(everyone())


@pytest.mark.parametrize("secure", [False, True])
def test_recorded_times_need_the_policys_permission(secure):
    sites = {name: DATA.take(np.arange(start, start + 100)) for start, name in zip((0, 100, 200), "abc", strict=True)}
    policy = mc.Policy() if secure else mc.Policy(min_patients=0)
    federation = mc.Federation.in_process(sites, policy=policy, secure_sum=secure)
    for times in ("exact", DAYS):
        with pytest.raises(RefusedByPolicy, match="exact_times"):
            mc.survival.KaplanMeier(times=times).fit(federation)


def test_an_unmasked_table_is_exact_and_rests_on_its_smallest_cell():
    grid = np.linspace(0.2, 50.0, 5)
    part, counts = a_site(DATA, grid), count_table(DATA.time, DATA.event, np.zeros(300, int), grid, np.array([1]), 1)
    for table in (part.tell_table(everyone()), a_site(DATA, grid, least=1).sum_table(everyone())):
        np.testing.assert_array_equal(table.events, counts[0])
        np.testing.assert_array_equal(table.leaving, counts[1])
        assert table.patients == min(cell for each in counts for cell in each.ravel() if cell)
    assert a_site(DATA, grid, masked=True).sum_table(everyone()).patients == 300


@pytest.mark.parametrize("n_unknown", [0, 1, 40])
def test_patients_in_no_group_are_a_cell_of_the_table(n_unknown):
    arm = np.where(np.arange(90) < n_unknown, np.nan, np.arange(90) % 2)
    data = mc.data.SurvivalData(arm[:, None], np.full(90, 5.0), np.ones(90), columns=["arm"])
    request = ByGroup(("arm", "arm"), np.array([0.0, 1.0]), np.array([1]))
    assert a_site(data, np.array([5.0])).sum_table(request).patients == min(
        filter(None, [n_unknown, 45 - n_unknown // 2])
    )


def test_a_site_answers_for_one_grouping():
    part = a_site(DATA, np.array([10.0, 20.0]))
    first = part.sum_table(everyone())
    again = part.sum_table(everyone())
    np.testing.assert_array_equal(first.events, again.events)
    assert isinstance(part.state, TableMemory)
    with pytest.raises(ConfigurationError, match="other groups"):
        part.sum_table(ByGroup(("x2", "x2"), np.array([0.0, 1.0]), np.array([1])))
    with pytest.raises(ConfigurationError, match="other groups"):
        part.tell_table(everyone((2,)))


@pytest.mark.parametrize("causes", [(), (0,), (1, 1), (-1,), tuple(range(1, 40))], ids=str)
def test_causes_that_are_none_are_refused(causes):
    with pytest.raises(ConfigurationError, match="causes"):
        a_site(DATA, np.array([10.0])).sum_table(ByGroup((), np.zeros(0), np.array(causes, dtype=np.int64)))


def test_a_site_that_agreed_on_nothing_answers_nothing():
    with pytest.raises(ConfigurationError, match="must have an agreement"):
        KaplanMeierSite("lyon", DATA).sum_exact_table(everyone())
