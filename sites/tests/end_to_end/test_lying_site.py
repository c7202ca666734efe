"""A site of a real consortium that answers beyond what it declares: the run ends, and its error names that site."""

from pathlib import Path

import pytest

from multicentre.errors import MessageError
from support.consortia import SITES, Consortium
from support.processes import processes_of
from support.proxies import PROXY

pytest.importorskip("flwr", reason="flwr is not installed")

from multicentre_sites.flower.internal import self_test

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(self_test() is not None, reason="the installed flwr offers no fast mode"),
    pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="needs Linux"),
]
LIAR = "porto"
LYING = (str(Path(__file__).parents[3] / "tests" / "support" / "lying_site.py"),)


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    """A coordinator and three sites, of which one says that patients are fewer than none."""
    root = tmp_path_factory.mktemp("lying")
    consortium = Consortium(root, dict.fromkeys(SITES, "fast"), PROXY)
    try:
        for name, site in consortium.sites.items():
            site.start(*([LYING] if name == LIAR else []))
        for site in consortium.sites.values():
            site.wait_until_up()
        yield consortium
    finally:
        consortium.end()
    assert processes_of(root) == []


def test_an_answer_beyond_its_declaration_ends_the_run_and_names_its_sender(consortium):
    run = consortium.run(consortium.study("lying"))
    assert run.wait() == MessageError.exit_code, run.printed
    assert f"{LIAR}, Totals.observed: a value is a count and must not be negative" in run.printed
