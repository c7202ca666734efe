"""An analyst without the coordinator's account runs a study over real processes, under a signature of hers."""

import json
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from multicentre.errors import RefusedByPolicy
from multicentre.privacy.ledger import read_ledger
from multicentre.reports import render_report
from multicentre_sites.deployment.analysts import AdmittedAnalysts, make_analyst
from multicentre_sites.deployment.approvals import revoke
from multicentre_sites.deployment.site_folder import read_site
from support.accounts import ANALYST, give_to, own_folder, run_as, shared_folder
from support.consortia import SITES, Consortium, Process, in_one_process, numbers_of
from support.processes import processes_of
from support.proxies import PROXY
from support.waiting import wait_for

pytest.importorskip("flwr", reason="flwr is not installed")

from multicentre_sites.flower.internal import self_test

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(self_test() is not None, reason="the installed flwr offers no fast mode"),
]
INTERRUPTED = 130


@pytest.fixture(scope="module")
def door():
    """A folder with a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="mc-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def ada(tmp_path_factory):
    return make_analyst("ada", tmp_path_factory.mktemp("analyst") / "ada")


@pytest.fixture(scope="module")
def consortium(tmp_path_factory, door, ada):
    root = tmp_path_factory.mktemp("analysts")
    consortium = Consortium(root, dict.fromkeys(SITES, "fast"), PROXY, door / "socket")
    try:
        AdmittedAnalysts(consortium.coordinator.analysts).add(ada.card)
        for site in consortium.sites.values():
            site.approve(ada.folder / "ada.analyst.toml")
            site.start()
        for site in consortium.sites.values():
            site.wait_until_up()
        yield consortium
    finally:
        consortium.end()
    assert processes_of(root) == []


def asked_by(consortium, study):
    """Return the fingerprints that the ledgers of all sites hold for a study."""
    ledgers = [read_site(consortium.sites[name].folder).ledger_of(study.stem) for name in SITES]
    return {entry["requested_by"]["fingerprint"] for ledger in ledgers for entry in read_ledger(ledger)}


def order(consortium, door, ada, *arguments):
    log = consortium.root / "analyst.log"
    return Process("run", *arguments, "--coordinator", door / "socket", "--analyst", ada.folder, log=log)


def test_the_numbers_are_those_of_one_process_and_every_ledger_names_her(consortium, door, ada, tmp_path):
    study = consortium.study("signed", rounds=3)
    run = order(consortium, door, ada, study, "--output", tmp_path / "runs")
    assert run.wait() == 0, run.printed
    (folder,) = (tmp_path / "runs").iterdir()
    assert numbers_of(folder) == numbers_of(in_one_process(study, tmp_path / "here").path)
    assert asked_by(consortium, study) == {ada.card.fingerprint}
    assert "Analyst ada" in consortium.up.printed


def test_several_analyses_are_approved_at_once_and_end_in_one_run(consortium, door, ada, tmp_path):
    study = consortium.study_of_several("several")
    run = order(consortium, door, ada, study, "--output", tmp_path / "runs")
    assert run.wait() == 0, run.printed
    (folder,) = (tmp_path / "runs").iterdir()
    here = in_one_process(study, tmp_path / "here").path
    for place in ("table-1/results/table-1.csv", "test/results/test.csv", "cox/results/hazard-ratios.csv"):
        assert (folder / "analyses" / place).read_text() == (here / "analyses" / place).read_text()
    assert (folder / "analyses/cox/figures/result.svg").is_file()
    assert "Hazard ratio of arm" in run.printed
    assert asked_by(consortium, study) == {ada.card.fingerprint}


def sections(folder):
    """Return the headings of the report, without the numbers that a browser adds."""
    page = render_report(folder)
    return [line.split(". ", 1)[-1] for line in page.splitlines() if line.startswith("<h2>") and "Site" not in line]


def test_a_study_of_a_cohort_has_the_statuses_sections_and_numbers_of_its_simulation(consortium, door, ada, tmp_path):
    """Contract: a selection, estimates by site, subgroups and validation are the same over real processes."""
    study = consortium.study_of_a_cohort("cohort")
    run = order(consortium, door, ada, study, "--output", tmp_path / "runs")
    assert run.wait() == 0, run.printed
    (there,) = (tmp_path / "runs").iterdir()
    here = in_one_process(study, tmp_path / "here").path
    runs = [json.loads((folder / "run.json").read_text()) for folder in (here, there)]
    statuses = [{entry["name"]: entry["status"] for entry in each["analyses"]} for each in runs]
    assert statuses[0] == statuses[1] == dict.fromkeys(("table-1", "curve", "cox", "older", "relapse"), "finished")
    assert runs[0]["flow"] == runs[1]["flow"]
    assert runs[0]["flow"]["excluded"]
    assert sections(here) == sections(there)
    names = {file.relative_to(here) for file in (here / "analyses").rglob("*") if file.suffix in (".csv", ".json")}
    assert {Path("analyses/cox/results/by-site.csv"), Path("analyses/relapse/cross-validation.json")} <= names
    for name in sorted(names):
        texts = [(folder / name).read_text() for folder in (here, there)]
        assert texts[0] == texts[1], name
    titles = [figure["title"] for figure in json.loads((there / "analyses/cox/figures.json").read_text())]
    assert {"Subgroups", "Estimates in subgroups", "Hazard ratio of arm, site by site"} <= set(titles)


def test_a_run_that_she_interrupts_is_taken_up_again(consortium, door, ada, tmp_path):
    study = consortium.study("interrupted", rounds=12)
    run = order(consortium, door, ada, study, "--output", tmp_path / "runs")
    consortium.wait_for_releases(study, "lyon", 10, run)
    run.send(signal.SIGINT)
    assert run.wait() == INTERRUPTED, run.printed
    assert "--resume" in run.printed
    (folder,) = (tmp_path / "runs").iterdir()
    again = order(consortium, door, ada, "--resume", folder)
    assert again.wait() == 0, again.printed
    assert numbers_of(folder) == numbers_of(in_one_process(study, tmp_path / "here").path)


def test_a_site_that_no_longer_approves_her_refuses_and_so_do_all_without_her_signature(
    consortium, door, ada, tmp_path
):
    study = consortium.short_study("refused")
    unsigned = consortium.run(study)
    assert unsigned.wait() == RefusedByPolicy.exit_code, unsigned.printed
    assert "the coordinator signed it" in unsigned.printed
    site = consortium.sites["oslo"]
    revoke(read_site(site.folder).approved, ada.card.fingerprint)
    try:
        run = order(consortium, door, ada, study, "--output", tmp_path / "runs")
        assert run.wait() == RefusedByPolicy.exit_code, run.printed
        assert "oslo" in run.printed
    finally:
        site.approve(ada.folder / "ada.analyst.toml")


def test_under_another_account_she_gets_her_results_and_reads_no_key(consortium, door, ada, tmp_path):
    study = consortium.short_study("accounts")
    with shared_folder() as root:
        home = own_folder(root, "ada", ANALYST)
        shutil.copytree(ada.folder, home / "key")
        shutil.copy(study, home)
        give_to(ANALYST, home)
        options = ("--coordinator", door / "socket", "--analyst", home / "key", "--output", home / "runs", "--json")
        code, printed = run_as(ANALYST, home, "-m", "multicentre", "run", home / study.name, *options)
        assert code == 0, printed
        (folder,) = (home / "runs").iterdir()
        assert json.loads((folder / "run.json").read_text())["status"] == "finished"
        assert (folder / "report.html").stat().st_uid == ANALYST
        code, printed = run_as(ANALYST, home, "-c", f"open({str(consortium.coordinator.superlink_ca_key)!r})")
        assert (code, "PermissionError" in printed) == (1, True)
    assert asked_by(consortium, study) == {ada.card.fingerprint}


def test_a_coordinator_that_stops_interrupts_her_run_and_leaves_no_process(consortium, door, ada, tmp_path):
    study = consortium.study("stopped", rounds=40)
    run = order(consortium, door, ada, study, "--output", tmp_path / "runs")
    consortium.wait_for_releases(study, "lyon", 10, run)
    assert consortium.up.stop() == 0
    assert run.wait() != 0
    wait_for(lambda: not processes_of(consortium.coordinator.folder))
    assert not (door / "socket").exists()
