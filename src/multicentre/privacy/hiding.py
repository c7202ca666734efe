"""Noise in place of a minimum number of patients.

An answer with enough noise may rest on fewer patients than the policy's minimum. Enough means that all noised answers
of the site, this one included, are together (`EPSILON`, `DELTA`)-differentially private. They are counted over the
life of the guard: over the account of a policy's budget where there is one, otherwise over the site's ledger. Names of
sessions, which the coordinator chooses, play no part. After that, the minimum applies to noised answers too.
"""

from __future__ import annotations

from collections.abc import Iterable

from multicentre.federation.errors import IntegrityError
from multicentre.federation.noise import Noise
from multicentre.privacy.accounting import Spent
from multicentre.privacy.budget import Account, cost_of, total_spent
from multicentre.privacy.ledger import Entry

# The best guess from all these answers whether a patient is among the site's is right in 64 % of cases at most, for
# Gaussian noise (Phi(mu / 2) with mu = 0.73), where a coin is right in 50 %.
EPSILON, DELTA = 3.0, 1e-5
_SLACK = 1e-9  # rounding of a plan that was made for exactly EPSILON


class NoisedAnswers:
    """The noised answers of one site, and whether one more hides each patient.

    Parameters
    ----------
    account : Account, optional
        Of the policy's budget; it counts the answers where it is given.
    entries : iterable of Entry
        The site's ledger so far, of which the noised releases count.

    Examples
    --------
    >>> answers = NoisedAnswers()
    >>> answers.hide_with(Noise("gaussian", {"total": 1.0})), answers.hide_with(Noise("gaussian", {"total": 2.0}))
    (False, True)
    >>> answers.add(Noise("gaussian", {"total": 2.0}))
    >>> answers.add(Noise("gaussian", {"total": 2.0}))
    >>> answers.hide_with(Noise("gaussian", {"total": 2.0}))
    False
    """

    def __init__(self, account: Account | None = None, entries: Iterable[Entry] = ()) -> None:
        self._account = account
        self._spent = Spent()
        for entry in entries:
            if entry.get("event") == "release" and entry.get("rho") is not None:
                if "noise" not in entry:
                    raise IntegrityError(f"entry {entry['entry']} does not say which noise it paid for", where="ledger")
                self._spent = self._spent + cost_of(_noise_of(entry))

    @property
    def spent(self) -> Spent:
        """What the noised answers cost a patient so far; an account is read again, since others may charge it too."""
        return self._spent if self._account is None else total_spent(self._account.entries())

    def hide_with(self, noise: Noise) -> bool:
        """Tell whether one more answer, under this noise, leaves all of them within the limit."""
        return (self.spent + cost_of(noise)).epsilon(DELTA) <= EPSILON * (1 + _SLACK)

    def add(self, noise: Noise) -> None:
        """Count an answer; an account counts by itself when it is charged."""
        self._spent = self._spent + cost_of(noise)


def _noise_of(entry: Entry) -> Noise:
    multipliers = dict(entry["noise"])
    return Noise(multipliers.pop("mechanism"), multipliers)
