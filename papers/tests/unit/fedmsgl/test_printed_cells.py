"""The rules by which printed cells are called impossible, against labellings that exist."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.clustering.metrics import accuracy, clustering_scores, purity
from multicentre_papers.fedmsgl import published
from multicentre_papers.fedmsgl.possible import least_deviation, least_nmi, remark
from multicentre_papers.fedmsgl.published import COLUMNS, METHODS, cell
from support.examples import examples

MARKED = {
    ("SC(mean)", "Handwritten"): "not reproducible",
    ("SFMC", "Sonar"): "with two clusters purity is .0337 above ACC at most",
    ("SFMC", "BBC Sport"): "needs .0468 with any number of clusters",
    ("RCAGL", "BBC Sport"): "needs .4958 with 5 clusters, so there were more",
    ("CDMGC", "Sonar"): "purity .5421 is below ACC .5427",
    ("FSMSC", "Sonar"): "standard deviation of 0.07, and 0.00 is printed",
    ("RCAGL", "Sonar"): "with two clusters",
    ("FedMVL", "Handwritten"): "purity .5190 is below ACC .5245",
    ("FedMVFCM", "Sonar"): "with two clusters",
    ("FedMVFCM", "Caltech101-7"): "purity .5522 is below ACC .6705",
}


def test_these_cells_are_marked_and_no_other():
    found = {(method, column): remark(method, column) for method in METHODS for column in COLUMNS}
    assert {place for place, why in found.items() if why} == set(MARKED)
    for place, part in MARKED.items():
        assert part in found[place]


def test_cells_are_read_from_the_right_place():
    assert cell("FedMVFPC", "ORL") == published.Cell(0.6525, 0.6971, 0.7925, (0.02, 0.01, 0.02))
    assert cell("SFMC", "Caltech101-7").nmi == 0.5096
    assert cell("CDMGC", "Caltech101-7").deviations == (0.05, 0.09, 0.12)
    assert len(METHODS) == 9


TOTALS = {
    "acc": [5.0739, 5.6126, 6.3073, 6.5414, 5.9678],
    "purity": [5.4472, 6.236, 6.8224, 6.6791, 6.6247],
    "nmi": [0.4531, 3.908, 7.5095, 6.1689, 3.9873],
}


def test_sums_of_printed_columns():
    """Totals over methods, added up from the printed page: a slip of one digit shows."""
    totals = {
        measure: [round(sum(getattr(cell(method, column), measure) for method in METHODS), 4) for column in COLUMNS]
        for measure in published.MEASURES
    }
    assert totals == TOTALS


def labelling(random, sizes):
    """Draw two clusters of two classes with random memberships."""
    truth = np.repeat([0, 1], sizes)
    return truth, (random.random(len(truth)) < random.random(2)[truth]).astype(int)


@examples(60)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 6), st.integers(0, 10**6))
def test_runs_of_two_clusters_vary_at_least_as_much_as_the_rule_says(one, other, n_runs, seed):
    random = np.random.default_rng(seed)
    if one == other:
        one += 1
    pairs = [labelling(random, (one, other)) for _ in range(n_runs)]
    accuracies = np.array([accuracy(truth.tolist(), found.tolist()) for truth, found in pairs])
    purities = np.array([purity(truth.tolist(), found.tolist()) for truth, found in pairs])
    assert (purities >= accuracies - 1e-12).all()
    larger = max(one, other) / (one + other)
    assert purities.std() >= least_deviation(purities.mean(), accuracies.mean(), larger) - 1e-9


def test_the_rule_forbids_something():
    assert least_deviation(0.6, 0.6, 0.55) == 0.0
    assert least_deviation(0.7, 0.6, 0.55) == np.inf
    assert least_deviation(0.60, 0.56, 0.55) > 0.09


def test_a_mean_over_views_is_no_run_of_two_clusters():
    assert least_deviation(0.5721, 0.5673, 111 / 208) > 0.01
    assert remark("SC(mean)", "Sonar") is None


@pytest.mark.parametrize("column", COLUMNS)
def test_class_sizes_are_those_of_the_data_sets(column):
    sizes = published.CLASS_SIZES[column]
    assert len(sizes) == {"Sonar": 2, "BBC Sport": 5, "ORL": 40, "Handwritten": 10, "Caltech101-7": 7}[column]
    assert sum(sizes) == {"Sonar": 208, "BBC Sport": 544, "ORL": 400, "Handwritten": 2000, "Caltech101-7": 1474}[column]


@examples(80)
@given(st.integers(2, 5), st.integers(1, 12), st.integers(1, 4), st.floats(0.0, 1.0), st.integers(0, 10**6))
def test_no_labelling_and_no_mean_of_labellings_has_less_nmi_than_its_purity_needs(
    n_classes, n_clusters, n_runs, faithful, seed
):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 20, n_classes)
    truth = np.repeat(np.arange(n_classes), sizes)
    found = [
        np.where(random.random(len(truth)) < faithful, truth % n_clusters, random.integers(0, n_clusters, len(truth)))
        for _ in range(n_runs)
    ]
    scores = [clustering_scores(truth, one) for one in found]
    middle = {name: float(np.mean([one[name] for one in scores])) for name in ("purity", "nmi")}
    assert middle["nmi"] >= least_nmi(middle["purity"], sizes.tolist(), n_clusters) - 1e-9
    assert middle["nmi"] >= least_nmi(middle["purity"], sizes.tolist()) - 1e-9


def test_the_bound_of_nmi_is_met_where_fano_s_inequality_is_an_equation():
    truth = np.repeat([0, 1, 2], 12)
    found = np.tile([0] * 8 + [1] * 2 + [2] * 2, 3) + np.repeat([0, 1, 2], 12)
    scores = clustering_scores(truth, found % 3)
    assert scores["nmi"] == pytest.approx(least_nmi(scores["purity"], (12, 12, 12), 3), abs=1e-12)
