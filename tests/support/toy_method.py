"""A method in few lines, for tests of what every method inherits: the mean of some columns, round by round."""

from dataclasses import dataclass

import numpy as np

import multicentre as mc
from multicentre.core.messages import Message, array, count, number
from multicentre.core.steps import Release, SitePart, step


@dataclass(frozen=True)
class Guess(Message):
    """Where the coordinator stands."""

    mean: np.ndarray = array("guess", ("d",))
    seed: int = count("seed of the sites' noise")


@dataclass(frozen=True)
class Drift(Message):
    """What a site remembers: a running average, so that a resume without it would show."""

    drift: np.ndarray = array("running average of the site's residuals", ("d",))
    calls: int = count("how often the site was asked")


@dataclass(frozen=True)
class Residuals(Release):
    """Sums over the patients of a site."""

    total: np.ndarray = array("sum of the residuals, the site's drift added", ("d",), bound=2.0**36)
    n: int = count("patients")
    calls: int = count("calls so far, sites added")


@dataclass(frozen=True)
class Size(Release):
    """How large a site is."""

    n: float = number("patients", bound=2.0**40)


class MeanSite(SitePart):
    """Holds rows of numbers."""

    method = "toy-mean"
    holds = np.ndarray
    remembers = Drift
    state: Drift | None

    @step(releases=Residuals, when="every round", summed=True)
    def residuals(self, request: Guess) -> Residuals:
        """Add up the residuals."""
        before = self.state or Drift(np.zeros(self.data.shape[1]), 0)
        noise = self.generator(request.seed, before.calls).normal(0.0, 0.01, self.data.shape[1])
        residual = (self.data - request.mean).sum(axis=0)
        self.state = Drift(0.5 * before.drift + 0.1 * residual, before.calls + 1)
        return Residuals(residual + self.state.drift + noise, len(self.data), self.state.calls, patients=len(self.data))

    @step(releases=Size, when="once")
    def size(self, request: Guess) -> Size:
        """Tell how many patients there are."""
        return Size(float(len(self.data)), patients=len(self.data))


class FedMean:
    """Walks towards the mean of all sites."""

    part = MeanSite

    def __init__(self, n_rounds=4, on_round=None):
        self.n_rounds = n_rounds
        self.on_round = on_round

    def fit(self, federation):
        for attempt in federation.attempts(self.part):
            with attempt as self.federation_:
                self._fit()
        return self

    def _fit(self):
        rounds = self.federation_.rounds(self.n_rounds, Guess, self._start)
        for number_ in rounds:
            sums = self.federation_.sum(self.part.residuals, rounds.state)
            mean = rounds.state.mean + 0.5 * sums.total / sums.n
            rounds.record(step=float(np.abs(sums.total).max()), calls=sums.calls)
            rounds.state = Guess(mean, rounds.state.seed)
            if self.on_round:
                self.on_round(number_)
        self.mean_ = rounds.state.mean
        self.history_ = rounds.history

    def _start(self):
        sizes = self.federation_.ask(self.part.size, Guess(np.zeros(3), 7))
        return Guess(np.full(3, sum(size.n for size in sizes.values()) / 1000.0), 7)


def toy_sites(n_sites=3, n=30, d=3):
    """Return the rows of some sites."""
    rng = np.random.default_rng(4)
    return {f"site-{i}": rng.normal(i, 1.0, (n + i, d)) for i in range(n_sites)}


def federate(sites=None, **options):
    """Return an in-process federation of toy sites."""
    return mc.Federation.in_process(toy_sites() if sites is None else sites, **options)
