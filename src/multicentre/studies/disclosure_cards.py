"""Disclosure card of a study: its method, the alignment before the fit, and the cross-validation.

A minimum number of patients does not protect a value about a single patient. This module derives the notes on such
values from the declarations of the steps.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from multicentre.core.steps import SitePart
from multicentre.data.flow import FlowPart
from multicentre.data.identifiers import IDENTIFIER
from multicentre.privacy.card import DisclosureCard, disclosure_card
from multicentre.privacy.guarantee import rounded_up, spent_by
from multicentre.privacy.ledger import Entry, Ledger
from multicentre.privacy.policy import loosest_of
from multicentre.studies.by_site import by_site_note
from multicentre.studies.cross_validation import validation_cards
from multicentre.studies.policy_conflicts import (
    StepRequest,
    aligning_steps,
    fitting_requests,
    fitting_steps,
    protection_of,
)
from multicentre.studies.saved_models import list_models, replace_models
from multicentre.studies.study import make_estimators
from multicentre.studies.subgroups import conditions_of
from multicentre.validation.folds.subgroups import SUBGROUP_STEPS, SubgroupFolds

if TYPE_CHECKING:
    from multicentre.estimator.base import FederatedEstimator
    from multicentre.studies.study import Study

PSEUDONYMS = (
    "alignment: the coordinator receives a keyed pseudonym of every patient with an identifier, the same at all sites "
    "of this study. It learns which pseudonyms are at which sites; without the key it cannot identify the patients. "
    "A holder of the key can test whether a person whose identifier they have is among the patients."
)

EVERYONE = (
    "patients of only some sites are included: every site receives the pseudonyms of all patients, holds the key, "
    "and could search for a person whose identifier it has."
)

MASKED = (
    "about single patients and pairs of them, under pseudonyms: similarities of patients. No minimum number of "
    "patients applies to such a value. The coordinator sees the sum over the sites, and no site's share."
)

OF_TWO = (
    "with two sites, that sum protects little: the sum and one site's share give the other site's share, patient by "
    "patient, from which rows may be computed up to a rotation. Add a third site, or use a coordinator that both trust."
)

DENSE = (
    "releases a site's table of relations unmasked (relations = \"dense\"). The inner products of its patients' rows, "
    "hence the rows themselves up to a rotation, can be computed from it. Policies refuse it by default; masked sums "
    "(secure_sum = true) do not need it."
)

SIMULATED_KEY = "a key derived from the study's name (for simulations only: anyone can compute it)"

ORDER = (
    "every site receives the common order of the patients who are at all sites, and therefore learns which of its "
    "patients are at all other sites."
)

UNNOISED = (
    "no differential privacy: sums of many patients are exact, and values about single patients and pairs of them "
    "are released without noise."
)

TERMS = ("n_clusters", "share_penalty", "orthogonality_penalty", "n_neighbors", "n_rounds", "max_iter", "tol")

SAVED_VALUES = {"labels_": "cluster", "embedding_": "embedding", "affinity_": "affinity to others"}

LISTED = (
    'releases to the coordinator, per site and unmasked (relations = "listed"), the most similar patients of the site '
    "and their similarities, under pseudonyms."
)


def complete_card(card: DisclosureCard, study: Study, estimator: FederatedEstimator) -> DisclosureCard:
    """Add the alignment, the cross-validation and notes for the steward to the card of a study's method.

    Steps about single patients that every site's policy refuses are left out, since they release nothing. A note names
    them.

    Parameters
    ----------
    card : DisclosureCard
        Card of the method.
    study : Study
    estimator : FederatedEstimator
        Estimator of the study.
    """
    if estimator.aligned_by is None:
        joined = card.joined(*validation_cards(study, card.counted))
        by_site = [by_site_note(variables)] if (variables := study.about.by_site) else []
        return dataclasses.replace(joined, warnings=(*by_site, *_model_notes(study), *joined.warnings))
    policies, protection = list(study.policies.values()), protection_of(study)
    alignment_card = disclosure_card(
        estimator.aligned_by,
        protection=protection,
        n_sites=len(study.sites),
        policy=loosest_of(policies),
        requested=aligning_steps(estimator),
        counted=card.counted,
        parameters=estimator.get_params(deep=False),
    )
    requests = list(fitting_requests(estimator, protection))
    refused = {one.step.name: one.lacks(policies[0]) for one in requests if all(map(one.lacks, policies))}
    allowed = [one for one in requests if one.step.name not in refused]
    notes = [*_key_notes(study, estimator), *_notes(allowed, n_sites=len(study.sites)), *_broadcast_notes(estimator)]
    notes += [
        *_refusals(refused),
        *_terms(estimator),
        _saved_values(estimator),
        _acknowledgement_note(study, estimator),
    ]
    method = _without(card, estimator.planned_steps() - fitting_steps(estimator, protection))
    return _with_notes(_without(alignment_card.joined(method), refused), notes)


def describe_method(estimator: type[FederatedEstimator]) -> DisclosureCard:
    """Return the card of a method for any parameters, with notes on its values about single patients.

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
    unmasked = [StepRequest(step, "unmasked") for step in steps if step.releases.individual]
    masked = [StepRequest(one.step, "masked") for one in unmasked if one.step.summed]
    return _with_notes(card, [PSEUDONYMS, *_notes([*masked, *unmasked], n_sites=2)])


def _notes(requests: Iterable[StepRequest], *, n_sites: int) -> list[str]:
    """Return notes for the steward on each form in which relations of patients are released."""
    steps = list(requests)
    masked = _step_names(one for one in steps if one.is_masked)
    dense = _step_names(one for one in steps if one.needs("dense"))
    listed = _step_names(one for one in steps if one.needs("listed"))
    notes = [f"{masked}: {MASKED}"] if masked else []
    notes += [OF_TWO] if masked and n_sites == 2 else []
    notes += [f"{dense}: {DENSE}"] if dense else []
    return [*notes, *([f"{listed}: {LISTED}"] if listed else [])]


def _key_notes(study: Study, estimator: FederatedEstimator) -> list[str]:
    parameters = estimator.get_params(deep=False)
    key = "the key of pseudonyms" if study.privacy.pseudonym_key else SIMULATED_KEY
    column = parameters.get("person_key")
    column = study.data.id_column if column == IDENTIFIER and not study.data.identifiers else column
    hashing = f"the identifier {column!r} is read and hashed at the site, under {key}."
    return [PSEUDONYMS, hashing, EVERYONE if parameters.get("incomplete") else ORDER]


def _model_notes(study: Study) -> list[str]:
    """Return a note on each fitted model among the parameters."""
    return [
        f"{model.parameter}: a fitted model with SHA-256 {model.sha256}. Review it before approval: a model chosen to "
        "single out patients would disclose them in a sum."
        for model in list_models(study.parameters)
    ]


def _broadcast_notes(estimator: FederatedEstimator) -> list[str]:
    """Return notes on the steps whose requests send every site a row of numbers per patient of all sites."""
    fields_by_step = {
        name: [
            one.what for one in step.request_type.declarations().values() if one.kind == "array" and "n" in one.shape
        ]
        for name, step in estimator.site_part.steps().items()
        if name in estimator.planned_steps()
    }
    return [
        f"{name} sends every site, of all patients of all sites: {'; '.join(fields)}."
        for name, fields in fields_by_step.items()
        if fields
    ]


def _terms(estimator: FederatedEstimator) -> list[str]:
    """Return a note on the parameters that determine the information in relations."""
    parameters = estimator.get_params(deep=False)
    settings = [f"{name} = {parameters[name]}" for name in TERMS if parameters.get(name) is not None]
    return [f"parameters of the fit: {', '.join(settings)}."] if settings else []


def _saved_values(estimator: FederatedEstimator) -> str:
    """Return a note on the saved model's values per patient, from the attributes that the estimator declares."""
    declared = [name for kind in type(estimator).__mro__ for name in inspect.get_annotations(kind)]
    contents = [description for name, description in SAVED_VALUES.items() if name in declared]
    return f"the saved model at the coordinator contains, per patient: pseudonym, {', '.join(contents)}."


def _acknowledgement_note(study: Study, estimator: FederatedEstimator) -> str:
    """Return a note on the entries of a ledger that concern no patient."""
    steps_of = {estimator.aligned_by: aligning_steps(estimator), estimator.site_part: estimator.planned_steps()}
    names = [
        step.name
        for part, step_names in steps_of.items()
        if part is not None
        for step in part.steps().values()
        if step.name in step_names and not step.releases.concerns_patients
    ]
    sums = ", and the keys of masked sums (method secure-sum)" if study.masked else ""
    return f"the ledger also holds keys and acknowledgements, which concern no patient: {', '.join(names)}{sums}."


def _refusals(refused: Mapping[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in refused.items():
        by_reason.setdefault(reason, []).append(name)
    return [
        f"{', '.join(names)}: not on this card, since no site's policy has {reason}."
        for reason, names in by_reason.items()
    ]


def _step_names(steps: Iterable[StepRequest]) -> str:
    return ", ".join(dict.fromkeys(one.step.name for one in steps))


def _with_notes(card: DisclosureCard, notes: Iterable[str]) -> DisclosureCard:
    """Put notes on single patients before the warnings of a card."""
    warnings = [UNNOISED if one.startswith("no differential privacy") else one for one in card.warnings]
    return dataclasses.replace(card, warnings=(*notes, *warnings))


def _without(card: DisclosureCard, steps: Collection[str]) -> DisclosureCard:
    return dataclasses.replace(
        card,
        lines=tuple(line for line in card.lines if line.step not in steps),
        steps=tuple((name, purpose) for name, purpose in card.steps if name not in steps),
        individual=tuple(name for name in card.individual if name not in steps),
    )


def study_card(study: Study) -> DisclosureCard:
    """Return the disclosure card of a study with all its analyses, under the loosest of its sites' policies."""
    return join_cards(study, card_maker(study))


def card_maker(study: Study) -> Callable[[FederatedEstimator], DisclosureCard]:
    """Return the function from an estimator of a study to the card of its method, see :func:`study_card`."""

    def card_of(estimator: FederatedEstimator) -> DisclosureCard:
        return disclosure_card(
            estimator.site_part,
            protection=protection_of(study),
            n_sites=len(study.sites),
            policy=loosest_of(study.policies.values()),
            plan=estimator.privacy_plan(),
            sites_per_patient=study.privacy.sites_per_patient,
            requested=estimator.planned_steps(),
            counted=study.data.counted,
            parameters=estimator.get_params(deep=False),
        )

    return card_of


def join_cards(study: Study, card_of: Callable[[FederatedEstimator], DisclosureCard]) -> DisclosureCard:
    """Return one card for all analyses of a study.

    Parameters
    ----------
    study : Study
    card_of : callable
        Returns the card of the method of an estimator.
    """
    cards, notes, estimators = [], [], make_estimators(study)
    for name, part in study.split().items():
        estimator = estimators[name]
        card = complete_card(card_of(estimator), part, estimator)
        cards.append(card.of_analysis(name))
        notes += [_analysis_note(name, part, card)] if name else []
    joined = cards[0].joined(*cards[1:], *_cohort_cards(study))
    notes = [*_cohort_notes(study), *notes, *_sum_note(study), _difference_note(study)]
    return dataclasses.replace(joined, warnings=(*notes, *joined.warnings))


def _cohort_cards(study: Study) -> list[DisclosureCard]:
    """Return the cards of the numbers of records that a study leaves out, and of its subgroups."""
    parts: dict[type[SitePart], Collection[str]] = {FlowPart: FlowPart.steps()} if study.data.selects else {}
    if conditions_of(study):
        parts[SubgroupFolds] = SUBGROUP_STEPS
    return [
        disclosure_card(
            part,
            protection=protection_of(study),
            n_sites=len(study.sites),
            policy=loosest_of(study.policies.values()),
            requested=steps,
            counted=study.data.counted,
        )
        for part, steps in parts.items()
    ]


def _cohort_notes(study: Study) -> list[str]:
    """Return a note on the records that all analyses are about."""
    terms = [f"where {study.data.where}"] if study.data.where else []
    if (complete := study.data.complete) is not None:
        terms.append(f"with {'all variables' if complete == 'all' else ', '.join(complete)} recorded")
    notes = [f"all analyses are about the records {' and '.join(terms)}."] if terms else []
    for block in study.analyses:
        parts = [f"about the records where {block.where}"] if block.where else []
        parts += [f"repeated by level of {', '.join(block.subgroups)}"] if block.subgroups else []
        notes += [f"analysis {block.name}: {'; '.join(parts)}."] if parts else []
    return notes


def _analysis_note(name: str, part: Study, card: DisclosureCard) -> str:
    """Return a note on the method, the parameters and the steps of one of several analyses."""
    values = replace_models(part.parameters, lambda model: f"SHA-256 {model.sha256}")
    parameters = ", ".join(f"{key} = {value}" for key, value in values.items()) or "defaults"
    steps = ", ".join(dict.fromkeys(step for step, _ in card.steps))
    return f"analysis {name}: {card.method}; parameters: {parameters}; steps: {steps}."


def _difference_note(study: Study) -> str:
    """Return a note on the smallest difference between the patients of two answers."""
    if least := study.min_difference:
        return f"any two answers are about the same patients, or differ by at least {least} (min_difference = {least})."
    return "answers are not compared (min_difference): the difference of two may be the row of one patient."


def _sum_note(study: Study) -> list[str]:
    """Return a note on the privacy loss of all analyses together, if several add noise."""
    plans = [plan for each in make_estimators(study).values() if (plan := each.privacy_plan()) is not None]
    if len(plans) < 2:
        return []
    delta = max(plan.delta for plan in plans)
    spent = spent_by(plans, protection_of(study), study.privacy.sites_per_patient)
    return [
        f"all {len(plans)} analyses with noise together: epsilon {rounded_up(spent.epsilon(delta))} at delta {delta:g}."
    ]


def summarise_ledgers(ledgers: Mapping[str, Ledger]) -> dict[str, Any]:
    """Return releases by site, step and field, refusals, and the end of each ledger.

    Parameters
    ----------
    ledgers : mapping from str to Ledger
        Ledger by site.

    Returns
    -------
    dict
        ``released`` (total times, values and bytes, fewest records and patients behind a value, protection; without
        number of patients if the patients of the records are unknown), ``refused`` and ``ledgers`` (number of entries
        and hash of the last).
    """
    return {
        "released": [row for site, ledger in ledgers.items() for row in _release_rows(site, ledger.entries)],
        "refused": [
            {"site": site, "step": entry["step"], "reason": entry["reason"]}
            for site, ledger in ledgers.items()
            for entry in ledger.entries
            if entry["event"] == "refusal"
        ],
        "ledgers": {
            site: {"entries": ledger.head.entries, "hash": ledger.head.hash} for site, ledger in ledgers.items()
        },
    }


def concerns_patients(entry: Entry) -> bool:
    """Return whether a ledger's entry records a release computed from patients, or a refusal."""
    return entry["event"] == "refusal" or any(_counts(field)[0] is not None for field in entry.get("fields", ()))


def _release_rows(site: str, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for entry in entries:
        for field in entry.get("fields", ()):
            key = (entry["step"], field["field"], entry["protection"])
            start = {"site": site, "step": key[0], "field": key[1], "times": 0, "numbers": 0, "bytes": 0}
            row = rows.setdefault(key, {**start, "records_min": None, "patients_min": None, "protection": key[2]})
            row["times"] += 1
            row["numbers"] += math.prod(field["shape"])
            row["bytes"] += field["bytes"]
            for counted, behind in zip(("records_min", "patients_min"), _counts(field), strict=True):
                row[counted] = _fewest(row[counted], behind)
    return list(rows.values())


def _counts(field: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return records and patients behind a field; ledgers of earlier versions have one number for both."""
    return field.get("records", field["patients"]), field["patients"]


def _fewest(so_far: int | None, count: int | None) -> int | None:
    """Return the smaller positive count; a count of 0 belongs to the zeros of a view that the site lacks."""
    if not count:
        return so_far
    return count if so_far is None else min(so_far, count)
