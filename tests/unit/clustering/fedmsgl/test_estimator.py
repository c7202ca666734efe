"""FedMSGL as a whole: where views lie does not matter, what is missing or lost does little, bad input is named."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import multicentre as mc
from multicentre.clustering import FedMSGL
from multicentre.clustering.fedmsgl import estimator
from multicentre.clustering.fedmsgl.maths.fusion import weigh_views
from multicentre.clustering.fedmsgl.messages import Distances
from multicentre.clustering.metrics import adjusted_rand, clustering_scores
from multicentre.datasets import lose_records
from multicentre.engines.faults import Faults
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureWarning,
    IntegrityError,
    MulticentreError,
    QuorumLost,
    RefusedByPolicy,
)
from multicentre.linkage.alignment import align
from multicentre.linkage.pseudonyms import PseudonymKey
from support.msgl_sites import DENSE, GROUP, LISTED, NAMES, VIEWS, accuracy, fit, pool, same_partition, split
from support.saved_models import store

WAYS = {
    "one round": {},
    "three rounds": {"max_iter": 3},
    "landmarks": {"landmarks": 20},
    "by distance too": {"distance_penalty": 5.0},
}
each_way = pytest.mark.parametrize("way", WAYS)


def same_bits(one, other):
    return one.tobytes() == other.tobytes()


@each_way
def test_views_at_several_sites_give_the_fit_of_one_site_that_has_all(way):
    apart, together = fit(**WAYS[way]), fit(pool(), **WAYS[way])
    if way in ("one round", "by distance too", "landmarks"):
        assert same_bits(apart.affinity_.toarray(), together.affinity_.toarray())
        assert same_bits(apart.labels_, together.labels_)
    else:
        assert np.abs((apart.affinity_ - together.affinity_).toarray()).max() < 1e-6
        assert same_bits(apart.labels_, together.labels_)
    assert same_bits(apart.pseudonyms_, together.pseudonyms_)
    assert accuracy(apart) > 0.93


@each_way
def test_masked_sums_give_the_fit_in_clear(way):
    unmasked, masked = fit(**WAYS[way]), fit(secure=True, **WAYS[way])
    assert np.abs((unmasked.affinity_ - masked.affinity_).toarray()).max() < (1e-6 if way != "three rounds" else 1e-4)
    assert same_bits(unmasked.labels_, masked.labels_)


def test_lists_and_a_dense_sum_are_one_affinity():
    assert np.abs((fit(policy=LISTED).affinity_ - fit(policy=DENSE).affinity_).toarray()).max() == 0.0
    two = {name: data for name, data in split().items() if name != "of-view_3"}
    assert np.abs((fit(two).affinity_ - fit(two, secure=True).affinity_).toarray()).max() < 1e-6


@each_way
def test_the_order_of_a_sites_rows_changes_nothing(way):
    one, two = fit(**WAYS[way]), fit(split(shuffled=3), **WAYS[way])
    assert same_bits(one.affinity_.toarray(), two.affinity_.toarray())
    assert same_bits(one.labels_, two.labels_)


@each_way
def test_the_order_of_the_sites_changes_the_names_of_clusters_at_most(way):
    sites = split()
    one, two = fit(sites, **WAYS[way]), fit({name: sites[name] for name in reversed(sites)}, **WAYS[way])
    assert np.abs((one.affinity_ - two.affinity_).toarray()).max() < 1e-6
    assert same_partition(one.labels_, two.labels_)
    assert one.view_weights_ == pytest.approx(two.view_weights_, rel=1e-4)


def test_another_common_order_finds_the_same_clusters():
    """Pseudonyms of another study put the patients into another order; clusters and affinities go with them."""
    one, two = fit(), fit(federation={"study": "another"})
    places = [model.places_for(NAMES) for model in (one, two)]
    assert places[0].tolist() != places[1].tolist()
    A, B = (model.affinity_.toarray()[np.ix_(place, place)] for model, place in zip((one, two), places, strict=True))
    assert np.abs(A - B).max() < 1e-5
    assert same_partition(one.labels_for(NAMES), two.labels_for(NAMES))


def test_the_fitted_attributes_say_what_the_documentation_says():
    model = fit()
    assert model.labels_.dtype == np.int64
    assert model.labels_.shape == (60,)
    assert np.linalg.norm(model.embedding_, axis=1) == pytest.approx(1.0)
    A = model.affinity_.toarray()
    assert (A >= 0).all()
    assert np.abs(A - A.T).max() == 0.0
    assert not A.diagonal().any()
    assert A.sum() == pytest.approx(60.0, rel=0.01)
    assert model.view_weights_ == pytest.approx({f"of-{view}/{view}": 1 / 3 for view in VIEWS})
    assert np.all(np.diff(model.eigenvalues_) >= 0)
    assert model.n_clusters_ == 3


def test_a_fit_repeats_itself_and_leaves_parameters_as_they_were():
    given = {"share_penalty": 7.0, "hyperedge_sizes": (4, 8), "n_neighbors": 20}
    model = FedMSGL(3, **given)
    before = model.get_params()
    with mc.Federation.in_process(split(), secure_sum=True) as federation:
        first = model.fit(federation).labels_.copy()
        second = model.fit(federation).labels_
    assert first.tolist() == second.tolist()
    assert model.get_params() == before == clone(model).get_params()


# --- what leaves a site


def test_one_round_sends_one_message_from_each_site():
    with mc.Federation.in_process(split(), secure_sum=True) as federation:
        FedMSGL(3).fit(federation)
        traffic, ledgers = federation.traffic, federation.ledgers
    left = {
        site: [entry["step"] for entry in ledger.entries if entry.get("method") == "fed-msgl"]
        for site, ledger in ledgers.items()
    }
    assert left == {f"of-{view}": ["describe", "relate"] for view in VIEWS}
    assert traffic.calls["relate"] == 1
    assert traffic.bytes_to_sites["relate"] < 2000
    assert 3 * 60 * 59 / 2 * 8 <= traffic.bytes_from_sites["relate"] < 3 * 60 * 59 / 2 * 10


def test_policies_are_refused_with_the_way_out():
    with pytest.raises(RefusedByPolicy, match="secure_sum=True"):
        fit(policy=None)
    with pytest.raises(RefusedByPolicy, match="secure_sum=True"):
        fit(policy=None, landmarks=20)
    with pytest.raises(RefusedByPolicy, match="secure_sum=True"):
        fit(policy=LISTED, max_iter=2)


@pytest.mark.parametrize("secure", [False, True])
def test_a_policy_without_relations_refuses_all(secure):
    with pytest.raises(RefusedByPolicy, match="relations"):
        fit(secure=secure, policy=mc.Policy(relations="none"))


@pytest.mark.parametrize("landmarks", [None, 20])
def test_lists_in_clear_are_warned_of_where_the_caller_stands(landmarks):
    federation = mc.Federation.in_process(split(), policy=LISTED, secure_sum=False)
    with pytest.warns(DisclosureWarning, match="secure_sum=True") as caught:
        FedMSGL(3, landmarks=landmarks).fit(federation)
    assert len(caught) == 1


def test_masked_fits_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with mc.Federation.in_process(split(), secure_sum=True) as federation:
            FedMSGL(3).fit(federation)


@each_way
def test_the_steps_asked_are_those_announced(way):
    for secure in (False, True):
        with mc.Federation.in_process(split(), policy=DENSE, secure_sum=secure) as federation:
            model = FedMSGL(3, **WAYS[way])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DisclosureWarning)
                model.fit(federation)
            entries = [entry for ledger in federation.ledgers.values() for entry in ledger.entries]
        asked = {entry["step"] for entry in entries if entry.get("method") == "fed-msgl"}
        assert asked <= model.planned_steps()


# --- patients whom some sites lack


@pytest.mark.parametrize(("share", "least"), [(0.1, 0.93), (0.3, 0.85), (0.5, 0.7)])
def test_patients_whom_some_sites_lack_are_taken_in(share, least):
    sites = lose_records(split(), share, random_state=0)
    unmasked, masked = fit(sites, incomplete=True), fit(sites, incomplete=True, secure=True)
    assert np.abs((unmasked.affinity_ - masked.affinity_).toarray()).max() < 1e-6
    assert same_bits(unmasked.labels_, masked.labels_)
    assert len(unmasked.labels_) == 60
    assert accuracy(unmasked) >= least


def test_empty_rows_are_the_same_as_records_left_out():
    rng = np.random.default_rng(2)
    views, left = {}, {}
    for view, X in VIEWS.items():
        lost = rng.permutation(60)[:12]
        views[view] = X.copy()
        views[view][lost] = np.nan
        left[f"of-{view}"] = split()[f"of-{view}"].take(np.setdiff1d(np.arange(60), lost))
    emptied, gone = fit(split(views)), fit(left, incomplete=True)
    at = [model.places_for(NAMES) for model in (emptied, gone)]
    known = at[1] >= 0
    A, B = (
        model.affinity_.toarray()[np.ix_(place[known], place[known])]
        for model, place in zip((emptied, gone), at, strict=True)
    )
    assert known.sum() >= 59
    assert np.abs(A - B).max() < 1e-6
    assert same_bits(emptied.labels_, fit(split(views), secure=True, incomplete=True).labels_)
    with pytest.raises(ConfigurationError, match="incomplete=True"):
        fit(split(views), secure=True)


def test_an_affinity_is_the_mean_over_views_that_have_both_patients():
    views = {view: X.copy() for view, X in VIEWS.items()}
    views["view_1"][:30] = np.nan
    model = fit(split(views))
    place = model.places_for(NAMES)
    A = model.affinity_.toarray()[np.ix_(place, place)]
    parts = [fit({"only": mc.data.MultiViewData({"v": views[view]}, NAMES)}) for view in ("view_2", "view_3")]
    alone = [one.affinity_.toarray()[np.ix_(place, place)] for one in parts]
    assert np.abs(A[:30, :30] - (alone[0] + alone[1])[:30, :30] / 2).max() < 1e-12


def test_a_view_that_has_every_patient_in_part_of_a_row_is_refused():
    views = {view: X.copy() for view, X in VIEWS.items()}
    views["view_2"][4, 1] = np.nan
    for secure in (False, True):
        with pytest.raises(DataError, match="views must be complete") as caught:
            fit(split(views), secure=secure)
        assert "of-view_2, view 'view_2', column 'view_2_1'" in str(caught.value)


@pytest.mark.parametrize("parameters", [{"max_iter": 2}, {"landmarks": 20}])
def test_ways_that_need_all_views_of_all_patients_say_so(parameters):
    with pytest.raises(ConfigurationError, match=r"lack|all views"):
        fit(lose_records(split(), 0.2, random_state=0), incomplete=True, **parameters)


@pytest.mark.parametrize("secure", [False, True])
def test_patients_of_whom_no_view_has_data_are_in_no_cluster(secure):
    views = {view: X.copy() for view, X in VIEWS.items()}
    for X in views.values():
        X[[3, 40]] = np.nan
    with pytest.warns(UserWarning, match="2 patients have no view"):
        model = fit(split(views), secure=secure, incomplete=True)
    found = model.labels_for(NAMES)
    assert np.flatnonzero(found < 0).tolist() == [3, 40]
    assert set(found[found >= 0]) == {0, 1, 2}
    assert clustering_scores(GROUP[found >= 0], found[found >= 0])["acc"] > 0.9


def test_sites_with_other_patients_share_those_they_have_in_common():
    sites = split()
    sites["of-view_2"] = sites["of-view_2"].take(np.arange(5, 60))
    sites["of-view_3"] = sites["of-view_3"].take(np.arange(0, 50))
    model = fit(sites)
    assert len(model.labels_) == 45
    assert (model.labels_for(NAMES) < 0).tolist() == [row < 5 or row >= 50 for row in range(60)]
    assert model.alignment_counts_["aligned"] == dict.fromkeys(sites, 45)


def test_sites_without_common_patients_are_refused():
    sites = {**split(), "of-view_3": mc.data.MultiViewData({"v": np.eye(20)}, [f"q{row}" for row in range(20)])}
    with pytest.raises(DataError, match="must be at every site; got 0"):
        fit(sites)


# --- sites that are lost


@pytest.mark.slow
@pytest.mark.dealt(2)
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_fit_goes_on_without_a_site_that_is_lost_at_any_step(secure, way):
    extra = np.random.default_rng(0).normal(size=(3, 9))[np.unique(GROUP, return_inverse=True)[1]]
    extra += 0.3 * np.random.default_rng(1).normal(size=(60, 9))
    sites = {**split(), **split({"more": extra})}
    steps = sorted(FedMSGL(3, **{"landmarks": None, **WAYS[way]}).planned_steps() - {"count_shared"})
    for step in steps:
        if (step in {"relate", "code"} and not secure) or (step in {"list_relations", "list_codes"} and secure):
            continue
        federation = {"quorum": 3, "faults": Faults(lose={"of-more": step})}
        model = fit(sites, secure=secure, federation=federation, **WAYS[way])
        assert accuracy(model) > 0.9, step
        assert model.view_weights_.get("of-more/more", 0.0) == 0.0
        assert sum(model.view_weights_.values()) == pytest.approx(1.0)
        with pytest.raises(QuorumLost):
            fit(sites, secure=secure, federation={"faults": Faults(lose={"of-more": step})}, **WAYS[way])


def test_a_lost_site_leaves_the_fit_of_those_that_stayed():
    sites = split()
    lost = {"quorum": 2, "faults": Faults(lose={"of-view_3": "relate"})}
    masked = fit(sites, secure=True, federation=lost)
    two = fit({name: sites[name] for name in ("of-view_1", "of-view_2")}, secure=True)
    assert np.abs((masked.affinity_ - two.affinity_).toarray()).max() < 1e-6
    assert same_bits(masked.labels_, two.labels_)


@pytest.mark.slow
@each_way
def test_a_run_broken_off_is_taken_up(way, tmp_path):
    whole = fit(secure=True, federation={"faults": Faults()}, **WAYS[way])
    at = whole.session.engine.exchanges - 1
    with pytest.raises(KeyboardInterrupt):
        fit(secure=True, federation={"folder": tmp_path, "faults": Faults(interrupt_at=at)}, **WAYS[way])
    again = fit(secure=True, federation={"folder": tmp_path}, **WAYS[way])
    assert same_bits(whole.affinity_.toarray(), again.affinity_.toarray())
    assert same_bits(whole.labels_, again.labels_)
    assert whole.history_ == again.history_


# --- data that are not as one would wish


def changed(**views):
    return split({**VIEWS, **views})


def test_constant_columns_and_constant_or_repeated_patients_do_no_harm():
    first, second, third = (VIEWS[view].copy() for view in VIEWS)
    first[:, 3] = 2.0
    second[:4] = 1.0
    third[10:14] = third[10]
    model = fit(changed(view_1=first, view_2=second, view_3=third))
    assert np.isfinite(model.embedding_).all()
    assert accuracy(model) > 0.8


@pytest.mark.parametrize("norm", ["l2", "z", "mms", "raw"])
def test_a_view_of_noughts_says_nothing_and_the_others_decide(norm):
    model = fit(changed(view_2=np.zeros((60, 8))), norm=norm)
    assert np.isfinite(model.affinity_.data).all()
    assert accuracy(model) > 0.85


@each_way
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_patients_who_are_all_alike_are_not_an_error(way, value):
    views = {view: np.full(X.shape, value) for view, X in VIEWS.items()}
    model = fit(split(views), **WAYS[way])
    assert np.isfinite(model.embedding_).all()
    assert model.labels_.shape == (60,)


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1e12, 1e200])
def test_the_unit_of_a_view_does_not_matter(scale):
    one, two = fit(), fit(changed(view_1=VIEWS["view_1"] * scale))
    assert np.abs((one.affinity_ - two.affinity_).toarray()).max() < 1e-5
    assert same_partition(one.labels_, two.labels_)


def test_infinite_entries_are_refused():
    views = VIEWS["view_1"].copy()
    views[0, 0] = np.inf
    with pytest.raises(DataError, match="infinite"):
        fit(changed(view_1=views))


def test_fewer_patients_than_a_hyperedge_holds_are_warned_of():
    groups = np.arange(12) % 2
    rng = np.random.default_rng(4)
    views = {view: rng.normal(size=(2, 6))[groups] + 0.3 * rng.normal(size=(12, 6)) for view in "abc"}
    with pytest.warns(UserWarning, match="cut to 11"):
        model = fit(split(views), 2)
    assert adjusted_rand(groups, model.labels_for(NAMES[:12])) == 1.0


@pytest.mark.parametrize("n", [3, 4, 5, 8])
@pytest.mark.filterwarnings("ignore:Hyperedges of")
def test_few_patients_are_enough_for_two_clusters(n):
    model = fit(split(rows=np.arange(n)), 2)
    assert len(model.labels_) == n
    assert set(model.labels_) == {0, 1}


@pytest.mark.filterwarnings("ignore:Hyperedges of")
@pytest.mark.parametrize("selection", ["stability", "eigengap"])
def test_the_number_of_clusters_needs_four_patients_to_choose_from(selection):
    with pytest.raises(DataError, match="patients must be at least 4 to choose n_clusters; got 3"):
        fit(split(rows=np.arange(3)), None, selection=selection)
    assert fit(split(rows=np.arange(4)), None, selection=selection).n_clusters_ == 2


@pytest.mark.parametrize("n_clusters", [60, 61, 1000])
def test_as_many_clusters_as_patients_are_refused(n_clusters):
    with pytest.raises(DataError, match="n_clusters must be below the number of patients, 60"):
        fit(n_clusters=n_clusters)
    with pytest.raises(DataError, match="landmarks"):
        fit(n_clusters=20, landmarks=15)


def test_views_of_one_name_and_several_views_at_one_site():
    named_alike = {name: mc.data.MultiViewData({"v": X}, NAMES) for name, X in zip("abc", VIEWS.values(), strict=True)}
    two_at_one = {
        "a": mc.data.MultiViewData({view: VIEWS[view] for view in ("view_1", "view_2")}, NAMES),
        "b": mc.data.MultiViewData({"view_3": VIEWS["view_3"]}, NAMES),
    }
    one, alike, two = fit(), fit(named_alike), fit(two_at_one, secure=True)
    assert same_bits(one.affinity_.toarray(), alike.affinity_.toarray())
    assert set(alike.view_weights_) == {"a/v", "b/v", "c/v"}
    assert np.abs((one.affinity_ - two.affinity_).toarray()).max() < 1e-6
    assert two.view_weights_ == pytest.approx({"a/view_1": 1 / 3, "a/view_2": 1 / 3, "b/view_3": 1 / 3})


def test_one_site_has_nobody_to_hide_among():
    assert accuracy(fit(pool())) > 0.93
    with pytest.raises(RefusedByPolicy, match="relations"):
        fit(pool(), secure=True)


# --- parameters


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["stability", "eigengap"])
def test_the_number_of_clusters_is_found(selection):
    model = fit(None, None, selection=selection, secure=True)
    assert model.n_clusters_ == 3 if selection == "eigengap" else 3 <= model.n_clusters_ < 20
    assert len(model.embedding_) == 60
    assert model.candidates_.numbers.tolist() == list(range(2, 21))
    assert f"Number of clusters: {model.candidates_.best}" in str(model)
    assert clustering_scores(GROUP, model.labels_for(NAMES))["purity"] > 0.93
    assert fit(None, None, selection=selection, landmarks=20).n_clusters_ >= 2


def test_a_small_penalty_is_warned_of_where_the_caller_stands():
    federation = mc.Federation.in_process(split(), secure_sum=True)
    with pytest.warns(UserWarning, match="stability_path") as caught:
        FedMSGL(3, share_penalty=3.0).fit(federation)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 1),
        ("n_clusters", 2.0),
        ("n_clusters", "3"),
        ("n_clusters", True),
        ("share_penalty", 0.0),
        ("share_penalty", -1.0),
        ("share_penalty", 1e12),
        ("share_penalty", float("nan")),
        ("share_penalty", "5"),
        ("distance_penalty", -1.0),
        ("norm", "unit"),
        ("n_neighbors", 0),
        ("n_neighbors", 2.5),
        ("hyperedge_sizes", ()),
        ("hyperedge_sizes", 5),
        ("hyperedge_sizes", (5, 1)),
        ("hyperedge_sizes", "57"),
        ("incidence", "hard"),
        ("max_iter", 0),
        ("max_iter", 2.0),
        ("max_iter", 10**6),
        ("consensus_penalty", 0.0),
        ("consensus_penalty", -1.0),
        ("embedding_penalty", -1.0),
        ("n_init", 0),
        ("landmarks", 1),
        ("landmarks", True),
        ("landmarks", -3),
        ("landmarks", "many"),
        ("landmarks", 60),
        ("selection", "gap"),
        ("max_clusters", 1),
        ("tol", 0.0),
        ("tol", 1.0),
        ("random_state", -1),
        ("random_state", None),
    ],
)
def test_parameters_out_of_range_are_named_before_relations_leave(name, value):
    with mc.Federation.in_process(split(), secure_sum=True) as federation:
        with pytest.raises(MulticentreError, match=name):
            FedMSGL(**{"n_clusters": 3, name: value}).fit(federation)
        asked = {entry.get("step") for ledger in federation.ledgers.values() for entry in ledger.entries}
    assert not asked & {"relate", "code", "refine"}


def test_many_patients_are_coded_on_landmarks_without_being_asked(monkeypatch):
    monkeypatch.setattr(estimator, "MAX_WITHOUT_LANDMARKS", 50)
    monkeypatch.setattr(estimator, "USUAL_LANDMARKS", 20)
    model = fit(secure=True)
    assert model.affinity_.shape == (60, 20)
    assert accuracy(model) > 0.85
    assert fit(secure=True, landmarks=None).affinity_.shape == (60, 60)


# --- afterwards


@each_way
def test_a_model_comes_back_from_its_folder(way, tmp_path):
    model = fit(secure=True, **WAYS[way])
    model.save(tmp_path)
    again = FedMSGL.load(tmp_path)
    for name in ("labels_", "embedding_", "eigenvalues_", "pseudonyms_"):
        assert same_bits(getattr(again, name), getattr(model, name))
    assert (again.affinity_ != model.affinity_).nnz == 0
    assert again.view_weights_ == model.view_weights_
    assert again.n_clusters_ == model.n_clusters_ == 3
    assert again.history_ == model.history_
    assert again.alignment_counts_ == model.alignment_counts_
    assert again.labels_for(NAMES).tolist() == model.labels_for(NAMES).tolist()


def test_a_folder_that_lost_a_part_is_refused(tmp_path):
    model = fit(secure=True)
    model.save(tmp_path)
    with np.load(tmp_path / "model.npz") as members:
        kept = {name: members[name] for name in members.files if name != "affinity_.data"}
    store(tmp_path, kept)
    with pytest.raises(IntegrityError):
        FedMSGL.load(tmp_path)


def test_a_model_is_pickled_without_its_sites_and_its_key():
    model = fit(secure=True).hold_key(PseudonymKey.simulated("study"))
    again = pickle.loads(pickle.dumps(model))
    assert again.labels_.tolist() == model.labels_.tolist()
    assert again._key is None
    with pytest.raises(Exception, match="fit the model in this process"):
        again.profiles()


def test_profiles_tell_once_and_not_of_small_clusters():
    sizes = np.repeat([0, 1, 2], [27, 27, 6])
    rng = np.random.default_rng(3)
    views = {view: 2 * rng.normal(size=(3, 7))[sizes] + 0.2 * rng.normal(size=(60, 7)) for view in "abc"}
    views["a"][:, 0] = np.where(sizes == 1, 3.0, -1.0) + 0.01 * rng.normal(size=60)
    with mc.Federation.in_process(split(views), secure_sum=True, policy=mc.Policy(relations="listed")) as federation:
        model = FedMSGL(3, hyperedge_sizes=(4, 6)).fit(federation)
        found = model.profiles()
        with pytest.raises(ConfigurationError, match="must be requested once per fit; got a second request"):
            model.profiles()
    assert set(found) == {"of-a/a", "of-b/b", "of-c/c"}
    counted = np.bincount(model.labels_)
    assert sorted(counted) == [6, 27, 27]
    profile = found["of-a/a"]
    assert profile.sizes.tolist() == np.where(counted < 10, 0, counted).tolist()
    assert np.isnan(profile.means[counted < 10]).all()
    second = model.labels_for([NAMES[30]])[0]
    assert np.nanargmax(profile.means[:, 0]) == second
    assert np.all(np.mod(profile.means[counted >= 10], 0.25) == 0)


def test_profiles_are_refused_by_default():
    with mc.Federation.in_process(split(), secure_sum=True) as federation:
        model = FedMSGL(3).fit(federation)
        with pytest.raises(RefusedByPolicy, match="listed"):
            model.profiles()


@pytest.mark.slow
def test_a_path_of_penalties_agrees_with_itself_where_groups_are_plain():
    with mc.Federation.in_process(split(), secure_sum=True) as federation:
        model = FedMSGL(3)
        path = model.stability_path(federation, (5.0, 10.0, 30.0))
        assert not hasattr(model, "labels_")
        with pytest.raises(ConfigurationError, match="two or more"):
            model.stability_path(federation, (5.0, 5.0))
        again = model.stability_path(align(federation), (5.0, 10.0, 30.0))
    assert list(path) == [5.0, 10.0, 30.0]
    assert min(path.values()) > 0.8
    assert path == again


# --- pitfalls of the method


def test_groups_that_are_passed_to_fit_change_nothing():
    with mc.Federation.in_process(split(), secure_sum=True) as federation:
        without, passed = FedMSGL(3).fit(federation), FedMSGL(3).fit(federation, y=GROUP)
    assert same_bits(without.labels_, passed.labels_)
    assert same_bits(without.affinity_.toarray(), passed.affinity_.toarray())


def test_the_number_of_threads_for_linear_algebra_changes_no_label():
    labels = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            labels.append(fit(secure=True).labels_)
    assert same_bits(*labels)


def test_another_seed_changes_no_label_of_clear_groups():
    assert same_partition(fit(secure=True, random_state=0).labels_, fit(secure=True, random_state=11).labels_)


def test_more_neighbours_and_larger_hyperedges_than_patients_are_cut():
    with pytest.warns(UserWarning, match="do not fit 60 samples"):
        model = fit(n_neighbors=200, hyperedge_sizes=(5, 10, 90), secure=True)
    assert not model.affinity_.diagonal().any()
    assert accuracy(model) > 0.9


def test_weights_of_views_do_not_depend_on_the_number_of_patients():
    """A distance of 400, as of many patients, underflows exp(-d) in single and double precision, but not in a ratio."""
    assert weigh_views([400.0, 800.0]) == pytest.approx(weigh_views([4.0, 8.0]))
    assert Distances(distances={"v": np.array([123456.0])}, patients=60).distances["v"].dtype == np.float64
