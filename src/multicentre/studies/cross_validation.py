"""Cross-validation of a study's method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from multicentre.core.calls import Protection
from multicentre.core.consortium import Consortium
from multicentre.core.published_counts import published
from multicentre.data.identifiers import IDENTIFIER
from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Figure, Table
from multicentre.privacy.card import DisclosureCard, disclosure_card
from multicentre.privacy.patient_counts import Counted
from multicentre.privacy.policy import loosest_of
from multicentre.studies.study import Study, make_estimator

SAFE = "No person is in both parts of a fold, if the key of the folds is the same at every site."

# Folds of which the sites compute pseudonyms of their patients.
_HASHES_PEOPLE = ("hashed-folds", "site-folds")

if TYPE_CHECKING:
    from multicentre.studies.tables import ValidationTable
    from multicentre.validation.cross_validation import CVResult
    from multicentre.validation.folds.splitter import FoldSplitter


def cross_validate_study(study: Study, federation: Consortium) -> CVResult:
    """Cross-validate a study's method over its federation, according to ``[validation]``.

    Raises
    ------
    ConfigurationError
        The study has no cross-validation, or the method lacks a requested score.
    """
    from multicentre.validation.cross_validation import cross_validate

    settings = study.validation
    if settings is None:
        raise ConfigurationError(
            "the study must have a table [validation]; it has none", where="validation", hint="Add the table."
        )
    return cross_validate(
        make_estimator(study),
        federation,
        cv=make_splitter(study, settings),
        scoring=settings.scores,
        allow_leakage=settings.allow_leakage,
        by_site=settings.by_site,
    )


def validation_cards(study: Study, counted: Counted) -> list[DisclosureCard]:
    """Return the disclosure cards of the folds and of the scores of a study's cross-validation.

    Parameters
    ----------
    study : Study
    counted : {"patients", "records"}
        Unit that sites can count.
    """
    from multicentre.validation.scoring.scores import find_evaluator

    if study.validation is None:
        return []
    loosest = loosest_of(study.policies.values())
    splitter = make_splitter(study, study.validation)
    parts = (splitter.site_part, find_evaluator(make_estimator(study)).part)
    protection: Protection = "masked" if study.masked else "unmasked"
    n_sites = len(study.sites)
    settings = study.validation
    fixed = {"n_splits": n_sites if settings.strategy == "site" else settings.folds}
    folds, scores = (
        disclosure_card(
            part,
            protection=protection,
            n_sites=n_sites,
            policy=loosest,
            counted=counted,
            parameters=fixed,
        )
        for part in parts
    )
    return [replace(folds, warnings=(*folds.warnings, *_notes(study, settings, splitter))), scores]


def _notes(study: Study, settings: ValidationTable, splitter: FoldSplitter) -> list[str]:
    """Return notes for the steward on the releases of a cross-validation."""
    fits = f"{settings.folds} folds" if settings.repeats == 1 else f"{settings.repeats} times {settings.folds} folds"
    times = "a fold for each site" if settings.strategy == "site" else fits
    repetition = (
        f"cross-validation: the fit, with all its releases, is repeated for each fold ({times}) on the records of the "
        "other folds, and each fold's model is sent to every site with records to be scored."
    )
    difference = (
        "two releases about records that differ by one fold reveal information on that fold; min_difference in a "
        f"policy is the minimum number of patients by which they differ, and is {study.min_difference or 'off'} here."
    )
    notes = [repetition, difference]
    if hasattr(splitter, "person_key"):
        key = "the key of pseudonyms" if study.privacy.pseudonym_key else "a key derived from the study's name"
        notes.append(f"the identifier {splitter.person_key!r} is read and hashed at the site, under {key}.")
    if settings.strategy == "site" and settings.drop_shared:
        notes.append("each site learns which of its patients are also at another site: their records are in no fold.")
    if settings.by_site:
        notes.append("each site releases its own scores unmasked, unless by_site = false.")
    return notes


def needs_pseudonym_key(study: Study) -> bool:
    """Return whether real sites need a key of pseudonyms for the study, and it names none.

    Examples
    --------
    >>> from multicentre.studies.study_file import study_from_mapping
    >>> content = {"study": {"name": "pilot", "method": "fed-cox"}, "sites": {"lyon": {}}, "validation": {"folds": 3}}
    >>> needs_pseudonym_key(study_from_mapping(content | {"data": {"survival": {}, "identifiers": ["born"]}}))
    True
    """
    if study.privacy.pseudonym_key is not None:
        return False
    validated = [part for part in study.split().values() if part.validation is not None]
    methods = {make_splitter(part, part.validation).site_part.method for part in validated if part.validation}
    return study.is_vertical or not methods.isdisjoint(_HASHES_PEOPLE)


def make_splitter(study: Study, settings: ValidationTable) -> FoldSplitter:
    """Return the splitter that ``[validation]`` describes.

    A person is identified by the first of the study's identifiers, unless another is named.

    Examples
    --------
    >>> from multicentre.studies.study_file import study_from_mapping
    >>> content = {"study": {"name": "pilot", "method": "fed-cox"}, "sites": {"lyon": {}}, "validation": {"folds": 3}}
    >>> study = study_from_mapping(content | {"data": {"survival": {}, "identifiers": ["born"]}})
    >>> make_splitter(study, study.validation).get_n_splits()
    3
    """
    from multicentre import validation

    key = settings.person_key or (study.data.identifiers or [IDENTIFIER])[0]
    if settings.strategy == "random":
        return validation.FederatedKFold(
            settings.folds, patient_key=settings.patient_key, random_state=study.about.seed
        )
    if settings.covariate is not None:
        return validation.CovariateFoldKFold(
            settings.folds,
            covariate=settings.covariate,
            scheme=settings.scheme,
            kind="date" if settings.kind == "date" else "number",
            date_order=settings.date_orders or "iso",
            patient_key=settings.patient_key,
        )
    hashed: dict[str, Any] = {"person_key": key, "kind": settings.kind, "date_order": settings.date_orders or "iso"}
    if settings.strategy == "site":
        return validation.LeaveOneSiteOut(drop_shared=settings.drop_shared, **hashed)
    hashed["patient_key"] = settings.patient_key
    if settings.repeats > 1:
        return validation.RepeatedHashGroupKFold(settings.folds, n_repeats=settings.repeats, **hashed)
    return validation.HashGroupKFold(settings.folds, **hashed)


def cross_validation_results(result: CVResult) -> dict[str, Any]:
    """Return the contents of ``cross-validation.json``: plans, and scores by fold and by fold and site."""
    folds = {name: np.asarray(result[f"test_{name}"]).tolist() for name in result.scores}
    sites = {name: np.asarray(result[f"site_test_{name}"]).tolist() for name in result.scores}
    return {
        "strategy": result["plans"][0].strategy,
        "duplicate_safe": result["plans"][0].duplicate_safe,
        "folds": [[published(n) for n in plan.counts.tolist()] for plan in result["plans"]],
        "records_in_no_fold": [published(plan.n_excluded) for plan in result["plans"]],
        "records_left_out": [published(plan.n_left_out) for plan in result["plans"]],
        "records": [published(n) for n in np.asarray(result["n_test"]).tolist()],
        "scores": folds,
        "sites": list(result["sites"]),
        "site_scores": sites,
        "held_out": _plain(result["held_out"]),
        "left_out": result["left_out"],
        "summary": result.summary().to_dict(orient="index"),
    }


def _plain(profiles: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """Return the scores of held-out sites with None for those that a site withholds, as JSON has no NaN."""
    return {
        site: {name: value if np.isfinite(value) else None for name, value in scores.items()}
        for site, scores in profiles.items()
    }


def show_cross_validation(result: CVResult) -> list[Figure]:
    """Return a table of scores with their spread over the folds."""
    plan = result["plans"][0]
    safe = SAFE if plan.duplicate_safe else "Duplicated patients may make scores too optimistic."
    rows: list[list[str | float | None]] = [
        [str(name), float(row["mean"]), float(row["standard_error"]), float(row["min"]), float(row["max"])]
        for name, row in result.summary().iterrows()
    ]
    from multicentre.validation.held_out import show_sites

    by_site = show_sites(result["held_out"]) if result["held_out"] else []
    return [
        Table(
            f"Scores of held-out patients, {len(result['n_test'])} folds ({plan.strategy})",
            " ".join(filter(None, ["Greater is better.", safe, result.absences, result.exclusions])),
            "comparison",
            ("score", "mean", "standard error", "worst fold", "best fold"),
            rows,
        ),
        *by_site,
    ]
