"""``multicentre budget``: what a site's policy allows, what was spent of it, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multicentre.cli.console import AsJson, align, answering, show, show_json

if TYPE_CHECKING:
    from multicentre.privacy.policy import Policy

NOTHING = 1e-3
_COLUMNS = ("time", "study", "method", "step", "rho")


@answering
def budget(
    policy: Annotated[Path, typer.Argument(metavar="POLICY.toml", help="A site's policy with an epsilon.")],
    account: Annotated[Path | None, typer.Option(help="The account, where the policy's own is not meant.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a site's privacy budget: the promise, each amount spent, and what is left.

    A policy that several sites of a simulation share has an account for each of them; all are printed.
    """
    from multicentre.privacy.policy import Policy

    found = Policy.read(policy)
    facts = {path.name: _facts(found, path) for path in _accounts(found, account, policy)}
    if as_json:
        show_json(facts)
    else:
        show("\n\n".join(_page(name, told) for name, told in facts.items()))


def _accounts(policy: Policy, named: Path | None, where: Path) -> list[Path]:
    from multicentre.federation.errors import ConfigurationError

    if policy.epsilon is None or policy.account is None:
        raise ConfigurationError(
            "the policy has no privacy budget", where=str(where), mend="Give it epsilon and delta, or ask for another."
        )
    if named is not None and not named.exists():
        raise ConfigurationError("there is no such account", where=str(named), mend="See the policy's folder.")
    own = named or Path(policy.account)
    shared = sorted(path for path in own.parent.glob(f"{own.stem}.*{own.suffix}") if path.is_file())
    return [own] if own.exists() or not shared else shared


def _facts(policy: Policy, path: Path) -> dict[str, Any]:
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


def _page(name: str, facts: dict[str, Any]) -> str:
    from multicentre.privacy.guarantee import rounded_down, rounded_up

    rows = [_COLUMNS, *([str(entry[key]) for key in _COLUMNS] for entry in facts["entries"])]
    table = align(rows) if facts["entries"] else "Nothing was spent yet."
    left = f"A plan of Gaussian noise with epsilon {rounded_down(facts['left_epsilon'])} still fits."
    if facts["left_epsilon"] < NOTHING * facts["epsilon"]:
        left = "Nothing is left."
    return (
        f"{name}: {facts['promise']}\n{table}\n"
        f"Spent: epsilon {rounded_up(facts['spent_epsilon'])} at delta {facts['delta']:g}. {left}\n"
        "It counts what this site's releases cost one patient, with all records of the patient here. It lives in this "
        "file: moved, deleted or restored from an older copy, it would forget."
    )
