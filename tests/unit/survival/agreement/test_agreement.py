import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.data.records import fewest_different
from multicentre.data.screening import DataWarning
from multicentre.data.survival import SurvivalData
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    RefusedByPolicy,
    SchemaMismatch,
)
from multicentre.survival.agreement.messages import About, OfCause, Prepared, Scale, Typical
from multicentre.survival.agreement.rounds import Needs, agree, steps_of_agreement
from multicentre.survival.agreement.site import check_grid_is_coarse
from multicentre.survival.agreement.sketch import time_edges
from support.survival_sites import EXACT, ProbePart, agreed_on, draw_patients, shared_out

pytestmark = pytest.mark.filterwarnings("ignore:the median follow-up of:UserWarning")


def assert_same(one, other):
    for name in Prepared.declarations():
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


class TestUnmaskedUnderAMinimum:
    """What leaves is exact; how many patients stand behind its smallest cell is for the guard."""

    def part(self, data, *, masked=False):
        part = ProbePart("one", data)
        part.masked = masked
        return part

    @pytest.mark.parametrize("masked", [False, True])
    def test_counts_by_time_are_exact(self, masked):
        data = draw_patients(120)
        counts = self.part(data, masked=masked).count_times(OfCause(1))
        bins = np.searchsorted(time_edges(), data.time)
        np.testing.assert_array_equal(counts.leaving, np.bincount(bins, minlength=8193))
        np.testing.assert_array_equal(counts.events, np.bincount(bins[data.event == 1], minlength=8193))
        assert counts.patients == (120 if masked else 1)

    @pytest.mark.parametrize("n_rare", [3, 97])
    def test_a_rare_value_is_summed_and_counted(self, n_rare):
        data = draw_patients(100)
        rare = SurvivalData(np.column_stack([data.X, np.arange(100) < n_rare]), data.time, data.event)
        for masked in (False, True):
            part = self.part(rare, masked=masked)
            sizes = part.sum_sizes(OfCause(1))
            assert sizes.total[3] == n_rare
            assert {sizes.patients, part.sum_squares(About(np.zeros(4))).patients} == {100 if masked else 3}

    def test_a_value_few_patients_have_or_lack_is_summed_and_counted(self):
        data = draw_patients(100)
        for rows in (slice(4, None), slice(None, 4)):
            X = data.X.copy()
            X[:, 2] = 7.0
            X[rows, 2] = np.nan
            sizes = self.part(SurvivalData(X, data.time, data.event)).sum_sizes(OfCause(1))
            assert sizes.present[2] == (~np.isnan(X[:, 2])).sum()
            assert sizes.patients == 4

    def test_few_events_are_counted(self):
        data = draw_patients(100)
        few = SurvivalData(data.X, data.time, np.arange(100) < 6)
        sizes = self.part(few).sum_sizes(OfCause(1))
        assert sizes.n_events == sizes.patients == 6

    @pytest.mark.parametrize("least", [10, 11])
    def test_ten_patients_in_the_smallest_cell_are_enough_for_ten(self, least):
        """Times of ten patients each, events and a column of ten: answered for 10, refused for 11."""
        events, rare = np.arange(80) < 40, np.arange(80) % 8 == 0
        sites = {
            name: SurvivalData(np.column_stack([rare]), np.repeat(np.arange(1.0, 9.0), 10), events) for name in "ab"
        }
        options = {"secure_sum": False, "policy": mc.Policy(min_patients=least)}
        if least == 10:
            unmasked, _ = agreed_on(sites, **options)
            assert_same(unmasked, agreed_on(sites, policy=EXACT)[0])
            return
        with pytest.raises(DisclosureRefused, match=r"at least 11 patients.*secure_sum=True"):
            agreed_on(sites, **options)

    @pytest.mark.parametrize("cell", ["time", "column", "events"])
    def test_one_small_cell_is_refused_with_a_hint(self, cell):
        time, X, events = np.repeat([1.0, 2.0], 20), np.arange(40) % 2, np.arange(40) % 2
        if cell == "time":
            time[:9] = 3.0
        elif cell == "column":
            X = np.arange(40) < 9
        else:
            events = np.arange(40) < 9
        sites = {name: SurvivalData(X[:, None], time, events) for name in "ab"}
        with pytest.raises(DisclosureRefused, match=r"at least 10 patients.*secure_sum=True"):
            agreed_on(sites, secure_sum=False)
        agreed_on(sites)

    def test_fewer_patients_than_the_minimum_are_refused(self):
        with pytest.raises(DisclosureRefused, match="minimum of 10"):
            agreed_on({"a": draw_patients(8), "b": draw_patients(50)})


class TestExactTimes:
    def test_they_are_refused_unless_the_policy_permits(self):
        with pytest.raises(RefusedByPolicy, match="exact_times"):
            agreed_on(shared_out(draw_patients(90), 3), Needs(exact=True))

    def test_they_are_all_times_of_events(self):
        data = draw_patients(90)
        policy = mc.Policy(exact_times=True)
        agreed, _ = agreed_on(shared_out(data, 3), Needs(exact=True), policy=policy)
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

    def test_a_column_beyond_the_range_of_sums_is_named(self):
        a, b = (draw_patients(60, seed=seed) for seed in range(2))
        wide = SurvivalData(a.X * [1e6, *[1.0] * (a.X.shape[1] - 1)], a.time, a.event, columns=a.columns, unit=a.unit)
        with pytest.raises(DataError, match=rf"they are larger for {a.columns[0]}\. Use a larger unit"):
            agreed_on({"a": wide, "b": b})

    def test_nobody_has_an_event(self):
        data = draw_patients(50)
        with pytest.raises(DataError, match="at least one patient must have an event"):
            agreed_on({"a": SurvivalData(data.X, data.time, np.zeros(50))}, policy=EXACT)

    def test_a_site_all_censored_takes_part(self):
        data = draw_patients(60)
        agreed, _ = agreed_on({"a": data, "b": SurvivalData(data.X, data.time, np.zeros(60), columns=data.columns,
                                                             unit="months")}, policy=EXACT)  # fmt: skip
        assert agreed.n_patients == 120

    def test_a_column_nobody_has(self):
        data = draw_patients(50)
        with pytest.warns(DataWarning, match="x1: all entries of this site are missing"):
            empty = SurvivalData(np.column_stack([data.X[:, 0], np.full(50, np.nan)]), data.time, data.event)
        with pytest.raises(DataError, match="columns x1"):
            agreed_on({"a": empty}, policy=EXACT)

    def test_a_constant_column_has_spread_one_and_one_bin(self):
        data = draw_patients(50)
        flat = SurvivalData(np.column_stack([data.X[:, 0], np.full(50, 7.0)]), data.time, data.event)
        agreed, _ = agreed_on({"a": flat}, policy=EXACT)
        assert agreed.spread[1] == 1.0
        assert agreed.n_bins[1] == 1

    def test_a_second_agreement_in_a_session_is_refused(self):
        agreed, _ = agreed_on({"a": draw_patients(50)}, policy=EXACT)
        part = ProbePart("a", draw_patients(50))
        part.agree(agreed)
        part.agree(agreed)
        other, _ = agreed_on({"a": draw_patients(50)}, Needs(n_times=8), policy=EXACT)
        with pytest.raises(ConfigurationError, match="must be the same throughout"):
            part.agree(other)

    def test_a_second_question_about_the_columns_must_be_the_first_again(self):
        part = ProbePart("a", draw_patients(50))
        scale = Scale(np.zeros(3), np.ones(3))
        np.testing.assert_array_equal(part.count_columns(scale).counts, part.count_columns(scale).counts)
        with pytest.raises(ConfigurationError, match="must be identical"):
            part.count_columns(Scale(np.zeros(3), np.full(3, 1.001)))
        part.sum_squares(About(np.zeros(3)))
        with pytest.raises(ConfigurationError, match="must be identical"):
            part.sum_squares(About(np.ones(3)))

    def test_steps_that_answer_the_same_take_the_same_question_once_together(self):
        part = ProbePart("a", draw_patients(50))
        part.count_times(OfCause(1))
        with pytest.raises(ConfigurationError, match="must be identical"):
            part.sum_sizes(OfCause(2))
        part.compare_units(Typical(np.zeros(3), 20.0))
        with pytest.raises(ConfigurationError, match="must be identical"):
            part.sum_squares(About(np.ones(3)))
        with pytest.raises(ConfigurationError, match="must be identical"):
            part.compare_units(Typical(np.zeros(3), 21.0))

    def test_nothing_was_agreed(self):
        with pytest.raises(ConfigurationError, match="must have an agreement"):
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
    agreed, *_ = agree(handle, ProbePart, needs, "mean")
    entries = federation.ledgers["site-0"].entries
    asked = {entry["step"] for entry in entries if entry["event"] == "release" and entry["method"] == "probe"}
    assert asked == steps_of_agreement(needs) - {"handle_gaps", "add_indicators", "report_gaps"}
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
