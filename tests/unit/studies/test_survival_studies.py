"""How files become times to an event, what their errors tell, and runs, comparisons and audits over them."""

import json

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.data import DataWarning, SurvivalData
from multicentre.data.concatenate import concatenate
from multicentre.datasets import simulate_survival, split_by_time, split_iid
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, SchemaMismatch
from multicentre.estimator.registry import METHODS
from multicentre.privacy.policy import Policy
from multicentre.studies.audit import audit
from multicentre.studies.comparison import compare, split_rows
from multicentre.studies.runner import run_study
from multicentre.studies.site_data import find_reader, read_multiview_site, read_sites, read_survival_site
from multicentre.studies.site_patients import SiteData
from multicentre.studies.study_file import read_study, study_from_mapping
from multicentre.survival import AalenJohansen
from support.survival_toy import STUDY, TOY, FedMeanDifference, FedPrivateMean, write_study

NAMES = {
    *("fed-cox", "fed-hazard-boost", "fed-rsf", "fed-surv-boost", "fed-surf", "fed-deep-surv"),
    *("aalen-johansen", "kaplan-meier", "log-rank", "fed-stack", "survival-evaluation"),
}
PATIENTS = """\
who,age,stage,centre,time,event
007,61,I,a,12.5,1
7,70,,b,30,0
x,55,II,a,0,2
"""


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy-survival", TOY)


def study_of(folder, content=PATIENTS, *, id_column="who", label_column=None, **how):
    """Write one site's file and return the study that reads it."""
    (folder / "patients.csv").write_text(content, encoding="utf-8")
    table = {"unit": "months", "categories": {"stage": ["I", "II"], "centre": ["a", "b"]}, **how}
    data = {"survival": table, "id_column": id_column, "label_column": label_column}
    given = {name: value for name, value in data.items() if value is not None}
    content = {
        "study": {"name": "x", "method": "toy-survival"},
        "data": given,
        "sites": {"lyon": {"file": "patients.csv"}},
    }
    return study_from_mapping(content, folder=folder)


def test_methods_on_times_to_an_event_can_be_named():
    assert set(METHODS) >= NAMES
    assert all(find_reader(name) is read_survival_site for name in NAMES)


def test_columns_levels_and_identifiers_are_read_as_they_are_written(tmp_path):
    (site,) = read_sites(study_of(tmp_path)).values()
    assert site.data.columns == ("age", "stage=I", "stage=II", "centre=a", "centre=b")
    np.testing.assert_array_equal(site.data.X, [[61, 1, 0, 1, 0], [70, np.nan, np.nan, 0, 1], [55, 0, 1, 1, 0]])
    assert site.data.ids.tolist() == ["007", "7", "x"]
    assert (site.data.time.tolist(), site.data.event.tolist(), site.data.unit) == ([12.5, 30, 0], [1, 0, 2], "months")
    assert site.labels == ("1", "0", "2")


def test_a_reference_has_no_column(tmp_path):
    (site,) = read_sites(study_of(tmp_path, references={"centre": "b"})).values()
    assert site.data.columns == ("age", "stage=I", "stage=II", "centre=a")
    assert site.data.levels == ("stage=I", "stage=II", "centre=a", "centre=b")
    assert site.data.X[:, -1].tolist() == [1, 0, 1]


def test_a_label_column_is_no_column_of_the_data(tmp_path):
    (site,) = read_sites(study_of(tmp_path, label_column="centre", categories={"stage": ["I", "II"]})).values()
    assert site.labels == ("a", "b", "a")
    assert site.data.columns == ("age", "stage=I", "stage=II")
    with pytest.raises(
        DataError, match="column 'stage': every patient must have a label; 1 patients have none"
    ) as caught:
        read_sites(study_of(tmp_path, label_column="stage", categories={"centre": ["a", "b"]}))
    assert caught.value.where == f"lyon, {tmp_path / 'patients.csv'}"
    with pytest.raises(DataError, match="no such column"):
        read_sites(study_of(tmp_path, label_column="group"))


def test_names_and_a_choice_of_columns_are_those_of_the_study(tmp_path):
    renamed = PATIENTS.replace("time,event", "months,died")
    study = study_of(tmp_path, renamed, time="months", event="died", columns=["stage", "age"])
    study = study.model_copy(update={"data": study.data.model_copy(update={"id_column": None})})
    (site,) = read_sites(study).values()
    assert site.data.columns == ("stage=I", "stage=II", "age")
    assert site.data.ids is None


@pytest.mark.parametrize("levels", [["01", "1"], [1, 2]])
def test_levels_are_texts_or_numbers_as_the_study_writes_them(tmp_path, levels):
    content = f"code,time,event\n{levels[0]},1,1\n{levels[1]},2,0\n"
    (site,) = read_sites(study_of(tmp_path, content, id_column=None, categories={"code": levels})).values()
    assert site.data.X.tolist() == [[1, 0], [0, 1]]
    assert site.data.columns == (f"code={levels[0]}", f"code={levels[1]}")


@pytest.mark.parametrize("levels", [[], ["a", 1], ["a", "a"], [""]])
def test_unfit_levels_are_refused(tmp_path, levels):
    with pytest.raises(ConfigurationError) as caught:
        study_of(tmp_path, categories={"stage": levels})
    assert str(caught.value.where).startswith("data.survival.categories.stage")


def test_parquet_is_read_alike(tmp_path):
    pytest.importorskip("pyarrow")
    study = study_of(tmp_path)
    pd.read_csv(tmp_path / "patients.csv", dtype={"who": str}).to_parquet(tmp_path / "patients.parquet")
    other = study.model_copy(update={"sites": {"lyon": {"file": tmp_path / "patients.parquet"}}})
    assert read_sites(other)["lyon"].data.digest() == read_sites(study)["lyon"].data.digest()


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("61,I,", "61,secret77,", "1 of 3 entries of 'stage' is a level that was not declared (row 1)"),
        ("007,61", "007,secret77", "1 of 3 entries of 'age' is not a number (row 1)"),
        ("12.5,1", "-77.77,1", "0 of 3 are missing or infinite, 1 negative"),
        ("12.5,1", ",1", "'time': times must be finite and non-negative; 1 of 3 are missing"),
        ("12.5,1", "secret77,1", "1 of 3 entries of 'time' is not a number (row 1)"),
        ("12.5,1", "12.5,77.77", "events must be integers from 0 to 100; 1 of 3 are not"),
        ("12.5,1", "12.5,", "events must be integers from 0 to 100; 1 of 3 are not"),
        ("time,event", "weeks,event", "'time' must be a column of the table"),
        ("age,stage", "age,grade", "'stage' must be a column of the table"),
        ("\n7,70", "\n007,70", "'who': ids must be unique and non-empty; 1 are repeated"),
    ],
)
def test_errors_name_site_file_and_column_and_no_value(tmp_path, old, new, what):
    with pytest.raises(DataError) as caught:
        read_sites(study_of(tmp_path, PATIENTS.replace(old, new)))
    assert what in caught.value.what
    assert caught.value.where == f"lyon, {tmp_path / 'patients.csv'}"
    assert "77" not in str(caught.value).replace(str(tmp_path), "")


def test_all_faults_of_a_file_are_named_at_once(tmp_path):
    rows = (
        PATIENTS.replace(",age,", ",Age,")
        .replace(",I,", ",i ,")
        .replace("12.5,1", "soon,yes")
        .replace("\n7,", "\n007,")
    )
    with pytest.raises(DataError) as caught:
        read_sites(study_of(tmp_path, rows, label_column="group", columns=["age", "stage"]))
    what = caught.value.what
    assert "column 'group': the file has no such column" in what
    assert "'age' must be a column of the table; it is missing" in what
    assert (
        "1 of 3 entries of 'stage' is a level that was not declared (row 1), 1 of them for upper and lower case" in what
    )
    assert "1 of 3 entries of 'time' is not a number (row 1)" in what
    assert "1 of 3 entries of 'event' is not a number (row 1)" in what
    assert "'who': ids must be unique and non-empty; 1 are repeated" in what
    assert "Did you mean 'Age'?" in caught.value.hint


def test_a_condition_that_cannot_be_read_hides_no_other_fault_and_rows_are_those_of_the_file(tmp_path):
    study = study_of(tmp_path, PATIENTS.replace("55,II", "55,III"))
    study = study.model_copy(update={"data": study.data.model_copy(update={"where": "age < 60"})})
    with pytest.raises(DataError, match=r"1 of 1 entries of 'stage' is a level that was not declared \(row 3\)"):
        read_sites(study)
    study = study.model_copy(update={"data": study.data.model_copy(update={"where": "weight < 60"})})
    with pytest.raises(DataError, match=r"'weight' must be a column .*1 of 3 entries of 'stage' is a level"):
        read_sites(study)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"data": {"survival": {}, "views": {"a": ["x"]}}}, "data"),
        ({"data": {"survival": {}, "events": {"modes": {"a": "x", "b": "y"}}}}, "data"),
        ({"sites": {"lyon": {"events": "a.csv"}}}, "sites.lyon"),
        ({"data": {"survival": {"times": "t"}}}, "data.survival"),
        ({"data": {"survival": {"unit": 3}}}, "data.survival.unit"),
        ({"data": {"survival": {"references": {"grade": "I"}}}}, "data.survival.references"),
        (
            {"data": {"survival": {"categories": {"grade": ["I", "II"]}, "references": {"grade": "III"}}}},
            "data.survival.references.grade",
        ),
    ],
)
def test_unfit_studies_are_refused(change, where):
    content = {"study": {"name": "x", "method": "toy-survival"}, "data": {"survival": {}}, "sites": {"lyon": {}}}
    with pytest.raises(ConfigurationError) as caught:
        study_from_mapping(content | change)
    assert caught.value.where == where


def test_method_and_data_that_do_not_fit(tmp_path):
    with pytest.raises(ConfigurationError, match="data must be views for this method; got times to an event") as caught:
        read_multiview_site(study_of(tmp_path), "lyon")
    assert caught.value.where == "data.survival"
    bare = study_from_mapping({"study": {"name": "x", "method": "toy-survival"}, "sites": {"lyon": {}}})
    with pytest.raises(ConfigurationError, match="must be given for this method") as caught:
        read_survival_site(bare, "lyon")
    assert caught.value.where == "data.survival"


def test_a_study_survives_its_own_writing(tmp_path):
    study = read_study(write_study(tmp_path))
    (tmp_path / "frozen.toml").write_text(study.to_toml(), encoding="utf-8")
    assert read_study(tmp_path / "frozen.toml") == study


def test_what_looks_wrong_is_warned_of_with_the_site(tmp_path):
    rows = "".join(f"p{number},{60 + number},I,a,{number},{number % 2}\n" for number in range(20))
    rows += "".join(f"q{number},999,I,a,{number},1\n" for number in range(3))
    with pytest.warns(DataWarning, match="^lyon: 3 of 23 entries of 'age' are 999"):
        (site,) = read_sites(study_of(tmp_path, "who,age,stage,centre,time,event\n" + rows)).values()
    assert site.data.X[-1, 0] == 999


def test_a_site_with_another_level_or_column_is_named(tmp_path):
    path = write_study(tmp_path)
    oslo = tmp_path / "oslo.csv"
    oslo.write_text(oslo.read_text().replace(",II,", ",III,", 4))
    with pytest.raises(DataError, match="4 of 80 entries of 'grade' are levels") as caught:
        read_sites(read_study(path))
    assert caught.value.where == f"oslo, {oslo}"
    path.write_text(STUDY.replace('columns = ["age", "grade", "size"]\n', ""))
    write_study(tmp_path, path.read_text())
    oslo.write_text(oslo.read_text().replace("size", "tumour_size").replace("free text", "1"))
    for other in ("lyon", "porto"):
        (tmp_path / f"{other}.csv").write_text((tmp_path / f"{other}.csv").read_text().replace("free text", "1"))
    with pytest.raises(SchemaMismatch, match="size, tumour_size") as caught:
        read_sites(read_study(path))
    assert caught.value.where == "oslo"


@pytest.mark.parametrize("masked", [False, True])
def test_a_study_runs_from_files_to_its_folder(tmp_path, masked):
    terms = "" if masked else "\n[privacy]\nsecure_sum = false\npolicy = {min_patients = 0}\n"
    folder = run_study(read_study(write_study(tmp_path, STUDY + terms)))
    assert folder.metadata["status"] == "finished"
    assert {row["patients"] for row in folder.metadata["sites"]} == {80}
    comparison = json.loads((folder.path / "comparison.json").read_text())
    metrics = {row["name"]: row for row in comparison["metrics"]}
    assert set(metrics) == {"concordance", "ibs"}
    assert comparison["patients_held_out"] == 60
    assert comparison["notes"] == {}
    assert metrics["concordance"]["federated"] > 0.6
    assert 0 < metrics["ibs"]["federated"] < 0.25
    assert metrics["ibs"]["federated"] == pytest.approx(metrics["ibs"]["pooled"], rel=1e-9)
    assert set(metrics["ibs"]["site_alone"]) == {"lyon", "oslo", "porto"}
    loaded = kept_model(folder)
    assert loaded.feature_names_in_ == ("age", "grade=II", "size")
    assert [one["name"] for one in folder.metadata["headline"]] == ["concordance", "integrated Brier score"]


def test_a_policy_leaves_columns_out_of_the_fit(tmp_path):
    path = write_study(tmp_path, STUDY + '\n[privacy.policy]\ncolumns = ["grade", "age"]\n')
    folder = run_study(read_study(path))
    assert kept_model(folder).feature_names_in_ == ("age", "grade=II")


def kept_model(folder):
    facts = json.loads((folder.path / "model" / "model.json").read_text(encoding="utf-8"))["facts"]
    with np.load(folder.path / "model" / "model.npz") as arrays:
        model = FedMeanDifference()
        model._restore(dict(arrays), facts)
    return model


def in_memory(sites, **tables):
    content = {"study": {"name": "x", "method": "toy-survival"}, "sites": {name: {} for name in sites}, **tables}
    return study_from_mapping(content)


def run_in_memory(tmp_path, sites, **tables):
    study = in_memory(sites, **tables).with_output(tmp_path)
    return run_study(study, sites={name: SiteData(data) for name, data in sites.items()})


@pytest.mark.parametrize("least", [0, 10])
def test_a_single_site_can_run_on_times_that_each_hold_the_minimum(tmp_path, least):
    sites = {"lyon": simulate_survival(120, 3, 0)}
    folder = run_in_memory(tmp_path, sites, privacy={"policy": {"min_patients": least}})
    assert folder.metadata["status"] == "finished"


def test_a_single_site_with_few_events_is_refused(tmp_path):
    lyon = simulate_survival(120, 3, 0)
    few = SurvivalData(lyon.X, lyon.time, np.arange(120) < 6, columns=lyon.columns, unit=lyon.unit)
    with pytest.raises(DisclosureRefused, match="at least 10 patients"):
        run_in_memory(tmp_path, {"lyon": few})


def test_sites_whose_units_differ_by_name_are_refused(tmp_path):
    lyon = simulate_survival(60, 3, 0)
    oslo = SurvivalData(lyon.X, 30 * lyon.time, lyon.event, columns=lyon.columns, unit="days")
    with pytest.raises(SchemaMismatch, match=r"'months'; got 'days'") as caught:
        run_in_memory(tmp_path, {"lyon": lyon, "oslo": oslo})
    assert "oslo" in caught.value.where


def test_no_event_at_any_site_is_an_error_and_at_one_site_is_none(tmp_path):
    lyon, oslo = simulate_survival(60, 3, 0), simulate_survival(60, 3, 1)
    none = SurvivalData(oslo.X, oslo.time, np.zeros(60), columns=oslo.columns, unit="months")
    folder = run_in_memory(tmp_path, {"lyon": lyon, "oslo": none})
    assert folder.metadata["status"] == "finished"
    comparison = json.loads((folder.path / "comparison.json").read_text())
    assert "oslo" not in comparison["metrics"][0]["site_alone"]
    assert "at least one patient must have an event" in comparison["notes"]["oslo"]
    with pytest.raises(DataError, match="at least one patient must have an event"):
        run_in_memory(tmp_path, {"lyon": none, "oslo": none})


def test_a_constant_column_at_one_site_or_all_fits(tmp_path):
    def flat(data):
        X = data.X.copy()
        X[:, 1] = 3.0
        return SurvivalData(X, data.time, data.event, columns=data.columns, unit="months")

    lyon, oslo = simulate_survival(60, 3, 0), simulate_survival(60, 3, 1)
    for sites in ({"lyon": lyon, "oslo": flat(oslo)}, {"lyon": flat(lyon), "oslo": flat(oslo)}):
        folder = run_in_memory(tmp_path, sites)
        assert np.isfinite(kept_model(folder).model_.coefficients).all()


def test_held_out_patients_have_events_in_proportion():
    data = simulate_survival(200, 2, 0, censoring=0.5, competing=True)
    site = SiteData(data)
    _, out = split_rows(len(data), site.labels, 0.25, np.random.default_rng(0))
    for event in (0, 1, 2):
        assert abs((data.event[out] == event).sum() - (data.event == event).sum() / 4) <= 1


@pytest.mark.parametrize(
    ("method", "parameters", "figure"),
    [
        ("fed-cox", {}, "concordance"),
        ("kaplan-meier", {"group": "grade=II"}, "distance"),
        ("aalen-johansen", {"group": "grade=II", "causes": [1]}, "distance"),
    ],
)
def test_methods_of_the_package_run_as_studies(tmp_path, method, parameters, figure):
    text = STUDY.replace("toy-survival", method) + "\n[privacy]\nsecure_sum = true\n\n[parameters]\n"
    text += "".join(f"{name} = {json.dumps(value)}\n" for name, value in parameters.items())
    folder = run_study(read_study(write_study(tmp_path, text)))
    comparison = json.loads((folder.path / "comparison.json").read_text())
    row = {one["name"]: one for one in comparison["metrics"]}[figure]
    assert row["federated"] == pytest.approx(row["pooled"], abs=0.01)
    assert comparison["notes"] == {}


def test_competing_causes_in_files_are_estimated_by_name(tmp_path):
    text = STUDY.replace("toy-survival", "aalen-johansen") + "\n[parameters]\ncauses = [1, 2]\ntimes = [12, 24, 36]\n"
    path = write_study(tmp_path, text)
    for seed, site in enumerate(("lyon", "oslo", "porto")):
        table = pd.read_csv(tmp_path / f"{site}.csv", dtype={"patient": str})
        simulated = simulate_survival(len(table), 3, seed, competing=True)
        table.assign(months=simulated.time, died=simulated.event).to_csv(tmp_path / f"{site}.csv", index=False)
    study = read_study(path)
    data = {name: site.data for name, site in read_sites(study).items()}
    assert set(np.concatenate([one.event for one in data.values()])) == {0, 1, 2}
    model = AalenJohansen.load(run_study(study).path / "model")
    expected = AalenJohansen(causes=[1, 2], times=[12, 24, 36]).fit(mc.Federation.in_process(data))
    np.testing.assert_array_equal(model.incidence_, expected.incidence_)
    assert (model.incidence_[0, :, -1] > 0).all()


@pytest.mark.parametrize("split", [split_iid, split_by_time])
def test_a_comparison_asks_every_fit_about_the_same_patients(split):
    sites = {name: SiteData(data) for name, data in split(simulate_survival(240, 3, 2), 3, 0).items()}
    found = compare(FedMeanDifference(), sites, seed=4)
    random = np.random.default_rng(4)
    rows = {name: split_rows(len(site.data), site.labels, 0.25, random) for name, site in sites.items()}
    train = concatenate({name: site.data.take(rows[name][0]) for name, site in sites.items()})
    test = concatenate({name: site.data.take(rows[name][1]) for name, site in sites.items()})
    assert found.n_held_out == len(test)
    assert found.federated == pytest.approx(found.pooled, rel=1e-9)
    assert len({metrics["ibs"] for metrics in found.site_alone.values()}) == 3
    model = _fitted_on(train)
    assert found.pooled == pytest.approx(model.assess(test, training=train), rel=1e-9)


def _fitted_on(data):
    with mc.Federation.in_process({"pooled": data}, policy=Policy(min_patients=1)) as federation:
        return FedMeanDifference().fit(federation)


def test_an_audit_of_a_clipped_sum_is_consistent():
    sites = split_iid(simulate_survival(60, 3, 0), 2, 0)
    found = audit(FedPrivateMean(), sites, runs=20)
    assert found.verdict == "consistent"
    assert found.sensitivity_ratio == pytest.approx(1.0)
    kept = audit(FedPrivateMean(), sites, runs=10, policy=Policy(columns=("x0",)))
    assert kept.verdict == "consistent"


def test_the_faults_of_all_files_are_reported_at_once(tmp_path):
    study = read_study(write_study(tmp_path))
    first, *others = study.sites
    for site in (first, others[-1]):
        path = study.sites[site]["file"]
        header, row, *rows = path.read_text().splitlines()
        cells = ["?" for _ in row.split(",")]
        path.write_text("\n".join([header, ",".join(cells), *rows]))
    with pytest.raises(DataError) as caught:
        read_sites(study)
    assert str(caught.value).startswith(f"{first}, ")
    assert caught.value.__notes__[0].startswith(f"{others[-1]}, ")
