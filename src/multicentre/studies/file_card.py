"""Disclosure card of a study file, as ``multicentre card STUDY.toml`` prints it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.card import REFUSES, DisclosureCard
from multicentre.studies.brief import Brief, brief_of
from multicentre.studies.disclosure_cards import card_maker, study_card
from multicentre.studies.policy_conflicts import study_objections
from multicentre.studies.study import Study
from multicentre.studies.study_file import read_study


def card_of_file(path: Path) -> tuple[Brief, DisclosureCard]:
    """Return the brief and the card of a study file, with the objections of its sites' policies; no data are read.

    Raises
    ------
    ConfigurationError
        The study or its key of pseudonyms cannot be used.
    """
    study = read_study(path)
    if study.privacy.pseudonym_key is not None:
        PseudonymKey.read(study.privacy.pseudonym_key)
    card = study_card(study)
    brief = brief_of(study, card_maker(study))
    return brief, dataclasses.replace(card, warnings=(*card.warnings, *_objections(study)))


def _objections(study: Study) -> list[str]:
    """Return the sites whose policies will refuse the study, with the reasons."""
    return [
        f"{site}'s policy {REFUSES}: {objection.reason}."
        for site, policy in study.policies.items()
        for objection in study_objections(study, policy)
    ]
