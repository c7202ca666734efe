"""What becomes of a run when something is lost: a site, its answer, its coordinator, or the analyst's patience."""

import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from multicentre.errors import QuorumLost
from support.consortia import (
    MARKER,
    SITES,
    Consortium,
    in_one_process,
    model_of,
    model_without,
    numbers_of,
    releases_in,
)
from support.processes import processes_of
from support.proxies import PROXY
from support.waiting import wait_for

pytest.importorskip("flwr", reason="flwr is not installed")

from multicentre_sites.flower.internal import self_test

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(self_test() is not None, reason="the installed flwr offers no fast mode"),
    pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="needs Linux"),
]
RELAYED = "turin"
BREAKING = (str(Path(__file__).parents[3] / "tests" / "support" / "breaking_site.py"),)
FIRST_ROUND = 8  # releases of a site once it has answered the first round of a fit; seven are asked before
INTERRUPTED = 130


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    """A coordinator, three sites in fast mode and one in standard mode, of which the last two break at first."""
    root = tmp_path_factory.mktemp("losses")
    consortium = Consortium(root, {**dict.fromkeys(SITES, "fast"), RELAYED: "standard"}, PROXY)
    try:
        for name, site in consortium.sites.items():
            site.start(*([BREAKING] if name in ("porto", RELAYED) else []))
        for site in consortium.sites.values():
            site.wait_until_up()
        yield consortium
    finally:
        consortium.end()
    assert processes_of(root) == []


@pytest.fixture(scope="module")
def whole(consortium, broken):
    """The same consortium once no site breaks any more."""
    for name in ("porto", RELAYED):
        assert consortium.sites[name].shut_down() == 0
        consortium.sites[name].start()
    for name in ("porto", RELAYED):
        consortium.sites[name].wait_until_up()
    return consortium


@pytest.fixture(scope="module")
def broken(consortium):
    """A run that steps of two sites broke."""
    run = consortium.run(consortium.study("broken", ("lyon", "porto", RELAYED)))
    return SimpleNamespace(run=run, status=run.wait())


def test_a_step_that_raises_is_a_site_lost_and_its_kind_is_told(broken):
    assert broken.status == QuorumLost.exit_code, broken.run.printed
    for site in ("porto", RELAYED):
        assert re.search(
            rf"^lost {site}: .*the step describe of fed-mv-ppca failed \(ValueError\)", broken.run.lost, re.M
        )
    assert broken.run.metadata["status"] == "interrupted"


def test_the_text_of_an_exception_stays_at_its_site(consortium, broken):
    for name in ("porto", RELAYED):
        assert MARKER in (consortium.sites[name].folder / "site.log").read_text()
    held = [path for path in everything_of(consortium) if MARKER.encode() in path.read_bytes()]
    assert held == []


@pytest.fixture(scope="module")
def killed(whole):
    """Four runs: a site of three is killed in mid-round and comes back later; of the fourth, a site's SuperNode is."""
    porto, turin = whole.sites["porto"], whole.sites[RELAYED]
    two = whole.study("two-of-three", rounds=14, run="quorum = 2\npatience_s = 4.0")
    every = whole.study("every-site", rounds=14, run="patience_s = 4.0")
    folds = '[validation]\nfolds = 2\nstrategy = "random"\nallow_leakage = true\nscores = ["neg_mean_absolute_error"]'
    anew = whole.study("begun-anew", rounds=4, run="quorum = 2", more=folds)
    relayed = whole.short_study("relayed", ("lyon", "oslo", RELAYED))
    runs = {study: whole.run(study) for study in (relayed, two, every, anew)}
    for study, count in ((anew, 1), (two, FIRST_ROUND), (every, FIRST_ROUND)):
        whole.wait_for_releases(study, "porto", count, runs[study])
    porto.stop()
    assert all(run.runs for run in runs.values())
    porto.kill()
    whole.wait_for_releases(relayed, RELAYED, 1, runs[relayed])
    turin.stop()
    wait_for(lambda: turin.open_requests > 1)
    os.kill(turin.supernode, signal.SIGKILL)
    turin.go_on()
    for study in (two, every):
        runs[study].wait()
    porto.start()
    porto.wait_until_up()
    return SimpleNamespace(two=two, every=every, anew=anew, relayed=relayed, runs=runs)


def test_with_a_quorum_the_others_finish_and_the_loss_is_told(whole, killed):
    run = killed.runs[killed.two]
    assert run.wait() == 0, run.printed
    assert run.metadata["lost"] == ["porto"]
    assert re.search(
        r"^lost porto: fit: porto: not reached since \d\d:\d\d:\d\d UTC: the site is not connected", run.lost
    )
    assert run.lost == f"lost porto: {run.metadata['losses']['porto']}"
    assert "not reached since" in (run.folder / "report.html").read_text()
    assert all(is_once(whole.sites[name].releases(killed.two.stem)) for name in SITES)


def test_without_a_site_that_is_needed_the_run_is_kept_and_resumed_to_the_same_bits(whole, killed, tmp_path):
    run = killed.runs[killed.every]
    assert run.wait() == QuorumLost.exit_code, run.printed
    assert "not reached since" in run.metadata["message"]
    assert f"multicentre run --resume {run.folder}" in run.printed
    again = whole.resume(run)
    assert again.wait() == 0, again.printed
    assert again.metadata["lost"] == []
    assert numbers_of(run.folder) == numbers_of(in_one_process(killed.every, tmp_path).path)


def test_a_killed_agent_has_lost_its_fit_and_is_back_for_the_next(whole, killed):
    run, porto = killed.runs[killed.anew], whole.sites["porto"]
    assert run.wait() == 0, run.printed
    assert run.metadata["lost"] == ["porto"]
    why = "fit: porto: the site's process restarted at .* and lost the state of this fit"
    assert re.match(why, run.metadata["losses"]["porto"])
    releases = porto.releases(killed.anew.stem)
    assert len([one for one in releases if one[0] != "1"]) > 2 * FIRST_ROUND
    assert len([one for one in releases if one[0] == "1"]) < FIRST_ROUND + 4
    assert is_once(releases)


def test_a_supernode_that_is_killed_comes_back_and_nothing_is_counted_twice(whole, killed, tmp_path):
    run, turin = killed.runs[killed.relayed], whole.sites[RELAYED]
    assert run.wait() == 0, run.printed
    assert run.metadata["lost"] == []
    assert "flower-supernode ended" in turin.process.printed
    alone = in_one_process(killed.relayed, tmp_path)
    assert turin.releases("relayed") == releases_in(alone.ledgers()[RELAYED])
    assert numbers_of(run.folder) == numbers_of(alone.path)


@pytest.fixture(scope="module")
def held_up(whole):
    """Two runs of which a site is held up: one waits for it, the other has a time limit."""
    late, oslo, porto = (
        whole.study("late", ("lyon", "porto"), rounds=14, run="quorum = 1\ntime_limit_s = 25.0"),
        *(whole.sites[name] for name in ("oslo", "porto")),
    )
    patient = whole.study("patient", ("lyon", "oslo"), rounds=12)
    runs = {study: whole.run(study) for study in (late, patient)}
    whole.wait_for_releases(late, "porto", FIRST_ROUND, runs[late])
    porto.stop()
    whole.wait_for_releases(patient, "oslo", FIRST_ROUND, runs[patient])
    oslo.stop()
    began = time.monotonic()
    runs[late].wait_until_printed("lost porto")
    before = porto.releases("late")
    porto.go_on()
    time.sleep(max(40.0 - (time.monotonic() - began), 0.0))
    oslo.go_on()
    return SimpleNamespace(late=late, patient=patient, runs=runs, before=before)


def test_a_site_that_is_held_up_for_less_than_a_minute_goes_on(whole, held_up, tmp_path):
    run = held_up.runs[held_up.patient]
    assert run.wait() == 0, run.printed
    assert run.metadata["lost"] == []
    alone = in_one_process(held_up.patient, tmp_path)
    assert whole.sites["oslo"].releases("patient") == releases_in(alone.ledgers()["oslo"])
    assert numbers_of(run.folder) == numbers_of(alone.path)


def test_a_site_that_is_too_slow_is_lost_and_its_late_answer_is_dropped(whole, held_up, tmp_path):
    run, porto = held_up.runs[held_up.late], whole.sites["porto"]
    assert run.wait() == 0, run.printed
    assert run.metadata["lost"] == ["porto"]
    assert re.search(r"^lost porto: fit: porto: no answer since \d\d:\d\d:\d\d UTC within the time limit", run.lost)
    (_, last, _) = porto.releases("late")[-1]
    assert last - held_up.before[-1][1] in (0, 1)
    models = [model_without(held_up.late, "porto", since, tmp_path / str(since)) for since in (last, last + 1)]
    assert model_of(run.folder / "model") in models


@pytest.fixture(scope="module")
def superlink_killed(whole):
    """A run that goes on after the SuperLink was killed, and is interrupted by its analyst later."""
    study = whole.study("superlink", rounds=12)
    run = whole.run(study)
    whole.wait_for_releases(study, "lyon", FIRST_ROUND, run)
    os.kill(whole.superlink, signal.SIGKILL)
    whole.wait_for_releases(study, "lyon", FIRST_ROUND + 5, run)
    before = {name: whole.sites[name].releases("superlink") for name in SITES}
    run.send(signal.SIGINT)
    return SimpleNamespace(study=study, run=run, before=before)


def test_a_superlink_that_is_killed_is_started_again_and_the_run_goes_on(whole, superlink_killed):
    assert "SuperLink ended with status" in whole.up.printed
    assert superlink_killed.run.lost == ""
    assert all(is_once(releases) for releases in superlink_killed.before.values())


def test_until_then_the_coordinator_holds_no_name_of_a_patient(whole, superlink_killed):
    superlink_killed.run.wait()
    assert [path for path in everything_of(whole) if MARKER.encode() in path.read_bytes()] == []


def test_an_interrupted_run_is_taken_up_again_after_the_coordinator_was_down(whole, superlink_killed, tmp_path):
    run = superlink_killed.run
    assert run.wait() == INTERRUPTED, run.printed
    assert run.metadata["status"] == "interrupted"
    assert all(site.process.runs for site in whole.sites.values())
    came_back = {name: whole.sites[name].process.printed.count("can be reached again") for name in SITES}
    assert whole.up.stop() == 0
    assert processes_of(whole.coordinator.folder) == []
    whole.restart()
    again = whole.resume(run)
    assert again.wait() == 0, again.printed
    assert again.metadata["lost"] == []
    assert all(whole.sites[name].process.printed.count("can be reached again") > came_back[name] for name in SITES)
    alone = in_one_process(superlink_killed.study, tmp_path)
    assert numbers_of(run.folder) == numbers_of(alone.path)


def everything_of(consortium):
    """Return every file of coordinator and analyst: database, logs, run folders, what their commands printed."""
    folders = (consortium.coordinator.folder, consortium.root / "runs")
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def is_once(releases):
    """Say whether no call of a fit is there twice."""
    return len({(fit, call) for fit, call, _ in releases}) == len(releases)
