"""Runs of studies: fit, cross-validation, comparison and the run folder."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from multicentre.core.rounds import Listener
from multicentre.data.kinds import PatientData
from multicentre.data.missing.values import HandlesMissing
from multicentre.datasets import load_wisconsin, split_scenario
from multicentre.engines.remote.opening import Sign
from multicentre.engines.remote.socket import Carrier
from multicentre.errors import ConfigurationError, IntegrityError, MulticentreError, QuorumLost
from multicentre.estimator.base import FederatedEstimator
from multicentre.estimator.figures import Figure, Table
from multicentre.federation import Federation
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.guarantee import rounded_up, spent_in
from multicentre.privacy.policy import Policy
from multicentre.studies.checks import refuse_models
from multicentre.studies.comparison import compare
from multicentre.studies.comparison_result import Comparison
from multicentre.studies.cross_validation import cross_validate_study, cross_validation_results, show_cross_validation
from multicentre.studies.disclosure_cards import complete_card, concerns_patients, summarise_ledgers
from multicentre.studies.listeners import LabelledListener, LossRecorder, site_log
from multicentre.studies.policy_conflicts import check_policies
from multicentre.studies.run_folder import DIGESTS, RunFolder
from multicentre.studies.run_metadata import (
    IN_PROCESS,
    Clock,
    choose_headline,
    initial_metadata,
    initial_remote_metadata,
)
from multicentre.studies.site_data import SiteData, read_sites
from multicentre.studies.site_descriptions import check_descriptions, record_descriptions
from multicentre.studies.study import Study, digest_of, make_estimator
from multicentre.studies.study_file import study_from_mapping

Connect = Callable[[], Carrier]

"""Returns the carrier of requests to the remote sites of a study."""


@dataclass
class _Run:
    study: Study
    estimator: FederatedEstimator
    sites: Mapping[str, SiteData]
    policies: Mapping[str, Policy]
    listener: LossRecorder
    key: PseudonymKey | None
    connect: Connect | None = None
    coordinator: str = ""
    sign: Sign | None = None
    folder: RunFolder = field(init=False)
    resumed: bool = False

    @property
    def fitted_sites(self) -> dict[str, SiteData]:
        """Sites that took part in the fit."""
        return {name: site for name, site in self.sites.items() if name not in self.estimator.left_out_}

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
    """Fit a study's method over its sites and write the run folder, except the report.

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
        A site's policy or guard refused, or too few sites answered. If sites have different views of the same patients,
        policies are checked before the first request, and the folder is removed.
    KeyboardInterrupt
        The run was interrupted; :func:`resume_run` continues it.
    """
    run = _prepare_run(study, sites, listener, connect)
    run.coordinator, run.sign = str(coordinator), sign
    metadata = initial_remote_metadata(study) if connect else initial_metadata(study, run.data, run.policies)
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
        refuse_models(study)
    estimator, recorder = make_estimator(study), LossRecorder(listener or Listener())
    if connect is not None:
        return _Run(study, estimator, {}, {}, recorder, None, connect)
    if estimator.aligned_by is not None:
        check_policies(study, estimator)
    policies = study.policies
    allowed = {
        name: SiteData(_allowed_columns(name, site.data, policies[name]), site.labels)
        for name, site in (sites or read_sites(study)).items()
    }
    path = study.privacy.pseudonym_key
    key = None if path is None else PseudonymKey.read(path)
    return _Run(study, estimator, allowed, policies, recorder, key)


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
        try:
            federation = _federation(run)
            run.folder.update(counted=federation.terms.counted)
            if run.connect is not None:
                check_descriptions(run.study, federation.site_facts)
                record_descriptions(run.folder, federation.site_facts, resumed=run.resumed)
            run.estimator.fit(federation)
            comparison = _finish(run, federation)
        except BaseException as error:
            _note_end(run, error, federation, clock)
            raise
        finally:
            if federation is not None:
                federation.close()
        _write_disclosure(run, federation)
        run.folder.update(
            status="finished",
            rounds=len(run.estimator.history_),
            privacy=_privacy(run, federation),
            lost=_lost_sites(run),
            losses=_losses(run),
            left_out=dict(run.estimator.left_out_),
            missing=_missing_line(run.estimator),
            headline=choose_headline(run.estimator.metrics, comparison),
            **clock.metadata(federation),
        )
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
            listener=LabelledListener(run.listener, "fit"),
            sign=run.sign,
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
        listener=LabelledListener(run.listener, "fit"),
    )


def _missing_line(estimator: FederatedEstimator) -> str:
    return estimator.missing_line_ if isinstance(estimator, HandlesMissing) else ""


def _missing_table(estimator: FederatedEstimator) -> list[Figure]:
    """Return a table of the missing values of a fit, if there are any."""
    if not isinstance(estimator, HandlesMissing) or not estimator.missing_values_.n_incomplete:
        return []
    rows: list[list[str | float | None]] = estimator.missing_.to_numpy(object).tolist()
    return [Table("Missing values", estimator.missing_line_, "data", ["column", "missing", "share"], rows)]


def _finish(run: _Run, federation: Federation) -> Comparison | None:
    """Write the results of a fitted model; cross-validate and compare if the study requires it."""
    _save_model(run)
    run.folder.write_history(run.estimator.history_)
    labels = {name: site.labels or () for name, site in run.fitted_sites.items()}
    data = {name: site.data for name, site in run.fitted_sites.items()}
    figures = [*_alignment_table(run), *_missing_table(run.estimator), *run.estimator.figures(data, labels)]
    if run.study.validation is not None:
        result = cross_validate_study(run.study, federation)
        run.folder.write("cross-validation.json", cross_validation_results(result))
        figures = [*figures, *show_cross_validation(result)]
    run.folder.write("figures.json", [figure.to_dict() for figure in figures])
    if not run.study.run.compare or run.connect is not None:
        return None
    comparison = _compare_fits(run)
    run.folder.write("comparison.json", comparison.to_dict(run.estimator.metrics))
    return comparison


def _save_model(run: _Run) -> None:
    """Write the model; a model with values of single patients is readable by its owner only."""
    folder = run.folder.path / "model"
    if run.estimator.aligned_by is None:
        run.estimator.save(folder)
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    run.estimator.save(folder)
    for file in folder.iterdir():
        file.chmod(0o600)


def _alignment_table(run: _Run) -> list[Figure]:
    """Return the table of aligned patients if sites have different views of the same patients."""
    if run.estimator.aligned_by is None:
        return []
    if run.connect is not None:
        run.folder.update(patients_aligned=len(run.estimator.pseudonyms_))
        return []
    from multicentre.studies.vertical import show_alignment, with_key

    aligned = with_key(run.estimator, run.key)
    run.folder.update(patients_aligned=len(aligned.pseudonyms_))
    return [show_alignment(aligned, max(policy.min_patients for policy in run.policies.values()))]


def _compare_fits(run: _Run) -> Comparison:
    try:
        return compare(
            run.estimator,
            run.fitted_sites,
            holdout=run.study.run.holdout,
            seed=run.study.about.seed,
            listener_for=lambda fit: LabelledListener(run.listener, f"compare: {fit}"),
            fitted=run.estimator,
        )
    except MulticentreError as error:
        return Comparison({}, {}, {}, {"comparison": str(error)}, 0)


def _note_end(run: _Run, error: BaseException, federation: Federation | None, clock: Clock) -> None:
    resumable = isinstance(error, KeyboardInterrupt | QuorumLost)
    spent = federation is not None and (
        any(concerns_patients(entry) for ledger in federation.ledgers.values() for entry in ledger.entries)
        or (run.connect is not None and bool(federation.traffic.calls))
    )
    if not (spent or resumable or run.resumed):
        run.folder.discard()
        return
    if federation is not None:
        _write_disclosure(run, federation)
    message = "interrupted" if isinstance(error, KeyboardInterrupt) else _message(error)
    status = "interrupted" if resumable else "failed"
    left_out = {**run.folder.metadata.get("left_out", {}), **run.listener.left_out}
    run.folder.update(
        status=status, message=message, losses=_losses(run), left_out=left_out, **clock.metadata(federation)
    )
    error.add_note(f"The run is kept in {run.folder.path}")
    if resumable:
        error.add_note(_resume_hint(run))


def _lost_sites(run: _Run) -> list[str]:
    session = run.estimator.session
    return [name for name in run.study.sites if name not in session.sites and name not in session.left_out]


def _losses(run: _Run) -> dict[str, str]:
    """Return the reasons for lost sites, in this process and in earlier processes of the run."""
    return {**run.folder.metadata.get("losses", {}), **run.listener.losses}


def _resume_hint(run: _Run) -> str:
    hint = f"Resume it with: multicentre run --resume {shlex.quote(str(run.folder.path))}"
    if run.connect is not None:
        return f"{hint} --coordinator {shlex.quote(run.coordinator)}"
    if all(run.study.sites.values()):
        return hint
    return "Its data were in memory: pass them to multicentre.studies.resume_run, or start a new run."


def _message(error: BaseException) -> str:
    """Return the message of an error for the run's folder, with its notes on refusals of other sites."""
    if not isinstance(error, MulticentreError):
        return f"internal error: {type(error).__name__}"
    return " ".join([str(error), *getattr(error, "__notes__", [])])


def _privacy(run: _Run, federation: Federation) -> str | None:
    """Return the privacy guarantee of the fit, and its cost including repeated rounds."""
    promise = run.estimator.privacy_
    if promise is None or run.connect is not None:
        return None if promise is None else str(promise)
    entries = {site: ledger.entries for site, ledger in federation.ledgers.items()}
    spent = spent_in(entries, promise.sites_per_patient).epsilon(promise.delta)
    return f"{promise} The run spent epsilon {rounded_up(spent)}, repeated rounds included."


def _write_disclosure(run: _Run, federation: Federation) -> None:
    method = run.estimator
    parameters = method.get_params(deep=False)
    card = federation.card(method.site_part, method.privacy_plan(), method.planned_steps(), parameters)
    card = complete_card(card, run.study, method)
    run.folder.write("disclosure.json", {"card": card.to_dict(), **summarise_ledgers(federation.ledgers)})


# Two centres for each of the three roles of scenario G/K.
N_SITES = 6


def run_demo(output: str | Path = "runs", *, seed: int = 0, listener: Listener | None = None) -> RunFolder:
    """Fit Fed-mv-PPCA over six simulated centres that differ in patients and views.

    Parameters
    ----------
    output : path
        Folder for the run folder.
    seed : int
        Seed of the split into centres and held-out patients, and of the start of the fit.
    listener : Listener, optional
        Receives events of rounds.
    """
    centres = split_scenario(load_wisconsin(), "G/K", n_sites=N_SITES, random_state=seed)
    sites = {name: SiteData(one.data, tuple(str(label) for label in one.labels)) for name, one in centres.items()}
    return run_study(demo_study(Path(output), seed, list(sites)), sites=sites, listener=listener)


def demo_study(output: Path, seed: int, sites: list[str]) -> Study:
    """Return the study of the demonstration."""
    return study_from_mapping(
        {
            "study": {
                "name": "demo",
                "method": "fed-mv-ppca",
                "seed": seed,
                "output": str(output),
                "description": "Breast cancer Wisconsin over simulated centres; some see one diagnosis only, "
                "some lack a view.",
            },
            "parameters": {"n_components": 4, "scale": "feature"},
            "sites": {site: {} for site in sites},
        }
    )
