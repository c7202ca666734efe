"""Runs of studies: fit, cross-validation, comparison and the run folder."""

from __future__ import annotations

import itertools
import re
import shlex
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from multicentre.core.consortium import Consortium
from multicentre.core.disk import cannot_write, is_full
from multicentre.core.rounds import Listener
from multicentre.data.flow import count_flow
from multicentre.data.kinds import PatientData
from multicentre.engines.remote.opening import Sign
from multicentre.engines.remote.socket import Carrier
from multicentre.errors import (
    AnalysisWarning,
    ConfigurationError,
    IntegrityError,
    LedgerWarning,
    MulticentreError,
    QuorumLost,
)
from multicentre.estimator.base import FederatedEstimator
from multicentre.federation import Federation
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.card import DisclosureCard
from multicentre.privacy.guarantee import Guarantee, guarantee_of_plan, rounded_up, spent_in
from multicentre.privacy.policy import Policy
from multicentre.studies.analyses import (
    Analysis,
    Finish,
    analyses_of,
    end_of,
    ends_analysis,
    finish_analysis,
    join_entries,
    refusal_of,
)
from multicentre.studies.checks import check_models
from multicentre.studies.cohort import select_in_memory
from multicentre.studies.disclosure_cards import concerns_patients, join_cards, summarise_ledgers
from multicentre.studies.listeners import LabelledListener, site_log
from multicentre.studies.policy_conflicts import (
    check_budgets,
    check_policies,
    planned_refusals,
    protection_of,
    refused_at_new_sites,
)
from multicentre.studies.run_events import EventRecorder
from multicentre.studies.run_folder import DIGESTS, RunFolder
from multicentre.studies.run_metadata import (
    IN_PROCESS,
    Clock,
    initial_metadata,
    initial_remote_metadata,
)
from multicentre.studies.site_data import read_sites
from multicentre.studies.site_descriptions import check_descriptions, record_descriptions
from multicentre.studies.site_patients import SiteData
from multicentre.studies.study import Study, make_estimator
from multicentre.studies.terms import digest_of, study_protocol
from multicentre.validation.folds.subgroups import select_records

# EX_SOFTWARE of sysexits.h, and 128 plus the number of SIGINT as in shells.
BUG, INTERRUPTED = 70, 130
Connect = Callable[[], Carrier]

"""Returns the carrier of requests to the remote sites of a study."""


@dataclass
class _Run:
    study: Study
    analyses: list[Analysis]
    sites: Mapping[str, SiteData]
    policies: Mapping[str, Policy]
    events: EventRecorder
    key: PseudonymKey | None
    connect: Connect | None = None
    coordinator: str = ""
    sign: Sign | None = None
    folder: RunFolder = field(init=False)
    resumed: bool = False

    @property
    def data(self) -> dict[str, PatientData]:
        return {name: site.data for name, site in self.sites.items()}


def run_study(
    study: Study,
    *,
    sites: Mapping[str, SiteData] | None = None,
    listener: Listener | None = None,
    connect: Connect | None = None,
    coordinator: str | Path = "FOLDER",
    sign: Sign | None = None,
) -> RunFolder:
    """Carry out the analyses of a study over its sites and write the run folder, except the report.

    Several analyses run one after the other over one federation. If the sites refuse one of them, or their data do not
    permit it, the others go on; ``run.json`` states the reason.

    Parameters
    ----------
    study : Study
        Study to run, see :func:`read_study`.
    sites : mapping from str to SiteData, optional
        Data in memory; read from the study's files otherwise.
    listener : Listener, optional
        Receives events of rounds, labelled with the fit.
    connect : callable, optional
        For remote sites; returns the carrier of requests. Files and ledgers stay at the sites, and there is no
        comparison with a pooled fit.
    coordinator : path, optional
        Folder for `connect`, named in the instructions to resume an interrupted run.
    sign : callable, optional
        Signs the opening of a run over remote sites as its analyst.

    Returns
    -------
    RunFolder
        Folder of the finished run. The folder of an interrupted run is kept and named in a note of the exception. It
        is removed if no value computed from patients was released or refused.

    Raises
    ------
    ConfigurationError, DataError
        The study or a site's data are invalid; the folder is removed.
    RefusedByPolicy, DisclosureRefused, QuorumLost
        A site's policy or guard refused (of several analyses, all of them), or too few sites answered. If sites have
        different views of the same patients, policies are checked before the first request, and the folder is removed.
    KeyboardInterrupt
        The run was interrupted; :func:`resume_run` continues it.
    """
    run = _prepare_run(study, sites, listener, connect)
    run.coordinator, run.sign = str(coordinator), sign
    metadata = initial_remote_metadata(study) if connect else initial_metadata(study, run.data, run.policies)
    if connect is None:
        metadata["refused_at_sites"] = refused_at_new_sites(study)
    run.folder = RunFolder.create(study, metadata, _digests(run))
    with run.folder.held():
        return _carry_out(run)


def resume_run(
    path: str | Path,
    *,
    sites: Mapping[str, SiteData] | None = None,
    listener: Listener | None = None,
    connect: Connect | None = None,
    coordinator: str | Path = "FOLDER",
    sign: Sign | None = None,
) -> RunFolder:
    """Resume an interrupted run from its last round; the result is that of an uninterrupted run.

    Parameters
    ----------
    path : path
        Folder of the run.
    sites : mapping from str to SiteData, optional
        Data in memory; read from the study's files otherwise.
    listener : Listener, optional
        Receives events of rounds.
    connect : callable, optional
        Returns the carrier of requests to remote sites.
    coordinator : path, optional
        Folder for `connect`.
    sign : callable, optional
        Signs the opening of the run as its analyst.

    Raises
    ------
    ConfigurationError
        The folder contains no run, the run is finished, or another process has locked it.
    IntegrityError
        The study's terms, a site's data, a ledger or a checkpoint have changed since the start of the run.
    """
    folder = RunFolder.open(path)
    with folder.held():
        return _resume(folder, sites, listener, connect, str(coordinator), sign)


def _resume(
    folder: RunFolder,
    sites: Mapping[str, SiteData] | None,
    listener: Listener | None,
    connect: Connect | None,
    coordinator: str,
    sign: Sign | None,
) -> RunFolder:
    if folder.metadata["status"] == "finished":
        raise ConfigurationError(
            "the run must be unfinished to be resumed; it is finished", where=str(folder.path), hint="Start a new run."
        )
    if (folder.metadata["engine"] != IN_PROCESS) != (connect is not None):
        raise ConfigurationError(
            f"the run must be resumed on its engine, {folder.metadata['engine']}",
            where=str(folder.path),
            hint="Use --coordinator for remote sites, and omit it for simulated sites.",
        )
    folder.check_terms()
    run = _prepare_run(folder.study, sites, listener, connect)
    run.folder, run.resumed, run.coordinator, run.sign = folder, True, coordinator, sign
    if connect is None:
        _check_data(folder.read(DIGESTS), _digests(run))
    folder.update(status="running", message="", ended=None)
    return _carry_out(run)


def _prepare_run(
    study: Study, sites: Mapping[str, SiteData] | None, listener: Listener | None, connect: Connect | None
) -> _Run:
    if connect is not None:
        check_models(study, reads_files=True)
    events = EventRecorder(listener or Listener())
    if connect is not None:
        return _Run(study, analyses_of(study, {}), {}, {}, events, None, connect)
    if study.is_vertical:
        check_policies(study, make_estimator(study))
    check_budgets(study)
    policies = study.policies
    allowed = {
        name: SiteData(_allowed_columns(name, site.data, policies[name]), site.labels)
        for name, site in (_in_memory(study, sites) if sites else read_sites(study)).items()
    }
    path = study.privacy.pseudonym_key
    key = None if path is None else PseudonymKey.read(path)
    return _Run(study, analyses_of(study, allowed), allowed, policies, events, key)


def _in_memory(study: Study, sites: Mapping[str, SiteData]) -> dict[str, SiteData]:
    """Return data in memory with the records that the study selects."""
    selected = {}
    for name, site in sites.items():
        try:
            selected[name] = select_in_memory(study.data, site)
        except MulticentreError as error:
            raise error.at(name) from None
    return selected


def _allowed_columns(name: str, data: PatientData, policy: Policy) -> PatientData:
    if policy.columns is None:
        return data
    try:
        return data.keep_columns(policy.columns)
    except MulticentreError as error:
        raise ConfigurationError(
            f"the site's policy must allow enough of the study's columns ({error.where}: {error.what})",
            where=f"{name}, policy, columns",
            hint="Ask the site's steward, or leave the site out.",
        ) from None


def _check_data(stored: Mapping[str, str], current: Mapping[str, str]) -> None:
    for name in stored.keys() | current.keys():
        if stored.get(name) != current.get(name):
            raise IntegrityError(
                "data must be unchanged since the start of the run; they differ", where=name, hint="Start a new run."
            )


def _digests(run: _Run) -> dict[str, str]:
    return {name: site.data.digest() for name, site in run.sites.items()}


def _carry_out(run: _Run) -> RunFolder:
    with site_log(run.folder.path / "sites" / "problems.log"):
        clock = Clock(run.folder)
        federation = None
        run.events.open(run.folder.path)
        noised = any(analysis.estimator.privacy_plan() is not None for analysis in run.analyses)
        run.events.begin(run.study, engine=run.folder.metadata["engine"], noised=noised, resumed=run.resumed)
        try:
            federation = _federation(run)
            run.events.count_with(federation.traffic)
            run.folder.update(counted=federation.terms.counted)
            if run.connect is not None:
                check_descriptions(run.study, federation.site_facts)
                record_descriptions(run.folder, federation.site_facts, resumed=run.resumed)
            _count_records(run, federation)
            _analyse(run, federation)
        except BaseException as error:
            _note_end(run, error, federation, clock)
            raise
        finally:
            if federation is not None:
                federation.close()
        _write_disclosure(run, federation)
        run.folder.update(
            status="finished",
            privacy=_privacy(run, federation),
            losses=_losses(run),
            ledger_notices=_ledger_notices(run, federation),
            **clock.metadata(federation),
        )
        run.folder.remove_checkpoints()
        run.events.write("run_ended", status="finished", message="", exit_code=0)
    return run.folder


def _federation(run: _Run) -> Federation:
    terms = run.study.run
    if run.connect is not None:
        return Federation.over(
            run.connect(),
            secure_sum=run.study.masked,
            study=run.study.name,
            agreed=digest_of(run.study),
            quorum=terms.quorum,
            time_limit_s=terms.time_limit_s,
            refusing_sites=terms.refusing_sites,
            patience_s=terms.patience_s,
            sites_per_patient=run.study.privacy.sites_per_patient,
            folder=run.folder.path,
            listener=LabelledListener(run.events, "fit"),
            sign=run.sign,
            protocol=study_protocol(run.study),
        )
    return Federation.in_process(
        run.data,
        policy=run.policies,
        secure_sum=run.study.masked,
        strict=terms.strict,
        study=run.study.name,
        agreed=digest_of(run.study),
        quorum=terms.quorum,
        time_limit_s=terms.time_limit_s,
        refusing_sites=terms.refusing_sites,
        sites_per_patient=run.study.privacy.sites_per_patient,
        one_row_per_patient=run.study.data.one_row_per_patient,
        pseudonym_key=run.key,
        folder=run.folder.path,
        listener=LabelledListener(run.events, "fit"),
    )


def _count_records(run: _Run, federation: Federation) -> None:
    """Note in ``run.json`` how many records the study assessed, left out by reason, and analyses."""
    if not run.study.data.selects:
        return
    try:
        total, sites = count_flow(replace(federation, listener=LabelledListener(run.events, "flow of patients")))
    except MulticentreError as error:
        if not ends_analysis(error):
            raise
        run.folder.update(flow={"refused": str(refusal_of(error))})
        return
    least = run.study.least_published
    by_site = {name: flow.published(least) for name, flow in sites.items()}
    run.folder.update(flow={**total.published(least), "sites": by_site})


def _analyse(run: _Run, federation: Federation) -> None:
    """Fit and finish the analyses in order, and note their ends in ``run.json``."""
    setting = Finish(
        run.folder,
        run.policies,
        run.key,
        run.connect is not None,
        lambda label: LabelledListener(run.events, label),
    )
    if not run.study.analyses:
        analysis = run.analyses[0]
        entry = finish_analysis(analysis, _fit(run, analysis, federation), setting)
        run.folder.update(**{name: value for name, value in entry.items() if name != "status"})
        return
    errors = []
    shared: dict[Hashable, Any] = {}
    for number, analysis in enumerate(run.analyses, start=1):
        if _entry(run, analysis)["status"] != "waiting":  # a resumed run has its result
            continue
        # A name for each analysis, so that a resumed run finds its sessions whatever became of the others.
        numbered = replace(
            federation,
            name=f"{federation.name}.{number}",
            openings=itertools.count(1),
            shared=shared,
            listener=LabelledListener(run.events, analysis.name),
        )
        try:
            entry = finish_analysis(analysis, _fit(run, analysis, numbered), setting)
            _note_analysis(run, analysis, entry)
        except MulticentreError as error:
            if not ends_analysis(error):
                raise
            errors.append(refusal_of(error))
            end = end_of(error)
            end["message"] = _naming_analyses(end["message"], run, federation)
            _note_analysis(run, analysis, end)
            warnings.warn(f"analysis {analysis.name} has no result: {end['message']}", AnalysisWarning, stacklevel=3)
    entries = {entry["name"]: entry for entry in run.folder.metadata["analyses"]}
    if all(entry["status"] != "finished" for entry in entries.values()):
        raise errors[0] if errors else _no_result(run)
    run.folder.update(**join_entries(entries))


def _naming_analyses(message: str, run: _Run, federation: Federation) -> str:
    """Return a message of a site with the names of analyses in place of their sessions, as the study numbers them."""

    def name(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"analysis {run.analyses[number - 1].name}" if 0 < number <= len(run.analyses) else match[0]

    return re.sub(rf"session {re.escape(federation.name)}\.(\d+)[.\d]*", name, message)


def _fit(run: _Run, analysis: Analysis, federation: Federation) -> Consortium:
    """Fit an analysis over the sites whose policies permit its planned steps, and return these sites."""
    refusals = planned_refusals(analysis.study, analysis.estimator, run.policies)
    willing = federation.without_refusing(refusals) if refusals else federation
    selected = select_records(willing, analysis.where)
    analysis.estimator.fit(selected)
    return selected


def _no_result(run: _Run) -> ConfigurationError:
    """Return the error of a resumed run all of whose analyses ended without a result before."""
    return ConfigurationError(
        "at least one analysis must have a result; all of them ended without one before the run was resumed",
        where=str(run.folder.path),
        hint="Start a new run; run.json states the reason for each analysis.",
    )


def _entry(run: _Run, analysis: Analysis) -> dict[str, Any]:
    entries: list[dict[str, Any]] = run.folder.metadata["analyses"]
    return next(entry for entry in entries if entry["name"] == analysis.name)


def _note_analysis(run: _Run, analysis: Analysis, changes: Mapping[str, Any]) -> None:
    entries = [
        {**entry, **changes} if entry["name"] == analysis.name else entry for entry in run.folder.metadata["analyses"]
    ]
    run.folder.update(analyses=entries)
    ending = {name: changes[name] for name in ("status", "message") if name in changes}
    run.events.write("analysis_ended", analysis=analysis.name, **{"status": "finished", "message": "", **ending})


def _note_end(run: _Run, error: BaseException, federation: Federation | None, clock: Clock) -> None:
    resumable = isinstance(error, KeyboardInterrupt | QuorumLost) or is_full(error)
    spent = federation is not None and (
        any(concerns_patients(entry) for ledger in federation.ledgers.values() for entry in ledger.entries)
        or (run.connect is not None and bool(federation.traffic.calls))
    )
    if not (spent or resumable or run.resumed):
        run.folder.discard()
        return
    message = "interrupted" if isinstance(error, KeyboardInterrupt) else _message(error)
    status = "interrupted" if resumable else "failed"
    error.add_note(f"The run is kept in {run.folder.path}")
    if resumable:
        error.add_note(_resume_hint(run))
    left_out = {**run.folder.metadata.get("left_out", {}), **run.events.left_out}
    ending = {"losses": _losses(run), "left_out": left_out, **clock.metadata(federation)}
    try:
        if federation is not None:
            _write_disclosure(run, federation)
            run.folder.update(ledger_notices=_ledger_notices(run, federation))
        run.folder.update(status=status, message=message, **ending)
    except OSError as failure:  # the disk is full: the files of before are whole, and `error` says why the run ended
        if not is_full(failure):
            raise
    run.events.write("run_ended", status=status, message=message, exit_code=_exit_code(error))


def _exit_code(error: BaseException) -> int:
    """Return the exit status of ``multicentre run`` after an error."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if is_full(error):
        return ConfigurationError.exit_code
    return error.exit_code if isinstance(error, MulticentreError) else BUG


def _losses(run: _Run) -> dict[str, str]:
    """Return the reasons for lost sites, in this process and in earlier processes of the run."""
    return {**run.folder.metadata.get("losses", {}), **run.events.losses}


def _ledger_notices(run: _Run, federation: Federation) -> dict[str, str]:
    """Return the losses of ledgers that concern this run, by site, and warn of those of this process."""
    for site, notice in federation.ledger_notices.items():
        warnings.warn(f"{site}: {notice}", LedgerWarning, stacklevel=3)
    return {**run.folder.metadata.get("ledger_notices", {}), **federation.ledger_notices}


def _resume_hint(run: _Run) -> str:
    hint = f"Resume it with: multicentre run --resume {shlex.quote(str(run.folder.path))}"
    if run.connect is not None:
        return f"{hint} --coordinator {shlex.quote(run.coordinator)}"
    if all(run.study.sites.values()):
        return hint
    return "Its data were in memory: pass them to multicentre.studies.resume_run, or start a new run."


def _message(error: BaseException) -> str:
    """Return the message of an error for the run's folder, with its notes on refusals of other sites."""
    if isinstance(error, OSError) and is_full(error):
        return str(cannot_write(Path(error.filename or "."), error))
    if not isinstance(error, MulticentreError):
        return f"internal error: {type(error).__name__}"
    return error.with_notes


def _privacy(run: _Run, federation: Federation) -> str | None:
    """Return the privacy guarantee of the fit, and its cost including repeated rounds."""
    promises = {name: one for name, one in _promises(run).items() if one is not None}
    if not promises:
        return None
    texts = [f"{name}: {promise}" if name else str(promise) for name, promise in promises.items()]
    if run.connect is not None:
        return " ".join(texts)
    entries = {site: ledger.entries for site, ledger in federation.ledgers.items()}
    first = next(iter(promises.values()))
    spent = spent_in(entries, first.sites_per_patient).epsilon(max(promise.delta for promise in promises.values()))
    return f"{' '.join(texts)} The run spent epsilon {rounded_up(spent)}, repeated rounds included."


def _promises(run: _Run) -> dict[str, Guarantee | None]:
    """Return the guarantee of each analysis by name; an analysis of an earlier process has that of its parameters."""
    promises = {}
    for analysis in run.analyses:
        plan, terms = analysis.estimator.privacy_plan(), run.study
        fitted = getattr(analysis.estimator, "privacy_", None)
        if fitted is None and plan is not None and _entry(run, analysis)["status"] == "finished":
            counted, protection = run.folder.metadata["counted"], protection_of(terms)
            fitted = guarantee_of_plan(plan, protection, terms.privacy.sites_per_patient, counted)
        promises[analysis.name] = fitted
    return promises


def _write_disclosure(run: _Run, federation: Federation) -> None:
    def card_of(method: FederatedEstimator) -> DisclosureCard:
        parameters = method.get_params(deep=False)
        return federation.card(method.site_part, method.privacy_plan(), method.planned_steps(), parameters)

    card = join_cards(run.study, card_of)
    run.folder.write("disclosure.json", {"card": card.to_dict(), **summarise_ledgers(federation.ledgers)})
