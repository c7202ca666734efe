"""``multicentre analyst``: keygen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, answering, show, show_json, tell

app = typer.Typer(
    help="Take part in studies as an analyst: a key that signs the runs that you ask for.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _root() -> None:
    pass


@app.command()
@answering
def keygen(
    name: Annotated[str, typer.Argument(help="Your name, as sites' ledgers will hold it.")],
    folder: Annotated[Path | None, typer.Option(metavar="DIR", help="A new folder; one of the name otherwise.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make an analyst's folder: the key that signs her runs, and her public card."""
    from multicentre.deployment.analysts import SUFFIX, make_analyst

    made = make_analyst(name, folder or Path(name))
    card = made.folder / f"{name}{SUFFIX}"
    tell(
        f"Send {card.name} to the coordinator's administrator and to the sites' stewards, and compare the fingerprint "
        "with each by another way, such as the telephone."
    )
    if as_json:
        return show_json({"folder": str(made.folder), "card": str(card), "fingerprint": made.card.fingerprint})
    return show(f"folder       {made.folder}\ncard         {card}\nfingerprint  {made.card.fingerprint}")
