"""Runs over real sites, for ``multicentre run --coordinator``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from multicentre.cli.console import notify

if TYPE_CHECKING:
    from multicentre.core.rounds import Listener
    from multicentre.engines.remote.opening import Sign
    from multicentre.studies import RunFolder, Study
    from multicentre.studies.runner import Connect


def run_over_sites(
    coordinator: Path, analyst: Path | None, *, study: Path | None, resume: Path | None, output: Path | None
) -> RunFolder:
    """Run or resume a study over real sites.

    Parameters
    ----------
    coordinator : Path
        Socket of a coordinator's service, or its folder for its administrator.
    analyst : Path or None
        Folder of the analyst who signs the run; required at a service.
    study, resume : Path or None
        Study file, or the folder of an interrupted run.
    output : Path or None
        Parent of the run folder.

    Raises
    ------
    MulticentreError
        The error that ended the run.
    """
    if coordinator.is_socket():
        return _run_at_service(study, resume, output, coordinator, analyst)
    from multicentre.cli.progress import progress
    from multicentre.core.disk import use_folder
    from multicentre_sites.deployment.coordinator_folder import Consortium

    # For temporary files and compiled kernels if the system provides no folder.
    use_folder(Consortium.read(coordinator).state)
    with progress() as listener:
        return _run(study, resume, output, coordinator, _signer(coordinator, analyst), listener)


def _run_at_service(
    study: Path | None, resume: Path | None, output: Path | None, service: Path, analyst: Path | None
) -> RunFolder:
    from multicentre.errors import ConfigurationError
    from multicentre.studies import read_study
    from multicentre_sites.deployment.analyst_client import resume_at_service, run_at_service
    from multicentre_sites.deployment.analysts import read_analyst

    if analyst is None:
        raise ConfigurationError(
            "--analyst must be given for a coordinator's service",
            where="--analyst",
            hint="Name your analyst's folder, or create one: multicentre analyst keygen NAME.",
        )
    signer = read_analyst(analyst)
    if resume is not None:
        return resume_at_service(service, signer, resume, notify)
    assert study is not None
    study_file = read_study(study)
    return run_at_service(service, signer, study_file if output is None else study_file.with_output(output), notify)


def _run(
    study: Path | None, resume: Path | None, output: Path | None, coordinator: Path, sign: Sign, listener: Listener
) -> RunFolder:
    from multicentre.studies import RunFolder, read_study, resume_run, run_study

    if resume is not None:
        connect = _connection(coordinator, RunFolder.open(resume).study)
        return resume_run(resume, listener=listener, connect=connect, coordinator=coordinator, sign=sign)
    assert study is not None
    study_file = read_study(study)
    chosen = study_file if output is None else study_file.with_output(output)
    connect = _connection(coordinator, study_file)
    return run_study(chosen, listener=listener, connect=connect, coordinator=coordinator, sign=sign)


def _signer(coordinator: Path, analyst: Path | None) -> Sign:
    """Return a function that signs a run with the analyst's key, or with the coordinator's key without an analyst."""
    from multicentre.engines.remote.opening import sign_opening
    from multicentre_sites.deployment.analysts import read_analyst
    from multicentre_sites.deployment.site_connection import sign_as_coordinator

    if analyst is None:
        return sign_as_coordinator(coordinator)
    signer = read_analyst(analyst)
    return lambda opening: sign_opening(opening, signer.identity, signer.card.name)


def _connection(coordinator: Path, study: Study) -> Connect:
    from multicentre_sites.deployment.site_connection import connect_sites

    return lambda: connect_sites(coordinator, study.sites, notify)
