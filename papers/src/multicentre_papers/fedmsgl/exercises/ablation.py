"""Ablation: hypergraph against plain graph as embeddings of the same affinity; the paper gives no figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.hypergraph import embed, embed_graph, hyperedge_factor, unit_rows
from multicentre.clustering.partition import partition_rows
from multicentre.datasets import split_views
from multicentre.datasets.labelled import LabelledMultiView
from multicentre_papers.baselines.pooled_clustering.graphs import neighbour_graph
from multicentre_papers.fedmsgl.contenders import ONE_SHOT, contenders
from multicentre_papers.fedmsgl.fits import N_STARTS, fit, match, quiet, relabelled
from multicentre_papers.fedmsgl.levels import NAMES
from multicentre_papers.fedmsgl.plan import Plan
from multicentre_papers.fedmsgl.samples import SAMPLES, at_hand
from multicentre_papers.runner.markdown import markdown, mean_and_spread
from multicentre_papers.runner.section import (
    Claim,
    Exercise,
    FitCallback,
    Row,
    Section,
    distinct,
    paired,
    pick,
    skipped,
    values,
)

Floats = NDArray[np.float64]
Embedding = Callable[[Any, int], Floats]
HYPERGRAPH, GRAPH = "hypergraph of 5, 10, 20", "graph of all relations"
WITHOUT = "mean of neighbour graphs, nothing expressed"
# Neighbours per patient of the graphs without self-expression: between the middle and the largest hyperedge.
NEIGHBOURS = 15


def _hypergraph(*sizes: int, kind: Any = "sqrt", scaled: bool = True) -> Embedding:
    def make(affinity: Any, n_clusters: int) -> Floats:
        vectors, _ = embed(hyperedge_factor(affinity, sizes, kind), n_clusters)
        return unit_rows(vectors) if scaled else vectors

    return make


def _graph(neighbours: int | None = None) -> Embedding:
    return lambda affinity, n_clusters: unit_rows(embed_graph(affinity, n_clusters, neighbours)[0])


EMBEDDINGS: Mapping[str, Embedding] = {
    HYPERGRAPH: _hypergraph(5, 10, 20),
    "hypergraph of 5": _hypergraph(5),
    "hypergraph of 10": _hypergraph(10),
    "hypergraph of 20": _hypergraph(20),
    "memberships of 0 and 1": _hypergraph(5, 10, 20, kind="binary"),
    "memberships not rooted": _hypergraph(5, 10, 20, kind="soft"),
    "rows not of length 1": _hypergraph(5, 10, 20, scaled=False),
    GRAPH: _graph(),
    "graph of 10 relations": _graph(10),
}


def n_fits(plan: Plan) -> int:
    """Return how many partitions there are."""
    return len(plan.samples) * (len(EMBEDDINGS) + 1) * plan.n_runs


def run(plan: Plan, heard: FitCallback) -> list[Row]:
    """Fit the preset once, embed its affinity in every way, and partition each embedding with every seed."""
    rows: list[Row] = []
    for sample, labelled in at_hand(plan.samples):
        if not isinstance(labelled, LabelledMultiView):
            rows.append({"sample": sample.name, "skipped": labelled})
            continue
        for name, scores in _partitions(labelled, plan):
            for seed, figures in enumerate(scores):
                rows.append({"sample": sample.name, "embedding": name, "seed": seed, **figures})
            heard(len(rows))
    return rows


def _partitions(labelled: LabelledMultiView, plan: Plan) -> Iterator[tuple[str, list[dict[str, float]]]]:
    n_clusters, data = len(labelled.groups), labelled.data
    contender = next(one for one in contenders() if one.name == ONE_SHOT)
    fitted = fit(contender.make(n_clusters, {}, 0), split_views(data))
    with quiet():
        for name, make in EMBEDDINGS.items():
            rows = make(fitted.affinity_, n_clusters)
            labels = (relabelled(fitted, part, data) for part in _parts(rows, n_clusters, plan))
            yield name, [match(labelled, one) for one in labels]
        graphs = [neighbour_graph(data.array(view), NEIGHBOURS) for view in data.views]
        joined = sum((graph + graph.T) / 2 for graph in graphs) / len(graphs)
        rows = _graph()(joined, n_clusters)
        yield WITHOUT, [match(labelled, part) for part in _parts(rows, n_clusters, plan)]


def _parts(rows: Floats, n_clusters: int, plan: Plan) -> Iterator[NDArray[np.int64]]:
    for seed in range(plan.n_runs):
        yield partition_rows(rows, n_clusters, n_init=N_STARTS, random_state=seed)


def show(rows: Sequence[Row], plan: Plan) -> Section:
    """Show a table for each measure, and whether the hypergraph is ahead of the graph."""
    scored_rows = [row for row in rows if not row.get("skipped")]
    names, embeddings = distinct(scored_rows, "sample"), distinct(scored_rows, "embedding")
    introduction = "The preset's affinity is the same in all rows but the last; only the embedding differs."
    blocks = [introduction, *skipped(rows)]
    for measure, label in NAMES.items():
        lines = [
            [
                one,
                *(mean_and_spread(values(pick(scored_rows, sample=name, embedding=one), measure), 4) for name in names),
            ]
            for one in embeddings
        ]
        blocks.append(markdown([label, *(SAMPLES[name].label for name in names)], lines))
    return Section(blocks, claims=[_claim(name, pick(scored_rows, sample=name)) for name in names])


def _claim(name: str, rows: Sequence[Row]) -> Claim:
    methods = [{**row, "method": row["embedding"]} for row in rows]
    gain, _, n_pairs = paired(methods, "acc", HYPERGRAPH, GRAPH, by=["seed"])
    return Claim(
        f"paper: the hypergraph is considerably better than the graph ({name}, 0.01 in ACC)",
        gain >= 0.01,
        f"{gain:+.4f}",
        n_repetitions=n_pairs,
    )


ABLATION: Exercise[Plan] = Exercise("ablation", "Hypergraph against graph", n_fits, run, show)
