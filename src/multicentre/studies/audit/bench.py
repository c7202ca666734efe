"""The fits of an audit, with the canary and without, and their scores."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from sklearn.base import clone

from multicentre.estimator.base import FederatedEstimator
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.progress import Listener
from multicentre.studies.audit.canary import measure
from multicentre.studies.audit.transcript import AllReleased, Recording, Transcript, Witness


def hear(estimator: FederatedEstimator, federation: Recording, site: str, *, enough: int | None = None) -> Transcript:
    """Fit a copy of the estimator and return what the coordinator heard about a site.

    Parameters
    ----------
    estimator : FederatedEstimator
    federation : Recording
    site : str
    enough : int, optional
        As for :meth:`Recording.watch`.

    Raises
    ------
    ConfigurationError
        The fit released nothing about the site's patients.

    Examples
    --------
    >>> import numpy as np
    >>> import multicentre as mc
    >>> blood = mc.data.MultiViewData({"blood": np.random.default_rng(0).normal(size=(40, 2))})
    >>> reference = {"blood": {"centre": [0.0, 0.0], "spread": [1.0, 1.0]}}
    >>> model = mc.multiview.FedMvPPCA(n_components=1, epsilon=9.0, reference=reference)
    >>> with Recording.in_process({"lyon": blood}) as federation:
    ...     heard = hear(model, federation, "lyon", enough=1)
    >>> heard[-1].step.name, heard[-1].answer.products.shape
    ('sum_outer_products', (6,))
    """
    heard = federation.watch(site, enough=enough)
    with suppress(AllReleased):
        clone(estimator).fit(federation)
    if not any(one.answer is not None and one.step.releases.tells_of_patients() for one in heard):
        raise ConfigurationError("the fit told nothing of the site's patients", where=site, mend="Name another site.")
    return heard


@dataclass
class Bench:
    """Two federations that differ by the canary.

    Parameters
    ----------
    estimator : FederatedEstimator
    witness : Witness
    exposed, without : Recording
        With the canary, and without it.
    enough : int
        Exchanges up to the last planned release.
    listener : Listener
        Hears of the runs as of rounds.

    Attributes
    ----------
    worst : tuple of float and str
        The most that the canary moved a field in a run, over what the field declares, and that field.
    """

    estimator: FederatedEstimator
    witness: Witness
    exposed: Recording
    without: Recording
    enough: int
    listener: Listener
    worst: tuple[float, str] = (0.0, "")

    def run(self, runs: int) -> tuple[list[float], list[float]]:
        """Return the scores of so many fits with the canary and of as many without."""
        name = "audit"
        self.listener.rounds_began(name, runs, 0)
        scores: tuple[list[float], list[float]] = ([], [])
        for number in range(1, runs + 1):
            scores[0].append(self._score(self.exposed))
            scores[1].append(self._score(self.without))
            self.listener.round_ended(name, number, {})
        self.listener.rounds_ended(name, runs)
        return scores

    def _score(self, federation: Recording) -> float:
        shown = self.witness.shown(hear(self.estimator, federation, self.witness.site, enough=self.enough))
        ratio, field, _ = measure(shown)
        self.worst = max(self.worst, (ratio, field))
        return sum(one.score for one in shown)
