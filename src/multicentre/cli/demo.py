"""``multicentre demo``: a federated analysis of simulated centres."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, answering, show, show_json, tell


@answering
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the run folder.")] = Path("runs"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split into centres and held-out patients.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Run a federated analysis of six simulated centres.

    The demo needs neither files nor a network.
    """
    from multicentre.cli.progress import progress
    from multicentre.cli.summary import describe_run, finish_run, run_as_dict
    from multicentre.studies import run_demo

    tell("Fitting one model of breast cancer data (Fed-mv-PPCA) at six simulated centres; no row leaves a centre.")
    with progress() as listener:
        folder = run_demo(output, seed=seed, listener=listener)
    report = finish_run(folder)
    if as_json:
        return show_json(run_as_dict(folder, report))
    show(f"\n{describe_run(folder)}\n")
    show(f"Report: {report}")
    show(f"Next: multicentre ledger show {folder.path} --site centre-1   (all releases of one centre)")
    return None
