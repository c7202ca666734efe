"""A run that was broken off is taken up under the terms that it began with, or refused before anything is asked."""

import dataclasses
import json
import re

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, IntegrityError, RefusedByPolicy
from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import read_ledger
from multicentre.studies import read_study, resume_run, run_study
from multicentre.studies.terms import digest_of, study_terms
from multicentre_sites.deployment.site_folder import read_site
from support.ledger_forgery import lines_of, write_anew
from support.real_sites import NAMES, Hospitals, approve_at
from support.studies_toy import TOY, FedViewMeans, Interrupts, write_study

MASKED = "secure_sum = true"
UNMASKED = "secure_sum = false"


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


@pytest.fixture
def run(tmp_path):
    """Return the folder of a run that was broken off after its third round."""
    with pytest.raises(KeyboardInterrupt):
        run_study(read_study(write_study(tmp_path)), listener=Interrupts(3))
    return next(tmp_path.glob("**/run.json")).parent


def entries_at(run):
    return {site: len(lines_of(run / "sites" / site / "ledger.jsonl")) for site in NAMES}


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def tamper(run, *, terms=True, ledgers=False):
    """Weaken the study to unmasked sums, and, where asked for, what the coordinator and the ledgers say of it."""
    edit(run / "study.toml", MASKED, UNMASKED)
    if terms:
        (run / "terms.json").write_text(json.dumps(study_terms(read_study(run / "study.toml"))))
    for site in NAMES if ledgers else ():
        path = run / "sites" / site / "ledger.jsonl"
        entries = lines_of(path)
        entries[0]["terms"] |= {"secure_sum": False, "agreed": digest_of(read_study(run / "study.toml"))}
        write_anew(path, entries)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (MASKED, UNMASKED, "privacy.secure_sum was true when the run began and is false now"),
        ("seed = 5", "seed = 6", "study.seed was 5 when the run began and is 6 now"),
        ("n_rounds = 6", "n_rounds = 60", "parameters.n_rounds was 6 when the run began and is 60 now"),
        ('quorum = "all"', "quorum = 2", 'run.quorum was "all" when the run began and is 2 now'),
    ],
)
def test_a_study_that_was_changed_is_refused_and_the_change_named(run, old, new, said):
    before = entries_at(run)
    edit(run / "study.toml", old, new)
    with pytest.raises(IntegrityError, match=re.escape(said)) as caught:
        resume_run(run)
    assert "Undo the change to resume the run" in caught.value.hint
    assert entries_at(run) == before
    edit(run / "study.toml", new, old)
    assert resume_run(run).metadata["status"] == "finished"


def test_a_weaker_policy_is_refused(run):
    edit(run / "study.toml", "[privacy]\n", "[privacy]\npolicy = {min_patients = 0}\n")
    with pytest.raises(IntegrityError, match=r"policy\.min_patients was 10 when the run began and is 0 now"):
        resume_run(run)


def test_what_each_reader_has_of_its_own_may_change(run):
    edit(run / "study.toml", "patience_s = 120.0", "patience_s = 60.0")
    assert resume_run(run).metadata["status"] == "finished"


def test_the_coordinators_record_changed_with_the_study_does_not_help(run):
    before = entries_at(run)
    tamper(run)
    with pytest.raises(IntegrityError, match="secure_sum was true when the run began and is false now") as caught:
        resume_run(run)
    assert caught.value.where == "lyon, ledger"
    assert entries_at(run) == before


def test_ledgers_changed_with_both_do_not_help(run):
    tamper(run, ledgers=True)
    with pytest.raises(IntegrityError, match="signature"):
        resume_run(run)


def test_ledgers_taken_away_with_both_changed_do_not_help(run):
    tamper(run)
    for site in NAMES:
        (run / "sites" / site / "ledger.jsonl").unlink()
    with pytest.raises(IntegrityError, match=r"the ledger must reach entry \d+, as recorded by the coordinator"):
        resume_run(run)


def test_all_records_of_the_terms_taken_away_do_not_help(run):
    """The checkpoints themselves name the terms that they were made under."""
    tamper(run)
    for file in [*run.glob("sites/*/ledger*"), run / "heads.json", run / "ledger-keys.json"]:
        file.unlink()
    with pytest.raises(ConfigurationError, match="other parameters"):
        resume_run(run)


@pytest.mark.parametrize(
    "changed",
    [
        {"study": "another"},
        {"secure_sum": False},
        {"quorum": 2},
        {"sites_per_patient": 2},
        {"policy": mc.Policy(min_patients=0)},
    ],
    ids=str,
)
def test_a_federation_over_the_same_folder_keeps_its_terms(tmp_path, changed):
    rng = np.random.default_rng(0)
    data = {
        name: mc.data.MultiViewData({"a": rng.normal(size=(40, 2)), "b": rng.normal(size=(40, 2))}) for name in NAMES
    }
    with mc.Federation.in_process(data, folder=tmp_path) as federation:
        FedViewMeans(n_rounds=2).fit(federation)
    with pytest.raises(IntegrityError, match="the run must be resumed with its original terms"):
        mc.Federation.in_process(data, folder=tmp_path, **changed)
    mc.Federation.in_process(data, folder=tmp_path).close()


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path / "sites", write_study(tmp_path))


def begun(hospitals, folder):
    """Fit over letters, so that the run of a folder has begun at every site."""
    with hospitals.federation(folder=folder) as federation:
        FedViewMeans(n_rounds=1).fit(federation)


def weakened(hospitals):
    study = read_study(hospitals.study_path)
    return study.model_copy(update={"privacy": study.privacy.model_copy(update={"secure_sum": False})})


def ledger_lengths(hospitals):
    return [len(list(read_ledger(read_site(hospitals.root / name).ledger_of("Ward 7")))) for name in NAMES]


def test_over_letters_other_terms_than_those_approved_are_refused(hospitals, tmp_path):
    begun(hospitals, tmp_path / "run")
    before, study = ledger_lengths(hospitals), weakened(hospitals)
    with pytest.raises(RefusedByPolicy, match="terms of the study must be those that are approved"):
        hospitals.federation(folder=tmp_path / "run", agreed=digest_of(study), secure_sum=False)
    with pytest.raises(RefusedByPolicy, match="must be that of the approved study"):
        hospitals.federation(folder=tmp_path / "run", secure_sum=False)
    assert ledger_lengths(hospitals) == before


def test_over_letters_a_run_does_not_change_its_terms_even_where_the_new_ones_were_approved(hospitals, tmp_path):
    begun(hospitals, tmp_path / "run")
    before = ledger_lengths(hospitals)
    edit(hospitals.study_path, "n_rounds = 6", "n_rounds = 7")
    for name in NAMES:
        approve_at(hospitals.root / name, hospitals.study_path)
    with pytest.raises(IntegrityError, match="under the terms that it began with here"):
        hospitals.federation(folder=tmp_path / "run")
    hospitals.handlers.clear()  # also after every site's process began anew
    with pytest.raises(IntegrityError, match="under the terms that it began with here"):
        hospitals.federation(folder=tmp_path / "run")
    assert ledger_lengths(hospitals) == before
    hospitals.federation(folder=tmp_path / "another").close()


def test_ledgers_of_real_sites_name_the_terms_that_their_stewards_approved(hospitals, tmp_path):
    begun(hospitals, tmp_path / "run")
    for name in NAMES:
        site = read_site(hospitals.root / name)
        first = next(iter(read_ledger(site.ledger_of("Ward 7"))))
        assert first["terms"]["agreed"] == digest_of(read_study(hospitals.study_path))
        assert first["terms"]["policy"]["min_patients"] == site.policy_for("Ward 7").min_patients
        assert dataclasses.asdict(mc.Policy()).keys() == first["terms"]["policy"].keys()
