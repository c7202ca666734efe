"""The page "From R and SAS" shows R's output as it was, and our figures agree with R's.

`docs/guides/r/compare.R` wrote the values; its first lines say how to run it again.
"""

import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "guides" / "from-r-and-sas.md"
R = json.loads((DOCS / "guides" / "r" / "values.json").read_text(encoding="utf-8"))


def test_the_page_shows_what_r_printed():
    text = PAGE.read_text(encoding="utf-8")
    blocks = {block.rstrip("\n") for block in re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)}
    assert blocks == set(R["output"].values())


@pytest.fixture(scope="module")
def ours():
    spec = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
    module = sys.modules["notebooks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run_page(PAGE)


@pytest.mark.slow
def test_the_data_are_those_of_r(ours):
    rows = list(ours["rows"].values())
    assert sum(len(one) for one in rows) == R["data"]["n"]
    for column in ("months", "age", "creatinine"):
        assert sum(one[column].sum() for one in rows) == pytest.approx(R["data"][column], abs=1e-6)
    for column in ("progression", "bmi"):
        assert ours["frame"][column].sum() == pytest.approx(R["data"][column], abs=1e-6)


@pytest.mark.slow
def test_table_1(ours):
    frozen = R["table1"]
    numbers = ours["table1"].numbers()
    for name in ("age", "creatinine"):
        by_arm = numbers[numbers["variable"] == name].set_index("group").loc[["standard", "new"]]
        for figure in ("mean", "sd", "q1", "median", "q3"):
            np.testing.assert_allclose(by_arm[figure], frozen[figure][name], atol=1e-6)
    printed = ours["table1"].to_frame()
    for name, p_value in frozen["p"].items():
        row = printed.loc[printed.index.str.startswith(name)].iloc[0]
        assert row["difference"] == f"{frozen['smd'][name]:.2f}"
        assert row["p"] == ("<0.001" if p_value < 0.001 else f"{p_value:.3f}")


@pytest.mark.slow
def test_rank_tests_of_table_1(ours):
    ours_by_name = ours["table1"].rank_tests()
    for name, p_value in R["table1"]["rank_p"].items():
        assert ours_by_name.loc[name, "lower"] <= p_value <= ours_by_name.loc[name, "upper"]


@pytest.mark.slow
def test_curves_and_log_rank_test(ours):
    times = [12.0, 24.0, 36.0]
    exact = ours["curves"].survival_at(times).ravel()
    np.testing.assert_allclose(exact, R["survfit"]["survival"], atol=1e-6)
    np.testing.assert_allclose(ours["grid"].survival_at(times).ravel(), R["survfit"]["survival"], atol=5e-3)
    medians = [ours["curves"].median_[group].value for group in ("standard", "new")]
    np.testing.assert_allclose(medians, R["survfit"]["median"], atol=0.01)
    np.testing.assert_allclose(
        [ours["logrank"].statistic_, ours["logrank"].p_value_],
        [R["survdiff"]["statistic"], R["survdiff"]["p"]],
        atol=1e-6,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "fit", "atol"), [("cox", "coxph", 1e-6), ("logistic", "glm", 1e-6), ("mixed", "lmer", 1e-5)]
)
def test_coefficients_and_standard_errors(ours, model, fit, atol):
    table = ours[model].to_frame()
    names = [re.sub(r"[()=]", "", name).lower() for name in table.index]
    assert names == [re.sub(r"[()]", "", name).lower() for name in R[fit]["names"]]
    np.testing.assert_allclose(table["coefficient"], R[fit]["estimate"], atol=atol)
    np.testing.assert_allclose(table["standard_error"], R[fit]["error"], atol=atol)


@pytest.mark.slow
def test_deviance_and_variances(ours):
    assert ours["logistic"].deviance_ == pytest.approx(R["glm"]["deviance"], abs=1e-6)
    assert ours["logistic"].aic_ == pytest.approx(R["glm"]["aic"], abs=1e-6)
    assert ours["mixed"].random_covariance_[0, 0] == pytest.approx(R["lmer"]["between"], rel=1e-4)
    assert ours["mixed"].residual_variance_ == pytest.approx(R["lmer"]["residual"], rel=1e-4)


@pytest.mark.slow
def test_meta_analysis(ours):
    meta = ours["meta"]
    sites = meta.to_frame().iloc[:6]
    np.testing.assert_allclose(sites["estimate"], R["rma"]["estimate"], atol=1e-5)
    np.testing.assert_allclose(sites["standard_error"], R["rma"]["error"], atol=1e-5)
    random = meta.to_frame().loc["random effects"]
    expected = [R["rma"]["random"], R["rma"]["lower"], R["rma"]["upper"]]
    np.testing.assert_allclose(random[["estimate", "lower", "upper"]].astype(float), expected, atol=1e-5)
    assert meta.pooled.q == pytest.approx(R["rma"]["q"], abs=1e-5)
    assert meta.pooled.tau_squared == pytest.approx(R["rma"]["tau_squared"], abs=1e-5)


@pytest.mark.slow
def test_complete_records_are_near_multiple_imputation(ours):
    complete = ours["choices"]["complete"]
    distance = np.abs(complete["coefficient"].to_numpy() - np.array(R["mice"]["estimate"]))
    assert (distance < np.array(R["mice"]["error"])).all()
