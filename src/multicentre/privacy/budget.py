"""Privacy budget of a site: limit of the policy, spending so far, and check of further plans.

The account is a separate hash-chained file next to the site's data. It is not in a run's folder, because it outlives
runs. A cost is written to disk before the release that it pays for leaves the site. Costs are never refunded. Entries
are chained but not signed, so an account that was rewritten together with its head is not detected.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from multicentre.core.parsing import load_json
from multicentre.core.storage import (
    check_owner_writes_alone,
    held,
    make_private_folder,
    read_regular,
    write_atomically,
)
from multicentre.errors import ConfigurationError, IntegrityError, RefusedByPolicy
from multicentre.privacy.accountant import Spent
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.privacy.guarantee import Guarantee, rounded_down, rounded_up
from multicentre.privacy.ledger import Entry, Ledger, read_ledger

_PATIENCE_S = 10.0  # another process locks the account for milliseconds only
_SLACK = 1e-9  # rounding error of a plan that was made for exactly the budget
_HALVINGS = 60  # more than the 52 bits of a double
_MIN_SHARE = 1e-12  # a smaller share is a rounding error of an exhausted budget


class Account:
    """Budget of one site for one data set.

    Parameters
    ----------
    epsilon : float, > 0
        The combined releases of the data set are (`epsilon`, `delta`)-differentially private for a patient.
    delta : float, in (0, 1)
    path : Path, optional
        File to which spending is written. Without it, spending is recorded in memory.

    Raises
    ------
    IntegrityError
        The file is not an intact account, or is a symbolic link.
    ConfigurationError
        Users other than the owner may write to the file or its folder.

    Examples
    --------
    >>> from multicentre.core.noise_plan import Noise
    >>> from multicentre.privacy.accountant import cost_of
    >>> account = Account(1.0, 1e-5)
    >>> account.charge(cost_of(Noise("gaussian", {"sums": 5.0})), {"study": "pilot"})
    >>> round(account.spent.rho, 3), round(account.spent.epsilon(1e-5), 3)
    (0.02, 0.726)
    """

    def __init__(self, epsilon: float, delta: float, path: Path | None = None) -> None:
        self.limit = Guarantee(epsilon, delta)
        self.path = None if path is None else _resolved(path)
        if self.path is not None:
            check_owner_writes_alone(self.path, "account")
        self._memory = Ledger()
        self.spent = total_spent(self.entries())

    def check(self, cost: Spent) -> None:
        """Raise RefusedByPolicy unless `cost` fits the remaining budget; the hint states what would fit."""
        limit = self.limit
        if (self.spent + cost).epsilon(limit.delta) <= limit.epsilon * (1 + _SLACK):
            return
        raise RefusedByPolicy(
            f"releases must fit the remaining part of the budget of epsilon {limit.epsilon:g}; got releases of epsilon "
            f"{rounded_up(cost.epsilon(limit.delta))} at delta {limit.delta:g} (unit: one patient, all records; "
            "neighbours: one patient more or less)",
            where="policy, epsilon",
            hint=self._what_fits(cost),
        )

    def charge(self, cost: Spent, facts: Mapping[str, Any]) -> None:
        """Write a cost to the account, permanently, if it fits.

        Raises
        ------
        RefusedByPolicy
            The cost does not fit; nothing is written.
        IntegrityError
            The account was changed or is locked by another process.
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
            self._write(self.path, cost, entry)
        self.spent = self.spent + cost

    def entries(self) -> Sequence[Entry]:
        """Return the account's entries, each checked against the previous one and the last against the head.

        Raises
        ------
        IntegrityError
            An entry was changed or removed, or the file is missing although its head exists.
        """
        if self.path is None:
            return self._memory.entries
        head = _head_of(self.path)  # before the entries: another process may write both meanwhile
        entries = list(read_ledger(self.path)) if self.path.exists() else []
        if head is None and len(entries) > 1:  # the first head was written since it was looked for
            head, entries = _head_of(self.path), list(read_ledger(self.path))
        _check_head(self.path, head, entries)
        return entries

    def _write(self, path: Path, cost: Spent, entry: Mapping[str, Any]) -> None:
        try:
            make_private_folder(path.parent)
            with held(_neighbour(path, "lock"), _PATIENCE_S):
                self.spent = total_spent(self.entries())
                self.check(cost)
                ledger = Ledger(path, durable=True)
                ledger.append("spend", entry)
                write_atomically(_neighbour(path, "head"), json.dumps(asdict(ledger.head)).encode(), mode=0o600)
        except OSError as error:
            raise IntegrityError(
                f"the account cannot be written ({error.strerror}); nothing was released",
                where=str(path),
                hint="Free disk space, or make the file and its folder writable for their owner.",
            ) from None

    def left(self) -> float:
        """Return the epsilon of the largest plan of Gaussian noise that fits the remaining budget; 0 if none does."""
        full_budget = Spent(rho_of_epsilon(self.limit.epsilon, self.limit.delta))
        return _scaled(full_budget, self._largest_share(full_budget)).epsilon(self.limit.delta)

    def _what_fits(self, cost: Spent) -> str:
        share = self._largest_share(cost)
        if share == 0:
            return "The budget is exhausted. Ask the site's steward."
        fits = _scaled(cost, share).epsilon(self.limit.delta)
        return (
            f"The same releases fit with at least {rounded_up(share**-0.5)} times the noise, a plan of epsilon "
            f"{rounded_down(fits)}; or ask the site's steward."
        )

    def _largest_share(self, cost: Spent) -> float:
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            fits = (self.spent + _scaled(cost, middle)).epsilon(self.limit.delta) <= self.limit.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low if low > _MIN_SHARE else 0.0


def _resolved(path: Path) -> Path:
    try:
        expanded = path.expanduser()
        # A link in place of the account is not followed; it is refused later.
        resolved = expanded.parent.resolve() / expanded.name
        resolved.resolve()  # raises for an invalid name
        resolved.exists()  # raises for a name that is too long
    except (OSError, ValueError, RuntimeError):
        raise ConfigurationError(
            "account must be a valid path of a file; got an invalid one",
            where="policy, account",
            hint="Name a file in a folder of the site.",
        ) from None
    return resolved


def _neighbour(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}.{kind}")


def _head_of(path: Path) -> bytes | None:
    head = _neighbour(path, "head")
    return read_regular(head, "end of the account") if head.exists() or head.is_symlink() else None


def _check_head(path: Path, head: bytes | None, entries: Sequence[Entry]) -> None:
    """Raise IntegrityError unless the account contains the entry that the head names; later entries may follow."""
    if head is None and len(entries) < 2:  # a crash after the first entry leaves an account without a head
        return
    try:
        recorded = load_json(head or b"")
        hashes = [entry["hash"] for entry in entries][: recorded["entries"]]
        intact = len(hashes) == recorded["entries"] and hashes[-1] == recorded["hash"]
    except (ValueError, KeyError, TypeError, IndexError):
        intact = False
    if not intact:
        raise IntegrityError(
            "the account must contain the entry that its .head file names; entries or the file were removed",
            where=str(path),
            hint="Restore the account and its .head file from a copy. Costs are not refunded.",
        )


def total_spent(entries: Iterable[Entry]) -> Spent:
    """Return the total privacy loss of an account's entries.

    Raises
    ------
    IntegrityError
        An entry of spending does not state an amount.
    """
    total = Spent()
    for entry in entries:
        if entry["event"] == "spend":
            total = total + _spent(entry)
    return total


def _spent(entry: Entry) -> Spent:
    rho, pure = entry.get("rho"), entry.get("pure")
    if not isinstance(rho, float) or not rho >= 0:
        raise IntegrityError(
            f"entry {entry['entry']} must contain a cost (rho) of at least 0; got none or a negative one",
            where="account",
            hint="Restore the account and its .head file from a copy.",
        )
    return Spent(rho, entry.get("gaussian") is True, pure if isinstance(pure, float) and pure >= 0 else math.inf)


def _scaled(cost: Spent, share: float) -> Spent:
    """Return the cost of the same releases with noise ``share**-0.5`` times as large."""
    pure = cost.pure * share**0.5 if math.isfinite(cost.pure) else math.inf
    return Spent(cost.rho * share, cost.gaussian, pure)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
