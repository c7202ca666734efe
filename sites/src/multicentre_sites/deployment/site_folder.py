"""Folder of a site: ``site.toml``, keys, approvals, ledgers and the state of its process."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from multicentre.core.storage import check_owner_writes_alone, check_site_name
from multicentre.errors import ConfigurationError
from multicentre.privacy.policy import Policy
from multicentre.privacy.secret_files import Secret, read_secret
from multicentre.privacy.secure_sum.identity import Identity
from multicentre.studies.tables import File, PolicySource, Table
from multicentre_sites.deployment.settings import read_settings

SETTINGS = "site.toml"
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DEFAULT_PORT = 443  # of HTTPS
# Terms of [policy] that `site keygen` writes. One that is missing was lost, and its default may be weaker.
STATED_TERMS = (
    *("min_patients", "min_patients_in_total", "min_difference", "secure_sums_only", "exact_times", "relations"),
    "min_sites_in_sum",
)
# Remedy for a lost vault key, of which no other site has a copy.
_NO_COPY = (
    "Only this site has this key. Restore it from a backup of this site, or generate a new one: multicentre secret new "
    "{path}. Send it to nobody. What the lost key encrypted cannot be read: current runs have to be started again."
)


_TERMS = frozenset(field.name for field in dataclasses.fields(Policy))


def _validate_name(name: str) -> str:
    try:
        check_site_name(name)
    except ConfigurationError as error:
        raise ValueError(error.what) from None
    return name


def _validate_address(address: str) -> str:
    """Return ``host:port``; refuse addresses without TLS."""
    if "://" in address and not address.startswith("https://"):
        raise ValueError("an https address, host:port")
    bare = address.removeprefix("https://").rstrip("/")
    bare = bare if ":" in bare.rpartition("]")[2] else f"{bare}:{_DEFAULT_PORT}"
    match = _ADDRESS.fullmatch(bare)
    if match is None or not 0 < int(match["port"]) < 2**16:
        raise ValueError("an address, host:port")
    return bare


def _validate_terms(policy: Any) -> Any:
    """Return the policy of ``site.toml``, whose table states every term of a new site."""
    is_table = isinstance(policy, dict) and bool(policy) and policy.keys() <= _TERMS  # an unknown term is named instead
    missing = [term for term in STATED_TERMS if term not in policy] if is_table else []
    if missing:
        raise ValueError(f"a table that states {', '.join(missing)}, as `site keygen` writes it, is needed")
    return policy


class AboutSite(Table):
    """``[site]``: the site's name at the coordinator and the other sites."""

    name: Annotated[str, AfterValidator(_validate_name)]


class CoordinatorTable(Table):
    """``[coordinator]``: its address, and the certificate of its authority."""

    address: Annotated[str, AfterValidator(_validate_address)]
    ca: File


class KeysTable(Table):
    """``[keys]``: key files, readable by their owner only."""

    node: File = Field(default=Path("keys/node"), validate_default=True)
    identity: File = Field(default=Path("keys/identity"), validate_default=True)
    vault: File = Field(default=Path("keys/vault"), validate_default=True)


class StudyOverrides(Table):
    """``[studies.NAME]``: settings of this site for one study; its files replace those that the study names."""

    files: dict[str, File] = Field(default_factory=dict)
    policy: PolicySource | None = None
    pseudonym_key: File | None = None


class SiteSettings(Table):
    """``site.toml``."""

    site: AboutSite
    coordinator: CoordinatorTable
    keys: KeysTable = Field(default={}, validate_default=True)
    # Without a default, of the table or a term: a file that was cut off must not fall back to a weaker policy.
    policy: Annotated[PolicySource, BeforeValidator(_validate_terms)]
    studies: dict[str, StudyOverrides] = Field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """A site, described by its folder.

    Parameters
    ----------
    folder : Path
        Absolute.
    settings : SiteSettings
    """

    folder: Path
    settings: SiteSettings

    @property
    def name(self) -> str:
        """Name of the site."""
        return self.settings.site.name

    @property
    def address(self) -> str:
        """Address of the coordinator, ``host:port``."""
        return self.settings.coordinator.address

    @property
    def ca(self) -> Path:
        """Certificate of the coordinator's authority."""
        return self.settings.coordinator.ca

    @property
    def keys(self) -> KeysTable:
        """Key files."""
        return self.settings.keys

    @cached_property
    def identity(self) -> Identity:
        """Identity of the site in masked sums."""
        return Identity.read(self.keys.identity)

    @cached_property
    def vault_key(self) -> Secret:
        """Key that encrypts the state between calls."""
        return Secret(read_secret(self.keys.vault, hint=_NO_COPY.format(path=shlex.quote(str(self.keys.vault)))))

    def policy_for(self, study: str) -> Policy:
        """Return this site's policy for a study, whatever the study's file says.

        Account and cohorts are next to the policy's file, or next to ``site.toml`` if the policy is part of it.
        """
        source = self._policy_source(study)
        if isinstance(source, Policy):
            name = SETTINGS if self._of(study).policy is None else f"site.{plain_name(study)}.toml"
            return source.relative_to(self.folder / name).remembering(self.folder / name)
        return Policy.read(source).remembering(source)

    def rules_for(self, study: str) -> list[Path]:
        """Return the files that define what the site permits: its settings, and a separate policy file."""
        source = self._policy_source(study)
        return [self.folder / SETTINGS, *([] if isinstance(source, Policy) else [source])]

    def files_for(self, study: str) -> dict[str, Path]:
        """Return the files that replace those that the study names."""
        return self._of(study).files

    def pseudonym_key_for(self, study: str) -> Path | None:
        """Return the file of the pseudonym key, if the settings name one."""
        return self._of(study).pseudonym_key

    def ledger_of(self, study: str) -> Path:
        """Return the path of a study's ledger."""
        return self.ledgers / f"{plain_name(study)}.jsonl"

    @property
    def ledgers(self) -> Path:
        """Folder of ledgers."""
        return self.folder / "ledgers"

    @property
    def approved(self) -> Path:
        """Folder of the steward's approvals."""
        return self.folder / "approved"

    @property
    def state(self) -> Path:
        """Folder of the encrypted state between calls."""
        return self.folder / "state"

    @property
    def opened(self) -> Path:
        """List of signed runs that were opened here."""
        return self.folder / "opened.json"

    @property
    def running(self) -> Path:
        """Folder of the running process."""
        return self.folder / "running"

    @property
    def log(self) -> Path:
        """Log of the site, which never leaves it."""
        return self.folder / "site.log"

    def _policy_source(self, study: str) -> PolicySource:
        policy_source = self._of(study).policy
        return self.settings.policy if policy_source is None else policy_source

    def _of(self, study: str) -> StudyOverrides:
        return self.settings.studies.get(study) or StudyOverrides()


def read_site(folder: str | Path) -> Site:
    """Read a site's folder.

    Raises
    ------
    ConfigurationError
        ``site.toml`` is missing or writable for others, or a key in it is unknown, missing or invalid.
    IntegrityError
        ``site.toml`` is a symbolic link.
    """
    folder = Path(folder).absolute()
    if not (folder / SETTINGS).is_file():
        raise ConfigurationError(
            f"a site's folder must contain {SETTINGS}; it is missing",
            where=str(folder),
            hint="Name the site's folder with --folder, or make one: multicentre site keygen NAME.",
        )
    check_owner_writes_alone(folder / SETTINGS, "site's settings")
    return Site(folder, read_settings(SiteSettings, folder / SETTINGS, SETTINGS))


def policies_of(path: Path) -> dict[str, Policy]:
    """Return the policy of a site's settings, and those of single studies, by a label for their reader."""
    site = read_site(path.parent)
    of_studies = [name for name, overrides in site.settings.studies.items() if overrides.policy is not None]
    return {
        f"{site.name}, [policy]": site.policy_for(""),
        **{f"{site.name}, study {name}": site.policy_for(name) for name in of_studies},
    }


def plain_name(name: str) -> str:
    """Return a name that a file can have on any system; different names stay different.

    Examples
    --------
    >>> plain_name("hips")
    'hips'
    >>> plain_name("Ward 7")
    'ward-7.7f0f2d06'
    """
    if _PLAIN.fullmatch(name) and name == name.lower():
        return name
    slug = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:48] or "study"
    return f"{slug}.{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def read_again(site: Site) -> Site:
    """Return a site as its settings are now.

    Raises
    ------
    ConfigurationError
        They cannot be used, or name another site.
    """
    now = read_site(site.folder)
    if now.name != site.name:
        raise ConfigurationError(
            f"the settings name another site than {site.name!r}, which is up",
            where=str(site.folder / SETTINGS),
            hint="End multicentre site up and start it again.",
        )
    return now
