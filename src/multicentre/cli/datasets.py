"""``multicentre datasets``: list, fetch."""

from __future__ import annotations

from typing import Annotated

import typer

from multicentre.cli.console import AsJson, align, answering, show, show_json

app = typer.Typer(help="Public and simulated data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
@answering
def list_all(as_json: AsJson = False) -> None:
    """Print every data set that has a loader, and whether it is at hand."""
    import dataclasses

    from multicentre.datasets import list_datasets

    found = list_datasets()
    if as_json:
        return show_json([dataclasses.asdict(one) for one in found])
    rows = [[one.name, "yes" if one.available else "no", one.licence, one.description] for one in found]
    return show(align([["name", "at hand", "licence", "what"], *rows]))


@app.command()
@answering
def fetch(name: Annotated[str, typer.Argument(help="Name of a data set.")], as_json: AsJson = False) -> None:
    """Say where a data set is, or how to get it."""
    from multicentre import datasets

    message = datasets.fetch(name)
    if as_json:
        show_json({"name": name, "message": message})
    else:
        show(message)
