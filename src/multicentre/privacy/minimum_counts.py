"""Minimum numbers of patients: behind a value, per coefficient of a regression, and noise in place of a minimum.

An answer with enough noise may have fewer patients behind it than the policy's minimum. The noise is sufficient if all
noised answers of the site, including this one, are together (`EPSILON`, `DELTA`)-differentially private. Afterwards the
minimum applies to noised answers too.

Noised answers are counted over the account of the policy's budget if there is one, otherwise over the site's ledger. A
real site also counts them over the ledgers of all its studies. Names of sessions are ignored, because the coordinator
chooses them.

A site whose policy says so (``min_patients_in_share``) takes part in masked sums with fewer patients than its minimum:
the total over at least three sites then rests on at least the minimum. Everything else that leaves needs its own.

A regression with nearly as many coefficients as patients reveals each patient's outcome. A site therefore takes part
in a fit only if the number of coefficients is at most a share of the patients (``max_parameters_per_patient``).

- For an unmasked answer, or a single site, the patients are those of the site.
- In a masked sum they are those of all sites. No site has their number, so each site multiplies its count by the
  number of sites that the sum requires. The smallest site has no more patients than any other site. If all sites have
  the same limit and it holds at the smallest site, it therefore holds for the total.

The coefficients of one model count once, whatever the number of rounds, because all rounds concern the same
coefficients. Networks, trees and factor models have more parameters by design, and the limit does not apply to them. A
leaf has at least 15 patients or the policy's minimum. For the other models, only noise bounds what the parameters
disclose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from multicentre.core.calls import Call, suggest_masks
from multicentre.core.messages import Declaration, place
from multicentre.core.noise_plan import Noise
from multicentre.core.steps import Release
from multicentre.core.total_minimum import needs_minimum
from multicentre.errors import DisclosureRefused, IntegrityError
from multicentre.privacy.accountant import Spent, cost_of
from multicentre.privacy.budget import Account, total_spent
from multicentre.privacy.ledger import Entry
from multicentre.privacy.patient_counts import ONE_RECORD, PatientCounts, People
from multicentre.privacy.policy import ASK_STEWARD, Policy, Refusal

# With Gaussian noise, the best guess from all these answers whether a patient is among those of the site is right in at
# most 64 % of cases (Phi(mu / 2) with mu = 0.73). A random guess is right in 50 %.
EPSILON, DELTA = 3.0, 1e-5
_SLACK = 1e-9  # rounding error of a plan that was made for exactly EPSILON
_ROUNDING = 1e-9  # a third of 60 patients must be 20, whatever the rounding error of 1/3

_SEVERAL = "Records of one patient count as one patient, and so do records without an identifier."
_POOL = "Pool small sites under one agent (multicentre docs small-sites; in a simulation, mc.data.merge_sites)."
_FEW_PATIENTS = (
    "Leave out columns and views that few patients have or in which one patient makes most of the sum, and the few "
    f"patients who lack a view. {ASK_STEWARD}"
)
_MORE_NOISE = (
    "Use a smaller epsilon: noise replaces a minimum while the combined noised answers of the site are within epsilon "
    f"{EPSILON:g} at delta {DELTA:g}."
)
_FEWER_COLUMNS = f"Leave columns out, or add patients. {ASK_STEWARD}"


class Counts(NamedTuple):
    """Records and patients behind a value.

    Attributes
    ----------
    records : int or None
        Number of records, as the method counts them.
    patients : int or None
        Smallest number of patients to whom they can belong; None if the site cannot assign records to patients.
    """

    records: int | None
    patients: int | None


NO_PATIENTS = Counts(None, None)


def find_small_site(least: int, people: People, n_records: int | None, *, has_budget: bool) -> Refusal | None:
    """Return the refusal of a site with fewer patients than a minimum of its policy."""
    if not 0 < people.among().fewest(n_records or 0) < least:
        return None
    reason = f"the site has fewer patients than its policy's minimum of {least}"
    # With a budget, the site does not disclose that patients have several records.
    has_several = people.most_records > 1 and not has_budget
    return Refusal("", reason, DisclosureRefused, f"{_SEVERAL} {_POOL}" if has_several else _POOL)


def find_too_few_sites(call: Call, min_sites: int) -> Refusal | None:
    """Return the refusal of a masked sum that can be read with fewer sites than the policy's minimum."""
    if call.mask is None:
        return None
    n_sites = min(call.n_peers, call.mask.threshold)
    if n_sites >= min_sites:
        return None
    return Refusal(
        "min_sites_in_sum", f"the site's policy requires sums over at least {min_sites} sites; got {n_sites}"
    )


def find_uncounted_total(call: Call, policy: Policy, people: People, answers: NoisedAnswers) -> Refusal | None:
    """Return the refusal of a masked sum whose minimum over all sites (``min_patients_in_total``) is not checked.

    The coordinator must count the patients behind the sum, unless noise hides each patient. Cells of a table must count
    patients, not records.
    """
    if not policy.min_patients_in_total or call.mask is None or not needs_minimum(call.step.releases):
        return None
    if call.noise is not None:
        if answers.hide_with(call.noise):
            return None
        reason = (
            f"the noised answers must be within epsilon {EPSILON:g} in total to replace a minimum; got a larger one"
        )
        return Refusal("min_patients_in_total", reason)
    if not call.mask.counted:
        return Refusal(
            "min_patients_in_total", "the coordinator must count the patients behind this sum; got an uncounted sum"
        )
    tables = [name for name, field in call.step.releases.declarations().items() if field.counts]
    if tables and people.most_records > 1:
        reason = f"a patient must have one record, because the cells of {', '.join(tables)} count records; got several"
        return Refusal("min_patients_in_total", reason, DisclosureRefused, ONE_RECORD)
    return None


def find_value_refusal(
    call: Call,
    release: Release,
    item: tuple[str, str, Declaration, Any],
    patient_counts: PatientCounts,
    policy: Policy,
) -> Refusal | None:
    """Return the refusal of a value that has too few patients behind it or does not state their number.

    Parameters
    ----------
    call : Call
    release : Release
    item : tuple
        Field, name within the field, declaration and value.
    patient_counts : PatientCounts
        Patients of the records of the answer.
    policy : Policy
    """
    field, key, declaration, value = item
    records, where = release.patients_behind(field, key), place(type(release), field, key)
    if records is None:
        return Refusal(where, "the answer must state the number of patients behind it; got none", DisclosureRefused)
    if not _is_count(records):
        # The number itself may describe the patients, so the reason must not contain it.
        reason = "the number of patients behind the answer must be an integer of at least 0; got another value"
        return Refusal(where, reason, DisclosureRefused)
    if records == 0 and _is_informative(declaration, value):
        reason = "a value without patients behind it must be zero or empty; got another value"
        return Refusal(where, reason, DisclosureRefused)
    patients, least = patient_counts.fewest(int(records)), min_behind_value(call, policy)
    if not 0 < patients < least or type(release).individual:
        return None
    hint = _hint(call, has_several=patients < records)
    return Refusal(
        where, f"the answer must have at least {least} patients behind it; got fewer", DisclosureRefused, hint
    )


def min_behind_value(call: Call, policy: Policy) -> int:
    """Return the required number of patients behind an answer; both minima apply to an unmasked summand."""
    is_unmasked_summand = call.step.summed and call.mask is None
    if rests_on_total(call):
        return policy.least_in_share
    return max(policy.min_patients, policy.min_patients_in_total if is_unmasked_summand else 0)


def rests_on_total(call: Call) -> bool:
    """Return whether the patients of all sites count behind an answer, or none: a counted summand, or public values."""
    is_counted_summand = call.mask is not None and call.mask.counted
    return is_counted_summand or not call.step.releases.tells_of_patients()


def find_excess_coefficients(call: Call, n_parameters: int, n_patients: int, share: float) -> Refusal | None:
    """Return the refusal of a fit with too many coefficients; None if there are few enough or `share` is 0.

    See :func:`max_parameters`.
    """
    if not share or n_parameters <= max_parameters(call, n_patients, share):
        return None
    scope = "this site" if call.mask is None else "all sites"
    reason = f"a regression must have at least {1 / share:.3g} patients of {scope} per coefficient; got {n_parameters}"
    reason += " coefficients"
    return Refusal("max_parameters_per_patient", reason, hint=_FEWER_COLUMNS)


def max_parameters(call: Call, n_patients: int, share: float) -> int:
    """Return the largest number of coefficients that a site permits in a call.

    Parameters
    ----------
    call : Call
    n_patients : int
        Number of the site's patients.
    share : float, > 0
        Coefficients per patient.

    Examples
    --------
    >>> from multicentre.core.calls import Mask
    >>> from multicentre.core.messages import Nothing
    >>> from multicentre.survival.cox.site import CoxSite
    >>> alone = Call("study", "0.1", 0, CoxSite.sum_derivatives, Nothing(), ("lyon", "oslo", "turin"))
    >>> max_parameters(alone, 60, 1 / 3)
    20
    >>> masked = Call("study", "0.1", 0, CoxSite.sum_derivatives, Nothing(), alone.peers, Mask("first", 0, 2))
    >>> max_parameters(masked, 60, 1 / 3)
    40
    """
    n_sites = 1 if call.mask is None else min(call.n_peers, call.mask.threshold)
    return math.floor(share * n_patients * n_sites * (1 + _ROUNDING))


class NoisedAnswers:
    """Noised answers of one site, whose combined privacy loss decides whether noise replaces the minimum.

    Parameters
    ----------
    entries : callable
        Returns the existing entries of the ledgers whose noised releases count. Called once, before the first answer.
    account : Account, optional
        Account of the policy's budget. If passed, it counts the answers.
    of_site : NoisedAnswers, optional
        Noised answers of all studies of the site. A further answer must keep these within the limit as well.

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
        """Privacy loss of a patient by the noised answers so far.

        An account is read again each time, because other processes may charge it too.
        """
        if self._account is not None:
            return total_spent(self._account.entries())
        if self._counted is None:
            noised = (one for one in self._entries() if one.get("event") == "release" and one.get("rho") is not None)
            self._counted = sum((cost_of(_noise_of(one)) for one in noised), Spent())
        return self._counted

    def hide_with(self, noise: Noise) -> bool:
        """Return whether one more answer with this noise keeps all answers within the limit."""
        if self._of_site is not None and not self._of_site.hide_with(noise):
            return False
        return (self.spent + cost_of(noise)).epsilon(DELTA) <= EPSILON * (1 + _SLACK)

    def add(self, noise: Noise) -> None:
        """Count an answer; an account counts answers when it is charged."""
        if self._of_site is not None:
            self._of_site.add(noise)
        if self._account is None:
            self._counted = self.spent + cost_of(noise)


def _noise_of(entry: Entry) -> Noise:
    if "noise" not in entry:
        raise IntegrityError(f"entry {entry['entry']} must contain its noise; got none", where="ledger")
    multipliers = dict(entry["noise"])
    return Noise(multipliers.pop("mechanism"), multipliers)


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _is_informative(declaration: Declaration, value: Any) -> bool:
    return len(value) > 0 if declaration.kind in ("text", "texts") else bool(np.any(value))


def _hint(call: Call, *, has_several: bool) -> str:
    """Return the hint on too few patients behind an answer, for the kind of call."""
    masks = suggest_masks(protection=call.protection, n_sites=call.n_peers if call.step.summed else 0)
    hints = [(_SEVERAL, has_several), (masks, True), (_MORE_NOISE, call.noise is not None), (_FEW_PATIENTS, True)]
    return " ".join(hint for hint, applies in hints if applies and hint)
