"""Noise in place of a minimum number of patients.

An answer with enough noise may rest on fewer patients than the policy's minimum. Enough means that all noised answers
of the site, this one included, are together (`EPSILON`, `DELTA`)-differentially private. They are counted over the
life of the guard: over the account of a policy's budget where there is one, otherwise over the site's ledger. A real
site also counts them over the ledgers of all its studies. Names of sessions, which the coordinator chooses, play no
part. After that, the minimum applies to noised answers too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
    entries : callable
        Returns the entries so far of the ledgers whose noised releases count; called once, before the first answer.
    account : Account, optional
        Of the policy's budget; it counts the answers where it is given.
    of_site : NoisedAnswers, optional
        Those of all studies of the site, which one more must leave within the limit as well.

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

    def __init__(
        self,
        entries: Callable[[], Iterable[Entry]] = tuple,
        account: Account | None = None,
        of_site: NoisedAnswers | None = None,
    ) -> None:
        self._entries, self._account, self._of_site = entries, account, of_site
        self._counted: Spent | None = None

    @property
    def spent(self) -> Spent:
        """What the noised answers cost a patient so far; an account is read again, since others may charge it too."""
        if self._account is not None:
            return total_spent(self._account.entries())
        if self._counted is None:
            noised = (one for one in self._entries() if one.get("event") == "release" and one.get("rho") is not None)
            self._counted = sum((cost_of(_noise_of(one)) for one in noised), Spent())
        return self._counted

    def hide_with(self, noise: Noise) -> bool:
        """Tell whether one more answer, under this noise, leaves all of them within the limit."""
        if self._of_site is not None and not self._of_site.hide_with(noise):
            return False
        return (self.spent + cost_of(noise)).epsilon(DELTA) <= EPSILON * (1 + _SLACK)

    def add(self, noise: Noise) -> None:
        """Count an answer; an account counts by itself when it is charged."""
        if self._of_site is not None:
            self._of_site.add(noise)
        if self._account is None:
            self._counted = self.spent + cost_of(noise)


def _noise_of(entry: Entry) -> Noise:
    if "noise" not in entry:
        raise IntegrityError(f"entry {entry['entry']} does not say which noise it paid for", where="ledger")
    multipliers = dict(entry["noise"])
    return Noise(multipliers.pop("mechanism"), multipliers)
