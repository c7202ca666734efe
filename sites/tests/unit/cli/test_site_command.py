"""``multicentre site``: what the commands print, and with which status they end."""

import json

import pytest
from typer.testing import CliRunner

from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.site_cards import read_card
from multicentre_sites.cli.site import app
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_register import Roster
from support.studies_toy import TOY, write_study

HASH = "ab" * 32


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def folder(tmp_path):
    assert call("keygen", "lyon", "--folder", tmp_path / "lyon", "--address", "127.0.0.1:1").exit_code == 0
    return tmp_path / "lyon"


def test_keygen_tells_what_to_compare_and_no_secret(tmp_path):
    result = call("keygen", "oslo", "--folder", tmp_path / "oslo", "--json")
    told = json.loads(result.stdout)
    card = read_card(tmp_path / "oslo" / "oslo.site.toml")
    assert told == {
        "folder": str(tmp_path / "oslo"),
        "card": str(tmp_path / "oslo" / "oslo.site.toml"),
        "fingerprint": card.fingerprint,
    }
    for key in ("identity", "vault"):
        assert (tmp_path / "oslo" / "keys" / key).read_text().split()[3] not in result.output
    plain = call("keygen", "oslo", "--folder", tmp_path / "second").stdout
    assert [line.split()[0] for line in plain.splitlines()] == ["folder", "card", "fingerprint"]
    again = call("keygen", "oslo", "--folder", tmp_path / "oslo", "--json")
    assert again.exit_code == 3
    assert "never overwritten" in json.loads(again.stdout)["error"]["what"]


def test_approve_shows_card_files_and_fingerprints_before_anything_counts(folder, tmp_path):
    study = write_study(tmp_path)
    result = call("approve", study, HASH, "--folder", folder, "--yes")
    assert result.exit_code == 0
    assert "It makes 1 analysis" in result.stderr
    assert f"reads a from {tmp_path / 'site-0' / 'a.csv'}" in result.stderr
    assert f"bundle  {HASH}" in result.stdout
    assert "study Ward 7" in result.stdout
    told = json.loads(call("approve", HASH, "--folder", folder, "--revoke", "--json").stdout)
    assert told["apps"] == []
    assert list(told["studies"]) == ["Ward 7"]


def test_approve_of_nothing_lists_the_approvals(folder, tmp_path):
    empty = call("approve", "--folder", folder)
    assert (empty.exit_code, empty.stdout.strip()) == (0, "Nothing is approved or rejected at this site.")
    assert not (folder / "approved").exists()
    approved = call("approve", write_study(tmp_path), HASH, "--folder", folder, "--yes").stdout
    listed = call("approve", "--folder", folder)
    assert (listed.exit_code, listed.stdout, listed.stderr) == (0, approved, "")
    assert f"bundle  {HASH}" in listed.stdout
    assert json.loads(call("approve", "--folder", folder, "--json").stdout)["apps"] == [HASH]
    for option in (["--revoke"], ["--for", tmp_path / "ada.analyst.toml"]):
        result = call("approve", *option, "--folder", folder)
        assert result.exit_code == 3
        assert f"{option[0]} must come with WHAT" in result.stderr


def test_approve_without_a_terminal_needs_a_yes(folder, tmp_path):
    result = call("approve", write_study(tmp_path), HASH, "--folder", folder)
    assert result.exit_code == 3
    assert "It makes 1 analysis" in result.stderr
    assert "add --yes" in result.stderr
    assert not (folder / "approved").exists()


def test_reject_shows_study_reason_and_readers_and_lists_it(folder, tmp_path):
    study, reason = write_study(tmp_path), "The outcome is not collected here."
    call("approve", study, "--folder", folder, "--yes")
    refused = call("reject", study, "--reason", reason, "--folder", folder)
    assert refused.exit_code == 3
    assert "nothing was rejected" in refused.stderr
    result = call("reject", study, "--reason", reason, "--folder", folder, "--yes")
    assert result.exit_code == 0
    assert f"reason      {reason}" in result.stderr
    assert "Write no values and no counts of patients" in result.stderr
    assert "study Ward 7" not in result.stdout
    assert f"rejected Ward 7  {recognise(str(study)).fingerprint}" in result.stdout
    assert "rejected: Ward 7" in call("check", "--folder", folder, "--offline").stdout
    after = call("approve", study, "--folder", folder, "--yes", "--json")
    assert f"the site's steward rejected the study: {reason[:-1]}" in after.stderr
    told = json.loads(after.stdout)
    assert told["rejections"] == []
    assert [one["decision"] for one in told["decisions"]] == ["approved", "rejected", "approved"]


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1)])
def test_approve_asks_on_a_terminal(folder, monkeypatch, answer, status):
    monkeypatch.setattr("multicentre_sites.cli.site._has_terminal", lambda: True)
    result = CliRunner().invoke(app, ["approve", HASH, "--folder", str(folder)], input=answer)
    assert result.exit_code == status
    assert (folder / "approved").exists() == (status == 0)


def test_approve_approves_nothing_when_one_thing_cannot_be(folder, tmp_path):
    result = call("approve", HASH, tmp_path / "missing.toml", "--folder", folder, "--yes")
    assert result.exit_code == 3
    assert not (folder / "approved").exists()


def test_approve_says_whose_keys_changed(folder, tmp_path):
    cards = {"lyon": read_card(folder / "lyon.site.toml")}
    for name in ("oslo", "porto", "oslo-again"):
        call("keygen", name.partition("-")[0], "--folder", tmp_path / name)
        cards[name] = read_card(next((tmp_path / name).glob("*.site.toml")))
    path = tmp_path / "roster.toml"
    Roster((cards["lyon"], cards["oslo"])).write(path)
    first = call("approve", path, "--folder", folder, "--yes")
    assert cards["oslo"].fingerprint in first.stderr
    assert "NEW" not in first.stderr
    Roster((cards["lyon"], cards["oslo-again"], cards["porto"])).write(path)
    second = call("approve", path, "--folder", folder, "--yes").stderr
    assert f"{cards['oslo-again'].fingerprint}  KEYS CHANGED" in second
    assert f"{cards['porto'].fingerprint}  NEW" in second
    assert f"{cards['lyon'].fingerprint}\n" in second


def test_check_ends_with_the_status_of_its_first_fault(folder, tmp_path):
    call("approve", write_study(tmp_path), "--folder", folder, "--yes")
    result = call("check", "--folder", folder, "--offline", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == told["exit_code"] == 3
    assert not told["ok"]
    assert {one["what"] for one in told["findings"] if one["level"] == "fault"} >= {"authority"}
    assert told["cards"]["Ward 7"]["method"] == "toy"
    text = call("check", "--folder", folder).stdout
    assert "FAULT  authority" in text
    assert "note   coordinator" in text
    assert "Disclosure card of toy" in text


def test_up_does_not_start_with_faults(folder):
    result = call("up", "--folder", folder)
    assert result.exit_code == 3
    assert "The site does not start: fix the faults above" in result.stderr
    assert not (folder / "site.log").exists()
    assert call("up", "--folder", folder, "--mode", "insecure").exit_code == 2


def test_log_shows_every_study_and_verifies_on_the_way(folder):
    assert call("log", "--folder", folder).stdout == ""
    for study in ("hips", "Ward 7"):
        site = read_site(folder)
        facts = {"study": study, "method": "m", "step": "s", "reason": "policy: no"}
        Ledger(site.ledger_of(study), signer=site.identity).append("refusal", facts)
    both = call("log", "--folder", folder)
    assert both.exit_code == 0
    assert both.stdout.count("REFUSED: policy: no") == 2
    assert "Ward 7: 1 entries" in both.stdout
    assert list(json.loads(call("log", "--folder", folder, "--json").stdout)) == ["hips", "Ward 7"]
    assert list(json.loads(call("log", "--folder", folder, "--study", "Ward 7", "--json").stdout)) == ["Ward 7"]
    assert call("log", "--folder", folder, "--study", "unknown").exit_code == 3
    ledger = folder / "ledgers" / "hips.jsonl"
    ledger.write_text(ledger.read_text().replace("policy: no", "policy: ok"))
    assert call("log", "--folder", folder).exit_code == 8
    assert call("log", "--folder", folder, "--json").exit_code == 8


def test_all_commands_need_a_sites_folder(tmp_path):
    for command in (["approve", HASH], ["check"], ["up"], ["log"]):
        result = call(*command, "--folder", tmp_path)
        assert result.exit_code == 3
        assert "site keygen" in result.stderr
