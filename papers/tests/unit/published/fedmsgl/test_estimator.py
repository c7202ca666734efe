"""FedMSGL as published and as printed: sites, masks, lost sites, interrupted runs, saved models."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, QuorumLost, RefusedByPolicy
from multicentre.estimator.base import FederatedEstimator
from multicentre_papers.published import FedMSGLAsPrinted, FedMSGLAsPublished
from support.msgl_sites import DENSE, GROUP, LISTED, NAMES, VIEWS, accuracy, fit, pool, same_partition, split

FEW = {"n_rounds": 2, "n_neighbours": 8}
each_kind = pytest.mark.parametrize("kind", [FedMSGLAsPublished, FedMSGLAsPrinted])


def same_bits(one, other):
    return one.tobytes() == other.tobytes()


@each_kind
def test_views_at_one_site_are_aligned_like_those_of_several(kind):
    apart, together = fit(kind=kind, **FEW), fit(pool(), kind=kind, **FEW)
    assert same_bits(apart.pseudonyms_, together.pseudonyms_)


@each_kind
def test_the_order_of_a_sites_rows_changes_nothing(kind):
    one, two = fit(kind=kind, **FEW), fit(split(shuffled=3), kind=kind, **FEW)
    assert same_bits(one.affinity_.toarray(), two.affinity_.toarray())
    assert same_bits(one.labels_, two.labels_)


@each_kind
def test_the_order_of_the_sites_changes_the_names_of_clusters_at_most(kind):
    sites = split()
    one, two = fit(sites, kind=kind, **FEW), fit({name: sites[name] for name in reversed(sites)}, kind=kind, **FEW)
    assert np.abs((one.affinity_ - two.affinity_).toarray()).max() < 1e-6
    assert same_partition(one.labels_, two.labels_)
    assert one.view_weights_ == pytest.approx(two.view_weights_, rel=1e-4)


@each_kind
@pytest.mark.parametrize("secure", [False, True])
def test_the_steps_asked_are_those_announced(kind, secure):
    with mc.Federation.in_process(split(), policy=DENSE, secure_sum=secure) as federation:
        model = kind(3, **FEW).fit(federation)
        entries = [entry for ledger in federation.ledgers.values() for entry in ledger.entries]
    assert {entry["step"] for entry in entries if entry.get("method") == kind.site_part.method} == model.planned_steps()


@each_kind
def test_an_unmasked_fit_needs_a_policy_of_dense_relations(kind):
    with pytest.raises(RefusedByPolicy, match="secure_sum=True"):
        fit(kind=kind, policy=LISTED, **FEW)


@each_kind
def test_profiles_come_from_the_sites_of_the_fit(kind):
    with mc.Federation.in_process(split(), policy=DENSE) as federation:
        profiles = kind(3, **FEW).fit(federation).profiles()
    assert len(profiles) == 3


@each_kind
def test_a_patient_without_a_view_is_refused(kind):
    views = {view: X.copy() for view, X in VIEWS.items()}
    views["view_2"][3] = np.nan
    with pytest.raises(ConfigurationError, match="every view"):
        fit(split(views), kind=kind, **FEW)


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
@each_kind
def test_a_fit_goes_on_without_a_site_that_is_lost_at_any_step(secure, kind):
    extra = np.random.default_rng(0).normal(size=(3, 9))[np.unique(GROUP, return_inverse=True)[1]]
    extra += 0.3 * np.random.default_rng(1).normal(size=(60, 9))
    sites = {**split(), **split({"more": extra})}
    for step in sorted(kind(3).planned_steps()):
        federation = {"quorum": 3, "faults": Faults(lose={"of-more": step})}
        model = fit(sites, kind=kind, secure=secure, federation=federation, **FEW)
        assert accuracy(model) > 0.6, step
        assert model.view_weights_.get("of-more/more", 0.0) == 0.0
        assert sum(model.view_weights_.values()) == pytest.approx(1.0)
        with pytest.raises(QuorumLost):
            fit(sites, kind=kind, secure=secure, federation={"faults": Faults(lose={"of-more": step})}, **FEW)


@pytest.mark.slow
@each_kind
def test_an_interrupted_run_is_resumed(kind, tmp_path):
    whole = fit(kind=kind, secure=True, federation={"faults": Faults()}, **FEW)
    at = whole.session.engine.exchanges - 1
    with pytest.raises(KeyboardInterrupt):
        fit(kind=kind, secure=True, federation={"folder": tmp_path, "faults": Faults(interrupt_at=at)}, **FEW)
    again = fit(kind=kind, secure=True, federation={"folder": tmp_path}, **FEW)
    assert same_bits(whole.affinity_.toarray(), again.affinity_.toarray())
    assert same_bits(whole.labels_, again.labels_)
    assert whole.history_ == again.history_


@each_kind
def test_a_model_comes_back_from_its_folder(kind, tmp_path):
    model = fit(kind=kind, secure=True, **FEW)
    model.save(tmp_path)
    again = FederatedEstimator.load(tmp_path)
    assert type(again) is kind
    for name in ("labels_", "embedding_", "eigenvalues_", "pseudonyms_"):
        assert same_bits(getattr(again, name), getattr(model, name))
    assert (again.affinity_ != model.affinity_).nnz == 0
    assert again.view_weights_ == model.view_weights_
    assert again.history_ == model.history_
    assert again.labels_for(NAMES).tolist() == model.labels_for(NAMES).tolist()


@each_kind
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", None),
        ("n_clusters", 1),
        ("n_clusters", True),
        ("lambda_1", -1.0),
        ("lambda_1", "1"),
        ("beta", -1.0),
        ("n_rounds", 0),
        ("n_neighbours", 1),
        ("random_state", -1),
    ],
)
def test_parameters_out_of_range_are_named_before_sites_are_aligned(kind, name, value):
    with mc.Federation.in_process(split(), secure_sum=True) as federation:
        with pytest.raises(ConfigurationError, match=name):
            kind(**{"n_clusters": 3, name: value}).fit(federation)
        assert not any(ledger.entries for ledger in federation.ledgers.values())


@each_kind
def test_there_are_fewer_clusters_than_patients(kind):
    with pytest.raises(DataError, match="n_clusters"):
        fit(None, 60, kind=kind, **FEW)
