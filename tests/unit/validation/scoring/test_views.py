"""Scores of models of several views, against the fitted model's own functions on the pooled rows."""

import dataclasses
import importlib.util

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    MessageError,
    RefusedByPolicy,
)
from multicentre.validation.scoring.scores import score
from multicentre.validation.scoring.views import row_law

SIZES = {"a": 3, "b": 4}
EXACT = mc.Policy(min_patients=0)


def rows(n=90, seed=0, gaps=False):
    rng = np.random.default_rng(5)
    loadings = rng.normal(size=(7, 2))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ loadings.T + 0.3 * rng.normal(size=(n, 7)) + 2.0
    if gaps:
        X[rng.uniform(size=X.shape) < 0.1] = np.nan
        X[: n // 3, :3] = np.nan
    return mc.data.MultiViewData({"a": X[:, :3], "b": X[:, 3:]})


def federate(data, **options):
    sites = {name: data.take(np.arange(place, len(data), 3)) for place, name in enumerate(["lyon", "oslo", "graz"])}
    return mc.Federation.in_process(sites, **options)


@pytest.fixture(scope="module")
def law():
    return mc.multiview.FedMvPPCA(2, tol=1e-3).fit(federate(rows()))


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("gaps", [False, True])
def test_scores_are_means_over_all_records(law, gaps, secure):
    held = rows(150, seed=1, gaps=gaps)
    found = score(law, federate(held, secure_sum=secure, policy=None if secure else EXACT))
    rebuilt, X = law.reconstruct(held), {view: held.array(view) for view in SIZES}
    units = dict(zip(SIZES, np.split(law.deviation_, [3]), strict=True))
    errors = {view: np.abs(X[view] - rebuilt[view]) / units[view] for view in SIZES}
    assert found.values["neg_mean_absolute_error"] == pytest.approx(
        -np.nanmean(np.concatenate([part.ravel() for part in errors.values()])), abs=1e-6
    )
    for view, part in errors.items():
        assert found.values[f"neg_mean_absolute_error/{view}"] == pytest.approx(-np.nanmean(part), abs=1e-6)
    assert found.values["log_likelihood"] == pytest.approx(law.score_samples(held).mean(), abs=1e-6)
    own = mc.data.MultiViewData({"b": X["b"]})
    of_view = law.score_samples(own).sum() / np.isfinite(X["b"]).any(axis=1).sum()
    assert found.values["log_likelihood/b"] == pytest.approx(of_view, abs=1e-6)
    assert found.n_records == 150


def test_masked_scores_and_those_of_other_splits_are_the_same_numbers(law):
    held = rows(150, seed=1)
    shuffled = held.take(np.random.default_rng(2).permutation(150))
    one, two, three = (
        score(law, federate(data, secure_sum=secure, policy=None if secure else EXACT)).values
        for data, secure in ((held, False), (held, True), (shuffled, False))
    )
    assert one == two
    assert all(one[name] == pytest.approx(three[name], abs=1e-7) for name in one)


def test_unmasked_sums_of_enough_give_the_same_scores(law):
    held = rows(600, seed=1)
    assert score(law, federate(held, secure_sum=False)).values == score(law, federate(held)).values


def test_own_scores_of_sites(law):
    held = rows(150, seed=1)
    found = score(law, federate(held, policy=EXACT), ["log_likelihood"], by_site=True)
    own = held.take(np.arange(0, 150, 3))
    assert found.by_site["lyon"]["log_likelihood"] == pytest.approx(law.score(own), abs=1e-6)
    assert set(found.by_site["lyon"]) == {"log_likelihood", "log_likelihood/a", "log_likelihood/b"}


def test_a_view_that_few_records_have_is_refused_unmasked(law):
    X = np.hstack([rows(150, seed=1).array(view) for view in SIZES])
    X[15:, :3] = np.nan
    held = mc.data.MultiViewData({"a": X[:, :3], "b": X[:, 3:]})
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        score(law, federate(held, secure_sum=False))
    assert np.isfinite(score(law, federate(held)).values["log_likelihood"])


def test_a_site_may_lack_a_view(law):
    held = rows(90, seed=1)
    sites = {"lyon": held, "oslo": mc.data.MultiViewData({"b": held.array("b")})}
    with pytest.raises(RefusedByPolicy, match=r"got 1 for view 'a' \(at lyon\)"):
        score(law, mc.Federation.in_process(sites, policy=EXACT))
    policy = dataclasses.replace(EXACT, min_sites_in_sum=1)
    found = score(law, mc.Federation.in_process(sites, policy=policy)).values
    assert found["log_likelihood/a"] == pytest.approx(
        law.score_samples(mc.data.MultiViewData({"a": held.array("a")})).mean(), abs=1e-6
    )


BROKEN = {
    "noise": lambda m: {"noise": -m.noise},
    "mean": lambda m: {"mean": m.mean[:-1]},
    "loadings": lambda m: {"loadings": m.loadings[:, :0]},
    "deviation": lambda m: {"deviation": m.deviation * 0},
    "views": lambda m: {"views": ("a", "a")},
    "noise that rounds to nothing": lambda m: {"noise": m.noise * 1e-20},
    "loadings beyond range": lambda m: {"loadings": m.loadings * 1e40, "noise": m.noise * 1e80},
    "a mean beyond range": lambda m: {"mean": m.mean * 1e40},
    "too many components": lambda m: {"loadings": np.zeros((7, 8000))},
    "finite": lambda m: {"loadings": m.loadings * np.inf},
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_law_is_checked_before_use(law, how):
    good = row_law(law)
    assert good.valid_for(rows(10)) is good
    with pytest.raises(MessageError):
        dataclasses.replace(good, **BROKEN[how](good)).valid_for(rows(10))


def test_other_columns_are_named(law):
    held = rows(90)
    renamed = mc.data.MultiViewData({"a": held.array("a")}, columns={"a": ["x", "y", "z"]})
    with pytest.raises(DataError, match="columns must be those of the fit, in the same order"):
        score(law, federate(renamed))


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")
@pytest.mark.parametrize("kind", ["FedVAE", "FedMCVAE"])
def test_auto_encoders_are_scored_by_what_they_rebuild(kind):
    from multicentre_papers.baselines import vae
    from multicentre_papers.baselines.vae.scoring import row_encoder

    model = getattr(vae, kind)(1, hidden_layer_sizes=(3,), max_iter=2, n_local_iter=2).fit(federate(rows()))
    held = rows(90, seed=1)
    found = score(model, federate(held, policy=EXACT)).values
    rebuilt = np.hstack(list(model.reconstruct(held).values()))
    X = np.hstack([held.array(view) for view in SIZES])
    assert found["neg_mean_absolute_error"] == pytest.approx(-np.mean(np.abs(X - rebuilt) / model._deviation), abs=1e-6)
    with pytest.raises(ConfigurationError, match="scoring must be one of"):
        score(model, federate(held), "log_likelihood")
    if kind == "FedVAE":
        with pytest.raises(DataError, match="missing entries"):
            score(model, federate(rows(90, gaps=True)))
    message = row_encoder(model)
    for changed in ({"hidden": np.array([4])}, {"spread": message.spread * 0}, {"n_components": 0}):
        with pytest.raises(MessageError):
            dataclasses.replace(message, **changed).valid_for(held)
