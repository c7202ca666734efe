"""Summary of a site's privacy budget: the guarantee, the amounts spent and the remainder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from multicentre.errors import ConfigurationError
from multicentre.privacy.budget import Account
from multicentre.privacy.policy import Policy

COLUMNS = ("time", "study", "method", "step", "rho")


def accounts_of(policy: Policy, where: Path, account: Path | None = None) -> list[Path]:
    """Return the accounts of a policy; several if the sites of a simulation share it.

    Parameters
    ----------
    policy : Policy
    where : Path
        File of the policy, named in errors.
    account : Path, optional
        Account to use instead of the policy's.

    Raises
    ------
    ConfigurationError
        The policy has no budget or no account, or the account does not exist.
    """
    if policy.epsilon is None or policy.account is None:
        raise ConfigurationError(
            "the policy must have a privacy budget; it has none",
            where=str(where),
            hint="Set epsilon and delta in it, or name another policy.",
        )
    if account is not None and not account.exists():
        raise ConfigurationError("the account must exist", where=str(account), hint="Look in the policy's folder.")
    path = account or Path(policy.account)
    accounts_of_sites = sorted(one for one in path.parent.glob(f"{path.stem}.*{path.suffix}") if one.is_file())
    return [path] if path.exists() or not accounts_of_sites else accounts_of_sites


def summarise_budget(policy: Policy, path: Path) -> dict[str, Any]:
    """Return the budget of a policy and the spending of an account.

    Raises
    ------
    IntegrityError
        The file is not an intact account.
    """
    assert policy.epsilon is not None
    account = Account(policy.epsilon, policy.delta, path)
    spent = [entry for entry in account.entries() if entry["event"] == "spend"]
    return {
        "promise": str(account.limit),
        "account": str(account.path),
        "epsilon": account.limit.epsilon,
        "delta": account.limit.delta,
        "spent_epsilon": account.spent.epsilon(account.limit.delta),
        "spent_rho": account.spent.rho,
        "left_epsilon": account.left(),
        "entries": [{key: entry.get(key) for key in COLUMNS} for entry in spent],
    }
