"""Tables, sentences and pictures of results against the attributes of the fits."""

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Canvas

import multicentre as mc
from multicentre.errors import ConfigurationError
from multicentre.estimator.drawing import draw
from multicentre.estimator.figures import Bars, Forest, HeatMap, Points, Table, read_figure
from multicentre.estimator.presentation import Presented, number_column
from support.method_cases import EXACT, timed_sites
from support.toy_method import federate


@pytest.fixture(scope="module")
def fits():
    survival = mc.survival
    with federate(timed_sites(), policy=EXACT, secure_sum=False) as federation:
        return {
            "curves": survival.KaplanMeier("x2", times=[6.0, 12.0, 24.0]).fit(federation),
            "fine curves": survival.KaplanMeier("x2").fit(federation),
            "cox": survival.FedCox().fit(federation),
            "incidence": survival.AalenJohansen().fit(federation),
            "test": survival.LogRank("x2").fit(federation),
        }


def test_survival_at_times_is_that_of_the_curves(fits):
    model = fits["curves"]
    table = model.result_tables()["survival-at-times"]
    assert table["time"].tolist() == [6.0, 12.0, 24.0] * 2
    np.testing.assert_allclose(table["survival"], model.survival_at([6.0, 12.0, 24.0]).ravel())
    np.testing.assert_allclose(table["lower"], model.lower_.ravel())
    np.testing.assert_allclose(table["at_risk"], model.numbers_at_risk([6.0, 12.0, 24.0]).ravel())


def test_few_patients_are_left_out_of_the_tables_of_curves():
    few = {name: data.take(np.arange(14)) for name, data in timed_sites().items()}
    with federate(few, policy=EXACT, secure_sum=False) as federation:
        model = mc.survival.KaplanMeier(times=np.arange(1.0, 61.0, 3.0).tolist()).fit(federation)
    tables = model.result_tables()
    counts = tables["survival-at-times"]["at_risk"].dropna()
    assert (model.at_risk_ < 10).any()
    assert ((counts == 0) | (counts >= 5)).all()
    n_shown = int((model.at_risk_ >= 10).sum())
    assert len(tables["curves"]) == n_shown


def test_the_median_is_in_the_answer_of_each_group(fits):
    model = fits["fine curves"]
    sentences = model.answer().split(". M")
    assert len(sentences) == 2
    for sentence, name in zip(sentences, model.groups_, strict=True):
        stated = float(re.search(r": ([\d.]+) \(95 % interval", sentence)[1])
        assert stated == pytest.approx(model.median_[name].value, abs=0.05)


def test_a_median_that_is_not_reached_gives_survival_at_the_horizon():
    with federate(timed_sites(), policy=EXACT, secure_sum=False) as federation:
        model = mc.survival.KaplanMeier(horizon=5.0).fit(federation)
    assert np.isnan(model.median_["all"].value)
    assert model.answer().startswith("Median survival was not reached; survival at")


def test_the_answer_of_a_model_is_the_first_effect_with_its_interval(fits):
    model = fits["cox"]
    stated = [float(number) for number in re.findall(r"\d+\.\d+", model.answer())]
    np.testing.assert_allclose(stated[:3], model.hazard_ratios_[0], rtol=5e-3)
    assert "adjusted for 2 other variables" in model.answer()
    assert model.result_tables()["tests"].loc["wald", "statistic"] == model.tests_["wald"].statistic


def test_the_answer_of_a_test_has_statistic_and_p_value(fits):
    model = fits["test"]
    assert f"chi-square {model.statistic_:.3g} with 1 degree of freedom" in model.answer()
    assert model.result_tables()["test"].loc["log-rank", "p_value"] == model.p_value_


def test_incidence_at_times_is_that_of_the_curves(fits):
    model = fits["incidence"]
    table = model.result_tables()["incidence-at-times"]
    first = table[table["cause"] == 1]
    np.testing.assert_allclose(first["incidence"], model.incidence_at(first["time"].to_numpy())[0, 0])
    assert ((table["lower"] <= table["incidence"]) & (table["incidence"] <= table["upper"])).all()


class Plain(Presented):
    """A fit with a summary only."""

    def summary(self):
        """Return two values and a text."""
        return pd.DataFrame({"value": [3, "converged", 0.5]}, index=["rounds", "end", "loss"], dtype=object)


def test_a_model_with_a_summary_only_is_presented_by_it():
    assert Plain().answer() == "Plain: rounds 3; loss 0.500."
    assert Plain().main_figure().categories == ["rounds", "loss"]
    assert list(Plain().result_tables()) == ["result"]
    assert Plain().plot().get_xlabel() == "value"


def test_a_table_without_numbers_has_no_numbers():
    assert number_column(pd.DataFrame({"origin": ["lyon"]})).empty


@pytest.mark.parametrize(
    "figure",
    [
        Points("P", "", "model", "x", "y", []),
        HeatMap("H", "", "model", ["a"], ["b", "c"], [[1.0, None]], "share", 0.0, 1.0),
        Forest("F", "", "model", "ratio", ["a", "b"], [2.0, None], [1.0, None], [4.0, None], 1, 1.0),
        Bars("B", "", "model", "share", ["a"], {"x": [0.5], "y": [0.25]}, {"x": [0.1]}),
    ],
)
def test_figures_are_drawn_on_the_axes_that_are_passed(figure):
    axes = Canvas().subplots()
    assert draw(read_figure(figure.to_dict()), axes) is axes
    assert axes.get_title() == figure.title


def test_a_table_cannot_be_drawn():
    with pytest.raises(ConfigurationError, match="must be of a kind that can be drawn; got Table"):
        draw(Table("T", "", "model", ["a"], [[1.0]]))
