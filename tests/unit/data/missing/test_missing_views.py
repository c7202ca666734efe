"""Missing entries of views: counted by masked sums as pandas counts them on pooled patients."""

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre_papers import baselines

VIEWS = {"blood": ["iron", "lead", "zinc"], "mri": ["left", "right"]}


def drawn_frames(*, in_part):
    """Return a frame per site; one site lacks a view, and patients lack the other, in part or altogether."""
    rng = np.random.default_rng(3)
    loadings = rng.normal(size=(5, 1))
    columns = [f"{view}_{name}" for view, names in VIEWS.items() for name in names]
    frames = {}
    for site in ("lyon", "oslo", "turin"):
        rows = rng.normal(size=(60, 1)) @ loadings.T + 0.4 * rng.normal(size=(60, 5))
        frames[site] = pd.DataFrame(rows, columns=columns)
        frames[site].loc[::7, columns[3:]] = np.nan
        if in_part:
            frames[site].iloc[3::11, 0] = np.nan
    frames["oslo"] = frames["oslo"][columns[:3]]
    return frames


def as_views(frame):
    views = {}
    for view, names in VIEWS.items():
        own = [f"{view}_{name}" for name in names]
        if set(own) <= set(frame.columns):
            views[view] = frame[own].rename(columns=dict(zip(own, names, strict=True)))
    return mc.data.MultiViewData(views)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("make", [mc.multiview.FedMvPPCA, baselines.FedMVFCM, baselines.FedMVFPC])
def test_missing_entries_are_those_of_the_pooled_patients(make, tmp_path):
    frames = drawn_frames(in_part=make is mc.multiview.FedMvPPCA)
    pooled = pd.concat(frames.values())
    with mc.Federation.in_process({site: as_views(frame) for site, frame in frames.items()}) as federation:
        options = {"max_iter": 5} if make is mc.multiview.FedMvPPCA else {"max_iter": 3}
        model = make(1 if make is mc.multiview.FedMvPPCA else 2, **options).fit(federation)
    table = model.missing_
    named = [f"{view}_{column}" for view, column in zip(table["view"], table["column"], strict=True)]
    assert named == list(pooled.columns)
    assert table["missing"].tolist() == pooled.isna().sum().tolist()
    np.testing.assert_allclose(table["share"], pooled.isna().mean(), rtol=0, atol=1e-12)
    model.save(tmp_path)
    pd.testing.assert_frame_equal(type(model).load(tmp_path).missing_, table)


def test_a_private_fit_has_no_missing_entries():
    rng = np.random.default_rng(0)
    sites = {f"site-{i}": mc.data.MultiViewData({"a": rng.normal(size=(400, 3))}) for i in range(3)}
    reference = {"a": {"centre": [0.0] * 3, "spread": [1.0] * 3}}
    with mc.Federation.in_process(sites, one_row_per_patient=True) as federation:
        model = mc.multiview.FedMvPPCA(1, epsilon=5.0, reference=reference).fit(federation)
    assert model.missing_["missing"].tolist() == [0, 0, 0]
