"""``multicentre card``: the disclosure card of a method or study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multicentre.cli.console import AsJson, handle_errors, notify, show, show_json

if TYPE_CHECKING:
    from multicentre.privacy.card import DisclosureCard


@handle_errors
def card(
    subject: Annotated[str, typer.Argument(metavar="METHOD|STUDY.toml", help="Name of a method, or a study file.")],
    fields: Annotated[bool, typer.Option("--fields", help="Of a study, print every field that may leave.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what a study asks for, or a method releases.

    For a method, every field that would leave. No data are read.
    """
    from multicentre.studies.file_card import card_of_file

    if not _is_file(subject):
        method_card = _method_card(subject)
        return show_json(method_card.to_dict()) if as_json else show(str(method_card))
    brief, study_card = card_of_file(Path(subject))
    if as_json:
        return show_json({**study_card.to_dict(), "brief": brief.to_dict()})
    show(f"{brief.text(fields=fields)}\n\n{study_card.text(fields=fields)}")
    if not fields:
        notify(f"Print every field: multicentre card {subject} --fields")
    return None


def _is_file(subject: str) -> bool:
    return subject.endswith(".toml") or Path(subject).is_file()


def _method_card(name: str) -> DisclosureCard:
    from multicentre.estimator.base import find_estimator
    from multicentre.estimator.registry import PARTS, find_part
    from multicentre.privacy.card import disclosure_card
    from multicentre.studies.disclosure_cards import describe_method

    return disclosure_card(find_part(name)) if name in PARTS else describe_method(find_estimator(name))
