"""``multicentre budget``: the privacy budget of a site, its spending, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from multicentre.cli.console import AsJson, align, handle_errors, show, show_json

NOTHING = 1e-3  # share of the budget; a smaller remainder is too little for any useful release


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
    from multicentre.privacy.budget_summary import accounts_of, summarise_budget
    from multicentre.privacy.policy import Policy

    site_policy = Policy.read(policy)
    budgets = {path.name: summarise_budget(site_policy, path) for path in accounts_of(site_policy, policy, account)}
    if as_json:
        show_json(budgets)
    else:
        show("\n\n".join(_page(name, budget_of_site) for name, budget_of_site in budgets.items()))


def _page(name: str, site_budget: dict[str, Any]) -> str:
    from multicentre.privacy.budget_summary import COLUMNS
    from multicentre.privacy.guarantee import rounded_down, rounded_up

    rows = [COLUMNS, *([str(entry[key]) for key in COLUMNS] for entry in site_budget["entries"])]
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
