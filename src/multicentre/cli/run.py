"""``multicentre run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multicentre.cli.console import AsJson, answering, show, show_json, tell

if TYPE_CHECKING:
    from multicentre.federation.progress import Listener
    from multicentre.studies import RunFolder, Study
    from multicentre.studies.runner import Connect


@answering
def run(
    study: Annotated[Path | None, typer.Argument(metavar="STUDY.toml", help="The study.", show_default=False)] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Take up this broken-off run instead.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the run folder goes.")] = None,
    coordinator: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Over real sites, by the coordinator of this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a study over simulated sites or, with --coordinator, over real ones; or take up a run that was broken off."""
    from multicentre.cli.progress import progress
    from multicentre.cli.summary import describe_run, finish_run, run_as_dict

    if (study is None) == (resume is None):
        raise typer.BadParameter("give either a study or --resume RUN")
    if resume is not None and output is not None:
        raise typer.BadParameter("a resumed run stays in its folder: leave --output out")
    with progress() as listener:
        folder = _run(study, resume, output, coordinator, listener)
    report = finish_run(folder)
    if as_json:
        return show_json(run_as_dict(folder, report))
    show(f"\n{describe_run(folder)}\n")
    show(f"Run folder: {folder.path}")
    show(f"Report: {report}")
    return None


def _run(
    study: Path | None, resume: Path | None, output: Path | None, coordinator: Path | None, listener: Listener
) -> RunFolder:
    from multicentre.studies import RunFolder, read_study, resume_run, run_study

    named = coordinator or "FOLDER"
    if resume is not None:
        connect = _connection(coordinator, RunFolder.open(resume).study)
        return resume_run(resume, listener=listener, connect=connect, coordinator=named)
    assert study is not None
    read = read_study(study)
    chosen = read if output is None else read.sent_to(output)
    return run_study(chosen, listener=listener, connect=_connection(coordinator, read), coordinator=named)


def _connection(coordinator: Path | None, study: Study) -> Connect | None:
    if coordinator is None:
        return None
    from multicentre.deployment.running import connect_sites

    folder = coordinator
    return lambda: connect_sites(folder, study.sites, tell)
