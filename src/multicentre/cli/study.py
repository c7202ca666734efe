"""``multicentre study``: creation of a coordinator's folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from multicentre.cli.console import AsJson, answering, show, show_json, tell
from multicentre.cli.ledger import read_fingerprints, show_fingerprints

app = typer.Typer(
    help="Set up the coordinator of studies with real hospitals.", no_args_is_help=True, rich_markup_mode=None
)

Port = Annotated[int, typer.Option(min=1, max=65535, help="Port of the coordinator for sites.")]
Certificate = typer.Option(
    metavar="FILE", help="PEM file of an existing authority; give all three or none.", show_default=False
)


@app.callback()
def _root() -> None:
    pass


@app.command()
@answering
def init(
    folder: Annotated[Path, typer.Argument(help="New folder for the coordinator.")],
    host: Annotated[str, typer.Option(metavar="HOST", help="Host name or IPv4 address of the coordinator.")],
    port: Port = 443,
    ca: Annotated[Path | None, Certificate] = None,
    certificate: Annotated[Path | None, Certificate] = None,
    key: Annotated[Path | None, Certificate] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help="Listening address of the proxy, if different.")
    ] = None,
    superlink_port: Annotated[int, typer.Option(min=1, max=65535, help="Internal port on 127.0.0.1.")] = 18000,
    hub_port: Annotated[int, typer.Option(min=1, max=65535, help="Internal port on 127.0.0.1.")] = 18300,
    as_json: AsJson = False,
) -> None:
    """Create a coordinator's folder.

    The folder contains the certificate authority, keys, Flower's private home and the proxy's configuration.
    """
    from multicentre.deployment.new_consortium import ConsortiumOptions, create_consortium

    consortium = create_consortium(
        folder, ConsortiumOptions(host, port, listen, superlink_port, hub_port, ca, certificate, key)
    )
    fingerprints = read_fingerprints(consortium)
    if as_json:
        content = {"folder": consortium.folder, "address": consortium.address, "public": consortium.public}
        return show_json(content | {"fingerprints": asdict(fingerprints)})
    show(f"The coordinator's folder is {consortium.folder}; sites will reach {consortium.address}.")
    tell(f"Keys are in pki/ and secrets/: keep them secret. Files for the sites are in {consortium.public}.")
    show_fingerprints(fingerprints)
    tell(f"Next: multicentre coordinator sign-app --folder {folder}, then multicentre coordinator up --folder {folder}")
    return None
