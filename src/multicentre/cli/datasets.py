"""``multicentre datasets``: list, fetch, example."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, align, handle_errors, program, show, show_json

app = typer.Typer(help="Public and simulated data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
@handle_errors
def list_all(as_json: AsJson = False) -> None:
    """List the data sets with a loader and their availability."""
    import dataclasses

    from multicentre.datasets import list_datasets

    datasets = list_datasets()
    if as_json:
        return show_json([dataclasses.asdict(one) for one in datasets])
    rows = [[one.name, "yes" if one.available else "no", one.licence, one.description] for one in datasets]
    return show(align([["name", "available", "licence", "description"], *rows]))


@app.command()
@handle_errors
def fetch(name: Annotated[str, typer.Argument(help="Name of a data set.")], as_json: AsJson = False) -> None:
    """Print the location of a data set, or how to obtain it."""
    from multicentre import datasets

    message = datasets.fetch(name)
    if as_json:
        show_json({"name": name, "message": message})
    else:
        show(message)


@app.command()
@handle_errors
def example(
    folder: Annotated[Path, typer.Argument(help="Folder that receives the files.")], as_json: AsJson = False
) -> None:
    """Write three simulated hospitals and a study over them."""
    from multicentre.datasets import write_example_study

    study = write_example_study(folder)
    if as_json:
        show_json({"study": str(study)})
    else:
        show(f"Wrote three hospitals and study.toml to {folder}. Next: {program()} run {study}")
