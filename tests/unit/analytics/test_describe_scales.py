"""Tables of variables in any unit, of sites that are lost, and of few patients without a group; checks of good data."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import multicentre as mc
from multicentre.analytics import Describe
from multicentre.analytics.describe.messages import Means, Units
from multicentre.analytics.describe.quality import is_fahrenheit
from multicentre.analytics.describe.site import DescribeSite
from multicentre.analytics.describe.site_quality import SPIKES, quality_of_column
from multicentre.core.messages import Nothing
from multicentre.engines.faults import Faults
from multicentre.errors import DataError, LeftOutWarning, MessageError

N = 600
OPEN = mc.Policy(min_patients=0)


def federate(values, groups, columns, n_sites=4, **terms):
    data = mc.data.TableData(values, groups, columns=columns, classes=["a", "b"])
    sites = {f"s{place}": data.take(np.arange(place, len(data), n_sites)) for place in range(n_sites)}
    return mc.Federation.in_process(sites, policy=OPEN, **terms)


SCALES = {
    "creatinine in mol/l": (8e-5, 2e-5),
    "platelets per microlitre": (250_000.0, 80_000.0),
    "far from 0": (1e9, 1.0),
    "tiny": (0.0, 1e-12),
    "huge": (1e30, 1e29),
}


@pytest.mark.parametrize("is_masked", [True, False])
def test_means_deviations_and_tests_do_not_depend_on_the_unit(is_masked):
    rng = np.random.default_rng(2)
    groups = rng.integers(0, 2, N)
    values = np.column_stack([rng.normal(mean + 0.1 * spread * groups, spread) for mean, spread in SCALES.values()])
    values[rng.random(values.shape) < 0.05] = np.nan
    fit = Describe(by="outcome", quartiles=False).fit(federate(values, groups, list(SCALES), secure_sum=is_masked))
    numbers, table = fit.numbers().set_index(["group", "variable"]), fit.to_frame()
    for name, column in zip(SCALES, values.T, strict=True):
        parts = {"overall": column, "a": column[groups == 0], "b": column[groups == 1]}
        for group, part in parts.items():
            spread = np.nanstd(part, ddof=1)
            assert numbers.loc[(group, name), "sd"] == pytest.approx(spread, rel=1e-6)
            assert numbers.loc[(group, name), "mean"] == pytest.approx(np.nanmean(part), rel=0, abs=1e-6 * spread)
        p_value = stats.ttest_ind(parts["a"], parts["b"], equal_var=False, nan_policy="omit").pvalue
        assert table.loc[f"{name}, mean (SD)", "p"] == f"{p_value:.3f}"
    assert table.loc["creatinine in mol/l, mean (SD)", "overall"].startswith("0.00008")


def test_constants_have_no_deviation_and_sites_may_differ():
    site = np.arange(N) % 4
    values = np.column_stack([np.full(N, 0.1), np.zeros(N), 1e-7 * site])
    fit = Describe(quartiles=False).fit(federate(values, np.arange(N) % 2, ["one", "none", "by site"]))
    deviations = fit.numbers().set_index("variable")["sd"]
    assert deviations["one"] == pytest.approx(0.0, abs=1e-9)
    assert deviations["none"] == 0.0
    assert deviations["by site"] == pytest.approx(values[:, 2].std(ddof=1), rel=1e-6)


def test_a_site_names_a_variable_beyond_the_range_of_a_sum():
    data = mc.data.TableData(np.array([[1.0, 1e9], [2.0, 2e9]]), np.array([0, 1]), columns=["age", "platelets"])
    federation = mc.Federation.in_process({"lyon": data, "oslo": data, "turin": data}, policy=OPEN)
    session = federation.begin(DescribeSite)
    groups = {"by": "", "group_levels": (), "numbers": ("age", "platelets"), "levels": ()}
    session.ask(DescribeSite.describe, Nothing())
    fine = np.array([0, -30])
    with pytest.raises(DataError, match="too large: platelets"):
        session.sum(DescribeSite.count_groups, Units(**groups, exponent=fine))
    with pytest.raises(DataError, match="too large: platelets"):
        session.sum(DescribeSite.sum_squares, Means(**groups, exponent=fine, mean=np.zeros((2, 2))))
    for exponent in (np.array([0, 501]), np.zeros(3, dtype=np.int64)):
        with pytest.raises(MessageError, match="exponent from -500 to 500 per variable"):
            session.sum(DescribeSite.count_groups, Units(**groups, exponent=exponent))


@pytest.mark.parametrize("step", ["find_magnitudes", "count_groups", "sum_squares", "find_steps", "count_bins"])
def test_a_table_is_that_of_the_sites_that_remain_and_names_the_lost_one(step):
    rng = np.random.default_rng(0)
    groups, site = rng.integers(0, 2, 200), np.arange(200) % 4
    # The lost site differs from the others, so that sums of different sites do not agree.
    values = np.rint(rng.normal(60, 10, 200) + 40.0 * (site == 3))[:, None]
    federation = federate(values, groups, ["age"], quorum=3, faults=Faults(lose={"s3": step}))
    with pytest.warns(LeftOutWarning, match="s3"):
        fit = Describe(histograms=True).fit(federation)
    rest = values[site < 3, 0]
    numbers = fit.numbers().iloc[0]
    figures = [numbers[name] for name in ("present", "mean", "sd", "median")]
    assert figures == pytest.approx([len(rest), rest.mean(), rest.std(ddof=1), np.median(rest)], rel=1e-6)
    assert fit.histograms_.counts.sum() == len(rest)
    assert "Fitted without s3" in str(fit)
    assert "Without s3" in fit.to_html()


def test_few_patients_without_a_group_are_not_counted_in_table_or_note():
    rng = np.random.default_rng(1)
    arms = np.array(["A"] * 20 + [None] * 2 + ["B"] * 90 + ["C"] * 110, dtype=object)
    frame = pd.DataFrame({"arm": arms, "age": rng.normal(60, 10, len(arms)), "died": rng.integers(0, 2, len(arms))})
    order = rng.permutation(len(frame))
    sites = {
        f"s{place}": mc.data.TableData.from_frame(
            frame.iloc[order[place::3]], outcome="died", classes=[0, 1], categories={"arm": ["A", "B", "C"]}
        )
        for place in range(3)
    }
    fit = Describe(by="arm", quartiles=False).fit(mc.Federation.in_process(sites, policy=OPEN))
    table = fit.to_frame()
    assert table.loc["n"].tolist()[:4] == ["222", "-", "90", "110"]
    assert (table["A"] == "-").all()  # with it, the number of patients without a group would follow
    for text in (str(fit), fit.to_csv(), fit.to_html(), fit.to_latex()):
        assert "2 patients" not in text
    assert "<5 patients without a group are part of the overall column" in str(fit)
    shown = Describe(by="arm", quartiles=False, min_cell=0).fit(mc.Federation.in_process(sites, policy=OPEN))
    assert "2 patients without a group" in str(shown)
    assert shown.to_frame().loc["n", "A"] == "20"


@pytest.mark.parametrize(
    ("values", "code", "count"),
    [
        ([0.0, 1.0], 0.0, 0),
        ([0.0, 1.0, 2.0, 3.0], 0.0, 0),
        ([-1.0, 1.0], -1.0, 0),
        ([7.0, 8.0, 9.0], 9.0, 0),
        ([0.0, 100.0], 0.0, 0),
        ([0.0, 5.0, 10.0, 20.0], 0.0, 0),
        ([0.0, 1.0, 9.0], 9.0, 20),
        ([1.0, 999.0], 999.0, 20),
        ([50.0, 60.0, 70.0, 888.0, 999.0], 999.0, 20),
        ([50.0, 60.0, 70.0, 888.0, 999.0], 888.0, 20),
        ([120.0, 130.0, 140.0, 0.0], 0.0, 20),
        ([36.0, 37.0, 38.0, -9.0], -9.0, 20),
    ],
)
def test_a_code_is_apart_from_levels_and_scores(values, code, count):
    column = quality_of_column(np.repeat(values, 20), 10)
    assert column.spikes[SPIKES.index(code)] == count


@pytest.mark.parametrize("seed", range(5))
def test_sites_with_one_distribution_have_no_other_unit(seed):
    rng = np.random.default_rng(seed)
    columns = {"tail": rng.lognormal(7, 1, 800), "room": rng.normal(20, 9, 800), "waiting": rng.exponential(30, 800)}
    sites = [np.arange(800) % 4 == place for place in range(4)]
    for column in columns.values():
        quarters = [np.quantile(column[rows], [0.25, 0.5, 0.75]) for rows in sites]
        assert not any(is_fahrenheit(quarters[0], other) or is_fahrenheit(other, quarters[0]) for other in quarters)
    celsius = np.quantile(columns["room"], [0.25, 0.5, 0.75])
    assert is_fahrenheit(32.0 + 1.8 * celsius, celsius)
    assert not is_fahrenheit(celsius, 32.0 + 1.8 * celsius)


@pytest.mark.parametrize("is_masked", [True, False])
@pytest.mark.parametrize(
    ("constant", "spread", "decimals", "tolerance"),
    [
        (1e7, 15.0, 0, 0.0),
        (2020.0, 1.0, 2, 1.0 / 16),
        (1.7e9, 3600.0, 9, 3600.0 / 16),
        (-1e7, 15.0, 0, 0.0),
        (1e9, 40.0, 1, 2.5),
    ],
)
def test_quartiles_of_values_far_from_0_are_relative_to_their_spread(constant, spread, decimals, tolerance, is_masked):
    rng = np.random.default_rng(0)
    near = rng.normal(60.0, 9.0, N)
    values = np.column_stack([np.round(constant + spread * rng.normal(size=N), decimals), near])
    fit = Describe(by="outcome").fit(federate(values, np.arange(N) % 2, ["far", "near"], secure_sum=is_masked))
    rows = fit.numbers().set_index(["group", "variable"])
    for group, part in (("overall", values), ("a", values[::2]), ("b", values[1::2])):
        for name, column, within in (
            ("far", part[:, 0], tolerance + 1e-9 * abs(constant)),
            ("near", part[:, 1], 60 / 2048),
        ):
            found = rows.loc[(group, name), ["q1", "median", "q3"]].to_numpy(dtype=float)
            np.testing.assert_allclose(found, np.quantile(column, [0.25, 0.5, 0.75]), rtol=0, atol=within)
    assert fit.quartiles_exact_[:, 0].all() == (not tolerance)


def test_values_too_far_from_0_have_no_quartiles():
    values = 1e12 + np.random.default_rng(0).normal(size=N)
    with pytest.warns(UserWarning, match="^far: the values are too far from 0 for quartiles"):
        fit = Describe().fit(federate(values[:, None], np.arange(N) % 2, ["far"]))
    assert fit.numbers()[["q1", "median", "q3"]].isna().all(axis=None)
    assert not fit.quartiles_exact_.any()
