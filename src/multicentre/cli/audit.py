"""``multicentre audit``: attack a study's differential privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, handle_errors, show, show_json


@handle_errors
def audit(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="Study whose method has an epsilon.")],
    runs: Annotated[int, typer.Option(metavar="N", help="Number of fits with the canary, and of fits without.")] = 500,
    site: Annotated[
        str | None, typer.Option(metavar="NAME", help="Site of the canary; the smallest site by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice of the canary; the noise has no seed.")] = 0,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="File for the result as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Test a study's differential privacy with a canary patient.

    The audit compares the study's noised answers with and without the canary, and gives a lower bound on epsilon.
    """
    from multicentre.cli.progress import progress
    from multicentre.core.storage import write_atomically
    from multicentre.errors import IntegrityError
    from multicentre.studies import read_study
    from multicentre.studies.audit import audit_study
    from multicentre.studies.serialisation import to_json

    with progress() as listener:
        result = audit_study(read_study(study), site=site, runs=runs, seed=seed, listener=listener)
    if output is not None:
        write_atomically(output, to_json(result.to_dict()).encode())
    if as_json:
        show_json(result.to_dict())
    else:
        show(str(result))
    if result.verdict == "violated":
        raise typer.Exit(IntegrityError.exit_code)
