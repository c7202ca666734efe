"""What a site lets a coordinator ask who is out to learn of one patient."""

from dataclasses import replace

import numpy as np
import pytest

from multicentre.core.wire import decode, encode
from multicentre.errors import ConfigurationError
from multicentre.phenotyping.outcome.maths import score_edges
from multicentre.phenotyping.outcome.messages import Model, PatientSubset, Prepare, SiteMemory
from multicentre.phenotyping.outcome.site import OutcomeSite
from support.event_sites import simulate_events

DRAWN = simulate_events(360, seed=5)
SITE = DRAWN.sites(3)["site-0"]
LARGE = simulate_events(1200, seed=5).tensor
ASK = Prepare(DRAWN.tensor.codes, DRAWN.factors, nonnegative=True, test_size=0.0, seed=0, n_bins=200)


def prepared(data=SITE, **changes):
    part = OutcomeSite("site-0", data)
    part.prepare(replace(ASK, **changes))
    return part


def model_of(part, coefficients=(-0.5, 0.5, 0.0, 0.0), *, everyone=False):
    rows = part.memory.memberships
    return Model(everyone, np.array(coefficients), rows.mean(axis=0), rows.std(axis=0))


class TestTheSplit:
    @pytest.mark.parametrize("change", [{"test_size": 0.4}, {"seed": 1}, {"n_bins": 100}])
    def test_a_part_is_prepared_once(self, change):
        part = prepared()
        part.prepare(ASK)
        with pytest.raises(ConfigurationError, match="the preparation must be the same"):
            part.prepare(replace(ASK, **change))

    def test_a_part_that_was_restored_keeps_to_what_it_was_prepared_for(self):
        part, again = prepared(test_size=0.4), OutcomeSite("site-0", SITE)
        model = model_of(part)
        part.count_scores(model)
        again.state = decode(SiteMemory, encode(part.state))
        again.count_scores(model)
        for refused in (lambda: again.prepare(ASK), lambda: again.count_scores(model_of(part, (0.0, 1.0, 0.0, 0.0)))):
            with pytest.raises(ConfigurationError):
                refused()

    def test_two_shares_never_differ_by_a_few_patients(self):
        held_out = [prepared(test_size=share).memory.held_out for share in (0.0, 0.011, 0.049, 0.1, 0.2, 0.3, 0.9)]
        for one in held_out:
            for other in held_out:
                assert (one != other).sum() == 0 or (one != other).sum() >= 10

    @pytest.mark.parametrize("share", [-0.1, 0.96, 7.0])
    def test_shares_that_leave_nobody_are_refused(self, share):
        with pytest.raises(ConfigurationError, match="test_size"):
            prepared(test_size=share)

    def test_few_held_out_patients_count_whichever_sum_is_asked(self):
        few = prepared(test_size=0.1)
        n_held_out = few.memory.held_out.sum()
        for everyone in (False, True):
            assert few.sum_moments(PatientSubset(everyone)).patients < n_held_out < 15
            assert few.sum_derivatives(model_of(few, everyone=everyone)).patients < n_held_out
        assert prepared(LARGE).sum_moments(PatientSubset(True)).patients > n_held_out

    def test_the_draw_follows_from_the_data_of_the_site(self):
        again = prepared(test_size=0.4).memory.held_out
        assert (prepared(test_size=0.4).memory.held_out == again).all()
        swapped = SITE.take([1, 0, *range(2, len(SITE))])
        assert (prepared(swapped, test_size=0.4).memory.held_out[2:] != again[2:]).any()


class TestTheModel:
    @pytest.mark.parametrize("name", ["centre", "spread"])
    def test_a_scale_stays_what_it_was(self, name):
        part = prepared(test_size=0.4)
        model = model_of(part)
        part.sum_derivatives(model)
        part.sum_derivatives(replace(model, coefficients=np.array([0.1, 0.2, 0.3, 0.4])))
        other = replace(model, **{name: 1.01 * getattr(model, name)})
        for step in (part.sum_derivatives, part.count_scores, part.compute_site_auc):
            with pytest.raises(ConfigurationError, match="must be the same in every request"):
                step(other)
        part.sum_derivatives(replace(other, everyone=True))

    @pytest.mark.parametrize("size", [1e-9, 5e-4, 0.0, -1.0])
    def test_a_spread_far_below_the_memberships_is_refused(self, size):
        part = prepared()
        lengths = np.sqrt((part.memory.memberships**2).mean(axis=0))
        with pytest.raises(ConfigurationError, match="spread"):
            part.sum_derivatives(replace(model_of(part), spread=size * lengths))
        part.sum_derivatives(replace(model_of(part), spread=2e-3 * lengths))

    def test_coefficients_above_a_thousand_are_refused(self):
        part = prepared(test_size=0.4)
        for step in (part.sum_derivatives, part.count_scores, part.compute_site_auc):
            with pytest.raises(ConfigurationError, match="coefficients must be at most 1000"):
                step(model_of(part, (0.0, -1001.0, 0.0, 0.0)))

    def test_a_step_between_two_patients_rests_on_few_and_the_guard_hears_it(self):
        part = prepared()
        n_members = part.sum_moments(PatientSubset(False)).patients
        rows = part.memory.memberships
        z = np.sort((rows[:, 0] - rows[:, 0].mean()) / rows[:, 0].std())
        middle = (z[70] + z[71]) / 2
        assert part.sum_derivatives(model_of(part, (-900.0 * middle, 900.0, 0.0, 0.0))).patients < 10
        assert part.sum_derivatives(model_of(part)).patients == n_members

    def test_everyone_less_the_training_patients_rests_on_those_held_out(self):
        part = prepared(LARGE, test_size=0.4)
        chosen = [(-50.0 * t, 50.0, 0.0, 0.0) for t in np.linspace(0.0, 3.0, 40)]
        told = [
            [part.sum_derivatives(model_of(part, one, everyone=everyone)).patients for everyone in (False, True)]
            for one in chosen
        ]
        assert all(whole <= training for training, whole in told)
        assert any(whole < training for training, whole in told)


class TestScores:
    def test_held_out_patients_are_scored_by_one_model(self):
        part = prepared(test_size=0.4)
        model = model_of(part)
        part.compute_site_auc(model)
        part.count_scores(model)
        for step in (part.compute_site_auc, part.count_scores):
            with pytest.raises(ConfigurationError, match="coefficients"):
                step(model_of(part, (-0.5, 0.6, 0.0, 0.0)))

    @pytest.mark.parametrize("n_bins", [0, 1, 2**14 + 1, 10**6])
    def test_bins_are_two_to_the_fourteenth_at_most(self, n_bins):
        with pytest.raises(ConfigurationError, match="n_bins"):
            prepared(n_bins=n_bins)

    def test_counts_are_a_histogram_and_rest_on_the_smallest_bin(self):
        part = prepared(test_size=0.4, n_bins=50)
        model = model_of(part)
        counts = part.count_scores(model)
        z = (part.memory.memberships - model.centre) / model.spread
        scores = model.coefficients[0] + z @ model.coefficients[1:]
        edges = [-np.inf, *score_edges(model.coefficients, 50), np.inf]
        for outcome, found in ((1, counts.with_outcome), (0, counts.without)):
            here = part.memory.held_out & (SITE.outcomes == outcome)
            np.testing.assert_array_equal(found, np.histogram(scores[here], bins=edges)[0])
        cells = np.concatenate([counts.with_outcome, counts.without])
        assert counts.patients == cells[cells > 0].min()
        part.masked = True
        assert part.count_scores(model).patients == part.memory.held_out.sum()
