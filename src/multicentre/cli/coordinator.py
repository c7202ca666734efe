"""``multicentre coordinator``: up, add-site, remove-site, sites, roster, sign-app."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multicentre.cli.console import AsJson, align, answering, show, show_json, tell

if TYPE_CHECKING:
    from multicentre.deployment.enrolment import Enrolment
    from multicentre.deployment.register import Entry

app = typer.Typer(
    help="Run the coordinator of studies with real hospitals. Flower's commands are printed as they are run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="The folder that multicentre study init made.")]


class ProxyKind(str, Enum):  # noqa: UP042  # typer reads it from Python 3.11 on
    """Who runs the proxy."""

    nginx = "nginx"
    external = "external"
    none = "none"


@app.command()
@answering
def up(
    folder: Folder = Path(),
    proxy: Annotated[
        ProxyKind,
        typer.Option(
            help="nginx: started here. external: your own, with proxy/site.conf. none: sites on this machine alone."
        ),
    ] = ProxyKind.nginx,
) -> None:
    """Start the coordinator and keep it up; refuse where outsiders would get in. Ends with Ctrl-C or SIGTERM."""
    from multicentre.deployment.consortium import Consortium
    from multicentre.deployment.superlink import Coordinator

    Coordinator(Consortium.read(folder), proxy.value, show).run()


@app.command()
@answering
def add_site(
    card: Annotated[Path, typer.Argument(metavar="NAME.site.toml", help="The site's public card.")],
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Register a site by its card, and write the roster anew. What broke off is ended by the same command."""
    from multicentre.deployment.cards import read_card

    entry = _enrolment(folder).add(read_card(card))
    if as_json:
        return show_json(_as_dict(entry))
    show(f"{entry.card.name} is registered. Fingerprint: {entry.card.fingerprint}")
    tell("Compare the fingerprint with the site by telephone, and send all sites the new public/roster.toml.")
    return None


@app.command()
@answering
def remove_site(
    name: Annotated[str, typer.Argument(help="The site's name.")], folder: Folder = Path(), as_json: AsJson = False
) -> None:
    """Take a site out, and write the roster anew. Its public key is never taken again."""
    entry = _enrolment(folder).remove(name)
    if as_json:
        return show_json({"name": entry.card.name, "removed": True})
    show(f"{entry.card.name} is removed.")
    tell("Send all sites the new public/roster.toml.")
    return None


@app.command()
@answering
def sites(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """List the sites: who is online, who is not, and since when."""
    seen = _enrolment(folder).sites()
    if as_json:
        return show_json([_as_dict(one.entry) | {"status": one.status, "status_since": one.since} for one in seen])
    if not seen:
        return show("No site was added yet.")
    rows = [[one.entry.card.name, one.status, one.since, one.entry.card.fingerprint] for one in seen]
    return show(align([["site", "status", "since", "fingerprint"], *rows]))


@app.command()
@answering
def roster(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """Write and print the roster that every site pins; needs no running coordinator."""
    from multicentre.deployment.consortium import Consortium
    from multicentre.deployment.register import Register

    consortium = Consortium.read(folder)
    told = Register.read(consortium.register).roster
    path = consortium.public / "roster.toml"
    told.write(path)
    if as_json:
        cards = [{"name": one.name, "identity": one.identity, "fingerprint": one.fingerprint} for one in told.cards]
        return show_json({"path": path, "sites": cards})
    tell(f"Written to {path}")
    return show(path.read_text(encoding="utf-8").rstrip())


@app.command()
@answering
def sign_app(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """Build and sign the bundle of the installed version; it contains no code. Prints what sites approve."""
    from multicentre.deployment.bundle import sign_app as sign
    from multicentre.deployment.consortium import Consortium

    bundle = sign(Consortium.read(folder), tell)
    signers = [one.key_id for one in bundle.signatures]
    if as_json:
        return show_json({"app": bundle.reference, "sha256": bundle.sha256, "signed_by": signers})
    show(f"{bundle.reference}\nsha256     {bundle.sha256}\nsigned by  {', '.join(signers)}")
    return None


def _enrolment(folder: Path) -> Enrolment:
    from multicentre.deployment.consortium import Consortium
    from multicentre.deployment.enrolment import Enrolment

    return Enrolment(Consortium.read(folder), tell)


def _as_dict(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.card.name,
        "state": entry.state,
        "since": entry.since,
        "node_id": None if entry.node_id is None else str(entry.node_id),  # JSON readers round numbers this large
        "identity": entry.card.identity,
        "fingerprint": entry.card.fingerprint,
    }
