"""``multicentre budget``: the privacy budget of a site, its spending, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multicentre.cli.console import AsJson, align, handle_errors, show, show_json

if TYPE_CHECKING:
    from multicentre.privacy.policy import Policy

NOTHING = 1e-3  # share of the budget; a smaller remainder is too little for any useful release
_COLUMNS = ("time", "study", "method", "step", "rho")


@handle_errors
def budget(
    policy: Annotated[Path, typer.Argument(metavar="POLICY.toml", help="Policy of a site with an epsilon.")],
    account: Annotated[Path | None, typer.Option(help="Account to read instead of the policy's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a site's privacy budget and its spending.

    The output lists the guarantee, each amount spent and the remaining budget. If several sites of a simulation share a
    policy, each has an account, and all accounts are printed.
    """
    from multicentre.privacy.policy import Policy

    site_policy = Policy.read(policy)
    budgets = {path.name: _site_budget(site_policy, path) for path in _accounts(site_policy, account, policy)}
    if as_json:
        show_json(budgets)
    else:
        show("\n\n".join(_page(name, budget_of_site) for name, budget_of_site in budgets.items()))


def _accounts(policy: Policy, chosen_account: Path | None, where: Path) -> list[Path]:
    from multicentre.errors import ConfigurationError

    if policy.epsilon is None or policy.account is None:
        raise ConfigurationError(
            "the policy must have a privacy budget; it has none",
            where=str(where),
            hint="Set epsilon and delta in it, or name another policy.",
        )
    if chosen_account is not None and not chosen_account.exists():
        raise ConfigurationError(
            "the account must exist", where=str(chosen_account), hint="Look in the policy's folder."
        )
    account = chosen_account or Path(policy.account)
    accounts_of_sites = sorted(
        path for path in account.parent.glob(f"{account.stem}.*{account.suffix}") if path.is_file()
    )
    return [account] if account.exists() or not accounts_of_sites else accounts_of_sites


def _site_budget(policy: Policy, path: Path) -> dict[str, Any]:
    from multicentre.privacy.budget import Account

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
        "entries": [{key: entry.get(key) for key in _COLUMNS} for entry in spent],
    }


def _page(name: str, site_budget: dict[str, Any]) -> str:
    from multicentre.privacy.guarantee import rounded_down, rounded_up

    rows = [_COLUMNS, *([str(entry[key]) for key in _COLUMNS] for entry in site_budget["entries"])]
    table = align(rows) if site_budget["entries"] else "Nothing has been spent."
    remainder = f"A plan of Gaussian noise with epsilon {rounded_down(site_budget['left_epsilon'])} still fits."
    if site_budget["left_epsilon"] < NOTHING * site_budget["epsilon"]:
        remainder = "Nothing is left."
    return (
        f"{name}: {site_budget['promise']}\n{table}\n"
        f"Spent: epsilon {rounded_up(site_budget['spent_epsilon'])} at delta {site_budget['delta']:g}. {remainder}\n"
        "It counts the privacy loss of one patient, with all of the patient's records, by this site's releases. The "
        "count is in this file only: do not move or delete it, or restore an older copy."
    )
