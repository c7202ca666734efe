"""FedMvPPCA as its user meets it: every attribute and method, on full, partial, single-site and wide data."""

import json
import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.data.concatenate import concatenate
from multicentre.errors import ConfigurationError, DataError, DisclosureWarning, SchemaMismatch
from multicentre.estimator.base import FederatedEstimator
from multicentre.multiview.ppca.model_selection import select_n_components
from support.ppca_federations import LIKELIHOOD, SIZES, covariance, federate, fit, law, mean, small_sites

FedMvPPCA = mc.multiview.FedMvPPCA
METHODS = ("invariant", "hierarchical", "as published")
QUICK = {"max_iter": 8}
by_method = pytest.mark.parametrize("method", METHODS)


def quick_fit(sites, n_components=2, **parameters):
    """Fit few rounds; that they do not suffice is of no matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        local = {"n_local_iter": 4} if parameters.get("method") == "hierarchical" else {}
        return fit(sites, n_components, **{**QUICK, **local, **parameters})


@pytest.fixture(scope="module")
def sites():
    return small_sites(lacking={1: "image"})


@pytest.fixture(scope="module")
def model(sites):
    return fit(sites, waic=True)


@pytest.fixture(scope="module")
def hierarchical(sites):
    return quick_fit(small_sites(), method="hierarchical")


@pytest.fixture(scope="module")
def held_out():
    return concatenate(small_sites(n=400, n_sites=1))


def hide(data, view):
    return data.drop([view])


# --- what a fit leaves behind -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_parameters_have_the_shapes_of_the_views(model):
    assert {view: W.shape for view, W in model.loadings_.items()} == {view: (d, 2) for view, d in SIZES.items()}
    assert {view: len(mu) for view, mu in model.mean_.items()} == SIZES
    assert {view: len(s) for view, s in model.noise_variance_.items()} == SIZES
    assert all(np.all(noise > 0) for noise in model.noise_variance_.values())
    assert model.n_features_in_ == 15
    assert model.n_patients_ == 120


def test_rotated_axes_are_simpler_and_correlations_are_those_of_many_rows(model):
    rotation = model.varimax_rotation_
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(2), atol=1e-12)
    drawn = model.sample(50_000, random_state=0)
    standard = np.vstack(list(model.loadings_.values())) / model.deviation_[:, None]
    assert np.square(standard @ rotation).var(axis=0).sum() > np.square(standard).var(axis=0).sum()
    for view, found in model.correlations_.items():
        variance = np.square(model.loadings_[view]).sum(axis=1) + model.noise_variance_[view]
        variance += model.intercept_variance_[view]
        np.testing.assert_allclose(drawn.array(view).var(axis=0), variance, rtol=0.05)
        np.testing.assert_allclose(found, model.loadings_[view] / np.sqrt(variance)[:, None])


def test_axes_are_canonical(model):
    whitened = np.vstack([W / model.noise_variance_[view][:, None] for view, W in model.loadings_.items()])
    product = np.vstack(list(model.loadings_.values())).T @ whitened
    assert abs(product[0, 1]) < 1e-9 * product[0, 0]
    stacked = np.vstack(list(model.loadings_.values()))
    assert (stacked[np.abs(stacked / model._spread[:, None]).argmax(axis=0), [0, 1]] > 0).all()


def test_the_history_has_one_entry_a_round_and_rises(model):
    values = [entry["log_likelihood"] for entry in model.history_]
    assert len(values) == model.n_iter_ > 2
    assert model.converged_
    assert values[-1] > values[0]
    assert {entry["phase"] for entry in model.history_} == {0.0}


def test_without_priors_the_likelihood_never_falls(sites):
    values = [entry["log_likelihood"] for entry in fit(sites, tol=1e-10, **LIKELIHOOD).history_]
    assert np.diff(values).min() > -1e-9


def test_explained_variance_by_view_and_dimension(model):
    assert set(model.explained_variance_) == set(SIZES)
    for view, ratios in model.explained_variance_ratio_.items():
        assert ratios.shape == (2,)
        assert 0.5 < model.explained_variance_[view] < 1
        assert (ratios > 0).all()
        assert ratios.sum() == pytest.approx(model.explained_variance_[view], abs=0.1)


def test_training_figures_are_those_of_the_rows(model, sites):
    every = concatenate(sites)
    assert model.training_["log_likelihood"] * 120 == pytest.approx(
        sum(standardised_log_density(model, site).sum() for site in sites.values())
    )
    errors = np.concatenate(
        [
            np.abs(every.array(view) - model.reconstruct(every)[view])[every.patients_with(view)].ravel()
            / np.tile(model.layout.split(model.deviation_)[view], every.n_patients_by_view[view])
            for view in every.views
        ]
    )
    assert model.training_["mae"] == pytest.approx(errors.mean())
    assert np.isfinite(model.waic_)


def standardised_log_density(model, data):
    seen = ~np.isnan(data.stacked(model.schema_.views, model.schema_.sizes))
    return model.score_samples(data) + seen @ np.log(model._spread)


@pytest.mark.slow
def test_a_refit_without_waic_forgets_it(sites, model):
    again = clone(model).fit(federate(sites))
    assert again.set_params(waic=False).fit(federate(sites)).converged_
    assert again.waic_ is None


def test_only_the_hierarchical_fits_know_centres_apart(model, hierarchical):
    assert model.between_centres_ == {}
    assert hierarchical.between_centres_.keys() == SIZES.keys()
    assert all(spread > 0 for view in hierarchical.between_centres_.values() for spread in view.values())
    assert {entry["phase"] for entry in hierarchical.history_} == {0.0, 1.0}


# --- what a fitted model does -------------------------------------------------------------------------------------


def test_scores_are_the_normal_density_of_the_observed_entries(model, held_out):
    some = held_out.take(np.arange(20))
    whole = multivariate_normal(mean(model), covariance(model))
    rows = some.stacked(tuple(SIZES))
    np.testing.assert_allclose(model.score_samples(some), whole.logpdf(rows), rtol=1e-9)
    kept = np.arange(15) < 11
    part = multivariate_normal(mean(model)[kept], covariance(model)[np.ix_(kept, kept)])
    np.testing.assert_allclose(model.score_samples(hide(some, "genes")), part.logpdf(rows[:, kept]), rtol=1e-9)
    assert model.score(some) == pytest.approx(model.score_samples(some).mean())


def test_transform_is_the_posterior_mean(model, held_out):
    rows = held_out.stacked(tuple(SIZES)) - mean(model)
    loadings = np.vstack(list(model.loadings_.values()))
    expected = rows @ np.linalg.solve(covariance(model), loadings)
    np.testing.assert_allclose(model.transform(held_out), expected, atol=1e-9)


def test_reconstruct_returns_every_view_even_a_lacking_one(model, held_out):
    rebuilt = model.reconstruct(hide(held_out, "image"))
    latents = model.transform(hide(held_out, "image"))
    assert rebuilt.keys() == SIZES.keys()
    for view, rows in rebuilt.items():
        np.testing.assert_allclose(rows, latents @ model.loadings_[view].T + model.mean_[view], atol=1e-12)


def test_imputation_is_the_conditional_normal_and_ignores_the_view_itself(model, held_out):
    some = held_out.take(np.arange(9))
    guess = model.impute(some, "image", how="model")
    np.testing.assert_array_equal(guess.mean, model.impute(hide(some, "image"), "image", how="model").mean)
    joint, wanted = covariance(model), model.layout.features_of(["image"])
    gain = joint[np.ix_(wanted, ~wanted)] @ np.linalg.inv(joint[np.ix_(~wanted, ~wanted)])
    centred = some.stacked(tuple(SIZES)) - mean(model)
    np.testing.assert_allclose(guess.mean, centred[:, ~wanted] @ gain.T + model.mean_["image"], atol=1e-9)
    expected = joint[np.ix_(wanted, wanted)] - gain @ joint[np.ix_(~wanted, wanted)]
    np.testing.assert_allclose(guess.covariance(3), expected, atol=1e-9)
    np.testing.assert_allclose(guess.variance[3], np.diag(expected), atol=1e-9)


def test_nine_of_ten_entries_lie_in_their_interval(model, held_out):
    low, high = model.impute(held_out, "image").interval(0.9)
    truth = held_out.array("image")
    assert 0.86 < ((truth >= low) & (truth <= high)).mean() < 0.94


@pytest.fixture(scope="module")
def comparing():
    """A fit whose three sites have every view, so that ways to predict a view were compared."""
    return fit(small_sites())


@pytest.mark.parametrize("how", ["model", "regression", "auto"])
def test_each_way_to_impute_ignores_the_view_and_scales_its_covariance(how, comparing, held_out):
    some = held_out.take(np.arange(9))
    guess = comparing.impute(some, "image", how=how)
    np.testing.assert_array_equal(guess.mean, comparing.impute(hide(some, "image"), "image", how=how).mean)
    np.testing.assert_allclose(np.diag(guess.covariance(3)), guess.variance[3], rtol=1e-9)
    assert np.linalg.eigvalsh(guess.covariance(3)).min() > 0
    low, high = guess.interval(0.5)
    wide_low, wide_high = guess.interval(0.9)
    assert ((wide_low < low) & (low < high) & (high < wide_high)).all()


def test_auto_is_the_way_with_the_smaller_error_at_left_out_sites(comparing, held_out):
    for view, errors in comparing.imputation_errors_.items():
        ways = {how: comparing.impute(held_out, view, how=how).mean for how in ("model", "regression")}
        better = "model" if errors["model"] < 0.99 * errors["regression"] else "regression"
        np.testing.assert_array_equal(comparing.impute(held_out, view).mean, ways[better])
        assert errors[better] < errors["mean"]


def test_regression_needs_three_sites_with_each_view(model, held_out):
    assert model.imputation_errors_ == {}  # two sites have the view image
    assert not model.intercept_variance_["image"].any()
    assert model.intercept_variance_["blood"].all()
    with pytest.raises(ConfigurationError, match="three sites"):
        model.impute(held_out, "image", how="regression")
    with pytest.raises(ConfigurationError, match="auto, model, regression"):
        model.impute(held_out, "image", how="mean")


def test_imputation_for_a_new_centre_is_wider(hierarchical, model, held_out):
    guess = hierarchical.impute(held_out, "genes", new_centre=True)
    joint, wanted = covariance(hierarchical), hierarchical.layout.features_of(["genes"])
    gain = joint[np.ix_(wanted, ~wanted)] @ np.linalg.inv(joint[np.ix_(~wanted, ~wanted)])
    assert (guess.variance > np.diag(joint[np.ix_(wanted, wanted)] - gain @ joint[np.ix_(~wanted, wanted)])).all()
    with pytest.raises(ConfigurationError, match="hierarchical"):
        model.impute(held_out, "genes", new_centre=True)


def test_samples_follow_the_law_and_the_seed(model):
    drawn = model.sample(20_000, random_state=1)
    assert drawn.views == tuple(SIZES)
    assert drawn.columns["image"] == tuple(model.schema_.columns["image"])
    rows = drawn.stacked(tuple(SIZES))
    np.testing.assert_allclose(rows.mean(axis=0), mean(model), atol=0.1)
    np.testing.assert_allclose(np.cov(rows.T), covariance(model), atol=0.25)
    np.testing.assert_array_equal(rows, model.sample(20_000, random_state=1).stacked(tuple(SIZES)))
    with pytest.raises(ConfigurationError, match="n_patients"):
        model.sample(0)


def test_evaluate_gives_the_figures_of_assess_from_sums(model, sites):
    metrics = model.evaluate(federate(sites))
    assert metrics["mae"] == pytest.approx(model.training_["mae"])
    assert metrics["log_likelihood"] == pytest.approx(model.training_["log_likelihood"])
    assert set(metrics) == {"mae", "log_likelihood"} | {f"imputation_mae/{view}" for view in SIZES}


def test_a_loaded_model_evaluates_as_the_fitted_one(model, sites, tmp_path):
    model.save(tmp_path)
    assert FedMvPPCA.load(tmp_path).evaluate(federate(sites)) == model.evaluate(federate(sites))


def test_evaluate_refuses_other_columns_and_names_the_site(model):
    turned = {name: with_columns_turned(site) for name, site in small_sites(2).items()}
    with pytest.raises(SchemaMismatch, match=r"site-0, site-1\), view 'blood'"):
        model.evaluate(federate(turned))


def test_evaluate_takes_small_sites_without_some_views(model):
    few = {name: hide(site.take(np.arange(10)), "blood") for name, site in small_sites(2).items()}
    assert model.evaluate(federate(few))["mae"] < 1.0


def test_assess_compares_with_the_mean_and_tells_groups_apart(model, held_out):
    labels = np.where(model.transform(held_out)[:, 0] > 0, "high", "low").tolist()
    metrics = model.assess(held_out, labels, training=held_out, training_labels=labels)
    assert metrics["accuracy"] > 0.9
    for view in SIZES:
        assert metrics[f"imputation_mae/{view}"] < 0.8 * metrics[f"mean_imputation_mae/{view}"]
    assert metrics["log_likelihood"] == pytest.approx(model.score(held_out))
    assert np.isnan(model.assess(held_out, labels, training=held_out, training_labels=["all"] * 400)["accuracy"])


def test_errors_of_two_fits_are_in_one_unit(sites, model, held_out):
    apart = fit({"site-0": small_sites(1)["site-0"].take(np.arange(20))})
    by_mean = [one.assess(held_out)["mean_imputation_mae/genes"] for one in (model, apart)]
    assert by_mean[0] == pytest.approx(by_mean[1], rel=0.1)
    assert by_mean[0] == pytest.approx(np.sqrt(2 / np.pi), rel=0.1)


@by_method
def test_harmonise_keeps_names_missing_entries_and_ids(method, sites, held_out):
    if method == "invariant":
        with pytest.raises(ConfigurationError, match="centre effects"):
            fit(sites, site_intercepts=False).harmonise(held_out)
    fitted = quick_fit(small_sites(), method=method)
    given = small_sites(hidden=0.05)["site-1"]
    done = fitted.harmonise(given, n_iterations=5)
    assert done.views == given.views
    assert done.columns == given.columns
    assert (done.ids == given.ids).all()
    for view in given.views:
        np.testing.assert_array_equal(np.isnan(done.array(view)), np.isnan(given.array(view)))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["invariant", "hierarchical"])
def test_harmonise_removes_the_offset_of_a_centre(method):
    moved = {name: shifted(site, 3.0 * i) for i, (name, site) in enumerate(small_sites(4, n=120).items())}
    model = quick_fit(moved, method=method, max_iter=20)
    before = [site.array("blood").mean(axis=0) for site in moved.values()]
    after = [model.harmonise(site).array("blood").mean(axis=0) for site in moved.values()]
    assert np.std(before, axis=0).mean() > 3.0
    assert np.std(after, axis=0).mean() < 0.35 * np.std(before, axis=0).mean()


def shifted(site, by):
    direction = np.where(np.arange(6) % 2, by, -by)
    views = {view: site.array(view) + (direction if view == "blood" else 0.0) for view in site.views}
    return MultiViewData(views, ids=site.ids)


# --- the data that a fit takes ------------------------------------------------------------------------------------


@by_method
@pytest.mark.parametrize(
    "data",
    [
        {"lacking": {1: "image", 2: "genes"}},
        {"hidden": 0.1},
        {"hidden": 0.1, "lacking": {1: "image"}},
        {"n_sites": 1},
        {"n_sites": 2},
        {"sizes": {"blood": 8}},
        {"n": 15, "sizes": {"wide": 120, "genes": 5}},
    ],
    ids=["views", "entries", "both", "one-site", "two-sites", "one-view", "wide"],
)
def test_every_method_takes_every_kind_of_data(method, data):
    given = small_sites(**data)
    model = quick_fit(given, method=method)
    first = next(iter(given.values()))
    assert np.isfinite(law(model)).all()
    assert np.linalg.eigvalsh(covariance(model)).min() > 0
    assert np.isfinite(model.transform(first)).all()
    assert all(np.isfinite(rows).all() for rows in model.reconstruct(first).values())
    assert 0 < model.training_["mae"] < 0.7
    assert np.isfinite(list(model.assess(first).values())).all()
    assert np.isfinite([x for view in model.between_centres_.values() for x in view.values()]).all()


@pytest.mark.slow
@by_method
@pytest.mark.parametrize("scale", ["view", "feature", "none"])
@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_every_method_takes_every_scale_and_noise(method, scale, noise, held_out):
    model = quick_fit(small_sites(), method=method, scale=scale, noise=noise)
    reference = fit(small_sites(), scale=scale, noise=noise)
    assert model.score(held_out) > reference.score(held_out) - 0.5
    distinct = {view: len(set(np.round(s, 12))) for view, s in model.noise_variance_.items()}
    if noise == "diagonal":
        assert distinct == SIZES
    elif scale != "feature":
        assert set(distinct.values()) == {1}


def test_the_answer_does_not_depend_on_the_units_of_the_columns():
    given = small_sites()
    factors = {"blood": 1e3, "image": 1e-4, "genes": 7.0}
    other = {
        name: MultiViewData({view: site.array(view) * factors[view] + 5 for view in site.views}, ids=site.ids)
        for name, site in given.items()
    }
    for scale in ("view", "feature"):
        one, two = fit(given, scale=scale), fit(other, scale=scale)
        for view, factor in factors.items():
            np.testing.assert_allclose(two.loadings_[view], one.loadings_[view] * factor, rtol=1e-6, atol=1e-9 * factor)


@pytest.mark.slow
def test_relevance_determination_leaves_five_of_ten_dimensions():
    labelled = mc.datasets.simulate_sd(2, "mild")
    parts = mc.datasets.split_scenario(labelled, "K", 3, random_state=0)
    model = quick_fit({name: part.data for name, part in parts.items()}, 10, ard=True, small_views=True, max_iter=60)
    shares = np.max(list(model.explained_variance_ratio_.values()), axis=0)
    assert (shares[:5] > 0.05).all()
    assert (shares[5:] < 0.004).all()


@pytest.mark.slow
def test_waic_and_bic_choose_the_true_number():
    chosen = select_n_components(federate(small_sites(n=60)), [1, 2, 3])
    assert chosen.n_components == min(chosen.bic, key=chosen.bic.get) == 2
    assert chosen.best.n_components == 2
    assert list(chosen.mae) == [1, 2, 3]
    assert chosen.mae[3] < chosen.mae[2] < chosen.mae[1]
    assert chosen.figure().title
    with pytest.raises(ConfigurationError, match="at least one number"):
        select_n_components(federate(small_sites()), [])


# --- scikit-learn's habits ----------------------------------------------------------------------------------------


def test_clone_parameters_and_repr():
    model = FedMvPPCA(3, method="hierarchical", tol=1e-3)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert twin.set_params(n_components=4).n_components == 4
    assert repr(model) == "FedMvPPCA(method='hierarchical', n_components=3, tol=0.001)"


def test_a_pickle_holds_no_handle_on_the_sites(model, held_out):
    assert len(model.session) == 3
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.transform(held_out), model.transform(held_out))
    with pytest.raises(NotFittedError):
        twin.session  # noqa: B018


@pytest.mark.slow
@by_method
def test_a_saved_model_is_the_same_model(method, tmp_path, sites, held_out):
    model = quick_fit(sites, method=method, waic=True)
    model.save(tmp_path)
    twin = FederatedEstimator.load(tmp_path)
    assert twin.get_params() == model.get_params()
    np.testing.assert_array_equal(twin.transform(held_out), model.transform(held_out))
    assert twin.assess(held_out) == model.assess(held_out)
    assert twin.between_centres_ == model.between_centres_
    assert twin.explained_variance_ == model.explained_variance_
    for name in ("n_features_in_", "n_patients_", "n_iter_", "converged_", "training_", "waic_", "history_"):
        assert getattr(twin, name) == getattr(model, name), name
    assert [one.title for one in twin.figures({}, {})] == [one.title for one in model.figures({}, {})]
    json.loads((tmp_path / "model.json").read_text(), parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize(
    "use",
    [
        lambda model, data: model.transform(data),
        lambda model, data: model.reconstruct(data),
        lambda model, data: model.impute(data, "blood"),
        lambda model, data: model.sample(3),
        lambda model, data: model.score(data),
        lambda model, data: model.harmonise(data),
        lambda model, data: model.assess(data),
        lambda model, data: model.evaluate(federate({"one": data, "two": data})),
        lambda model, data: model.figures({}, {}),
        lambda model, data: model.loadings_,
        lambda model, data: model.between_centres_,
        lambda model, data: model._state(),
        lambda model, data: model.session,
    ],
)
def test_what_needs_a_fit_says_so(use, held_out):
    with pytest.raises(NotFittedError):
        use(FedMvPPCA(), held_out)


def test_a_fit_that_failed_leaves_no_half_model(sites, held_out):
    model = fit(sites)
    with pytest.raises(ConfigurationError):
        model.set_params(n_components=4).fit(federate(small_sites(sizes={"blood": 3})))
    with pytest.raises(NotFittedError):
        model.transform(held_out)


def with_columns_turned(data):
    return MultiViewData(
        {view: data.array(view) for view in data.views}, columns={view: data.columns[view][::-1] for view in data.views}
    )


def test_unknown_views_and_columns(model, held_out):
    extra = MultiViewData({view: held_out.array(view) for view in SIZES} | {"diary": held_out.array("genes")})
    np.testing.assert_array_equal(model.transform(extra), model.transform(held_out))
    with pytest.raises(DataError, match="at least one of the views"):
        model.transform(MultiViewData({"diary": held_out.array("genes")}))
    with pytest.raises(SchemaMismatch, match=r"view 'blood'.*blood_0, blood_1"):
        model.transform(with_columns_turned(held_out))
    with pytest.raises(ConfigurationError, match="view must be one of blood, image, genes; got 'diary'"):
        model.impute(held_out, "diary")
    with pytest.raises(DataError, match="must be a MultiViewData; got ndarray"):
        model.transform(held_out.array("blood"))


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"method": "exact"}, "method"),
        ({"scale": "all"}, "scale"),
        ({"noise": "none"}, "noise"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 1.5}, "n_components"),
        ({"max_iter": 0}, "max_iter"),
        ({"n_local_iter": -1}, "n_local_iter"),
        ({"case_mix_weight": -1.0}, "case_mix_weight"),
        ({"case_mix_weight": float("nan")}, "case_mix_weight"),
        ({"tol": -1.0}, "tol"),
        ({"ddof": 2}, "ddof"),
        ({"ard": "yes"}, "ard"),
        ({"random_state": "x"}, "random_state"),
        ({"n_components": True}, "n_components"),
        ({"n_components": []}, "n_components"),
        ({"tol": "small"}, "tol"),
        ({"loadings_sd": 0.0}, "loadings_sd"),
        ({"n_components": 4}, "n_components, view 'genes'"),
        ({"n_components": 15, "small_views": True}, "n_components"),
    ],
)
def test_a_parameter_out_of_range_is_named(parameters, where, sites):
    with pytest.raises(ConfigurationError) as caught:
        FedMvPPCA().set_params(**parameters).fit(federate(sites))
    assert caught.value.where == where


def test_fit_takes_a_federation_only(held_out):
    with pytest.raises(ConfigurationError, match=r"Federation\.in_process"):
        FedMvPPCA().fit(held_out)


def test_a_view_of_one_site_is_warned_of():
    with pytest.warns(DisclosureWarning, match="only one site has the view image"):
        fit(small_sites(lacking={1: "image", 2: "image"}), options={"policy": mc.Policy(min_sites_in_sum=1)})


def test_too_few_rounds_are_warned_of(sites):
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        assert not fit(sites, max_iter=2).converged_


# --- columns that one site holds constant, or not at all -----------------------------------------------------------


def with_column(values):
    """Return sites of which one has other values in a column of the images."""
    sites = small_sites()
    image = sites["site-1"].array("image").copy()
    image[:, 0] = values
    sites["site-1"] = MultiViewData({view: sites["site-1"].array(view) for view in SIZES} | {"image": image})
    return sites


@pytest.mark.parametrize(
    ("method", "noise", "values"),
    [
        ("as published", "isotropic", np.nan),
        ("as published", "diagonal", 1.0),
        ("hierarchical", "diagonal", 1.0),
    ],
)
def test_a_site_whose_own_parameters_a_column_leaves_undecided_says_so(method, noise, values):
    with pytest.raises(DataError, match=r"site-1, view 'image', column 'image_0': .*got a constant or empty column"):
        fit(with_column(values), 2, method=method, noise=noise, max_iter=3)


def test_the_waic_needs_every_column_at_every_site():
    with pytest.raises(DataError, match="site-1, view 'image', column 'image_0'"):
        fit(with_column(np.nan), 2, max_iter=3, waic=True)


@pytest.mark.parametrize("values", [np.nan, 1.0], ids=["empty", "constant"])
@pytest.mark.parametrize("method", ["invariant", "hierarchical"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_goes_on_with_a_column_without_variation_at_one_site(method, values):
    model = fit(with_column(values), 2, method=method, max_iter=3)
    assert np.isfinite(law(model)).all()
    assert model.n_features_in_ == 15
