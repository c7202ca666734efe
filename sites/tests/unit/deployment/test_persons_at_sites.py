"""Real sites count persons: what a check finds, what the coordinator is told, and what is refused."""

import tomllib

import pandas as pd
import pytest

from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, RefusedByPolicy
from multicentre.estimator.registry import METHODS, Registered
from multicentre.privacy.ledger import read_ledger
from multicentre.studies.study import make_estimator
from multicentre.studies.study_file import read_study, study_from_mapping
from multicentre.studies.terms import digest_of
from multicentre_sites.deployment.approvals import read_approvals
from multicentre_sites.deployment.site_check import card_at, examine
from multicentre_sites.deployment.site_folder import read_site
from support.real_sites import Hospitals, set_terms
from support.survival_toy import STUDY, TOY, TablesSite, write_study

NAME = "Breast cancer"
PERSONS = STUDY.replace('id_column = "patient"', 'identifiers = ["patient"]')
NOBODY = STUDY.replace('id_column = "patient"\n', "")
STATED = STUDY.replace('id_column = "patient"', "one_row_per_patient = true")
NOISED = "toy-private"


@pytest.fixture(autouse=True)
def _toys(monkeypatch):
    monkeypatch.setitem(METHODS, "toy-survival", TOY)
    private = Registered("support.survival_toy:FedPrivateMean")
    monkeypatch.setitem(METHODS, NOISED, private)


def sites_of(tmp_path, text, n_persons=None, method=None):
    """Return three sites with 80 records each; those of lyon belong to so many persons."""
    study = write_study(tmp_path, text.replace("toy-survival", method or "toy-survival"))
    if n_persons is not None:
        frame = pd.read_csv(tmp_path / "lyon.csv")
        frame["patient"] = [f"p{row % n_persons}" for row in range(len(frame))]
        frame.to_csv(tmp_path / "lyon.csv", index=False)
    hospitals = Hospitals(tmp_path / "sites", study)
    for name in hospitals.names:  # which needs a name of every patient
        set_terms(hospitals.root / name, "min_difference = 5", "min_difference = 0")
    return hospitals


def checked(hospitals):
    """Return level and words of what a check says of the study at lyon."""
    found = examine(read_site(hospitals.root / "lyon"), check_coordinator=False)
    return next((one.level, one.detail) for one in found.findings if one.subject == f"study {NAME}")


def fit(hospitals):
    with hospitals.federation() as federation:
        return make_estimator(read_study(hospitals.study_path)).fit(federation)


def give_budget(hospitals, site="lyon"):
    set_terms(hospitals.root / site, "min_patients = 10", "epsilon = 5.0\nmin_patients = 10")


@pytest.mark.parametrize(
    ("text", "n_persons", "said"),
    [
        (STUDY, None, "80 patients can be read"),
        (PERSONS, None, "80 patients can be read"),
        (PERSONS, 20, "80 records of 20 patients can be read"),
        (STATED, None, "80 patients can be read"),
        (NOBODY, None, "80 records can be read"),
    ],
)
def test_a_check_tells_records_and_persons(tmp_path, text, n_persons, said):
    assert checked(sites_of(tmp_path, text, n_persons)) == ("ok", f"{said}, no ledger yet")


def test_many_records_of_few_persons_are_a_fault_and_are_refused(tmp_path):
    hospitals = sites_of(tmp_path, PERSONS, n_persons=8)
    level, said = checked(hospitals)
    assert level == "fault"
    assert "the data have fewer patients here than the 10" in said
    with pytest.raises(DisclosureRefused, match=r"has fewer patients than .* of 10"):
        fit(hospitals)


def test_the_coordinator_receives_no_count_but_what_is_counted(tmp_path):
    with sites_of(tmp_path, PERSONS, n_persons=20).federation() as federation:
        assert "patients" not in federation.site_facts["lyon"]
        assert federation.terms.counted == "patients"


def test_sites_without_identifiers_count_records(tmp_path):
    hospitals = sites_of(tmp_path, NOBODY)
    with hospitals.federation() as federation:
        assert federation.terms.counted == "records"
        assert federation.card(TablesSite).counted == "records"
    site = read_site(hospitals.root / "lyon")
    assert "at least 10 records" in str(card_at(site, read_approvals(site.approved).study(NAME)))


def test_a_statement_that_the_data_contradict_is_no_run(tmp_path):
    text = PERSONS.replace("[data.survival]", "one_row_per_patient = true\n\n[data.survival]", 1)
    hospitals = sites_of(tmp_path, text, n_persons=20)
    assert "one_row_per_patient must be false" in checked(hospitals)[1]
    with pytest.raises(ConfigurationError, match="cannot open this study"):
        fit(hospitals)


def test_the_statement_is_part_of_what_a_site_approves(tmp_path):
    hospitals = sites_of(tmp_path, NOBODY)
    hospitals.study_path.write_text(STATED)
    assert digest_of(study_from_mapping(tomllib.loads(NOBODY))) != digest_of(study_from_mapping(tomllib.loads(STATED)))
    with pytest.raises(RefusedByPolicy, match="must be those that are approved"):
        fit(hospitals)


def test_a_budget_is_refused_if_the_patients_of_records_are_unknown(tmp_path):
    hospitals = sites_of(tmp_path, NOBODY, method=NOISED)
    assert checked(hospitals)[0] == "ok"
    give_budget(hospitals)
    level, said = checked(hospitals)
    assert level == "fault"
    assert "its privacy budget is per patient" in said
    with pytest.raises(RefusedByPolicy, match=r"id_column or identifiers.*one_row_per_patient = true"):
        fit(hospitals)
    site = read_site(hospitals.root / "lyon")
    assert any("per patient" in one for one in card_at(site, read_approvals(site.approved).study(NAME)).warnings)


def test_a_budget_is_spent_where_the_study_states_one_row_per_patient(tmp_path):
    hospitals = sites_of(tmp_path, STATED, method=NOISED)
    give_budget(hospitals)
    assert checked(hospitals)[0] == "ok"
    assert fit(hospitals).privacy_.unit == "patient"


def test_noise_that_hides_one_record_of_several_is_a_fault_and_is_refused(tmp_path):
    hospitals = sites_of(tmp_path, PERSONS, n_persons=20, method=NOISED)
    level, said = checked(hospitals)
    assert level == "fault"
    assert "up to 4 records per patient" in said
    give_budget(hospitals)
    with pytest.raises(DataError, match="failed on the data of this site"):
        fit(hospitals)
    entries = list(read_ledger(read_site(hospitals.root / "lyon").ledger_of(NAME)))
    assert "the noise hides one record" in entries[-1]["reason"]
    assert not any(entry.get("rho") for entry in entries)
