"""``multicentre serve``: a local web application for a steward, a coordinator or an analyst."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import handle_errors, notify, show


@handle_errors
def serve(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A site's or coordinator's folder, or a folder of studies and runs."),
    ] = Path(),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 for any free port.")] = 0,
) -> None:
    """Show a folder in the browser of this machine until Ctrl-C.

    At a site, a steward reads and approves studies there. The pages show the same content as the other commands.
    """
    from multicentre_sites.serve.server import serve_folder

    notify("Open this address in a browser on this machine. Whoever has it can approve as you: do not pass it on.")
    serve_folder(folder, port, show)
