"""Faults between a site and its coordinator are named with limit and remedy: proxy, clock, large messages."""

import re
import threading
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from multicentre.core.links import MAX_CLOCK_DIFFERENCE_S
from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.certificates import (
    CERTIFICATE_DAYS,
    RENEWED_BEFORE_DAYS,
    certify_host,
    new_authority,
    write_certified,
)
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.release_key import ReleaseKey, openssh_line
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.supernode import explain_end, services_of
from multicentre_sites.deployment.supervisor import Supervisor
from multicentre_sites.flower.agent import Agent
from support.coordinator_door import Door, Proxy
from support.ports import free_ports
from support.waiting import GENEROUS_S

ROOT = Path(__file__).parents[3]
COORDINATOR_PAGE = ROOT / "sites/src/multicentre_sites/deployment/new_coordinator_folder.py"
REMEDY = "Set HTTPS_PROXY=http://user:password@host:port for the account of the service"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def pki(tmp_path):
    authority = new_authority("127.0.0.1")
    write_certified(authority, tmp_path / "ca.crt", tmp_path / "ca.key")
    write_certified(certify_host(authority, "127.0.0.1"), tmp_path / "door.crt", tmp_path / "door.key")
    return tmp_path


def site_at(folder, port, host="127.0.0.1"):
    """Return a site of a coordinator."""
    make_site("lyon", folder / "lyon", f"{host}:{port}")
    (folder / "lyon" / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())
    return read_site(folder / "lyon")


def reports_of_agent(site, patience_s):
    """Return the error that ends the agent of a site, and what it reported."""
    reports = []
    agent = Agent(
        site.address,
        root_certificates=site.ca,
        private_key=site.keys.node,
        handle=bytes,
        refuse=lambda request, error: b"",
        approved=lambda sha256: True,
        report=reports.append,
        patience_s=patience_s,
    )
    with pytest.raises(ConfigurationError) as raised:
        agent.run(threading.Event())
    return raised.value, reports


def first_end_of_supernode(site):
    """Return the steward's first line about the end of the SuperNode of a site."""
    stop, lines = threading.Event(), []

    def report(line):
        lines.append(line)
        stop.set()

    release = openssh_line(ReleaseKey.generate().public)
    supervisor = Supervisor(
        lambda: services_of(site, {"release": release})[:1],
        log=site.folder / "flower.log",
        report=report,
        explain=lambda output: explain_end(site, output),
    )
    thread = threading.Thread(target=supervisor.run, args=(stop,), daemon=True)
    thread.start()
    thread.join(GENEROUS_S)
    return lines[0]


def test_a_proxy_that_requires_credentials_is_named_and_ends_the_agent(pki, monkeypatch):
    site = site_at(pki, *free_ports(1))
    with Proxy(refuses=True) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{proxy.port}")
        error, reports = reports_of_agent(site, patience_s=0.5)
    assert any("answers 407 Proxy Authentication Required" in report for report in reports)
    assert "answers 407 Proxy Authentication Required" in error.what
    assert site.address in error.where
    assert error.hint.startswith(REMEDY)
    assert "secret" not in f"{error}{reports}"


@pytest.mark.slow
def test_a_proxy_that_requires_credentials_is_named_in_the_standard_mode(pki, monkeypatch):
    site = site_at(pki, 443, "fl.example.org")  # Flower uses no proxy for this machine
    with Proxy(refuses=True) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{proxy.port}")
        line = first_end_of_supernode(site)
    assert "answers 407 Proxy Authentication Required" in line
    assert REMEDY in line
    assert "secret" not in line


@pytest.mark.parametrize(("off_s", "direction"), [(60.0, "ahead"), (-600.0, "behind")])
def test_a_wrong_clock_is_named_by_the_agent(pki, off_s, direction):
    with Door(pki / "door.crt", pki / "door.key", ahead_s=-off_s, status="401 Unauthorized") as door:
        error, reports = reports_of_agent(site_at(pki, door.port), patience_s=0.1)
    for text in (str(error), *(report for report in reports if "clock" in report)):
        assert f"must be within {MAX_CLOCK_DIFFERENCE_S:g} s of the coordinator's" in text
        (stated,) = re.findall(rf"it is (\d+) s {direction}", text)
        assert int(stated) == pytest.approx(abs(off_s), abs=30)  # a busy machine reads the date late
        assert "Set the clock" in text


@pytest.mark.slow
def test_a_wrong_clock_is_named_in_the_standard_mode(pki):
    with Door(pki / "door.crt", pki / "door.key", ahead_s=-60.0, status="401 Unauthorized") as door:
        line = first_end_of_supernode(site_at(pki, door.port))
    assert f"must be within {MAX_CLOCK_DIFFERENCE_S:g} s of the coordinator's" in line


def test_the_superlink_accepts_no_clock_that_is_further_ahead():
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE

    assert MAX_CLOCK_DIFFERENCE_S == SYSTEM_TIME_TOLERANCE


def test_pages_state_the_figures_of_the_code():
    """Every duration next to a clock, and those of certificates, are the constants."""
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md"), ROOT / "README.md", COORDINATOR_PAGE]
    figures = []
    for page in pages:
        for line in re.findall(r"^.*\bclocks?\b.*$", page.read_text(encoding="utf-8"), re.IGNORECASE | re.MULTILINE):
            figures += re.findall(r"\b([\w.]+)[ -](?:s|seconds?|minutes?|hours?)\b", line)
    assert len(figures) >= 2
    assert set(figures) == {f"{MAX_CLOCK_DIFFERENCE_S:g}"}
    text = (ROOT / "docs" / "hospital-it.md").read_text(encoding="utf-8")
    assert re.findall(r"fewer than (\d+) of its (\d+) days", text) == [
        (str(RENEWED_BEFORE_DAYS), str(CERTIFICATE_DAYS))
    ]
    assert re.findall(r"fewer than (\d+) days", COORDINATOR_PAGE.read_text(encoding="utf-8")) == [
        str(RENEWED_BEFORE_DAYS)
    ]
