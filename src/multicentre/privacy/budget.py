"""A site's privacy budget: what its policy allows, what was spent of it, and whether a plan still fits.

The account is a hash-chained file of its own, beside the site's data and not in a run's folder: it outlives runs. An
amount is written down, and on the disk, before the release that it pays for leaves; nothing is ever taken back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from multicentre.federation.errors import IntegrityError, RefusedByPolicy
from multicentre.federation.noise import Noise
from multicentre.federation.storage import held
from multicentre.privacy.accounting import Spent, rho_of_epsilon, zcdp_of_gaussian, zcdp_of_laplace
from multicentre.privacy.guarantee import Guarantee
from multicentre.privacy.ledger import Entry, Ledger, read_ledger

_PATIENCE_S = 10.0
_SLACK = 1e-9
_HALVINGS = 60


def cost_of(noise: Noise, times: int = 1) -> Spent:
    """Return what releases under this noise cost a patient of one site: each field's rho, added up.

    Examples
    --------
    >>> cost_of(Noise("gaussian", {"sums": 5.0, "patients": 10.0}), times=2).rho
    0.05
    """
    gaussian = noise.mechanism == "gaussian"
    law = zcdp_of_gaussian if gaussian else zcdp_of_laplace
    rho = sum(law(multiplier) for multiplier in noise.multipliers.values())
    pure = math.inf if gaussian else times * sum(1 / multiplier for multiplier in noise.multipliers.values())
    return Spent(times * rho, gaussian, pure)


class Account:
    """The budget of one site for one data set.

    Parameters
    ----------
    epsilon : float, > 0
        All releases of the data set together are (`epsilon`, `delta`)-differentially private for a patient.
    delta : float, in (0, 1)
    path : Path, optional
        Where spending is written; without it, it is forgotten with this object.

    Raises
    ------
    IntegrityError
        The file is not an intact account.

    Examples
    --------
    >>> account = Account(1.0, 1e-5)
    >>> account.charge(cost_of(Noise("gaussian", {"sums": 5.0})), {"study": "pilot"})
    >>> round(account.spent.rho, 3), round(account.spent.epsilon(1e-5), 3)
    (0.02, 0.726)
    """

    def __init__(self, epsilon: float, delta: float, path: Path | None = None) -> None:
        self.limit = Guarantee(epsilon, delta)
        self.path = path
        self._memory = Ledger()
        self.spent = total_spent(self.entries())

    def check(self, cost: Spent) -> None:
        """Raise RefusedByPolicy unless `cost` still fits; the message names what would."""
        limit, after = self.limit, self.spent + cost
        needed = after.epsilon(limit.delta)
        if needed <= limit.epsilon * (1 + _SLACK):
            return
        raise RefusedByPolicy(
            f"the releases need epsilon {needed:.3g} in all at delta {limit.delta:g} (unit: one patient, all records; "
            f"neighbours: one patient more or less), the budget is {limit.epsilon:g}",
            where="policy, epsilon",
            mend=self._what_fits(cost),
        )

    def charge(self, cost: Spent, facts: Mapping[str, Any]) -> None:
        """Write a cost down for good, unless it does not fit.

        Raises
        ------
        RefusedByPolicy
            The cost does not fit; nothing is written.
        IntegrityError
            The account was changed or is held by another process.
        """
        entry = {
            **facts,
            "rho": cost.rho,
            "gaussian": cost.gaussian,
            "pure": _finite(cost.pure),
            "unit": self.limit.unit,
        }
        if self.path is None:
            self.check(cost)
            self._memory.append("spend", entry)
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with held(self.path.with_name(f"{self.path.name}.lock"), _PATIENCE_S):
                ledger = Ledger(self.path, durable=True)
                self.spent = total_spent(ledger.entries)
                self.check(cost)
                ledger.append("spend", entry)
        self.spent = self.spent + cost

    def entries(self) -> Iterable[Entry]:
        """Yield the account's entries, each checked against the one before it."""
        if self.path is None:
            return self._memory.entries
        return read_ledger(self.path) if self.path.exists() else ()

    def left(self) -> float:
        """Return the epsilon of the largest plan of Gaussian noise that still fits, 0 when none does."""
        whole = Spent(rho_of_epsilon(self.limit.epsilon, self.limit.delta))
        return _scaled(whole, self._largest_share(whole)).epsilon(self.limit.delta)

    def _what_fits(self, cost: Spent) -> str:
        share = self._largest_share(cost)
        if share == 0:
            return "Nothing is left of the budget: ask the site's steward."
        fits = _scaled(cost, share).epsilon(self.limit.delta)
        return (
            f"What is left fits the same releases with at least {share**-0.5:.4g} times the noise, "
            f"a plan of epsilon {fits * (1 - 1e-3):.3g}; or ask the site's steward."
        )

    def _largest_share(self, cost: Spent) -> float:
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            fits = (self.spent + _scaled(cost, middle)).epsilon(self.limit.delta) <= self.limit.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low if low > 1e-12 else 0.0


def total_spent(entries: Iterable[Entry]) -> Spent:
    """Return the sum of an account's entries.

    Raises
    ------
    IntegrityError
        An entry of spending does not say how much.
    """
    total = Spent()
    for entry in entries:
        if entry["event"] == "spend":
            total = total + _spent(entry)
    return total


def _spent(entry: Entry) -> Spent:
    rho, pure = entry.get("rho"), entry.get("pure")
    if not isinstance(rho, float) or not rho >= 0:
        raise IntegrityError(f"entry {entry['entry']} does not say what was spent", where="account")
    return Spent(rho, entry.get("gaussian") is True, pure if isinstance(pure, float) and pure >= 0 else math.inf)


def _scaled(cost: Spent, share: float) -> Spent:
    """Return the cost of the same releases with noise ``share**-0.5`` times as large."""
    return Spent(cost.rho * share, cost.gaussian, cost.pure * share**0.5)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
