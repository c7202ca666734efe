"""``multicentre report``: the report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, answering, show, show_json


@answering
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    as_json: AsJson = False,
) -> None:
    """Write a run's report.html again."""
    from multicentre.cli.summary import finish_run
    from multicentre.studies.folder import RunFolder

    path = finish_run(RunFolder.open(run))
    if as_json:
        show_json({"report": str(path)})
    else:
        show(str(path))
