"""The summary of a budget states what was promised, what was spent and what is left, for each account of a policy."""

import math

import pytest

from multicentre.errors import ConfigurationError
from multicentre.privacy.accountant import Spent
from multicentre.privacy.budget import Account
from multicentre.privacy.budget_summary import accounts_of, summarise_budget
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.privacy.policy import Policy

DELTA = 1e-6
FACTS = {"study": "pilot", "session": "0.1", "call": 1, "method": "fed-cox", "step": "sums"}


@pytest.fixture
def policy(tmp_path):
    return Policy(epsilon=2.0, delta=DELTA, account=str(tmp_path / "lyon.account.jsonl"))


def spend(path, rho=0.02):
    Account(2.0, DELTA, path).charge(Spent(rho), FACTS)
    return path


@pytest.mark.parametrize("policy", [Policy(), Policy(epsilon=1.0), Policy(account="a.jsonl")], indirect=False)
def test_a_policy_without_a_budget_has_no_accounts(policy, tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        accounts_of(policy, tmp_path / "policy.toml")
    assert caught.value.where == str(tmp_path / "policy.toml")
    assert caught.value.what == "the policy must have a privacy budget; it has none"
    assert caught.value.hint == "Set epsilon and delta in it, or name another policy."


def test_a_policy_has_its_account_even_before_anything_is_spent(policy, tmp_path):
    path = tmp_path / "lyon.account.jsonl"
    assert accounts_of(policy, tmp_path) == [path]
    spend(path)
    spend(tmp_path / "lyon.account.oslo.jsonl")
    assert accounts_of(policy, tmp_path) == [path]


def test_the_sites_of_a_simulation_have_an_account_each(policy, tmp_path):
    """Files next to the accounts, and folders, are none."""
    paths = [spend(tmp_path / f"lyon.account.{site}.jsonl") for site in ("oslo", "bern")]
    (tmp_path / "lyon.account.folder.jsonl").mkdir()
    spend(tmp_path / "other.jsonl")
    assert accounts_of(policy, tmp_path) == sorted(paths)


def test_another_account_may_be_named_if_it_exists(policy, tmp_path):
    other = spend(tmp_path / "other.jsonl")
    assert accounts_of(policy, tmp_path, other) == [other]
    with pytest.raises(ConfigurationError, match="the account must exist") as caught:
        accounts_of(policy, tmp_path, tmp_path / "absent.jsonl")
    assert caught.value.where == str(tmp_path / "absent.jsonl")
    assert caught.value.hint == "Look in the policy's folder."


def test_a_budget_of_which_nothing_is_spent_is_whole(policy, tmp_path):
    summary = summarise_budget(policy, tmp_path / "lyon.account.jsonl")
    assert summary["left_epsilon"] == pytest.approx(2.0)
    assert {name: summary[name] for name in ("epsilon", "delta", "spent_epsilon", "spent_rho", "entries")} == {
        "epsilon": 2.0,
        "delta": DELTA,
        "spent_epsilon": 0.0,
        "spent_rho": 0.0,
        "entries": [],
    }


def test_spending_and_remainder_add_up_to_the_budget(policy, tmp_path):
    path = spend(spend(tmp_path / "lyon.account.jsonl", 0.02), 0.01)
    summary = summarise_budget(policy, path)
    assert summary["promise"] == str(Account(2.0, DELTA).limit)
    assert summary["account"] == str(path)
    assert summary["spent_rho"] == pytest.approx(0.03)
    assert summary["spent_epsilon"] == pytest.approx(Spent(0.03).epsilon(DELTA))
    assert math.isclose(rho_of_epsilon(summary["left_epsilon"], DELTA) + 0.03, rho_of_epsilon(2.0, DELTA), rel_tol=1e-6)
    first, second = summary["entries"]
    assert list(first) == ["time", "study", "method", "step", "rho"]
    assert (first["study"], first["method"], first["step"]) == ("pilot", "fed-cox", "sums")
    assert (first["rho"], second["rho"]) == (0.02, 0.01)
    assert first["time"] <= second["time"]


def test_only_spending_is_listed(policy, tmp_path, monkeypatch):
    entries = [
        {"entry": 1, "event": "spend", "rho": 0.5},
        {"entry": 2, "event": "repaired", "rho": 7.0},
    ]
    monkeypatch.setattr(Account, "entries", lambda self: entries)
    summary = summarise_budget(policy, tmp_path / "a.jsonl")
    assert summary["entries"] == [{"time": None, "study": None, "method": None, "step": None, "rho": 0.5}]
