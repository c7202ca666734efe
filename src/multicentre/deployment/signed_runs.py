"""The runs that an analyst signed, noted in her own folder, where no service of a coordinator writes.

The folder of a run holds files that the service sent. When the run is taken up again, its study is compared with what
was noted here, so that she signs the study that she wrote and no other.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Self

from multicentre.engines.remote.packing import Opening
from multicentre.federation.errors import ConfigurationError, IntegrityError, ProtocolRefused
from multicentre.federation.storage import (
    OWNER_ONLY,
    check_owner_writes_alone,
    make_private_folder,
    read_regular,
    write_atomically,
)

FOLDER = "signed"

_TOKEN = re.compile(r"[0-9a-f]{32}")

_KINDS = {"run": str, "attempt": int, "study": str}


@dataclass(frozen=True)
class SignedRun:
    """The latest attempt of a run that was signed.

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
                "the study of a run that is taken up must be the one that was signed; got another",
                where=where,
                hint="Nothing was signed. Bring the file back from a copy, or run the changed study as a new one.",
            )


class SignedRuns:
    """The records of an analyst's signed runs, a file for each order.

    Parameters
    ----------
    folder : Path
        The analyst's folder; records are kept below it in ``signed``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def note(self, token: str, signed: SignedRun) -> None:
        """Write down what is about to be signed for the order of a token."""
        path = self._path(token)
        make_private_folder(path.parent)
        check_owner_writes_alone(path, "record of the signed run")
        write_atomically(path, json.dumps(asdict(signed)).encode(), mode=OWNER_ONLY)

    def read(self, token: str) -> SignedRun:
        """Return what was signed last for the order of a token.

        Raises
        ------
        ConfigurationError
            Nothing was signed for it by the holder of this folder, or others may write to the record.
        IntegrityError
            The record cannot be read.
        """
        path = self._path(token)
        check_owner_writes_alone(path, "record of the signed run")
        if not path.exists():
            raise ConfigurationError(
                "the run must be noted in the analyst's folder as signed; there is no record of it",
                where=str(path),
                hint="Name the folder of the analyst who signed the run, with --analyst.",
            )
        try:
            content = json.loads(read_regular(path, "record of the signed run"))
            kinds = {name: type(value) for name, value in content.items()}
        except (OSError, ValueError, AttributeError):
            content, kinds = {}, {}
        if kinds != _KINDS:
            raise IntegrityError(
                "the record of the signed run cannot be read", where=str(path), hint="Restore it from a copy."
            )
        return SignedRun(**content)

    def forget(self, token: str) -> None:
        """Remove the record of a run of which nothing is kept."""
        self._path(token).unlink(missing_ok=True)

    def _path(self, token: str) -> Path:
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError("an order's token must be 32 hexadecimal digits", where="order.json")
        return self._folder / f"{token}.json"


_AGAIN = "The analyst signs another attempt: multicentre run --resume RUN --coordinator SOCKET."

_MOST_RUNS = 1000  # about 100 kB; a run whose line is gone by then is as good as over


class _Run(NamedTuple):
    """Line of a signed run in the list."""

    owner: str
    attempt: int
    closed: bool = False


class OpenedRuns:
    """The list of signed runs in a file, latest last.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, opening: Opening) -> None:
        """Check a signed opening against those before it, and note it.

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
        known = runs.get(opening.run, _Run(request.fingerprint, opening.attempt))
        if known.owner != request.fingerprint:
            raise ProtocolRefused("a run must be opened by one analyst; this one belongs to another", where="analyst")
        if opening.attempt < known.attempt:
            raise ProtocolRefused(
                f"a signed request must be for the run's latest attempt, {known.attempt}; got attempt "
                f"{opening.attempt} again",
                where="analyst",
            )
        if known.closed and opening.attempt == known.attempt:
            raise ProtocolRefused(
                f"a signed request must be for an attempt that is not over; attempt {opening.attempt} was closed",
                where="analyst",
                hint=_AGAIN,
            )
        self._write(runs, opening.run, _Run(known.owner, opening.attempt))

    def close(self, run: str, attempt: int) -> None:
        """Note that the attempt of a run is over; nothing happens where the run was not signed.

        Raises
        ------
        IntegrityError
            The list cannot be read.
        """
        runs = self._read()
        known = runs.get(run)
        if known is not None and attempt >= known.attempt:
            self._write(runs, run, known._replace(closed=True))

    def _write(self, runs: dict[str, _Run], run: str, facts: _Run) -> None:
        if runs.get(run) == facts:
            return
        runs.pop(run, None)
        runs[run] = facts
        content = [[name, *one] for name, one in list(runs.items())[-_MOST_RUNS:]]
        write_atomically(self._path, json.dumps(content).encode(), mode=0o600)

    def _read(self) -> dict[str, _Run]:
        if not self._path.exists():
            return {}
        try:
            check_owner_writes_alone(self._path, "list of signed runs")
            lines = json.loads(read_regular(self._path, "list of signed runs"))
            return {str(run): _Run(str(owner), int(attempt), bool(closed)) for run, owner, attempt, closed in lines}
        except (OSError, ValueError, TypeError):
            raise IntegrityError(
                "the list of signed runs cannot be read", where=str(self._path), hint="Restore it from a copy."
            ) from None
