"""FedVAE and FedMCVAE over federations: equivalences, resumption, quality."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.data.concatenate import concatenate
from multicentre.datasets import simulate_sd, split_scenario
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError
from multicentre_papers.baselines.vae import FedMCVAE, FedVAE
from multicentre_papers.baselines.vae.maths import draw_start
from multicentre_papers.baselines.vae.networks import train_locally
from multicentre_papers.baselines.vae.site import LocalTraining

pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="torch is not installed (extra: deep)")

KINDS = pytest.mark.parametrize("estimator", [FedVAE, FedMCVAE])


def small(seed=0, n=30):
    random = np.random.default_rng(seed)
    latent = random.standard_normal((n, 2))
    return MultiViewData(
        {view: latent @ random.standard_normal((2, d)) + 0.1 * random.standard_normal((n, d)) for view, d in SIZES}
    )


SIZES = (("blood", 3), ("image", 4))
SHORT = {"n_components": 2, "max_iter": 4, "n_local_iter": 3}


OPEN = mc.Policy(min_patients=0)


def federation(sites=None, **options):
    sites = sites or {"lyon": small(0), "oslo": small(1), "turin": small(2)}
    return mc.Federation.in_process(sites, **{"policy": OPEN, **options})


def values_of(fit):
    return {**fit.model_.matrices, **{f"{name} offset": one for name, one in fit.model_.vectors.items()}}


def assert_same(left, right, tolerance=0.0):
    pairs = values_of(left), values_of(right)
    assert pairs[0].keys() == pairs[1].keys()
    for name, expected in pairs[1].items():
        np.testing.assert_allclose(pairs[0][name], expected, rtol=0, atol=tolerance, err_msg=name)


@pytest.fixture(scope="module")
def centres():
    drawn = simulate_sd(0)
    return split_scenario(drawn, "IID", 3, random_state=1)


@pytest.fixture(scope="module", params=[FedVAE, FedMCVAE])
def fitted(request, centres):
    sites = mc.Federation.in_process({name: one.data for name, one in centres.items()}, policy=OPEN)
    return request.param(5, max_iter=25, learning_rate=0.03).fit(sites)


@KINDS
def test_one_site_is_plain_training(estimator):
    data = small()
    fit = estimator(**SHORT, proximal_penalty=0.2).fit(federation({"lyon": data}))
    rows = (np.hstack([data.array(view) for view, _ in SIZES]) - fit._centre) / fit._spread
    architecture = fit.architecture
    model = draw_start(architecture, np.random.default_rng(0))
    part = LocalTraining("lyon", data)
    for number in range(1, 5):
        noise = part.generator(0, number).standard_normal((3, len(architecture.channels) * len(rows), 2))
        model = train_locally(model, architecture, rows, noise, 1e-2, 0.2).model
    for name, expected in model.matrices.items():
        np.testing.assert_allclose(fit.model_.matrices[name], expected, atol=1e-12)


@KINDS
def test_sites_with_the_same_patients_and_draws_are_one(estimator, monkeypatch):
    monkeypatch.setattr(LocalTraining, "generator", lambda part, *seed: np.random.default_rng(seed))
    one = estimator(**SHORT).fit(federation({"lyon": small()}))
    three = estimator(**SHORT).fit(federation(dict.fromkeys(("lyon", "oslo", "turin"), small()), secure_sum=False))
    assert_same(three, one, 1e-11)
    assert three.training_ == pytest.approx(one.training_)


def test_average_is_weighted_with_patients(monkeypatch):
    monkeypatch.setattr(LocalTraining, "generator", lambda part, *seed: np.random.default_rng(seed))
    few, many = small(0, 20), small(1, 60)
    options = {"n_components": 2, "max_iter": 1, "scale": "none"}
    both, left, right = (
        FedVAE(**options).fit(federation(sites)) for sites in ({"few": few, "many": many}, {"few": few}, {"many": many})
    )
    for name, value in values_of(both).items():
        expected = 0.25 * values_of(left)[name] + 0.75 * values_of(right)[name]
        np.testing.assert_allclose(value, expected, atol=1e-12)


@KINDS
def test_what_travels_on_the_wire_gives_the_same_model(estimator):
    assert_same(estimator(**SHORT).fit(federation(strict=True)), estimator(**SHORT).fit(federation()))


def test_secure_sums_give_the_same_model_to_their_rounding():
    masked, plain = (FedMCVAE(**SHORT).fit(federation(secure_sum=secure)) for secure in (True, False))
    assert_same(masked, plain, 1e-5)
    assert max(np.abs(one - values_of(plain)[name]).max() for name, one in values_of(masked).items()) > 0


@KINDS
def test_an_interrupted_fit_is_taken_up_where_it_was(estimator, tmp_path):
    whole = estimator(**SHORT).fit(federation(secure_sum=False))
    with pytest.raises(KeyboardInterrupt):
        estimator(**SHORT).fit(federation(folder=tmp_path, secure_sum=False, faults=Faults(interrupt_at=5)))
    resumed = federation(folder=tmp_path, secure_sum=False)
    taken_up = estimator(**SHORT).fit(resumed)
    assert_same(taken_up, whole)
    assert taken_up.history_ == whole.history_
    assert resumed.traffic.calls["train"] < SHORT["max_iter"]


def test_rounds_go_on_without_a_lost_site():
    sites = federation(quorum=2, faults=Faults(lose={"oslo": 5}))
    fit = FedVAE(**SHORT).fit(sites)
    assert len(fit.history_) == SHORT["max_iter"]
    assert np.isfinite(fit.training_["mae"])
    assert fit.session.sites == ("lyon", "turin")


def test_proximal_term_keeps_sites_close_to_what_was_sent():
    def distance(proximal_penalty):
        fit = FedVAE(2, max_iter=1, proximal_penalty=proximal_penalty).fit(federation())
        start = draw_start(fit.architecture, np.random.default_rng(0))
        return sum(float(((fit.model_.matrices[name] - one) ** 2).sum()) for name, one in start.matrices.items())

    assert distance(1000.0) < 0.5 * distance(0.0)


def test_simulated_centres_are_learnt(fitted, centres):
    assert fitted.history_[-1]["bound"] > fitted.history_[0]["bound"] + 50
    assert len(fitted.history_) == 25
    pooled = np.vstack([one.data.stacked(one.data.views) for one in centres.values()])
    mean_only = float(np.mean(np.abs(pooled - pooled.mean(axis=0)) / pooled.std(axis=0)))
    assert fitted.training_["mae"] < 0.2 * mean_only
    first, second = centres["centre-1"], centres["centre-2"]
    metrics = fitted.assess(first.data, first.labels, training=second.data, training_labels=second.labels)
    assert set(metrics) == set(fitted.metrics)
    assert metrics["accuracy"] > 0.98
    assert metrics["mae"] == pytest.approx(fitted.training_["mae"], rel=0.2)
    assert fitted.score(first.data) == -metrics["mae"]


def test_reported_error_is_that_of_the_pooled_rows(fitted, centres):
    pooled = concatenate({name: one.data for name, one in centres.items()})
    assert fitted.training_["mae"] == pytest.approx(fitted.assess(pooled)["mae"])


def test_linear_vae_comes_near_to_principal_components_and_no_nearer():
    data = small(3, n=60)
    fit = FedVAE(2, max_iter=60, learning_rate=0.03, scale="feature").fit(federation({"lyon": data}))
    rows = (data.stacked(data.views) - fit._centre) / fit._spread
    rebuilt = (np.hstack(list(fit.reconstruct(data).values())) - fit._centre) / fit._spread
    best = PCA(2).fit(rows)
    least = float(((rows - best.inverse_transform(best.transform(rows))) ** 2).mean())
    reached = float(((rows - rebuilt) ** 2).mean())
    assert least <= reached < 1.5 * least


def test_non_linear_networks_are_trained():
    fit = FedMCVAE(2, hidden_layer_sizes=(6,), max_iter=15, learning_rate=0.03).fit(federation())
    assert fit.history_[-1]["bound"] > fit.history_[0]["bound"] + 5
    assert fit.transform(small()).shape == (30, 2)


def test_mc_vae_predicts_views_that_patients_lack(fitted, centres):
    data = centres["centre-1"].data
    part = data.drop(["view_2"])
    if isinstance(fitted, FedVAE):
        with pytest.raises(DataError, match="must have all entries"):
            fitted.transform(part)
        return
    predicted = fitted.reconstruct(part)["view_2"]
    truth = data.array("view_2")
    assert np.abs(predicted - truth).mean() < 0.3 * np.abs(truth - truth.mean(axis=0)).mean()


def test_patients_without_a_complete_view_are_counted(fitted, centres):
    data = centres["centre-1"].data
    views = {view: data.array(view).copy() for view in data.views}
    for values in views.values():
        values[:2, 0] = np.nan
    with pytest.raises(DataError, match="got 2 patients without"):
        fitted.transform(MultiViewData(views))


def test_other_columns_are_refused(fitted):
    with pytest.raises(DataError, match="view 'view_1': columns must be those of the fit"):
        fitted.transform(MultiViewData({"view_1": np.ones((2, 3))}))
    with pytest.raises(DataError, match="must be a MultiViewData"):
        fitted.transform(np.ones((2, 33)))


def test_saved_model_predicts_the_same(fitted, centres, tmp_path):
    fitted.save(tmp_path)
    loaded = type(fitted).load(tmp_path)
    data = centres["centre-2"].data
    assert np.array_equal(loaded.transform(data), fitted.transform(data))
    assert_same(loaded, fitted)
    assert (loaded.training_, loaded.history_, loaded.schema_) == (fitted.training_, fitted.history_, fitted.schema_)


def test_saved_non_linear_model_keeps_its_layers(tmp_path):
    fit = FedVAE(1, hidden_layer_sizes=(3, 2), max_iter=1, n_local_iter=1).fit(federation())
    fit.save(tmp_path)
    assert np.array_equal(FedVAE.load(tmp_path).transform(small()), fit.transform(small()))


def test_an_estimator_that_was_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        FedVAE(2).transform(small())


@pytest.mark.parametrize(
    "options",
    [
        {"n_components": 0},
        {"max_iter": 0},
        {"n_local_iter": 0},
        {"hidden_layer_sizes": (3, 0)},
        {"learning_rate": 0.0},
        {"proximal_penalty": -1.0},
        {"random_state": -1},
        {"random_state": None},
        {"scale": "site"},
    ],
)
def test_unfit_parameters_are_named(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        FedVAE(**{"n_components": 1, **options}).fit(federation())


def test_clone_keeps_parameters():
    model = FedMCVAE(3, hidden_layer_sizes=(4,), proximal_penalty=0.5)
    assert clone(model).get_params() == model.get_params()
