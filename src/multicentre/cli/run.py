"""``multicentre run``, ``demo`` and ``report``: runs over simulated or real sites, and their reports."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multicentre.cli.console import AsJson, handle_errors, notify, program, show, show_json

if TYPE_CHECKING:
    from multicentre.core.rounds import Listener
    from multicentre.engines.remote.opening import Sign
    from multicentre.studies import RunFolder, Study
    from multicentre.studies.runner import Connect


@handle_errors
def run(
    study: Annotated[Path | None, typer.Argument(metavar="STUDY.toml", help="Study file.", show_default=False)] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Resume this interrupted run instead.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the run folder.")] = None,
    coordinator: Annotated[
        Path | None,
        typer.Option(
            metavar="SOCKET|FOLDER",
            help="Run over real sites: socket of a coordinator's service, or its folder for its administrator.",
        ),
    ] = None,
    analyst: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="MULTICENTRE_ANALYST",
            help="Your analyst's folder (multicentre analyst keygen), to sign the run.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a study over simulated or real sites.

    Sites are simulated by default and real with --coordinator. With --resume, an interrupted run is continued.
    """
    from multicentre.cli.progress import progress
    from multicentre.cli.summary import describe_run, finish_run, run_as_dict

    if (study is None) == (resume is None):
        raise typer.BadParameter("Give either a study or --resume RUN.")
    if resume is not None and output is not None:
        raise typer.BadParameter("Omit --output: a resumed run stays in its folder.")
    if coordinator is not None and coordinator.is_socket():
        folder = _run_at_service(study, resume, output, coordinator, analyst)
    else:
        _use_folder_of(coordinator)
        with progress() as listener:
            folder = _run(study, resume, output, coordinator, analyst, listener)
    try:
        report = finish_run(folder)
    except OSError as error:  # a full disk: the numbers are stored
        error.add_note(
            f"The run is finished. Write its report with: multicentre report {shlex.quote(str(folder.path))}"
        )
        raise
    if as_json:
        return show_json(run_as_dict(folder, report))
    show(f"\n{describe_run(folder)}\n")
    show(f"Run folder: {folder.path}")
    show(f"Report: {report}")
    return None


def _use_folder_of(coordinator: Path | None) -> None:
    """Use the coordinator's folder for temporary files and compiled kernels if the system provides none."""
    if coordinator is not None:
        from multicentre.core.disk import use_folder
        from multicentre.deployment.coordinator_folder import Consortium

        use_folder(Consortium.read(coordinator).state)


def _run_at_service(
    study: Path | None, resume: Path | None, output: Path | None, service: Path, analyst: Path | None
) -> RunFolder:
    from multicentre.deployment.analyst_client import resume_at_service, run_at_service
    from multicentre.deployment.analysts import read_analyst
    from multicentre.errors import ConfigurationError
    from multicentre.studies import read_study

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
    study: Path | None,
    resume: Path | None,
    output: Path | None,
    coordinator: Path | None,
    analyst: Path | None,
    listener: Listener,
) -> RunFolder:
    from multicentre.studies import RunFolder, read_study, resume_run, run_study

    coordinator_name = coordinator or "FOLDER"
    sign = None if coordinator is None else _signer(coordinator, analyst)
    if resume is not None:
        connect = _connection(coordinator, RunFolder.open(resume).study)
        return resume_run(resume, listener=listener, connect=connect, coordinator=coordinator_name, sign=sign)
    assert study is not None
    study_file = read_study(study)
    chosen = study_file if output is None else study_file.with_output(output)
    connect = _connection(coordinator, study_file)
    return run_study(chosen, listener=listener, connect=connect, coordinator=coordinator_name, sign=sign)


def _signer(coordinator: Path, analyst: Path | None) -> Sign:
    """Return a function that signs a run with the analyst's key, or with the coordinator's key without an analyst."""
    from multicentre.deployment.analysts import read_analyst
    from multicentre.deployment.site_connection import sign_as_coordinator
    from multicentre.engines.remote.opening import sign_opening

    if analyst is None:
        return sign_as_coordinator(coordinator)
    signer = read_analyst(analyst)
    return lambda opening: sign_opening(opening, signer.identity, signer.card.name)


def _connection(coordinator: Path | None, study: Study) -> Connect | None:
    if coordinator is None:
        return None
    from multicentre.deployment.site_connection import connect_sites

    folder = coordinator
    return lambda: connect_sites(folder, study.sites, notify)


@handle_errors
def demo(
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the hospitals' files and the run folder.")] = (
        Path("runs")
    ),
    as_json: AsJson = False,
) -> None:
    """Run the example study of six simulated hospitals.

    It has a Table 1, survival curves, a test, models and a report. The demo needs neither files nor a network.
    """
    from multicentre.cli.progress import progress
    from multicentre.cli.summary import describe_demo, finish_run, run_as_dict
    from multicentre.datasets import write_example_study
    from multicentre.studies import read_study, run_study

    path = write_example_study(output / "demo-hospitals", n_hospitals=6)
    study = read_study(path).with_output(output)
    notify("Six simulated hospitals, one study: Table 1, survival curves, log-rank test, Cox and logistic regression.")
    with progress() as listener:
        folder = run_study(study, listener=listener)
    report = finish_run(folder)
    if as_json:
        return show_json(run_as_dict(folder, report))
    show(f"\n{describe_demo(folder, study.labels)}\n")
    show(f"Report: {report}   (open it in a browser)")
    show(f"Study:  {path}   (the same file runs over real hospitals)")
    show(f"Next:   {program()} ledger show {folder.path} --site lyon   (all that left one hospital)")
    return None


@handle_errors
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    as_json: AsJson = False,
) -> None:
    """Write a run's report.html again."""
    from multicentre.cli.summary import finish_run
    from multicentre.studies.run_folder import RunFolder

    path = finish_run(RunFolder.open(run))
    if as_json:
        show_json({"report": str(path)})
    else:
        show(str(path))
