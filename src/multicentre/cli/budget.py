"""``multicentre budget``: what a site's policy allows, what was spent of it, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multicentre.cli.console import AsJson, align, answering, show, show_json

if TYPE_CHECKING:
    from multicentre.privacy.budget import Account
    from multicentre.privacy.policy import Policy


@answering
def budget(
    policy: Annotated[Path, typer.Argument(metavar="POLICY.toml", help="A site's policy with an epsilon.")],
    account: Annotated[Path | None, typer.Option(help="The account, where the policy's own is not meant.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a site's privacy budget: the promise, each amount spent, and what is left."""
    from multicentre.privacy.policy import Policy

    found = Policy.read(policy)
    opened = _account(found, account, policy)
    facts = _facts(opened)
    if as_json:
        show_json(facts)
    else:
        show(_page(facts))


def _account(policy: Policy, path: Path | None, where: Path) -> Account:
    from multicentre.federation.errors import ConfigurationError
    from multicentre.privacy.budget import Account

    if policy.epsilon is None or policy.account is None:
        raise ConfigurationError(
            "the policy has no privacy budget", where=str(where), mend="Give it epsilon and delta, or ask for another."
        )
    return Account(policy.epsilon, policy.delta, path or Path(policy.account))


def _facts(account: Account) -> dict[str, Any]:
    return {
        "promise": str(account.limit),
        "account": str(account.path),
        "epsilon": account.limit.epsilon,
        "delta": account.limit.delta,
        "spent_epsilon": account.spent.epsilon(account.limit.delta),
        "spent_rho": account.spent.rho,
        "left_epsilon": account.left(),
        "entries": [
            {key: entry.get(key) for key in ("time", "study", "method", "step", "rho")}
            for entry in account.entries()
            if entry["event"] == "spend"
        ],
    }


def _page(facts: dict[str, Any]) -> str:
    columns = ("time", "study", "method", "step", "rho")
    rows = [columns, *([str(entry[key]) for key in columns] for entry in facts["entries"])]
    table = align(rows) if facts["entries"] else "Nothing was spent yet."
    return (
        f"Budget: {facts['promise']}\n{table}\n"
        f"Spent: epsilon {facts['spent_epsilon']:.3g} at delta {facts['delta']:g}. "
        f"A plan of Gaussian noise with epsilon {facts['left_epsilon']:.3g} still fits."
    )
