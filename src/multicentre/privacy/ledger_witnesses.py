"""Ends of ledgers as recorded by other parties: the coordinator of a run, and each site for its peers.

With every answer a site returns the signed end of its ledger. The coordinator stores the last end of each site and
sends all of them to the sites. A site stores those of its peers next to its ledger. Its next entry contains them, so
that the signature of that entry confirms them. If a ledger is shortened later, any other party of the run detects it,
even if the coordinator helps to hide it.

When a run is opened, the sites return the ends on file, and the coordinator sends each site its own signed end. A site
whose ledger does not contain it has lost entries: it writes that down and answers nothing until its steward has
acknowledged the loss.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from multicentre.core.storage import OWNER_ONLY, check_owner_writes_alone, write_atomically
from multicentre.errors import ConfigurationError, IntegrityError, MessageError, MulticentreError
from multicentre.privacy.ledger import Entry, Ledger
from multicentre.privacy.ledger_heads import Head, Statement, check_head, read_statement
from multicentre.privacy.secure_sum.identity import Identity

_LOG = logging.getLogger("multicentre.site.ledgers")
Keys = Mapping[str, Collection[str]]
HEADS = "heads.json"
# Each site of a group stores the ends of all others, about 300 bytes each. A simulation of a thousand sites would write
# hundreds of megabytes per checkpoint if all sites were one group.
MAX_IN_GROUP = 32
_SHORTENED = "Restore the latest copy of the site's ledger, and ask its steward who changed it."
SHORTENED, ACKNOWLEDGED = "shortened", "acknowledged"  # events of a ledger that lost entries
_ACKNOWLEDGE = (
    "Restore the latest copy of the ledger. If there is none, stop the site and write down the loss: multicentre site "
    "acknowledge STUDY."
)
Ends = Sequence[tuple[str, Head]]  # recorded ends of ledgers, by site


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
        self._n_entries = self._n_opened = ledger.head.entries
        entries = ledger.entries if self._peers else ()
        self._shortened = {peer for entry in entries for peer in entry.get("shorter", {})}
        self._checked: Head | None = None
        self._own_on_file = self._peers.get(site)
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

    @property
    def stated(self) -> str:
        """Ends of the peers' ledgers on file, as text for the coordinator."""
        return Statement(self._peers).packed.decode()

    def receive(self, packed: bytes) -> None:
        """Store the ends of ledgers that the coordinator forwards; the site's next entry confirms them.

        An end replaces the stored one only if its site signed it and it has more entries. A signed end with fewer
        entries is confirmed as well; from then on the stored end remains, since it may contradict later ones. Ends of
        sites outside the study are ignored.

        Raises
        ------
        IntegrityError
            The bytes do not contain ends of ledgers with a valid signature of the coordinator, or this site's ledger
            does not contain an end that this site signed.
        """
        statement = _unpacked(packed)
        if self._site in statement.heads:
            self._check_own(statement.heads[self._site])
        peers = {site: head for site, head in statement.heads.items() if self._is_peer(site)}
        new_heads = {site: head for site, head in peers.items() if self._is_new(site, head)}
        shorter = {site: head for site, head in new_heads.items() if self._is_shorter(site, head)}
        if shorter:
            self._note_shorter(shorter)
        if longer := {site: head for site, head in new_heads.items() if site not in shorter}:
            self._peers |= {site: head for site, head in longer.items() if site not in self._shortened}
            self._confirm(longer)
        if self._path is not None and self._path.parent.is_dir():
            # The original bytes keep the coordinator's signature; they are used unless this site has later ends.
            is_current = self._peers == peers and self._is_of_peers(statement)
            site_head = {} if self.head is None else {self._site: self.head}
            content = packed if is_current else Statement({**self._peers, **site_head}).packed
            write_atomically(self._path, content, mode=OWNER_ONLY, durable=self._ledger.is_durable)

    def _confirm(self, new_heads: Mapping[str, Head]) -> None:
        """Add new ends to the next entry, together with those received since the last entry."""
        if self._ledger.head.entries != self._n_entries:
            self._unconfirmed, self._n_entries = {}, self._ledger.head.entries
        self._unconfirmed |= _ends_of(new_heads)
        self._ledger.note(witnessed=dict(self._unconfirmed))

    def check_ledger(self) -> None:
        """Raise LostEntries unless the ledger contains its own end on file, or its steward acknowledged the loss."""
        check_acknowledged(self._ledger)
        if self._own_on_file is not None:
            self._check_own(self._own_on_file)

    def _note_shorter(self, heads: Mapping[str, Head]) -> None:
        """Add ends with fewer entries than the stored ones to the next entry, unless an earlier entry has them."""
        confirmed = set(confirmed_in(self._ledger.entries))  # a resumed run sends earlier ends again
        heads = {site: head for site, head in heads.items() if (site, _unsigned(head)) not in confirmed}
        for site, head in heads.items():
            n_stored = self._peers[site].entries
            _LOG.warning("%s signed an end of its ledger after entry %d; on file: %d", site, head.entries, n_stored)
        if heads:
            self._shortened |= heads.keys()
            self._ledger.note(shorter=_ends_of(heads))

    def _check_own(self, head: Head) -> None:
        """Raise LostEntries if this site signed an end that its ledger does not contain."""
        if head == self._checked or not (head.key in self._own_keys and self._is_of_study(head)):
            return
        if head.entries > self._ledger.head.entries or (
            head.entries <= self._n_opened and self._ledger.entries[head.entries - 1]["hash"] != head.hash
        ):
            check_acknowledged(self._ledger, head)
        self._checked = head

    @property
    def _own_keys(self) -> set[str]:
        return {self._ledger.head.key, self._ledger.key, *self._keys.get(self._site, ())}

    def _is_of_study(self, head: Head) -> bool:
        return head.study == self._ledger.study and head.is_signed

    def _is_peer(self, site: str) -> bool:
        return site != self._site and (self._of_study is None or site in self._of_study)

    def _is_of_peers(self, statement: Statement) -> bool:
        """Return whether a statement contains only ends of peers and, possibly, a valid end of this site's ledger."""
        site_head = statement.heads.get(self._site)
        if site_head is not None and not (site_head.key in self._own_keys and self._is_of_study(site_head)):
            return False
        return all(site == self._site or self._is_peer(site) for site in statement.heads)

    def _is_shorter(self, site: str, head: Head) -> bool:
        return site not in self._shortened and site in self._peers and head.entries <= self._peers[site].entries

    def _is_new(self, site: str, head: Head) -> bool:
        before = self._peers.get(site)
        keys = self._keys.get(site) or {head.key if before is None else before.key}
        return head != before and head.key in keys and self._is_of_study(head)


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

    Attributes
    ----------
    notices : dict of str to str
        Losses of ledgers of which readers of the results must know, by site.

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
        self._recalled: dict[str, Head] = {}
        self._acknowledged: dict[str, int] = {}
        self.notices: dict[str, str] = {}

    def recall(self, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
        """Return for each site the longest end of its ledger that its peers have on file, for the site to check.

        Parameters
        ----------
        facts : mapping of str to mapping
            Facts from the opening of the run, by site: its public key, the ends that it has on file, and the losses of
            its own ledger that its steward acknowledged.

        Raises
        ------
        MessageError
            A site states losses in another form.
        """
        longest = self._recalled
        for stating, stated in facts.items():
            for entry, time in _losses_of(stated.get("losses", []), stating):
                self._acknowledged[stating] = entry
                self.notices[stating] = (
                    f"its ledger lost entries, of which entry {entry} is the last known; its steward acknowledged "
                    f"the loss on {time:%Y-%m-%d at %H:%M} UTC"
                )
            with contextlib.suppress(IntegrityError):  # a site may state nothing, with the same effect
                for site, head in Statement.unpack(str(stated.get("ends", "")).encode()).heads.items():
                    if head.key != facts.get(site, {}).get("identity") or not head.is_signed:
                        continue
                    if site not in longest or head.entries > longest[site].entries:
                        longest[site] = head
        return {site: Statement.signed({site: head}, self._signer).packed for site, head in longest.items()}

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
                self._note_shorter(site, head)
                self._heads[site] = head
        return errors

    def _note_shorter(self, site: str, head: Head) -> None:
        """Add a notice if the first end of a run is not after the end that peers have on file."""
        recalled = self._recalled.get(site)
        if recalled is None or site in self._heads or recalled.entries <= self._acknowledged.get(site, 0):
            return
        if head.entries <= recalled.entries:
            self.notices[site] = (
                f"on {datetime.now(UTC):%Y-%m-%d at %H:%M} UTC it signed an end of its ledger after entry "
                f"{head.entries}, although other sites have one after entry {recalled.entries} on file, which it "
                "signed earlier; its steward acknowledged no loss"
            )

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
        n_groups = -(-len(sites) // MAX_IN_GROUP)
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


class LostEntries(IntegrityError):
    """A site's ledger does not contain an entry that the site signed."""


def check_acknowledged(ledger: Ledger, head: Head | None = None) -> None:
    """Raise LostEntries if a ledger lost entries and the site's steward has not acknowledged it.

    Parameters
    ----------
    ledger : Ledger
    head : Head, optional
        End that the site signed and that the ledger does not contain; the loss is written to the ledger.
    """
    losses = [one for one in ledger.entries if one["event"] in (SHORTENED, ACKNOWLEDGED)]
    acknowledged = max((one["recorded"][0] for one in losses if one["event"] == ACKNOWLEDGED), default=0)
    lost = next((one for one in reversed(losses) if one["recorded"][0] > acknowledged), None)
    if head is not None and head.entries > acknowledged and lost is None:
        lost = ledger.append(SHORTENED, {"recorded": [head.entries, head.hash]})
    if lost is not None:
        raise LostEntries(
            f"the ledger must contain entry {lost['recorded'][0]}, which this site signed; it does not",
            where=str(ledger.path or ledger.study),
            hint=_ACKNOWLEDGE,
        )


def acknowledge_loss(ledger: Ledger) -> list[Any]:
    """Write to a ledger that its steward acknowledges the loss of entries; return the end that was lost.

    Raises
    ------
    ConfigurationError
        The ledger records no loss.
    """
    recorded: list[Any] = ledger.last("recorded")
    if recorded is None:
        raise ConfigurationError(
            "only a recorded loss can be acknowledged; the ledger records none", where=str(ledger.path)
        )
    ledger.append(ACKNOWLEDGED, {"recorded": recorded})
    return recorded


def acknowledged_losses(ledger: Ledger) -> list[list[Any]]:
    """Return the last lost entry and the time of the acknowledgement of each acknowledged loss, for the coordinator."""
    return [[one["recorded"][0], one["time"]] for one in ledger.entries if one["event"] == ACKNOWLEDGED]


def _losses_of(stated: Any, site: str) -> list[tuple[int, datetime]]:
    """Read what :func:`acknowledged_losses` returned at a site."""
    try:
        return [(int(entry), datetime.fromisoformat(time).astimezone(UTC)) for entry, time in stated]
    except (TypeError, ValueError, OverflowError):
        raise MessageError(
            "acknowledged losses of a ledger must be entries with times; got others", where=site
        ) from None


def confirmed_in(entries: Sequence[Entry]) -> list[tuple[str, Head]]:
    """Return the ends of peers' ledgers that a site's ledger confirms, in order; unsigned, since the entry is signed.

    Raises
    ------
    IntegrityError
        An entry does not contain valid ends of ledgers.
    """
    confirmed = []
    for entry in entries:
        try:
            for site, (n_entries, digest) in [*entry.get("shorter", {}).items(), *entry.get("witnessed", {}).items()]:
                confirmed.append((str(site), Head(int(n_entries), str(digest), str(entry.get("study", "")))))
        except (ValueError, TypeError, AttributeError):
            raise IntegrityError(
                f"entry {entry['entry']} must contain ends of ledgers by site; got another value", where="witnessed"
            ) from None
    return confirmed


def check_against(
    site: str,
    path: Path,
    entries: Sequence[Entry],
    heads_by_party: Mapping[str, Ends],
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
    heads_by_party : mapping of str to sequence
        All recorded ends of ledgers, by party. An end without a key comes from the ledger of the other party.
    keys : collection of str
        The site's public keys.

    Raises
    ------
    IntegrityError
        Entries were removed or rewritten, an end was not signed by the site, or it belongs to a different study.
    """
    n_witnesses = 0
    for witness, heads in heads_by_party.items():
        heads_of_site = [head for name, head in heads if name == site]
        for head in heads_of_site:
            _check_recorded(head, site, path, entries, witness, keys)
        n_witnesses += bool(heads_of_site)
    return n_witnesses


def _check_recorded(
    head: Head, site: str, path: Path, entries: Sequence[Entry], witness: str, keys: Collection[str]
) -> None:
    """Raise IntegrityError unless a ledger contains an end that a party recorded."""
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


def _ends_of(heads: Mapping[str, Head]) -> dict[str, list[Any]]:
    return {site: [head.entries, head.hash] for site, head in heads.items()}


def _unsigned(head: Head) -> Head:
    return Head(head.entries, head.hash, head.study)


@functools.lru_cache(maxsize=64)  # the sites of one process receive the same bytes
def _unpacked(packed: bytes) -> Statement:
    statement = Statement.unpack(packed)
    if not statement.is_signed:
        raise IntegrityError(
            "the ends of ledgers must have a valid signature of the coordinator; they do not", where="heads"
        )
    return statement
