"""``multicentre budget`` tells what was promised, spent and left."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.privacy.accountant import Spent
from multicentre.privacy.budget import Account
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.privacy.guarantee import rounded_down
from multicentre.privacy.policy import Policy
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.site_folder import read_site

FACTS = {"study": "pilot", "session": "0.1", "call": 1, "method": "m", "step": "sums"}


def call(*arguments):
    return CliRunner().invoke(app, ["budget", *map(str, arguments)])


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "lyon.toml"
    path.write_text("epsilon = 2.0\ndelta = 1e-6\n")
    return path


def test_a_fresh_budget_is_whole(policy):
    (facts,) = json.loads(call(policy, "--json").stdout).values()
    assert facts["left_epsilon"] == pytest.approx(2.0)
    assert facts["spent_epsilon"] == 0
    assert facts["account"] == str(policy.with_name("lyon.account.jsonl"))
    assert "one patient" in facts["promise"]


def test_what_was_spent_is_told_and_what_is_left_fits(policy):
    account = Account(2.0, 1e-6, policy.with_name("lyon.account.jsonl"))
    account.charge(Spent(0.02), FACTS)
    (facts,) = json.loads(call(policy, "--json").stdout).values()
    assert facts["spent_rho"] == 0.02
    assert rho_of_epsilon(facts["left_epsilon"], 1e-6) + 0.02 == pytest.approx(rho_of_epsilon(2.0, 1e-6))
    page = call(policy).stdout
    assert "pilot" in page
    assert "sums" in page
    assert f"epsilon {rounded_down(facts['left_epsilon'])} still fits" in page


def test_a_policy_without_a_budget_is_an_error(tmp_path):
    (tmp_path / "p.toml").write_text("min_patients = 5\n")
    result = call(tmp_path / "p.toml")
    assert result.exit_code == 3
    assert "must have a privacy budget" in result.stderr


@pytest.fixture
def settings(tmp_path):
    make_site("lyon", tmp_path / "lyon")
    return tmp_path / "lyon" / "site.toml"


def test_the_budget_of_a_real_site_is_that_of_its_settings(settings):
    settings.write_text(
        settings.read_text().replace("[policy]\n", "[policy]\nepsilon = 2.0\ndelta = 1e-6\n")
        + '\n[studies."Ward 7"]\npolicy = { epsilon = 0.5, delta = 1e-7 }\n[studies.hips.policy]\nmin_patients = 20\n'
    )
    site = read_site(settings.parent)
    Account(2.0, 1e-6, Path(site.policy_for("").account)).charge(Spent(0.02), FACTS)
    page = call(settings).stdout
    promises = [str(Account(*terms).limit) for terms in ((2.0, 1e-6), (0.5, 1e-7))]
    assert f"lyon, [policy], site.account.jsonl: {promises[0]}" in page
    assert f"lyon, study Ward 7, {Path(site.policy_for('Ward 7').account).name}: {promises[1]}" in page
    assert "lyon, study hips: the policy sets no privacy budget" in page
    facts = json.loads(call(settings, "--json").stdout)
    assert {(one["epsilon"], one["delta"], one["spent_rho"]) for one in facts.values()} == {
        (2.0, 1e-6, 0.02),
        (0.5, 1e-7, 0.0),
    }
    assert facts["site.account.jsonl"]["account"] == site.policy_for("").account


def test_settings_without_a_budget_are_an_error(settings):
    result = call(settings)
    assert result.exit_code == 3
    assert f"{settings}: the policy must have a privacy budget" in result.stderr


def test_a_policy_that_is_named_like_the_settings_is_a_policy(tmp_path):
    (tmp_path / "site.toml").write_text("epsilon = 2.0\ndelta = 1e-6\n")
    assert list(json.loads(call(tmp_path / "site.toml", "--json").stdout)) == ["site.account.jsonl"]


def test_one_policy_for_all_sites_keeps_an_account_for_each(policy):
    shared = Policy.read(policy)
    assert shared.of_site("lyon").account != shared.of_site("nice").account
    assert Policy(epsilon=1.0).of_site("lyon").account is None


def test_the_accounts_of_all_sites_that_share_a_policy_are_shown(policy):
    for site, rho in (("lyon", 0.01), ("nice", 0.03)):
        own = Policy.read(policy).of_site(site)
        Account(2.0, 1e-6, Path(own.account)).charge(Spent(rho), FACTS)
    facts = json.loads(call(policy, "--json").stdout)
    assert {name: told["spent_rho"] for name, told in facts.items()} == {
        "lyon.account.lyon.jsonl": 0.01,
        "lyon.account.nice.jsonl": 0.03,
    }


def test_verify_counts_an_accounts_entries_as_spending_has_added_to_it(policy):
    path = policy.with_name("lyon.account.jsonl")
    for _ in range(2):
        Account(2.0, 1e-6, path).charge(Spent(0.01), FACTS)
    verified = CliRunner().invoke(app, ["ledger", "verify", str(path)])
    assert verified.exit_code == 0
    assert "intact, 2 entries" in verified.stdout


def test_an_account_that_is_not_there_is_an_error(policy, tmp_path):
    result = call(policy, "--account", tmp_path / "mistyped.jsonl")
    assert result.exit_code == 3
    assert "the account must exist" in result.stderr


@pytest.mark.parametrize("limit", [2.0, 1.5])
def test_a_budget_that_is_used_up_or_was_lowered_says_that_nothing_is_left(policy, limit):
    Account(2.0, 1e-6, policy.with_name("lyon.account.jsonl")).charge(Spent(rho_of_epsilon(2.0, 1e-6)), FACTS)
    policy.write_text(f"epsilon = {limit}\ndelta = 1e-6\n")
    assert "Nothing is left" in call(policy).stdout
