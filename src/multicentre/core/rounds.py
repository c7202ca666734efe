"""Loop over the rounds of a method, with metrics of each round and checkpoints from which a run is resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic

from multicentre.core.messages import M
from multicentre.core.storage import Store
from multicentre.core.wire import decode, encode
from multicentre.errors import ConfigurationError, SiteBehind


class Listener:
    """Receives progress events (progress bar, logger, test double). Each method does nothing by default."""

    def rounds_began(self, name: str, n_rounds: int, done: int) -> None:
        """Receive the start of a loop of at most `n_rounds` rounds, `done` of them restored from a checkpoint."""

    def round_ended(self, name: str, number: int, metrics: Mapping[str, float]) -> None:
        """Receive the end of a round with its metrics."""

    def rounds_ended(self, name: str, number: int) -> None:
        """Receive the end of a loop after round `number`."""

    def site_lost(self, site: str, reason: str) -> None:
        """Receive the loss of a site, which takes no further part in the session."""

    def sites_left_out(self, reasons: Mapping[str, str]) -> None:
        """Receive the sites that a fit is made without, and why each refuses."""

    def site_awaited(self, site: str, reason: str) -> None:
        """Receive that a site has been out of reach for a while; the run waits for it."""


History = list[dict[str, float]]


class Rounds(Generic[M]):
    """Iterate over the rounds of a fit; made by :meth:`Session.rounds`.

    Attributes
    ----------
    state : Message
        State of the coordinator from one round to the next. Assign to it inside the loop.
    history : list of dict
        One entry per round: its number and the metrics passed to :meth:`record`.
    """

    def __init__(
        self,
        n_rounds: int,
        start: Callable[[], M],
        kind: type[M],
        *,
        name: str,
        parameters: str,
        store: Store | None,
        keep_sites: Callable[[str, int], Sequence[str]],
        restore_sites: Callable[[str, int, Sequence[str]], None],
        reset_sites: Callable[[str], None],
        listener: Listener,
    ) -> None:
        self._n_rounds = n_rounds
        self._name = name
        self._parameters = parameters
        self._store = store
        self._keep_sites = keep_sites
        self._reset_sites = reset_sites
        self._listener = listener
        self._stopped = False
        self._metrics: dict[str, float] = {}
        self.history: History = []
        self.number = 0
        if not self._resume(kind, restore_sites):
            self.state = start()
            self._keep()

    def __iter__(self) -> Iterator[int]:
        self._listener.rounds_began(self._name, self._n_rounds, self.number)
        while self.number < self._n_rounds and not self._stopped:
            self.number += 1
            self._metrics = {}
            yield self.number
            self.history.append({"round": float(self.number), **self._metrics})
            self._keep()
            self._listener.round_ended(self._name, self.number, self._metrics)
        self._listener.rounds_ended(self._name, self.number)

    def record(self, **metrics: float) -> None:
        """Add metrics of the current round, for example a log-likelihood."""
        self._metrics.update({name: float(value) for name, value in metrics.items()})

    def stop(self) -> None:
        """End the loop after the current round."""
        self._stopped = True

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the current round, added with :meth:`record`."""
        return self._metrics

    @property
    def stopped(self) -> bool:
        """True if :meth:`stop` ended the loop, now or before a resume."""
        return self._stopped

    def _resume(self, kind: type[M], restore_sites: Callable[[str, int, Sequence[str]], None]) -> bool:
        """Restore the last round that coordinator and sites all stored, and return whether there is one.

        A remote site receives the request to store a round together with the first call of the next round, so a run
        that was interrupted in between is resumed one round earlier. If no round can be restored at all sites, the
        sites that restored one undo it.
        """
        numbers = self._store.numbers(self._name) if self._store else []
        for number in reversed(numbers):
            assert self._store is not None
            state, sites = self._restore(self._store.read(self._name, number), kind)
            try:
                restore_sites(self._name, number, sites)
            except SiteBehind:
                if number == numbers[0] > 0:
                    raise
                continue
            self.number, self.state = number, state
            return True
        if numbers:
            self._reset_sites(self._name)
        self.history, self._stopped = [], False
        return False

    def _keep(self) -> None:
        if self._store is None:
            return
        sites = list(self._keep_sites(self._name, self.number))
        facts = {"history": self.history, "stopped": self._stopped, "sites": sites, "parameters": self._parameters}
        line = json.dumps(facts).encode()
        self._store.keep(self._name, self.number, line + b"\n" + encode(self.state))

    def _restore(self, checkpoint: bytes, kind: type[M]) -> tuple[M, list[str]]:
        line, _, body = checkpoint.partition(b"\n")
        facts = json.loads(line)
        if facts["parameters"] != self._parameters:
            raise ConfigurationError(
                "the checkpoint must belong to a fit with the same parameters; it belongs to one with other parameters",
                where=self._name,
                hint="Use the parameters of the interrupted run, or another folder.",
            )
        self.history = facts["history"]
        self._stopped = facts["stopped"]
        return decode(kind, body), facts["sites"]
