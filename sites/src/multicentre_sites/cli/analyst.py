"""``multicentre analyst``: keygen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, handle_errors, notify, show, show_json

app = typer.Typer(
    help="Commands for analysts. An analyst's key signs the requested runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _root() -> None:
    pass


@app.command()
@handle_errors
def keygen(
    name: Annotated[str, typer.Argument(help="Your name, as recorded in the sites' ledgers.")],
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="New folder; by default named after the analyst.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create an analyst's folder with a signing key and public card."""
    from multicentre_sites.deployment.analysts import SUFFIX, make_analyst

    analyst = make_analyst(name, folder or Path(name))
    card = analyst.folder / f"{name}{SUFFIX}"
    notify(
        f"Send {card.name} to the coordinator's administrator and to the sites' stewards. Compare the fingerprint with "
        "each of them by telephone."
    )
    if as_json:
        return show_json({"folder": str(analyst.folder), "card": str(card), "fingerprint": analyst.card.fingerprint})
    return show(f"folder       {analyst.folder}\ncard         {card}\nfingerprint  {analyst.card.fingerprint}")
