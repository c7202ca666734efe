"""Analyses of a run: what is written after a fit, and the entries of ``run.json``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from multicentre.core.consortium import Consortium
from multicentre.core.published_counts import count_text, published
from multicentre.core.rounds import Listener
from multicentre.core.storage import write_atomically
from multicentre.data.missing.values import HandlesMissing
from multicentre.errors import (
    AnalysisWarning,
    ConfigurationError,
    DataError,
    DisclosureRefused,
    MulticentreError,
    ProtocolRefused,
    QuorumLost,
    RefusedByPolicy,
)
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.figures import Figure, Table
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.policy import Policy
from multicentre.studies.by_site import estimates_by_site
from multicentre.studies.cohort import meeting
from multicentre.studies.comparison import compare
from multicentre.studies.comparison_result import Comparison
from multicentre.studies.cross_validation import cross_validate_study, cross_validation_results, show_cross_validation
from multicentre.studies.model_card import write_model_card
from multicentre.studies.result_files import RESULTS, to_csv, write_results
from multicentre.studies.run_folder import RunFolder
from multicentre.studies.run_metadata import ANALYSES, choose_headline
from multicentre.studies.site_patients import SiteData
from multicentre.studies.study import Study, make_estimators
from multicentre.studies.subgroups import compare_subgroups


@dataclass(frozen=True)
class Analysis:
    """One analysis of a study.

    Parameters
    ----------
    name : str
        Name of its block; empty if the study is a single analysis.
    study : Study
        Study of this analysis alone.
    estimator : FederatedEstimator
    sites : mapping from str to SiteData
        Data by site of the type that the method works on; empty for remote sites.
    where : str, optional
        Condition of the records of this analysis; `sites` hold these records.
    subgroups : tuple of str
        Categories by whose levels the analysis is repeated.
    """

    name: str
    study: Study
    estimator: FederatedEstimator
    sites: Mapping[str, SiteData]
    where: str | None = None
    subgroups: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Prefix of its files in the run folder."""
        return f"{ANALYSES}/{self.name}/" if self.name else ""

    @property
    def fitted_sites(self) -> dict[str, SiteData]:
        """Sites that took part in the fit."""
        return {name: site for name, site in self.sites.items() if name not in self.estimator.left_out_}


@dataclass(frozen=True)
class Finish:
    """Setting in which analyses are finished.

    Parameters
    ----------
    folder : RunFolder
    policies : mapping from str to Policy
        Policy by site; empty for remote sites.
    key : PseudonymKey or None
        Key of the pseudonyms of sites with different views of the same patients.
    is_remote : bool
        True if sites are separate processes; fits are then not compared with a pooled fit.
    listener_for : callable
        Takes a label of a fit of the comparison and returns its listener.
    """

    folder: RunFolder
    policies: Mapping[str, Policy]
    key: PseudonymKey | None
    is_remote: bool
    listener_for: Callable[[str], Listener]


def analyses_of(study: Study, sites: Mapping[str, SiteData]) -> list[Analysis]:
    """Return the analyses of a study in the order of its blocks."""
    analyses, estimators = [], make_estimators(study)
    conditions = {block.name: block.where for block in study.analyses}
    for name, part in study.split().items():
        holds, where = estimators[name].site_part.holds, conditions.get(name)
        selected = sites if where is None else {site: meeting(where, data) for site, data in sites.items()}
        site_data = {site: data.of_type(holds) for site, data in selected.items() if data is not None}
        analyses.append(Analysis(name, part, estimators[name], site_data, where, part.subgroups))
    return analyses


def ends_analysis(error: MulticentreError) -> bool:
    """Return whether an error ends one of several analyses, while the others continue.

    A site that departs from the agreed terms, lost sites and damaged files end the run. Too few sites that are willing
    are a refusal, not a loss.
    """
    error = refusal_of(error)
    if isinstance(error, ProtocolRefused):
        return False
    return isinstance(error, RefusedByPolicy | DisclosureRefused | DataError | ConfigurationError)


def refusal_of(error: MulticentreError) -> MulticentreError:
    """Return the refusals behind a lost quorum if every missing site refused, otherwise the error itself."""
    return error.refusal if isinstance(error, QuorumLost) and error.refusal is not None else error


def end_of(error: MulticentreError) -> dict[str, Any]:
    """Return the entries of ``run.json`` for an analysis without a result."""
    refused = isinstance(refusal_of(error), RefusedByPolicy | DisclosureRefused)
    return {"status": "refused" if refused else "failed", "message": error.with_notes}


def finish_analysis(analysis: Analysis, federation: Consortium, setting: Finish) -> dict[str, Any]:
    """Write the results of a fitted model; cross-validate and compare if the study requires it.

    Returns
    -------
    dict
        Entries of ``run.json``.
    """
    folder, estimator, place = setting.folder, analysis.estimator, analysis.place
    answer = estimator.answer()  # before the model is saved, with what the answer has to state
    _save_model(estimator, folder.path / place / "model")
    folder.write_history(estimator.history_, place)
    labels = {name: site.labels or () for name, site in analysis.fitted_sites.items()}
    data = {name: site.data for name, site in analysis.fitted_sites.items()}
    model = estimator.describe_model()
    figures = [*_alignment_table(analysis, setting), *_missing_table(estimator)]
    figures += _with_model(estimator.figures(data, labels), model)
    if analysis.subgroups:
        figures += compare_subgroups(analysis.study, estimator, federation, analysis.subgroups)
    tables = write_results(folder.path / place, estimator, figures, analysis.study.labels)
    if "model" in estimator.model_parameters:
        write_model_card(folder.path / place / RESULTS, analysis.study, estimator)
    if variables := analysis.study.about.by_site:
        frame, forests = estimates_by_site(estimator, variables)
        figures = [*figures, *forests]
        if frame is not None:
            write_atomically(folder.path / place / RESULTS / "by-site.csv", to_csv(frame).encode(), mode=0o644)
            tables = [*tables, "by-site"]
    validated, message = _validate(analysis, federation, setting)
    figures = [*figures, *validated]
    folder.write(f"{place}figures.json", [figure.to_dict() for figure in figures])
    comparison = None
    if analysis.study.run.compare and not setting.is_remote and estimator.metrics:
        comparison = _compare_fits(analysis, setting)
        folder.write(f"{place}comparison.json", comparison.to_dict(estimator.metrics))
    return {
        "status": "finished",
        "message": message,
        "answer": answer,
        "model": model,
        **_sizes(estimator),
        "tables": tables,
        "rounds": len(estimator.history_),
        "lost": _lost_sites(analysis),
        "left_out": dict(estimator.left_out_),
        "missing": estimator.missing_line_ if isinstance(estimator, HandlesMissing) else "",
        "headline": choose_headline(estimator.metrics, comparison),
    }


def _validate(analysis: Analysis, federation: Consortium, setting: Finish) -> tuple[list[Figure], str]:
    """Cross-validate if the study requires it; a refusal ends the validation, and the fit keeps its result."""
    if analysis.study.validation is None:
        return [], ""
    try:
        result = cross_validate_study(analysis.study, federation)
    except MulticentreError as error:
        if not ends_analysis(error):
            raise
        message = f"No held-out validation: {end_of(refusal_of(error))['message']}"
        warnings.warn(f"{analysis.name or analysis.study.name}: {message}", AnalysisWarning, stacklevel=4)
        return [], message
    setting.folder.write(f"{analysis.place}cross-validation.json", cross_validation_results(result))
    return show_cross_validation(result), ""


def join_entries(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries of ``run.json`` of a run with several analyses, from those of each.

    Parameters
    ----------
    entries : mapping from str to mapping
        Entries of every analysis by its name.
    """
    finished = {name: entry for name, entry in entries.items() if entry["status"] == "finished"}
    left_out: dict[str, str] = {}
    for name, entry in finished.items():
        left_out |= {site: f"{name}: {reason}" for site, reason in entry["left_out"].items() if site not in left_out}
    return {
        "rounds": sum(entry["rounds"] for entry in finished.values()),
        "lost": list(dict.fromkeys(site for entry in finished.values() for site in entry["lost"])),
        "left_out": left_out,
        "missing": "",
        "answer": "",
        "tables": [],
        "headline": [],
    }


def _with_model(figures: Sequence[Figure], model: str) -> list[Figure]:
    """Return figures with the model in force in the caption of the first result, or of the first figure."""
    places = [place for place, figure in enumerate(figures) if figure.section == "model"]
    first = (places or [0])[0]
    return [
        replace(figure, caption=f"{figure.caption} {model}".strip()) if place == first else figure
        for place, figure in enumerate(figures)
    ]


def _sizes(estimator: FederatedEstimator) -> dict[str, int | None]:
    """Return the patients and events of a fit: totals over all sites, which the sites released to the fit."""
    sizes: dict[str, int | None] = {}
    agreed = getattr(estimator, "agreed_", None)
    for key in ("n_patients", "n_events"):
        value = getattr(estimator, f"{key}_", getattr(agreed, key, None))
        value = sum(value.values()) if isinstance(value, Mapping) else value
        if isinstance(value, int | float | np.number) and np.isfinite(value):
            sizes[key] = published(float(value), estimator.least_published)
    return sizes


def _save_model(estimator: FederatedEstimator, folder: Path) -> None:
    """Write the model; a model with values of single patients is readable by its owner only."""
    if estimator.aligned_by is None:
        estimator.save(folder)
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    estimator.save(folder)
    for file in folder.iterdir():
        file.chmod(0o600)


def _missing_table(estimator: FederatedEstimator) -> list[Figure]:
    """Return a table of the missing values of a fit, if there are any."""
    if not isinstance(estimator, HandlesMissing) or estimator.missing_values_.n_incomplete == 0:
        return []
    least = estimator.least_published
    rows: list[list[str | float | None]] = [
        [name, count_text(None, least) if np.isnan(missing) else missing, None if np.isnan(share) else share]
        for name, missing, share in estimator.missing_.to_numpy(object).tolist()
    ]
    return [Table("Missing values", estimator.missing_line_, "data", ["column", "missing", "share"], rows)]


def _alignment_table(analysis: Analysis, setting: Finish) -> list[Figure]:
    """Return the table of aligned patients if sites have different views of the same patients."""
    if analysis.estimator.aligned_by is None:
        return []
    if setting.is_remote:
        setting.folder.update(patients_aligned=len(analysis.estimator.pseudonyms_))
        return []
    from multicentre.studies.vertical import show_alignment, with_key

    aligned = with_key(analysis.estimator, setting.key)
    setting.folder.update(patients_aligned=len(aligned.pseudonyms_))
    return [show_alignment(aligned, max(policy.min_patients for policy in setting.policies.values()))]


def _compare_fits(analysis: Analysis, setting: Finish) -> Comparison:
    prefix = f"{analysis.name}, compare" if analysis.name else "compare"
    try:
        return compare(
            analysis.estimator,
            analysis.fitted_sites,
            holdout=analysis.study.run.holdout,
            seed=analysis.study.about.seed,
            listener_for=lambda fit: setting.listener_for(f"{prefix}: {fit}"),
            fitted=analysis.estimator,
        )
    except MulticentreError as error:
        return Comparison({}, {}, {}, {"comparison": str(error)}, 0)


def _lost_sites(analysis: Analysis) -> list[str]:
    session = analysis.estimator.session
    refusing = session.left_out.keys() - session.consortium.lost
    return [name for name in analysis.study.sites if name not in session.sites and name not in refusing]
