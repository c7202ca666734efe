"""One hospital upgrades in the middle of a run: with the same steps it goes on, with other steps it refuses."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from multicentre import __version__
from multicentre.errors import QuorumLost, RefusedByPolicy
from support.consortia import SITES, Consortium, Process, in_one_process, numbers_of
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
METHOD = "fed-mv-ppca"
OTHER = str(Path(__file__).parents[3] / "tests" / "support" / "other_release.py")
SAME_STEPS, OTHER_STEPS = (OTHER, "9.9.0", ""), (OTHER, "9.9.1", METHOD)
IN_THE_FIT = 8  # releases of a site once it has answered the first round


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory):
    """A run that lost a site in a round; it is resumed with a release of other steps there, then with one of the same.

    Yields the consortium, the study, the run with its two resumptions, and the check of the first release.
    """
    root = tmp_path_factory.mktemp("upgrades")
    consortium = Consortium(root, dict.fromkeys(SITES, "fast"), PROXY)
    try:
        for site in consortium.sites.values():
            site.start()
        for site in consortium.sites.values():
            site.wait_until_up()
        study, porto = consortium.study("upgraded", rounds=14, run="patience_s = 4.0"), consortium.sites["porto"]
        first = consortium.run(study)
        consortium.wait_for_releases(study, "porto", IN_THE_FIT, first)
        porto.kill()
        statuses = [first.wait()]
        check = Process(
            "site", "check", "--folder", porto.folder, "--offline", log=root / "check.log", programme=OTHER_STEPS
        )
        resumptions = []
        for release in (OTHER_STEPS, SAME_STEPS):
            porto.start(release)
            porto.wait_until_up()
            resumptions.append(consortium.resume(first))
            statuses.append(resumptions[-1].wait())
            assert porto.shut_down() == 0
        wait_for(lambda: not check.runs)
        yield SimpleNamespace(study=study, run=first, statuses=statuses, resumptions=resumptions, check=check)
    finally:
        consortium.end()
    assert processes_of(root) == []


def test_a_release_with_other_steps_is_refused_by_name_and_the_run_stays(upgraded):
    assert upgraded.statuses[:2] == [QuorumLost.exit_code, RefusedByPolicy.exit_code], upgraded.resumptions[0].printed
    assert METHOD in upgraded.resumptions[0].printed
    assert "porto" in upgraded.resumptions[0].printed
    assert f"The run is kept in {upgraded.run.folder}" in upgraded.resumptions[0].printed


def test_a_release_with_the_same_steps_takes_part_to_the_same_bits(upgraded, tmp_path):
    assert upgraded.statuses[2] == 0, upgraded.resumptions[1].printed
    assert upgraded.run.metadata["lost"] == []
    assert upgraded.run.metadata["versions"] == {
        **dict.fromkeys(("lyon", "oslo"), __version__),
        "porto": f"{__version__}, 9.9.0",
    }
    assert numbers_of(upgraded.run.folder) == numbers_of(in_one_process(upgraded.study, tmp_path).path)


def test_the_check_of_a_new_release_names_the_studies_that_it_touches(upgraded):
    assert "study upgraded" in upgraded.check.printed
    assert "this release has others" in upgraded.check.printed
    assert METHOD in upgraded.check.printed
