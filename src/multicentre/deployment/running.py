"""How an analyst's study reaches the sites: from the coordinator's folder to what carries letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from multicentre import __version__
from multicentre.deployment.bundle import plain_version, read_bundles
from multicentre.deployment.consortium import Consortium
from multicentre.deployment.register import Register
from multicentre.deployment.release import ReleaseKey
from multicentre.engines.remote.carrier import Carrier
from multicentre.engines.remote.packing import Opening
from multicentre.engines.remote.requests import Request, Sign, sign_opening
from multicentre.federation.asker import COORDINATOR
from multicentre.federation.errors import ConfigurationError, MissingExtra

CONNECTION = "consortium"


def connect_sites(folder: Path, sites: Iterable[str], tell: Callable[[str], None]) -> Carrier:
    """Return what carries letters to sites, over the coordinator of a folder.

    Parameters
    ----------
    folder : Path
        What ``multicentre study init`` made; its coordinator must be up.
    sites : iterable of str
        Names of the sites, as the register has them.
    tell : callable
        Is told each of Flower's commands as it is run.

    Raises
    ------
    MissingExtra
        Flower is not installed here.
    ConfigurationError
        A site is not in the register, the bundle of this version was not signed, or the coordinator
        does not answer.
    """
    try:
        from multicentre.engines.flower.bridge import Bridge
        from multicentre.engines.flower.handshake import run_config
    except ImportError as error:
        raise MissingExtra(
            "sites on machines of their own need Flower", where=str(error.name), mend="pip install multicentre[flower]"
        ) from None
    consortium = Consortium.read(folder)
    command = consortium.command("flwr")
    own = {name: value for name, value in command.settings.items() if name != "PATH"}  # flwr starts no other programme
    reference = _reference(consortium)

    def submit(bridge: Path) -> tuple[str, ...]:
        config = ("--format", "json", "--run-config", run_config(bridge))
        return (*command.arguments, "run", reference, CONNECTION, *config)

    def stop(run: int) -> tuple[str, ...]:
        return (*command.arguments, "stop", str(run), CONNECTION, "--format", "json")

    return Bridge(_keys(consortium, sites), submit, stop=stop, environment=own, told=tell)


def sign_as_coordinator(folder: Path) -> Sign:
    """Return what signs the opening of a run with the coordinator's release key, for its administrator."""

    def sign(opening: Opening) -> Request:
        return sign_opening(opening, ReleaseKey.read(Consortium.read(folder).release_key).identity, COORDINATOR)

    return sign


def _keys(consortium: Consortium, sites: Iterable[str]) -> dict[str, str]:
    """Return the public key of each site, in the order given."""
    registered = {entry.card.name: entry.card.public_key for entry in Register.read(consortium.register).current}
    named = tuple(sites)
    strangers = [site for site in named if site not in registered]
    if strangers:
        raise ConfigurationError(
            f"the coordinator's register holds no such site: {', '.join(strangers)}",
            where="sites",
            mend="Add it with its public card: multicentre coordinator add-site NAME.site.toml "
            f"--folder {consortium.folder}.",
        )
    return {site: registered[site] for site in named}


def _reference(consortium: Consortium) -> str:
    """Return how Flower names the signed bundle of this version."""
    bundle = read_bundles(consortium).get(plain_version(__version__))
    if bundle is None:
        raise ConfigurationError(
            "the bundle of this version was not signed",
            where=str(consortium.bundles),
            mend=f"Sign it: multicentre coordinator sign-app --folder {consortium.folder}.",
        )
    return bundle.reference
