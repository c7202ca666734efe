"""Creation of a site's folder: private keys, the public card, and ``site.toml`` with strict defaults."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from multicentre.core.storage import check_site_name, write_atomically
from multicentre.errors import ConfigurationError
from multicentre.privacy.policy import NEW_SITE
from multicentre.privacy.secret_files import SECRET_BYTES, write_secret
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.privacy.site_cards import SiteCard, write_card
from multicentre_sites.deployment.certificates import write_node_key
from multicentre_sites.deployment.site_folder import SETTINGS

_FOLDER_MODE = 0o700  # for its owner only
_SETTINGS = """\
# This site's settings. Only this file and the files that it names decide what leaves the site: a study cannot change
# them. Relative paths start at this folder.

[site]
name = {name}

# Where the coordinator is reached (host:port, always over TLS), and the certificate of the authority that vouches for
# it. Copy the file here, and compare its fingerprint with the coordinator by another way. A proxy on the way out
# is taken from the environment (HTTPS_PROXY, NO_PROXY).
[coordinator]
address = {address}
ca = "ca.crt"

# Secrets that only their owner reads (mode 0600). `node` authenticates the connection, `identity` signs the keys of
# masked sums, and `vault` encrypts the state between calls. The folder belongs on an encrypted disk. Where the
# machine has a TPM or a secret store, let that write the vault's file at start into a folder in memory (/run), and name
# it here.
[keys]
node = "keys/node"
identity = "keys/identity"
vault = "keys/vault"

# What may leave. This table may also be a separate file: write policy = "policy.toml" above [site] instead.
[policy]
{policy}
# min_patients_in_share = 5  # few patients here: in masked sums, min_patients_in_total stands in for min_patients
# max_parameters_per_patient = 0.33  # coefficients of a regression per patient; by default one third, 0: no limit
# methods = ["fed-cox", "secure-sum"]
# columns = ["age", "sex"]
# epsilon = 2.0              # a privacy budget for all runs together, with
# delta = 1e-5

# Settings of this site for an approved study (multicentre site approve STUDY.toml). Without `files`, the paths of the
# study apply, relative to the folder of the study's file when it was approved.
# [studies.hips]
# pseudonym_key = "keys/hips.secret"
# policy = "hips-policy.toml"
# [studies.hips.files]
# file = "/data/hips/export.csv"
"""


# Terms of NEW_SITE that the file states, with their meaning.
_TERMS = {
    "min_patients": "a value leaves only if at least this many patients are behind it",
    "min_patients_in_total": "a sum over sites is revealed only if it is over this many patients, in tables per cell",
    "min_difference": "any two answers must be about patients that differ by at least this many, or by none",
    "secure_sums_only": "true: nothing computed from patients leaves except as a masked summand",
    "exact_times": "true: times of events may leave as they were recorded",
    "relations": "of single patients, under pseudonyms: none, summed, listed, dense",
    "min_sites_in_sum": "minimum number of sites in a masked sum, and in each view and column of it",
}


@dataclass(frozen=True)
class NewSite:
    """New folder of a site, with the card to send to the coordinator."""

    folder: Path
    card: SiteCard
    card_path: Path


def make_site(name: str, folder: Path, address: str = "coordinator.example.org:443") -> NewSite:
    """Create a site's folder with new keys.

    Parameters
    ----------
    name : str
        The site's name.
    folder : Path
        Created if missing. Its files are never overwritten.
    address : str
        Address of the coordinator, for ``site.toml``.

    Raises
    ------
    ConfigurationError
        The name is invalid, the folder contains a site already, or it cannot be written.
    """
    check_site_name(name)
    folder = folder.absolute()
    if (folder / SETTINGS).exists() or (folder / "keys").exists():
        raise ConfigurationError(
            "the folder must be without a site, since keys are never overwritten; it has settings or keys",
            where=str(folder),
            hint="Name another folder. To change keys, have the coordinator remove and register the site again.",
        )
    keys = folder / "keys"
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        keys.mkdir(mode=_FOLDER_MODE)
    except OSError as error:
        raise ConfigurationError(f"the folder cannot be created ({error.strerror})", where=str(folder)) from None
    public_key = write_node_key(keys / "node")
    identity = Identity.generate()
    identity.write(keys / "identity")
    write_secret(keys / "vault", os.urandom(SECRET_BYTES))
    card = SiteCard(name, public_key, identity.public.hex())
    settings = _SETTINGS.format(name=_quote(name), address=_quote(address), policy=_policy_terms())
    write_atomically(folder / SETTINGS, settings.encode(), mode=0o600)
    return NewSite(folder, card, write_card(card, folder))


def _policy_terms() -> str:
    """Return the policy of a new site as lines of TOML with comments."""
    lines = {f"{name} = {json.dumps(getattr(NEW_SITE, name))}": meaning for name, meaning in _TERMS.items()}
    width = max(map(len, lines)) + 1
    return "\n".join(f"{line:<{width}} # {meaning}" for line, meaning in lines.items())


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
