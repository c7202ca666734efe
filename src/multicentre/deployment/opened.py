"""The signed runs that a site opened: whose each is, and its latest attempt, so that no request is used again."""

from __future__ import annotations

import json
from pathlib import Path

from multicentre.engines.remote.packing import Opening
from multicentre.federation.errors import IntegrityError, ProtocolRefused
from multicentre.federation.storage import write_atomically

_MOST_RUNS = 1000  # about 100 kB; a run whose line is gone by then is as good as over


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
            The run belongs to another analyst, or the request is for an earlier attempt than the latest.
        IntegrityError
            The list cannot be read.
        """
        request = opening.request
        if request is None:
            return
        runs = self._read()
        owner, latest = runs.get(opening.run, (request.fingerprint, opening.attempt))
        if owner != request.fingerprint:
            raise ProtocolRefused("a run must be opened by one analyst; this one belongs to another", where="analyst")
        if opening.attempt < latest:
            raise ProtocolRefused(
                f"a signed request must be for the run's latest attempt, {latest}; got attempt {opening.attempt} again",
                where="analyst",
            )
        if runs.get(opening.run) != (owner, opening.attempt):
            runs.pop(opening.run, None)
            runs[opening.run] = (owner, opening.attempt)
            content = [[run, *facts] for run, facts in list(runs.items())[-_MOST_RUNS:]]
            write_atomically(self._path, json.dumps(content).encode(), mode=0o600)

    def _read(self) -> dict[str, tuple[str, int]]:
        if not self._path.exists():
            return {}
        try:
            return {str(run): (str(owner), int(attempt)) for run, owner, attempt in json.loads(self._path.read_bytes())}
        except (OSError, ValueError, TypeError):
            raise IntegrityError(
                "the list of signed runs cannot be read", where=str(self._path), mend="Restore it from a copy."
            ) from None
