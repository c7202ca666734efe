"""Evidence is looked at: lost ledgers and memories, and settings that permit more than approved, stop the next run."""

import contextlib
import json
import re
import tomllib
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.core import disk
from multicentre.errors import ConfigurationError, IntegrityError, LedgerWarning, MessageError, RefusedByPolicy
from multicentre.estimator.registry import METHODS
from multicentre.privacy.accountant import Spent
from multicentre.privacy.budget import Account
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.ledger_heads import Statement
from multicentre.privacy.ledger_witnesses import HeadRecord, Witness
from multicentre.privacy.run_ledgers import terms_of
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.reports import write_report
from multicentre.studies import read_study, run_study
from multicentre_sites.deployment.approvals import ApprovedStudy
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.site_check import examine
from multicentre_sites.deployment.site_folder import STATED_TERMS, read_site
from multicentre_sites.deployment.site_opening import open_study_files
from support.ledger_forgery import lines_of, write_anew
from support.real_sites import Hospitals, set_terms
from support.remote_sites import ByHand
from support.studies_toy import TOY, FedViewMeans, write_study


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


@pytest.fixture
def hospitals(tmp_path):
    return Hospitals(tmp_path / "sites", write_study(tmp_path))


@pytest.fixture
def fitted(hospitals, tmp_path):
    """Return the sites after a run, and the coordinator's folder of it."""
    folder = tmp_path / "coordinator"
    with hospitals.federation(folder=folder) as federation:
        FedViewMeans(n_rounds=3).fit(federation)
    return hospitals, folder


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def verified(*words):
    """Return exit status and error of ``ledger verify``."""
    result = call("ledger", "verify", *words, "--json")
    return result.exit_code, json.loads(result.stdout).get("error", {}).get("message", "")


def site_ledger(hospitals, site="lyon"):
    return read_site(hospitals.root / site).ledger_of("Ward 7")


def lose_entries(hospitals, n_left=2):
    """Rebuild lyon's ledger with its key and fewer entries, as from a backup of the whole folder of ledgers."""
    path = site_ledger(hospitals)
    write_anew(path, lines_of(path)[:n_left], read_site(hospitals.root / "lyon").identity)
    path.with_name(f"{path.stem}.peers.json").unlink()
    hospitals.handlers.clear()
    return path


def test_peers_return_the_end_that_they_have_on_file_and_the_site_stops(fitted, tmp_path):
    """The run is another one, with another folder: the coordinator itself knows no earlier end."""
    hospitals, _ = fitted
    path = lose_entries(hospitals)
    lost = r"lyon.*: the ledger must contain entry \d+, which this site signed"
    with hospitals.federation(folder=tmp_path / "another") as federation, pytest.raises(IntegrityError, match=lost):
        FedViewMeans(n_rounds=1).fit(federation)
    assert lines_of(path)[-1]["event"] == "shortened"
    examination = examine(read_site(hospitals.root / "lyon"), check_coordinator=False)
    assert 8 in [one.exit_code for one in examination.findings]
    assert "site acknowledge" in str(examination.findings)
    hospitals.handlers.clear()
    with pytest.raises(IntegrityError, match="lyon, Ward 7: the ledger must contain entry"):  # also the run after it
        hospitals.federation(folder=tmp_path / "third")


def test_runs_go_on_once_the_steward_has_acknowledged_the_loss(fitted, tmp_path):
    hospitals, _ = fitted
    path = lose_entries(hospitals)
    with hospitals.federation(folder=tmp_path / "another") as federation, pytest.raises(IntegrityError):
        FedViewMeans(n_rounds=1).fit(federation)
    done = call("site", "acknowledge", "Ward 7", "--folder", hospitals.root / "lyon")
    assert done.exit_code == 0, done.output
    assert lines_of(path)[-1]["event"] == "acknowledged"
    assert call("site", "acknowledge", "Ward 7", "--folder", hospitals.root / "lyon").exit_code == 0
    hospitals.handlers.clear()
    with hospitals.federation(folder=tmp_path / "third") as federation:
        FedViewMeans(n_rounds=1).fit(federation)
    # What the peer signed still contradicts the ledger.
    witness = site_ledger(hospitals, "porto")
    card = hospitals.root / "lyon" / "lyon.site.toml"
    status, message = verified(path, "--site", "lyon", "--key", card, "--witness", witness)
    assert status == 8
    assert "must have the hash recorded by" in message or "must reach entry" in message


def run_at(hospitals, output):
    """Return the folder of a run of the study over the sites."""
    study = read_study(hospitals.study_path).with_output(output)
    return run_study(
        study, connect=lambda: ByHand({name: partial(hospitals.answer, name) for name in hospitals.names})
    ).path


def notices_in(folder):
    """Return the notices in the report of a run, without tags."""
    page = write_report(folder).read_text()
    notices = re.findall(r'<(?:p|div) class="notice" role="note">(.*?)</(?:p|div)>', page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", one).split()) for one in notices]


def test_a_run_that_a_loss_ends_has_no_results_to_report(fitted, tmp_path):
    hospitals, _ = fitted
    lose_entries(hospitals)
    with pytest.raises(IntegrityError, match=r"lyon.*: the ledger must contain entry \d+, which this site signed"):
        run_at(hospitals, tmp_path / "runs")
    assert list((tmp_path / "runs").glob("[!.]*")) == []


def test_reports_name_a_loss_that_a_steward_acknowledged(fitted, tmp_path):
    hospitals, _ = fitted
    assert not any("lost entries" in one for one in notices_in(run_at(hospitals, tmp_path / "before")))
    lose_entries(hospitals)
    with hospitals.federation(folder=tmp_path / "another") as federation, pytest.raises(IntegrityError):
        FedViewMeans(n_rounds=1).fit(federation)
    assert call("site", "acknowledge", "Ward 7", "--folder", hospitals.root / "lyon").exit_code == 0
    acknowledged = lines_of(site_ledger(hospitals))[-1]
    for name in ("first", "second"):
        hospitals.handlers.clear()
        with pytest.warns(LedgerWarning, match="lyon: its ledger lost entries"):
            folder = run_at(hospitals, tmp_path / name)
        (notice,) = [one for one in notices_in(folder) if "lost entries" in one]
        assert (
            f"lyon: its ledger lost entries, of which entry {acknowledged['recorded'][0]} is the last known" in notice
        )
        assert f"acknowledged the loss on {acknowledged['time'][:10]} at {acknowledged['time'][11:16]} UTC." in notice
        assert "oslo" not in notice


def test_the_report_names_a_site_that_hides_its_loss(fitted, tmp_path, monkeypatch):
    """The site's software does not look at its own ends; the coordinator compares them with those of the peers."""
    hospitals, _ = fitted
    n_before = len(lines_of(site_ledger(hospitals)))
    lose_entries(hospitals)
    monkeypatch.setattr(Witness, "_check_own", lambda self, head: None)
    with pytest.warns(LedgerWarning, match="lyon: on .* it signed an end of its ledger after entry"):
        folder = run_at(hospitals, tmp_path / "runs")
    (notice,) = [one for one in notices_in(folder) if "lost entries" in one]
    on_file = int(re.search(r"one after entry (\d+) on file, which it signed earlier", notice)[1])
    assert 2 < on_file <= n_before
    assert "its steward acknowledged no loss" in notice


@pytest.mark.parametrize("stated", [[[1]], [["a", "2026-01-01"]], [[1, "yesterday"]], 3, [[1, 2]]])
def test_losses_in_another_form_are_refused(tmp_path, stated):
    record = HeadRecord(tmp_path / "heads.json", Identity.generate())
    with pytest.raises(MessageError, match="lyon: acknowledged losses of a ledger must be entries with times"):
        record.recall({"lyon": {"losses": stated}})


def test_a_loss_that_is_not_recorded_cannot_be_acknowledged(fitted):
    hospitals, _ = fitted
    done = call("site", "acknowledge", "Ward 7", "--folder", hospitals.root / "lyon")
    assert done.exit_code == 3


def test_an_earlier_end_of_a_resumed_run_is_no_sign_of_a_loss(tmp_path):
    lyon, oslo, coordinator = (Identity.generate() for _ in range(3))
    own, peer = Ledger(tmp_path / "ledger.jsonl", signer=lyon, study="s"), Ledger(signer=oslo, study="s")
    witness = Witness("lyon", own)
    earlier = []
    for _ in range(3):
        peer.append("release", {})
        earlier.append(peer.head)
        witness.receive(Statement.signed({"oslo": peer.head}, coordinator).packed)
        own.append("release", {})
    witness.receive(Statement.signed({"oslo": earlier[0]}, coordinator).packed)
    assert "shorter" not in own.append("release", {})
    another = Ledger(signer=oslo, study="s")
    another.append("release", {"other": 1})
    witness.receive(Statement.signed({"oslo": another.head}, coordinator).packed)
    assert own.append("release", {})["shorter"] == {"oslo": [1, another.head.hash]}
    for _ in range(5):
        another.append("release", {"other": 1})
    again = Witness("lyon", Ledger(tmp_path / "ledger.jsonl", signer=lyon, study="s"))
    again.receive(Statement.signed({"oslo": another.head}, coordinator).packed)
    assert again.heads == {"oslo": earlier[-1]}  # the end that contradicts the ledger stays on file


@pytest.mark.parametrize("lost", ["cohorts", "account"])
def test_a_memory_that_earlier_runs_used_does_not_begin_again_unnoticed(tmp_path, lost):
    site = make_site("lyon", tmp_path / "lyon").folder
    set_terms(site, "[policy]\n", "[policy]\nepsilon = 2.0\n")
    policy = read_site(site).policy_for("s")
    approved = ApprovedStudy("", "", "", "")
    files = open_study_files(read_site(site), "s", approved, repair=True)
    files.ledger.append("release", {"rho": 0.1, "terms": terms_of(policy)})
    Account(2.0, policy.delta, Path(policy.account)).charge(Spent(0.1), {})
    open_study_files(read_site(site), "s", approved, repair=True)
    path = Path(getattr(policy, lost))
    path.rename(tmp_path / "lost")
    with pytest.raises(IntegrityError, match="must be there, since earlier runs used it") as caught:
        open_study_files(read_site(site), "s", approved, repair=False)
    assert caught.value.where == str(path)


def test_an_account_without_its_end_is_refused(tmp_path):
    account = Account(2.0, 1e-5, tmp_path / "account.jsonl")
    for _ in range(2):
        account.charge(Spent(0.01), {})
    (tmp_path / "account.jsonl.head").unlink()
    with pytest.raises(IntegrityError, match=r"its \.head file names"):
        Account(2.0, 1e-5, tmp_path / "account.jsonl")


def test_a_policy_that_is_weaker_than_at_the_approval_needs_another(hospitals):
    folder = hospitals.root / "lyon"
    assert call("site", "approve", hospitals.study_path, "--folder", folder, "--yes").exit_code == 0
    whole = (folder / "site.toml").read_text()
    set_terms(folder, "min_patients = 10 ", "min_patients = 11 ")
    hospitals.federation()  # a stricter policy needs none
    (folder / "site.toml").write_text(whole.replace("min_sites_in_sum = 3", "min_sites_in_sum = 2"))
    with pytest.raises(ConfigurationError, match="cannot open this study"):
        hospitals.federation()
    assert "min_sites_in_sum was 3 and is 2" in str(examine(read_site(folder), check_coordinator=False).findings)
    assert call("site", "approve", hospitals.study_path, "--folder", folder, "--yes").exit_code == 0
    hospitals.federation()


@pytest.mark.parametrize("line", ['account = "spent.jsonl"', 'cohorts = "answered"', "min_difference = 5"])
def test_a_policy_that_lost_a_line_needs_another_approval(tmp_path, line):
    """A budget or a memory in the usual place would begin again; records without ids would not be compared."""
    site = make_site("lyon", tmp_path / "lyon").folder
    settings = (site / "site.toml").read_text()
    (site / "site.toml").write_text(f'policy = "policy.toml"\n{settings[: settings.index("[policy]")]}')
    (site / "policy.toml").write_text(f"epsilon = 2.0\n{line}\n")
    approved = ApprovedStudy("", "", "", "", policy=terms_of(read_site(site).policy_for("s"))["policy"])
    open_study_files(read_site(site), "s", approved, repair=True)
    (site / "policy.toml").write_text("epsilon = 2.0\n")
    with pytest.raises(RefusedByPolicy, match=line.partition(" ")[0]):
        open_study_files(read_site(site), "s", approved, repair=True)


@pytest.mark.parametrize("content", ["", "policy = {}", "[policy]\n"])
def test_settings_without_a_policy_are_refused(hospitals, content):
    path = hospitals.root / "lyon" / "site.toml"
    whole = path.read_text()
    first, rest = whole[: whole.index("[policy]")], ""
    path.write_text(f"{content}\n{first}" if content.startswith("policy =") else f"{first}{content}{rest}")
    with pytest.raises(ConfigurationError, match="policy"):
        read_site(hospitals.root / "lyon")


def test_settings_cut_off_anywhere_keep_the_policy_or_are_refused(tmp_path):
    """A term that is lost with the end of the file never falls back to a weaker default."""
    path = make_site("lyon", tmp_path / "lyon").folder / "site.toml"
    written = path.read_text()
    assert tuple(tomllib.loads(written)["policy"]) == STATED_TERMS
    stricter = written.replace("secure_sums_only = false", "secure_sums_only = true")
    stricter = stricter.replace("min_sites_in_sum = 3", "min_sites_in_sum = 7").replace(
        "_patients = 10 ", "_patients = 500 "
    )
    path.write_text(stricter)
    whole, n_read = read_site(path.parent).policy_for("s"), 0
    lines = stricter.splitlines(keepends=True)
    for n_lines in range(len(lines)):
        path.write_text("".join(lines[:n_lines]))
        with contextlib.suppress(ConfigurationError):
            assert read_site(path.parent).policy_for("s") == whole
            n_read += 1
    assert 0 < n_read < len(lines)  # only comments may be lost


def test_a_list_of_signed_runs_that_is_gone_is_missed(tmp_path):
    site = read_site(make_site("lyon", tmp_path / "lyon").folder)
    files = open_study_files(site, "s", ApprovedStudy("", "", "", ""), repair=True)
    files.ledger.append("release", {"requested_by": {"name": "ada", "fingerprint": "x"}})
    with pytest.raises(IntegrityError, match="list of signed runs must be there"):
        open_study_files(site, "s", ApprovedStudy("", "", "", ""), repair=True)
    site.opened.write_text("[]")
    open_study_files(site, "s", ApprovedStudy("", "", "", ""), repair=True)


def test_a_full_disk_is_named_before_a_run(tmp_path, monkeypatch):
    site = read_site(make_site("lyon", tmp_path / "lyon").folder)
    monkeypatch.setattr(disk, "MIN_FREE_BYTES", 2**62)
    with pytest.raises(ConfigurationError, match=r"free disk space; got: .* MiB are free"):
        disk.check_space([site.folder])
    assert examine(site, check_coordinator=False).exit_code == 3
