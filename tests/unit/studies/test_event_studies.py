"""How files of events become a site's data, what their errors tell, and audits and comparisons over them."""

import numpy as np
import pandas as pd
import pytest

from multicentre.data import TableData
from multicentre.data.concatenate import concatenate
from multicentre.data.events.columns import CodesReadAsNumbers
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.estimator.registry import METHODS
from multicentre.privacy.policy import Policy
from multicentre.studies.audit import audit
from multicentre.studies.comparison import compare, split_rows
from multicentre.studies.run_metadata import initial_metadata
from multicentre.studies.site_data import read_event_site, read_multiview_site, read_outcomes, read_sites
from multicentre.studies.site_patients import SiteData
from multicentre.studies.study_file import read_study, study_from_mapping
from support import events_toy
from support.events_toy import CODES, TOY, FedCodeShares, clip, count_codes, random_events, write_study


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy-events", TOY)


def study_of(folder, events, outcomes=None, *, label_column=None, **how):
    """Write one site's files and return the study that reads them."""
    (folder / "events.csv").write_text(events, encoding="utf-8")
    files = {"events": "events.csv"}
    if outcomes is not None:
        (folder / "outcomes.csv").write_text(outcomes, encoding="utf-8")
        files["outcomes"] = "outcomes.csv"
    table = {"modes": {"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"}, **how}
    data = {"events": table} if label_column is None else {"events": table, "label_column": label_column}
    content = {"study": {"name": "x", "method": "toy-events"}, "data": data, "sites": {"lyon": files}}
    return study_from_mapping(content, folder=folder)


EVENTS = """\
patient,date,system,code
007,2020-01-01,icd9cm-proc,0389
007,2020-01-02,icd9cm-dx,0389
012,2020-01-01,icd9cm-proc,0389
012,2020-03-30,icd9cm-dx,4280
"""


def test_codes_and_identifiers_stay_as_they_are_written(tmp_path):
    (site,) = read_sites(study_of(tmp_path, EVENTS)).values()
    assert site.data.ids.tolist() == ["007"]
    assert site.data.codes == {"procedure": ("icd9cm-proc:0389",), "diagnosis": ("icd9cm-dx:0389",)}
    assert site.labels is None


def test_windows_and_columns_are_those_of_the_study(tmp_path):
    assert len(read_sites(study_of(tmp_path, EVENTS, window_days=90))["lyon"].data) == 2
    stays = EVENTS.replace("patient,date,system,code", "subject,stay,vocabulary,icd").replace(
        "2020-01-02", "2020-01-01"
    )
    names = {"patient": "subject", "admission": "stay", "system": "vocabulary", "code": "icd"}
    (site,) = read_sites(study_of(tmp_path, stays, anchor="admission", **names)).values()
    assert site.data.ids.tolist() == ["007"]


def test_outcomes_become_labels(tmp_path):
    outcomes = "patient,outcome\n012,0\n 007,1\n099,1\n"
    (site,) = read_sites(study_of(tmp_path, EVENTS, outcomes, window_days=90)).values()
    assert site.data.outcomes.tolist() == [1, 0]
    assert site.labels == ("1", "0")
    assert SiteData(site.data, ("case", "control")).labels == ("case", "control")
    named = outcomes.replace("outcome", "died")
    assert read_sites(study_of(tmp_path, EVENTS, named, label_column="died"))["lyon"].labels == ("1",)


def test_parquet_keeps_texts_and_tells_of_lost_zeros(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(
        {
            "patient": [7, 7],
            "date": pd.to_datetime(["2020-01-01", "2020-01-02"]),
            "system": ["icd9cm-proc", "icd9cm-dx"],
            "code": ["0389", "0389"],
        }
    )
    study = study_of(tmp_path, EVENTS, "patient,outcome\n7,1\n")
    files = {"events": tmp_path / "events.parquet", "outcomes": tmp_path / "outcomes.csv"}
    study = study.model_copy(update={"sites": {"lyon": files}})
    frame.to_parquet(files["events"])
    (site,) = read_sites(study).values()
    assert site.data.codes["diagnosis"] == ("icd9cm-dx:0389",)
    assert site.labels == ("1",)
    frame.assign(code=[389, 389]).to_parquet(files["events"])
    with pytest.warns(CodesReadAsNumbers, match="zeros"):
        read_sites(study)


@pytest.mark.parametrize(
    ("old", "new", "what", "place"),
    [
        ("system,code", "system,icd", "column", "'code'"),
        ("2020-03-30", "secret-77", "dates must be in ISO 8601; 1 of 4 are missing or in a different format", "'date'"),
        ("icd9cm-dx,4280", "secret-77,4280", "1 of 4 events have another one", "'system'"),
        ("012,2020-01-01", ",2020-01-01", "1 of 4 events have none", "'patient'"),
        (
            "\n007,2020-01-01,icd9cm-proc,0389",
            "",
            "at least one patient must have codes of every mode in one window; none has",
            "events",
        ),
    ],
    ids=["column", "date", "system", "patient", "nobody"],
)
def test_errors_name_site_file_and_column_and_no_value(tmp_path, old, new, what, place):
    with pytest.raises(DataError) as caught:
        read_sites(study_of(tmp_path, EVENTS.replace(old, new)))
    assert what in caught.value.what
    assert caught.value.where.startswith(f"lyon, {tmp_path / 'events.csv'}, ")
    assert place in caught.value.where
    assert "secret-77" not in str(caught.value)


@pytest.mark.parametrize(
    ("outcomes", "what", "place"),
    [
        ("patient,outcome\n012,1\n", "every patient must have an outcome; 1 of 1 have none", "outcomes"),
        (
            "patient,outcome\n007,secret-77\n012,1\n",
            "outcomes must be 0 or 1; 2 are missing or different",
            "column 'outcome'",
        ),
        ("patient,outcome\n007,\n012,1\n", "outcomes must be 0 or 1; 1 are missing or different", "column 'outcome'"),
        ("patient,outcome\n007,2\n012,1\n", "outcomes must be 0 or 1; 1 are missing or different", "column 'outcome'"),
        ("patient,outcome\n007,0\n 007,1\n,1\n", "1 rows repeat an earlier patient, 1 name none", "column 'patient'"),
        ("patient,died\n007,0\n", "the file has no such column", "column 'outcome'"),
        ("subject,outcome\n007,0\n", "the file has no such column", "column 'patient'"),
    ],
)
def test_errors_of_outcomes_name_their_file(tmp_path, outcomes, what, place):
    with pytest.raises(DataError) as caught:
        read_sites(study_of(tmp_path, EVENTS, outcomes))
    assert what in caught.value.what
    assert caught.value.where == f"lyon, {tmp_path / 'outcomes.csv'}, {place}"
    assert "secret-77" not in str(caught.value)


def test_true_and_false_are_outcomes(tmp_path):
    (tmp_path / "o.csv").write_text("patient,died\n1,True\n2,False\n")
    assert read_outcomes(tmp_path / "o.csv", "patient", "died") == {"1": 1, "2": 0}


def test_method_and_data_that_do_not_fit(tmp_path):
    study = study_of(tmp_path, EVENTS)
    with pytest.raises(ConfigurationError, match="data must be views for this method; got events") as caught:
        read_multiview_site(study, "lyon")
    assert caught.value.where == "data.events"
    content = {"study": {"name": "x", "method": "toy-events"}, "sites": {"lyon": {}}}
    with pytest.raises(ConfigurationError, match="must be given for this method") as caught:
        read_event_site(study_from_mapping(content), "lyon")
    assert caught.value.where == "data.events"
    with pytest.raises(DataError, match="must name a file"):
        read_sites(study.model_copy(update={"sites": {"lyon": {}}}))


def test_facts_hide_small_counts_of_modes():
    sites = {"lyon": random_events(12), "oslo": random_events(30), "porto": random_events(4)}
    sites["oslo"] = sites["oslo"].take(np.arange(30)).align(sites["oslo"].codes | {"mode-1": ("m1:00", "m1:01")})
    study = study_from_mapping({"study": {"name": "x", "method": "toy-events"}, "sites": {site: {} for site in sites}})
    facts = initial_metadata(study, sites, dict.fromkeys(sites, Policy(min_patients=5)))["sites"]
    assert facts[0] == {"name": "lyon", "patients": 12, "records": 12, "parts": {"mode-0": 12, "mode-1": 12}}
    behind = len(np.unique(sites["oslo"].coordinates[:, 0]))
    assert 5 <= behind <= 25
    assert facts[1]["parts"] == {"mode-0": behind, "mode-1": behind}
    assert facts[2] == {"name": "porto", "patients": None, "records": None, "parts": {"mode-0": None, "mode-1": None}}


def test_facts_tell_persons_next_to_their_records():
    data = TableData(np.zeros((60, 1)), np.zeros(60), identifier=[f"p{row % 12}" for row in range(60)])
    study = study_from_mapping({"study": {"name": "x", "method": "toy-events"}, "sites": {"lyon": {}}})
    (facts,) = initial_metadata(study, {"lyon": data}, {"lyon": Policy()})["sites"]
    assert (facts["patients"], facts["records"]) == (12, 60)
    (facts,) = initial_metadata(study, {"lyon": data}, {"lyon": Policy(min_patients=13)})["sites"]
    assert (facts["patients"], facts["records"]) == (None, 60)
    stated = study.model_copy(update={"data": study.data.model_copy(update={"one_row_per_patient": True})})
    with pytest.raises(ConfigurationError, match="one_row_per_patient must be false"):
        initial_metadata(stated, {"lyon": data}, {"lyon": Policy()})


def test_comparison_asks_every_fit_about_the_same_patients_and_codes(tmp_path):
    sites = read_sites(read_study(write_study(tmp_path)))
    assert len({one.data.codes["diagnosis"] for one in sites.values()}) == 2
    found = compare(FedCodeShares(), sites, seed=2)
    random = np.random.default_rng(2)
    split = {name: split_rows(len(one.data), one.labels, 0.25, random) for name, one in sites.items()}
    train = {name: one.data.take(split[name][0]).align(CODES) for name, one in sites.items()}
    test = concatenate({name: one.data.take(split[name][1]).align(CODES) for name, one in sites.items()})
    rows = clip(count_codes(test))
    for metrics, fitted in [
        (found.pooled, concatenate(train)),
        *((found.site_alone[one], train[one]) for one in train),
    ]:
        expected = np.abs(rows - clip(count_codes(fitted)).mean(axis=0)).mean()
        assert metrics["error"] == pytest.approx(expected)
        assert metrics["patients"] == len(test) == found.n_held_out
        assert metrics["cases"] == test.outcomes.sum()
    assert found.federated == pytest.approx(found.pooled, rel=1e-9)
    assert found.notes == {}
    assert len({metrics["error"] for metrics in found.site_alone.values()}) == 3


def test_comparison_without_outcomes_at_one_site_has_no_labels():
    codes = {"mode-0": ("m0:00", "m0:01"), "mode-1": ("m1:00",)}
    sites = {"lyon": SiteData(random_events()), "oslo": SiteData(random_events(seed=1, outcomes=None))}
    assert "cases" not in compare(FedCodeShares(codes), sites).federated
    sites["oslo"] = SiteData(random_events(seed=1))
    assert compare(FedCodeShares(codes), sites).federated["cases"] > 0


def test_comparison_of_sites_with_other_modes_is_refused():
    sites = {"lyon": SiteData(random_events()), "oslo": SiteData(random_events(n_codes=(4, 5, 2)))}
    with pytest.raises(SchemaMismatch, match="oslo"):
        compare(FedCodeShares(), sites)


CODES_OF_TWO_MODES = random_events().codes


@pytest.mark.slow
def test_audit_of_a_clipped_sum_is_consistent_and_its_canary_reaches_the_clip():
    sites = {"lyon": random_events(20), "oslo": random_events(20, seed=1)}
    found = audit(FedCodeShares(CODES_OF_TWO_MODES, epsilon=2.0), sites, runs=30)
    assert found.sensitivity_ratio == pytest.approx(1.0)
    assert found.verdict == "consistent"


def test_audit_catches_a_clip_that_is_missing(monkeypatch):
    monkeypatch.setattr(events_toy, "clip", lambda rows: rows)
    found = audit(FedCodeShares(CODES_OF_TWO_MODES, epsilon=2.0), {"lyon": random_events(20)}, runs=10)
    assert found.verdict == "violated"
    assert found.sensitivity_ratio > 1e6


def test_audit_keeps_to_the_codes_that_a_policy_allows():
    sites = {"lyon": random_events(20)}
    policy = Policy(columns=("mode-0", "m1:00", "m1:01"))
    found = audit(FedCodeShares(CODES_OF_TWO_MODES, epsilon=2.0), sites, policy=policy, runs=10)
    assert found.verdict == "consistent"
