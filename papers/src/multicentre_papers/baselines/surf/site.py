"""Site part of the forests of local trees: the steps that a coordinator can request.

Steps also inherited: ``describe``, ``sum_sizes``, ``sum_squares``, ``count_times``, ``count_columns``,
``compare_units``, ``tell_times`` and ``agree`` from survival/agreement/site.py; ``count_gaps``, ``handle_gaps``,
``add_indicators`` and ``report_gaps`` from data/missing/values.py. Of these, ``tell_times`` (event times, only with
``exact_times``) and ``report_gaps`` return values of a single site.

A site grows its trees on its patients only, and returns some of those with a split. A leaf holds at least fifteen
patients, or the policy's minimum if larger. Curves of leaves are on the shared grid of times, thresholds on shared
edges. Trees leave unmasked even if sums are masked, so they are grown on grouped times
(:func:`~multicentre.survival.learners.cohort.group_for_travel`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, array, count, flag, number, text, texts
from multicentre.core.steps import Release, step
from multicentre.errors import ConfigurationError
from multicentre.survival.agreement.messages import Patients
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.fitted_models.trees import Trees
from multicentre.survival.learners.cohort import group_for_travel
from multicentre.survival.learners.tree import DEEPEST, TreeSettings, fit_forest
from multicentre_papers.baselines.surf.maths import brier_gains, chances_of, concordance_gains, draw_trees

Floats = NDArray[np.float64]

# Largest number of patients of a site, for masking.
PATIENTS = 2.0**24


@dataclass(frozen=True)
class Forest(Message):
    """Settings of a site's forest."""

    n_estimators: int = count("trees that a site grows")
    max_depth: int = count("maximum depth of a tree")
    min_samples_leaf: int = count("minimum number of patients of a leaf", unit="patients")
    min_events_leaf: int = count("minimum number of events of a leaf", unit="patients")
    max_features: int = count("columns tried at a node")
    sampling: str = text("sampling of trees: uniform, ibs or concordance")
    replacement: bool = flag("trees are drawn with replacement")
    seed: int = count("seed of the sites' random streams")


@dataclass(frozen=True)
class Order(Forest):
    """Settings of a forest, and the number of trees to return."""

    wanted: int = count("trees to return")


@dataclass(frozen=True)
class Offer(Release):
    """Number of trees that a site can return."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_estimators: int = count("trees that the site can grow; 0 with too few patients or events")


@dataclass(frozen=True)
class Orders(Message):
    """Number of trees that the coordinator requests from each site."""

    sites: tuple[str, ...] = texts("names of the sites")
    n_patients: Floats = array("patients of each site", ("s",), unit="patients")
    wanted: NDArray[np.int64] = array("trees requested from each site", ("s",), dtype="i8")


@dataclass(frozen=True)
class Gathered(Message):
    """Trees of all sites, stored in a checkpoint."""

    sites: tuple[str, ...] = texts("names of the sites with trees")
    packed: NDArray[np.uint8] = array("forests of the sites as bytes", ("b",), dtype="u1")
    lengths: NDArray[np.int64] = array("bytes of each forest", ("s",), dtype="i8")


SAMPLINGS = ("uniform", "ibs", "concordance")

# Smallest leaf of a tree that leaves a site, in patients.
SMALLEST_LEAF = 15

# Largest number of trees of a site.
MAX_TREES = 2000

# Largest 32-bit integer.
LARGEST = 2**31 - 1

# Share of the patients on whom trees are scored, unless trees are drawn uniformly.
HELD_OUT = 0.2


class ForestSite(SurvivalPart):
    """Site part of FedSurF."""

    method: ClassVar[str] = "fed-surf"
    revision: ClassVar[int] = 2
    lengths: ClassVar[Lengths] = {
        "K": "times of the grid",
        "T": "trees",
        "m": "nodes of all trees",
        "L": "leaves of all trees",
    }

    @step(releases=Offer, when="once")
    def offer_trees(self, request: Forest) -> Offer:
        """Count the patients, and offer the requested number of trees, or none if no tree may leave the site.

        The offer depends neither on the agreed times nor on the requested number of events, because an answer that does
        would disclose event times.
        """
        self._check(request)
        n_events = int((self.data.event == self.agreed.cause).sum())
        n_training = len(self.data) - self._n_held_out(request)
        can_grow = n_training >= request.min_samples_leaf and n_events >= max(self.least_behind, 1)
        return Offer(float(len(self.data)), request.n_estimators if can_grow else 0, patients=len(self.data))

    @step(releases=Trees, when="once", addressed="each")
    def grow_trees(self, request: Order) -> Trees:
        """Grow a forest on bootstrap samples of the site's patients; draw and return some of its trees with a split.

        Trees cannot be summed over sites, so each site returns its trees. The site's data enter the seed of the draws,
        so that the patients of a bootstrap sample are not known outside the site.
        """
        self._check(request)
        rng = self._generator(request, 1)
        training, held_out = self._split(request)
        settings = TreeSettings(
            request.max_depth, request.min_samples_leaf, request.min_events_leaf, request.max_features
        )
        grown = fit_forest(training, request.n_estimators, settings, rng)
        split = np.flatnonzero(grown.has_split)
        if not len(split) or not request.wanted:
            return Trees.empty()
        forest = grown.of_trees(split, np.ones(len(split)))
        chances = chances_of(_gains(request.sampling, forest, training, held_out))
        drawn = draw_trees(chances, request.wanted, rng, replacement=request.replacement)
        chosen = np.flatnonzero(drawn)
        return forest.of_trees(chosen, drawn[chosen].astype(np.float64))

    def _split(self, request: Forest) -> tuple[Patients, Patients | None]:
        """Return training and held-out patients; nobody is held out if trees are drawn uniformly."""
        n_held_out = self._n_held_out(request)
        if not n_held_out:
            return group_for_travel(self.data, self.agreed, self.least_behind), None
        order = self._generator(request, 0).permutation(len(self.data))
        training, held_out = (self.data.take(np.sort(rows)) for rows in (order[n_held_out:], order[:n_held_out]))
        return group_for_travel(training, self.agreed, self.least_behind), Patients(held_out, self.agreed)

    def _n_held_out(self, request: Forest) -> int:
        return 0 if request.sampling == "uniform" else round(HELD_OUT * len(self.data))

    def _generator(self, request: Forest, purpose: int) -> np.random.Generator:
        return self.generator(request.seed, purpose, int(self.data.digest()[:16], 16))

    def _check(self, request: Forest) -> None:
        least = max(SMALLEST_LEAF, self.least_behind)
        if request.min_samples_leaf < least:
            raise ConfigurationError(
                f"min_samples_leaf must be at least {least} at this site; got {request.min_samples_leaf}",
                where=f"site {self.site}, min_samples_leaf",
                hint=f"Use min_samples_leaf={least}, or more if another site requires more.",
            )
        limits = {
            "n_estimators": MAX_TREES,
            "max_depth": DEEPEST,
            "min_samples_leaf": LARGEST,
            "min_events_leaf": LARGEST,
        }
        for name, most in {**limits, "max_features": LARGEST}.items():
            value = getattr(request, name)
            if value > most or value < (name in ("n_estimators", "max_features")):
                raise ConfigurationError(
                    f"{name} must be a positive integer up to {most}; got {value}",
                    where=name,
                    hint="Change the parameter.",
                )
        if request.sampling not in SAMPLINGS:
            raise ConfigurationError(
                f"sampling must be one of {', '.join(map(repr, SAMPLINGS))}; got {request.sampling[:40]!r}",
                where="sampling",
                hint=f"Use {', '.join(SAMPLINGS)}.",
            )
        if isinstance(request, Order) and not 0 <= request.wanted <= MAX_TREES:
            raise ConfigurationError(
                f"wanted must be from 0 to {MAX_TREES}; got {request.wanted}", where="wanted", hint="Use fewer trees."
            )


def _gains(sampling: str, forest: Trees, training: Patients, held_out: Patients | None) -> Floats:
    if held_out is None:
        return np.ones(len(forest.roots))
    leaves, time = forest.leaves(held_out.rows), held_out.data.time
    if sampling == "concordance":
        return concordance_gains(forest.leaf_means[leaves], time, _events(held_out))
    training_outcomes = training.data.time, _events(training)
    return brier_gains(forest.curves[leaves], forest.times, time, _events(held_out), *training_outcomes)


def _events(patients: Patients) -> NDArray[np.bool_]:
    return np.asarray(patients.data.event == patients.agreed.cause, dtype=np.bool_)
