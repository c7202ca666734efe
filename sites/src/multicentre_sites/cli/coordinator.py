"""``multicentre study`` and ``multicentre coordinator``: the coordinator's folder, process, sites and analysts."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multicentre.cli.console import AsJson, align, handle_errors, notify, show, show_json
from multicentre_sites.cli.status import Format, StatusFormat, show_status

if TYPE_CHECKING:
    from multicentre_sites.deployment.certificates import Fingerprints
    from multicentre_sites.deployment.coordinator_folder import Consortium
    from multicentre_sites.deployment.site_register import RegisterEntry

app = typer.Typer(
    help="Commands for the coordinator of studies with real hospitals. They print the Flower commands that they run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder created by multicentre study init.")]

_COMPARE = "Compare these by telephone with what the sites' commands print (site approve; authority: site check):"


class ProxyKind(str, Enum):  # noqa: UP042  # typer reads it from Python 3.11 on
    """Way in which the proxy is run."""

    nginx = "nginx"
    external = "external"
    none = "none"


@app.command()
@handle_errors
def up(
    folder: Folder = Path(),
    proxy: Annotated[
        ProxyKind,
        typer.Option(
            help="nginx: started by this command. external: started by you, with proxy/site.conf. none: for trials "
            "with sites on this machine only; every account on it can register sites and submit runs."
        ),
    ] = ProxyKind.nginx,
) -> None:
    """Start the coordinator and run it until Ctrl-C or SIGTERM.

    The command fails if the configuration would give outsiders access.
    """
    from multicentre_sites.deployment.superlink import Coordinator

    Coordinator(_consortium(folder), proxy.value, show).run()


@app.command()
@handle_errors
def add_site(
    card: Annotated[Path, typer.Argument(metavar="NAME.site.toml", help="The site's public card.")],
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Register a site by its card and update the roster.

    Run the same command again to complete an interrupted registration.
    """
    from multicentre.privacy.site_cards import read_card
    from multicentre_sites.deployment.enrolment import Enrolment
    from multicentre_sites.deployment.site_register import SiteRegister

    consortium = _consortium(folder)
    entries, before = SiteRegister.read(consortium.register).entries, _read_fingerprints(consortium)
    entry, after = Enrolment(consortium, notify).add(read_card(card)), _read_fingerprints(consortium)
    already = entry in entries
    if as_json:
        return show_json(_as_dict(entry) | {"already": already, "fingerprints": asdict(after)})
    status = "was already registered" if already else "is registered"
    show(f"{entry.card.name} {status}. Fingerprint: {entry.card.fingerprint}")
    notify("Compare the fingerprint with the site by telephone.")
    return _show_roster_change(consortium, before, after)


@app.command()
@handle_errors
def remove_site(
    name: Annotated[str, typer.Argument(help="The site's name.")], folder: Folder = Path(), as_json: AsJson = False
) -> None:
    """Remove a site and update the roster.

    The site's public key cannot be registered again.
    """
    from multicentre_sites.deployment.enrolment import Enrolment

    consortium = _consortium(folder)
    before = _read_fingerprints(consortium)
    entry, after = Enrolment(consortium, notify).remove(name), _read_fingerprints(consortium)
    if as_json:
        return show_json({"name": entry.card.name, "removed": True, "fingerprints": asdict(after)})
    show(f"{entry.card.name} is removed.")
    return _show_roster_change(consortium, before, after)


@app.command()
@handle_errors
def sites(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """List the sites with their status and its start."""
    from multicentre_sites.deployment.enrolment import Enrolment

    statuses = Enrolment(_consortium(folder), notify).sites()
    if as_json:
        return show_json([_as_dict(one.entry) | {"status": one.status, "status_since": one.since} for one in statuses])
    if not statuses:
        return show("No sites are registered.")
    rows = [[one.entry.card.name, one.status, one.since, one.entry.card.fingerprint] for one in statuses]
    return show(align([["site", "status", "since", "fingerprint"], *rows]))


@app.command()
@handle_errors
def status(folder: Folder = Path(), chosen: Format = StatusFormat.text, as_json: AsJson = False) -> None:
    """Print the coordinator's state for monitoring.

    The exit status is 3 if it does not work. Nothing is written.
    """
    from multicentre_sites.deployment.status import coordinator_status

    show_status("coordinator", coordinator_status(_consortium(folder), notify), chosen, as_json)


@app.command()
@handle_errors
def roster(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """Write and print the roster that every site pins.

    The coordinator need not be running.
    """
    from multicentre_sites.deployment.enrolment import Enrolment
    from multicentre_sites.deployment.site_register import SiteRegister

    consortium = _consortium(folder)
    register = SiteRegister.read(consortium.register)
    path, current = Enrolment(consortium, notify).publish(register), register.roster
    if as_json:
        cards = [{"name": one.name, "identity": one.identity, "fingerprint": one.fingerprint} for one in current.cards]
        return show_json({"path": path, "sites": cards, "fingerprints": asdict(_read_fingerprints(consortium))})
    notify(f"Written to {path}")
    notify(f"{_COMPARE}\n{_read_fingerprints(consortium)}")
    return show(path.read_text(encoding="utf-8").rstrip())


@app.command()
@handle_errors
def sign_app(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """Build and sign the bundle of the installed version.

    The bundle contains no code. The command prints the values that sites approve.
    """
    from multicentre_sites.deployment.bundle import sign_app as sign

    consortium = _consortium(folder)
    bundle = sign(consortium, notify)
    signers, fingerprints = [one.key_id for one in bundle.signatures], _read_fingerprints(consortium)
    if as_json:
        content = {"app": bundle.reference, "sha256": bundle.sha256, "signed_by": signers}
        return show_json(content | {"fingerprints": asdict(fingerprints)})
    show(f"{bundle.reference}\nsha256     {bundle.sha256}")
    show(f"signed by  {', '.join(signers)} (Flower's name of the release key; compare its fingerprint)")
    return _show_fingerprints(fingerprints)


@app.command()
@handle_errors
def admit_analyst(
    card: Annotated[Path, typer.Argument(metavar="NAME.analyst.toml", help="The analyst's public card.")],
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Allow an analyst to request runs.

    The sites' stewards must approve the analyst as well.
    """
    from multicentre_sites.deployment.analysts import AdmittedAnalysts, read_analyst_card

    analyst = read_analyst_card(card)
    AdmittedAnalysts(_consortium(folder).analysts).add(analyst)
    if as_json:
        return show_json({"name": analyst.name, "fingerprint": analyst.fingerprint})
    show(f"{analyst.name} is admitted. Fingerprint: {analyst.fingerprint}")
    return notify("Compare the fingerprint with the analyst by telephone.")


@app.command()
@handle_errors
def remove_analyst(
    name: Annotated[str, typer.Argument(help="The analyst's name.")], folder: Folder = Path(), as_json: AsJson = False
) -> None:
    """Stop admitting an analyst's runs.

    Runs that have started continue.
    """
    from multicentre_sites.deployment.analysts import AdmittedAnalysts

    AdmittedAnalysts(_consortium(folder).analysts).remove(name)
    return show_json({"name": name, "removed": True}) if as_json else show(f"{name} is no longer admitted.")


@app.command()
@handle_errors
def analysts(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """List the admitted analysts."""
    from multicentre_sites.deployment.analysts import AdmittedAnalysts

    cards = AdmittedAnalysts(_consortium(folder).analysts).cards
    if as_json:
        return show_json([{"name": one.name, "fingerprint": one.fingerprint} for one in cards])
    if not cards:
        return show("No analysts are admitted.")
    return show(align([["analyst", "fingerprint"], *([one.name, one.fingerprint] for one in cards)]))


def _consortium(folder: Path) -> Consortium:
    from multicentre.core.disk import use_folder
    from multicentre_sites.deployment.coordinator_folder import Consortium

    consortium = Consortium.read(folder)
    use_folder(consortium.state)
    return consortium


def _read_fingerprints(consortium: Consortium) -> Fingerprints:
    """Return the fingerprints of the files that a coordinator gives to its sites."""
    from multicentre_sites.deployment.certificates import Fingerprints

    return Fingerprints.of(consortium.public)


def _show_fingerprints(fingerprints: Fingerprints) -> None:
    """Print fingerprints, with instructions for their comparison."""
    notify(_COMPARE)
    show(str(fingerprints))


def _show_roster_change(consortium: Consortium, before: Fingerprints, after: Fingerprints) -> None:
    if before.roster == after.roster:
        return notify("The roster is unchanged.")
    notify(f"Send the new {consortium.public / 'roster.toml'} to all sites.")
    return _show_fingerprints(after)


def _as_dict(entry: RegisterEntry) -> dict[str, Any]:
    return {
        "name": entry.card.name,
        "state": entry.state,
        "since": entry.since,
        "node_id": None if entry.node_id is None else str(entry.node_id),  # JSON readers round numbers this large
        "identity": entry.card.identity,
        "fingerprint": entry.card.fingerprint,
    }


study_app = typer.Typer(
    help="Set up the coordinator of studies with real hospitals.", no_args_is_help=True, rich_markup_mode=None
)

Port = Annotated[int, typer.Option(min=1, max=65535, help="Port of the coordinator for sites.")]
Certificate = typer.Option(
    metavar="FILE", help="PEM file of an existing authority; give all three or none.", show_default=False
)


@study_app.callback()
def _study_root() -> None:
    pass


@study_app.command()
@handle_errors
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
    bundles_port: Annotated[int, typer.Option(min=1, max=65535, help="Internal port on 127.0.0.1.")] = 18300,
    as_json: AsJson = False,
) -> None:
    """Create a coordinator's folder.

    The folder contains the certificate authority, keys, Flower's private home and the proxy's configuration.
    """
    from multicentre_sites.deployment.new_coordinator_folder import ConsortiumOptions, create_consortium

    consortium = create_consortium(
        folder, ConsortiumOptions(host, port, listen, superlink_port, bundles_port, ca, certificate, key)
    )
    fingerprints = _read_fingerprints(consortium)
    if as_json:
        content = {"folder": consortium.folder, "address": consortium.address, "public": consortium.public}
        return show_json(content | {"fingerprints": asdict(fingerprints)})
    show(f"The coordinator's folder is {consortium.folder}; sites will reach {consortium.address}.")
    notify(f"Keys are in pki/ and secrets/: keep them secret. Files for the sites are in {consortium.public}.")
    _show_fingerprints(fingerprints)
    notify(
        f"Next: multicentre coordinator sign-app --folder {folder}, then multicentre coordinator up --folder {folder}"
    )
    return None
