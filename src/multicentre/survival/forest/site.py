"""Site part of the forests of local trees: every step that a coordinator can ask of a site.

A site grows its trees alone, and gives some of them. A leaf holds at least fifteen patients, or as many as the policy
wants behind a value; its curve lies on the grid of times that all sites share, its thresholds on edges that they share.
Trees leave unmasked even where sums are masked, so that they are grown on grouped times
(:func:`~multicentre.survival.learners.cohort.group_for_travel`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import Lengths, Message, array, count, flag, number, text, texts
from multicentre.federation.steps import Release, step
from multicentre.survival.agreement.messages import Patients
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.forest.maths import brier_gains, chances_of, concordance_gains, draw_trees
from multicentre.survival.learners.cohort import group_for_travel
from multicentre.survival.learners.tree import DEEPEST, TreeSettings, fit_forest
from multicentre.survival.models.trees import Trees

Floats = NDArray[np.float64]

PATIENTS = 2.0**24


@dataclass(frozen=True)
class Forest(Message):
    """How a site grows its forest."""

    n_estimators: int = count("trees that a site grows")
    max_depth: int = count("splits on the way to a leaf, at most")
    min_samples_leaf: int = count("fewest patients of a leaf", unit="patients")
    min_events_leaf: int = count("fewest events of a leaf", unit="patients")
    max_features: int = count("columns that are tried at a node")
    sampling: str = text("how trees are chosen: uniform, ibs or concordance")
    replacement: bool = flag("a tree may be chosen more than once")
    seed: int = count("seed of the sites' random streams")


@dataclass(frozen=True)
class Order(Forest):
    """A forest, and how many trees of it are wanted."""

    wanted: int = count("trees that the site gives")


@dataclass(frozen=True)
class Offer(Release):
    """What a site could give."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_estimators: int = count("trees that the site can grow; 0 with too few patients or events")


@dataclass(frozen=True)
class Orders(Message):
    """What the coordinator ordered of each site."""

    sites: tuple[str, ...] = texts("names of the sites")
    n_patients: Floats = array("patients of each", ("s",), unit="patients")
    wanted: NDArray[np.int64] = array("trees wanted of each", ("s",), dtype="i8")


@dataclass(frozen=True)
class Gathered(Message):
    """The trees that the sites gave; the coordinator keeps it with a checkpoint."""

    sites: tuple[str, ...] = texts("names of the sites that gave some")
    packed: NDArray[np.uint8] = array("their forests as bytes", ("b",), dtype="u1")
    lengths: NDArray[np.int64] = array("bytes of each", ("s",), dtype="i8")


SAMPLINGS = ("uniform", "ibs", "concordance")

SMALLEST_LEAF = 15

MOST_TREES = 2000

LARGEST = 2**31 - 1

HELD_OUT = 0.2


class ForestSite(SurvivalPart):
    """The site part of FedSurF, and of the union of local forests, which takes every tree."""

    method: ClassVar[str] = "fed-surf"
    lengths: ClassVar[Lengths] = {
        "K": "times of the grid",
        "T": "trees",
        "m": "nodes of all trees",
        "L": "leaves of all trees",
    }

    @step(releases=Offer, when="once")
    def offer_trees(self, ask: Forest) -> Offer:
        """Count the patients, and offer as many trees as asked, or none where no tree may leave the site at all.

        Neither the agreed times nor the wanted number of events decide: an answer to them would tell event times.
        """
        self._check(ask)
        n_events = int((self.data.event == self.agreed.cause).sum())
        n_training = len(self.data) - self._n_held_out(ask)
        can_grow = n_training >= ask.min_samples_leaf and n_events >= max(self.least_behind, 1)
        return Offer(float(len(self.data)), ask.n_estimators if can_grow else 0, patients=len(self.data))

    @step(releases=Trees, when="once", addressed="each")
    def grow_trees(self, ask: Order) -> Trees:
        """Grow a forest on bootstrap samples of the site's patients, and give the trees that the draw chose.

        A sum over sites cannot answer for trees, so these are the site's own. The draw goes by the site's generator,
        its own data mixed in: nobody elsewhere can tell which patients a tree drew.
        """
        self._check(ask)
        rng = self._generator(ask, 1)
        training, held_out = self._split(ask)
        settings = TreeSettings(ask.max_depth, ask.min_samples_leaf, ask.min_events_leaf, ask.max_features)
        forest = fit_forest(training, ask.n_estimators, settings, rng)
        if forest.is_empty or not ask.wanted:
            return Trees.empty()
        chances = chances_of(_gains(ask.sampling, forest, training, held_out))
        drawn = draw_trees(chances, ask.wanted, rng, replacement=ask.replacement)
        chosen = np.flatnonzero(drawn)
        return forest.of_trees(chosen, drawn[chosen].astype(np.float64))

    def _split(self, ask: Forest) -> tuple[Patients, Patients | None]:
        """Return training and held-out patients; nobody is held out where trees are drawn uniformly."""
        n_held_out = self._n_held_out(ask)
        if not n_held_out:
            return group_for_travel(self.data, self.agreed, self.least_behind), None
        order = self._generator(ask, 0).permutation(len(self.data))
        training, held_out = (self.data.take(np.sort(rows)) for rows in (order[n_held_out:], order[:n_held_out]))
        return group_for_travel(training, self.agreed, self.least_behind), Patients(held_out, self.agreed)

    def _n_held_out(self, ask: Forest) -> int:
        return 0 if ask.sampling == "uniform" else round(HELD_OUT * len(self.data))

    def _generator(self, ask: Forest, purpose: int) -> np.random.Generator:
        return self.generator(ask.seed, purpose, int(self.data.digest()[:16], 16))

    def _check(self, ask: Forest) -> None:
        least = max(SMALLEST_LEAF, self.least_behind)
        if ask.min_samples_leaf < least:
            raise ConfigurationError(
                f"a leaf of {ask.min_samples_leaf} patients is too small to leave this site",
                where=f"site {self.site}, min_samples_leaf",
                hint=f"Use min_samples_leaf={least}, or more where another site asks for more.",
            )
        limits = {
            "n_estimators": MOST_TREES,
            "max_depth": DEEPEST,
            "min_samples_leaf": LARGEST,
            "min_events_leaf": LARGEST,
        }
        for name, most in {**limits, "max_features": LARGEST}.items():
            value = getattr(ask, name)
            if value > most or value < (name in ("n_estimators", "max_features")):
                raise ConfigurationError(f"{value} is out of range", where=name, hint=f"Use at most {most}.")
        if ask.sampling not in SAMPLINGS:
            raise ConfigurationError("there is no such sampling", where="sampling", hint=f"Use {', '.join(SAMPLINGS)}.")
        if isinstance(ask, Order) and not 0 <= ask.wanted <= MOST_TREES:
            raise ConfigurationError("so many trees cannot be given", where="wanted", hint="Ask for fewer.")


def _gains(sampling: str, forest: Trees, training: Patients, held_out: Patients | None) -> Floats:
    if held_out is None:
        return np.ones(len(forest.roots))
    leaves, time = forest.leaves(held_out.rows), held_out.data.time
    if sampling == "concordance":
        return concordance_gains(forest.leaf_means[leaves], time, _events(held_out))
    known = training.data.time, _events(training)
    return brier_gains(forest.curves[leaves], forest.times, time, _events(held_out), *known)


def _events(patients: Patients) -> NDArray[np.bool_]:
    return np.asarray(patients.data.event == patients.agreed.cause, dtype=np.bool_)
