"""``multicentre run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multicentre.cli.console import AsJson, answering, show, show_json

if TYPE_CHECKING:
    from multicentre.federation.progress import Listener
    from multicentre.studies import RunFolder


@answering
def run(
    study: Annotated[Path | None, typer.Argument(metavar="STUDY.toml", help="The study.", show_default=False)] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Take up this broken-off run instead.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the run folder goes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a study over its simulated sites, or take up a run that was broken off."""
    from multicentre.cli.progress import progress
    from multicentre.cli.summary import describe_run, finish_run, run_as_dict

    if (study is None) == (resume is None):
        raise typer.BadParameter("give either a study or --resume RUN")
    if resume is not None and output is not None:
        raise typer.BadParameter("a resumed run stays in its folder: leave --output out")
    with progress() as listener:
        folder = _run(study, resume, output, listener)
    report = finish_run(folder)
    if as_json:
        return show_json(run_as_dict(folder, report))
    show(f"\n{describe_run(folder)}\n")
    show(f"Run folder: {folder.path}")
    show(f"Report: {report}")
    return None


def _run(study: Path | None, resume: Path | None, output: Path | None, listener: Listener) -> RunFolder:
    from multicentre.studies import read_study, resume_run, run_study

    if resume is not None:
        return resume_run(resume, listener=listener)
    assert study is not None
    read = read_study(study)
    return run_study(read if output is None else read.sent_to(output), listener=listener)
