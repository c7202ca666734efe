"""What a site of FedMSGL refuses, whoever asks: a coordinator may ask for anything."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.clustering.fedmsgl import messages
from multicentre.clustering.fedmsgl import site as module
from multicentre.clustering.fedmsgl.maths.fusion import place_lists, symmetrise, unpack_pairs
from multicentre.clustering.fedmsgl.site import FedMSGLSite
from multicentre.core.messages import Nothing
from multicentre.core.steps import Common
from multicentre.errors import ConfigurationError, DataError, MulticentreError, RefusedByPolicy
from multicentre.linkage.alignment import align
from support.msgl_sites import DENSE, GROUP, LISTED, NAMES, VIEWS, split

TERMS = messages.Settings("l2", 10.0, 0.0, 10.0, 5e-3, 50)
FIELDS = {name: getattr(TERMS, name) for name in messages.Settings.declarations()}
NONE = np.zeros((60, 60), np.float32)


def part(views=("view_1", "view_2"), *, places=None, n_common=60, data=None, incomplete=False):
    """Return the part of a site that has some of the views, aligned."""
    held = data or mc.data.MultiViewData({view: VIEWS[view] for view in views}, NAMES)
    made = FedMSGLSite("lab", held)
    made.common = Common(np.arange(len(held)) if places is None else places, n_common, frozenset({"lab"}), incomplete)
    return made


def refining(coupling=0.0, *, views=("view_1", "view_2"), distances=(0.0, 0.0), consensus=NONE, **changes):
    told = ("lab",) * len(views), tuple(views), np.asarray(distances, dtype=np.float64)
    given = dict(zip(("sites", "views", "distances"), told, strict=True)) | changes
    return messages.RefinementRequest(**FIELDS, **given, coupling=coupling, consensus=consensus)


def told(answer):
    """Return the distances that a site told, as the coordinator passes them on."""
    distances = np.array([answer.distances[view][0] for view in answer.distances])
    return messages.ViewDistances(("lab",) * len(distances), tuple(answer.distances), distances)


def coding(**changes):
    given = {"landmarks": np.arange(0, 60, 3), "nearest": 0, "first": 0, "last": 60} | changes
    return messages.CodingRequest(**{name: given.pop(name, value) for name, value in FIELDS.items()}, **given)


# --- what it answers


def test_relations_are_the_sum_of_the_lists_of_all_views():
    summed = unpack_pairs(part().relate(TERMS).relations, 60)
    lists = part().list_relations(TERMS)
    total = np.zeros((60, 60))
    for view in lists.places:
        one = module.LocalViews(part().data, part().common, "lab").express(view, TERMS)
        assert np.array_equal(one.columns, lists.neighbours[view])
        total += symmetrise(place_lists(one, 60)).toarray()
    assert np.abs(summed - total).max() == 0.0
    assert np.abs(total.sum(axis=1) / 2 - total.sum(axis=0) / 2).max() < 1e-12


def test_lists_hold_no_more_than_was_asked_for():
    lists = part().list_relations(dataclasses.replace(TERMS, top=4))
    for view in lists.places:
        assert lists.neighbours[view].shape == lists.shares[view].shape == (60, 4)
        assert not (lists.neighbours[view] == np.arange(60)[:, None]).any()


def test_patients_whom_the_site_lacks_have_no_relations_and_no_views():
    places = np.arange(0, 60, 2)
    half = {"data": mc.data.MultiViewData({"v": VIEWS["view_1"][::2]}, NAMES[::2]), "places": places}
    with pytest.raises(ConfigurationError, match="incomplete=True"):
        part(**half).relate(TERMS)
    made = part(**half, incomplete=True)
    assert made.describe(Nothing()).n_incomplete == 1
    relations = unpack_pairs(made.relate(TERMS).relations, 60)
    counted = unpack_pairs(made.count_shared(Nothing()).views, 60)
    assert not relations[1::2].any()
    assert np.array_equal(
        counted > 0, np.outer(np.arange(60) % 2 == 0, np.arange(60) % 2 == 0) & ~np.eye(60, dtype=bool)
    )


def test_parts_of_a_round_are_weighed_as_the_distances_say():
    made = part()
    first = told(made.refine(refining()))
    parts = made.sum_parts(first)
    assert parts.shared.sum() == pytest.approx(60 * 0.5, rel=0.05)
    second = told(made.refine(refining(20.0, distances=first.distances, consensus=parts.shared.astype(np.float32))))
    shared = {view: pair[0] for view, pair in made._parts.items()}
    weights = np.exp(-second.distances / second.distances.mean())
    expected = sum(w * C for w, C in zip(weights / weights.sum(), shared.values(), strict=True))
    assert np.abs(made.sum_parts(second).shared - expected).max() < 1e-12


# --- what it refuses

BAD_TERMS = {
    "norm": {"norm": "unit"},
    "no penalty": {"lambda_1": 0.0},
    "negative": {"lambda_3": -1.0},
    "huge": {"lambda_1": 1e12},
    "tiny": {"lambda_3": 1e-12},
    "by distance": {"lambda_2": -1e-9},
    "exact": {"tolerance": 0.0},
    "coarse": {"tolerance": 0.5},
    "empty": {"top": 0},
}
STEPS = {
    "relate": lambda made, terms: made.relate(dataclasses.replace(TERMS, **terms)),
    "list_relations": lambda made, terms: made.list_relations(dataclasses.replace(TERMS, **terms)),
    "code": lambda made, terms: made.code(coding(**terms)),
    "list_codes": lambda made, terms: made.list_codes(coding(**terms)),
    "refine": lambda made, terms: made.refine(dataclasses.replace(refining(), **terms)),
}


@pytest.mark.parametrize("name", BAD_TERMS)
@pytest.mark.parametrize("step", STEPS)
def test_terms_out_of_range_are_refused_by_every_step(step, name):
    made = part()
    with pytest.raises(ConfigurationError):
        STEPS[step](made, BAD_TERMS[name])
    STEPS[step](made, {})


@pytest.mark.parametrize("step", ["relate", "list_relations", "code", "list_codes"])
def test_a_session_has_one_set_of_terms(step):
    """Else differences between answers would tell more than one answer."""
    made = part()
    STEPS[step](made, {})
    with pytest.raises(RefusedByPolicy, match="settings must be the same"):
        STEPS[step](made, {"lambda_1": 11.0})
    with pytest.raises(RefusedByPolicy, match="settings must be the same"):
        STEPS[step](made, {"top": 10})


def test_landmarks_are_drawn_once():
    made = part()
    made.code(coding())
    made.code(coding(first=10, last=20))
    with pytest.raises(RefusedByPolicy, match="settings must be the same"):
        made.code(coding(landmarks=np.arange(0, 60, 2)))


def test_more_relations_than_patients_are_all_of_them():
    lists = part().list_relations(dataclasses.replace(TERMS, top=10**12))
    assert lists.shares["view_1"].shape == (60, 59)


HOSTILE = {
    "beyond the last": {"landmarks": np.array([1, 60])},
    "negative": {"landmarks": np.array([-1, 5])},
    "huge": {"landmarks": np.array([0, 2**62])},
    "twice": {"landmarks": np.array([4, 4, 9])},
    "descending": {"landmarks": np.array([9, 4])},
    "one": {"landmarks": np.array([3])},
    "none": {"landmarks": np.zeros(0, dtype=np.int64)},
    "empty block": {"first": 5, "last": 5},
    "block beyond": {"last": 61},
    "block before": {"first": -1},
    "huge block": {"last": 2**40},
    "too many nearest": {"nearest": 21},
    "negative nearest": {"nearest": -1},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_blocks_and_landmarks_that_do_not_exist_are_refused_before_any_kernel_runs(name, monkeypatch):
    from multicentre.clustering.fedmsgl import local_views

    reached = []
    for kernel in ("code_on_all", "code_on_nearest", "prepare_landmarks", "number_landmarks"):
        monkeypatch.setattr(local_views, kernel, lambda *given, _kernel=kernel, **more: reached.append(_kernel))
    for step in ("code", "list_codes"):
        with pytest.raises(ConfigurationError):
            getattr(part(), step)(coding(**HOSTILE[name]))
    assert not reached


@pytest.mark.parametrize("nearest", [0, 1, 5, 20])
def test_lists_of_landmarks_add_up_to_the_codes(nearest):
    codes = part().code(coding(nearest=nearest)).codes
    lists = part().list_codes(coding(nearest=nearest))
    total = np.zeros((60, 20))
    for view in lists.nearest:
        known = lists.nearest[view] >= 0
        rows = np.nonzero(known)[0]
        np.add.at(total, (rows, lists.nearest[view][known]), lists.shares[view][known])
    assert np.abs(codes - total).max() < 1e-6
    assert codes.sum(axis=1) == pytest.approx(2.0, abs=1e-4)
    assert not codes[np.arange(0, 60, 3), np.arange(20)].any()


def test_tables_of_too_many_pairs_are_refused(monkeypatch):
    from multicentre.clustering.fedmsgl import local_views

    monkeypatch.setattr(local_views, "MAX_PAIRED", 59)
    for request in (lambda made: made.relate(TERMS), lambda made: made.count_shared(Nothing())):
        with pytest.raises(ConfigurationError, match="landmarks"):
            request(part())


CONSENSUS = {
    "negative": np.full((60, 60), -1e-3, np.float32),
    "of fewer": np.zeros((59, 59), np.float32),
    "of more": np.zeros((61, 61), np.float32),
    "oblong": np.zeros((60, 59), np.float32),
}


@pytest.mark.parametrize("name", CONSENSUS)
def test_what_views_share_is_of_these_patients_and_not_negative(name):
    with pytest.raises(MulticentreError):
        part().refine(refining(consensus=CONSENSUS[name]).checked())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_views_share_is_finite(value):
    consensus = NONE.copy()
    consensus[3, 4] = value
    with mc.Federation.in_process(split(), policy=DENSE) as federation:
        opened = align(federation).federation.begin(FedMSGLSite)
        with pytest.raises(MulticentreError, match="finite"):
            opened.ask(FedMSGLSite.refine, refining(consensus=consensus))


def test_the_first_round_begins_from_nothing_and_what_is_shared_is_bounded():
    with pytest.raises(RefusedByPolicy, match="consecutive"):
        part().refine(refining(consensus=np.full((60, 60), 0.01, np.float32)))
    made = part()
    passed = told(made.refine(refining()))
    with pytest.raises(ConfigurationError, match="at most 64"):
        made.refine(refining(20.0, distances=passed.distances, consensus=np.full((60, 60), 65.0, np.float32)))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("terms", [{"top": 201}, {"lambda_1": 250.0, "lambda_3": 250.0}])
def test_terms_by_which_rows_could_be_worked_out_are_for_simulations(step, terms):
    """Many relations at a large penalty are linear in the inner products of rows."""
    STEPS[step](part(), terms)
    guarded = part()
    guarded.least_behind = 10
    with pytest.raises(ConfigurationError, match="inner products"):
        STEPS[step](guarded, terms)


def test_distances_are_told_to_two_digits():
    made, simulated = part(), part()
    made.least_behind = 10
    coarse, exact = (one.refine(refining()).distances for one in (made, simulated))
    assert exact.keys() == coarse.keys()
    for view, distance in coarse.items():
        assert float(distance[0]) == float(f"{exact[view][0]:.1e}") != float(exact[view][0])


def test_rounds_are_taken_in_turn_with_one_pull():
    with pytest.raises(RefusedByPolicy, match="consecutive"):
        part().refine(refining(20.0))
    made = part()
    answer = made.refine(refining())
    with pytest.raises(RefusedByPolicy, match="consecutive"):
        made.refine(refining())
    passed = told(answer)
    weak = refining(0.05, distances=passed.distances, consensus=NONE)
    with pytest.raises(RefusedByPolicy, match="hundredth"):
        made.refine(weak)
    answer = made.refine(dataclasses.replace(weak, coupling=20.0))
    with pytest.raises(RefusedByPolicy, match="consecutive"):
        made.refine(refining(21.0, distances=told(answer).distances))
    fresh = part()
    strong = refining(2e9, distances=told(fresh.refine(refining())).distances)
    with pytest.raises(ConfigurationError, match="coupling"):
        fresh.refine(strong)


def test_weights_follow_from_what_the_site_told():
    made = part()
    passed = told(made.refine(refining()))
    for hostile in (
        dataclasses.replace(passed, distances=passed.distances + 1.0),
        dataclasses.replace(passed, distances=passed.distances[:1]),
        dataclasses.replace(passed, views=("view_1", "view_9")),
        dataclasses.replace(passed, sites=("other", "other")),
        messages.ViewDistances((), (), np.zeros(0)),
    ):
        with pytest.raises(RefusedByPolicy, match="those that it returned"):
            made.sum_parts(hostile)
    made.sum_parts(passed)
    with pytest.raises(ConfigurationError, match="once per round"):
        made.sum_parts(passed)


def test_parts_are_told_after_a_round_alone():
    with pytest.raises(ConfigurationError, match="once per round"):
        part().sum_parts(messages.ViewDistances((), (), np.zeros(0)))


@pytest.mark.parametrize(
    "grouping",
    [
        messages.ClusterLabels(np.zeros(59, dtype=np.int64), 3),
        messages.ClusterLabels(np.zeros(0, dtype=np.int64), 3),
        messages.ClusterLabels(np.full(60, 3), 3),
        messages.ClusterLabels(np.full(60, -2), 3),
        messages.ClusterLabels(np.zeros(60, dtype=np.int64), 0),
        messages.ClusterLabels(np.zeros(60, dtype=np.int64), 61),
        messages.ClusterLabels(np.full(60, 2**62), 2**40),
    ],
)
def test_clusters_that_are_not_of_these_patients_are_refused(grouping):
    made = part()
    with pytest.raises(ConfigurationError, match="labels must be"):
        made.profile(grouping)
    found = made.profile(messages.ClusterLabels(np.unique(GROUP, return_inverse=True)[1], 3))
    assert found.sizes["view_1"].tolist() == [20, 20, 20]


def test_patients_in_no_cluster_are_in_no_profile():
    labels = np.unique(GROUP, return_inverse=True)[1]
    labels[np.flatnonzero(labels == 1)[:4]] = -1
    assert part().profile(messages.ClusterLabels(labels, 3)).sizes["view_1"].tolist() == [20, 16, 20]


def test_clusters_of_few_are_left_out_whatever_the_policy_says():
    labels = np.zeros(60, dtype=np.int64)
    labels[:9] = 1
    for least, kept in ((0, [51, 0]), (10, [51, 0]), (52, [0, 0])):
        made = part()
        made.least_behind = least
        found = made.profile(messages.ClusterLabels(labels, 2))
        assert found.sizes["view_1"].tolist() == kept
        assert not found.means["view_1"][1].any()


def test_a_site_that_was_not_aligned_says_so():
    made = FedMSGLSite("lab", mc.data.MultiViewData(VIEWS, NAMES))
    with pytest.raises(ConfigurationError, match="align"):
        made.describe(Nothing())


def test_two_patients_make_no_view():
    with pytest.raises(DataError, match="at least 3; got fewer"):
        part(data=mc.data.MultiViewData({"v": np.eye(2)}, NAMES[:2]), n_common=2).describe(Nothing())


@pytest.mark.parametrize("step", ["relate", "list_relations", "refine", "sum_parts", "code", "list_codes", "profile"])
def test_every_field_about_relations_names_the_permission_that_it_needs(step):
    releases = FedMSGLSite.steps()[step].releases
    if step == "refine":
        assert not releases.individual
        return
    needed = {declaration.permission for declaration in releases.declarations().values()}
    assert needed == {"relations=listed" if step in ("list_relations", "list_codes", "profile") else "relations=summed"}


def test_a_policy_of_lists_does_not_show_a_dense_sum():
    with mc.Federation.in_process(split(), policy=LISTED, secure_sum=False) as federation:
        opened = align(federation).federation.begin(FedMSGLSite)
        with pytest.raises(RefusedByPolicy, match="dense"):
            opened.sum(FedMSGLSite.relate, TERMS)
        with pytest.raises(ConfigurationError, match="sum"):
            opened.ask(FedMSGLSite.relate, TERMS)
