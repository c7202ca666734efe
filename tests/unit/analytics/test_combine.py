"""Combinations of estimates: what is combined, what is left out and named, tables and forest plots."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import multicentre as mc
from multicentre.analytics import combine
from multicentre.errors import CombinationWarning, ConfigurationError
from multicentre.estimator.site_estimates import SiteEstimates

ESTIMATES, ERRORS = [0.1, 0.9, 0.4], [0.15, 0.2, 0.3]


def test_the_table_has_sites_means_and_a_new_site():
    combined = combine(ESTIMATES, ERRORS, sites=["lyon", "oslo", "turin"])
    frame = combined.to_frame()
    assert list(frame.index) == ["lyon", "oslo", "turin", "fixed effect", "random effects", "new site"]
    assert frame.loc["lyon", "upper"] == pytest.approx(0.1 + 1.959964 * 0.15)
    assert frame.loc["random effects", "estimate"] == combined.pooled.random.value
    assert frame["weight"][:3].sum() == pytest.approx(1.0)
    assert tuple(frame.loc["new site", ["lower", "upper"]]) == combined.pooled.prediction
    assert "3 sites; Q 10.24 (p = 0.006), I squared 77 %" in str(combined)


def test_a_site_without_an_estimate_is_named():
    estimates = SiteEstimates(
        ("age",), ("lyon", "oslo", "turin"), np.array([[0.1], [np.nan], [0.4]]), np.array([[0.1], [np.nan], [0.2]]),
        {"oslo": "too few patients"},
    )  # fmt: skip
    combined = combine(estimates)
    assert combined["age"].pooled.k == 2
    assert combined["age"].left_out == {"oslo": "too few patients"}
    assert np.isnan(combined["age"].to_frame().loc["oslo", "estimate"])
    assert "Without oslo: too few patients." in str(combined)
    assert estimates.to_frame().query("site == 'oslo'")["reason"].tolist() == ["too few patients"]


def test_one_estimate_and_none_have_no_heterogeneity():
    with pytest.warns(CombinationWarning, match="nothing to combine"):
        one = combine([0.3, np.nan], [0.1, 0.1])
    assert "nothing to combine" in str(one)
    assert np.isnan(one.pooled.prediction).all()
    assert one.pooled.random.value == 0.3
    assert np.isnan(one.pooled.q_p_value)
    assert np.isnan([one.pooled.i_squared, one.pooled.tau_squared, one.pooled.h_squared]).all()
    assert one.to_frame().loc["site 1", "weight"] == 1.0
    assert one.left_out == {"site 2": "no estimate with a standard error"}
    none = combine([np.nan], [np.nan])
    assert np.isnan(none.to_frame()["estimate"]).all()
    assert "0 sites with an estimate" in str(none)
    with pytest.raises(ConfigurationError, match="at least two sites"):
        one.leave_one_out()


def test_leave_one_out_names_the_site_that_is_left_out():
    frame = combine(ESTIMATES, ERRORS, sites=["lyon", "oslo", "turin"]).leave_one_out()
    expected = combine(ESTIMATES[:2], ERRORS[:2]).pooled
    assert frame.loc["turin", "estimate"] == expected.random.value
    assert frame.loc["turin", "tau_squared"] == expected.tau_squared


def test_two_sites_that_agree_by_chance_are_marked():
    with pytest.warns(CombinationWarning, match="between two sites is estimated as 0"):
        combined = combine([0.3, 0.4], [0.2, 0.2])
    assert combined.pooled.random.value == combined.pooled.fixed.value
    assert "random effects are the fixed effect" in combined.forest().caption


def test_a_narrow_hartung_knapp_interval_is_named_and_the_correction_avoids_it():
    """metafor, rma(yi, sei = sei, test = "knha") and "adhoc"."""
    estimates = SiteEstimates(
        ("age",), tuple("abcd"), np.array([[0.30], [0.32], [0.29], [0.31]]), np.array([[0.1], [0.12], [0.11], [0.15]])
    )
    with pytest.warns(CombinationWarning, match="^age: The Hartung-Knapp interval is narrower"):
        narrow = combine(estimates)["age"]
    corrected = combine(estimates, hartung_knapp="adhoc")["age"]
    assert (narrow.pooled.random.lower, narrow.pooled.random.upper) == pytest.approx((0.2828526, 0.3239384), abs=1e-7)
    assert (corrected.pooled.random.lower, corrected.pooled.random.upper) == pytest.approx(
        (0.1185861, 0.488205), abs=1e-6
    )
    assert "narrower" in str(narrow)
    assert "ad hoc correction" in str(corrected)


def test_ratios_are_drawn_on_the_given_axes():
    axes = Figure().subplots()
    combined = combine(ESTIMATES, ERRORS, scale="log", label="odds ratio")
    assert combined.plot(axes) is axes
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "odds ratio"
    assert combined.forest().estimates[0] == pytest.approx(np.exp(0.1))


def test_without_axes_a_picture_is_one_that_notebooks_show():
    axes = combine(ESTIMATES, ERRORS).plot()
    assert isinstance(axes, Axes)
    assert plt.fignum_exists(axes.figure.number)
    plt.close(axes.figure)


def test_survival_is_shown_with_its_limits_in_order():
    combined = combine([0.0, -0.5], [0.1, 0.2], scale="log-log", label="survival")
    row = combined.to_frame().iloc[0]
    assert row["survival"] == pytest.approx(np.exp(-1.0))
    assert row["survival_lower"] < row["survival"] < row["survival_upper"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "ML"}, "method"),
        ({"confidence_level": 1.0}, "confidence_level"),
        ({"scale": "logit"}, "scale"),
        ({"sites": ["lyon"]}, "must have the same length"),
    ],
)
def test_terms_out_of_range_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        combine(ESTIMATES, ERRORS, **arguments)


def test_survival_of_sites_has_the_limits_of_their_curves():
    sites = {f"s{seed}": mc.datasets.simulate_survival(120, 2, seed) for seed in range(3)}
    policy = mc.Policy(min_patients=0, exact_times=True)
    with mc.Federation.in_process(sites, policy=policy) as federation:
        model = mc.survival.KaplanMeier(times="exact").fit(federation)
        curves = model.by_site()["s1"]
        time = float(curves.times[len(curves.times) // 2])
        estimates, medians = model.survival_by_site([time]), model.median_by_site()
    place = int(np.searchsorted(curves.times, time))
    half = 1.959964 * estimates.standard_errors[1, 0]
    limits = np.exp(-np.exp(estimates.estimates[1, 0] + np.array([half, 0.0, -half])))
    low, high = (limit[0, place] for limit in curves.limits)
    np.testing.assert_allclose(limits, [low, curves.survival[0, place], high], rtol=1e-5)
    assert combine(estimates)[f"survival at {time:g}"].pooled.k == 3
    assert np.exp(medians.estimates[1, 0]) == pytest.approx(curves.median["all"].value)


def test_studies_with_one_name_are_refused():
    with pytest.raises(ConfigurationError, match="different names; got Smith more than once"):
        combine(ESTIMATES, ERRORS, sites=["Smith", "Smith", "Lee"])


def test_a_site_with_the_name_of_a_combined_row_has_its_row():
    names = ["fixed effect", "new site", "random effects"]
    estimates, errors = [0.1, 0.9, np.nan], [0.15, 0.2, 0.3]
    frame = combine(estimates, errors, sites=names).to_frame()
    assert len(frame) == 6
    assert frame["estimate"].tolist()[:2] == [0.1, 0.9]
    assert frame.loc["fixed effect", "estimate"] == combine(estimates, errors).pooled.fixed.value


def test_printed_combinations_and_leave_one_out_say_what_limits_them():
    estimates = SiteEstimates(
        ("age", "dose"), tuple("ab"), np.array([[0.3, np.nan], [0.4, 0.2]]), np.array([[0.2, np.nan], [0.2, 0.1]])
    )
    with pytest.warns(CombinationWarning):
        combined = combine(estimates)
    text = " ".join(str(combined).split())
    assert "age: The variance between two sites is estimated as 0" in text
    assert "dose: Only 1 site has an estimate" in text
    assert combined.to_frame().loc["dose", ["tau_squared", "i_squared"]].isna().all()
    others = " ".join(str(combined["age"].leave_one_out()).split())
    assert "without a, without b: Only 1 site has an estimate" in others
