"""What a site says about its data, and what it lets out."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, NotConverged
from multicentre_papers.baselines.vae import FedMCVAE, FedVAE
from multicentre_papers.baselines.vae.site import LocalTraining

pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="torch is not installed (extra: deep)")


def draw(seed, n=20):
    random = np.random.default_rng(seed)
    return {"blood": random.standard_normal((n, 3)), "image": random.standard_normal((n, 2))}


def federation(*views, **options):
    return mc.Federation.in_process({f"site-{j}": MultiViewData(one) for j, one in enumerate(views)}, **options)


@pytest.mark.parametrize("estimator", [FedVAE, FedMCVAE])
def test_a_site_without_a_view_is_named(estimator):
    sites = federation(draw(0), {"blood": draw(1)["blood"]}, policy=mc.Policy(min_patients=0, min_sites_in_sum=1))
    with pytest.raises(DataError, match=r"site-1, view 'image': .*got an absent view.*FedMvPPCA"):
        estimator(1, max_iter=1).fit(sites)


@pytest.mark.parametrize(
    ("gap", "column"), [(np.s_[4, 0], ", column 'blood_0'"), (np.s_[4, :], "")], ids=["entry", "whole row"]
)
def test_a_site_with_missing_entries_is_named(gap, column):
    views = draw(1)
    views["blood"][gap] = np.nan
    with pytest.raises(DataError, match=rf"site-1, view 'blood'{column}: .*got missing entries.*FedMvPPCA"):
        FedMCVAE(1, max_iter=1).fit(federation(draw(0), views))


def test_divergence_is_an_error_of_its_own():
    with pytest.raises(NotConverged, match="training diverged"):
        FedVAE(1, max_iter=1, n_local_iter=5, learning_rate=1e4).fit(federation(draw(0)))


def test_few_patients_are_not_let_out():
    with pytest.raises(DisclosureRefused):
        FedVAE(1, max_iter=1).fit(federation(draw(0), policy=mc.Policy(min_patients=21)))


def test_site_holds_multi_view_data():
    with pytest.raises(ConfigurationError, match="MultiViewData"):
        FedVAE(1, max_iter=1).fit(mc.Federation.in_process({"site-0": np.zeros((20, 3))}))


def test_only_sums_and_names_leave_a_site():
    assert {name: one.summed for name, one in LocalTraining.steps().items() if not one.summed} == {"describe": False}
    lines = FedVAE.disclosure_card().lines
    trained = {line.field for line in lines if line.step == "train"}
    assert trained == {"matrices[by name]", "vectors[by name]", "bound", "n_patients"}
