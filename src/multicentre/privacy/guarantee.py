"""Guarantees of differential privacy: their statement, computation from a plan, and spending according to ledgers.

Every statement names its privacy unit and its neighbouring data sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Literal, Self, get_args

from multicentre.core.calls import Protection
from multicentre.core.noise_plan import Plan, Unit
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError
from multicentre.privacy.accountant import Spent, cost_of, worst_patient
from multicentre.privacy.conversions import require_fraction, require_not_negative, require_positive_integer
from multicentre.privacy.ledger import Entry
from multicentre.privacy.patient_counts import Counted

Adjacency = Literal["add-remove", "replace-one"]

UNIT: Unit = "patient"

_DIGITS = 3  # significant digits of a stated epsilon
_STATED = " As stated in the model's file; not verified."
_UNITS = {"patient": "one patient", "record": "one record", "entry": "one entry (one value of one patient's record)"}
_REACH = {
    "record": "; a patient with several records has less protection",
    "entry": "; the same guarantee for one patient implies this one",
}
_NEIGHBOURS = {
    ("patient", "add-remove"): "one has all records of one patient more (add or remove)",
    ("patient", "replace-one"): "all records of one patient are those of another (replace one)",
    ("record", "add-remove"): "one has one record more (add or remove)",
    ("record", "replace-one"): "one record is a different one (replace one)",
    ("entry", "add-remove"): "one has one entry more (add or remove)",
    ("entry", "replace-one"): "one entry has a different value (replace one)",
}


@dataclass(frozen=True)
class Guarantee:
    """Guarantee of differential privacy, with its privacy unit and neighbouring data sets; printed as one sentence.

    Parameters
    ----------
    epsilon : float, >= 0
        Infinite without noise.
    delta : float, in (0, 1)
        Probability with which the bound on epsilon may fail.
    unit : {"patient", "record", "entry"}, default "patient"
        Privacy unit (who counts as one individual). It is one record if the sites cannot assign records to patients.
    adjacency : {"add-remove", "replace-one"}, default "add-remove"
        Difference between neighbouring data sets: one unit is added or removed, or replaced.
    sites_per_patient : int, >= 1, default 1
        Number of sites at which one patient may have records.
    from_file : bool, default False
        True if the guarantee was read from a file. It is then not verified, and the sentence states this.

    Examples
    --------
    >>> print(Guarantee(0.88893, 1e-5))
    (epsilon 0.889, delta 1e-05)-differential privacy for one patient: data sets are neighbours when one has all
    records of one patient more (add or remove); each patient is at one site.
    """

    epsilon: float
    delta: float
    unit: Unit = UNIT
    adjacency: Adjacency = "add-remove"
    sites_per_patient: int = 1
    from_file: bool = field(default=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        require_not_negative(self.epsilon, "epsilon")
        require_fraction(self.delta)
        for name, kind in (("unit", Unit), ("adjacency", Adjacency)):
            if getattr(self, name) not in get_args(kind):
                raise ConfigurationError(
                    f"{name} must be one of {', '.join(get_args(kind))}; got {getattr(self, name)!r}", where=name
                )
        require_positive_integer(self.sites_per_patient, "sites_per_patient")

    def __str__(self) -> str:
        numbers = f"(epsilon {rounded_up(self.epsilon)}, delta {rounded_up(self.delta)})-differential privacy"
        promise = numbers if math.isfinite(self.epsilon) else "No differential privacy (epsilon is infinite)"
        sites = "one site" if self.sites_per_patient == 1 else f"up to {self.sites_per_patient} sites"
        return (
            f"{promise} for {_UNITS[self.unit]}: data sets are neighbours when "
            f"{_NEIGHBOURS[self.unit, self.adjacency]}; each patient is at {sites}{_REACH.get(self.unit, '')}."
            f"{_STATED if self.from_file else ''}"
        )

    def to_dict(self) -> dict[str, float | str]:
        """Return the numbers and terms as a mapping, for a file."""
        return {name: value for name, value in asdict(self).items() if name != "from_file"}

    @classmethod
    def stated_in_file(cls, terms: Mapping[str, Any]) -> Self:
        """Return the guarantee of a file.

        Raises
        ------
        ConfigurationError, TypeError
            The terms are not those of a guarantee.
        """
        for name in ("epsilon", "delta"):
            if type(terms.get(name)) not in (int, float):
                raise ConfigurationError(f"{name} must be a number; got {type(terms.get(name)).__name__}", where=name)
        return cls(**{name: value for name, value in terms.items() if name != "from_file"}, from_file=True)


def rounded_up(value: float) -> str:
    """Return a decimal of three significant digits that is at least `value`, up to a relative error of 1e-9.

    Examples
    --------
    >>> rounded_up(3.0001), rounded_up(3.0), rounded_down(3.0099)
    ('3.01', '3', '3')
    """
    return _rounded(value, ROUND_CEILING, 1 - 1e-9)


def rounded_down(value: float) -> str:
    """Return a decimal of three significant digits that is at most `value`, up to a relative error of 1e-9."""
    return _rounded(value, ROUND_FLOOR, 1 + 1e-9)


def _rounded(value: float, direction: str, slack: float) -> str:
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    exact = Decimal(repr(float(value) * slack))
    step = Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1)
    return f"{float((exact / step).to_integral_value(direction) * step):g}"


def guarantee_of(session: Session) -> Guarantee | None:
    """Return the guarantee of a fit; None without differential privacy."""
    if session.plan is None:
        return None
    terms = session.terms
    return guarantee_of_plan(session.plan, session.protection, terms.sites_per_patient, terms.counted)


def guarantee_of_plan(
    plan: Plan, protection: Protection = "unmasked", sites_per_patient: int = 1, counted: Counted = "patients"
) -> Guarantee:
    """Return the guarantee of a plan of noise for a patient of any site.

    Parameters
    ----------
    plan : Plan
    protection : {"unmasked", "masked"}
        Protection of summands.
    sites_per_patient : int, default 1
        Number of sites at which one patient may have records.
    counted : {"patients", "records"}
        Unit of the counts: "patients" if sites can assign records to patients. Otherwise the privacy unit is a record.

    Notes
    -----
    Sites have different patients, so the guarantee is that of one site. The loss of a patient at k sites is k times as
    large if each site adds separate noise. If sums are masked, one noise covers the sum, and a patient with k
    contributions changes the sum k times as much, so that rho is proportional to k squared. A round that is repeated
    after an interruption has its cost again. The sites' accounts include this cost; the plan does not.

    Examples
    --------
    >>> print(guarantee_of_plan(Plan(())))
    (epsilon 0, delta 1e-05)-differential privacy for one patient: data sets are neighbours when one has all
    records of one patient more (add or remove); each patient is at one site.
    """
    total = spent_by([plan], protection, sites_per_patient)
    unit = "record" if counted == "records" and plan.unit == "patient" else plan.unit
    return Guarantee(total.epsilon(plan.delta), plan.delta, unit, sites_per_patient=sites_per_patient)


def spent_by(plans: Iterable[Plan], protection: Protection = "unmasked", sites_per_patient: int = 1) -> Spent:
    """Return the privacy loss of a patient by all releases of some plans together.

    Parameters are those of :func:`guarantee_of_plan`.

    Examples
    --------
    >>> spent_by([Plan(()), Plan(())]).rho
    0.0
    """
    total = Spent()
    for planned in (release for plan in plans for release in plan.releases):
        shared = planned.step.summed and protection == "masked"
        total = total + cost_of(planned.noise, planned.times).at_sites(sites_per_patient, shared=shared)
    return total


def spent_in(ledgers: Mapping[str, Iterable[Entry]], sites_per_patient: int = 1) -> Spent:
    """Return the largest privacy loss of any patient by the releases in some ledgers.

    Parameters
    ----------
    ledgers : mapping of str to iterable of entries
        By site.
    sites_per_patient : int, default 1
        Number of sites at which one patient may have records.

    Examples
    --------
    >>> entry = {"rho": 0.02, "noise": {"mechanism": "gaussian"}, "protection": "unmasked"}
    >>> spent_in({"lyon": [entry, entry], "turin": [entry]}).rho
    0.04
    >>> spent_in({"lyon": [entry, entry], "turin": [entry]}, sites_per_patient=2).rho
    0.06
    """
    entries = {site: list(each) for site, each in ledgers.items()}
    unmasked = worst_patient({site: _noised(each, "unmasked") for site, each in entries.items()}, sites_per_patient)
    shared = worst_patient({site: _noised(each, "masked") for site, each in entries.items()})
    return unmasked + shared.at_sites(sites_per_patient, shared=True)


def _noised(entries: Iterable[Entry], protection: Protection) -> Spent:
    total = Spent()
    for entry in entries:
        if "rho" in entry and entry["protection"] == protection:
            total = total + Spent(entry["rho"], entry["noise"]["mechanism"] == "gaussian")
    return total
