"""Ledgers of the sites that run in one process, and the terms of a run as ledgers record them.

Each ledger is signed under a key that is never stored. A run can only be resumed with its original terms.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from multicentre.core.parsing import load_json
from multicentre.core.storage import read_regular, write_atomically
from multicentre.errors import IntegrityError
from multicentre.privacy.ledger import Ledger, repair_ledger
from multicentre.privacy.ledger_witnesses import HEADS, HeadRecord, Witness
from multicentre.privacy.policy import Policy
from multicentre.privacy.secure_sum.identity import Identity

KEYS = "ledger-keys.json"


class SiteLedgers:
    """Ledgers of the sites of a run in one process.

    Ledgers in the run's folder are continued; a truncated entry is removed first. Every process of the run generates
    new keys for its sites. The run's folder lists the public halves. The private halves are lost when the process ends,
    so that nobody can add to its entries or rewrite them.

    Parameters
    ----------
    root : Path, optional
        Folder of the run. Without it, the ledgers stay in memory.
    sites : iterable of str
        Names of the sites.
    study : str

    Attributes
    ----------
    identities : dict of str to Identity
    public : dict of str to bytes
        Public halves of the keys.
    ledgers : dict of str to Ledger

    Raises
    ------
    IntegrityError
        A ledger was changed, or the list of keys cannot be read.
    """

    def __init__(self, root: Path | None, sites: Iterable[str], study: str) -> None:
        self._root, self._study = root, study
        self.identities = {site: Identity.generate() for site in sites}
        self.public = {site: identity.public for site, identity in self.identities.items()}
        earlier = {} if root is None else read_keys(root)
        self._keys = earlier | {site: [*earlier.get(site, []), key.hex()] for site, key in self.public.items()}
        if root is not None:
            write_atomically(root / KEYS, json.dumps(self._keys, indent=1).encode())
        self.ledgers = {site: self._opened(site) for site in self.identities}

    def hold_terms(self, policies: Mapping[str, Policy], **common: Any) -> None:
        """Write the terms of the run to every ledger, or check them against the recorded terms.

        Raises
        ------
        IntegrityError
            A ledger contains different terms.
        """
        for site, policy in policies.items():
            terms = terms_of(policy, **common)
            check_terms(self.ledgers[site], terms, site)
            note_terms(self.ledgers[site], terms)

    def witness(self, site: str) -> Witness:
        """Return the store of the ends of peers' ledgers at a site."""
        return Witness(site, self.ledgers[site], self._keys)

    def record(self) -> HeadRecord | None:
        """Return the coordinator's record of the ledgers' ends; None without a folder.

        Raises
        ------
        IntegrityError
            A ledger does not continue from its last recorded end.
        """
        if self._root is None:
            return None
        record = HeadRecord(self._root / HEADS, Identity.generate(), self._keys, study=self._study)
        record.check(self.ledgers)
        return record

    def _opened(self, site: str) -> Ledger:
        signer, keys, study = self.identities[site], self._keys[site], self._study
        if self._root is None:
            return Ledger(signer=signer, study=study)
        path = self._root / "sites" / site / "ledger.jsonl"
        if path.exists():
            repair_ledger(path, signer=signer, study=study, keys=keys)
        return Ledger(path, signer=signer, study=study, keys=keys)


def read_keys(root: Path) -> dict[str, list[str]]:
    """Return the public keys that a run's folder lists, by site; empty if there is no list.

    Raises
    ------
    IntegrityError
        The list cannot be read.
    """
    path = root / KEYS
    if not path.exists():
        return {}
    try:
        keys = load_json(read_regular(path, "list of the sites' keys"))
        return {str(site): [str(key) for key in of_site] for site, of_site in keys.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        raise IntegrityError(
            "the list of the sites' keys is damaged or cannot be read", where=str(path), hint="Restore it from a copy."
        ) from None


_TERMS = "terms"
_PLACES = ("account", "cohorts")


def terms_of(policy: Policy, **others: Any) -> dict[str, Any]:
    """Return the terms of a run at one site as JSON values: its policy and further terms.

    Account and cohorts appear as hashes, so that the ledger does not contain the paths of the site's files.

    Examples
    --------
    >>> terms_of(Policy(min_patients=20), secure_sum=True)["policy"]["min_patients"]
    20
    """
    values = dataclasses.asdict(policy)
    places = {name: values[name] for name in _PLACES if values[name] is not None}
    values |= {name: hashlib.sha256(place.encode()).hexdigest() for name, place in places.items()}
    plain: dict[str, Any] = json.loads(json.dumps({**others, "policy": values}))
    return plain


def note_terms(ledger: Ledger, terms: Mapping[str, Any]) -> None:
    """Add the terms to a ledger's next entry, unless an earlier entry contains the same terms."""
    if ledger.last(_TERMS) != terms:
        ledger.note(**{_TERMS: terms})


def check_terms(ledger: Ledger, terms: Mapping[str, Any], site: str) -> None:
    """Check that a run is resumed with the terms of a site's ledger.

    Raises
    ------
    IntegrityError
        The terms differ; the message names the differences.
    """
    recorded = ledger.last(_TERMS)
    if recorded is None or recorded == terms:
        return
    raise IntegrityError(
        f"the run must be resumed with its original terms; {'; '.join(describe_changes(recorded, terms))}",
        where=f"{site}, ledger",
        hint="Undo the change to resume the run, or start a new run with another folder.",
    )


def describe_changes(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """Yield the differences between two tables of terms, one text per value.

    Examples
    --------
    >>> list(describe_changes({"privacy": {"secure_sum": True}}, {"privacy": {"secure_sum": False}}))
    ['privacy.secure_sum was true when the run began and is false now']
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from describe_changes(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield f"{name} was {_shortened(before)} when the run began and is {_shortened(now)} now"


def _shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 80  # long enough for a hash; a longer list of columns would hide the rest of the message
