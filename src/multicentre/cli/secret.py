"""``multicentre secret``: new, check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, handle_errors, notify, show, show_json

app = typer.Typer(
    help="Create and check the sites' shared secret key.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Study = Annotated[str, typer.Option(metavar="NAME", help="Study of the fingerprint.")]


@app.command()
@handle_errors
def new(
    path: Annotated[Path, typer.Argument(help="New file, readable by its owner only.")], as_json: AsJson = False
) -> None:
    """Write a new random key to a file that only you can read.

    The sites of a study share the key. The coordinator must not have it.
    """
    from multicentre.linkage.pseudonyms import PseudonymKey

    PseudonymKey.generate().write(path)
    notify("Send it to the study's other sites by a secure channel, and never to the coordinator.")
    if as_json:
        show_json({"path": str(path)})
    else:
        show(f"New secret: {path}")


@app.command()
@handle_errors
def check(
    path: Annotated[Path, typer.Argument(help="Secret file.")], study: Study = "", as_json: AsJson = False
) -> None:
    """Check a secret file and print its fingerprint.

    Sites compare the fingerprints. The key is never printed.
    """
    from multicentre.linkage.pseudonyms import PseudonymKey

    fingerprint = PseudonymKey.read(path).fingerprint(study)
    if as_json:
        show_json({"path": str(path), "study": study, "fingerprint": fingerprint})
    else:
        show(fingerprint)
