"""A steward reads and approves in the browser what the commands show and approve."""

import dataclasses
import html
import json
from pathlib import Path

import pytest

from multicentre.core import parsing
from multicentre.estimator.registry import METHODS
from multicentre.privacy.accountant import Spent
from multicentre.privacy.budget import Account
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.site_cards import read_card
from multicentre.studies import read_study
from multicentre.studies.disclosure_cards import study_card
from multicentre_sites.deployment.approvals import approve, read_approvals, reject
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.proposal_review import review
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.proposed_files import FOLDER, read_proposed
from multicentre_sites.deployment.site_check import card_at
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_register import Roster
from multicentre_sites.deployment.site_service import card_of
from multicentre_sites.serve.views import card_table
from support.asgi_client import hidden_fields
from support.several_analyses import write_several, write_single
from support.steward_pages import client_of, make_lyon
from support.studies_toy import TOY, write_study

CONFIRMED = ("confirmed", "yes")


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


@pytest.fixture
def folder(tmp_path):
    return make_lyon(tmp_path)


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path)


@pytest.fixture
def client(folder):
    return client_of(folder)


def set_policy(folder, line, before="[policy]\n"):
    path = folder / "site.toml"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, f"{before if before.startswith('[') else ''}{line}\n", 1))


def test_upload_shows_every_field_under_this_sites_policy_and_approves_nothing(client, folder, study):
    page = client.upload(study.read_bytes())
    assert page.status == 200
    site = read_site(folder)
    proposal = read_proposed(site)[0].proposal
    assert proposal.fingerprint == recognise(str(study)).fingerprint
    assert proposal.fingerprint in page.words
    card = card_at(site, proposal.study())
    assert len(card.lines) > 1
    for line in card.lines:
        for text in (line.step, line.field, line.what, line.shape, line.seen, line.span):
            assert (
                html.escape(text, quote=False) in html.unescape(page.text).replace("&#39;", "'") or text in page.words
            )
    for sentence in (*card.sentences, *card.caveats, *card.warnings):
        assert " ".join(sentence.split()) in page.words
    shown = review(site, proposal, read_approvals(site.approved), {})
    assert all(str(path) in page.words for path in shown.files.values())
    assert shown.permitted in page.words
    assert not (folder / "approved").exists()


def test_every_field_of_a_study_of_several_analyses_has_its_analysis(tmp_path):
    several = study_card(read_study(write_several(tmp_path)))
    table = card_table(several)
    assert table.columns[:3] == ["analysis", "step", "field"]
    assert [row[0] for row in table.rows] == [line.analysis for line in several.lines]
    assert {"table-1", "cox"} < {row[0] for row in table.rows}
    single = card_table(study_card(read_study(write_single(tmp_path, "fed-cox"))))
    assert single.columns[0] == "step"


def test_confirmed_study_is_approved_like_by_the_command(client, folder, study):
    page = client.upload(study.read_bytes())
    after = client.post("approve", [*hidden_fields(page.text, "approve"), CONFIRMED])
    assert after.status == 200
    assert "Study Ward 7" in after.words
    by_page = read_approvals(folder / "approved").studies["Ward 7"]
    command = approve(folder / "other", recognise(str(study)), card_of(read_site(folder)))
    assert (by_page.sha256, by_page.terms) == (command.studies["Ward 7"].sha256, command.studies["Ward 7"].terms)
    assert read_approvals(folder / "approved").study("Ward 7").name == "Ward 7"
    assert read_proposed(read_site(folder)) == []
    assert "Ward 7" in client.get("studies").words
    assert "residuals" in client.get("study?name=Ward+7").words


def test_nothing_is_approved_without_the_confirmation(client, folder, study):
    page = client.upload(study.read_bytes())
    after = client.post("approve", hidden_fields(page.text, "approve"))
    assert after.status == 400
    assert "tick the box" in after.words
    assert not (folder / "approved").exists()


@pytest.mark.parametrize("change", ["policy", "file", "analysts"])
def test_nothing_is_approved_if_what_was_displayed_has_changed(client, folder, study, tmp_path, change):
    page = client.upload(study.read_bytes())
    fields = [*hidden_fields(page.text, "approve"), CONFIRMED]
    if change == "policy":
        set_policy(folder, "min_patients_in_total = 77 ", "min_patients_in_total = 0 ")
    elif change == "file":
        (stored,) = (folder / FOLDER).iterdir()
        stored.write_bytes(study.read_bytes().replace(b"n_rounds = 6", b"n_rounds = 600"))
    else:
        approve_analyst(folder, tmp_path, "ana")
    after = client.post("approve", fields)
    assert after.status in (400, 409)
    assert "changed" in after.words
    assert "Ward 7" not in read_approvals(folder / "approved").studies
    if change == "policy":
        assert "77" in after.words
        again = client.post("approve", [*hidden_fields(after.text, "approve"), CONFIRMED])
        assert again.status == 200
        assert "Ward 7" in read_approvals(folder / "approved").studies


def approve_analyst(folder, tmp_path, name):
    from multicentre_sites.deployment.analysts import make_analyst

    analyst = make_analyst(name, tmp_path / name)
    path = next((tmp_path / name).glob("*.analyst.toml"))
    approve(folder / "approved", recognise(str(path)), card_of(read_site(folder)))
    return analyst.card.fingerprint


def test_study_is_approved_for_one_analyst_only(client, folder, study, tmp_path):
    ana, eve = (approve_analyst(folder, tmp_path, name) for name in ("ana", "eve"))
    page = client.upload(study.read_bytes())
    assert "every approved analyst" in page.words
    sha256 = dict(hidden_fields(page.text, "approve"))["sha256"]
    page = client.get(f"proposal?sha256={sha256}&analyst={ana}")
    assert f"run by these analysts only: ana ({ana})" in page.words
    client.post("approve", [*hidden_fields(page.text, "approve"), CONFIRMED])
    assert read_approvals(folder / "approved").studies["Ward 7"].analysts == (ana,)
    assert eve not in client.get("study?name=Ward+7").words
    assert client.get(f"proposal?sha256={sha256}&analyst=unknown").status == 400


def test_a_form_cannot_approve_for_an_analyst_that_was_not_displayed(client, folder, study, tmp_path):
    ana = approve_analyst(folder, tmp_path, "ana")
    page = client.upload(study.read_bytes())
    after = client.post("approve", [*hidden_fields(page.text, "approve"), CONFIRMED, ("analyst", ana)])
    assert after.status == 409
    assert read_approvals(folder / "approved").studies == {}


def test_refusing_policy_is_named_on_the_page(client, folder, study):
    set_policy(folder, 'methods = ["fed-cox"]')
    page = client.upload(study.read_bytes())
    assert "this site's policy refuses this study" in page.words


def test_roster_and_hash_of_the_page_are_those_of_the_command(client, folder, tmp_path):
    cards = [read_card(folder / "lyon.site.toml"), make_site("oslo", tmp_path / "oslo").card]
    path = tmp_path / "roster.toml"
    Roster(tuple(cards)).write(path)
    page = client.upload(path.read_bytes())
    assert all(card.fingerprint in page.words for card in cards)
    client.post("approve", [*hidden_fields(page.text, "approve"), CONFIRMED])
    assert read_approvals(folder / "approved").roster_sha256 == recognise(str(path)).fingerprint
    assert "oslo" in client.get("approvals").words


def test_proposal_is_removed_without_an_approval(client, folder, study):
    page = client.upload(study.read_bytes())
    client.post("remove", hidden_fields(page.text, "remove"))
    assert read_proposed(read_site(folder)) == []
    assert not (folder / "approved").exists()


REASON = "The outcome is not collected here."


def reject_by_page(client, page, reason):
    return client.post("reject", [*hidden_fields(page.text, "reject"), ("reason", reason)])


def test_study_is_rejected_with_a_reason_and_approved_later(client, folder, study):
    page = client.upload(study.read_bytes())
    after = reject_by_page(client, page, REASON)
    assert after.status == 200
    assert f"Ward 7 {read_approvals(folder / 'approved').rejections[0].time} {REASON}" in after.words
    assert read_proposed(read_site(folder)) == []
    by_page = read_approvals(folder / "approved").decisions[0]
    command = reject(folder / "other", recognise(str(study)), card_of(read_site(folder)), REASON).decisions[0]
    assert dataclasses.replace(by_page, time=command.time) == command
    again = client.upload(study.read_bytes())
    assert f"You rejected this study on {by_page.time}: {REASON} An approval replaces the rejection." in again.words
    client.post("approve", [*hidden_fields(again.text, "approve"), CONFIRMED])
    assert read_approvals(folder / "approved").rejections == []
    assert "No study is rejected" in client.get("studies").words
    assert f"Ward 7 rejected {REASON}" in client.get("approvals").words


@pytest.mark.parametrize(
    ("reason", "words"), [("", "1 to 300 characters"), ("x" * 301, "got 301"), ("a\tb", "control characters")]
)
def test_a_reason_that_cannot_be_used_is_shown_again(client, folder, study, reason, words):
    after = reject_by_page(client, client.upload(study.read_bytes()), reason)
    assert after.status == 400
    assert "Nothing was rejected: reason must" in after.words
    assert words in after.words
    assert f">{reason[:300]}</textarea>" in after.text
    assert not (folder / "approved").exists()
    assert reject_by_page(client, after, "first line\r\nsecond line").status == 200
    assert read_approvals(folder / "approved").rejections[0].reason == "first line second line"


@pytest.mark.parametrize("change", ["policy", "file", "decision"])
def test_nothing_is_rejected_if_what_was_displayed_has_changed(client, folder, study, change):
    page = client.upload(study.read_bytes())
    if change == "policy":
        set_policy(folder, "min_patients_in_total = 77 ", "min_patients_in_total = 0 ")
    elif change == "file":
        (stored,) = (folder / FOLDER).iterdir()
        stored.write_bytes(study.read_bytes().replace(b"n_rounds = 6", b"n_rounds = 600"))
    else:
        reject(folder / "approved", recognise(str(study)), card_of(read_site(folder)), "First reason")
    after = reject_by_page(client, page, REASON)
    assert after.status in (400, 409)
    assert "changed" in after.words
    assert REASON not in [one.reason for one in read_approvals(folder / "approved").rejections]
    assert after.status == 400 or REASON in after.words, "the reason need not be written again"


def test_only_a_study_can_be_rejected_on_a_page(client, folder):
    page = client.upload(f'app = "a/b@1"\nsha256 = "{"ab" * 32}"\n'.encode())
    assert "Reject" not in page.words
    fields = [*hidden_fields(page.text, "approve"), ("reason", REASON)]
    assert client.post("reject", fields).status == 400
    assert not (folder / "approved").exists()


def test_approval_is_revoked_after_a_question(client, folder, study):
    page = client.upload(study.read_bytes())
    client.post("approve", [*hidden_fields(page.text, "approve"), CONFIRMED])
    question = client.get("revoke?name=Ward+7")
    assert "The study Ward 7 will no longer be approved" in question.words
    assert "Ward 7" in read_approvals(folder / "approved").studies
    client.post("revoke", hidden_fields(question.text, "revoke"))
    assert read_approvals(folder / "approved").studies == {}
    assert client.get("revoke?name=Ward+7").status == 400


def test_files_that_cannot_be_approved(client, folder, tmp_path):
    for content, words in ((b"\xff\xfe", "must be UTF-8"), (b"[x]\n", "another content"), (b"", "must be chosen")):
        answer = client.upload(content)
        assert answer.status == 400, content
        assert words in answer.words
    assert list((folder / FOLDER).glob("*")) == []
    (folder / FOLDER / "broken.toml").write_text("[study")
    (folder / FOLDER / "link.toml").symlink_to(tmp_path / "study.toml")
    page = client.get("studies")
    assert "cannot be approved" in page.words
    assert "link.toml" not in page.words


def test_ledger_pages_verify_and_name_refusals(client, folder):
    site = read_site(folder)
    ledger = Ledger(site.ledger_of("Ward 7"), signer=site.identity, study="Ward 7")
    for number in range(150):
        facts = {"method": "m", "step": f"s{number}", "reason": "policy: no", "session": f"ab{number // 100}.1"}
        ledger.append("refusal", {**facts, "requested_by": {"name": "ana", "fingerprint": "1234-5678"}})
    assert "intact and signed by this site: 150 entries" in client.get("ledgers").words
    page = client.get("ledger?name=Ward+7")
    assert "150 entries, 150 refusals" in page.words
    assert "s149 REFUSED: policy: no" in page.words
    assert "ana, 1234-5678 m 0 100" in page.words
    assert "ana, 1234-5678 m 0 50" in page.words
    assert "s3 " not in page.words
    assert "s3 " in client.get("ledger?name=Ward+7&page=2&only=refusals").words
    assert client.get("ledger?name=Ward+7&page=9999999999999999999999").status == 200
    path = site.ledger_of("Ward 7")
    path.write_text(path.read_text().replace("policy: no", "policy: ok"))
    assert "NOT INTACT" in client.get("ledgers").words
    assert client.get(f"ledger?name={path.stem}").status == 409


def test_budget_is_that_of_the_command(client, folder):
    set_policy(folder, "epsilon = 2.0\ndelta = 1e-6")
    policy = read_site(folder).policy_for("")
    facts = {"study": "pilot", "session": "0.1", "call": 1, "method": "m", "step": "sums"}
    Account(2.0, 1e-6, Path(policy.account)).charge(Spent(0.02), facts)
    page = client.get("budgets")
    assert "pilot" in page.words
    assert "of 2.0" in page.words
    assert "No policy here has" not in page.words


def test_overview_shows_the_checks_and_the_policy(client, folder):
    page = client.get()
    assert page.status == 200
    assert read_card(folder / "lyon.site.toml").fingerprint in page.words
    assert "min_patients" in page.words
    assert "authority FAULT" in page.words


def test_a_bundle_is_approved_by_its_hash(client, folder):
    digits = "ab" * 32
    page = client.upload(f'app = "a/b@1"\nsha256 = "{digits}"\n'.encode())
    assert digits in page.words
    client.post("approve", [*hidden_fields(page.text, "approve"), CONFIRMED])
    assert list(read_approvals(folder / "approved").apps) == [digits]
    assert json.loads((folder / "approved" / "approvals.json").read_text())["apps"]


def test_size_of_an_upload_is_that_of_the_command():
    from multicentre_sites.serve import forms

    assert parsing.LARGEST == forms.LARGEST
