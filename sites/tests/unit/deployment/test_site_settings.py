"""What a site's folder holds, and what of its settings is refused."""

import stat

import pytest

from multicentre.errors import ConfigurationError
from multicentre.privacy.policy import Policy
from multicentre.privacy.site_cards import read_card
from multicentre_sites.deployment.certificates import read_public_key, write_node_key
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.site_folder import plain_name, read_site
from multicentre_sites.deployment.site_service import card_of
from support.real_sites import set_terms


@pytest.fixture
def folder(tmp_path):
    return make_site("lyon", tmp_path / "lyon", "fl.example.org:8443").folder


def test_what_is_made_can_be_read_and_is_for_its_owner_alone(folder):
    site = read_site(folder)
    assert (site.name, site.address, site.ca) == ("lyon", "fl.example.org:8443", folder / "ca.crt")
    assert read_card(folder / "lyon.site.toml") == card_of(site)
    assert len(site.vault_key.reveal()) == 32
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *(folder / "keys").iterdir())}
    assert modes == {"lyon": 0o700, "node": 0o600, "identity": 0o600, "vault": 0o600}


def test_the_defaults_are_careful(folder):
    policy = read_site(folder).policy_for("any")
    assert (policy.min_patients, policy.min_difference, policy.min_sites_in_sum) == (10, 5, 3)
    assert not policy.exact_times
    assert policy.relations == "summed"


def test_keys_are_never_overwritten(folder):
    before = {path: path.read_bytes() for path in (folder / "keys").iterdir()}
    with pytest.raises(ConfigurationError, match="never overwritten"):
        make_site("lyon", folder)
    (folder / "site.toml").unlink()
    with pytest.raises(ConfigurationError, match="never overwritten"):
        make_site("lyon", folder)
    with pytest.raises(ConfigurationError, match="never overwritten"):
        write_node_key(folder / "keys" / "node")
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["", "a/b", "con", "a."])
def test_a_name_that_cannot_be_a_sites_is_refused(tmp_path, name):
    with pytest.raises(ConfigurationError):
        make_site(name, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_folder_without_settings_says_how_to_make_one(tmp_path):
    with pytest.raises(ConfigurationError, match="multicentre site keygen"):
        read_site(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[coordinator]", "[cordinator]", "Did you mean 'coordinator'"),
        ('ca = "ca.crt"', 'cca = "ca.crt"', "Did you mean 'ca'"),
        ('vault = "keys/vault"', 'valt = "keys/vault"', "Did you mean 'vault'"),
        ("min_patients", "min_patient", "Did you mean 'min_patients'"),
        ("min_patients = 10", "min_patients = -1", "policy, min_patients"),
        ('address = "fl.example.org:8443"', "", "coordinator.address: the key must be given"),
        ('address = "fl.example.org:8443"', 'address = "http://fl.example.org:80"', "https"),
        ('address = "fl.example.org:8443"', 'address = "fl.example.org:99999"', "host:port"),
        ('name = "lyon"', "name = 7", "a text in quotes"),
        ('name = "lyon"', 'name = "a/b"', "printable"),
        ("# [studies.hips]", "[studies.hips]\nfile = 1\n#", "'file' is unknown"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(folder, old, new, said):
    set_terms(folder, old, new)
    with pytest.raises(ConfigurationError) as raised:
        read_site(folder).policy_for("any")
    assert said in str(raised.value)
    assert "site.toml" in raised.value.where


def test_all_faults_of_the_settings_are_named_at_once(folder):
    set_terms(folder, 'name = "lyon"', "name = 7")
    set_terms(folder, 'ca = "ca.crt"', 'cca = "ca.crt"')
    set_terms(folder, 'address = "fl.example.org:8443"', 'address = "http://fl.example.org:80"')
    with pytest.raises(ConfigurationError) as raised:
        read_site(folder)
    message = raised.value.with_notes
    for part in ("Did you mean 'ca'", "site.name: the value must be a text", "coordinator.address: the value must be"):
        assert message.count(part) == 1


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("fl.example.org", "fl.example.org:443"),
        ("https://fl.example.org/", "fl.example.org:443"),
        ("[2001:db8::1]:8443", "[2001:db8::1]:8443"),
        ("[2001:db8::1]", "[2001:db8::1]:443"),
    ],
)
def test_addresses_are_read_as_people_write_them(folder, written, read):
    set_terms(folder, "fl.example.org:8443", written)
    assert read_site(folder).address == read


def test_policies_and_their_accounts_belong_to_the_site(folder):
    set_terms(folder, "min_patients = 10", "epsilon = 2.0\nmin_patients = 10")
    set_terms(
        folder,
        "# [studies.hips]",
        '[studies.hips]\npolicy = "hips.toml"\n[studies.knees]\n[studies.knees.policy]\nepsilon = 1.0\n#',
    )
    (folder / "hips.toml").write_text("min_patients = 50\nepsilon = 3.0\n")
    site = read_site(folder)
    assert site.policy_for("others").account == str(folder / "site.account.jsonl")
    assert (site.policy_for("hips").min_patients, site.policy_for("hips").account) == (
        50,
        str(folder / "hips.account.jsonl"),
    )
    assert site.policy_for("knees").account == str(folder / "site.knees.account.jsonl")
    (folder / "hips.toml").unlink()
    with pytest.raises(ConfigurationError, match="policy cannot be read"):
        site.policy_for("hips")


def test_settings_without_keys_have_defaults_in_the_folder(folder):
    text = '[site]\nname = "lyon"\n[coordinator]\naddress = "a:1"\nca = "ca.crt"\n'
    (folder / "policy.toml").write_text("min_patients = 10\n")
    (folder / "site.toml").write_text(f'policy = "policy.toml"\n{text}')
    site = read_site(folder)
    assert site.keys.node == folder / "keys" / "node"
    assert site.policy_for("any") == Policy().remembering(folder / "policy.toml")


def test_names_of_studies_become_names_of_files():
    names = ["hips", "Hips", "Ward 7", "ward-7", "ward 7", "a/b", "../a", "", "é", "x" * 200]
    files = [plain_name(name) for name in names]
    assert len({file.lower() for file in files}) == len(names)
    assert all(set(file) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.") and len(file) < 80 for file in files)
    assert not any(file.startswith(".") for file in files)


def test_a_node_key_that_others_may_read_is_refused(folder):
    key = folder / "keys" / "node"
    assert read_public_key(key).startswith("ecdsa-sha2-nistp384 ")
    key.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_public_key(key)
    key.chmod(0o600)
    key.write_text("not a key")
    with pytest.raises(ConfigurationError, match="P-384"):
        read_public_key(key)
    key.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_public_key(key)
