"""The study file: what is read, what is refused, and that the frozen copy means the same."""

import dataclasses
import math
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError
from multicentre.privacy.policy import Policy
from multicentre.studies.serialisation import write_toml
from multicentre.studies.study import make_estimators
from multicentre.studies.study_file import read_study, study_from_mapping
from multicentre.studies.tables import (
    About,
    AnalysisTable,
    DataTable,
    EventsTable,
    OutcomeTable,
    PrivacyTable,
    RunTable,
    SurvivalTable,
    ValidationTable,
)
from multicentre.studies.terms import digest_of

SMALL = {"study": {"name": "pilot", "method": "toy"}, "sites": {"lyon": {"a": "a.csv"}, "oslo": {"a": "b.csv"}}}


MODES = {"procedure": "icd9cm-proc", "diagnosis": ["icd9cm-dx", "icd10cm"]}
EVENTS = {
    "study": {"name": "pilot", "method": "toy"},
    "data": {"events": {"modes": MODES}},
    "sites": {"lyon": {"events": "a.csv"}, "oslo": {"events": "b.csv", "outcomes": "c.csv"}},
}


def changed(table, **values):
    return {**SMALL, table: {**SMALL.get(table, {}), **values}}


def of_events(table, **values):
    return {**EVENTS, table: {**EVENTS.get(table, {}), **values}}


def with_events(**values):
    return {**EVENTS, "data": {"events": {"modes": MODES, **values}}}


def test_defaults_and_relative_paths(tmp_path):
    study = study_from_mapping(SMALL, folder=tmp_path)
    assert study.sites["lyon"]["a"] == tmp_path / "a.csv"
    assert study.about.output == tmp_path / "runs"
    assert (study.about.seed, study.run.quorum, study.run.holdout, study.run.compare) == (0, "all", 0.25, True)
    assert study.policies == {"lyon": Policy(), "oslo": Policy()}


def test_absolute_paths_stay(tmp_path):
    study = study_from_mapping(changed("sites", lyon={"a": str(tmp_path / "x.csv")}), folder=Path("elsewhere"))
    assert study.sites["lyon"]["a"] == tmp_path / "x.csv"


@pytest.mark.parametrize(
    ("content", "place", "hint"),
    [
        (changed("study", sead=3), "study", "'seed'"),
        ({**SMALL, "privcy": {}}, "study", "'privacy'"),
        (changed("run", quorm=2), "run", "'quorum'"),
        (changed("privacy", secure_sums=True), "privacy", "'secure_sum'"),
        (changed("privacy", policy={"min_patient": 5}), "privacy.policy, policy", "'min_patients'"),
        (changed("privacy", sites={"oslo": {"min_patient": 5}}), "privacy.sites.oslo, policy", "'min_patients'"),
        (changed("data", views={"aa": ["x"]}), "data.views", "'a'"),
        (changed("privacy", sites={"lion": {"min_patients": 5}}), "privacy.sites", "'lyon'"),
        (changed("data", zzzz=1), "data", "id_column"),
        (with_events(window_day=3), "data.events", "'window_days'"),
        (of_events("sites", lyon={"event": "a.csv"}), "sites.lyon", "'events'"),
        (of_events("sites", lyon={"events": "a.csv", "outcome": "b.csv"}), "sites.lyon", "'outcomes'"),
    ],
)
def test_unknown_key_names_the_nearest(content, place, hint):
    with pytest.raises(ConfigurationError) as caught:
        study_from_mapping(content)
    assert caught.value.where == place
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"study": {"name": "x"}, "sites": {"lyon": {}}}, "study.method"),
        ({"study": SMALL["study"]}, "sites"),
        ({**SMALL, "sites": {}}, "sites"),
        (changed("study", seed="1"), "study.seed"),
        (changed("study", seed=-1), "study.seed"),
        (changed("study", name=""), "study.name"),
        (changed("run", quorum=3), "run.quorum"),
        (changed("run", quorum=0), "run.quorum"),
        (changed("run", quorum="most"), "run.quorum"),
        (changed("run", holdout=1.0), "run.holdout"),
        (changed("run", time_limit_s=0), "run.time_limit_s"),
        (changed("sites", lyon={"a": 3}), "sites.lyon.a"),
        (changed("sites", lyon={"file": "x.csv"}), "sites.lyon.file"),
        (changed("sites", lyon={"file": "x.csv", "a": "y.csv"}), "sites.lyon"),
        (changed("data", views={"a": []}), "data.views.a"),
        (changed("privacy", policy=3), "privacy.policy"),
        (changed("privacy", policy={"min_patients": -1}), "privacy.policy, policy, min_patients"),
        (of_events("data", events={}), "data.events.modes"),
        (with_events(modes={"procedure": "icd9cm-proc"}), "data.events.modes"),
        (with_events(modes={"procedure": [], "diagnosis": "icd9cm-dx"}), "data.events.modes.procedure"),
        (with_events(window_days=0), "data.events.window_days"),
        (with_events(window_days=True), "data.events.window_days"),
        (with_events(anchor="birth"), "data.events.anchor"),
        (with_events(code=""), "data.events.code"),
        (of_events("data", views={"a": ["x"]}), "data"),
        (of_events("data", id_column="pid"), "data.id_column"),
        (of_events("sites", lyon={"outcomes": "a.csv"}), "sites.lyon"),
        ({**of_events("data", label_column="died"), "sites": {"lyon": {"events": "a.csv"}}}, "data.label_column"),
    ],
)
def test_unfit_value_names_its_key(content, place):
    with pytest.raises(ConfigurationError) as caught:
        study_from_mapping(content)
    assert caught.value.where == place


@pytest.mark.parametrize(
    ("content", "needed"),
    [
        (changed("study", seed="1"), "the value must be a whole number"),
        (changed("study", name=3), "the value must be a text in quotes"),
        (changed("privacy", secure_sum="yes"), "the value must be true or false"),
        (changed("run", quorum="most"), '"all" or a whole number'),
        (changed("run", holdout=2), "the value must be less than 1"),
        (changed("sites", lyon={"a": 3}), "the value must be a path in quotes"),
        ({**SMALL, "parameters": []}, "the value must be a table"),
        ({**SMALL, "study": []}, "the value must be a table"),
        (changed("data", views={"a": "x"}), "the value must be a list of names"),
        (with_events(modes={"procedure": "icd9cm-proc"}), "the value must be a table of at least two modes"),
        (with_events(modes={"procedure": 3, "diagnosis": "icd9cm-dx"}), "the value must be a list of names"),
        (with_events(anchor="birth"), "'first_event', 'calendar', 'admission' or 'sliding'"),
    ],
)
def test_what_is_needed_is_told_in_the_words_of_the_file(content, needed):
    with pytest.raises(ConfigurationError, match=re.escape(needed)):
        study_from_mapping(content)


FAULTS = {
    "study.seed": ("study", "seed", "1"),
    "the key 'exposur' is unknown. Did you mean 'exposure'": ("study", "exposur", "arm"),
    "the key 'quorm' is unknown": ("run", "quorm", 2),
    "run.holdout": ("run", "holdout", 1.0),
    "privacy.secure_sum": ("privacy", "secure_sum", "yes"),
    "the keys 'min_patient', 'min_site' are unknown": ("privacy", "policy", {"min_patient": 1, "min_site": 1}),
    "data.survival.time": ("data", "survival", {"time": 3}),
    "sites.lyon.a": ("sites", "lyon", {"a": 3}),
    "analysis.2.name": ("analysis", None, [{"name": "a", "method": "toy"}, {"name": "a/b", "method": "toy"}]),
}


def with_faults(names):
    content = {table: dict(values) for table, values in SMALL.items()}
    for name in names:
        table, key, value = FAULTS[name]
        content[table] = value if key is None else {**content.get(table, {}), key: value}
    return content


@given(st.sets(st.sampled_from(sorted(FAULTS)), min_size=1))
def test_all_faults_are_named_at_once_each_with_its_place(names):
    with pytest.raises(ConfigurationError) as caught:
        study_from_mapping(with_faults(names))
    lines = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert len(lines) == len(names)
    assert all(sum(name in line for line in lines) == 1 for name in names)


def test_a_misspelt_key_is_not_also_missing_but_a_missing_one_of_another_table_is():
    content = {**SMALL, "study": {"nam": "x", "method": "toy"}, "analysis": [{"method": "toy"}]}
    with pytest.raises(ConfigurationError, match="Did you mean 'name'") as caught:
        study_from_mapping(content)
    assert [note.partition(".")[0] for note in caught.value.__notes__] == ["analysis"]
    assert "analysis.1.name: the key must be given" in caught.value.with_notes


def test_keys_that_contradict_each_other_are_named_at_once(tmp_path):
    (tmp_path / "study.toml").write_text(
        """
        [study]
        name = "x"
        exposure = "arm"
        [data.survival]
        columns = ["age"]
        [data.labels]
        aeg = "age at entry"
        [sites.lyon]
        [sites.oslo]
        [privacy.sites]
        lion = {min_patients = 10}
        [[analysis]]
        name = "a"
        method = "fed-cox"
        [analysis.validation]
        strategy = "covariate"
        [[analysis]]
        name = "b"
        method = "fed-cox"
        [analysis.validation]
        strategy = "random"
        """
    )
    with pytest.raises(ConfigurationError) as caught:
        read_study(tmp_path / "study.toml")
    message = caught.value.with_notes
    assert message.startswith(str(tmp_path / "study.toml"))
    for part in ("study.exposure", "'aeg' is unknown", "'lion' is unknown", "analysis a, valid", "analysis b, valid"):
        assert message.count(part) == 1


def test_parameters_of_all_analyses_are_checked_before_the_first_one_runs():
    analyses = [
        {"name": "a", "method": "fed-cox", "parameters": {"tis": "x", "horizn": 1.0}},
        {"name": "b", "method": "fed-cox", "parameters": {"ties": "x"}},
        {"name": "c", "method": "kaplan-meier"},
        {"name": "d", "method": "fed-coks"},
    ]
    content = {"study": {"name": "x"}, "data": {"survival": {}}, "sites": {"lyon": {}}, "analysis": analyses}
    with pytest.raises(ConfigurationError) as caught:
        make_estimators(study_from_mapping(content))
    lines = [str(caught.value), *caught.value.__notes__]
    assert [line[:10] for line in lines] == ["analysis a", "analysis b", "analysis d"]
    assert "the keys 'tis', 'horizn' are unknown. Did you mean 'ties' and 'horizon'?" in lines[0]


def test_site_policy_goes_before_the_common_one(tmp_path):
    (tmp_path / "strict.toml").write_text("min_patients = 50\n")
    privacy = {"policy": {"min_patients": 20}, "sites": {"oslo": "strict.toml"}}
    study = study_from_mapping(changed("privacy", **privacy), folder=tmp_path)
    assert {site: policy.min_patients for site, policy in study.policies.items()} == {"lyon": 20, "oslo": 50}


def test_frozen_copy_means_the_same(tmp_path):
    content = {
        "study": {"name": 'a "quoted" \\ näme\x7f', "method": "toy", "seed": 4, "description": "two\nlines"},
        "parameters": {"rate": 1e-9, "sizes": [1, 2], "deep": {"on": True}},
        "data": {"id_column": "pid", "views": {"a b": ["x", "y"]}},
        "sites": {"st. lyon": {"a b": "a.csv"}, "oslo": {}},
        "privacy": {"policy": {"min_patients": 3, "methods": ["toy"]}, "sites": {"oslo": "p.toml"}},
        "run": {"quorum": 1, "time_limit_s": 2.5, "patience_s": 0.0},
    }
    study = study_from_mapping(content, folder=tmp_path)
    (tmp_path / "far").mkdir()
    copy = tmp_path / "far" / "study.toml"
    copy.write_text(study.to_toml(), encoding="utf-8")
    assert read_study(copy) == study


@pytest.mark.parametrize(("key", "value", "agreed"), [("patience_s", 5.0, False), ("time_limit_s", 5.0, True)])
def test_how_long_a_coordinator_waits_for_who_is_away_is_no_part_of_the_terms(key, value, agreed):
    other = study_from_mapping(changed("run", **{key: value}))
    assert (digest_of(other) != digest_of(study_from_mapping(SMALL))) is agreed


def test_modes_name_one_code_system_or_several():
    events = study_from_mapping(EVENTS).data.events
    assert events.modes == {"procedure": ("icd9cm-proc",), "diagnosis": ("icd9cm-dx", "icd10cm")}
    assert (events.window_days, events.anchor) == (30, "first_event")
    assert events.columns == {name: name for name in ("patient", "date", "system", "code")}
    by_stay = study_from_mapping(with_events(anchor="admission", admission="hadm")).data.events
    assert by_stay.columns == {"patient": "patient", "admission": "hadm", "system": "system", "code": "code"}


def test_frozen_copy_of_events_means_the_same(tmp_path):
    study = study_from_mapping(
        {**of_events("data", label_column="died"), "sites": {**EVENTS["sites"], "porto": {}}}, folder=tmp_path
    )
    copy = tmp_path / "far.toml"
    copy.write_text(study.to_toml(), encoding="utf-8")
    assert read_study(copy) == study


@pytest.mark.parametrize(
    ("text", "what"),
    [("[study", "the study must be valid TOML"), ("[study]\nname='x'\nseeed=1\n", "'seeed'"), ("\udcff", "UTF-8")],
)
def test_errors_name_the_file(tmp_path, text, what):
    path = tmp_path / "s.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError, match=what) as caught:
        read_study(path)
    assert str(path) in caught.value.where


def test_absent_file():
    with pytest.raises(ConfigurationError, match="the study cannot be read"):
        read_study("nowhere/study.toml")


def test_another_output_leaves_the_rest(tmp_path):
    study = study_from_mapping(SMALL)
    moved = study.with_output(tmp_path)
    assert moved.about.output == tmp_path
    assert moved.sites == study.sites


LEAVES = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
TABLES = st.recursive(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), LEAVES | st.lists(LEAVES)),
    lambda inner: st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), LEAVES | inner),
    max_leaves=8,
)


@given(TABLES)
def test_toml_reads_back(content):
    assert tomllib.loads(write_toml(content)) == content


def test_toml_special_values():
    read = tomllib.loads(write_toml({"inf": math.inf, "nan": math.nan, "none": None, "table": [{"a": 1}]}))
    assert read["inf"] == math.inf
    assert math.isnan(read["nan"])
    assert "none" not in read
    assert read["table"] == [{"a": 1}]
    with pytest.raises(ConfigurationError, match=r"values must be representable in TOML .*object"):
        write_toml({"a": {"b": object()}})


def test_documented_study_is_valid_and_all_keys_are_documented():
    page = (Path(__file__).resolve().parents[3] / "docs" / "study-file.md").read_text(encoding="utf-8")
    views, models, events, survival, table, several, vertical, validation = re.findall(
        r"```toml\n(.*?)```", page, re.DOTALL
    )
    study = study_from_mapping(tomllib.loads(views) | {"privacy": {}})
    assert study.data.label_column == "diagnosis"
    validated = study_from_mapping(tomllib.loads(table) | tomllib.loads(models), folder=Path("/study"))
    assert validated.method == "classifier-validation"
    assert validated.parameters["model"].load().covariates == ("age", "sex=m")
    assert study_from_mapping(tomllib.loads(events)).data.events.patient == "subject_id"
    assert study_from_mapping(tomllib.loads(survival)).data.survival.categories == {"grade": ("I", "II", "III")}
    assert study_from_mapping(tomllib.loads(table)).data.table.classes == ("no", "yes")
    assert len(study_from_mapping(tomllib.loads(several)).analyses) == 5
    assert study_from_mapping(tomllib.loads(vertical)).method == "fed-msgl"
    assert (
        study_from_mapping(
            tomllib.loads(table) | tomllib.loads(validation) | {"sites": {"lyon": {}}, "privacy": {}}
        ).validation.kind
        == "date"
    )
    for kind in (
        About,
        AnalysisTable,
        DataTable,
        EventsTable,
        OutcomeTable,
        SurvivalTable,
        PrivacyTable,
        ValidationTable,
        RunTable,
    ):
        assert all(f"| `{key}` |" in page for key in kind.model_fields), kind
    assert all(f"`{field.name}`" in page for field in dataclasses.fields(Policy))


@pytest.mark.parametrize(
    ("data", "counted"),
    [
        ({}, "records"),
        ({"id_column": "patient"}, "patients"),
        ({"identifiers": ["card"]}, "patients"),
        ({"one_row_per_patient": True}, "patients"),
        ({"events": {"modes": {"procedure": "proc", "diagnosis": "dx"}}}, "patients"),
    ],
)
def test_a_study_counts_patients_where_it_says_whose_a_row_is(data, counted):
    assert DataTable.model_validate(data).counted == counted


LABELLED = {
    "study": {"name": "pilot", "method": "fed-cox"},
    "data": {"survival": {"columns": ["age", "grade"], "categories": {"grade": ["I", "II"]}}},
    "sites": {"lyon": {"file": "lyon.csv"}},
}


def test_labels_are_not_part_of_the_terms_and_name_variables_of_the_study():
    labelled = {**LABELLED, "data": {**LABELLED["data"], "labels": {"grade": "Tumour grade", "time": "Follow-up"}}}
    study = study_from_mapping(labelled)
    assert digest_of(study) == digest_of(study_from_mapping(LABELLED))
    assert study.labels.name("grade=II") == "Tumour grade: II"
    assert study_from_mapping(tomllib.loads(study.to_toml())).labels == study.labels
    with pytest.raises(ConfigurationError, match="garde"):
        study_from_mapping({**LABELLED, "data": {**LABELLED["data"], "labels": {"garde": "Tumour grade"}}})
