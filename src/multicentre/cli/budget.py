"""``multicentre budget``: the privacy budget of a site, its spending, and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multicentre.cli.console import AsJson, align, handle_errors, show, show_json

if TYPE_CHECKING:
    from multicentre.privacy.policy import Policy

_SETTINGS = "site.toml"  # of a real site
NOTHING = 1e-3  # share of the budget; a smaller remainder is too little for any useful release


@handle_errors
def budget(
    policy: Annotated[
        Path,
        typer.Argument(metavar="POLICY.toml", help="Policy of a site with an epsilon, or the settings of a real site."),
    ],
    account: Annotated[Path | None, typer.Option(help="Account to read instead of the policy's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a site's privacy budget and its spending.

    The output lists the guarantee, each amount spent and the remaining budget. If several sites of a simulation share a
    policy, each has an account, and all accounts are printed. Of site.toml, the table [policy] and the policies of
    single studies are read.
    """
    from multicentre.privacy.budget_summary import accounts_of, summarise_budget

    pages, budgets = [], {}
    policies = _policies(policy)
    limited = {label: one for label, one in policies.items() if one.epsilon is not None} or policies
    for label, one in policies.items():
        if label not in limited:
            pages.append(f"{label}: the policy sets no privacy budget (epsilon).")
            continue
        for path in accounts_of(one, policy, account):
            budgets[path.name] = summarise_budget(one, path)
            pages.append(_page(f"{label}, {path.name}" if label else path.name, budgets[path.name]))
    if as_json:
        show_json(budgets)
    else:
        show("\n\n".join(pages))


def _policies(path: Path) -> Mapping[str, Policy]:
    """Return the policy of a file under an empty label, or those of a real site's settings."""
    from multicentre.cli.real_sites import function_of_sites
    from multicentre.core.parsing import read_toml
    from multicentre.privacy.policy import Policy

    if path.name != _SETTINGS or "site" not in read_toml(path, _SETTINGS):
        return {"": Policy.read(path)}
    policies: Mapping[str, Policy] = function_of_sites("policies", f"the file {_SETTINGS} of a real site")(path)
    return policies


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
