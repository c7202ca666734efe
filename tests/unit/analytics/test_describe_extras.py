"""Histograms, rank tests, correlations, data quality, tables by site and files of a Table 1."""

import csv
import io
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

import multicentre as mc
from multicentre.analytics import Describe, combine
from multicentre.analytics.describe.maths import difference_of_shares
from multicentre.analytics.describe.messages import BinEdges, RankScores
from multicentre.analytics.describe.site import DescribeSite
from multicentre.errors import ConfigurationError, DisclosureRefused, MulticentreError

OPEN = mc.Policy(min_patients=0)
# Warned of when the data of a site are made; the tests are about figures that leave the site.
pytestmark = pytest.mark.filterwarnings("ignore::multicentre.data.screening.DataWarning")
N = 420
SITES = ("lyon", "oslo", "turin")


def frame(n=N):
    rng = np.random.default_rng(4)
    age = np.round(rng.normal(60, 10, n))
    table = pd.DataFrame(
        {
            "age": age,
            "glucose": 5.5 + 0.03 * (age - 60) + rng.normal(0, 0.7, n),
            "stage": rng.choice(["I", "II", "III"], n, p=[0.6, 0.3, 0.1]),
            "arm": rng.choice(["control", "drug"], n),
            "died": rng.choice(["no", "yes"], n),
        }
    )
    table.loc[rng.random(n) < 0.08, "age"] = np.nan
    return table


def sites_of(table, change=None):
    levels = {"stage": ["I", "II", "III"], "arm": ["control", "drug"]}
    sites = {}
    for place, name in enumerate(SITES):
        rows = table.iloc[np.arange(place, len(table), 3)].copy()
        if change and name in change:
            change[name](rows)
        sites[name] = mc.data.TableData.from_frame(rows, outcome="died", classes=["no", "yes"], categories=levels)
    return sites


def federate(table, *, policy=OPEN, change=None, secure=True):
    return mc.Federation.in_process(sites_of(table, change), policy=policy, secure_sum=secure)


@pytest.fixture(scope="module")
def fit():
    return Describe(by="arm", histograms=True, correlations=True).fit(federate(frame()))


def test_rank_tests_are_those_of_scipy(fit):
    tests = fit.rank_tests()
    for name, tol in (("age", 1e-9), ("glucose", 0.02)):
        groups = [rows[name].dropna() for _, rows in frame().groupby("arm")]
        exact = stats.mannwhitneyu(*groups, use_continuity=False, method="asymptotic").pvalue
        assert tests.loc[name, "p_value"] == pytest.approx(exact, rel=tol)
        assert tests.loc[name, "lower"] - 1e-12 <= exact <= tests.loc[name, "upper"] + 1e-12
    assert tests["exact"].tolist() == [True, False]  # whole numbers have a bin each
    row = fit.to_frame()["p"]
    assert row["age, median [quartiles]"] == f"{tests.loc['age', 'p_value']:.3f}"
    assert row["glucose, median [quartiles]"].endswith("‡")


def test_correlations_are_those_of_the_patients_with_both_variables(fit):
    expected = frame()[["age", "glucose"]].corr()
    np.testing.assert_allclose(fit.correlation_table(), expected, atol=1e-6)
    unmasked = Describe(quartiles=False, correlations=True).fit(federate(frame(), secure=False))
    np.testing.assert_allclose(unmasked.correlation_table(), expected, rtol=1e-12)


def test_rank_correlations_are_exact_or_named(fit):
    assert "Approximate for age, glucose." in str(fit.correlation_table("spearman"))
    expected = frame()[["age", "glucose"]].corr("spearman")
    np.testing.assert_allclose(fit.correlation_table("spearman"), expected, atol=0.01)
    table = frame().fillna({"age": 60.0})
    table["glucose"] = table["glucose"].round(1)
    exact = Describe(quartiles=False, histograms=True, correlations=True).fit(federate(table))
    np.testing.assert_allclose(
        exact.correlation_table("spearman"), table[["age", "glucose"]].corr("spearman"), atol=1e-6
    )
    assert "Approximate" not in str(exact.correlation_table("spearman"))
    with pytest.raises(ConfigurationError, match="method"):
        fit.correlation_table("kendall")


def test_a_histogram_counts_the_patients_of_its_bins(fit):
    table, ages = fit.histogram("age"), frame()
    for label, row in table.iterrows():
        for group, rows in {"overall": ages, **dict(iter(ages.groupby("arm")))}.items():
            values = rows["age"].dropna()
            if label.startswith("below"):
                n = (values < float(label.removeprefix("below "))).sum()
            elif label.endswith("or more"):
                n = (values >= float(label.removesuffix(" or more"))).sum()
            else:
                ends = [float(end) for end in label.split(" to ")]
                n = values.between(ends[0], ends[-1]).sum()
            assert np.isnan(row[group]) or row[group] == n
    assert np.isfinite(table["overall"]).sum() > 5
    axes = Figure().subplots()
    assert fit.plot_histogram("age", axes) is axes
    assert len(axes.containers) == 2


def test_small_bins_are_left_out_and_do_not_follow(fit):
    table, counts = fit.histogram("age"), fit.histograms_.printed(0)
    small = (counts[:, :2] > 0) & (counts[:, :2] < 5)
    assert table[["control", "drug"]].isna().to_numpy()[small].all()
    hidden = table.isna()
    rows = hidden.any(axis=1).to_numpy()
    assert rows.any()
    assert (hidden.sum(axis=1)[rows] >= 2).all()
    assert (hidden[["control", "drug"]].sum(axis=0) != 1).all()


def test_a_minimum_in_total_refuses_fine_bins():
    policy = mc.Policy(min_patients_in_total=5)
    with pytest.raises(DisclosureRefused, match="at least 5"):
        Describe(quartiles=False, histograms=True).fit(federate(frame(), policy=policy))


def test_a_site_refuses_bins_that_follow_single_values():
    model = Describe(quartiles=False, histograms=True).fit(federate(frame(), policy=mc.Policy(min_patients=5)))
    groups = model.groups_
    fields = {name: getattr(groups, name) for name in type(groups).declarations()}
    for low, width, reason in (
        ([61.0, 5.0], [1e-3, 1.0], "finer"),
        ([61.0], [1.0], "per variable"),
        ([0.0] * 2, [0.0] * 2, "positive"),
    ):
        edges = BinEdges(**fields, low=np.array(low), width=np.array(width))
        with pytest.raises(MulticentreError, match=reason):
            model.session.sum(DescribeSite.count_bins, edges)


def test_a_site_refuses_scores_that_single_out_a_bin(fit):
    bins, groups = fit.histograms_, fit.groups_
    fields = {name: getattr(groups, name) for name in type(groups).declarations()}
    score = np.zeros(bins.counts.shape[1:])
    score[:, 100] = 1.0
    request = RankScores(**fields, low=bins.low, width=bins.width, score=score)
    with pytest.raises(MulticentreError, match="mean rank per variable and bin"):
        fit.session.sum(DescribeSite.sum_rank_products, request)


def test_numbers_far_from_0_have_bins_that_a_site_accepts():
    table = frame()
    table["glucose"] += 2000.0
    model = Describe(by="arm", histograms=True).fit(federate(table, policy=mc.Policy(min_patients=5)))
    exact = stats.kruskal(*[rows["glucose"] for _, rows in table.groupby("arm")]).pvalue
    test = model.rank_tests().loc["glucose"]
    assert test["lower"] <= exact <= test["upper"]


@pytest.mark.slow
def test_histograms_must_be_requested(fit):
    plain = Describe(quartiles=False).fit(federate(frame()))
    with pytest.raises(ConfigurationError, match="must have histograms"):
        plain.histogram("age")
    with pytest.raises(ConfigurationError, match="variable must be one of"):
        fit.histogram("stage")
    with pytest.raises(ConfigurationError, match="must have groups"):
        Describe(histograms=True).fit(federate(frame())).rank_tests()


def test_a_saved_fit_has_its_histograms_and_correlations(fit, tmp_path):
    fit.save(tmp_path)
    loaded = Describe.load(tmp_path)
    assert loaded.histogram("glucose").equals(fit.histogram("glucose"))
    assert loaded.rank_tests().equals(fit.rank_tests())
    assert loaded.correlation_table().equals(fit.correlation_table())


def wrong_unit(rows):
    rows["glucose"] *= 18.02


def codes(rows):
    rows.iloc[:15, 0] = 999.0


def only_stage(rows):
    rows.loc[rows["stage"] == "III", "stage"] = "I"


def older(rows):
    rows["age"] += 6.0


QUALITY = mc.Policy(min_patients=10)


@pytest.mark.parametrize(
    ("change", "check", "variable", "site", "words"),
    [
        ({"oslo": wrong_unit}, "unit", "glucose", "oslo", "another unit"),
        ({"turin": codes}, "code", "age", "turin", "age = 999"),
        ({"lyon": only_stage, "oslo": only_stage}, "level", "stage", "turin", "Only turin"),
        ({"lyon": older}, "shift", "age", "lyon", "above that of the other sites"),
    ],
)
def test_a_problem_at_a_site_is_named(change, check, variable, site, words):
    findings = Describe(quartiles=False).fit(federate(frame(), policy=QUALITY, change=change)).check_quality()
    chosen = findings[(findings["check"] == check) & (findings["variable"] == variable)]
    assert site in chosen["site"].tolist()
    assert words in " ".join(chosen["sentence"])


def test_good_data_have_no_findings():
    findings = Describe(quartiles=False).fit(federate(frame(3000), policy=QUALITY)).check_quality()
    assert findings.empty


def test_figures_of_quality_rest_on_many_patients_and_refusals_are_named():
    policies = dict.fromkeys(SITES, QUALITY) | {"oslo": mc.Policy(secure_sums_only=True)}
    change = {"turin": lambda rows: rows.iloc.__setitem__((slice(0, 6), 0), 999.0)}
    federation = mc.Federation.in_process(sites_of(frame(), change), policy=policies)
    model = Describe(quartiles=False).fit(federation)
    findings = model.check_quality()
    assert "code" not in findings["check"].tolist()  # six patients are fewer than the minimum
    refused = findings[findings["check"] == "refused"]
    assert refused["site"].tolist() == ["oslo"]
    assert "secure_sums_only" in refused["sentence"].iloc[0]
    assert federation.ledgers["oslo"].entries[-1]["event"] == "refusal"
    assert federation.ledgers["lyon"].entries[-1]["step"] == "check_quality"


def test_a_table_by_site_leaves_out_what_would_follow():
    table = frame()
    table["stage"] = np.where(np.arange(N) % 3 == 0, "I", np.where(np.arange(N) % 2 == 0, "I", "II"))
    table.loc[[0, 3, 6], "stage"] = "II"  # three patients at lyon
    shown = Describe(quartiles=False).fit(federate(table)).table_by_site()
    assert list(shown.columns) == ["overall", *SITES]
    row = shown.loc["stage = II, n (%)"]
    assert row["lyon"] == "-"
    assert (row == "-").sum() >= 2
    assert shown.loc["n"].tolist() == ["420", "140", "140", "140"]
    assert shown.loc["age, mean (SD)", "lyon"].startswith(f"{table['age'][::3].mean():.1f}")


def test_the_figures_of_a_single_site_that_refuses_do_not_follow():
    policies = dict.fromkeys(SITES, OPEN) | {"oslo": mc.Policy(secure_sums_only=True)}
    model = Describe(quartiles=False).fit(mc.Federation.in_process(sites_of(frame()), policy=policies))
    shown = model.table_by_site()
    assert (shown["oslo"] == "refused").all()
    for label, row in shown.iterrows():
        if label != "n" and row["overall"] != "-":
            assert "-" in row[["lyon", "turin"]].tolist()
    assert "Refused: oslo: " in str(shown)


def test_means_by_site_are_combined():
    table = frame()
    model = Describe(quartiles=False).fit(federate(table))
    means = model.means_by_site()
    rows = table["glucose"][::3]
    assert means.estimates[0, 1] == pytest.approx(rows.mean())
    assert means.standard_errors[0, 1] == pytest.approx(rows.std() / np.sqrt(len(rows)))
    assert combine(means)["glucose"].pooled.k == 3


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self.open = [], []

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self.open += [tag] if tag != "br" else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_files_have_the_cells_of_the_frame(fit, tmp_path):
    shown = fit.to_frame()
    text = fit.to_html(tmp_path / "table.html")
    parser = Cells()
    parser.feed(text)
    assert not parser.open
    assert (tmp_path / "table.html").read_text(encoding="utf-8") == text
    cells = [cell for row in parser.rows for cell in row[1:] if cell]
    expected = [cell for cell in shown.to_numpy().ravel().tolist() if cell]
    assert sorted(cells) == sorted([*expected, *shown.columns])
    assert "Mann and Whitney" in text
    rows = list(csv.reader(io.StringIO(fit.to_csv())))
    assert [row[0] for row in rows[1:]] == list(shown.index)
    assert [row[1:] for row in rows[1:]] == shown.to_numpy().tolist()
    latex = fit.to_latex()
    assert len(re.findall(r"(?<!\\)&", latex.splitlines()[4])) == len(shown.columns)
    assert r"\ddag{}" in latex
    assert r"n (\%)" in latex


@pytest.mark.slow
def test_groups_too_small_to_show_are_left_out_everywhere():
    table = frame()
    table["arm"] = np.where(np.arange(N) < 3, "drug", "control")
    model = Describe(by="arm", histograms=True).fit(federate(table))
    shown = model.to_frame()
    assert shown.loc["n", "overall"] == str(N)
    assert shown.loc["n", "drug"] == "<5"
    assert shown.loc["n", "control"] == "-"
    for name in ("drug", "control"):
        counts = shown[name].drop("n")
        assert set(counts) <= {"-", "0"}, counts
    assert model.numbers().query("group != 'overall'")[["present", "mean", "median"]].isna().all(axis=None)
    assert model.histogram("age")[["drug", "control"]].fillna(0).eq(0).all(axis=None)


def test_the_mean_of_one_small_group_does_not_follow_from_the_others():
    table = frame()
    table.loc[(table["arm"] == "drug") & (table.index > 20), "age"] = np.nan
    model = Describe(by="arm", quartiles=False, min_cell=15).fit(federate(table))
    assert 0 < table.query("arm == 'drug'")["age"].notna().sum() < 15
    assert model.to_frame().loc["age, mean (SD)", ["control", "drug"]].tolist() == ["-", "-"]


def test_groups_without_a_common_level_have_no_finite_difference():
    """The difference stands beside p < 0.001; it was 0.03 when the shares that no covariance explains were ignored."""
    ward = np.array(["A"] * 100 + ["B"] * 49 + ["C"] * 51)
    rows = pd.DataFrame({"arm": ["x"] * 100 + ["y"] * 100, "ward": ward, "out": ["yes", "no"] * 100})
    categories = {"arm": ["x", "y"], "ward": ["A", "B", "C"]}
    data = mc.data.TableData.from_frame(
        rows, outcome="out", classes=["no", "yes"], columns=["arm", "ward"], categories=categories
    )
    sites = {f"s{place}": data.take(np.arange(place, 200, 2)) for place in range(2)}
    model = Describe(by="arm").fit(mc.Federation.in_process(sites))
    table = model.to_frame()
    assert table.loc[table.index.str.startswith("ward = A"), "difference"].item() == "∞"
    assert "∞: two groups have no level in common." in model.to_html()


@pytest.mark.parametrize("seed", range(20))
def test_a_difference_is_infinite_exactly_where_two_groups_share_no_level(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 60, size=(rng.integers(2, 7), 2)) * 1.0
    counts[rng.random(counts.shape) < 0.4] = 0.0
    counts[0, 0] += 1.0
    counts[-1, 1] += 1.0
    difference = difference_of_shares(counts)
    assert np.isinf(difference) == (not (counts.min(axis=1) > 0).any())
    if np.isfinite(difference):  # the reference level does not matter
        assert difference == pytest.approx(difference_of_shares(counts[::-1]), rel=1e-6)
