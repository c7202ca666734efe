"""Table 1 is that of the pooled patients: numpy and scipy as oracles; small counts do not leave the table."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import multicentre as mc
from multicentre.analytics import Describe
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch

OPEN = mc.Policy(min_patients=0)
N = 400


def frame():
    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {
            "age": rng.normal(60, 10, N),
            "stage": rng.choice(["I", "II", "III"], N, p=[0.6, 0.3, 0.1]),
            "smoker": rng.integers(0, 2, N).astype(float),
            "arm": rng.choice(["control", "drug"], N),
            "died": rng.choice(["no", "yes"], N),
        }
    )
    table.loc[rng.random(N) < 0.1, "age"] = np.nan
    table.loc[rng.random(N) < 0.1, "stage"] = None
    return table


def data_of(table):
    levels = {"stage": ["I", "II", "III"], "arm": ["control", "drug"]}
    return mc.data.TableData.from_frame(table, outcome="died", classes=["no", "yes"], categories=levels)


def federate(data, *, secure=True, policy=OPEN):
    sites = {f"s{i}": data.take(np.arange(i, len(data), 3)) for i in range(3)}
    return mc.Federation.in_process(sites, policy=policy, secure_sum=secure)


@pytest.fixture(scope="module")
def fit():
    return Describe(by="arm", categorical=["smoker"]).fit(federate(data_of(frame())))


def test_means_and_deviations_are_those_of_the_pooled_patients(fit):
    table, numbers = frame(), fit.numbers().set_index("group")
    for group, rows in {"overall": table, **dict(iter(table.groupby("arm")))}.items():
        assert numbers.loc[group, "present"] == rows["age"].notna().sum()
        assert numbers.loc[group, "missing"] == rows["age"].isna().sum()
        assert numbers.loc[group, "mean"] == pytest.approx(rows["age"].mean(), rel=1e-9)
        assert numbers.loc[group, "sd"] == pytest.approx(rows["age"].std(), rel=1e-9)


def test_quartiles_are_those_of_numpy_within_the_digits_of_the_search(fit):
    table, numbers = frame(), fit.numbers().set_index("group")
    for group, rows in {"overall": table, **dict(iter(table.groupby("arm")))}.items():
        quartiles = np.quantile(rows["age"].dropna(), [0.25, 0.5, 0.75])
        np.testing.assert_allclose(numbers.loc[group, ["q1", "median", "q3"]].astype(float), quartiles, rtol=1 / 4096)


@pytest.mark.parametrize("step", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("n_sites", [1, 3])
def test_quartiles_of_values_on_a_step_are_exact(step, n_sites):
    rng = np.random.default_rng(0)
    values = np.column_stack(
        [np.rint(rng.gamma(2.0, 2.0, 302) / step) * step, -np.rint(rng.normal(60, 9, 302)), np.zeros(302)]
    )
    values[:13, 0] = np.nan
    data = mc.data.TableData(values, rng.integers(0, 2, 302), columns=["score", "loss", "nothing"])
    sites = {f"site-{place}": data.take(np.arange(place, 302, n_sites)) for place in range(n_sites)}
    with mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0)) as federation:
        model = Describe(by="outcome").fit(federation)
    assert model.quartiles_exact_.all()
    for group, rows in {"overall": np.arange(302), "0": np.flatnonzero(data.y == 0)}.items():
        of_group = model.numbers().set_index(["group", "variable"]).loc[group]
        for place, name in enumerate(data.columns):
            quartiles = np.nanquantile(values[rows, place], [0.25, 0.5, 0.75])
            np.testing.assert_allclose(of_group.loc[name, ["q1", "median", "q3"]].astype(float), quartiles, atol=1e-12)


def test_quartiles_of_few_patients_are_not_searched():
    data = mc.data.TableData(np.arange(300.0)[:, None], (np.arange(300) < 9).astype(int), columns=["age"])
    model = Describe(by="outcome", min_cell=1).fit(federate(data))
    assert np.isnan(model.quartiles_[2]).all()
    assert np.isfinite(model.quartiles_[:2]).all()


def test_counts_shares_and_tests_are_those_of_pandas_and_scipy(fit):
    table, shown = frame(), fit.to_frame()
    stages = pd.crosstab(table["stage"], table["arm"])
    assert shown.loc["stage = II, n (%)", "drug"] == (
        f"{stages.loc['II', 'drug']} ({100 * stages.loc['II', 'drug'] / stages['drug'].sum():.1f})"
    )
    assert shown.loc["n", "overall"] == str(N)
    assert shown.loc["age, missing", "overall"] == str(table["age"].isna().sum())
    p_value = stats.chi2_contingency(stages, correction=False).pvalue
    assert shown.loc["stage = I, n (%)", "p"] == f"{p_value:.3f}"
    ages = [rows["age"].dropna() for _, rows in table.groupby("arm")]
    assert shown.loc["age, mean (SD)", "p"] == f"{stats.ttest_ind(*ages, equal_var=False).pvalue:.3f}"
    spread = np.sqrt((ages[0].var() + ages[1].var()) / 2)
    assert shown.loc["age, mean (SD)", "difference"] == f"{abs(ages[0].mean() - ages[1].mean()) / spread:.2f}"


def test_patients_without_a_group_are_counted_and_named():
    table = frame()
    table.loc[:6, "arm"] = None
    fit = Describe(by="arm", quartiles=False).fit(federate(data_of(table)))
    assert "7 patients without a group are part of the overall column" in str(fit)
    assert fit.to_frame().loc["n"].tolist()[:3] == [str(N), *table["arm"].value_counts().sort_index().astype(str)]


def test_masked_and_unmasked_tables_are_equal(fit):
    unmasked = Describe(by="arm", categorical=["smoker"]).fit(federate(data_of(frame()), secure=False))
    assert unmasked.to_frame().equals(fit.to_frame())


def test_small_counts_and_their_partners_are_left_out():
    table = frame()
    table["stage"] = "I"
    table.loc[:99, "stage"] = "II"
    table.loc[:2, "stage"] = "III"
    shown = Describe(quartiles=False).fit(federate(data_of(table))).to_frame()["overall"]
    assert shown["stage = III, n (%)"] == "<5"
    assert shown["stage = II, n (%)"] == "-"
    assert shown["stage = I, n (%)"].startswith(f"{N - 100} (")
    grouped = Describe(by="outcome", quartiles=False).fit(federate(data_of(table))).to_frame()
    assert grouped.loc["stage = I, n (%)", "p"] == "-"
    assert "<5" in grouped.loc["stage = III, n (%)"].tolist()


def test_several_groups_use_the_outcome_and_categories():
    model = Describe(by="stage", quartiles=False).fit(federate(data_of(frame())))
    groups = [rows["age"].dropna() for _, rows in frame().groupby("stage")]
    assert model.group_names_ == ("I", "II", "III")
    assert model.to_frame().loc["age, mean (SD)", "p"] == f"{stats.alexandergovern(*groups).pvalue:.3f}" or (
        float(model.to_frame().loc["age, mean (SD)", "p"])
        == pytest.approx(stats.f_oneway(*groups, equal_var=False).pvalue, abs=5e-4)
    )


def test_by_site_needs_large_cells():
    fit = Describe(categorical=["smoker"], quartiles=False).fit(federate(data_of(frame())))
    table = frame().iloc[np.arange(0, N, 3)]
    sites = fit.by_site()
    assert sites.loc["s0", "n"] == len(table)
    assert sites.loc["s0", "age, mean"] == pytest.approx(table["age"].mean())
    assert sites.loc["s0", "age, SD"] == pytest.approx(table["age"].std())
    assert sites.loc["s0", "smoker=1"] == table["smoker"].sum()
    strict = mc.Policy(min_patients=30)
    refused = Describe(quartiles=False).fit(federate(data_of(frame()), policy=strict)).by_site()
    assert refused["n"].isna().all()
    assert set(refused.attrs["refused"]) == {"s0", "s1", "s2"}


def test_a_saved_table_is_the_same(fit, tmp_path):
    fit.save(tmp_path)
    assert Describe.load(tmp_path).to_frame().equals(fit.to_frame())


def test_names_that_do_not_exist_are_refused():
    with pytest.raises(ConfigurationError, match="by must name a category"):
        Describe(by="age").fit(federate(data_of(frame())))
    with pytest.raises(ConfigurationError, match="categorical must name columns; got weight"):
        Describe(categorical=["weight"]).fit(federate(data_of(frame())))
    with pytest.raises(DataError, match="must hold 0 and 1"):
        Describe(categorical=["age"]).fit(federate(data_of(frame())))


def test_sites_with_other_columns_are_refused():
    data = data_of(frame())
    sites = {"a": data, "b": data.keep_columns(["age"]), "c": data}
    with pytest.raises(SchemaMismatch, match="columns must be those of a"):
        Describe().fit(mc.Federation.in_process(sites, policy=OPEN))
