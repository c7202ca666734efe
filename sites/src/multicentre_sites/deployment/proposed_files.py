"""Files that wait for a steward's decision: folder ``proposed`` of a site's folder.

A file there has no effect. ``multicentre serve`` displays it, and stores uploaded files there. Relative paths in a
proposed study start at the site's folder.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from multicentre.core.storage import OWNER_ONLY, make_private_folder, read_regular, write_atomically
from multicentre.errors import ConfigurationError, MulticentreError
from multicentre_sites.deployment.proposals import Proposal, recognise
from multicentre_sites.deployment.site_folder import Site

FOLDER = "proposed"
# A steward decides about a few files at a time; a fuller folder is not read.
_MAX_FILES = 200


@dataclass(frozen=True)
class ProposedFile:
    """File that waits for a decision.

    Parameters
    ----------
    path : Path
    sha256 : str
        SHA-256 of the file, which names it on pages.
    proposal : Proposal, optional
        None if the file cannot be approved.
    objection : str
        Reason why it cannot be approved; empty otherwise.
    """

    path: Path
    sha256: str
    proposal: Proposal | None = None
    objection: str = ""


def read_proposed(site: Site) -> list[ProposedFile]:
    """Return the files that wait at a site, by name; links, folders and hidden files are left out."""
    folder = site.folder / FOLDER
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    regular = [path for path in paths if path.is_file() and not path.is_symlink() and not path.name.startswith(".")]
    return [_read(path, site) for path in regular[:_MAX_FILES]]


def find_proposed(site: Site, sha256: str) -> ProposedFile:
    """Return the file with this SHA-256.

    Raises
    ------
    ConfigurationError
        No file has it: it was changed or removed.
    """
    for file in read_proposed(site):
        if file.sha256 == sha256:
            return file
    raise ConfigurationError(
        "the proposed file must still be there; it was changed or removed",
        where=sha256[:64],
        hint="Load the list of proposals again.",
    )


def store_proposed(site: Site, content: bytes) -> ProposedFile:
    """Store a file under its SHA-256, and return it.

    Raises
    ------
    ConfigurationError
        The content cannot be approved; nothing is stored.
    """
    folder, sha256 = site.folder / FOLDER, hashlib.sha256(content).hexdigest()
    make_private_folder(folder)
    path = folder / f"{sha256}.toml"
    write_atomically(path, content, mode=OWNER_ONLY)
    file = _read(path, site)
    if file.objection:
        path.unlink()
        raise ConfigurationError(f"the file cannot be approved: {file.objection}", where="file")
    return file


def remove_proposed(site: Site, sha256: str) -> None:
    """Remove a file without a decision; approvals are not affected."""
    find_proposed(site, sha256).path.unlink(missing_ok=True)


def _read(path: Path, site: Site) -> ProposedFile:
    try:
        sha256 = hashlib.sha256(read_regular(path, "proposed file")).hexdigest()
        proposal = recognise(str(path))
    except MulticentreError as error:
        return ProposedFile(path, hashlib.sha256(str(path).encode()).hexdigest(), objection=error.with_notes)
    except OSError as error:
        return ProposedFile(path, hashlib.sha256(str(path).encode()).hexdigest(), objection=f"{error.strerror}")
    return ProposedFile(path, sha256, replace(proposal, folder=site.folder))
