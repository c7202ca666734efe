"""FedMVFCM and FedMVFPC as their user meets them."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import multicentre as mc
from multicentre.clustering.metrics import adjusted_rand
from multicentre.data import MultiViewData
from multicentre.data.concatenate import concatenate
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, SchemaMismatch
from multicentre.estimator.base import FederatedEstimator
from multicentre_papers.baselines.fuzzy import maths
from multicentre_papers.baselines.fuzzy.estimator import FedMVFCM, FedMVFPC
from multicentre_papers.baselines.fuzzy.rounds import START_FUZZINESS
from multicentre_papers.baselines.fuzzy.site import FuzzySite

BOTH = [FedMVFCM, FedMVFPC]
both = pytest.mark.parametrize("kind", BOTH)
EXACT = mc.Policy(min_patients=0)
SIZES = {"blood": 4, "image": 6}


def draw(n=240, c=3, seed=0, distance=5.0):
    """Return patients in c groups, and the groups."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, c, n)
    means = {view: distance * np.eye(c, size) for view, size in SIZES.items()}
    shift = {"blood": 100.0, "image": 0.0}
    unit = {"blood": 1e3, "image": 1e-3}
    views = {v: unit[v] * (means[v][group] + rng.normal(size=(n, SIZES[v])) + shift[v]) for v in SIZES}
    return MultiViewData(views), group


def split(data, n_sites=3, seed=0):
    places = np.array_split(np.random.default_rng(seed).permutation(len(data)), n_sites)
    return {f"site-{i}": data.take(np.sort(each)) for i, each in enumerate(places)}


def fit(kind, sites, n_clusters=3, policy=EXACT, secure=False, **parameters):
    parameters.setdefault("n_init", 2)
    with mc.Federation.in_process(sites, policy=policy, secure_sum=secure) as federation:
        return kind(n_clusters, **parameters).fit(federation)


def close(one, other, tolerance):
    pairs = zip(arrays(one), arrays(other), strict=True)
    return all(np.abs(value - reference).max() <= tolerance for value, reference in pairs)


def arrays(model):
    agreed = model._agreed
    return model._centres, model._alpha, model.shares_, agreed.centre, agreed.spread, agreed.patients_by_view


DATA, GROUP = draw()


@pytest.fixture(scope="module", params=BOTH, ids=lambda kind: kind.__name__)
def fitted(request):
    return fit(request.param, split(DATA))


# --- the fit ----------------------------------------------------------------------------------------------------------


def test_groups_that_lie_apart_are_found_without_labels(fitted):
    labels = fitted.predict(DATA)
    assert labels.dtype == np.int64
    assert adjusted_rand(GROUP, labels) > 0.99
    assert fitted.assess(DATA, GROUP)["acc"] > 0.99
    assert fitted.converged_


@both
@pytest.mark.parametrize("scale", ["feature", "view"])
@pytest.mark.parametrize("squared", [True, False])
def test_the_federated_fit_is_that_of_the_pooled_patients(kind, scale, squared):
    options = {"scale": scale, "squared": squared}
    pooled = fit(kind, {"all": DATA}, **options)
    for n_sites, seed in ((2, 0), (5, 1)):
        apart = fit(kind, split(DATA, n_sites, seed), **options)
        for view in SIZES:
            unit = DATA.array(view).std()
            assert np.abs(apart.centres_[view] - pooled.centres_[view]).max() <= 1e-8 * unit
        assert np.array_equal(apart.predict(DATA), pooled.predict(DATA))


@both
def test_masks_change_no_more_than_their_rounding(kind):
    unmasked, masked = fit(kind, split(DATA)), fit(kind, split(DATA), policy=mc.Policy(), secure=True)
    for view in SIZES:
        unit = DATA.array(view).std()
        assert np.abs(unmasked.centres_[view] - masked.centres_[view]).max() <= 1e-6 * unit
    assert np.array_equal(unmasked.predict(DATA), masked.predict(DATA))


def standardise(X):
    return (X - X.mean(axis=0)) / X.std(axis=0) / np.sqrt(X.shape[1])


def test_with_one_view_it_is_fuzzy_c_means():
    data = DATA.drop(["image"])
    X, m = standardise(data.array("blood")), 1.4
    v = maths.draw_centres(3, [4], np.random.default_rng([7, 0]))
    model = fit(FedMVFCM, split(data), fuzziness=m, n_init=1, random_state=7, tol=1e-12)
    for number in range(model.n_iter_):
        squared = ((X[:, None, :] - v[None]) ** 2).sum(axis=2)
        power = START_FUZZINESS if number == 0 else m
        u = np.array(
            [[1 / sum((row[j] / row[k]) ** (1 / (power - 1)) for k in range(3)) for j in range(3)] for row in squared]
        )
        w = u**power
        v = (w.T @ X) / w.sum(axis=0)[:, None]
    order = np.argsort(-w.sum(axis=0))
    own = v[order] * 2 * data.array("blood").std(axis=0) + data.array("blood").mean(axis=0)
    assert np.allclose(model.centres_["blood"], own, rtol=1e-8)
    assert np.allclose(model.shares_, np.sort(w.sum(axis=0))[::-1] / w.sum())


def test_the_objective_falls_from_the_second_round_on(fitted):
    values = [entry["objective"] for entry in fitted.history_[1:]]
    assert (np.diff(values) <= 1e-12).all()
    assert fitted.assess(DATA)["dispersion"] == pytest.approx(values[-1], rel=1e-3)


@pytest.mark.slow
def test_more_starts_never_end_higher():
    data, _ = draw(distance=1.5, seed=3)
    ends = [fit(FedMVFCM, split(data), 6, n_init=n).history_[-1]["objective"] for n in (1, 3, 6)]
    assert ends == sorted(ends, reverse=True)
    assert ends[0] > ends[-1]


def test_clusters_are_numbered_from_the_largest(fitted):
    assert (np.diff(fitted.shares_) <= 0).all()
    assert fitted.shares_.sum() == pytest.approx(1)
    assert np.allclose(np.bincount(fitted.predict(DATA)) / len(DATA), fitted.shares_, atol=0.02)


def test_directions_are_orthonormal_in_every_view():
    model = fit(FedMVFPC, split(DATA))
    for view, size in SIZES.items():
        X = DATA.array(view)
        directions = (model.centres_[view] - X.mean(axis=0)) / X.std(axis=0) / np.sqrt(size)
        assert np.allclose(directions @ directions.T, np.eye(3), atol=1e-8)


@both
def test_a_view_of_noise_weighs_less(kind):
    rng = np.random.default_rng(1)
    noisy = MultiViewData({"blood": DATA.array("blood"), "noise": rng.normal(size=(len(DATA), 6))})
    weights = fit(kind, split(noisy)).view_weights_
    assert weights["blood"] > weights["noise"]
    assert sum(weights.values()) == pytest.approx(1)


# --- data that are not as one wishes ----------------------------------------------------------------------------------


def without_view(data, view, rows):
    arrays = {name: data.array(name).copy() for name in data.views}
    arrays[view][rows] = np.nan
    return MultiViewData(arrays)


@both
def test_patients_and_sites_may_lack_a_view(kind):
    holes = without_view(DATA, "image", np.arange(0, len(DATA), 4))
    sites = split(holes)
    sites["site-1"] = sites["site-1"].drop(["image"])
    model = fit(kind, sites)
    assert adjusted_rand(GROUP, model.predict(holes)) > 0.9
    pooled = fit(
        kind, {"all": concatenate({name: sites[name] for name in ("site-0", "site-2")}), "blood": sites["site-1"]}
    )
    assert close(model, pooled, 1e-6)


@both
def test_constant_columns_and_repeated_patients_do_no_harm(kind):
    arrays = {view: np.column_stack([DATA.array(view), np.full(len(DATA), 3e9)]) for view in SIZES}
    arrays = {view: np.vstack([values, values[:20]]) for view, values in arrays.items()}
    for secure in (False, True):
        model = fit(kind, split(MultiViewData(arrays)), secure=secure)
        assert all(np.isfinite(values).all() for values in model.centres_.values())
        assert adjusted_rand(np.append(GROUP, GROUP[:20]), model.predict(MultiViewData(arrays))) > 0.97


def test_a_column_that_varies_at_one_site_alone_counts():
    sites = split(DATA)
    arrays = {name: {v: data.array(v).copy() for v in SIZES} for name, data in sites.items()}
    for name in ("site-0", "site-1"):
        arrays[name]["blood"][:, 3] = 0.0
    model = fit(FedMVFCM, {name: MultiViewData(each) for name, each in arrays.items()})
    assert model.centres_["blood"][:, 3].std() > 0


def test_identical_patients_are_one_place():
    data = MultiViewData({"a": np.repeat([[0.0, 1.0], [4.0, 9.0]], 30, axis=0)})
    model = fit(FedMVFCM, split(data), 2)
    assert len(set(model.predict(data).tolist())) == 2
    assert np.isfinite(model.membership(data)).all()


@both
def test_bad_data_are_named(kind):
    arrays = {view: DATA.array(view).copy() for view in SIZES}
    arrays["image"][3, 1] = np.nan
    name = DATA.columns["image"][1]
    with pytest.raises(
        DataError, match=f"site-0.*view 'image', column '{name}': views must be complete for this method"
    ):
        fit(kind, {"site-0": MultiViewData(arrays), "site-1": DATA})
    nobody = without_view(without_view(DATA, "image", [5]), "blood", [5])
    with pytest.raises(DataError, match="at least one view; got patients without views"):
        fit(kind, split(nobody))
    with pytest.raises(DataError, match="number of patients, 240; got 250"):
        fit(kind, split(DATA), 250)
    with pytest.raises(DataError, match="all columns of the view are constant"):
        fit(kind, split(MultiViewData({"a": np.ones((30, 2)), "b": np.random.default_rng(0).normal(size=(30, 2))})))


def test_sites_with_other_columns_are_told_apart():
    sites = split(DATA)
    sites["site-2"] = MultiViewData({"blood": sites["site-2"].array("blood")[:, :3]})
    with pytest.raises(SchemaMismatch, match="site-2"):
        fit(FedMVFCM, sites)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 0),
        ("n_clusters", 2.5),
        ("n_clusters", True),
        ("fuzziness", 1.0),
        ("fuzziness", float("nan")),
        ("scale", "none"),
        ("squared", "yes"),
        ("n_init", 0),
        ("max_iter", 1),
        ("tol", -1.0),
        ("random_state", None),
    ],
)
def test_parameters_out_of_range_are_named(name, value):
    with pytest.raises(ConfigurationError, match=name):
        fit(FedMVFPC, split(DATA), **{"n_clusters": 3, name: value})


def test_rounds_that_do_not_suffice_are_told():
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        fit(FedMVFCM, split(DATA), max_iter=2, n_init=1)


# --- under a policy ---------------------------------------------------------------------------------------------------


def alike(size):
    """Return patients in groups of so many with the same row."""
    rows = {view: np.repeat(DATA.array(view)[:12], size, axis=0) for view in SIZES}
    return MultiViewData(rows)


@both
def test_unmasked_sums_of_as_many_as_the_policy_wants_give_the_masked_fit_and_of_fewer_none(kind):
    policy = mc.Policy(min_patients=10)
    enough = dict.fromkeys(("one", "two"), alike(10))
    unmasked, masked = (fit(kind, enough, policy=policy, secure=secure, n_init=1) for secure in (False, True))
    for view in SIZES:
        unit = DATA.array(view).std()
        assert np.abs(unmasked.centres_[view] - masked.centres_[view]).max() <= 1e-6 * unit
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        fit(kind, {"one": alike(10), "two": alike(9)}, policy=policy)


def test_an_unmasked_column_in_which_few_patients_differ_is_refused():
    for n_different in (9, 10):
        arrays = {view: DATA.array(view).copy() for view in SIZES}
        arrays["blood"][:, 0] = np.arange(len(DATA)) < n_different
        part = FuzzySite("lyon", MultiViewData(arrays))
        assert part.behind() == n_different
        part.masked = True
        assert part.behind() == len(DATA)


def test_a_site_of_few_patients_is_refused():
    sites = split(DATA) | {"tiny": DATA.take(np.arange(4))}
    with pytest.raises(DisclosureRefused):
        fit(FedMVFCM, sites, policy=mc.Policy(min_patients=10))


# --- what a fit leaves behind -----------------------------------------------------------------------------------------


def test_memberships_are_shares_and_labels_the_largest(fitted):
    u = fitted.membership(DATA)
    assert u.shape == (len(DATA), 3)
    assert np.allclose(u.sum(axis=1), 1)
    assert np.array_equal(u.argmax(axis=1), fitted.predict(DATA))


def test_figures_have_a_meaning_and_need_no_labels(fitted):
    assert set(fitted.assess(DATA)) == {"dispersion"}
    assert set(fitted.assess(DATA, GROUP.astype(str))) == set(fitted.metrics)


def test_a_saved_model_predicts_the_same(fitted, tmp_path):
    fitted.save(tmp_path)
    for loaded in (FederatedEstimator.load(tmp_path), pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(loaded.membership(DATA), fitted.membership(DATA))
        assert loaded.view_weights_ == fitted.view_weights_
        assert loaded.n_iter_ == fitted.n_iter_


def test_new_patients_must_have_the_columns_of_the_fit(fitted):
    with pytest.raises(SchemaMismatch, match="blood"):
        fitted.predict(MultiViewData({"blood": np.ones((3, 2))}))
    with pytest.raises(SchemaMismatch, match="views"):
        fitted.predict(MultiViewData({"other": np.ones((3, 2))}))
    with pytest.raises(DataError, match="ndarray"):
        fitted.predict(DATA.array("blood"))
    assert len(fitted.predict(DATA.drop(["image"]))) == len(DATA)


def test_figures_show_sizes_profiles_and_weights(fitted):
    sizes, profiles, weights = fitted.figures({}, {})
    assert list(sizes.series["share of patients"]) == fitted.shares_.tolist()
    assert np.shape(profiles.values) == (10, 3)
    assert list(weights.categories) == list(SIZES)
    assert all(figure.to_dict() for figure in (sizes, profiles, weights))


@both
def test_scikit_learns_habits(kind):
    model = kind(4, fuzziness=1.3)
    assert clone(model).get_params() == model.get_params()
    for request in (lambda: model.centres_, lambda: model.predict(DATA), lambda: model.figures({}, {})):
        with pytest.raises(NotFittedError):
            request()


@both
def test_only_the_steps_on_the_card_are_asked(kind):
    with mc.Federation.in_process(split(DATA), policy=EXACT, secure_sum=False) as federation:
        model = kind(3, n_init=1).fit(federation)
        asked = {entry["step"] for ledger in federation.ledgers.values() for entry in ledger.entries}
    assert asked == model.planned_steps()
    assert "fed-mvf" in kind.site_part.method


def test_no_warning_is_raised_by_a_fit():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(FedMVFPC, split(DATA), n_init=1)
