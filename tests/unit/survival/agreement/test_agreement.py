import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import multicentre as mc
from multicentre.data.survival import SurvivalData
from multicentre.federation.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    RefusedByPolicy,
    SchemaMismatch,
)
from multicentre.federation.messages import Nothing
from multicentre.survival.agreement.messages import About, Agreed, OfCause, Scale, Typical
from multicentre.survival.agreement.patients import Patients
from multicentre.survival.agreement.rounds import Needs, agree, steps_of_agreement
from multicentre.survival.agreement.site import check_grid_is_coarse, fewest_different
from multicentre.survival.agreement.sketch import time_edges
from multicentre.survival.times.joining import find_places, join_small, joined_bins
from survival_sites import EXACT, ProbePart, agreed_on, draw_patients, shared_out

pytestmark = pytest.mark.filterwarnings("ignore:the median follow-up of:UserWarning")


def assert_same(one, other):
    for name in Agreed.declarations():
        if name != "masked":
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


class TestTheSameForAnySplit:
    data = draw_patients(400)
    pooled, _ = agreed_on({"all": data}, policy=EXACT)

    @pytest.mark.parametrize("by", ["chance", "time"])
    @pytest.mark.parametrize("secure", [False, True])
    @pytest.mark.parametrize("n_sites", [2, 7])
    def test_sums_do_not_tell_sites_apart(self, by, secure, n_sites):
        agreed, _ = agreed_on(shared_out(self.data, n_sites, by=by), policy=EXACT, secure_sum=secure)
        assert_same(agreed, self.pooled)

    def test_scales_are_those_of_the_patients(self):
        X = self.data.X
        np.testing.assert_allclose(self.pooled.centre, X.mean(axis=0), rtol=1e-4)
        np.testing.assert_allclose(self.pooled.spread, X.std(axis=0), rtol=1e-4)
        assert self.pooled.n_patients == 400
        assert self.pooled.n_events == (self.data.event == 1).sum()

    def test_the_grid_lies_at_quantiles_of_the_events(self):
        horizon = self.pooled.times[-1]
        assert np.mean(self.data.time <= horizon) == pytest.approx(0.95, abs=0.01)
        events = self.data.time[(self.data.event == 1) & (self.data.time <= horizon)]
        inside = np.histogram(events, np.concatenate([[0.0], self.pooled.times]))[0]
        assert len(self.pooled.times) == 64
        assert inside.max() <= 3 * len(events) / 64

    def test_thresholds_divide_the_patients(self):
        counts = np.bincount(np.searchsorted(self.pooled.edges_of(0), self.data.X[:, 0]))
        assert len(counts) == self.pooled.n_bins[0] > 50
        assert counts.max() < 20
        assert self.pooled.n_bins[1] == 2

    def test_missing_values_are_left_out_of_the_scales_and_filled_by_the_mean(self):
        X = self.data.X.copy()
        X[::3, 0] = np.nan
        holed = SurvivalData(X, self.data.time, self.data.event)
        agreed, _ = agreed_on(shared_out(holed, 3), policy=EXACT)
        assert agreed.centre[0] == pytest.approx(np.nanmean(X[:, 0]), rel=1e-5)
        part = ProbePart("one", holed)
        part.agree(agreed)
        assert (part.patients.rows[::3, 0] == agreed.centre[0]).all()
        assert not np.isnan(part.patients.rows).any()


class TestInClearUnderAMinimum:
    def test_no_count_of_few_patients_leaves(self):
        part = ProbePart("one", draw_patients(120))
        part.least_behind = 10
        counts = part.count_times(OfCause(1))
        for row in (counts.events, counts.leaving):
            assert row[row > 0].min() >= 10
        assert counts.leaving.sum() == 120
        assert min(counts.patients.values()) >= 10
        assert counts.patients.keys() == counts.declarations().keys()

    def test_a_rare_column_is_flat_at_the_site(self):
        data = draw_patients(100)
        rare = SurvivalData(np.column_stack([data.X, np.arange(100) < 3]), data.time, data.event)
        part = ProbePart("one", rare)
        part.least_behind = 10
        assert part.sum_sizes(OfCause(1)).total[3] == 0.0
        part.masked = True
        assert part.sum_sizes(OfCause(1)).total[3] == 3.0

    def test_an_agreement_for_masks_does_not_serve_answers_in_clear(self):
        data = draw_patients(100)
        rare = SurvivalData(np.column_stack([data.X, np.arange(100) < 3]), data.time, data.event)
        agreed, _ = agreed_on(shared_out(rare, 3), secure_sum=True)
        part = ProbePart("one", rare)
        part.least_behind = 10
        part.agree(agreed)
        assert part.behind() == 3
        part.masked = True
        assert part.behind() == 100

    def test_a_value_few_patients_have_is_missing_there(self):
        data = draw_patients(100)
        X = data.X.copy()
        X[4:, 2] = np.nan
        part = ProbePart("one", SurvivalData(X, data.time, data.event))
        part.least_behind = 10
        assert part.sum_sizes(OfCause(1)).present[2] == 0.0

    def test_fewer_patients_than_the_minimum_are_refused(self):
        with pytest.raises(DisclosureRefused, match="fewer than 10"):
            agreed_on({"a": draw_patients(8), "b": draw_patients(50)})


rows_of_counts = st.lists(st.integers(0, 30), min_size=1, max_size=40)


@given(rows_of_counts, st.integers(0, 25), st.booleans())
def test_joined_counts_hold_enough_or_none(counts, least, middle):
    row = np.array(counts, dtype=float)
    joined = join_small(row, least, middle=middle)
    assert least <= 1 or not ((joined > 0) & (joined < least)).any()
    assert joined.sum() == (row.sum() if row.sum() >= least or least <= 1 else 0)


@given(rows_of_counts, st.integers(2, 25))
def test_places_are_ends_of_halves_or_cells_of_enough(counts, least):
    places = find_places(np.array([counts]), least)
    for place in set(places[np.array(counts) > 0].tolist()) - {-1}:
        assert counts[place] >= least or place % 2 == 1 or place == len(counts) - 1


def test_a_few_late_ones_do_not_move_the_many():
    counts = np.zeros(256)
    counts[40:60], counts[255] = 5.0, 1.0
    places = find_places(counts[None], 10)
    assert abs(places[40:60] - np.arange(40, 60)).max() <= 3
    assert places[255] == places[59]


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=60), st.integers(0, 12))
def test_joined_patients_leave_in_company(patients, least):
    bins = np.array([place for place, _ in patients], dtype=np.int64)
    happened = np.array([event for _, event in patients], dtype=np.bool_) & (bins < 12)
    moved, kept = joined_bins(bins, happened, 12, least)
    leaving, events = np.bincount(moved, minlength=13), np.bincount(moved[kept], minlength=13)
    if least > 1:
        assert not ((leaving[:12] > 0) & (leaving[:12] < least)).any()
        assert not ((events > 0) & (events < least)).any()
    assert events[12] == 0
    assert (kept <= happened).all()


def test_no_place_tells_a_recorded_day():
    rng = np.random.default_rng(0)
    shown = set()
    for _ in range(20):
        times = np.sort(rng.choice(np.arange(1, 257), 40, replace=False)) + 0.0
        data = SurvivalData(np.zeros((40, 1)), times, np.ones(40))
        agreed, _ = agreed_on({"a": data}, Needs(times=np.arange(1.0, 257.0)))
        patients = Patients(data, agreed, 10)
        assert np.bincount(patients.bins, minlength=256)[np.unique(patients.bins)].min() >= 10
        shown |= set(np.unique(patients.bins).tolist())
    assert all((place + 1) % 2 == 0 for place in shown)


class TestExactTimes:
    def test_they_are_refused_unless_the_policy_permits(self):
        with pytest.raises(RefusedByPolicy, match="exact_times"):
            agreed_on(shared_out(draw_patients(90), 3), Needs(exact=True), secure_sum=True)

    def test_they_are_all_times_of_events(self):
        data = draw_patients(90)
        policy = mc.Policy(exact_times=True)
        agreed, _ = agreed_on(shared_out(data, 3), Needs(exact=True), secure_sum=True, policy=policy)
        np.testing.assert_array_equal(agreed.times, np.unique(data.time[data.event == 1]))

    def test_one_site_that_does_not_permit_is_enough(self):
        policies = {f"site-{i}": mc.Policy(exact_times=i != 1) for i in range(3)}
        with pytest.raises(RefusedByPolicy, match="site-1"):
            agreed_on(shared_out(draw_patients(90), 3), Needs(exact=True), policy=policies)


class TestBadInput:
    def test_columns_differ(self):
        a, b = draw_patients(50), draw_patients(50)
        other = SurvivalData(b.X, b.time, b.event, columns=["age", "sex", "stage"], unit="months")
        with pytest.raises(SchemaMismatch, match=r"site b.*marker, stage"):
            agreed_on({"a": a, "b": other})

    def test_units_differ_by_name(self):
        a, b = draw_patients(50), draw_patients(50)
        other = SurvivalData(b.X, b.time, b.event, columns=b.columns, unit="days")
        with pytest.raises(SchemaMismatch, match=r"site b.*'days'"):
            agreed_on({"a": a, "b": other})

    @pytest.mark.filterwarnings("default:the median follow-up of:UserWarning")
    def test_units_differ_by_a_factor(self, caplog):
        a, b, c = (draw_patients(60, seed=seed) for seed in range(3))
        days = SurvivalData(c.X, c.time * 30.4, c.event, columns=c.columns, unit="months")
        with pytest.warns(UserWarning, match="1 of 3 sites differs tenfold"):
            agreed_on({"a": a, "b": b, "c": days})
        assert [record.name for record in caplog.records] == ["multicentre.site.c"]

    def test_nobody_has_an_event(self):
        data = draw_patients(50)
        with pytest.raises(DataError, match="no patient of any site has an event"):
            agreed_on({"a": SurvivalData(data.X, data.time, np.zeros(50))})

    def test_a_site_all_censored_takes_part(self):
        data = draw_patients(60)
        agreed, _ = agreed_on({"a": data, "b": SurvivalData(data.X, data.time, np.zeros(60), columns=data.columns,
                                                             unit="months")}, policy=EXACT)  # fmt: skip
        assert agreed.n_patients == 120

    def test_a_column_nobody_has(self):
        data = draw_patients(50)
        empty = SurvivalData(np.column_stack([data.X[:, 0], np.full(50, np.nan)]), data.time, data.event)
        with pytest.raises(DataError, match="columns x1"):
            agreed_on({"a": empty})

    def test_a_constant_column_has_spread_one_and_one_bin(self):
        data = draw_patients(50)
        flat = SurvivalData(np.column_stack([data.X[:, 0], np.full(50, 7.0)]), data.time, data.event)
        agreed, _ = agreed_on({"a": flat})
        assert agreed.spread[1] == 1.0
        assert agreed.n_bins[1] == 1

    def test_a_second_agreement_in_a_session_is_refused(self):
        agreed, _ = agreed_on({"a": draw_patients(50)})
        part = ProbePart("a", draw_patients(50))
        part.agree(agreed)
        part.agree(agreed)
        other, _ = agreed_on({"a": draw_patients(50)}, Needs(n_times=8))
        with pytest.raises(ConfigurationError, match="agreed on something else"):
            part.agree(other)

    def test_a_second_question_about_the_columns_must_be_the_first_again(self):
        part = ProbePart("a", draw_patients(50))
        scale = Scale(np.zeros(3), np.ones(3))
        np.testing.assert_array_equal(part.count_columns(scale).counts, part.count_columns(scale).counts)
        with pytest.raises(ConfigurationError, match="another ask"):
            part.count_columns(Scale(np.zeros(3), np.full(3, 1.001)))
        part.sum_squares(About(np.zeros(3)))
        with pytest.raises(ConfigurationError, match="another ask"):
            part.sum_squares(About(np.ones(3)))

    def test_steps_that_answer_the_same_take_the_same_question_once_together(self):
        part = ProbePart("a", draw_patients(50))
        part.count_times(OfCause(1))
        with pytest.raises(ConfigurationError, match="another ask"):
            part.sum_sizes(OfCause(2))
        part.compare_units(Typical(np.zeros(3), 20.0))
        with pytest.raises(ConfigurationError, match="another ask"):
            part.sum_squares(About(np.ones(3)))
        with pytest.raises(ConfigurationError, match="another ask"):
            part.compare_units(Typical(np.zeros(3), 21.0))

    def test_nothing_was_agreed(self):
        with pytest.raises(ConfigurationError, match="agreed on nothing"):
            _ = ProbePart("a", draw_patients(50)).patients

    def test_a_grid_too_fine_for_learners(self):
        with pytest.raises(ConfigurationError, match="257 times"):
            check_grid_is_coarse(np.arange(257.0))


@pytest.mark.parametrize(
    "needs", [Needs(), Needs(n_bins=16), Needs(times=np.array([5.0, 20.0])), Needs(exact=True), Needs(horizon=12.0)]
)
def test_the_steps_asked_are_those_named(needs):
    federation = mc.Federation.in_process(shared_out(draw_patients(120), 3), policy=mc.Policy(0, exact_times=True))
    handle = federation.begin(ProbePart)
    agreed = agree(handle, ProbePart, needs)
    asked = {entry["step"] for entry in federation.ledgers["site-0"].entries if entry["event"] == "release"}
    assert asked == steps_of_agreement(needs)
    if needs.times is not None:
        np.testing.assert_array_equal(agreed.times, needs.times)
    if needs.horizon:
        assert agreed.times[-1] == 12.0


def test_the_fewest_who_differ():
    assert fewest_different(np.array([[1.0, 5.0], [1.0, 5.0], [2.0, 5.0]])) == 1
    assert fewest_different(np.full((4, 2), 3.0)) == 4


def test_bins_of_times_are_a_third_of_a_percent_wide():
    assert np.allclose(np.diff(np.log(time_edges())), np.log(1e12) / 8191)


def test_columns_are_named_without_a_patient():
    part = ProbePart("a", draw_patients(20))
    assert part.describe(Nothing()).columns == ("age", "sex", "marker")
