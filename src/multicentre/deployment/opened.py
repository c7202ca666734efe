"""The signed runs that a site opened: whose each is, its latest attempt, and whether it was closed.

A request opens one attempt of one run. A site whose process began again opens the attempt again by the same request, as
long as the coordinator has not closed it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from multicentre.engines.remote.packing import Opening
from multicentre.federation.errors import IntegrityError, ProtocolRefused
from multicentre.federation.files import check_owner_writes_alone, read_regular
from multicentre.federation.storage import write_atomically

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
                mend=_AGAIN,
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
                "the list of signed runs cannot be read", where=str(self._path), mend="Restore it from a copy."
            ) from None
