"""What every method with a likelihood does alike: each rule holds for all, without an exception that a method sets."""

import warnings

import numpy as np
import pytest
from tests.support.likelihood_cases import CASES, CLASSES, COLUMNS, column_of, federate, table_of

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import DataError, DisclosureRefused, LeftOutWarning, SeparationWarning

pytestmark = pytest.mark.filterwarnings("ignore::multicentre.errors.DispersionWarning")
UNMASKED = pytest.param(False, marks=pytest.mark.slow)
MASKED = pytest.mark.parametrize("masked", [True, UNMASKED], ids=["masked", "unmasked"])
SEPARABLE = [name for name, case in CASES.items() if case.separable]
ROUND = {
    "linear-mixed": "sum_curvature",
    "logistic-mixed": "sum_laplace",
    "poisson-mixed": "sum_laplace",
    "negative-binomial": "sum_count_derivatives",
    "cox-grid": "sum_products",
    "cox-exact": "sum_exact_products",
    "mixed-cox": "sum_effects",
}


def fit(name, frame, **terms):
    """Fit a method to a table."""
    case = CASES[name]
    return case.make().fit(federate(frame, case.outcome, **terms))


def with_separated_column(frame, outcome):
    """Add a rare column whose patients all have the same outcome, the one with the largest predictors."""
    rng = np.random.default_rng(7)
    stoma = rng.random(len(frame)) < 0.12
    if outcome == "time":
        frame = frame.assign(event=frame["event"] & ~stoma)
    else:
        value = {"class": 1, "count": 0.0, "classes": 2}[outcome]
        frame = frame.assign(y=np.where(stoma, value, frame["y"]))
    frame.insert(2, "stoma", stoma.astype(float))
    return frame


@MASKED
@pytest.mark.parametrize("name", SEPARABLE)
def test_a_separated_column_is_named_and_takes_no_other_errors(name, masked):
    case = CASES[name]
    frame = with_separated_column(table_of(case.outcome), case.outcome)
    with pytest.warns(SeparationWarning, match="stoma") as caught:
        model = fit(name, frame, masked=masked)
    named = str(next(w.message for w in caught if w.category is SeparationWarning)).partition(":")[0]
    assert not any(column in named for column in COLUMNS)
    assert np.isnan(column_of(model, "stoma", "standard_error")).any()
    # At the limit, the patients of the column carry no information on the others.
    if case.outcome == "time":
        return  # they stay at risk until they leave
    rest = fit(name, frame[frame["stoma"] == 0].drop(columns="stoma"), masked=masked)
    finite = np.isfinite(column_of(model, "age", "standard_error"))
    assert finite.any()
    for column in COLUMNS:
        for what in ("coefficient", "standard_error"):
            reached, right = (column_of(each, column, what) for each in (model, rest))
            if name != "multinomial":  # the separated class has its own equation
                np.testing.assert_allclose(reached[finite], right[finite], rtol=5e-3, err_msg=f"{column}, {what}")


@MASKED
@pytest.mark.parametrize("name", CASES)
def test_columns_that_depend_on_each_other_are_refused_by_name(name, masked):
    frame = table_of(CASES[name].outcome)
    frame.insert(2, "twice", 2.0 * frame["age"] - frame["bmi"])
    with pytest.raises(DataError, match=r"(?s)depend.*age.*bmi.*twice"):
        fit(name, frame, masked=masked)


@MASKED
@pytest.mark.parametrize("name", CASES)
def test_a_lost_site_leaves_no_trace(name, masked):
    case = CASES[name]
    frame = table_of(case.outcome, n=1200, n_sites=4)
    step = ROUND.get(name, "sum_derivatives")
    terms = {"masked": masked, "quorum": 3}
    with pytest.warns(LeftOutWarning):
        model = fit(name, frame, faults=Faults(lose={"s003": step}), **terms)
    alone = fit(name, frame[frame["site"] < 3], masked=masked)
    np.testing.assert_allclose(model.to_frame().to_numpy(), alone.to_frame().to_numpy(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_a_long_tail_does_not_stop_a_fit(name):
    """Some patients have a value of 20 to 60 standard deviations, as numbers of visits or costs do."""
    case = CASES[name]
    frame = table_of(case.outcome, n=1500)
    visits = np.round(np.random.default_rng(3).lognormal(0.5, 1.6, len(frame)))
    frame.insert(2, "visits", visits)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SeparationWarning)
        masked = fit(name, frame, policy=mc.Policy(exact_times=True))
        unmasked = fit(name, frame, masked=False)  # a time is a cell that few patients have
    assert masked.converged_
    assert unmasked.converged_
    spread = np.nanmax(unmasked.to_frame()["standard_error"].to_numpy(np.float64))
    assert np.isfinite(spread)
    np.testing.assert_allclose(
        masked.to_frame()["coefficient"].to_numpy(), unmasked.to_frame()["coefficient"].to_numpy(), atol=1e-4 * spread
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_unit_of_a_column_changes_nothing_but_its_coefficient(name):
    case = CASES[name]
    frame = table_of(case.outcome)
    years, days = (fit(name, frame.assign(age=frame["age"] * unit)) for unit in (1.0, 365.25))
    np.testing.assert_allclose(column_of(days, "bmi"), column_of(years, "bmi"), rtol=1e-5)
    np.testing.assert_allclose(365.25 * column_of(days, "age"), column_of(years, "age"), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_patients_with_gaps_are_left_out_as_if_they_were_not_there(name):
    case = CASES[name]
    frame = table_of(case.outcome)
    gaps = np.random.default_rng(1).random(len(frame)) < 0.1
    complete = fit(name, frame[~gaps])
    with_gaps = fit(name, frame.assign(bmi=frame["bmi"].where(~gaps)))
    np.testing.assert_allclose(with_gaps.to_frame().to_numpy(), complete.to_frame().to_numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in SEPARABLE if CASES[name].outcome in ("class", "classes")])
def test_classes_that_a_column_separates_are_named(name):
    case = CASES[name]
    frame = table_of(case.outcome)
    cuts = [60.0] if case.outcome == "class" else [55.0, 65.0]
    frame = frame.assign(y=np.digitize(frame["age"], cuts))
    assert frame["y"].nunique() == (2 if case.outcome == "class" else len(CLASSES))
    if case.outcome == "classes":  # patients near the cut points decide the sums
        with pytest.raises(DisclosureRefused, match=r"separate the outcomes.*age"):
            fit(name, frame, policy=mc.Policy())
        return
    with pytest.warns(SeparationWarning, match="age"):
        model = fit(name, frame)
    assert np.isnan(column_of(model, "age", "standard_error")).all()


@pytest.mark.slow
@pytest.mark.dealt(4)
@pytest.mark.parametrize("name", CASES)
def test_four_hundred_masked_sites_end_where_one_table_does(name):
    """A masked sum over many sites has a coarse grid, which the rounds must not take for a fall of the likelihood."""
    case = CASES[name]
    frame = table_of(case.outcome, n=8000, n_sites=400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the rounds ended at a change of")
        masked, unmasked = (fit(name, frame, masked=each) for each in (True, False))
    assert masked.converged_
    np.testing.assert_allclose(column_of(masked, "age"), column_of(unmasked, "age"), rtol=1e-3)
    errors = (column_of(each, "age", "standard_error") for each in (masked, unmasked))
    np.testing.assert_allclose(*errors, rtol=1e-3)
