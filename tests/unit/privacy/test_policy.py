"""A policy file is refused with the file, the key, and the nearest known key."""

import pytest

from multicentre.federation.errors import ConfigurationError
from multicentre.privacy.policy import Policy


def test_a_policy_is_read(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('min_patients = 20\nmethods = ["fed-mv-ppca"]\nsecure_sums_only = true\n')
    assert Policy.read(path) == Policy(min_patients=20, methods=("fed-mv-ppca",), secure_sums_only=True)
    path.write_text("")
    assert Policy.read(str(path)) == Policy()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("min_patient = 20", "Did you mean 'min_patients'"),
        ("secure_sum_only = true", "Did you mean 'secure_sums_only'"),
        ("zzz = 1", "Known keys: min_patients"),
        ("[min_patients]\nx = 1", "min_patients: a whole number"),
        ("min_patients = -1", "min_patients: a whole number"),
        ("min_patients = 20.0", "min_patients: a whole number"),
        ("min_patients = true", "min_patients: a whole number"),
        ('min_patients = "20"', "min_patients: a whole number"),
        ("min_difference = nan", "min_difference: a whole number"),
        ("secure_sums_only = 1", "secure_sums_only: true or false"),
        ('methods = "fed-mv-ppca"', "methods: a tuple of names"),
        ("methods = 3", "methods: a tuple of names"),
        ("columns = [1]", "columns: a tuple of names"),
        ("min_patients = 1\nmin_patients = 2", "not valid TOML"),
        ("min_patients =", "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, content, said):
    path = tmp_path / "policy.toml"
    path.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        Policy.read(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_what_is_no_text_or_no_file_is_refused(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        Policy.read(path)
    for missing in (tmp_path, tmp_path / "none.toml"):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            Policy.read(missing)


def test_what_a_policy_has_to_remember_lies_beside_its_file(tmp_path):
    path = tmp_path / "lyon.toml"
    path.write_text("epsilon = 1.0\nmin_difference = 5\n")
    policy = Policy.read(path)
    assert policy.account == str(tmp_path / "lyon.account.jsonl")
    assert policy.cohorts == str(tmp_path / "lyon.cohorts")
    path.write_text('epsilon = 1.0\nmin_difference = 5\naccount = "kept/a.jsonl"\ncohorts = "kept/c"\n')
    policy = Policy.read(path)
    assert (policy.account, policy.cohorts) == (str(tmp_path / "kept/a.jsonl"), str(tmp_path / "kept/c"))
    path.write_text("min_patients = 5\n")
    assert (Policy.read(path).account, Policy.read(path).cohorts) == (None, None)
