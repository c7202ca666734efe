"""Missing values: counted as pandas counts them, handled alike at every site, and never silently."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.data.missing.values import Handling, MissingValues
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, IntegrityError
from multicentre.survival.cox.site import CoxSite
from multicentre_papers import baselines
from support.saved_models import description_of, sign

LEVELS = {"stage": ["I", "II", "III"]}
ENCODED = ("age", "marker", "stage=II", "stage=III")


def drawn_frame(n=360, seed=0):
    """Return patients of whom some lack a marker, a stage or both."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(60, 10, n), "marker": rng.normal(size=n)})
    frame["stage"] = rng.choice(["I", "II", "III"], n, p=[0.6, 0.3, 0.1])
    log_hazard = 0.03 * (frame["age"] - 60) + 0.5 * frame["marker"] + 0.8 * (frame["stage"] == "III")
    time = rng.exponential(20 * np.exp(-log_hazard))
    frame["time"], frame["event"] = np.ceil(np.minimum(time, 40)), (time < 40).astype(int)
    frame.loc[rng.random(n) < 0.15, "marker"] = np.nan
    frame.loc[rng.random(n) < 0.08, "stage"] = None
    return frame


def as_data(frame):
    return mc.data.SurvivalData.from_frame(
        frame, time="time", event="event", categories=LEVELS, references={"stage": "I"}, unit="months"
    )


def spread(frame, n_sites=3):
    return {f"site-{i}": as_data(frame.iloc[i::n_sites]) for i in range(n_sites)}


def fitted(model, sites, **options):
    with mc.Federation.in_process(sites, **options) as federation:
        return model.fit(federation)


FRAME = drawn_frame()
SITES = spread(FRAME)
COMPLETE = FRAME.dropna()


def test_counts_are_those_of_pandas():
    model = fitted(mc.survival.FedCox(), SITES)
    counted = model.missing_.set_index("column")
    expected = FRAME[["age", "marker", "stage"]].isna().sum()
    assert counted["missing"].to_dict() == expected.to_dict()
    assert counted["share"].to_dict() == pytest.approx((expected / len(FRAME)).to_dict())
    assert model.missing_values_.n_incomplete == len(FRAME) - len(COMPLETE)
    assert model.missing_line_ == (
        f"{len(FRAME) - len(COMPLETE)} of {len(FRAME)} records left out: "
        f"missing marker ({expected['marker']}), stage ({expected['stage']})."
    )


@pytest.mark.parametrize("times", ["stratified", "grid"])
def test_a_fit_to_complete_records_is_that_of_a_table_without_the_others(times):
    found = fitted(mc.survival.FedCox(times), SITES)
    kept = {name: as_data(FRAME.iloc[i::3].dropna()) for i, name in enumerate(SITES)}
    expected = fitted(mc.survival.FedCox(times), kept)
    assert found.feature_names_in_ == ENCODED
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.standard_errors_, expected.standard_errors_)
    assert found.n_patients_ == len(COMPLETE)
    assert expected.missing_line_ == "No missing values."


def test_coefficients_are_those_of_a_complete_case_fit():
    """The oracle is scikit-survival, on the records that pandas keeps."""
    sksurv = pytest.importorskip("sksurv.linear_model")
    found = fitted(mc.survival.FedCox(ties="breslow"), {"all": as_data(FRAME)}, policy=mc.Policy(min_patients=0))
    data = as_data(COMPLETE)
    expected = sksurv.CoxPHSurvivalAnalysis(ties="breslow", tol=1e-12).fit(data.X, data.outcome)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-6)


def test_a_missing_level_is_not_the_reference():
    """With zeros in all columns a missing stage would be stage I, and dilute its contrast with stage III."""
    frame = drawn_frame(1200, seed=3)
    frame["marker"] = 0.0
    hidden = (frame["stage"] == "III") & (np.arange(len(frame)) % 2 == 0)
    frame.loc[hidden, "stage"] = None
    columns = frame[["stage", "time", "event"]]
    found = fitted(mc.survival.FedCox(), spread(columns))
    expected = fitted(mc.survival.FedCox(), spread(columns.dropna()))
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0, atol=0.02)


def test_an_indicator_marks_what_is_missing():
    model = fitted(mc.survival.FedCox(missing="indicator"), SITES)
    assert model.feature_names_in_ == (*ENCODED, "missing_marker", "missing_stage")
    assert model.missing_values_.indicators == ("missing_marker", "missing_stage")
    centre = model.agreed_.centre
    filled = np.where(np.isnan(as_data(FRAME).X), centre[:4], as_data(FRAME).X)
    flags = FRAME[["marker", "stage"]].isna().to_numpy(float)
    by_hand = np.column_stack([filled, flags])
    sites = {
        name: mc.data.SurvivalData(by_hand[i::3], FRAME["time"][i::3], FRAME["event"][i::3], unit="months")
        for i, name in enumerate(SITES)
    }
    expected = fitted(mc.survival.FedCox(), sites)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.predict(FRAME), expected.predict(by_hand), rtol=0, atol=1e-6)


def test_an_indicator_never_takes_the_name_of_a_column():
    rows = np.column_stack([np.where(np.arange(60) % 4, 1.0, np.nan), np.arange(60.0)])
    data = mc.data.SurvivalData(rows, np.arange(1.0, 61), np.arange(60) % 2, columns=["age", "missing_age"])
    with pytest.raises(DataError, match="names of indicators must differ from column names; got missing_age"):
        fitted(mc.survival.FedCox(missing="indicator"), {"a": data, "b": data})


def test_an_incomplete_record_gets_no_prediction_from_a_model_of_complete_ones():
    model = fitted(mc.survival.FedCox(), SITES)
    incomplete = FRAME[["age", "marker", "stage"]].isna().any(axis=1).to_numpy()
    with pytest.warns(UserWarning, match=rf"{incomplete.sum()} of {len(FRAME)} patients have missing values"):
        risks = model.predict(FRAME)
    np.testing.assert_array_equal(np.isnan(risks), incomplete)
    with pytest.warns(UserWarning, match="left out of the score"):
        assert model.score(as_data(FRAME)) == model.score(as_data(COMPLETE))
    filling = fitted(mc.survival.FedCox(missing="mean"), SITES)
    assert np.isfinite(filling.predict(FRAME)).all()


@pytest.mark.parametrize("missing", ["complete", "mean", "indicator"])
def test_an_evaluation_handles_missing_values_as_the_fit_did(missing):
    model = fitted(mc.survival.FedCox("grid", missing=missing), SITES)
    judged = fitted(mc.survival.SurvivalEvaluation(model, scoring=["concordance", "brier"]), SITES)
    assert judged.missing_values_.missing == missing
    assert judged.n_patients_ == (len(COMPLETE) if missing == "complete" else len(FRAME))
    scored = COMPLETE if missing == "complete" else FRAME
    assert judged.concordance_ == pytest.approx(model.score(as_data(scored)), abs=0.01)


def test_groups_leave_out_who_has_none():
    curves = fitted(mc.survival.KaplanMeier("stage", times=[10.0, 20.0]), SITES)
    n_missing = int(FRAME["stage"].isna().sum())
    assert curves.n_left_out_ == n_missing
    assert curves.missing_["column"].tolist() == ["stage"]
    assert sum(curves.n_patients_.values()) == len(FRAME) - n_missing
    assert fitted(mc.survival.KaplanMeier(times=[10.0]), SITES).missing_line_ == "No missing values."


def test_counts_by_site_are_given_where_no_count_is_of_few():
    few = FRAME.copy()
    few.loc[few.index[1::3], "marker"] = 1.0
    few.loc[few.index[1], "marker"] = np.nan
    few["stage"] = "I"
    sites = {name: mc.data.SurvivalData.from_frame(one[["marker", "time", "event"]], time="time", event="event")
             for name, one in ((f"site-{i}", few.iloc[i::3]) for i in range(3))}  # fmt: skip
    with mc.Federation.in_process(sites) as federation:
        model = mc.survival.FedCox().fit(federation)
        table = model.missing_by_site()
    assert np.isnan(table.loc["site-1"]).all()
    assert list(table.attrs["refused"]) == ["site-1"]
    by_site = {f"site-{i}": few.iloc[i::3]["marker"].isna().sum() for i in range(3)}
    assert by_site["site-1"] == 1
    smaller, larger = sorted(("site-0", "site-2"), key=by_site.get)
    # The total less both other sites would be the one patient of site-1.
    assert np.isnan(table.loc[smaller, "marker"])
    assert table.loc[larger, "marker"] == by_site[larger]
    assert model.missing_.set_index("column").loc["marker", "missing"] - table["marker"].sum() >= 5


def test_an_unmasked_count_of_few_is_refused():
    rows = np.ones((60, 2)) * np.arange(60)[:, None]
    rows[:3, 1] = np.nan
    data = mc.data.SurvivalData(rows, np.ones(60), np.arange(60) % 2)
    with pytest.raises(DisclosureRefused, match=r"count_gaps.*secure_sum=True"):
        fitted(mc.survival.FedCox(), {"a": data, "b": data}, secure_sum=False)


def test_a_site_without_a_complete_record_is_named_with_its_empty_column():
    rows = np.arange(120.0).reshape(60, 2)
    whole = mc.data.SurvivalData(rows, np.arange(1.0, 61), np.arange(60) % 2)
    rows = rows.copy()
    rows[:, 1] = np.nan
    with pytest.warns(UserWarning, match="all entries of this site are missing"):
        empty = mc.data.SurvivalData(rows, np.arange(1.0, 61), np.arange(60) % 2)
    with pytest.raises(
        DataError, match=r"oslo.*at least one record must be complete; none is, and these columns are empty here: x1"
    ):
        fitted(mc.survival.FedCox(), {"lyon": whole, "nice": whole, "oslo": empty})


@pytest.mark.parametrize(
    ("model", "known"),
    [
        (mc.survival.FedCox(missing="native"), "'complete', 'indicator', 'mean'"),
        (mc.survival.KaplanMeier("stage", missing="mean"), "'complete'"),
        (mc.survival.FedCox(missing="impute"), "'complete', 'indicator', 'mean'"),
    ],
)
def test_what_a_method_does_not_know_is_refused_before_anything_is_counted(model, known):
    with mc.Federation.in_process(SITES) as federation:
        with pytest.raises(ConfigurationError, match=f"missing must be (one of )?{known}; got"):
            model.fit(federation)
        assert "count_gaps" not in federation.traffic.calls


def test_a_broken_off_fit_goes_on_with_complete_records(tmp_path):
    expected = fitted(mc.survival.FedCox(), SITES)
    for at in (6, 9):
        folder = tmp_path / str(at)
        with pytest.raises(KeyboardInterrupt):
            fitted(mc.survival.FedCox(), SITES, folder=folder, faults=Faults(interrupt_at=at))
        again = fitted(mc.survival.FedCox(), SITES, folder=folder)
        np.testing.assert_array_equal(again.coef_, expected.coef_)
        assert again.missing_values_ == expected.missing_values_


def test_a_site_that_handles_missing_values_otherwise_takes_no_state_back():
    """A state of complete records that is restored over all records would change the fit in silence."""
    data = SITES["site-0"]
    one, other = CoxSite("lyon", data), CoxSite("lyon", data)
    one.masked = other.masked = True
    one.count_gaps(Handling("complete", ("age", "marker", "stage")))
    assert one.within != other.within
    other.count_gaps(Handling("mean", ("age", "marker", "stage")))
    assert one.within != other.within
    with pytest.raises(
        ConfigurationError, match="missing must be 'complete', and the columns those of the first request"
    ):
        one.handle_gaps(Handling("mean", ("age", "marker", "stage")))


def test_a_saved_model_knows_what_was_missing(tmp_path):
    model = fitted(mc.survival.FedCox(missing="indicator"), SITES)
    model.save(tmp_path)
    again = mc.survival.FedCox.load(tmp_path)
    assert again.missing_values_ == model.missing_values_
    np.testing.assert_array_equal(again.predict(FRAME), model.predict(FRAME))
    described = description_of(tmp_path)
    described["mising"] = described.pop("missing")
    (tmp_path / "model.json").write_text(json.dumps(described))
    sign(tmp_path)
    with pytest.raises(IntegrityError):
        mc.survival.FedCox.load(tmp_path)


@pytest.mark.parametrize(
    ("missing", "line"),
    [
        ("complete", "5 of 40 records left out: missing age (5)."),
        ("mean", "5 of 40 records are incomplete: age (5); filled with the mean."),
        ("indicator", "5 of 40 records are incomplete: age (5); marked, and filled with the mean."),
        ("native", "5 of 40 records are incomplete: age (5); kept."),
    ],
)
def test_one_line_says_what_was_done(missing, line):
    assert MissingValues(missing, ("age", "sex"), (5, 0), 40, 5).line() == line


def test_trees_count_what_they_keep():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(240, 2))
    X[rng.random((240, 2)) < 0.1] = np.nan
    y = (np.nan_to_num(X[:, 0]) > 0).astype(int)
    sites = {f"site-{i}": mc.data.TableData(X[i::3], y[i::3]) for i in range(3)}
    for model in (mc.boosting.FedXGBClassifier(3), baselines.AdaBoostF(3)):
        assert fitted(model, sites).missing_["missing"].tolist() == np.isnan(X).sum(axis=0).tolist()


def test_the_guard_counts_the_records_that_are_left():
    """24 of 30 records are complete: they are behind the answers, and the policy's minimum is about them."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(30, 1))
    rows[:6] = np.nan
    data = mc.data.SurvivalData(rows, rng.exponential(size=30), np.arange(30) % 2)
    with mc.Federation.in_process({"a": data, "b": data, "c": data}) as federation:
        mc.survival.FedCox().fit(federation)
        sizes = [entry for entry in federation.ledgers["a"].entries if entry.get("step") == "count_times"]
    assert {field["records"] for entry in sizes for field in entry["fields"]} == {24}
    with pytest.raises(DisclosureRefused, match="fewer"):
        fitted(mc.survival.FedCox(), {"a": data, "b": data, "c": data}, policy=mc.Policy(min_patients=25))


@pytest.mark.parametrize("over_a_fold", [False, True])
def test_only_persons_with_a_complete_record_are_behind_an_answer(over_a_fold):
    """One person has all incomplete records; counted among the others, they would hide how many persons there are."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(60, 1))
    rows[::5] = np.nan
    ids = ["often" if number % 5 == 0 else f"p{number}" for number in range(60)]
    data = mc.data.SurvivalData(rows, rng.exponential(size=60), np.arange(60) % 2).with_identifier({"number": ids})
    with mc.Federation.in_process(dict.fromkeys("abc", data)) as federation:
        chosen = mc.validation.FederatedKFold(2).plan(federation).train(0) if over_a_fold else federation
        mc.survival.FedCox().fit(chosen)
        sizes = [entry for entry in federation.ledgers["a"].entries if entry.get("step") == "count_times"]
    behind = {(field["records"], field["patients"]) for entry in sizes for field in entry["fields"]}
    ((n_records, n_patients),) = behind
    assert n_patients == n_records
    assert over_a_fold or n_records == 48


@pytest.mark.parametrize("missing", ["complete", "mean"])
def test_a_printed_summary_ends_with_one_line_on_missing_values(missing):
    model = fitted(mc.survival.FedCox(missing=missing), SITES)
    summary = model.summary()
    assert summary.attrs["missing"] == model.missing_line_
    n_incomplete = int(FRAME[["age", "marker", "stage"]].isna().any(axis=1).sum())
    assert model.missing_line_.startswith(f"{n_incomplete} of {len(FRAME)} records ")
    for frame in (summary, summary.round(3), summary.loc[["age"]], summary[["coefficient", "p_value"]], summary.copy()):
        assert str(frame).endswith(f"\n{model.missing_line_}")
        assert frame._repr_html_().endswith(f"<p>{model.missing_line_}</p>")


def test_a_summary_is_a_frame_like_any_other(tmp_path):
    summary = fitted(mc.survival.FedCox(), SITES).summary()
    plain = pd.DataFrame(summary)
    assert isinstance(summary, pd.DataFrame)
    pd.testing.assert_frame_equal(summary, plain)
    assert summary["coefficient"].mean() == plain["coefficient"].mean()
    assert len(pd.concat([summary, plain])) == 2 * len(plain)
    assert "records" not in summary.to_csv()
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(summary)), plain)
    assert str(summary.drop(columns=list(summary.columns))).endswith(summary.attrs["missing"])
