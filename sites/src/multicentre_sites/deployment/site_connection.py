"""Connection from a coordinator's folder to the sites of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from multicentre.core.requester import COORDINATOR
from multicentre.engines.remote.opening import AnalystRequest, Opening, Sign, sign_opening
from multicentre.engines.remote.socket import Carrier
from multicentre.errors import ConfigurationError, MissingExtra
from multicentre_sites.deployment.bundle import VERSION, read_bundles
from multicentre_sites.deployment.coordinator_folder import CONNECTION, Consortium
from multicentre_sites.deployment.release_key import ReleaseKey
from multicentre_sites.deployment.site_register import SiteRegister


def connect_sites(folder: Path, sites: Iterable[str], report: Callable[[str], None]) -> Carrier:
    """Return a carrier of requests to sites, through the coordinator of a folder.

    Parameters
    ----------
    folder : Path
        Made by ``multicentre study init``. Its coordinator must be running.
    sites : iterable of str
        Names of the sites in the register.
    report : callable
        Receives each Flower command before it is run.

    Raises
    ------
    MissingExtra
        Flower is not installed.
    ConfigurationError
        A site is not in the register, the bundle is not signed, or the coordinator does not answer.
    """
    try:
        from multicentre_sites.flower.bridge import Bridge
        from multicentre_sites.flower.handshake import run_config
    except ImportError as error:
        raise MissingExtra(
            "sites on separate machines require Flower",
            where=str(error.name),
            hint="Install multicentre-sites; in a clone: pip install ./sites.",
        ) from None
    consortium = Consortium.read(folder)
    command = consortium.command("flwr")
    # flwr starts no other program, so that it needs no PATH.
    environment = {name: value for name, value in command.settings.items() if name != "PATH"}
    reference = _bundle_reference(consortium)

    def submit(bridge: Path) -> tuple[str, ...]:
        config = ("--format", "json", "--run-config", run_config(bridge))
        return (*command.arguments, "run", reference, CONNECTION, *config)

    def stop(run: int) -> tuple[str, ...]:
        return (*command.arguments, "stop", str(run), CONNECTION, "--format", "json")

    return Bridge(_public_keys(consortium, sites), submit, stop=stop, environment=environment, report=report)


def sign_as_coordinator(folder: Path) -> Sign:
    """Return a function that signs the opening of a run with the coordinator's release key."""

    def sign(opening: Opening) -> AnalystRequest:
        return sign_opening(opening, ReleaseKey.read(Consortium.read(folder).release_key).identity, COORDINATOR)

    return sign


def _public_keys(consortium: Consortium, sites: Iterable[str]) -> dict[str, str]:
    """Return the public key of each site, in the order of `sites`."""
    registered = {entry.card.name: entry.card.public_key for entry in SiteRegister.read(consortium.register).current}
    names = tuple(sites)
    missing = [site for site in names if site not in registered]
    if missing:
        raise ConfigurationError(
            f"sites must be in the coordinator's register; got {', '.join(missing)}",
            where="sites",
            hint="Add the public card of each: multicentre coordinator add-site NAME.site.toml "
            f"--folder {consortium.folder}.",
        )
    return {site: registered[site] for site in names}


def _bundle_reference(consortium: Consortium) -> str:
    """Return Flower's reference to the signed bundle of this wire protocol."""
    bundle = read_bundles(consortium).get(VERSION)
    if bundle is None:
        raise ConfigurationError(
            f"the bundle of version {VERSION} must be signed; got no signature",
            where=str(consortium.bundles),
            hint=f"Sign it: multicentre coordinator sign-app --folder {consortium.folder}.",
        )
    return bundle.reference
