"""Patients made up of landmarks: as good as all others where there are many, and the same masked as unmasked."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.clustering.fedmsgl import messages
from multicentre.clustering.fedmsgl import rounds as landmark_rounds
from multicentre.clustering.fedmsgl.maths.landmarks import draw_landmarks
from multicentre.clustering.fedmsgl.rounds import code_patients, describe_views
from multicentre.clustering.fedmsgl.site import FedMSGLSite
from multicentre.clustering.metrics import adjusted_rand
from multicentre.datasets import lose_records, simulate_views
from multicentre.datasets.simulated_views import split_views
from multicentre.errors import ConfigurationError, DataError
from multicentre.linkage.alignment import align
from support.msgl_sites import DENSE, LISTED, fit, split

TERMS = messages.Settings("l2", 10.0, 0.0, 10.0, 5e-3, 50)
MANY = simulate_views(600, 4, (20, 15, 25), noise=0.4, random_state=3)


def codes(*, block=None, on_all=None, n_landmarks=20, sites=None, incomplete=False, monkeypatch=None, **options):
    if block:
        monkeypatch.setattr(landmark_rounds, "BLOCK", block)
    if on_all is not None:
        monkeypatch.setattr(landmark_rounds, "MAX_ON_ALL", on_all)
    federation = mc.Federation.in_process(split() if sites is None else sites, **{"secure_sum": False, **options})
    aligned = align(federation, incomplete=incomplete)
    handle = aligned.federation.begin(FedMSGLSite)
    views = describe_views(handle)
    return code_patients(handle, TERMS, views, aligned.n_common, n_landmarks, 0).matrix


@pytest.mark.parametrize("on_all", [10**6, 0])
def test_masked_codes_are_those_in_clear(on_all, monkeypatch):
    unmasked = codes(on_all=on_all, policy=LISTED, monkeypatch=monkeypatch)
    masked = codes(on_all=on_all, secure_sum=True, monkeypatch=monkeypatch)
    assert unmasked.shape == masked.shape == (60, 20)
    assert np.abs((unmasked - masked).toarray()).max() < 1e-6
    dense = codes(on_all=on_all, policy=DENSE, monkeypatch=monkeypatch)
    assert np.abs((unmasked - dense).toarray()).max() < 1e-12


@pytest.mark.parametrize("on_all", [10**6, 0])
def test_blocks_change_nothing(on_all, monkeypatch):
    whole = codes(on_all=on_all, policy=LISTED, monkeypatch=monkeypatch)
    parts = codes(block=7, on_all=on_all, policy=LISTED, monkeypatch=monkeypatch)
    assert np.abs((whole - parts).toarray()).max() < (0.02 if on_all else 1e-3)


def test_rows_hold_ten_shares_at_most_and_no_landmark_is_made_up_of_itself(monkeypatch):
    found = codes(policy=LISTED, monkeypatch=monkeypatch)
    assert np.diff(found.indptr).max() <= 10
    assert found.data.min() > 0
    assert found.sum(axis=1).max() <= 1.0 + 1e-6
    drawn = draw_landmarks(60, 20, 0)
    assert not found.toarray()[drawn, np.arange(20)].any()


def test_the_landmarks_are_public_and_drawn_without_looking():
    assert draw_landmarks(60, 20, 0).tolist() == draw_landmarks(60, 20, 0).tolist()
    assert draw_landmarks(60, 20, 0).tolist() != draw_landmarks(60, 20, 1).tolist()
    with pytest.raises(DataError, match="landmarks"):
        codes(n_landmarks=60, policy=LISTED)


def test_patients_whom_a_site_lacks_have_no_codes():
    with pytest.raises(ConfigurationError, match="landmarks=None"):
        codes(sites=lose_records(split(), 0.2, random_state=0), incomplete=True, policy=LISTED)


@pytest.mark.slow
@pytest.mark.parametrize("on_all", [10**6, 0])
def test_landmarks_find_what_all_patients_find(on_all, monkeypatch):
    monkeypatch.setattr(landmark_rounds, "MAX_ON_ALL", on_all)
    sites, names, truth = split_views(MANY), list(MANY.data.ids), np.array(MANY.labels)
    full = adjusted_rand(truth, fit(sites, 4, secure=True).labels_for(names))
    few = adjusted_rand(truth, fit(sites, 4, secure=True, landmarks=100).labels_for(names))
    assert full > 0.9
    assert few > full - 0.05
