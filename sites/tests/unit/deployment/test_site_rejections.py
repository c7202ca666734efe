"""A steward rejects a study with a reason; every decision is recorded, and the last one about its terms counts."""

import json

import pytest

from multicentre.errors import ConfigurationError
from multicentre.estimator.registry import METHODS
from multicentre_sites.deployment.approvals import approve, read_approvals, reject, revoke
from multicentre_sites.deployment.decisions import MAX_CHARACTERS, check_reason
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.proposals import recognise
from support.studies_toy import STUDY, TOY, write_study

REASON = "The outcome is not collected here."


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


@pytest.fixture
def proposal(tmp_path):
    return recognise(str(write_study(tmp_path)))


def test_the_last_decision_counts_and_all_are_recorded(folder, lyon, proposal):
    approve(folder, proposal, lyon.card)
    rejected = reject(folder, proposal, lyon.card, f" {REASON} ")
    assert rejected == read_approvals(folder)
    assert rejected.studies == {}
    (rejection,) = rejected.rejections
    assert (rejection.study, rejection.sha256, rejection.reason) == ("Ward 7", proposal.fingerprint, REASON)
    assert rejected.rejection_of("Ward 7", rejection.terms) == rejection
    assert rejected.rejection_of("Ward 8", rejection.terms) is None
    approve(folder, proposal, lyon.card)
    revoke(folder, "Ward 7")
    now = read_approvals(folder)
    assert now.rejections == []
    assert [one.decision for one in now.decisions] == ["approved", "rejected", "approved", "revoked"]
    assert {one.terms for one in now.decisions} == {rejection.terms}


def test_an_approval_of_other_terms_stays(folder, lyon, proposal, tmp_path):
    approve(folder, proposal, lyon.card)
    amended = recognise(str(write_study(tmp_path / "amended", STUDY.replace("n_rounds = 6", "n_rounds = 60"))))
    after = reject(folder, amended, lyon.card, REASON)
    assert after.studies["Ward 7"].sha256 == proposal.fingerprint
    assert [one.sha256 for one in after.rejections] == [amended.fingerprint]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("", "1 to 300 characters; got 0"),
        (" \n ", "got 0"),
        ("x" * (MAX_CHARACTERS + 1), "got 301"),
        ("two\nlines", "control characters"),
        ("\x1b[2Jscreen", "control characters"),
        ("\u202ereversed", "control characters"),
        ("a\u2028b", "control characters"),
    ],
)
def test_a_reason_is_one_short_line_of_text(folder, lyon, proposal, reason, words):
    with pytest.raises(ConfigurationError, match=words):
        reject(folder, proposal, lyon.card, reason)
    assert not folder.exists()


def test_a_reason_may_have_letters_of_any_language():
    reason = "Étude non conforme\u00a0: «\u00a0voir avis 12/2026\u00a0» — 倫理審査 ✓"
    assert check_reason(reason) == reason


def test_only_a_study_of_this_site_can_be_rejected(folder, lyon, proposal, tmp_path):
    with pytest.raises(ConfigurationError, match="only a study can be rejected"):
        reject(folder, recognise("ab" * 32), lyon.card, REASON)
    with pytest.raises(ConfigurationError, match="must name this site, 'nice'"):
        reject(folder, proposal, make_site("nice", tmp_path / "nice").card, REASON)
    assert not folder.exists()


def test_a_list_without_decisions_can_be_read(folder, lyon, proposal):
    before = approve(folder, proposal, lyon.card)
    content = json.loads((folder / "approvals.json").read_text())
    del content["decisions"]
    (folder / "approvals.json").write_text(json.dumps({**content, "format": 1}))
    after = read_approvals(folder)
    assert after.studies == before.studies
    assert after.decisions == ()
