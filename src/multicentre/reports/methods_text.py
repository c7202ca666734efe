"""Methods paragraph and bibliography of a run, to paste into a paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from multicentre.reports.citation import SOFTWARE_KEY, Reference, method_sentence, references_of, software_entry
from multicentre.reports.formats import format_total
from multicentre.reports.machine_paths import value_without_folders
from multicentre.reports.run_contents import Analysis, RunContents

_PROTECTION = {
    "masked": "No patient's row left its site; sums left masked: the coordinator could read only their totals.",
    "unmasked": "No patient's row left its site; sums left unmasked and were added by the coordinator.",
}


def methods_paragraph(contents: RunContents) -> str:
    """Return the paragraph: sites, software, methods with their parameters, protection, missing values."""
    run, environment = contents.run, contents.environment
    names = [site.name for site in run.sites if site.name not in run.left_out]
    total = format_total([site.patients for site in run.sites if site.name in names], run.min_patients)
    counted = "the patients" if run.vertical or not total[-1].isdigit() else f"{total} {run.counted}"
    kind = "simulated sites" if run.simulated else "sites"
    software = f"multicentre {environment.multicentre} [{SOFTWARE_KEY}] under Python {environment.python}"
    sentences = [f"We analysed {counted} of {len(names)} {kind} with {software}.", _PROTECTION[run.protection]]
    for analysis in contents.analyses:
        sentences.append(_method(analysis))
        if analysis.entry.missing:
            sentences.append(analysis.entry.missing)
    return " ".join([*dict.fromkeys(sentences), *([run.privacy] if run.privacy else [])])


def bibliography(contents: RunContents) -> str:
    """Return the BibTeX entries of the software and of the methods."""
    entries = [software_entry(contents.environment.multicentre, contents.run.started.year)]
    references = [one for analysis in contents.analyses for one in _references(analysis)]
    return "\n\n".join(dict.fromkeys([*entries, *(reference.bibtex() for reference in references)]))


def _method(analysis: Analysis) -> str:
    method = analysis.entry.method
    sentence = method_sentence(method, _parameters(analysis), _references(analysis))
    return f"{analysis.entry.title}: {sentence}" if analysis.entry.title else sentence


def _parameters(analysis: Analysis) -> Mapping[str, Any]:
    """Return the parameters that the study sets, without lists and tables too long for a sentence."""
    parameters: Mapping[str, Any] = value_without_folders(analysis.parameters)
    return {name: value for name, value in parameters.items() if len(str(value)) <= 60}


def _references(analysis: Analysis) -> list[Reference]:
    return references_of(analysis.entry.method)
