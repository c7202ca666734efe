"""What is agreed before the first round."""

import numpy as np
import pytest

import multicentre as mc
from multicentre_papers.baselines.fuzzy.rounds import agree
from multicentre_papers.baselines.fuzzy.site import MVFCMSite

RNG = np.random.default_rng(0)
BLOOD = RNG.normal(50, [1e-3, 1.0, 1e4, 0.0], size=(90, 4))
IMAGE = np.where(np.arange(90)[:, None] % 3 == 0, np.nan, RNG.normal(size=(90, 2)))
DATA = mc.data.MultiViewData({"blood": BLOOD, "image": IMAGE})


@pytest.fixture(params=["feature", "view"])
def scale(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["unmasked", "masked"])
def agreed(request, scale):
    sites = {f"site-{i}": DATA.take(np.arange(i * 30, i * 30 + 30)) for i in range(3)}
    with mc.Federation.in_process(sites, secure_sum=request.param) as federation:
        return agree(federation.begin(MVFCMSite), MVFCMSite, scale)


def test_a_patient_is_of_length_1_on_average_in_every_view(agreed):
    standard = (np.hstack([BLOOD, IMAGE]) - agreed.centre) / agreed.spread
    for at in (slice(0, 4), slice(4, 6)):
        known = standard[~np.isnan(standard[:, at.start]), at]
        assert np.square(known).sum(axis=1).mean() == pytest.approx(1)
        assert np.allclose(known.mean(axis=0), 0, atol=1e-6)


def test_columns_weigh_the_same_or_as_they_vary(agreed, scale):
    varying = agreed.spread[:3]
    if scale == "view":
        assert np.allclose(varying, varying[0])
    else:
        assert np.allclose(varying, BLOOD[:, :3].std(axis=0) * np.sqrt(3), rtol=1e-6)


def test_patients_are_counted_by_view(agreed):
    assert np.allclose(agreed.patients_by_view, [90, 60])
    assert agreed.n_patients == pytest.approx(90)
