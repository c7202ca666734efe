"""Every fault that can stop the first run is found, named and comes with a hint."""

import os
import stat

import pytest

from multicentre.core.storage import held
from multicentre.errors import ConfigurationError
from multicentre.estimator.registry import METHODS
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre_sites.deployment import site_process
from multicentre_sites.deployment.approvals import approve, read_approvals, revoke
from multicentre_sites.deployment.certificates import certify_host, new_authority, write_certified
from multicentre_sites.deployment.connectivity import check_connection, proxy_for
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.release_key import ReleaseKey, openssh_line
from multicentre_sites.deployment.site_check import card_at, examine
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.deployment.site_process import AvailableModes, find_modes
from multicentre_sites.deployment.site_register import Roster
from multicentre_sites.deployment.site_service import card_of
from multicentre_sites.deployment.supernode import services_of, socket_of
from support.coordinator_door import Door, Proxy
from support.real_sites import Hospitals, approve_at, set_terms
from support.studies_toy import STUDY, TOY, write_study
from support.survival_toy import STUDY as SURVIVAL
from support.survival_toy import write_study as write_survival

HASH = "ab" * 32


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """Return a folder with an authority's certificate, and that of a coordinator on loopback."""
    folder = tmp_path_factory.mktemp("pki")
    authority = new_authority("127.0.0.1")
    write_certified(authority, folder / "ca.crt", folder / "ca.key")
    write_certified(certify_host(authority, "127.0.0.1"), folder / "door.crt", folder / "door.key")
    write_certified(new_authority("127.0.0.1"), folder / "other.crt", folder / "other.key")
    return folder


@pytest.fixture
def door(pki):
    with Door(pki / "door.crt", pki / "door.key") as door:
        yield door


def lyon_of(hospitals, pki, address="127.0.0.1:1"):
    folder = hospitals.root / "lyon"
    (folder / "ca.crt").write_bytes((pki / "ca.crt").read_bytes())
    set_terms(folder, "coordinator.example.org:443", address)
    line = openssh_line(ReleaseKey.generate().public)
    (folder / "release.pub").write_text(line)
    approve_at(folder, folder / "release.pub", HASH)
    return folder


@pytest.fixture
def folder(tmp_path, pki, door):
    hospitals = Hospitals(tmp_path / "sites", write_study(tmp_path))
    return lyon_of(hospitals, pki, f"127.0.0.1:{door.port}")


def levels_of(folder, **how):
    found = examine(read_site(folder), **how)
    return {one.subject: one.level for one in found.findings}, found


def fault_at(folder, what):
    """Return what is said of the one fault."""
    levels, found = levels_of(folder, check_coordinator=False)
    assert [name for name, level in levels.items() if level == "fault"] == [what]
    assert found.exit_code > 0
    return next(one.detail for one in found.findings if one.subject == what)


def test_a_site_that_is_ready_has_no_fault(folder):
    levels, found = levels_of(folder)
    assert "fault" not in levels.values()
    assert found.exit_code == 0
    assert levels["coordinator"] == levels["study Ward 7"] == levels["roster"] == "ok"
    assert found.cards["Ward 7"].method == "toy"
    said = {one.subject: one.detail for one in found.findings}
    assert said["study Ward 7"] == "40 patients can be read, no ledger yet"
    assert "Registration of this site's key is not checked" in said["coordinator"]
    assert said["approvals"].startswith("1 bundle, 1 release key, 1 study, 0 analysts")
    assert not (folder / "ledgers").exists()


def test_what_others_may_write_to_is_a_fault(folder):
    (folder / "approved").chmod(0o770)
    assert "chmod -R go-w" in fault_at(folder, "folder")


@pytest.mark.parametrize(("key", "what"), [("node", "keys"), ("identity", "keys"), ("vault", "vault")])
def test_keys_that_others_may_read_are_a_fault(folder, key, what):
    (folder / "keys" / key).chmod(0o644)
    assert "chmod 600" in fault_at(folder, what)


@pytest.mark.parametrize(
    ("key", "what", "remedy"),
    [("identity", "keys", "register the new card"), ("vault", "vault", "multicentre secret new {path}.")],
)
def test_a_lost_key_of_the_site_is_not_to_be_had_from_another_site(folder, key, what, remedy):
    path = folder / "keys" / key
    path.unlink()
    detail = fault_at(folder, what)
    assert "Only this site has this key. Restore it from a backup" in detail
    assert remedy.format(path=path) in detail
    assert "Ask the site" not in detail


def test_an_authority_that_is_not_there_is_a_fault(folder):
    (folder / "ca.crt").unlink()
    assert "ca.crt" in fault_at(folder, "authority")
    (folder / "ca.crt").write_text("nothing")
    assert "certificate" in fault_at(folder, "authority")


def test_a_missing_authority_is_told_once(folder):
    (folder / "ca.crt").unlink()
    levels, found = levels_of(folder)
    assert (levels["authority"], levels["coordinator"]) == ("fault", "note")
    assert sum("cannot be read" in one.detail for one in found.findings) == 1


def test_a_servers_certificate_is_no_authority(folder, pki):
    (folder / "ca.crt").write_bytes((pki / "door.crt").read_bytes())
    assert "must be the certificate of an authority" in fault_at(folder, "authority")
    (folder / "ca.crt").write_bytes((pki / "door.crt").read_bytes() + (pki / "ca.crt").read_bytes())
    levels, _ = levels_of(folder)
    assert (levels["authority"], levels["coordinator"]) == ("ok", "ok")


def test_approvals_that_cannot_be_read_are_a_fault_and_no_leave(folder):
    (folder / "approved" / "approvals.json").write_text("{")
    levels, _ = levels_of(folder, check_coordinator=False)
    assert levels["approvals"] == levels["modes"] == "fault"


def test_a_roster_with_other_keys_is_a_fault(folder):
    other = Hospitals(folder.parent.parent / "others", folder.parent.parent / "study.toml")
    (folder / "keys" / "identity").write_bytes((other.root / "lyon" / "keys" / "identity").read_bytes())
    assert "with the keys of this site" in fault_at(folder, "roster")


def test_data_that_cannot_be_read_are_a_fault_for_the_steward_to_see(folder):
    path = folder.parent.parent / "site-0" / "a.csv"
    path.write_text(path.read_text().replace("patient,x", "who,x"))
    assert str(path) in fault_at(folder, "study Ward 7")


def test_a_policy_that_refuses_the_study_is_a_fault(folder):
    set_terms(folder, "# epsilon = 2.0", "epsilon = 2.0 #")
    assert "adds no noise" in fault_at(folder, "study Ward 7")
    _, found = levels_of(folder, check_coordinator=False)
    assert found.exit_code == 4
    assert any("refuses this study" in warning for warning in found.cards["Ward 7"].warnings)


@pytest.mark.slow
def test_fewer_patients_than_the_policy_asks_for_are_a_fault(folder):
    set_terms(folder, "min_patients = 10", "min_patients = 41")
    said = fault_at(folder, "study Ward 7")
    assert "the data have fewer patients here than the 41" in said
    assert "40 patients" not in said
    assert levels_of(folder, check_coordinator=False)[1].exit_code == 4
    assert levels_of(folder, check_coordinator=False, check_data=False)[1].exit_code == 0


def test_a_view_that_few_patients_have_is_a_fault(folder):
    path = folder.parent.parent / "site-0" / "b.csv"
    head, *rows = path.read_text().splitlines(keepends=True)
    path.write_text(head + "".join(rows[:5]))
    assert "view b has fewer patients" in fault_at(folder, "study Ward 7")


def test_cohorts_cannot_be_compared_without_identifiers(folder):
    study = folder.parent.parent / "study.toml"
    bare = STUDY.replace('id_column = "patient"\nlabel_column = "group"\n', '[data.views]\na = ["x", "y"]\n')
    study.write_text(bare.replace('b = "site-0/b.csv"\n', "").replace('b = "site-1/b.csv"\n', ""))
    approve_at(folder, study)
    assert "min_difference" in fault_at(folder, "study Ward 7")


def test_masked_sums_without_a_roster_are_a_fault(folder):
    study = folder.parent.parent / "study.toml"
    study.write_text(STUDY + "\n[privacy]\nsecure_sum = true\n")
    approve_at(folder, study)
    revoke(folder / "approved", "roster")
    assert "a roster must be pinned" in fault_at(folder, "study Ward 7")


@pytest.mark.slow
def test_sites_that_the_pinned_roster_lacks_are_a_fault_where_sums_are_masked(folder):
    roster, study = folder.parent / "roster.toml", folder.parent.parent / "study.toml"
    Roster(tuple(card for card in Roster.read(roster).cards if card.name == "lyon")).write(roster)
    approve_at(folder, roster)
    study.write_text(STUDY + "\n[privacy]\nsecure_sum = false\n")
    approve_at(folder, study)
    levels, found = levels_of(folder, check_coordinator=False)
    assert (levels["study Ward 7"], found.exit_code) == ("note", 0)
    study.write_text(STUDY)
    approve_at(folder, study)
    said = fault_at(folder, "study Ward 7")
    assert "does not name oslo, porto" in said
    assert "Ask the coordinator" in said
    levels, found = levels_of(folder, check_coordinator=False, check_data=False)
    assert (levels["study Ward 7"], found.exit_code) == ("note", 0), "one study does not keep the others from running"


def test_a_study_that_hashes_people_needs_the_key_at_the_site(tmp_path, pki):
    text = SURVIVAL.replace("toy-survival", "fed-cox") + '\n[validation]\nfolds = 2\nperson_key = "identifier"\n'
    folder = lyon_of(Hospitals(tmp_path / "sites", write_survival(tmp_path, text)), pki)
    assert "pseudonym_key" in fault_at(folder, "study Breast cancer")
    key = PseudonymKey.generate()
    key.write(folder / "keys" / "study")
    set_terms(folder, "# [studies.hips]", '[studies."Breast cancer"]\npseudonym_key = "keys/study"\n#')
    _, found = levels_of(folder, check_coordinator=False)
    assert key.fingerprint("Breast cancer") in found.findings[-1].detail
    assert "hashed-folds" in found.cards["Breast cancer"].method


def test_ledgers_are_verified_and_never_mended_by_a_look(folder):
    ledger = read_site(folder).ledger_of("Ward 7")
    ledger.parent.mkdir()
    ledger.write_text('{"entry": 1, "to')
    levels, found = levels_of(folder, check_coordinator=False)
    assert levels["study Ward 7"] == "ok"
    assert "was cut off" in found.findings[-1].detail
    assert ledger.read_text() == '{"entry": 1, "to'
    ledger.write_text('{"entry": 1}\n')
    assert "entry 1" in fault_at(folder, "study Ward 7")


def test_cards_show_this_sites_own_minimum(folder):
    set_terms(folder, "min_patients = 10", "min_patients = 25")
    site = read_site(folder)
    assert "at least 25 patients" in str(card_at(site, read_approvals(site.approved).study("Ward 7")))


@pytest.mark.parametrize(
    ("ahead_s", "level"), [(0.0, "ok"), (-3.0, "ok"), (-20.0, "fault"), (20.0, "fault"), (400.0, "fault")]
)
def test_clocks_that_differ_are_a_fault(folder, pki, ahead_s, level):
    with Door(pki / "door.crt", pki / "door.key", ahead_s=ahead_s) as door:
        site = read_site(folder)
        set_terms(folder, site.address, f"127.0.0.1:{door.port}")
        levels, _ = levels_of(folder, check_data=False)
    assert levels["coordinator"] == level


def test_the_skew_is_that_of_this_clock(pki):
    with Door(pki / "door.crt", pki / "door.key", ahead_s=-100.0) as door:
        reached = check_connection(f"127.0.0.1:{door.port}", pki / "ca.crt")
    assert reached.skew_s == pytest.approx(100.0, abs=2.0)
    assert reached.days_left > 300
    with Door(pki / "door.crt", pki / "door.key", tells=False) as door:
        assert check_connection(f"127.0.0.1:{door.port}", pki / "ca.crt").skew_s is None


def test_a_certificate_of_another_authority_is_refused(pki, door):
    with pytest.raises(ConfigurationError, match="certificate must be valid"):
        check_connection(f"127.0.0.1:{door.port}", pki / "other.crt")


def test_a_certificate_for_another_address_is_refused(pki, door):
    with pytest.raises(ConfigurationError, match="must be valid"):
        check_connection(
            f"127.1:{door.port}", pki / "ca.crt"
        )  # the same machine under a name that the certificate lacks


def test_what_does_not_speak_tls_is_refused(pki):
    with Door() as door, pytest.raises(ConfigurationError, match="TLS"):
        check_connection(f"127.0.0.1:{door.port}", pki / "ca.crt")


def test_nobody_at_the_address_is_said_so(pki, door):
    port = door.port
    door.__exit__()
    with pytest.raises(ConfigurationError, match="cannot be reached"):
        check_connection(f"127.0.0.1:{port}", pki / "ca.crt")


def test_the_proxy_of_the_environment_is_taken_with_its_credentials(pki, door, monkeypatch):
    with Proxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:se%40cret@127.0.0.1:{proxy.port}")
        reached = check_connection(f"127.0.0.1:{door.port}", pki / "ca.crt")
    assert reached.proxy == f"127.0.0.1:{proxy.port}"
    (head,) = proxy.heard
    assert head.startswith(f"CONNECT 127.0.0.1:{door.port} ")
    assert "Basic bWU6c2VAY3JldA==" in head


def test_a_proxy_that_refuses_is_named_and_its_password_is_not(pki, door, monkeypatch):
    with Proxy(refuses=True) as proxy:
        monkeypatch.setenv("https_proxy", f"http://me:secret@127.0.0.1:{proxy.port}")
        with pytest.raises(ConfigurationError, match=f"the proxy 127.0.0.1:{proxy.port} .* answers 407") as raised:
            check_connection(f"127.0.0.1:{door.port}", pki / "ca.crt")
    assert "secret" not in str(raised.value)
    assert "HTTPS_PROXY=http://user:password@host:port" in raised.value.hint


def test_addresses_that_need_no_proxy_have_none(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example.org:3128")
    assert proxy_for("fl.example.org", 443).hostname == "proxy.example.org"
    monkeypatch.setenv("NO_PROXY", "example.org")
    assert proxy_for("fl.example.org", 443) is None
    monkeypatch.setenv("NO_PROXY", "")
    for named in ("https://proxy:1", "http://proxy", "socks5://proxy:1", "http://:1"):
        monkeypatch.setenv("HTTPS_PROXY", named)
        with pytest.raises(ConfigurationError, match="HTTPS_PROXY"):
            proxy_for("fl.example.org", 443)


@pytest.mark.parametrize(
    ("standard", "fast", "wanted", "mode", "against"),
    [
        ("", "", "auto", "fast", ""),
        ("", "", "standard", "standard", ""),
        ("", "", "fast", "fast", ""),
        ("", "flwr changed", "auto", "standard", "flwr changed"),
        ("", "flwr changed", "fast", "standard", "flwr changed"),
        ("", "flwr changed", "standard", "standard", ""),
        ("no key", "", "auto", "fast", ""),
    ],
)
def test_the_fast_mode_falls_back_and_says_why(standard, fast, wanted, mode, against):
    assert AvailableModes(standard, fast).choose(wanted) == (mode, against)


@pytest.mark.parametrize(("fast", "wanted"), [("", "standard"), ("flwr changed", "auto"), ("flwr changed", "fast")])
def test_without_any_way_the_site_does_not_run(fast, wanted):
    with pytest.raises(ConfigurationError, match="no key"):
        AvailableModes("no key", fast).choose(wanted)


def test_modes_need_what_was_approved(folder):
    pytest.importorskip("flwr")
    approvals = read_approvals(folder / "approved")
    assert find_modes(approvals) == AvailableModes("", "")
    approvals = revoke(folder / "approved", HASH)
    assert find_modes(approvals) == AvailableModes("", "no bundle is approved")
    approvals = revoke(folder / "approved", next(iter(approvals.release_keys)))
    assert find_modes(approvals).standard == "no release key is approved"


def test_the_supernode_checks_signatures_always_and_installs_nothing(folder, monkeypatch):
    pytest.importorskip("flwr")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    monkeypatch.setenv("FLWR_SUPERGRID_API_URL", "http://evil.example.org")
    monkeypatch.setenv("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "0")
    site = read_site(folder)
    keys = read_approvals(site.approved).release_keys
    node, executor = (service.command for service in services_of(site, keys))
    told = dict(zip(node.arguments[1::2], node.arguments[2::2], strict=True))
    assert told["--superlink"] == site.address
    assert told["--root-certificates"] == str(site.ca)
    assert told["--host"] == "127.0.0.1"
    assert told["--node-config"] == f'requests="{socket_of(site)}"'
    trusted = (folder / "running" / "trusted.yaml").read_text()
    assert told["--trusted-entities"] == str(folder / "running" / "trusted.yaml")
    assert next(iter(keys.values())) in trusted
    assert not {"--insecure", "--allow-runtime-dependency-installation"} & set(node.arguments)
    secret = folder / "running" / "superexec"
    assert told["--superexec-auth-secret-file"] == executor.arguments[-1] == str(secret)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    for command in (node, executor):
        environment = command.environment()
        assert environment["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
        assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
        assert "FLWR_SUPERGRID_API_URL" not in environment
        assert environment["HTTPS_PROXY"] == "http://proxy.example.org:3128"
        assert "127.0.0.1" in environment["NO_PROXY"]


def test_no_supernode_starts_without_a_trusted_key(folder):
    """Flower takes an empty list of trusted keys for leave to run whatever comes."""
    with pytest.raises(ConfigurationError, match="would otherwise run any bundle"):
        services_of(read_site(folder), {})
    assert not (folder / "running" / "trusted.yaml").exists()


@pytest.mark.parametrize("known", [True, False])
def test_one_process_at_a_time_serves_a_folder(folder, known):
    """The second one is told whom to stop, before it looks at anything."""
    running = folder / "running"
    running.mkdir(mode=0o700)
    if known:
        (running / "pid").write_text("4711\n")
    with held(running / "lock"), pytest.raises(ConfigurationError, match="already up") as raised:
        site_process.serve(read_site(folder), "standard", report=print, stop=None, ready=pytest.fail)
    assert ("(process 4711)" in str(raised.value)) == ("kill 4711" in str(raised.value)) == known


def test_a_site_that_looks_before_it_serves_is_alone_and_known(folder):
    def ready():
        assert (folder / "running" / "pid").read_text() == f"{os.getpid()}\n"
        with pytest.raises(ConfigurationError, match=f"process {os.getpid()}"):
            site_process.serve(read_site(folder), "standard", report=print, stop=None)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        site_process.serve(read_site(folder), "standard", report=print, stop=None, ready=ready)
    assert not (folder / "running" / "pid").exists()
    assert not (folder / "state").exists()


def test_approving_needs_this_sites_card(folder):
    site = read_site(folder)
    assert approve(site.approved, recognise(HASH), card_of(site)).apps
