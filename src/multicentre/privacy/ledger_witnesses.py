"""Ends of ledgers as recorded by other parties: the coordinator of a run, and each site for its peers.

With every answer a site returns the signed end of its ledger. The coordinator stores the last end of each site and
sends all of them to the sites. A site stores those of its peers next to its ledger. Its next entry contains them, so
that the signature of that entry confirms them. If a ledger is shortened later, any other party of the run detects it,
even if the coordinator helps to hide it.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from multicentre.core.storage import OWNER_ONLY, check_owner_writes_alone, write_atomically
from multicentre.errors import IntegrityError, MulticentreError
from multicentre.privacy.ledger import Entry, Ledger
from multicentre.privacy.ledger_heads import Head, Statement, check_head, read_statement
from multicentre.privacy.secure_sum.identity import Identity

Keys = Mapping[str, Collection[str]]
HEADS = "heads.json"
# Each site of a group stores the ends of all others, about 300 bytes each. A simulation of a thousand sites would write
# hundreds of megabytes per checkpoint if all sites were one group.
MOST_IN_GROUP = 32
_SHORTENED = "Restore the latest copy of the site's ledger, and ask its steward who changed it."


class Witness:
    """Ends of the peers' ledgers that a site received, stored next to its ledger.

    Parameters
    ----------
    site : str
        Name of the site.
    ledger : Ledger
        Ledger of the site. If it has a file, the ends are stored next to it as ``<name>.peers.json``.
    keys : mapping of str to collection of str
        Registered public keys of peers, in hexadecimal digits. For any other peer, the first received key remains
        valid.
    peers : collection of str, optional
        Sites of the study; ends of other sites are neither stored nor confirmed. Without it, any name is accepted.
    """

    def __init__(
        self, site: str, ledger: Ledger, keys: Keys | None = None, peers: Collection[str] | None = None
    ) -> None:
        self._site = site
        self._ledger = ledger
        self._keys = keys or {}
        self._path = None if ledger.path is None else peers_file(ledger.path)
        self._peers: dict[str, Head] = {}
        if self._path is not None and self._path.exists():
            check_owner_writes_alone(self._path, "list of ledger ends")
            heads = read_statement(self._path).heads
            self._peers = {peer: head for peer, head in heads.items() if head.is_signed}
        self._unconfirmed: dict[str, list[Any]] = {}
        self._n_entries = ledger.head.entries
        self.trust(self._keys, peers)

    def trust(self, keys: Keys, peers: Collection[str] | None = None) -> None:
        """Replace the registered public keys of the peers, and the permitted names of peers."""
        self._keys = keys
        self._of_study = None if peers is None else frozenset(peers)
        self._peers = {peer: head for peer, head in self._peers.items() if self._is_peer(peer)}

    @property
    def head(self) -> Head | None:
        """Signed end of this site's ledger; None if nothing was signed."""
        head = self._ledger.head
        return head if head.signature else None

    @property
    def heads(self) -> dict[str, Head]:
        """Ends of the peers' ledgers."""
        return dict(self._peers)

    def receive(self, packed: bytes) -> None:
        """Store the ends of ledgers that the coordinator forwards; the site's next entry confirms them.

        An end replaces the stored one only if its site signed it and it has more entries. Ends of sites outside the
        study are ignored.

        Raises
        ------
        IntegrityError
            The bytes do not contain ends of ledgers with a valid signature of the coordinator.
        """
        statement = _unpacked(packed)
        peers = {site: head for site, head in statement.heads.items() if self._is_peer(site)}
        new_heads = {site: head for site, head in peers.items() if self._is_newer(site, head)}
        if new_heads:
            self._peers |= new_heads
            self._confirm(new_heads)
        if self._path is not None and self._path.parent.is_dir():
            # The original bytes keep the coordinator's signature; they are used unless this site has later ends.
            is_current = self._peers == peers and self._is_of_peers(statement)
            content = packed if is_current else Statement(self._peers).packed
            write_atomically(self._path, content, mode=OWNER_ONLY, durable=False)

    def _confirm(self, new_heads: Mapping[str, Head]) -> None:
        """Add new ends to the next entry, together with those received since the last entry."""
        if self._ledger.head.entries != self._n_entries:
            self._unconfirmed, self._n_entries = {}, self._ledger.head.entries
        self._unconfirmed |= {site: [head.entries, head.hash] for site, head in new_heads.items()}
        self._ledger.note(witnessed=dict(self._unconfirmed))

    def _is_peer(self, site: str) -> bool:
        return site != self._site and (self._of_study is None or site in self._of_study)

    def _is_of_peers(self, statement: Statement) -> bool:
        """Return whether a statement contains only ends of peers and, possibly, a valid end of this site's ledger."""
        site_head = statement.heads.get(self._site)
        keys = {self._ledger.head.key, *self._keys.get(self._site, ())}
        if site_head is not None and not (
            site_head.key in keys and site_head.study == self._ledger.study and site_head.is_signed
        ):
            return False
        return all(site == self._site or self._is_peer(site) for site in statement.heads)

    def _is_newer(self, site: str, head: Head) -> bool:
        before = self._peers.get(site)
        keys = self._keys.get(site) or {head.key if before is None else before.key}
        if before is not None and before.key in keys and before.entries >= head.entries:
            return False
        return head.key in keys and head.study == self._ledger.study and head.is_signed


class HeadRecord:
    """Ends of all sites' ledgers at the coordinator of a run.

    Parameters
    ----------
    path : Path
        ``heads.json`` in the run's folder; a resumed run continues from its content.
    signer : Identity
        Signing key of the coordinator.
    keys : mapping of str to collection of str
        Registered public keys of the sites, in hexadecimal digits. For any other site, the first received key remains
        valid.
    study : str
        Study of the ledgers; ledgers of other studies are refused.

    Raises
    ------
    IntegrityError
        The file cannot be read or was changed.
    """

    def __init__(self, path: Path, signer: Identity, keys: Keys | None = None, *, study: str = "") -> None:
        self._path = path
        self._study = study
        self._signer = signer
        self._keys = keys or {}
        self._heads: dict[str, Head] = dict(read_statement(path).heads) if path.exists() else {}
        self._written: Mapping[str, Head] = dict(self._heads)

    def check(self, ledgers: Mapping[str, Ledger]) -> None:
        """Raise IntegrityError unless every ledger continues from its last recorded end."""
        for site, head in self._heads.items():
            if site in ledgers:
                check_head(head, ledgers[site].entries, str(ledgers[site].path or site), "the coordinator")

    def note(self, heads: Mapping[str, Head | None]) -> dict[str, MulticentreError]:
        """Record the current ends of the sites' ledgers; return an error for each that does not continue."""
        errors: dict[str, MulticentreError] = {}
        for site, head in heads.items():
            if head is None or head == self._heads.get(site):
                continue
            if objection := self._objection(site, head):
                errors[site] = IntegrityError(objection, where=site, hint=_SHORTENED)
            else:
                self._heads[site] = head
        return errors

    def _objection(self, site: str, head: Head) -> str:
        """Return the reason against a new end of a site's ledger; empty if it can follow the previous end."""
        before = self._heads.get(site)
        if head.study != (self._study or head.study):
            return f"the site's ledger must be of the study {self._study!r}; got one of {head.study!r}"
        if head.key not in (self._keys.get(site) or {head.key if before is None else before.key}):
            return "the site's ledger must be signed under a key of the site; it is signed under a different key"
        if before is not None and before.entries >= head.entries:
            return f"the site's ledger must end after entry {before.entries}, its last end; got {head.entries}"
        return ""

    def state(self) -> dict[str, bytes]:
        """Write the ends to disk and return the ends that each site should store; empty if there are no new ends.

        The coordinator signs all of them. If there are many sites, each stores only the ends of its group.
        """
        if self._heads == self._written or not self._path.parent.is_dir():
            return {}
        self._written = dict(self._heads)
        write_atomically(self._path, Statement.signed(self._heads, self._signer).packed)
        sites = sorted(self._heads)
        n_groups = -(-len(sites) // MOST_IN_GROUP)
        packed_by_site: dict[str, bytes] = {}
        for group in (sites[first::n_groups] for first in range(n_groups)):
            statement = Statement.signed({site: self._heads[site] for site in group}, self._signer)
            packed_by_site |= dict.fromkeys(group, statement.packed)
        return packed_by_site


def peers_file(ledger: Path) -> Path:
    """Return the path of the ends of peers' ledgers, next to a ledger."""
    return ledger.with_name(f"{ledger.stem}.peers.json")


def check_signed_by(head: Head, keys: Collection[str], site: str) -> None:
    """Raise IntegrityError unless a site signed an end of its ledger under one of its keys."""
    if head.key not in keys or not head.is_signed:
        raise IntegrityError(
            "the end of the site's ledger must have a valid signature of the site; got an invalid one",
            where=site,
            hint="Ask the site's steward for the end of its ledger, and the coordinator for the origin of this one.",
        )


def confirmed_in(entries: Sequence[Entry]) -> dict[str, Head]:
    """Return the last end of each peer's ledger that a site's ledger confirms.

    Raises
    ------
    IntegrityError
        An entry does not contain valid ends of ledgers.
    """
    confirmed = {}
    for entry in entries:
        try:
            for site, (n_entries, digest) in entry.get("witnessed", {}).items():
                confirmed[str(site)] = Head(int(n_entries), str(digest), str(entry.get("study", "")))
        except (ValueError, TypeError, AttributeError):
            raise IntegrityError(
                f"entry {entry['entry']} must contain ends of ledgers by site; got another value", where="witnessed"
            ) from None
    return confirmed


def check_against(
    site: str,
    path: Path,
    entries: Sequence[Entry],
    heads_by_party: Mapping[str, Mapping[str, Head]],
    keys: Collection[str],
) -> int:
    """Check a ledger against the ends that other parties recorded and return the number of these parties.

    Parameters
    ----------
    site : str
        Name of the site at the other parties.
    path : Path
    entries : sequence of dict
        Entries of the ledger, verified.
    heads_by_party : mapping of str to mapping of str to Head
        Recorded ends of ledgers, by party. An end without a key comes from the ledger of the other party.
    keys : collection of str
        The site's public keys.

    Raises
    ------
    IntegrityError
        Entries were removed or rewritten, an end was not signed by the site, or it belongs to a different study.
    """
    n_witnesses = 0
    for witness, heads in heads_by_party.items():
        head = heads.get(site)
        if head is None:
            continue
        if entries and head.study != entries[-1].get("study", ""):
            raise IntegrityError(
                f"the ledger must be of the study {head.study!r}, as recorded by {witness}; it is of "
                f"{entries[-1].get('study', '')!r}",
                where=str(path),
                hint="Compare it with the ends that other parties recorded for the same study.",
            )
        if head.key:
            check_signed_by(head, keys, f"{witness}, {site}")
        check_head(head, entries, str(path), witness)
        n_witnesses += 1
    return n_witnesses


@functools.lru_cache(maxsize=64)  # the sites of one process receive the same bytes
def _unpacked(packed: bytes) -> Statement:
    statement = Statement.unpack(packed)
    if not statement.is_signed:
        raise IntegrityError(
            "the ends of ledgers must have a valid signature of the coordinator; they do not", where="heads"
        )
    return statement
