"""FedMSGL beside the spectral clustering and k-means of scikit-learn on the stacked views."""

from __future__ import annotations

from typing import Any

import numpy as np
from pairing import Pair, Pairs, Way
from sklearn.cluster import KMeans, SpectralClustering

import multicentre as mc
from multicentre.clustering.metrics import clustering_scores
from multicentre.datasets import simulate_views
from multicentre.datasets.simulated_views import split_views
from pairs.sites import fit

# Sizes of the handwritten digits; their rows are simulated, so that the benchmark needs no file.
SIZES = (76, 216, 64, 240, 47, 6)
N_CLUSTERS = 10


def pairs(quick: bool) -> Pairs:
    """Yield one clustering; each view is at a separate site."""
    n = 300 if quick else 2_000
    drawn = simulate_views(n, N_CLUSTERS, SIZES, noise=0.6, random_state=0)
    sites, labels, rows = split_views(drawn), np.asarray(drawn.labels), drawn.data.stacked(list(drawn.data.views))
    one = next(iter(sites.values()))

    def ours(*, masked: bool) -> Any:
        return fit(mc.clustering.FedMSGL(N_CLUSTERS), sites, masked=masked).labels_for(one)

    def accuracy(clusters: Any) -> float:
        return float(clustering_scores(labels, clusters)["acc"])

    spectral = SpectralClustering(N_CLUSTERS, affinity="nearest_neighbors", n_neighbors=50, random_state=0)
    means = KMeans(N_CLUSTERS, n_init=10, random_state=0)
    yield Pair(
        f"{N_CLUSTERS} clusters from {len(SIZES)} views",
        f"{n:,} patients, {sum(SIZES)} columns, one site per view",
        [Way("unmasked", lambda: ours(masked=False)), Way("masked", lambda: ours(masked=True))],
        [
            Way("scikit-learn, SpectralClustering", lambda: spectral.fit_predict(rows)),
            Way("scikit-learn, KMeans", lambda: means.fit_predict(rows)),
        ],
        lambda ours, peer: {"accuracy, ours": accuracy(ours), "accuracy, peer": accuracy(peer)},
    )
