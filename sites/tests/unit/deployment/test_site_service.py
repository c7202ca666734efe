"""A real site behind its request handler: what it answers, and everything that it refuses."""

import dataclasses
import json

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.summation import PlainSummation
from multicentre.engines.remote.opening import Opening
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    IntegrityError,
    LeftOutWarning,
    QuorumLost,
    RefusedByPolicy,
)
from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import read_ledger
from multicentre.privacy.site_cards import SiteCard
from multicentre.studies.site_data import read_sites
from multicentre.studies.study import make_estimator
from multicentre.studies.study_file import read_study
from multicentre.studies.terms import digest_of
from multicentre.validation import HashGroupKFold
from multicentre.validation.folds.keyed import HashedFolds
from multicentre_sites.deployment import site_service
from multicentre_sites.deployment.approvals import reject, revoke
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_register import Roster
from multicentre_sites.deployment.site_service import DeployedSiteService, card_of, schema_of
from support.real_sites import NAMES, Hospitals, approve_at, set_terms
from support.studies_toy import STUDY, TOY, FedViewMeans, Guess, ViewMeansSite, write_study
from support.survival_toy import STUDY as SURVIVAL
from support.survival_toy import write_study as write_survival

UNMASKED = STUDY + "\n[privacy]\nsecure_sum = false\n"


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path / "sites", write_study(tmp_path, UNMASKED))


@pytest.fixture
def masked(tmp_path):
    return Hospitals(tmp_path / "sites", write_study(tmp_path))


def entries_at(hospitals, name, study="Ward 7"):
    return list(read_ledger(read_site(hospitals.root / name).ledger_of(study)))


@pytest.mark.parametrize("text", [STUDY, UNMASKED])
def test_a_study_gives_the_numbers_that_it_gives_in_process(tmp_path, text):
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, text))
    study = read_study(hospitals.study_path)
    with hospitals.federation() as federation:
        told = federation.site_facts
        found = make_estimator(study).fit(federation)
    here = {name: site.data for name, site in read_sites(study).items()}
    with mc.Federation.in_process(here, study=study.name, secure_sum=study.privacy.secure_sum) as federation:
        expected = make_estimator(study).fit(federation)
    for view, means in expected.means_.items():
        np.testing.assert_array_equal(found.means_[view], means)
    assert "patients" not in told["lyon"]
    assert told["porto"]["schema"]["columns"] == {"a": ["x", "y"]}
    protections = {entry["protection"] for entry in entries_at(hospitals, "lyon") if entry["step"] == "residuals"}
    assert protections == {"masked" if study.privacy.secure_sum else "unmasked"}


def test_data_are_read_once_and_again_when_the_study_is_approved_anew(hospitals, monkeypatch):
    read, really = [], site_service.read_data

    def noted(site, study):
        read.append(site.name)
        return really(site, study)

    monkeypatch.setattr(site_service, "read_data", noted)
    for _ in range(2):
        with hospitals.federation():
            pass
    assert sorted(read) == sorted(NAMES)
    hospitals.study_path.write_text(hospitals.study_path.read_text() + "\n[run]\ntime_limit_s = 60\n")
    for name in NAMES:
        approve_at(hospitals.root / name, hospitals.study_path)
    with hospitals.federation():
        pass
    assert len(read) == 6


def test_data_whose_files_have_changed_are_read_again_for_the_next_run(hospitals, tmp_path):
    def count_at_porto():
        with hospitals.federation() as federation:
            FedViewMeans(n_rounds=2).fit(federation)
        return entries_at(hospitals, "porto")[-1]["fields"][0]["records"]

    file = tmp_path / "site-2" / "a.csv"
    rows = file.read_text().splitlines()
    assert count_at_porto() == len(rows) - 1
    file.write_text("\n".join(rows[:31]) + "\n")
    assert count_at_porto() == 30
    file.write_text(rows[0] + "\n1,nonsense\n")
    with pytest.raises(DataError, match="cannot open this study"):
        count_at_porto()


def test_settings_that_were_changed_end_a_run_under_way_and_hold_for_the_next(hospitals):
    with hospitals.federation() as federation:
        FedViewMeans(n_rounds=2).fit(federation)
        set_terms(hospitals.root / "lyon", "min_patients = 10", "min_patients = 41")
        with pytest.raises(RefusedByPolicy, match="settings were changed"):
            FedViewMeans(n_rounds=2).fit(federation)
    refused = pytest.raises(DisclosureRefused, match=r"^lyon: the site has fewer patients than .* of 41")
    with hospitals.federation() as federation, refused:
        FedViewMeans(n_rounds=2).fit(federation)


def test_settings_that_name_another_site_take_no_part(hospitals):
    set_terms(hospitals.root / "lyon", 'name = "lyon"', 'name = "nice"')
    with pytest.raises(ConfigurationError, match="cannot open this study"):
        hospitals.federation()


def test_the_ledger_goes_on_over_runs_and_restarts(hospitals):
    for _ in range(2):
        with hospitals.federation() as federation:
            FedViewMeans(n_rounds=2).fit(federation)
        hospitals.handlers.clear()
    ledger = read_site(hospitals.root / "lyon").ledger_of("Ward 7")
    assert [entry["event"] for entry in read_ledger(ledger)].count("release") == 4
    ledger.write_bytes(ledger.read_bytes() + b'{"entry": 5, "to')
    with hospitals.federation() as federation:
        FedViewMeans(n_rounds=2).fit(federation)
    assert [entry["event"] for entry in read_ledger(ledger)].count("repaired") == 1


def test_a_ledger_that_was_tampered_with_takes_no_part(hospitals):
    with hospitals.federation() as federation:
        FedViewMeans(n_rounds=2).fit(federation)
    hospitals.handlers.clear()
    ledger = read_site(hospitals.root / "lyon").ledger_of("Ward 7")
    ledger.write_bytes(ledger.read_bytes().replace(b'"residuals"', b'"residual"', 1))
    with pytest.raises(ConfigurationError, match="cannot open this study"):
        hospitals.federation()


def test_a_study_that_nobody_approved_is_refused(tmp_path):
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path), approved=False)
    with pytest.raises(RefusedByPolicy, match="must be approved here"):
        hospitals.federation()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n_rounds = 6", "n_rounds = 600"),
        ('label_column = "group"', 'label_column = "sex"'),
        ("[sites.porto]", "[sites.nice]"),
        ("seed = 5", "seed = 6"),
        ("secure_sum = false", "secure_sum = true"),
        ("[data]", '[run]\nrefusing_sites = "leave_out"\n[data]'),
    ],
)
def test_terms_other_than_those_approved_are_refused(hospitals, old, new):
    text = hospitals.study_path.read_text()
    assert old in text
    hospitals.study_path.write_text(text.replace(old, new))
    with pytest.raises(RefusedByPolicy, match="terms of the study must be those"):
        hospitals.federation()


def test_an_approval_that_is_taken_back_ends_a_run_under_way(hospitals):
    with hospitals.federation() as federation:
        FedViewMeans(n_rounds=1).fit(federation)
        revoke(read_site(hospitals.root / "oslo").approved, "Ward 7")
        with pytest.raises(RefusedByPolicy, match="was revoked"):
            FedViewMeans(n_rounds=1).fit(federation)


REASON = "The outcome is not collected here."


def reject_at(hospitals, name):
    site = read_site(hospitals.root / name)
    reject(site.approved, recognise(str(hospitals.study_path)), card_of(site), REASON)


def test_a_rejected_study_is_refused_with_the_reason_until_it_is_approved(hospitals):
    reject_at(hospitals, "oslo")
    with pytest.raises(RefusedByPolicy) as refusal:
        hospitals.federation()
    assert str(refusal.value).startswith(f"oslo, Ward 7: the site's steward rejected the study: {REASON} Write to")
    approve_at(hospitals.root / "oslo", hospitals.study_path)
    with hospitals.federation() as federation:
        assert FedViewMeans(n_rounds=1).fit(federation).session.sites == ("lyon", "oslo", "porto")


def test_a_rejection_ends_a_run_under_way(hospitals):
    with hospitals.federation() as federation:
        FedViewMeans(n_rounds=1).fit(federation)
        reject_at(hospitals, "oslo")
        with pytest.raises(RefusedByPolicy, match=f"rejected the study: {REASON}"):
            FedViewMeans(n_rounds=1).fit(federation)


def test_the_reason_is_for_the_rejected_terms_only(hospitals):
    reject_at(hospitals, "oslo")
    with pytest.raises(RefusedByPolicy, match="must be approved here") as refusal:
        hospitals.federation(agreed="another")
    assert REASON not in str(refusal.value.refusals)


def test_a_site_that_rejected_the_study_is_left_out_with_its_reason(tmp_path):
    terms = '\n[run]\nrefusing_sites = "leave_out"\n'
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, STUDY + terms))
    reject_at(hospitals, "porto")
    accept_sums_of_two(hospitals)
    with pytest.warns(LeftOutWarning, match=f"porto: Ward 7: the site's steward rejected the study: {REASON[:-1]}"):
        federation = hospitals.federation(refusing_sites="leave_out")
    with federation:
        fitted = FedViewMeans(n_rounds=1).fit(federation)
    assert fitted.session.sites == ("lyon", "oslo")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"names": ("lyon", "oslo")}, "requires at least 3 sites"),
        ({"secure_sum": True}, "must be that of the approved study"),
        ({"agreed": ""}, "terms of the study"),
        ({"study": "Ward 8"}, "must be approved here"),
    ],
)
def test_a_run_that_is_not_the_study_is_refused(hospitals, changed, said):
    with pytest.raises(RefusedByPolicy, match=said):
        hospitals.federation(**changed)


def opening(study, **changed):
    told = {"sites": NAMES, "secure_sum": study.privacy.secure_sum, "terms": digest_of(study), **changed}
    return Opening(run="r", attempt=0, study=study.name, **told)


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        (("oslo", "porto", "nice"), "named once"),
        (("lyon", "lyon", "porto"), "named once"),
        (("lyon", "oslo", "nice"), "got nice"),
    ],
)
def test_sites_that_are_not_the_studys_are_refused(hospitals, sites, said):
    here = DeployedSiteService(read_site(hospitals.root / "lyon"))
    with pytest.raises(RefusedByPolicy, match=said):
        here.open(opening(read_study(hospitals.study_path), sites=sites), None)


def test_masked_sums_need_the_roster_that_is_pinned(masked, tmp_path):
    study = read_study(masked.study_path)
    lyon = read_site(masked.root / "lyon")
    revoke(lyon.approved, "roster")
    with pytest.raises(RefusedByPolicy, match="a roster must be pinned"):
        DeployedSiteService(lyon).open(opening(study), None)
    cards = [one for one in Roster.read(masked.roster).cards if one.name != "porto"]
    Roster(tuple(cards)).write(tmp_path / "smaller.toml")
    approve_at(lyon.folder, tmp_path / "smaller.toml")
    with pytest.raises(RefusedByPolicy, match=r"^lyon: sites must be on the roster .* got porto. The steward of lyon"):
        DeployedSiteService(lyon).open(opening(study), None)


def test_masks_of_another_site_under_a_known_name_are_refused(masked, tmp_path):
    """The coordinator gives one site a roster in which it is porto itself."""
    porto = make_site("porto", tmp_path / "false-porto").card
    true = Roster.read(masked.roster)
    Roster((*(card for card in true.cards if card.name != "porto"), porto)).write(tmp_path / "false.toml")
    approve_at(masked.root / "lyon", tmp_path / "false.toml")
    with masked.federation() as federation, pytest.raises(Exception, match="lyon"):
        FedViewMeans(n_rounds=1).fit(federation)
    assert not [entry for entry in entries_at(masked, "lyon") if entry["step"] == "residuals"]


def test_a_site_whose_keys_are_no_longer_those_of_the_roster_takes_no_part(masked):
    folder = masked.root / "lyon"
    other = make_site("lyon", masked.root / "other").folder
    (folder / "keys" / "identity").write_bytes((other / "keys" / "identity").read_bytes())
    with pytest.raises(ConfigurationError, match="with the keys of this site"):
        masked.federation()


@pytest.mark.parametrize("method", ["fed-cox", "alignment", "hashed-folds", "stratifier", "secure-sum", ""])
def test_parts_that_the_study_does_not_need_are_not_offered(hospitals, method):
    here = DeployedSiteService(read_site(hospitals.root / "lyon"))
    with pytest.raises(ConfigurationError, match="must be open here"):
        here.offers("Ward 7", "toy")
    here.open(opening(read_study(hospitals.study_path)), None)
    assert here.offers("Ward 7", "toy") is ViewMeansSite
    with pytest.raises(ConfigurationError, match="that the approved study uses"):
        here.offers("Ward 7", method)


def test_a_validated_study_offers_its_folds_and_its_scores_and_no_others(tmp_path):
    text = SURVIVAL.replace("toy-survival", "fed-cox") + "\n[validation]\nfolds = 2\n" + 'person_key = "identifier"\n'
    text += "[privacy]\nsecure_sum = false\n"
    hospitals = Hospitals(tmp_path / "sites", write_survival(tmp_path, text))
    here = DeployedSiteService(read_site(hospitals.root / "lyon"))
    here.open(opening(read_study(hospitals.study_path)), None)
    assert here.offers("Breast cancer", "hashed-folds") is HashedFolds
    assert here.offers("Breast cancer", "survival-evaluation").holds_patients
    assert here.offers("Breast cancer", "plan").method == "plan"
    for method in ("site-folds", "random-folds", "score-views", "duplicate-rate", "fed-surf"):
        with pytest.raises(ConfigurationError, match="that the approved study uses"):
            here.offers("Breast cancer", method)


def test_the_studys_own_policy_counts_for_nothing(tmp_path):
    (tmp_path / "loose.toml").write_text("min_patients = 1\nmin_sites_in_sum = 1\n")
    loose = '\n[privacy]\nsecure_sum = false\npolicy = "loose.toml"\n'
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, STUDY + loose))
    set_terms(hospitals.root / "lyon", "min_patients = 10", "min_patients = 41")
    with hospitals.federation() as federation:
        assert federation.site_facts["lyon"]["min_patients"] == 41
        with pytest.raises(Exception, match=r"^lyon: the site has fewer patients than .* of 41"):
            FedViewMeans(n_rounds=1).fit(federation)
    assert [entry["event"] for entry in entries_at(hospitals, "lyon")] == ["refusal"]


def accept_sums_of_two(hospitals):
    for name in ("lyon", "oslo"):
        set_terms(hospitals.root / name, "min_sites_in_sum = 3", "min_sites_in_sum = 2")


def test_sites_whose_crowd_becomes_too_small_end_the_run_that_left_one_out(tmp_path):
    terms = '\n[run]\nrefusing_sites = "leave_out"\n'
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, STUDY + terms))
    set_terms(hospitals.root / "porto", "min_patients = 10", "min_patients = 41")
    with (
        hospitals.federation(refusing_sites="leave_out") as federation,
        pytest.warns(LeftOutWarning),
        pytest.raises(QuorumLost, match=r"^lyon, oslo: 0 of 3 sites answered.*left without porto: the site has"),
    ):
        FedViewMeans(n_rounds=1).fit(federation)


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_a_study_may_say_that_refusing_sites_are_left_out(tmp_path, secure):
    terms = f'\n[privacy]\nsecure_sum = {str(secure).lower()}\n[run]\nrefusing_sites = "leave_out"\n'
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, STUDY + terms))
    set_terms(hospitals.root / "porto", "min_patients = 10", "min_patients = 41")
    accept_sums_of_two(hospitals)
    with hospitals.federation(refusing_sites="leave_out") as federation, pytest.warns(LeftOutWarning):
        fitted = FedViewMeans(n_rounds=1).fit(federation)
    assert fitted.left_out_ == {"porto": "the site has fewer patients than its policy's minimum of 41"}
    assert [entry["event"] for entry in entries_at(hospitals, "porto") if entry["step"] == "residuals"] == ["refusal"]


def test_a_site_that_did_not_approve_the_study_is_left_out_where_the_study_says_so(tmp_path):
    terms = '\n[run]\nrefusing_sites = "leave_out"\n'
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path, STUDY + terms))
    revoke(read_site(hospitals.root / "porto").approved, "Ward 7")
    accept_sums_of_two(hospitals)
    with pytest.warns(LeftOutWarning, match="porto: Ward 7: the study must be approved here"):
        federation = hospitals.federation(refusing_sites="leave_out")
    with federation:
        assert FedViewMeans(n_rounds=1).fit(federation).session.sites == ("lyon", "oslo")


def test_the_coordinator_is_told_no_count_under_a_budget(hospitals):
    set_terms(hospitals.root / "lyon", "min_patients = 10", "epsilon = 1.0\nmin_patients = 10")
    with hospitals.federation() as federation, pytest.raises(RefusedByPolicy, match="answers must have noise"):
        FedViewMeans(n_rounds=1).fit(federation)


def test_only_the_columns_that_the_policy_allows_are_held(hospitals):
    set_terms(hospitals.root / "lyon", "min_patients = 10", 'columns = ["x", "u", "v"]\nmin_patients = 10')
    with hospitals.federation() as federation:
        assert federation.site_facts["lyon"]["schema"]["columns"] == {"a": ["x"], "b": ["u", "v"]}


def test_the_sites_own_files_take_the_place_of_the_studys(hospitals, tmp_path):
    lines = (tmp_path / "site-0" / "a.csv").read_text().splitlines()
    (hospitals.root / "lyon" / "mine.csv").write_text("\n".join(lines[:31]) + "\n")
    own = '[studies."Ward 7".files]\na = "mine.csv"\n'
    set_terms(hospitals.root / "lyon", "# [studies.hips.files]", f"{own}#")
    with hospitals.federation() as federation:
        assert federation.site_facts["lyon"]["schema"]["views"] == ["a"]


def test_nothing_of_files_and_columns_is_told_when_data_cannot_be_used(hospitals, tmp_path, caplog):
    path = tmp_path / "site-0" / "a.csv"
    path.write_text(path.read_text().replace("patient,x", "secretary,x"))
    with pytest.raises(DataError) as raised:
        hospitals.federation()
    assert "cannot open this study" in str(raised.value)
    assert str(tmp_path) not in str(raised.value)
    assert "patient" not in str(raised.value)
    assert str(path) in caplog.text


def test_a_study_without_the_key_of_pseudonyms_hashes_nobody(tmp_path):
    text = SURVIVAL.replace("toy-survival", "fed-cox") + "\n[validation]\nfolds = 2\n" + 'person_key = "identifier"\n'
    hospitals = Hospitals(tmp_path / "sites", write_survival(tmp_path, text))
    with hospitals.federation() as federation, pytest.raises(ConfigurationError, match="key"):
        HashGroupKFold(2, person_key="identifier").plan(federation)


def test_the_same_data_are_known_again_and_nobody_else_can_test_a_guess(hospitals):
    first = hospitals.federation().site_facts["lyon"]["data"]
    hospitals.handlers.clear()
    with hospitals.federation() as federation:
        assert federation.site_facts["lyon"]["data"] == first
    bare = read_sites(read_study(hospitals.study_path))["lyon"].data.digest()
    assert bare not in json.dumps(federation.site_facts["lyon"])


def test_what_broke_counts_over_runs(hospitals):
    """A coordinator that opens run after run does not begin anew with what a guard remembers."""
    set_terms(hospitals.root / "lyon", "min_patients = 10", "epsilon = 1.0\nmin_patients = 10")
    here = DeployedSiteService(read_site(hospitals.root / "lyon"))
    study = read_study(hospitals.study_path)
    first = here.open(opening(study), None)
    assert here.open(opening(study, sites=NAMES), None)._gate is first._gate


@pytest.mark.parametrize("data", [np.zeros((3, 2))])
def test_data_of_another_kind_tell_their_kind_alone(data):
    assert schema_of(data) == {"kind": "ndarray"}


def test_cards_of_a_site_come_from_its_keys(hospitals):
    assert isinstance(card_of(read_site(hospitals.root / "lyon")), SiteCard)
    (hospitals.root / "lyon" / "keys" / "identity").chmod(0o644)
    with pytest.raises(ConfigurationError, match="only the owner of a secret file"):
        card_of(read_site(hospitals.root / "lyon"))


def test_a_call_without_masks_is_refused_where_sums_are_masked(masked):
    with masked.federation() as federation:
        federation = dataclasses.replace(federation, summation=PlainSummation())
        with pytest.raises(RefusedByPolicy, match="must be masked"):
            FedViewMeans(n_rounds=1).fit(federation)
    refusals = [entry for entry in entries_at(masked, "lyon") if entry["event"] == "refusal"]
    assert "must be masked" in refusals[0]["reason"]


def test_a_sum_over_fewer_sites_than_the_quorum_is_refused(masked):
    for name in NAMES:
        set_terms(masked.root / name, "min_sites_in_sum = 3", "min_sites_in_sum = 2")
    with masked.federation(quorum=2) as federation, pytest.raises(RefusedByPolicy, match="over at least 3 sites"):
        federation.begin(ViewMeansSite, "").sum(
            ViewMeansSite.residuals, Guess({view: np.zeros(2) for view in ("a", "b")})
        )


def test_steps_that_are_not_on_the_card_are_refused(hospitals, monkeypatch):
    monkeypatch.setattr(FedViewMeans, "planned_steps", lambda self: frozenset())
    for name in NAMES:
        approve_at(hospitals.root / name, hospitals.study_path)
    with (
        hospitals.federation() as federation,
        pytest.raises(RefusedByPolicy, match="not on the study's disclosure card"),
    ):
        FedViewMeans(n_rounds=1).fit(federation)


def test_integrity_is_an_error_of_its_own(hospitals):
    site = read_site(hospitals.root / "lyon")
    (site.approved / "approvals.json").write_text("{")
    with pytest.raises(IntegrityError, match="list of approvals"):
        hospitals.federation()
