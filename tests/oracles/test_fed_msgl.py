"""FedMSGL against its equations, solved another way on all views in one place; and its levels on public data."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import nnls
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_iris

import multicentre as mc
from multicentre.clustering import FedMSGL
from multicentre.clustering.candidates import FREQUENCIES
from multicentre.clustering.metrics import clustering_scores
from multicentre.datasets import load_bbcsport, load_handwritten, load_orl, load_sonar
from multicentre.datasets.simulated_views import split_views
from multicentre.errors import DataError
from support.msgl_sites import GROUP, NAMES, VIEWS, fit, same_partition, split

MU = 5.0


def express(X, share_penalty):
    """Return Z of equation (4) in its reduced form, one non-negative least squares a sample; row j expresses j."""
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    rows = rows - rows.mean(axis=0)
    rows /= np.sqrt((rows**2).sum(axis=1).mean())
    n, heavy = len(rows), 1e4
    Z = np.zeros((n, n))
    for j in range(n):
        others = np.delete(np.arange(n), j)
        system = np.vstack([rows[others].T, np.sqrt(share_penalty) * np.eye(n - 1), heavy * np.ones((1, n - 1))])
        target = np.concatenate([rows[j], np.zeros(n - 1), [heavy]])
        Z[j, others] = nnls(system, target)[0]
    return Z


def keep_largest(Z, top):
    kept = np.zeros_like(Z)
    for j, row in enumerate(Z):
        largest = np.argsort(-row, kind="stable")[:top]
        kept[j, largest] = row[largest]
    return kept


def cut(A, sizes, c, power=0.5, steps=4):
    """Return the clusters by the dense Laplacian of the hypergraph, equation (8), with numpy's eigenvectors.

    Affinities are first divided by local scales; eigenvectors are weighted by the powers of the walk over hyperedges.
    """
    n = len(A)
    scale = np.sort(A, axis=1)[:, -20:].mean(axis=1)
    A = A / np.outer(scale, scale) ** (power / 2)
    L = np.zeros((n, n))
    for size in sizes:
        H = np.eye(n)
        for j in range(n):
            nearest = [i for i in np.argsort(-A[:, j], kind="stable") if A[i, j] > 0 and i != j][: size - 1]
            H[nearest, j] = np.sqrt(A[nearest, j] / A[:, j].max())
        Dv, De = H.sum(axis=1), H.sum(axis=0)
        L += (np.eye(n) - (H / De) @ H.T / np.sqrt(np.outer(Dv, Dv))) / len(sizes)
    values, vectors = np.linalg.eigh(L)
    q = c + (c // 2 + 3 if steps else 0)
    F = vectors[:, :q] * (1 - values[:q]) ** steps
    rows = F / np.linalg.norm(F, axis=1, keepdims=True)
    return values[:c], KMeans(c, n_init=10, random_state=0).fit_predict(rows)


@pytest.mark.parametrize("top", [10, 50])
def test_the_fit_is_that_of_the_equations(top):
    model = fit(secure=True, tol=1e-8, n_neighbors=top)
    affinity = sum(keep_largest(express(X, MU), top) for X in VIEWS.values()) / 3
    affinity = (affinity + affinity.T) / 2
    at = model.places_for(NAMES)
    assert np.abs(model.affinity_.toarray()[np.ix_(at, at)] - affinity).max() < 1e-5
    values, labels = cut(affinity, (5, 10, 20), 3)
    assert model.eigenvalues_[:3] == pytest.approx(values, abs=1e-3)
    assert same_partition(model.labels_for(NAMES), labels)
    plain = fit(secure=True, tol=1e-8, n_neighbors=top, local_scaling=0.0, diffusion_steps=0)
    assert same_partition(plain.labels_for(NAMES), cut(affinity, (5, 10, 20), 3, 0.0, 0)[1])


@pytest.mark.parametrize("share_penalty", [0.5, 30.0])
@pytest.mark.filterwarnings("ignore:share_penalty=")
def test_other_penalties_give_other_shares(share_penalty):
    model = fit(
        {"one": mc.data.MultiViewData({"v": VIEWS["view_1"]}, NAMES)},
        share_penalty=share_penalty,
        tol=1e-8,
        n_neighbors=59,
    )
    Z = express(VIEWS["view_1"], share_penalty)
    at = model.places_for(NAMES)
    assert np.abs(model.affinity_.toarray()[np.ix_(at, at)] - (Z + Z.T) / 2).max() < 1e-5


def test_the_tolerance_that_is_usual_changes_no_cluster():
    exact, usual = fit(secure=True, tol=1e-8), fit(secure=True)
    assert np.abs((exact.affinity_ - usual.affinity_).toarray()).max() < 5e-3
    assert same_partition(exact.labels_, usual.labels_)
    assert clustering_scores(GROUP, exact.labels_for(NAMES))["acc"] > 0.93


def test_sites_of_the_views_apart_are_the_site_of_all_views():
    rows = np.random.default_rng(7).permutation(60)
    one = fit(split(shuffled=5))
    two = fit({"all": mc.data.MultiViewData({view: X[rows] for view, X in VIEWS.items()}, [NAMES[r] for r in rows])})
    assert one.affinity_.toarray().tobytes() == two.affinity_.toarray().tobytes()
    assert one.labels_.tolist() == two.labels_.tolist()


def measure(load, n_clusters, *, seeds=(0,), **parameters):
    """Return mean accuracy, purity and mutual information over seeds of k-means."""
    try:
        data = load()
    except DataError:
        pytest.skip("the data are not at hand")
    policy = mc.Policy(min_patients=0, relations="dense")
    with mc.Federation.in_process(split_views(data), policy=policy, secure_sum=True) as federation:
        fits = [FedMSGL(n_clusters, random_state=seed, **parameters).fit(federation) for seed in seeds]
    found = [model.assess(data.data, data.labels) for model in fits]
    return np.mean([[one["acc"], one["purity"], one["nmi"]] for one in found], axis=0)


@pytest.mark.slow
def test_bbcsport_reaches_its_level():
    assert np.all(measure(load_bbcsport, 5) >= [0.98, 0.98, 0.94])


def test_sonar_reaches_its_level():
    assert measure(load_sonar, 2, seeds=(0, 1))[0] >= 0.63


@pytest.mark.slow
def test_handwritten_reaches_its_level():
    assert np.all(measure(load_handwritten, 10) >= [0.96, 0.96, 0.93])


@pytest.mark.slow
def test_orl_reaches_its_level():
    assert np.all(measure(load_orl, 40, seeds=(0, 1, 2)) >= [0.81, 0.84, 0.91])


def _of_sklearn(load, *widths):
    found = load()
    ends = np.cumsum(widths)
    views = {f"view_{end}": found.data[:, end - width : end] for width, end in zip(widths, ends, strict=True)}
    return views, found.target


@pytest.mark.slow
@pytest.mark.parametrize(("load", "widths"), [(load_iris, (2, 2)), (load_breast_cancer, (10, 10, 10))])
def test_the_number_of_known_groups_is_among_the_three_highest(load, widths):
    """Data sets that did not set the thresholds of the certainty."""
    views, groups = _of_sklearn(load, *widths)
    names = [str(row) for row in range(len(groups))]
    sites = {view: mc.data.MultiViewData({view: X}, names) for view, X in views.items()}
    policy = mc.Policy(min_patients=0, relations="dense")
    with mc.Federation.in_process(sites, policy=policy, secure_sum=True) as federation:
        candidates = FedMSGL().fit(federation).candidates_
    assert len(set(groups)) in candidates.to_frame().index[:3]
    assert candidates.certainty != "weak"
    assert f"Of {FREQUENCIES[candidates.certainty][0]} data sets" in candidates.describe()


LANDMARKS = """
import re, resource, sys, warnings
from pathlib import Path
import multicentre as mc
from multicentre.clustering.metrics import clustering_scores
from multicentre.datasets import simulate_views, split_views
warnings.simplefilter("ignore")
drawn = simulate_views(int(sys.argv[1]), 10, (20, 10, 30), noise=0.4, random_state=1)
sites = split_views(drawn)
with mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0, relations="listed"), secure_sum=False) as them:
    model = mc.clustering.FedMSGL(10).fit(them)
scores = clustering_scores(drawn.labels, model.labels_for(drawn.data))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
status = Path("/proc/self/status")
if status.exists():  # on Linux, the usage of a process contains the peak of the process that started it
    peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1])
print(len(model.labels_), scores["acc"], peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize("n_patients", [20_000, 100_000])
def test_many_patients_are_fitted_on_landmarks_in_little_memory(n_patients):
    """In a separate process, whose peak of memory is that of the fit; a table of all pairs would take 3.2 or 80 GB."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-c", LANDMARKS, str(n_patients)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | threads)
    n_labels, accuracy, peak = map(float, done.stdout.split())
    assert n_labels == n_patients
    assert accuracy > 0.9
    assert peak < 1.5e9
