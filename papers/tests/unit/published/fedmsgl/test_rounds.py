"""Both algorithms over sites equal the same mathematics on all views in one place."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.steps import SitePart
from multicentre_papers.published import FedMSGLAsPrinted, FedMSGLAsPublished
from multicentre_papers.published.fedmsgl.maths.variants import (
    PublishedTerms,
    central_round,
    local_round,
    measure_distance,
    prepare_operators,
    start,
    weigh_distances,
)
from support.msgl_sites import DENSE, NAMES, VIEWS, accuracy, fit, split

TERMS = {"n_rounds": 2, "n_local": 3, "n_central": 2, "n_neighbours": 8}
each_kind = pytest.mark.parametrize("kind", [FedMSGLAsPublished, FedMSGLAsPrinted])


def drive(kind, order):
    """Return the affinity of the rounds on all views, in the common order."""
    how, terms = kind.site_part.variant, PublishedTerms(**TERMS)
    operators = {view: prepare_operators(X[order], terms, how) for view, X in VIEWS.items()}
    own = {}
    for view in VIEWS:
        generator = SitePart(f"of-{view}", None).generator(0)
        own[view] = start(60, generator, identity=how.identity)[1]
    G, F = float(how.identity) * np.eye(60), np.zeros((60, 3))
    for number in range(TERMS["n_rounds"]):
        shared = {}
        for view in VIEWS:
            begin = np.zeros((60, 60)) if number == 0 else G
            shared[view], own[view] = local_round(operators[view], begin, own[view], terms, how)
        distances = np.array([measure_distance(C, G) for C in shared.values()])
        shares, total = weigh_distances(distances, how)
        mean = sum(share * C for share, C in zip(shares, shared.values(), strict=True))
        G, F, A = central_round(mean, sum(own.values()) / 3, total, G, F, terms, how)
    return A, dict(zip(VIEWS, shares, strict=True))


@each_kind
def test_rounds_over_sites_are_rounds_in_one_place(kind):
    model = fit(kind=kind, **TERMS)
    order = np.argsort(model.places_for(NAMES))
    expected, shares = drive(kind, order)
    scale = np.abs(expected).max()
    assert np.abs(model.affinity_.toarray() - expected).max() < 1e-8 * scale
    assert model.view_weights_ == pytest.approx({f"of-{view}/{view}": share for view, share in shares.items()})
    assert len(model.history_) == 2
    assert set(model.history_[0]) == {"round", "change"}


@each_kind
def test_masked_rounds_are_those_without_masks(kind):
    unmasked, masked = (fit(kind=kind, **TERMS, secure=secure, policy=DENSE) for secure in (False, True))
    scale = np.abs(unmasked.affinity_.toarray()).max()
    assert np.abs((unmasked.affinity_ - masked.affinity_).toarray()).max() < 1e-5 * scale


@each_kind
def test_clusters_have_something_to_do_with_the_groups(kind):
    assert accuracy(fit(kind=kind, **TERMS | {"n_rounds": 3})) > 0.6


def test_terms_that_are_given_are_used():
    one = fit(kind=FedMSGLAsPublished, **TERMS)
    other = fit(kind=FedMSGLAsPublished, **TERMS, lambda_1=1.0)
    assert np.abs((one.affinity_ - other.affinity_).toarray()).max() > 1e-3


@pytest.mark.parametrize("n", [4, 6])
def test_few_patients_are_enough(n):
    views = {view: X[:n] for view, X in VIEWS.items()}
    sites = {f"of-{view}": mc.data.MultiViewData({view: X}, NAMES[:n]) for view, X in views.items()}
    model = fit(sites, 2, kind=FedMSGLAsPublished, **TERMS)
    assert model.labels_.shape == (n,)


@each_kind
def test_views_of_noughts_do_no_harm(kind):
    model = fit(split({**VIEWS, "view_2": np.zeros((60, 8))}), kind=kind, **TERMS, policy=DENSE)
    assert np.isfinite(model.embedding_).all()
