"""Numbers of clusters for clustering.py: how often the suggested number is that of the known groups, by certainty.

The evidence is judged on whole data sets and on random groups of them. Groups of a set belong to the same half as the
set: its thresholds were chosen on one half, and the figures of the other half are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from clustering_sets import DEVELOPMENT, PAPER, UNSEEN, available
from measuring import show

from multicentre.clustering import FedMSGL
from multicentre.clustering.candidates import FREQUENCIES, Candidates
from multicentre.datasets.labelled import LabelledMultiView
from multicentre.datasets.simulated_views import split_views
from multicentre_papers.fedmsgl.fits import fit

# Random choices of groups per data set.
N_DRAWS = 6
# Groups of a choice, and patients of each group at most, which bounds the time.
MIN_GROUPS, MAX_GROUPS, MAX_PER_GROUP = 2, 8, 40
# Patients below which hyperedges span groups.
MIN_PATIENTS = 40
KINDS = {"chosen on": PAPER | DEVELOPMENT, "reported on": UNSEEN}


def suggest_numbers(folder: Path, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the number of groups and the evidence for each number of clusters, per set and choice of groups."""
    results: dict[str, Any] = {}
    for kind, sets in KINDS.items():
        for labelled in available(sets, folder, names):
            for name, part in _parts(labelled):
                candidates = fit(FedMSGL(), split_views(part.data)).candidates_
                results[name] = {
                    "kind": kind,
                    "groups": len(part.groups),
                    **{field: getattr(candidates, field).tolist() for field in Candidates.declarations()},
                }
                print(kind, name, len(part), len(part.groups), candidates.describe(), flush=True)
    show_counts(results)
    return results


def show_counts(results: dict[str, Any]) -> None:
    """Print, by certainty, how often the suggested number is that of the groups, or among the three best."""
    rows = []
    for kind in KINDS:
        for whole in (True, False):
            found = [one for name, one in results.items() if one["kind"] == kind and (":" not in name) == whole]
            for certainty in FREQUENCIES:
                judged = [(one["groups"], _candidates(one)) for one in found]
                judged = [(truth, one) for truth, one in judged if one.certainty == certainty]
                right = sum(truth == one.best for truth, one in judged)
                among = sum(truth in one.to_frame().index[:3] for truth, one in judged)
                what = "whole sets" if whole else "random groups"
                rows.append([kind, what, certainty, str(len(judged)), str(right), str(among)])
    show(
        "Suggested numbers of clusters",
        ["sets", "of", "certainty", "problems", "right", "among three best"],
        rows,
    )


def _candidates(one: dict[str, Any]) -> Candidates:
    return Candidates(**{field: np.array(one[field]) for field in Candidates.declarations()})


def _parts(labelled: LabelledMultiView) -> Iterator[tuple[str, LabelledMultiView]]:
    """Yield the set, if its groups are not more than are considered, and random groups of it."""
    groups = list(labelled.groups)
    if len(groups) <= FedMSGL().max_clusters:
        yield labelled.name, labelled
    if len(groups) <= MIN_GROUPS + 1:
        return
    rng = np.random.default_rng(0)
    for draw in range(N_DRAWS):
        most = min(MAX_GROUPS, len(groups) - 1)
        chosen = rng.permutation(groups)[: int(rng.integers(MIN_GROUPS, most + 1))]
        rows = np.concatenate(
            [rng.permutation(np.flatnonzero(labelled.labels == one))[:MAX_PER_GROUP] for one in chosen]
        )
        if len(rows) >= MIN_PATIENTS:
            yield f"{labelled.name}: groups {draw}", labelled.take(np.sort(rows))
