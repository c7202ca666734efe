"""Methods paragraph and bibliography of a run, to paste into a paper."""

from __future__ import annotations

from multicentre.reports.citation import SOFTWARE_KEY, Reference, method_sentence, references_of, software_entry
from multicentre.reports.formats import format_number
from multicentre.reports.machine_paths import without_folders
from multicentre.reports.run_contents import Analysis, RunContents

FINISHED = "finished"
COMPLETE = "No missing values."
NO_RESULT = {"refused": "The sites refused the analysis", "failed": "The analysis failed", "waiting": "Not carried out"}
_PROTECTION = {
    "masked": "No patient's row left its site; sums were masked, so that the coordinator received only their totals.",
    "unmasked": "No patient's row left its site; sums were not masked; the coordinator added them.",
}


def methods_paragraph(contents: RunContents) -> str:
    """Return the paragraph: sites, software, protection, and a sentence per analysis on its model or its refusal."""
    run, environment = contents.run, contents.environment
    n_sites = len(run.sites) - len(run.left_out)
    kind = "simulated sites" if run.simulated else "sites"
    software = f"multicentre {environment.multicentre} [{SOFTWARE_KEY}] under Python {environment.python}"
    sentences = [f"We analysed {patients_of(contents) or 'the patients'} of {n_sites} {kind} with {software}."]
    sentences.append(_PROTECTION[run.protection])
    sentences += [sentence for analysis in contents.analyses for sentence in _sentences(analysis)]
    return " ".join([*sentences, *([run.privacy] if run.privacy else [])])


def patients_of(contents: RunContents) -> str:
    """Return the number of patients of a run, by the analysis with most of them; empty where no analysis counts any.

    The numbers are totals that the sites released to the analyses, so that a simulated and a real run state the same.
    """
    run = contents.run
    if run.vertical:
        return "" if run.patients_aligned is None else f"{format_number(run.patients_aligned)} patients"
    counts = [one.entry.n_patients for one in contents.analyses if one.entry.n_patients is not None]
    return f"{format_number(max(counts))} {run.counted}" if counts else ""


def bibliography(contents: RunContents) -> str:
    """Return the BibTeX entries of the software and of the methods."""
    entries = [software_entry(contents.environment.multicentre, contents.run.started.year)]
    finished = [analysis for analysis in contents.analyses if analysis.entry.status == FINISHED]
    references = [one for analysis in finished for one in _references(analysis)]
    return "\n\n".join(dict.fromkeys([*entries, *(reference.bibtex() for reference in references)]))


def _sentences(analysis: Analysis) -> list[str]:
    """Return the sentences on an analysis: its model, records and validation; or the reason why it has no result."""
    entry = analysis.entry
    if entry.status != FINISHED:
        reason = without_folders(entry.message).partition(". ")[0] or "the run ended before it"
        return [f"{entry.title or entry.name}: {NO_RESULT.get(entry.status, 'No result')} ({reason})."]
    sizes = {"patients": entry.n_patients, "events": entry.n_events}
    counts = [f"{format_number(n)} {name}" for name, n in sizes.items() if n is not None]
    sentence = method_sentence(entry.method, entry.model, counts, _references(analysis))
    sentences = [f"{entry.title}: {sentence}" if entry.title else sentence]
    sentences += [entry.missing] if entry.missing not in ("", COMPLETE) else []
    sentences += [f"{entry.message.partition('. ')[0]}."] if entry.message else []
    return sentences + ([analysis.validated] if analysis.validated else [])


def _references(analysis: Analysis) -> list[Reference]:
    return references_of(analysis.entry.method, analysis.parameters)
