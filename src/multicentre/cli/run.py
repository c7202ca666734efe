"""``multicentre run``, ``demo`` and ``report``: runs over simulated or real sites, and their reports."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multicentre.cli.console import AsJson, handle_errors, notify, program, show, show_json

if TYPE_CHECKING:
    from multicentre.core.rounds import Listener
    from multicentre.studies import RunFolder


@handle_errors
def run(
    study: Annotated[Path | None, typer.Argument(metavar="STUDY.toml", help="Study file.", show_default=False)] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Resume this interrupted run instead.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the run folder.")] = None,
    coordinator: Annotated[
        Path | None,
        typer.Option(
            metavar="SOCKET|FOLDER",
            help="Run over real sites: socket of a coordinator's service, or its folder for its administrator. "
            "Needs multicentre-sites.",
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
    from multicentre.cli.real_sites import function_of_sites
    from multicentre.cli.summary import describe_run, finish_run, run_as_dict

    if (study is None) == (resume is None):
        raise typer.BadParameter("Give either a study or --resume RUN.")
    if resume is not None and output is not None:
        raise typer.BadParameter("Omit --output: a resumed run stays in its folder.")
    if coordinator is None:
        with progress() as listener:
            folder = _run(study, resume, output, listener)
    else:
        run_over_sites = function_of_sites("run", "--coordinator")
        folder = run_over_sites(coordinator, analyst, study=study, resume=resume, output=output)
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


def _run(study: Path | None, resume: Path | None, output: Path | None, listener: Listener) -> RunFolder:
    """Run or resume a study over simulated sites."""
    from multicentre.studies import read_study, resume_run, run_study

    if resume is not None:
        return resume_run(resume, listener=listener)
    assert study is not None
    study_file = read_study(study)
    return run_study(study_file if output is None else study_file.with_output(output), listener=listener)


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
