"""A run over connections that are reset, slow, or gone for a while has the bits of one process."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.consortia import SITES, Consortium, in_one_process, numbers_of, releases_in
from support.links import Link
from support.processes import processes_of
from support.proxies import PROXY

pytest.importorskip("flwr", reason="flwr is not installed")

from multicentre_sites.flower.internal import self_test

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(self_test() is not None, reason="the installed flwr offers no fast mode"),
    pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="needs Linux"),
]
# A site's connection carries about a kilobyte per call and the TLS handshake; each is reset every few calls.
KINDS = {"lyon": {}, "oslo": {"reset_after": 15_000}, "porto": {"bytes_per_s": 40_000.0, "delay_s": 0.05}}
CUT_S = 15.0  # shorter than the patience of two minutes
FIRST_ROUND = 8


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of which one site's connections are reset, one's are slow, and one's are gone for a while in mid-round."""
    root = tmp_path_factory.mktemp("links")
    links = {}

    def between(name, address):
        links[name] = Link(address, **KINDS[name])
        return links[name].address

    consortium = Consortium(root, dict.fromkeys(SITES, "fast"), PROXY, between=between)
    try:
        for site in consortium.sites.values():
            site.start()
        for site in consortium.sites.values():
            site.wait_until_up()
        study = consortium.study("links", rounds=10)
        run = consortium.run(study)
        consortium.wait_for_releases(study, "lyon", FIRST_ROUND, run)
        links["lyon"].cut()
        time.sleep(CUT_S)
        links["lyon"].mend()
        status = run.wait()
        releases = {name: site.releases("links") for name, site in consortium.sites.items()}
        yield SimpleNamespace(study=study, run=run, status=status, links=links, releases=releases)
    finally:
        consortium.end()
        for link in links.values():
            link.close()
    assert processes_of(root) == []


def test_the_run_ends_without_a_loss_and_has_the_bits_of_one_process(run, tmp_path):
    assert run.status == 0, run.run.printed
    assert run.run.metadata["lost"] == []
    alone = in_one_process(run.study, tmp_path)
    assert numbers_of(run.run.folder) == numbers_of(alone.path)
    assert run.releases == {name: releases_in(alone.ledgers()[name]) for name in SITES}


def test_the_links_did_what_the_test_says(run):
    assert run.links["oslo"].n_resets >= 4
    assert run.links["lyon"].n_resets >= 2
    assert run.links["porto"].n_connections >= 1
