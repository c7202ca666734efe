"""The disclosure card of a whole study: its method, the alignment before it, and the validation beside it.

No minimum of patients protects a value about a single one. What the card says of such values in a steward's words is
made here from what the steps declare.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multicentre.data.identifiers import IDENTIFIER
from multicentre.federation.engine import Protection
from multicentre.federation.steps import SitePart, Step
from multicentre.privacy.card import DisclosureCard, disclosure_card
from multicentre.privacy.policy import RELATIONS, Policy
from multicentre.studies.validating import validation_cards

if TYPE_CHECKING:
    from multicentre.estimator import FederatedEstimator
    from multicentre.studies.study import Study

PSEUDONYMS = (
    "alignment: the coordinator gets a keyed pseudonym of every patient with an identifier, the same at all sites of "
    "this study. It learns which pseudonyms are at which sites; without the key it cannot tell whose they are. Whoever "
    "holds the key can test whether a person whose identifier they know is among the patients."
)
EVERYONE = (
    "patients whom only some sites have are taken in: every site gets the pseudonyms of all patients, holds the key, "
    "and could look for a person whose identifier it knows."
)
MASKED = (
    "about single patients and pairs of them, under pseudonyms: who resembles whom, and how much. No minimum of "
    "patients stands behind such a value. The coordinator sees the sum over the sites, and no site's own share."
)
OF_TWO = (
    "with two sites that sum hides little: whoever has it and one site's share has the other's, patient by patient, "
    "from which rows may be found up to a rotation. It takes a third site, or a coordinator whom both trust."
)
DENSE = (
    "lets a site's own table leave unmasked (relations = \"dense\"). The inner products of its patients' rows, hence "
    "the rows themselves up to a rotation, can be computed from it. Policies refuse it by default; masked sums "
    "(secure_sum = true) do without it."
)
LISTED = (
    'tells the coordinator, site by site and unmasked (relations = "listed"), which patients of the site are most '
    "alike and how much, under pseudonyms."
)


@dataclass(frozen=True)
class _Asked:
    """A step that tells of single patients, as it would be asked."""

    step: Step[Any, Any, Any]
    protection: Protection

    @property
    def is_masked(self) -> bool:
        return self.step.summed and self.protection == "masked"

    @property
    def permissions(self) -> list[str]:
        """What a policy must say; a sum that is not masked shows a site's whole table."""
        given = {declaration.permission for declaration in self.step.releases.declarations().values()}
        bare = self.step.summed and not self.is_masked
        return sorted("relations=dense" if bare and one == "relations=summed" else one for one in given)

    @property
    def level(self) -> int:
        """How much a policy must allow of relations, as the place of its level among all."""
        return max(RELATIONS.index(one.partition("=")[2]) for one in self.permissions)

    def lacks(self, policy: Policy) -> str:
        """Return what a policy would have to say for the step to be answered, empty where it says so."""
        return next((lacking for one in self.permissions if (lacking := policy.lacks(one))), "")

    def needs(self, level: str) -> bool:
        return f"relations={level}" in self.permissions


def complete_card(card: DisclosureCard, study: Study, estimator: FederatedEstimator) -> DisclosureCard:
    """Return the card of a study's method with what the study lets out besides, and notes for the steward.

    Steps about single patients that every site's policy refuses are left out, for nothing of them can leave; a note
    names them.

    Parameters
    ----------
    card : DisclosureCard
        Of the method alone.
    study : Study
    estimator : FederatedEstimator
        The study's.
    """
    if estimator.aligned_by is None:
        return card.joined(*validation_cards(study))
    policies = list(study.policies.values())
    protection: Protection = "masked" if study.privacy.secure_sum else "clear"
    terms: dict[str, Any] = {"protection": protection, "n_sites": len(study.sites)}
    loosest = min(policies, key=lambda policy: policy.min_patients)
    aligning = disclosure_card(estimator.aligned_by, policy=loosest, **terms)
    asked = list(_individual(estimator, protection))
    refused = {one.step.name: one.lacks(policies[0]) for one in asked if all(map(one.lacks, policies))}
    held = [one for one in asked if one.step.name not in refused]
    notes = [*_key_notes(study, estimator), *_notes(held, n_sites=len(study.sites)), *_told_to_sites(estimator)]
    notes += _refusals(refused)
    whole = _without(aligning.joined(card), refused)
    return dataclasses.replace(whole, warnings=(*notes, *whole.warnings))


def describe_method(estimator: type[FederatedEstimator]) -> DisclosureCard:
    """Return the card of a method, whatever its parameters, with notes on what it tells of single patients.

    Examples
    --------
    >>> from multicentre.clustering import FedMSGL
    >>> describe_method(FedMSGL).method
    'alignment, fed-msgl'
    """
    card = estimator.disclosure_card()
    if estimator.aligned_by is None:
        return card
    steps = estimator.site_part.steps().values()
    found = [_Asked(step, "clear") for step in steps if step.releases.individual]
    masked = [_Asked(one.step, "masked") for one in found if one.step.summed]
    return dataclasses.replace(card, warnings=(PSEUDONYMS, *_notes([*masked, *found], n_sites=2), *card.warnings))


def find_objections(study: Study, estimator: FederatedEstimator, policy: Policy) -> list[str]:
    """Return what a policy refuses of what a study has to know of single patients.

    Of several ways to learn it, the one that needs the least counts.
    """
    protection: Protection = "masked" if study.privacy.secure_sum else "clear"
    lacking = [one.lacks(policy) for one in _aligning(estimator, protection)]
    mildest_first = sorted(_individual(estimator, protection), key=lambda one: one.level)
    lacking += [one.lacks(policy) for one in mildest_first[:1]]
    objections = [f"it would have to say {one}" for one in dict.fromkeys(lacking) if one]
    if estimator.aligned_by is not None and policy.secure_sums_only:
        objections.append("only masked sums may leave, and pseudonyms are no sum")
    return objections


def _aligning(estimator: FederatedEstimator, protection: Protection) -> Iterator[_Asked]:
    if estimator.aligned_by is not None:
        yield from _of_part(estimator.aligned_by, protection, estimator.aligned_by.steps())


def _individual(estimator: FederatedEstimator, protection: Protection) -> Iterator[_Asked]:
    return _of_part(estimator.site_part, protection, estimator.asked_steps())


def _of_part(part: type[SitePart], protection: Protection, asked: Collection[str]) -> Iterator[_Asked]:
    for name, step in part.steps().items():
        if name in asked and step.releases.individual:
            yield _Asked(step, protection)


def _notes(asked: Iterable[_Asked], *, n_sites: int) -> list[str]:
    """Return what a steward should know of each way in which relations of patients leave."""
    steps = list(asked)
    masked = _named(one for one in steps if one.is_masked)
    dense = _named(one for one in steps if one.needs("dense"))
    listed = _named(one for one in steps if one.needs("listed"))
    notes = [f"{masked}: {MASKED}"] if masked else []
    notes += [OF_TWO] if masked and n_sites == 2 else []
    notes += [f"{dense}: {DENSE}"] if dense else []
    return [*notes, *([f"{listed}: {LISTED}"] if listed else [])]


def _key_notes(study: Study, estimator: FederatedEstimator) -> list[str]:
    parameters = estimator.get_params(deep=False)
    key = "the key of pseudonyms" if study.privacy.pseudonym_key else "a key that follows from the study's name"
    column = parameters.get("person_key")
    column = study.data.id_column if column == IDENTIFIER and not study.data.identifiers else column
    read = f"the identifier {column!r} is read and hashed at the site, under {key}."
    return [PSEUDONYMS, read, *([EVERYONE] if parameters.get("incomplete") else [])]


def _told_to_sites(estimator: FederatedEstimator) -> list[str]:
    """Return which steps tell every site of all patients: their asks hold a row of numbers for each."""
    told = {
        name: [one.what for one in step.asks.declarations().values() if one.kind == "array" and "n" in one.shape]
        for name, step in estimator.site_part.steps().items()
        if name in estimator.asked_steps()
    }
    return [
        f"{name} sends every site, of all patients of all sites: {'; '.join(fields)}."
        for name, fields in told.items()
        if fields
    ]


def _refusals(refused: Mapping[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, why in refused.items():
        by_reason.setdefault(why, []).append(name)
    return [
        f"{', '.join(names)}: not on this card, for no site's policy says {why}." for why, names in by_reason.items()
    ]


def _named(steps: Iterable[_Asked]) -> str:
    return ", ".join(dict.fromkeys(one.step.name for one in steps))


def _without(card: DisclosureCard, steps: Collection[str]) -> DisclosureCard:
    return dataclasses.replace(
        card,
        lines=tuple(line for line in card.lines if line.step not in steps),
        steps=tuple((name, purpose) for name, purpose in card.steps if name not in steps),
        individual=tuple(name for name in card.individual if name not in steps),
    )
