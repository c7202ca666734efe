"""Departments that hold different views of the same patients, and FedMSGL fitted over them."""

import warnings

import numpy as np

import multicentre as mc
from multicentre.clustering import FedMSGL
from multicentre.clustering.metrics import clustering_scores
from multicentre.datasets import simulate_views
from multicentre.errors import DisclosureWarning

DRAWN = simulate_views(60, sizes=(12, 8, 10), noise=0.4, random_state=1)
NAMES = [f"p{number:02d}" for number in range(60)]
GROUP = np.array(DRAWN.labels)
VIEWS = {view: DRAWN.data.array(view) for view in DRAWN.data.views}
LISTED = mc.Policy(min_patients=0, relations="listed")
DENSE = mc.Policy(min_patients=0, relations="dense")


def split(views=None, *, shuffled=None, rows=None):
    """Return a site for each view; `shuffled` gives every site an order of its own."""
    sites = {}
    for number, (view, X) in enumerate((VIEWS if views is None else views).items()):
        taken = np.arange(len(X)) if rows is None else np.asarray(rows)
        if shuffled is not None:
            taken = np.random.default_rng([shuffled, number]).permutation(taken)
        sites[f"of-{view}"] = mc.data.MultiViewData({view: X[taken]}, [NAMES[row] for row in taken])
    return sites


def pool(views=None):
    """Return one site that has all views."""
    return {"all": mc.data.MultiViewData(VIEWS if views is None else views, NAMES)}


def fit(sites=None, n_clusters=3, *, kind=FedMSGL, secure=False, policy="least", federation=None, **parameters):
    """Fit; under the narrowest policy that allows it, which is the default where sums are masked."""
    rounds = parameters.get("max_iter", 1) > 1 or kind is not FedMSGL
    if policy == "least":
        masked = mc.Policy(relations="listed") if parameters.get("incomplete") else mc.Policy()
        policy = masked if secure else DENSE if rounds else LISTED
    given = {"policy": policy, "secure_sum": secure, **(federation or {})}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DisclosureWarning)
        with mc.Federation.in_process(split() if sites is None else sites, **given) as sites_of:
            return kind(n_clusters, **parameters).fit(sites_of)


def accuracy(model):
    """Return the share of patients in the cluster of their group."""
    return clustering_scores(GROUP, model.labels_for(NAMES))["acc"]


def same_partition(one, other):
    """Tell whether two labellings differ in the names of clusters alone."""
    pairs = set(zip(one.tolist(), other.tolist(), strict=True))
    return len(pairs) == len(set(one.tolist())) == len(set(other.tolist()))
