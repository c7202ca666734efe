"""What a fit promises a patient, from the plan of its releases, and what it spent, from the ledgers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multicentre.federation.coordinator import Federation
from multicentre.federation.engine import Protection
from multicentre.federation.noise import Plan
from multicentre.privacy.accounting import Spent, worst_patient
from multicentre.privacy.budget import cost_of
from multicentre.privacy.guarantee import Guarantee
from multicentre.privacy.ledger import Entry
from multicentre.privacy.people import Counted


def guarantee_of(federation: Federation) -> Guarantee | None:
    """Return the guarantee of a fit, given its handle; None without differential privacy."""
    if federation.plan is None:
        return None
    terms = federation.terms
    return guarantee_of_plan(federation.plan, federation.protection, terms.sites_per_patient, terms.counted)


def guarantee_of_plan(
    plan: Plan, protection: Protection = "clear", sites_per_patient: int = 1, counted: Counted = "patients"
) -> Guarantee:
    """Return what a plan promises a patient of any site.

    Parameters
    ----------
    plan : Plan
    protection : {"clear", "masked"}
        How summands leave.
    sites_per_patient : int, default 1
        At how many sites one patient may have records.
    counted : {"patients", "records"}
        Whether sites can tell which records are of one patient; a promise to a patient is otherwise one to a record.

    Notes
    -----
    Sites have different patients, so the guarantee is one site's; a patient who may be at k sites pays k times where
    each site adds noise of its own. Under masked sums one noise covers the sum, which k contributions move k times as
    far: rho grows with the square of k. A round that is repeated after an interruption is spent again: the sites'
    accounts know, the plan does not.

    Examples
    --------
    >>> print(guarantee_of_plan(Plan(())))
    (epsilon 0, delta 1e-05)-differential privacy for one patient: data sets are neighbours when one has all
    records of one patient more (add or remove); each patient is at one site.
    """
    total = Spent()
    for planned in plan.releases:
        shared = planned.step.summed and protection == "masked"
        total = total + cost_of(planned.noise, planned.times).at_sites(sites_per_patient, shared=shared)
    unit = "record" if counted == "records" and plan.unit == "patient" else plan.unit
    return Guarantee(total.epsilon(plan.delta), plan.delta, unit, sites_per_patient=sites_per_patient)


def spent_in(ledgers: Mapping[str, Iterable[Entry]], sites_per_patient: int = 1) -> Spent:
    """Return what the releases in some ledgers cost the patient for whom they cost most.

    Parameters
    ----------
    ledgers : mapping of str to iterable of entries
        By site.
    sites_per_patient : int, default 1
        At how many sites one patient may have records.

    Examples
    --------
    >>> entry = {"rho": 0.02, "noise": {"mechanism": "gaussian"}, "protection": "clear"}
    >>> spent_in({"lyon": [entry, entry], "turin": [entry]}).rho
    0.04
    >>> spent_in({"lyon": [entry, entry], "turin": [entry]}, sites_per_patient=2).rho
    0.06
    """
    read = {site: list(entries) for site, entries in ledgers.items()}
    own = worst_patient({site: _noised(entries, "clear") for site, entries in read.items()}, sites_per_patient)
    shared = worst_patient({site: _noised(entries, "masked") for site, entries in read.items()})
    return own + shared.at_sites(sites_per_patient, shared=True)


def _noised(entries: Iterable[Entry], protection: Protection) -> Spent:
    total = Spent()
    for entry in entries:
        if "rho" in entry and entry["protection"] == protection:
            total = total + Spent(entry["rho"], entry["noise"]["mechanism"] == "gaussian")
    return total
