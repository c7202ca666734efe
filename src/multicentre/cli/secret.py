"""``multicentre secret``: new, check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, answering, show, show_json, tell

app = typer.Typer(
    help="Make and check the key that the sites of a study share, and the coordinator does not have.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Study = Annotated[str, typer.Option(metavar="NAME", help="The study that the fingerprint is for.")]


@app.command()
@answering
def new(
    path: Annotated[Path, typer.Argument(help="A new file, read by its owner alone.")], as_json: AsJson = False
) -> None:
    """Write a new random key to a file that only you can read."""
    from multicentre.linkage.pseudonyms import PseudonymKey

    PseudonymKey.generate().write(path)
    tell("Hand it to the study's other sites by a safe way of your own, and never to the coordinator.")
    if as_json:
        show_json({"path": str(path)})
    else:
        show(f"A new secret is in {path}")


@app.command()
@answering
def check(
    path: Annotated[Path, typer.Argument(help="A secret file.")], study: Study = "", as_json: AsJson = False
) -> None:
    """Check a secret file and print a fingerprint that sites can compare; the key itself is never shown."""
    from multicentre.linkage.pseudonyms import PseudonymKey

    fingerprint = PseudonymKey.read(path).fingerprint(study)
    if as_json:
        show_json({"path": str(path), "study": study, "fingerprint": fingerprint})
    else:
        show(fingerprint)
