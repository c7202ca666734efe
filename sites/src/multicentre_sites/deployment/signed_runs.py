"""Records of signed runs: in the analyst's folder, and at sites.

The folder of a run contains files that the coordinator's service sent. Before a run is resumed, its study is compared
with the record in the analyst's folder, so that the analyst signs no other study.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Self

from multicentre.core.parsing import load_json
from multicentre.core.storage import (
    OWNER_ONLY,
    check_owner_writes_alone,
    make_private_folder,
    read_regular,
    write_atomically,
)
from multicentre.engines.remote.opening import Opening
from multicentre.errors import ConfigurationError, IntegrityError, ProtocolRefused

FOLDER = "signed"

_TOKEN = re.compile(r"[0-9a-f]{32}")

_KINDS = {"run": str, "attempt": int, "study": str}


@dataclass(frozen=True)
class SignedRun:
    """Latest signed attempt of a run.

    Parameters
    ----------
    run : str
    attempt : int
    study : str
        SHA-256 of the study file, hexadecimal.
    """

    run: str
    attempt: int
    study: str

    @classmethod
    def of(cls, run: str, attempt: int, study: bytes) -> Self:
        """Return the record of an attempt with this study file."""
        return cls(run, attempt, hashlib.sha256(study).hexdigest())

    def check_study(self, study: bytes, where: str) -> None:
        """Raise IntegrityError unless a study file is the one of the first signature."""
        if not hmac.compare_digest(self.study, hashlib.sha256(study).hexdigest()):
            raise IntegrityError(
                "the study of a resumed run must be the one that was signed; got another",
                where=where,
                hint="Nothing was signed. Restore the file from a copy, or run the changed study as a new one.",
            )


class SignedRuns:
    """Records of an analyst's signed runs, one file per order.

    Parameters
    ----------
    folder : Path
        The analyst's folder; the records are in its subfolder ``signed``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def note(self, token: str, signed: SignedRun) -> None:
        """Write the record of an attempt, before it is signed, under the token of its order."""
        path = self._path(token)
        make_private_folder(path.parent)
        check_owner_writes_alone(path, "record of the signed run")
        write_atomically(path, json.dumps(asdict(signed)).encode(), mode=OWNER_ONLY)

    def read(self, token: str) -> SignedRun:
        """Return the latest record for the token of an order.

        Raises
        ------
        ConfigurationError
            There is no record, or other accounts may write to it.
        IntegrityError
            The record cannot be read.
        """
        path = self._path(token)
        check_owner_writes_alone(path, "record of the signed run")
        if not path.exists():
            raise ConfigurationError(
                "the analyst's folder must have a record of the signed run; got none",
                where=str(path),
                hint="Name the folder of the analyst who signed the run, with --analyst.",
            )
        try:
            content = load_json(read_regular(path, "record of the signed run"))
            kinds = {name: type(value) for name, value in content.items()}
        except (OSError, ValueError, AttributeError):
            content, kinds = {}, {}
        if kinds != _KINDS:
            raise IntegrityError(
                "the record of the signed run cannot be read", where=str(path), hint="Restore it from a copy."
            )
        return SignedRun(**content)

    def forget(self, token: str) -> None:
        """Remove the record of a run without results."""
        self._path(token).unlink(missing_ok=True)

    def _path(self, token: str) -> Path:
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError("an order's token must be 32 hexadecimal digits", where="order.json")
        return self._folder / f"{token}.json"


_AGAIN = "The analyst signs another attempt: multicentre run --resume RUN --coordinator SOCKET."

_MAX_RUNS = 1000  # about 100 kB; a run with a thousand later ones is over


class _Run(NamedTuple):
    """Entry of the list of signed runs."""

    owner: str
    attempt: int
    closed: bool = False


class OpenedRuns:
    """List of signed runs at a site, in a file; the latest is last.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, opening: Opening) -> None:
        """Check a signed opening against earlier ones, and record it.

        Raises
        ------
        ProtocolRefused
            The run belongs to another analyst, the request is for an earlier attempt than the latest, or the attempt
            was closed.
        IntegrityError
            The list cannot be read.
        """
        request = opening.request
        if request is None:
            return
        runs = self._read()
        latest = runs.get(opening.run, _Run(request.fingerprint, opening.attempt))
        if latest.owner != request.fingerprint:
            raise ProtocolRefused("a run must be opened by one analyst; this one belongs to another", where="analyst")
        if opening.attempt < latest.attempt:
            raise ProtocolRefused(
                f"a signed request must be for the run's latest attempt, {latest.attempt}; got attempt "
                f"{opening.attempt} again",
                where="analyst",
            )
        if latest.closed and opening.attempt == latest.attempt:
            raise ProtocolRefused(
                f"a signed request must be for an attempt that is not over; attempt {opening.attempt} was closed",
                where="analyst",
                hint=_AGAIN,
            )
        self._write(runs, opening.run, _Run(latest.owner, opening.attempt))

    def close(self, run: str, attempt: int) -> None:
        """Record that the attempt of a run is over; without effect if the run was not signed.

        Raises
        ------
        IntegrityError
            The list cannot be read.
        """
        runs = self._read()
        latest = runs.get(run)
        if latest is not None and attempt >= latest.attempt:
            self._write(runs, run, latest._replace(closed=True))

    def check(self, *, was_used: bool) -> None:
        """Read the list as a run does.

        Raises
        ------
        IntegrityError
            The list cannot be read, or is missing although signed runs were opened here: closed runs could be
            repeated.
        """
        if was_used and not self._path.exists():
            raise IntegrityError(
                "the list of signed runs must be there, since signed runs were opened; it is missing",
                where=str(self._path),
                hint="Restore it from a copy. Without one, write [] into it: requests of the last "
                "week could then be repeated.",
            )
        self._read()

    def _write(self, runs: dict[str, _Run], run: str, entry: _Run) -> None:
        if runs.get(run) == entry:
            return
        runs.pop(run, None)
        runs[run] = entry
        content = [[name, *one] for name, one in list(runs.items())[-_MAX_RUNS:]]
        write_atomically(self._path, json.dumps(content).encode(), mode=0o600)

    def _read(self) -> dict[str, _Run]:
        if not self._path.exists():
            return {}
        try:
            check_owner_writes_alone(self._path, "list of signed runs")
            lines = load_json(read_regular(self._path, "list of signed runs"))
            return {str(run): _Run(str(owner), int(attempt), bool(closed)) for run, owner, attempt, closed in lines}
        except (OSError, ValueError, TypeError):
            raise IntegrityError(
                "the list of signed runs cannot be read", where=str(self._path), hint="Restore it from a copy."
            ) from None
