"""``multicentre reproduce``: tables and figures of papers."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, handle_errors, show, show_json
from multicentre.errors import ConfigurationError, MissingExtra, nearest_name


@handle_errors
def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="Short name of a paper.")],
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version, in a few minutes.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for tables and figures.")] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute the tables and figures of a method's paper."""
    from multicentre.cli.progress import progress

    module = _find(paper)
    with progress() as listener:
        result = module.reproduce(quick=quick, output=output, listener=listener)
    if as_json:
        show_json({"paper": paper, "result": result.to_dict()})
    elif result is not None:
        show(str(result))


def _find(paper: str) -> ModuleType:
    try:
        papers = importlib.import_module("multicentre_papers").PAPERS
    except ModuleNotFoundError:
        raise MissingExtra(
            "reproductions require the package multicentre-papers",
            where="reproduce",
            hint="Install it; in a clone: pip install ./papers.",
        ) from None
    if paper not in papers:
        hint = nearest_name([paper], papers).strip() or f"Known papers: {', '.join(papers)}."
        raise ConfigurationError(f"paper must be a known short name; got {paper!r}", where="reproduce", hint=hint)
    return importlib.import_module(f"multicentre_papers.{paper.replace('-', '_')}")
