"""Verification of ledgers against the site's key and the ends recorded by others (``multicentre ledger verify``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from multicentre.errors import ConfigurationError, IntegrityError
from multicentre.privacy.ledger import read_ledger, verify_ledger
from multicentre.privacy.ledger_heads import Head, read_statement
from multicentre.privacy.ledger_witnesses import HEADS, Ends, check_against, confirmed_in, peers_file
from multicentre.privacy.run_ledgers import KEYS, read_keys
from multicentre.privacy.site_cards import read_card
from multicentre.studies.run_folder import RunFolder

_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Evidence:
    """Keys of sites, and the ends of their ledgers as recorded by others.

    Parameters
    ----------
    keys : mapping of str to sequence of str
        Public keys by site; keys under the empty name apply to every site.
    heads_by_witness : mapping of str to sequence
        All recorded ends of ledgers, by witness.
    has_named_witness : bool
        True if the user named a witness.
    """

    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    heads_by_witness: Mapping[str, Ends] = field(default_factory=dict)
    has_named_witness: bool = False

    @classmethod
    def of(cls, where: Path, keys: Sequence[str], witnesses: Sequence[Path]) -> Self:
        """Collect the evidence from a run's folder and the command's options.

        Raises
        ------
        ConfigurationError, IntegrityError
            A key, a card or a witness's file is invalid.
        """
        listed_keys = read_keys(where) if where.is_dir() else {}
        if any(where.glob("sites/*/ledger.jsonl")) and not (listed_keys or keys):
            raise IntegrityError(
                f"the folder must list the keys of its sites ({KEYS}); the list is missing",
                where=str(where),
                hint="Restore it from a copy, or give the key with --key.",
            )
        named_heads = {str(path): _heads_in(path) for path in witnesses}
        return cls(
            {"": [key_of(key) for key in keys]} if keys else listed_keys,
            {**named_heads, **_heads_in_folder(where)},
            bool(witnesses),
        )

    @property
    def recorded(self) -> dict[str, Head]:
        """Last recorded end of each site's ledger."""
        heads = [one for heads in self.heads_by_witness.values() for one in heads]
        return dict(sorted(heads, key=lambda one: one[1].entries))

    @property
    def ends(self) -> dict[str, Head]:
        """Last recorded ends of the sites whose key is listed; their ledgers must be in the folder."""
        return {site: head for site, head in self.recorded.items() if site in self.keys}

    def keys_of(self, site: str) -> Sequence[str] | None:
        """Return a site's keys, or None if they are unknown."""
        return self.keys.get("") or self.keys.get(site)


@dataclass(frozen=True)
class VerifiedLedger:
    """Result for an intact ledger: its end, the key of its signature and the number of witnesses."""

    head: Head
    has_listed_key: bool
    n_witnesses: int
    in_run_summary: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {
            "entries": self.head.entries,
            "hash": self.head.hash,
            "key": self.head.key or None,
            "known_key": self.has_listed_key,
            "witnesses": self.n_witnesses,
        }

    def __str__(self) -> str:
        notes = []
        if not self.head.key and self.head.entries:
            notes.append("not signed: anyone with write access can have rewritten it")
        elif not self.has_listed_key and self.head.entries:
            notes.append(f"signed under {self.head.key}; compare this key with the site's card: give --key")
        if not self.in_run_summary and not self.n_witnesses:
            notes.append("its end is not recorded elsewhere: cut-off entries would not be detected; give --witness")
        others = "one other party" if self.n_witnesses == 1 else f"{self.n_witnesses} other parties"
        witnesses = f", recorded by {others}" if self.n_witnesses else ""
        remark = f" ({'; '.join(notes)})" if notes else witnesses
        return f"intact, {self.head.entries} entries, ends with {self.head.hash}{remark}"


def verify_all(
    ledgers: Mapping[str, Path], heads_of_run: Mapping[str, Head], evidence: Evidence
) -> dict[str, VerifiedLedger]:
    """Verify ledgers, by site.

    Parameters
    ----------
    ledgers : mapping of str to Path
    heads_of_run : mapping of str to Head
        Ends of the ledgers according to the run's summary.
    evidence : Evidence

    Raises
    ------
    IntegrityError
        A ledger was changed, shortened or rewritten, or belongs to another site.
    """
    verified = {}
    for site, path in ledgers.items():
        keys = evidence.keys_of(site)
        if keys is None and evidence.keys:
            raise IntegrityError("the site's key must be known; none is listed", where=site, hint="Give it with --key.")
        head = verify_ledger(path, keys=keys)
        others = {name: heads for name, heads in evidence.heads_by_witness.items() if name != site}
        entries = list(read_ledger(path))
        n_witnesses = check_against(site, path, entries, others, [head.key] if keys is None else keys)
        if evidence.has_named_witness and not n_witnesses:
            names = sorted({name for heads in evidence.heads_by_witness.values() for name, _ in heads})
            raise ConfigurationError(
                f"a named witness must have recorded a ledger of {site!r} in this study; none has",
                where=str(path),
                hint=f"Name the site with --site; the witnesses name {', '.join(names) or 'none'}.",
            )
        verify_ledger(path, heads_of_run.get(site), keys=keys)
        verified[site] = VerifiedLedger(head, keys is not None, n_witnesses, site in heads_of_run)
    return verified


def verify_ledgers(
    where: Path, ledgers: Mapping[str, Path], evidence: Evidence, site: str | None = None
) -> dict[str, VerifiedLedger]:
    """Verify ledgers, by site, and check that no ledger is missing that the run recorded.

    Parameters
    ----------
    where : Path
        Run folder, or the ledger itself.
    ledgers : mapping of str to Path
    evidence : Evidence
    site : str, optional
        Site whose ledger is verified; all of them by default.

    Raises
    ------
    IntegrityError
        A ledger is missing, was changed, shortened or rewritten, or belongs to another site.
    """
    heads_of_run = _heads_of_run(where)
    expected = {**heads_of_run, **evidence.ends}
    missing = [name for name in expected if name not in ledgers and site in (None, name)]
    if missing:
        raise IntegrityError(
            "every ledger that the run recorded must be present; these are missing",
            where=f"{where}, {', '.join(missing)}",
            hint="Restore them from a copy.",
        )
    return verify_all(ledgers, heads_of_run, evidence)


def _heads_of_run(where: Path) -> dict[str, Head]:
    """Return the ends of the ledgers at the end of a run."""
    if not (where / "disclosure.json").is_file():
        return {}
    folder = RunFolder.open(where)
    if folder.metadata["status"] == "running":
        return {}
    return {name: Head(**head) for name, head in folder.read("disclosure.json")["ledgers"].items()}


def key_of(text: str) -> str:
    """Return the public identity given as 64 digits or in a site's card.

    Raises
    ------
    ConfigurationError
        The text is neither.
    """
    if _KEY.fullmatch(text.lower()):
        return text.lower()
    if not Path(text).is_file():
        raise ConfigurationError(
            "a key must be 64 hexadecimal digits or a site's card", where=text, hint="Name a file NAME.site.toml."
        )
    return read_card(Path(text)).identity


def _heads_in(path: Path) -> Ends:
    """Return the ends recorded in a list of ends or in the ledger of another site."""
    if path.suffix == ".jsonl":
        return confirmed_in(list(read_ledger(path)))
    return list(read_statement(path).heads.items())


def _heads_in_folder(where: Path) -> dict[str, Ends]:
    """Return the ends that the coordinator and the sites recorded in the run's folder."""
    if not where.is_dir():
        return {}
    paths_by_witness = {"the coordinator": where / HEADS} if (where / HEADS).exists() else {}
    for site in sorted(one for one in where.glob("sites/*") if one.is_dir()):
        ledger = site / "ledger.jsonl"
        paths = {site.name: peers_file(ledger), f"the ledger of {site.name}": ledger}
        paths_by_witness |= {name: path for name, path in paths.items() if path.exists()}
    return {name: _heads_in(path) for name, path in paths_by_witness.items()}
