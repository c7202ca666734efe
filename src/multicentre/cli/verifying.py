"""What ``multicentre ledger verify`` holds a ledger against: the site's key, and what others saw of its end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from multicentre.federation.errors import ConfigurationError, IntegrityError
from multicentre.privacy.ledger import read_ledger, verify_ledger
from multicentre.privacy.ledger_heads import Head, read_statement
from multicentre.privacy.ledger_witnesses import HEADS, check_against, confirmed_in, peers_file
from multicentre.privacy.run_ledgers import KEYS, read_keys

_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Evidence:
    """Keys of sites, and what others saw of their ledgers.

    Parameters
    ----------
    keys : mapping of str to sequence of str
        Public keys by site; those under the empty name hold for every site.
    seen : mapping of str to mapping of str to Head
        Ends of ledgers by who saw them.
    named : bool
        Whether the user named a witness.
    """

    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seen: Mapping[str, Mapping[str, Head]] = field(default_factory=dict)
    named: bool = False

    @classmethod
    def of(cls, where: Path, keys: Sequence[str], witnesses: Sequence[Path]) -> Self:
        """Return what a run's folder and the command's options hold.

        Raises
        ------
        ConfigurationError, IntegrityError
            A key, a card or what a witness holds cannot be used.
        """
        listed = read_keys(where) if where.is_dir() else {}
        if any(where.glob("sites/*/ledger.jsonl")) and not (listed or keys):
            raise IntegrityError(
                f"the folder must list the keys of its sites ({KEYS}); the list is gone",
                where=str(where),
                hint="Bring it back from a copy, or give the key with --key.",
            )
        seen = {str(path): _heads_in(path) for path in witnesses}
        return cls(
            {"": [key_of(key) for key in keys]} if keys else listed, {**seen, **_seen_in(where)}, bool(witnesses)
        )

    @property
    def recorded(self) -> dict[str, Head]:
        """The last end that anybody saw of each site's ledger."""
        heads = [(site, head) for heads in self.seen.values() for site, head in heads.items()]
        return dict(sorted(heads, key=lambda one: one[1].entries))

    @property
    def ends(self) -> dict[str, Head]:
        """The same, of sites whose key is listed: their ledgers must be in the folder."""
        return {site: head for site, head in self.recorded.items() if site in self.keys}

    def keys_of(self, site: str) -> Sequence[str] | None:
        """Return a site's keys; None where nothing says which they are."""
        return self.keys.get("") or self.keys.get(site)


@dataclass(frozen=True)
class Verified:
    """A ledger that is intact: where it ends, whether that is signed under a known key, and how many saw it."""

    head: Head
    known_key: bool
    n_witnesses: int
    recorded: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {
            "entries": self.head.entries,
            "hash": self.head.hash,
            "key": self.head.key or None,
            "known_key": self.known_key,
            "witnesses": self.n_witnesses,
        }

    def __str__(self) -> str:
        notes = []
        if not self.head.key and self.head.entries:
            notes.append("not signed: whoever can write to it can have written it anew")
        elif not self.known_key and self.head.entries:
            notes.append(f"signed under {self.head.key}, which is the site's only if its card says so: give --key")
        if not self.recorded and not self.n_witnesses:
            notes.append("nothing records its end: entries cut off there would not be seen; give --witness")
        said = f" ({'; '.join(notes)})" if notes else f", seen by {self.n_witnesses} others" if self.n_witnesses else ""
        return f"intact, {self.head.entries} entries, ends with {self.head.hash}{said}"


def verify_all(ledgers: Mapping[str, Path], known: Mapping[str, Head], evidence: Evidence) -> dict[str, Verified]:
    """Verify ledgers, by site.

    Parameters
    ----------
    ledgers : mapping of str to Path
    known : mapping of str to Head
        Where the run's own summary says that they end.
    evidence : Evidence

    Raises
    ------
    IntegrityError
        A ledger was changed, shortened or written anew, or is another site's.
    """
    found = {}
    for site, path in ledgers.items():
        keys = evidence.keys_of(site)
        if keys is None and evidence.keys:
            raise IntegrityError("nothing says which key the site has", where=site, hint="Give it with --key.")
        head = verify_ledger(path, keys=keys)
        others = {who: heads for who, heads in evidence.seen.items() if who != site}
        entries = list(read_ledger(path))
        n_witnesses = check_against(site, path, entries, others, [head.key] if keys is None else keys)
        if evidence.named and not n_witnesses:
            names = sorted({name for heads in evidence.seen.values() for name in heads})
            raise ConfigurationError(
                f"no witness saw a ledger of {site!r} in this study",
                where=str(path),
                hint=f"Name the site with --site; the witnesses name {', '.join(names) or 'none'}.",
            )
        verify_ledger(path, known.get(site), keys=keys)
        found[site] = Verified(head, keys is not None, n_witnesses, site in known)
    return found


def key_of(text: str) -> str:
    """Return the public identity that 64 digits or a site's card name.

    Raises
    ------
    ConfigurationError
        It is neither.
    """
    if _KEY.fullmatch(text.lower()):
        return text.lower()
    if not Path(text).is_file():
        raise ConfigurationError(
            "a key must be 64 hexadecimal digits or a site's card", where=text, hint="Name a file NAME.site.toml."
        )
    from multicentre.deployment.cards import read_card

    return read_card(Path(text)).identity


def _heads_in(path: Path) -> Mapping[str, Head]:
    """Return the ends that a list of them, or the ledger of another site, names."""
    return confirmed_in(list(read_ledger(path))) if path.suffix == ".jsonl" else read_statement(path).heads


def _seen_in(where: Path) -> dict[str, Mapping[str, Head]]:
    """Return what the coordinator of a run and its sites saw, where they left it in the run's folder."""
    if not where.is_dir():
        return {}
    seen = {"the coordinator": where / HEADS} if (where / HEADS).exists() else {}
    for site in sorted(one for one in where.glob("sites/*") if one.is_dir()):
        ledger = site / "ledger.jsonl"
        paths = {site.name: peers_file(ledger), f"the ledger of {site.name}": ledger}
        seen |= {who: path for who, path in paths.items() if path.exists()}
    return {who: _heads_in(path) for who, path in seen.items()}
