"""A policy file is refused with the file, the key, and the nearest known key."""

import dataclasses
from pathlib import Path

import pytest

from multicentre.errors import ConfigurationError
from multicentre.privacy.policy import (
    RELATIONS,
    Policy,
    least_in_total,
    loosest_of,
    simulated_policy,
    unknown_key,
)


def test_a_policy_is_read(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('min_patients = 20\nmethods = ["fed-mv-ppca"]\nsecure_sums_only = true\n')
    assert Policy.read(path) == Policy(min_patients=20, methods=("fed-mv-ppca",), secure_sums_only=True)
    path.write_text("")
    with pytest.raises(ConfigurationError, match="must state at least one term"):
        Policy.read(str(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("min_patient = 20", "Did you mean 'min_patients'"),
        ("secure_sum_only = true", "Did you mean 'secure_sums_only'"),
        ("zzz = 1", "Valid keys: min_patients"),
        ("[min_patients]\nx = 1", "min_patients must be an integer"),
        ("min_patients = -1", "min_patients must be an integer"),
        ("min_patients = 20.0", "min_patients must be an integer"),
        ("min_patients = true", "min_patients must be an integer"),
        ('min_patients = "20"', "min_patients must be an integer"),
        ("min_difference = nan", "min_difference must be an integer"),
        ("secure_sums_only = 1", "secure_sums_only must be true or false"),
        ('methods = "fed-mv-ppca"', "methods: methods must be a list of names"),
        ("methods = 3", "methods: methods must be a list of names"),
        ("columns = [1]", "columns: columns must be a list of names"),
        ("min_patients = 1\nmin_patients = 2", "the policy must be valid TOML"),
        ("min_patients =", "the policy must be valid TOML"),
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
    with pytest.raises(ConfigurationError, match="the policy must be UTF-8"):
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
    assert Policy.read(path).remembering(path).cohorts == str(tmp_path / "lyon.cohorts")
    path.write_text("min_difference = 0\n")
    assert Policy.read(path).remembering(path).cohorts is None


def test_the_default_policy_is_the_one_of_the_page():
    assert dataclasses.asdict(Policy()) == {
        "min_patients": 10,
        "min_patients_in_total": 0,
        "min_patients_in_share": None,
        "min_difference": None,
        "max_parameters_per_patient": 1 / 3,
        "methods": None,
        "columns": None,
        "secure_sums_only": False,
        "exact_times": False,
        "relations": "summed",
        "min_sites_in_sum": 2,
        "colluding_sites": 0,
        "epsilon": None,
        "delta": 1e-5,
        "account": None,
        "cohorts": None,
    }


def test_a_share_of_parameters_is_a_number_and_0_switches_it_off():
    assert Policy(max_parameters_per_patient=0).max_parameters_per_patient == 0
    assert Policy.from_mapping({"max_parameters_per_patient": 0.2}).max_parameters_per_patient == 0.2
    for value in (-0.1, float("inf"), float("nan"), True, "a third", None):
        with pytest.raises(ConfigurationError, match=r"max_parameters_per_patient must be a number of at least 0; got"):
            Policy(max_parameters_per_patient=value)


@pytest.mark.parametrize(
    "name", ["min_patients", "min_patients_in_total", "min_difference", "min_sites_in_sum", "colluding_sites"]
)
def test_a_count_of_a_policy_is_a_whole_number_from_0_on(name):
    assert getattr(Policy(**{name: 0}), name) == 0
    for value in (-1, 1.0, True, "1", *([] if name == "min_difference" else [None])):
        with pytest.raises(ConfigurationError) as caught:
            Policy(**{name: value})
        error = caught.value
        assert (error.where, error.what) == (
            f"policy, {name}",
            f"{name} must be an integer of at least 0; got {value!r}",
        )
        assert error.hint == f"Example: {name} = 10."


@pytest.mark.parametrize("epsilon", [1e-6, 1, 1.0, 1e6])
def test_an_epsilon_between_a_millionth_and_a_million_is_a_budget(epsilon):
    assert Policy(epsilon=epsilon).epsilon == epsilon


@pytest.mark.parametrize("epsilon", [0, 0.99e-6, -1.0, 1.01e6, float("inf"), float("nan"), True, "1", [1.0]])
def test_any_other_epsilon_is_refused(epsilon):
    with pytest.raises(ConfigurationError, match=r"^policy, epsilon: epsilon must be a number from 1e-06 to 1e\+06"):
        Policy(epsilon=epsilon)


@pytest.mark.parametrize("delta", [0, 1, 0.0, 1.0, -1e-5, 2.0, float("nan"), True, "1e-5", None])
def test_a_delta_is_between_0_and_1(delta):
    with pytest.raises(ConfigurationError, match=r"^policy, delta: delta must be a number between 0 and 1.*1e-5"):
        Policy(delta=delta)


@pytest.mark.parametrize("name", ["secure_sums_only", "exact_times"])
@pytest.mark.parametrize("value", [1, 0, "true", None])
def test_a_switch_is_true_or_false_and_nothing_else(name, value):
    with pytest.raises(
        ConfigurationError, match=rf"^policy, {name}: {name} must be true or false; .*Example: {name} = true"
    ):
        Policy(**{name: value})
    assert getattr(Policy(**{name: True}), name) is True


@pytest.mark.parametrize("name", ["account", "cohorts"])
@pytest.mark.parametrize("value", ["", 3, b"a", True])
def test_a_place_is_a_name(name, value):
    with pytest.raises(ConfigurationError, match=rf"^policy, {name}: {name} must be the path of a file or folder"):
        Policy(**{name: value})


@pytest.mark.parametrize("name", ["methods", "columns"])
@pytest.mark.parametrize("value", ["a", ["a", 1], ("a", 1), {"a"}])
def test_a_list_of_a_policy_holds_names(name, value):
    with pytest.raises(ConfigurationError, match=rf"^policy, {name}: {name} must be a list of names; got"):
        Policy(**{name: value})


@pytest.mark.parametrize("name", ["methods", "columns"])
def test_a_list_of_a_policy_is_kept_as_a_tuple(name):
    assert getattr(Policy(**{name: ()}), name) == ()
    listed = Policy(**{name: ["a", "b"]})
    assert listed == Policy(**{name: ("a", "b")})
    assert hash(listed) == hash(Policy(**{name: ("a", "b")}))


def test_each_level_of_relations_allows_those_before_it_and_none_after():
    assert RELATIONS == ("none", "summed", "listed", "dense")
    for held, level in enumerate(RELATIONS):
        lacking = [Policy(relations=level).lacks(f"relations={asked}") for asked in RELATIONS]
        assert lacking == ["" if i <= held else f'relations = "{asked}"' for i, asked in enumerate(RELATIONS)]
    with pytest.raises(ConfigurationError, match=r"^policy, relations: relations must be one of none, summed, listed"):
        Policy(relations="some")


def test_a_switch_is_lacking_unless_it_is_on():
    assert Policy(exact_times=True).lacks("exact_times") == ""
    assert Policy(secure_sums_only=True).lacks("exact_times") == "exact_times = true"


def test_a_policy_from_a_table_takes_lists_as_tuples():
    assert Policy.from_mapping({"methods": ["a", "b"], "columns": []}) == Policy(methods=("a", "b"), columns=())
    with pytest.raises(ConfigurationError, match=r"^policy: the key 'epsilom' is unknown"):
        Policy.from_mapping({"epsilom": 1.0})


def test_an_unknown_key_names_the_nearest_one_or_all():
    assert str(unknown_key("colour", ["color", "size"], "plot")).startswith(
        "plot: the key 'colour' is unknown. Did you mean 'color'?"
    )
    assert "Valid keys: color, size." in str(unknown_key("zzz", ["color", "size"], "plot"))


def test_sites_that_share_a_policy_have_an_account_and_a_memory_each():
    shared = Policy(epsilon=1.0, account="/data/study.account.jsonl", cohorts="/data/study.cohorts", min_difference=5)
    lyon, nice = shared.of_site("lyon"), shared.of_site("nice")
    assert (lyon.account, lyon.cohorts) == ("/data/study.account.lyon.jsonl", "/data/study.lyon.cohorts")
    assert nice.account != lyon.account
    assert nice.cohorts != lyon.cohorts
    assert dataclasses.replace(lyon, account=shared.account, cohorts=shared.cohorts) == shared
    assert Policy().of_site("lyon") == Policy()


def test_an_absolute_place_stays_where_it_is(tmp_path):
    policy = Policy(account="/data/a.jsonl", cohorts="/data/c").relative_to(tmp_path / "lyon.toml")
    assert (policy.account, policy.cohorts) == ("/data/a.jsonl", "/data/c")


def test_places_are_absolute_even_where_the_policy_file_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    policy = Policy(epsilon=1.0).relative_to(Path("lyon.toml"))
    assert policy.account == str(tmp_path / "lyon.account.jsonl")
    assert policy.cohorts is None


def test_the_loosest_of_several_policies_permits_what_one_of_them_permits():
    loosest = loosest_of(
        [
            Policy(min_patients=20, min_patients_in_total=10, min_difference=7, relations="none"),
            Policy(min_patients=5, min_difference=9, exact_times=True),
            Policy(min_patients=10, min_difference=8, relations="listed"),
        ]
    )
    assert loosest == Policy(
        min_patients=5, min_patients_in_total=10, min_difference=7, exact_times=True, relations="listed"
    )
    assert loosest_of([]) == Policy(min_difference=5)
    assert loosest_of([Policy(min_difference=9), Policy()]).min_difference == 5


def test_the_largest_minimum_of_a_total_applies():
    assert least_in_total([Policy(min_patients_in_total=3), Policy(), Policy(min_patients_in_total=7)]) == 7
    assert least_in_total([]) == 0


def test_several_unknown_keys_are_named_together():
    error = unknown_key(["zzz", "yyy"], ["min_patients", "epsilon"], "policy")
    assert (error.what, error.where) == ("the keys 'zzz', 'yyy' are unknown", "policy")
    assert error.hint == "Valid keys: min_patients, epsilon."
    one = unknown_key(["min_patient"], ["min_patients", "epsilon"], "policy")
    assert one.what == unknown_key("min_patient", ["min_patients"], "policy").what == "the key 'min_patient' is unknown"
    assert "'min_patients'" in one.hint
    assert "epsilon" not in one.hint


@pytest.mark.parametrize(
    ("n_sites", "in_sum"),
    [(1, 2), (2, 2), (3, 3), (9, 3)],
)
def test_simulated_sites_have_the_policy_of_a_new_site_as_far_as_their_number_permits(n_sites, in_sum):
    assert simulated_policy(n_sites) == Policy(min_sites_in_sum=in_sum)


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ({"min_sites_in_sum": 3, "min_patients_in_total": 10}, True),
        ({"min_sites_in_sum": 2, "min_patients_in_total": 10}, False),
        ({"min_sites_in_sum": 3, "min_patients_in_total": 9}, False),
        ({"min_sites_in_sum": 3, "min_patients_in_total": 10, "min_patients_in_share": 11}, False),
        ({"min_sites_in_sum": 3, "min_patients_in_total": 10, "min_patients_in_share": 10}, True),
        ({"min_sites_in_sum": 3, "min_patients_in_total": 10, "min_patients_in_share": 0}, False),
        ({"min_sites_in_sum": 3, "min_patients_in_total": 10, "min_patients_in_share": True}, False),
    ],
)
def test_a_smaller_share_needs_a_total_that_hides_it(terms, fits):
    if fits:
        policy = Policy(**{"min_patients_in_share": 1, **terms})
        assert policy.least_in_share == policy.min_patients_in_share
    else:
        with pytest.raises(ConfigurationError, match="min_patients_in_share must") as caught:
            Policy(**{"min_patients_in_share": 1, **terms})
        assert caught.value.where == "policy, min_patients_in_share"
    assert Policy().least_in_share == 10
