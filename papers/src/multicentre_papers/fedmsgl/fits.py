"""Fits over simulated sites, and how well their clusters match the groups."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from multicentre.clustering.metrics import clustering_scores
from multicentre.clustering.partition import partition_rows
from multicentre.data import MultiViewData
from multicentre.datasets import split_iid, split_views
from multicentre.datasets.labelled import LabelledMultiView
from multicentre.errors import MulticentreError
from multicentre.federation import Federation
from multicentre.privacy.policy import Policy
from multicentre_papers.fedmsgl.contenders import Contender, Settings
from multicentre_papers.fedmsgl.plan import Plan
from multicentre_papers.runner.section import Row

Integers = NDArray[np.int64]
Sites = Mapping[str, MultiViewData]
OPEN = Policy(min_patients=0, relations="dense")
# Sites of horizontal methods, as in their paper.
N_CENTRES = 5
# Starts of k-means where runs differ only in it; the authors' code has one.
N_STARTS = 10

FIGURES = ("acc", "purity", "nmi", "nmi_arithmetic", "ari")


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings of compared or published fits; here they are expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@contextmanager
def federated(sites: Sites) -> Iterator[Federation]:
    """Yield a federation of simulated sites that permits every request: the data are public or simulated."""
    with quiet(), Federation.in_process(sites, policy=OPEN) as federation:
        yield federation


def fit(model: Any, sites: Sites) -> Any:
    """Fit a method over simulated sites."""
    with federated(sites) as federation:
        return model.fit(federation)


def labels_for(model: Any, data: MultiViewData) -> Integers:
    """Return the clusters of the patients in the order of the data."""
    return np.asarray(model.labels_for(_ids(data)))


def match(labelled: LabelledMultiView, clusters: Integers) -> dict[str, float]:
    """Return the scores of clusters against the groups of the clustered patients, and both numbers."""
    is_clustered = clusters >= 0
    counts = {"n_asked": len(labelled.groups), "n_found": len(np.unique(clusters[is_clustered]))}
    return {**clustering_scores(labelled.labels[is_clustered], clusters[is_clustered]), **counts}


def runs(
    contender: Contender,
    labelled: LabelledMultiView,
    settings: Settings,
    seeds: Sequence[int],
    plan: Plan,
    heard: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Return figures and seconds of each run, or one row with the reason if the method cannot run.

    Parameters
    ----------
    contender : Contender
    labelled : LabelledMultiView
    settings : mapping
    seeds : sequence of int
        One run each.
    plan : Plan
    heard : callable
        Called after each run.
    """
    rows: list[Row] = []
    fitted: Any = None
    for seed in seeds:
        began = time.perf_counter()
        try:
            with quiet():
                if fitted is None or len(labelled) <= plan.small or not contender.ours:
                    fitted = contender.make(len(labelled.groups), settings, seed)
                    figures = fit_and_match(contender, fitted, labelled, seed)
                else:
                    figures = match(labelled, partition_again(contender, fitted, labelled, seed))
        except MulticentreError as error:
            return [*rows, {"seed": seed, "skipped": f"{contender.name} has no answer: {error}"}]
        rows.append({"seed": seed, **figures, "seconds": time.perf_counter() - began})
        heard()
    return rows


def fit_and_match(contender: Contender, model: Any, labelled: LabelledMultiView, seed: int) -> dict[str, float]:
    """Fit over the sites that the method is made for and return how well clusters match groups."""
    data = labelled.data
    if contender.sharing == "views":
        return match(labelled, labels_for(fit(model, split_views(data)), data))
    if contender.sharing == "patients":
        return match(labelled, _labels_over_centres(model, data, seed))
    if contender.sharing == "nothing":
        return match(labelled, model.fit(data).labels_)
    if contender.sharing == "nothing, unit rows":
        return match(labelled, model.fit({view: normalize(data.array(view)) for view in data.views}).labels_)
    scores = [match(labelled, model.fit({view: data.array(view)}).labels_) for view in data.views]
    return {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}


def partition_again(contender: Contender, fitted: Any, labelled: LabelledMultiView, seed: int) -> Integers:
    """Return clusters of a fit's embedding by k-means with another seed, in the order of the patients."""
    n_init = 1 if contender.as_printed else N_STARTS
    clusters = partition_rows(fitted.embedding_, len(labelled.groups), n_init=n_init, random_state=seed)
    return relabelled(fitted, clusters, labelled.data)


def relabelled(fitted: Any, clusters: Integers, data: MultiViewData) -> Integers:
    """Return clusters in the order of the data; the argument is in the common order of the fit."""
    other = copy.copy(fitted)
    other.labels_ = clusters
    return labels_for(other, data)


def _labels_over_centres(model: Any, data: MultiViewData, seed: int) -> Integers:
    """Fit over centres with different patients, and return all clusters in the order of the data."""
    centres = split_iid(data, N_CENTRES, seed)
    fit(model, centres)
    cluster = {
        one: label
        for centre in centres.values()
        for one, label in zip(_ids(centre), model.predict(centre), strict=True)
    }
    return np.array([cluster[one] for one in _ids(data)], dtype=np.int64)


def _ids(data: MultiViewData) -> list[str]:
    return [str(one) for one in np.asarray(data.ids)]
