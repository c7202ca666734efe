"""Data sets and comparisons of accuracy for clustering.py: presets chosen on some sets, reported on others."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measuring import show
from scipy.io import loadmat
from scipy.sparse import coo_array
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from multicentre.clustering import FedMSGL
from multicentre.clustering.hypergraph import (
    count_dimensions,
    diffuse,
    embed,
    fit_sizes,
    hyperedge_factor,
    scale_locally,
)
from multicentre.clustering.metrics import clustering_scores
from multicentre.clustering.partition import partition_rows
from multicentre.data import MultiViewData
from multicentre.datasets import (
    load_bbcsport,
    load_breast_tcga,
    load_caltech101_7,
    load_handwritten,
    load_orl,
    load_orl4,
    load_sonar,
)
from multicentre.datasets.labelled import LabelledMultiView
from multicentre.datasets.simulated_views import split_views
from multicentre.errors import MulticentreError
from multicentre_papers.fedmsgl.contenders import ONE_SHOT, Contender, contenders
from multicentre_papers.fedmsgl.fits import fit, runs
from multicentre_papers.fedmsgl.levels import OURS
from multicentre_papers.fedmsgl.plan import FULL

Views = list[np.ndarray]
Loader = Callable[[Path], LabelledMultiView]
N_SEEDS = 3
# Groups up to which the compared methods run on the unseen sets; above, some take minutes per fit.
MAX_GROUPS = 20
PRESETS = {
    "norm": ("auto", "l2", "z"),
    "local_scaling": (0.0, 0.5, 1.0),
    "diffusion_steps": (0, 2, 4, 8),
}


def _labelled(name: str, views: Views, groups: Any) -> LabelledMultiView:
    tables = {f"view_{k}": np.asarray(X, dtype=np.float64) for k, X in enumerate(views, start=1)}
    labels = np.asarray(groups).astype(str)
    return LabelledMultiView(MultiViewData(tables, [str(row) for row in range(len(labels))]), labels, name, "", "")


def _matlab(name: str) -> Loader:
    def load(folder: Path) -> LabelledMultiView:
        content = loadmat(folder / f"{name}.mat")
        views = [X.toarray() if hasattr(X, "toarray") else X for X in content["X"].ravel()]
        return _labelled(name, views, content["Y"].ravel())

    return load


def _number(text: str) -> float:
    return float({"TRUE": "1", "FALSE": "0"}.get(text, text))


def _cut(
    name: str,
    group: str,
    parts: Sequence[Sequence[int] | slice],
    n_rows: int | None = None,
    without: Sequence[str] = (),
) -> Loader:
    """Return a loader of a CSV file whose columns are divided into views; `n_rows` of the complete rows at random."""

    def load(folder: Path) -> LabelledMultiView:
        with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            records = [one for one in csv.DictReader(file) if "NA" not in one.values()]
        if n_rows is not None:
            chosen = np.sort(np.random.default_rng(0).permutation(len(records))[:n_rows])
            records = [records[row] for row in chosen]
        columns = [one for one in records[0] if one not in (group, *without)]
        X = np.array([[_number(one[column]) for column in columns] for one in records])
        return _labelled(name, [X[:, part] for part in parts], [one[group] for one in records])

    return load


def _cells(folder: Path) -> LabelledMultiView:
    with (folder / "cells.csv").open(newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    channels = [[one for one in records[0] if one.endswith(f"ch_{k}")] for k in (1, 2, 3, 4)]
    views = [np.array([[float(one[column]) for column in channel] for one in records]) for channel in channels]
    return _labelled("cells", views, [one["class"] for one in records])


def _reuters(folder: Path) -> LabelledMultiView:
    """Return the 600 documents in five languages, whose file lists rows, columns and values of each view."""
    content = loadmat(folder / "reuters.mat")
    views = []
    for one in content["X"].ravel():
        row, column, value = np.asarray(one, dtype=np.float64).T
        table = coo_array((value, (row.astype(int) - 1, column.astype(int) - 1))).toarray()
        views.append(table if len(table) == content["Y"].size else table.T)
    return _labelled("reuters", views, content["Y"].ravel())


def _digits(_: Path) -> LabelledMultiView:
    given = load_digits()
    halves = [given.images[:, rows].reshape(len(given.target), -1) for rows in (slice(4), slice(4, 8))]
    return _labelled("digits", halves, given.target)


def _wine(_: Path) -> LabelledMultiView:
    given = load_wine()
    return _labelled("wine", [given.data[:, :5], given.data[:, 5:9], given.data[:, 9:]], given.target)


def _wisconsin(_: Path) -> LabelledMultiView:
    given = load_breast_cancer()
    return _labelled("wdbc", [given.data[:, :10], given.data[:, 10:20], given.data[:, 20:]], given.target)


def _iris(_: Path) -> LabelledMultiView:
    given = load_iris()
    return _labelled("iris", [given.data[:, :2], given.data[:, 2:]], given.target)


def _tcga(_: Path) -> LabelledMultiView:
    given = load_breast_tcga()
    return given.take(given.parts == "train")


PAPER: dict[str, Loader] = {
    "bbcsport": lambda _: load_bbcsport(),
    "handwritten": lambda _: load_handwritten(),
    "orl": lambda _: load_orl(),
    "sonar": lambda _: load_sonar(),
    "caltech101_7": lambda _: load_caltech101_7(),
}
DEVELOPMENT: dict[str, Loader] = {
    "breast_tcga": _tcga,
    "digits": _digits,
    "wine": _wine,
    "Vehicle": _cut("Vehicle", "Class", (slice(6), slice(6, 12), slice(12, 18))),
    "Vowel": _cut("Vowel", "Class", (slice(3), slice(3, 6), slice(6, 9)), without=("V1",)),
    "webkb": _matlab("webkb"),
    "reuters": _reuters,
    "Satellite": _cut("Satellite", "classes", [list(range(band, 36, 4)) for band in range(4)], 2_000),
}
UNSEEN: dict[str, Loader] = {
    "MSRCV1": _matlab("MSRCV1"),
    "3-sources": _matlab("3-sources"),
    "BBC4view_685": _matlab("BBC4view_685"),
    "20newsgroups": _matlab("20newsgroups"),
    "100Leaves": _matlab("100Leaves"),
    "wdbc": _wisconsin,
    "cells": _cells,
    "iris": _iris,
    "Ionosphere": _cut("Ionosphere", "Class", (slice(0, 32, 2), slice(1, 32, 2)), without=("V1", "V2")),
    "Glass": _cut("Glass", "Type", (slice(3), slice(3, 6), slice(6, 9))),
    "BreastCancer": _cut("BreastCancer", "Class", (slice(3), slice(3, 6), slice(6, 9)), without=("Id",)),
    "Zoo": _cut("Zoo", "type", (slice(8), slice(8, 16))),
    "MSRC": _matlab("MSRC"),
    "orl4": lambda _: load_orl4(),
    "LetterRecognition": _cut("LetterRecognition", "lettr", (slice(5), slice(5, 10), slice(10, 16)), 2_000),
}


def available(sets: dict[str, Loader], folder: Path, names: Sequence[str] | None) -> Iterator[LabelledMultiView]:
    for name, load in sets.items():
        if names and name not in names:
            continue
        try:
            yield load(folder)
        except (MulticentreError, OSError) as error:
            print(f"({name} is left out: {error})")


def choose(folder: Path, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the accuracy of every preset on every set, and per set of the paper the choice of all others."""
    presets = [dict(zip(PRESETS, values, strict=True)) for values in itertools.product(*PRESETS.values())]
    accuracies: dict[str, list[float]] = {}
    for labelled in available(PAPER | DEVELOPMENT, folder, names):
        accuracies[labelled.name] = _accuracies(labelled, presets)
        print(labelled.name, len(labelled), flush=True)
    table = np.array(list(accuracies.values()))
    default = [tuple(FedMSGL().get_params()[name] for name in PRESETS) == tuple(one.values()) for one in presets].index(
        True
    )
    rows = []
    for place, name in enumerate(accuracies):
        best = int(np.argmax(np.delete(table, place, axis=0).mean(axis=0).round(6)))
        chosen = ", ".join(str(value) for value in presets[best].values())
        figures = [table[place, best], table[place, default], table[place].max()]
        rows.append([name, chosen, *(f"{value:.3f}" for value in figures)])
    show("Preset chosen on all other sets", ["left out", "norm, scaling, steps", "ACC", "default", "best"], rows)
    means = {str(tuple(one.values())): float(mean) for one, mean in zip(presets, table.mean(axis=0), strict=True)}
    return {"accuracy": accuracies, "presets": presets, "mean": means}


def _accuracies(labelled: LabelledMultiView, presets: Sequence[dict[str, Any]]) -> list[float]:
    """Return the accuracy of every preset; fits differ only in the norm, the rest is computed from the affinity."""
    n_clusters, sites = len(labelled.groups), split_views(labelled.data)
    fitted = {norm: fit(FedMSGL(n_clusters, norm=norm), sites) for norm in PRESETS["norm"]}
    order = fitted["auto"].places_for(labelled.data)
    spectra: dict[Any, Any] = {}
    accuracies = []
    for one in presets:
        key = (one["norm"], one["local_scaling"])
        if key not in spectra:
            scaled = scale_locally(fitted[one["norm"]].affinity_, one["local_scaling"])
            sizes = fit_sizes((5, 10, 20), scaled.shape[0])
            n_dimensions = min(count_dimensions(n_clusters, 1), scaled.shape[0] - 1)
            spectra[key] = embed(hyperedge_factor(scaled, sizes), n_dimensions)
        rows = diffuse(*spectra[key], n_clusters, one["diffusion_steps"])
        labels = partition_rows(rows, n_clusters, random_state=0)
        accuracies.append(clustering_scores(labelled.labels, labels[order])["acc"])
    return accuracies


def _is_compared(contender: Contender, labelled: LabelledMultiView, most: int) -> bool:
    """Return whether a method is the default, a plain baseline, or a compared method on a set that it fits quickly."""
    if contender.name in OURS:
        return contender.name == ONE_SHOT
    is_plain = contender.name.startswith(("spectral, ", "k-means, "))
    return is_plain or (len(labelled) <= most and len(labelled.groups) <= MAX_GROUPS)


def compare_unseen(folder: Path, names: Sequence[str] | None, most: int) -> dict[str, Any]:
    """Return the accuracy of the default, the plain baselines and the compared methods; these on up to `most` patients.

    The sets had no part in any choice.
    """
    results: dict[str, Any] = {}
    rows = []
    for labelled in available(UNSEEN, folder, names):
        means: dict[str, float] = {}
        for contender in contenders():
            if not _is_compared(contender, labelled, most):
                continue
            seeds = range(N_SEEDS if contender.draws and not contender.slow else 1)
            scored = [one["acc"] for one in runs(contender, labelled, {}, seeds, FULL) if one.get("acc") is not None]
            if scored:
                means[contender.name] = float(np.mean(scored))
        results[labelled.name] = means
        ours = means.pop(ONE_SHOT)
        best = max(means, key=means.__getitem__)
        rows.append(
            [labelled.name, str(len(labelled)), f"{ours:.3f}", f"{means[best]:.3f}", best, str(ours > means[best])]
        )
        print(labelled.name, f"{ours:.3f}", {name: round(value, 3) for name, value in means.items()}, flush=True)
        means[ONE_SHOT] = ours
    show("Default on unseen sets", ["set", "patients", "ACC", "best other", "method", "ahead"], rows)
    return results
