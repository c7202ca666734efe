"""A coordinator that forges clusters singles nobody out in clear, and asks for nothing that a site cannot check."""

from dataclasses import replace

import numpy as np
import pytest

import multicentre as mc
from multicentre.clustering.fuzzy import limits
from multicentre.clustering.fuzzy import messages as sent
from multicentre.clustering.fuzzy.crowds import count_behind
from multicentre.clustering.fuzzy.estimator import FedMVFCM, FedMVFPC
from multicentre.clustering.fuzzy.site import MVFCMSite
from multicentre.federation.errors import ConfigurationError, DisclosureRefused, MessageError, SchemaMismatch
from multicentre.federation.messages import Nothing
from multicentre.federation.wire import decode, encode

LEAST, N, D = 10, 120, 5
SIZES = {"blood": 2, "image": 3}
X = np.random.default_rng(0).normal(size=(N, D))
DATA = mc.data.MultiViewData({"blood": X[:, :2], "image": X[:, 2:]})
COLUMNS = {view: DATA.columns[view] for view in SIZES}
STANDARDS = sent.Standards(("blood", "image"), COLUMNS, np.zeros(D), np.ones(D))


def part_of(data=DATA, *, least=LEAST, masked=False):
    """Return a site part that was told units of a coordinator's choice: the rows as they are."""
    part = MVFCMSite("lyon", data)
    part.least_behind, part.masked = least, masked
    part.prepare(STANDARDS)
    return part


def ask(*centres, m=1.005):
    return sent.Clusters(np.array(centres, dtype=float), np.ones(2), m, False)


VICTIM = X[17]
NEAR_VICTIM = ask(VICTIM, *(VICTIM + 0.5 * np.vstack([np.eye(D), -np.eye(D)])))


def test_a_cluster_around_one_patient_tells_the_row_where_nothing_protects_it():
    answer = part_of(least=0).sum_memberships(NEAR_VICTIM)
    assert np.allclose(answer.moments[0] / answer.masses[0, 0], VICTIM, atol=1e-3)


def test_a_cluster_around_one_patient_is_left_out_and_the_patient_counts_elsewhere():
    part = part_of()
    answer = part.sum_memberships(NEAR_VICTIM)
    assert not answer.moments[0].any()
    assert not answer.masses[0].any()
    assert LEAST <= answer.patients < N
    assert (part.state.weights[-1][17] ** (1 / 1.005)).sum() == pytest.approx(1)


def test_every_forged_cluster_that_leaves_amounts_to_as_many_as_the_policy_wants():
    rng = np.random.default_rng(1)
    for _ in range(50):
        part, c = part_of(), int(rng.integers(2, 30))
        answer = part.sum_memberships(ask(*X[rng.permutation(N)[:c]] + 0.01, m=float(rng.uniform(1.005, 3))))
        weights = part.state.weights[-1]
        kept = weights.any(axis=0)
        assert count_behind(weights, part.rows.shown)[kept].min() >= LEAST - 1e-6
        assert np.allclose(weights.T @ X, answer.moments)
        assert answer.patients >= LEAST


LINE = np.column_stack([np.arange(N) / 10, 0.1 * X[:, 1:]])
IN_LINE = mc.data.MultiViewData({"blood": LINE[:, :2], "image": LINE[:, 2:]})
MIDDLE, NEXT, FAR, FARTHER = 6.05, 6.15, 9.05, 3.05


def halves(cut):
    """Return two clusters that part the patients at a value of the first column."""
    left, right = np.zeros(D), np.zeros(D)
    left[0], right[0] = cut - 1, cut + 1
    return replace(ask(left, right), view_weights=np.array([1.0, 0.0]))


def test_two_clusterings_that_differ_by_one_patient_give_one_answer():
    def difference(least):
        part = part_of(IN_LINE, least=least)
        one = part.sum_memberships(halves(MIDDLE)).moments
        return part.sum_memberships(halves(NEXT)).moments - one

    assert np.allclose(difference(0)[0], LINE[61], atol=1e-3)
    assert not difference(LEAST).any()


def moments(part, *asked):
    return [part.sum_memberships(one).moments for one in asked]


def test_a_clustering_that_differs_by_one_patient_from_an_earlier_one_is_not_answered_either():
    """A, a far B, then A with one patient moved: compared with B alone the last would pass."""
    asked = halves(MIDDLE), halves(FAR), halves(NEXT)
    first, _, third = moments(part_of(IN_LINE, least=0), *asked)
    assert np.allclose(third[0] - first[0], LINE[61], atol=1e-3)
    first, second, third = moments(part_of(IN_LINE), *asked)
    assert not np.array_equal(first, second)
    assert np.array_equal(third, first)


@pytest.mark.parametrize("n_moved", [2, 5, 9])
def test_nor_is_one_that_differs_from_an_earlier_one_by_fewer_patients_than_the_minimum(n_moved):
    moved = halves(MIDDLE + n_moved / 10)
    first, _, third = moments(part_of(IN_LINE), halves(MIDDLE), halves(FAR), moved)
    assert np.array_equal(third, first)
    assert not np.array_equal(moments(part_of(IN_LINE), halves(FAR), moved)[1], first)


def test_clusters_listed_in_another_order_are_compared_all_the_same():
    turned = halves(NEXT)
    turned = replace(turned, centres=turned.centres[::-1].copy())
    first, second = moments(part_of(IN_LINE, least=0), halves(MIDDLE), turned)
    assert np.allclose(second[1] - first[0], LINE[61], atol=1e-3)
    first, second = moments(part_of(IN_LINE), halves(MIDDLE), turned)
    assert np.array_equal(second, first[::-1])


def parts(first, *cuts, m=1.005):
    """Return clusters that part the patients at several values of the first column, the first centre at a value."""
    found = np.zeros((len(cuts) + 1, D))
    found[0, 0] = first
    for place, cut in enumerate(cuts):
        found[place + 1, 0] = 2 * cut - found[place, 0]
    return replace(ask(*found, m=m), view_weights=np.array([1.0, 0.0]))


def test_joined_clusters_that_differ_by_one_patient_are_not_answered():
    """Many move in each of four clusters, but the first two together gain one patient."""
    asked = parts(1.55, 3.05, 6.05, 9.05), parts(3.0, 4.05, 6.15, 8.05)
    first, second = moments(part_of(IN_LINE, least=0), *asked)
    assert np.allclose((second - first)[:2].sum(axis=0), LINE[61], atol=1e-2)
    first, second = moments(part_of(IN_LINE), *asked)
    assert np.array_equal(first, second)


def test_no_combination_of_whatever_leaves_rests_mostly_on_one_patient():
    rng = np.random.default_rng(2)
    part = part_of(IN_LINE)
    for _ in range(100):
        part.sum_memberships(parts(0.0, *np.cumsum(rng.uniform(0.5, 3.0, size=3)), m=1.2))
    told = part.state.weights
    assert 3 <= len(told) < 100
    stacked = told.transpose(1, 0, 2).reshape(N, -1)
    for patient in range(N):
        best = stacked @ np.linalg.lstsq(stacked, np.eye(N)[patient], rcond=1e-12)[0]
        assert np.square(best)[patient] < 0.5 * np.square(best).sum()


def test_a_site_that_was_restored_answers_and_refuses_the_same():
    part, other = part_of(IN_LINE), part_of(IN_LINE)
    cuts = [MIDDLE, FAR, FARTHER]
    for cut in cuts:
        part.sum_memberships(halves(cut))
    other.state = decode(sent.Memory, encode(part.state))
    for cut in (NEXT, 4.55, 7.55, FAR):
        one, two = (each.sum_memberships(halves(cut)) for each in (part, other))
        assert np.array_equal(one.moments, two.moments)
    assert np.array_equal(part.state.weights, other.state.weights)


def test_only_as_many_answers_leave_as_are_remembered(monkeypatch):
    monkeypatch.setattr(limits, "MOST_IN_CLEAR", 2)
    first, second, third = moments(part_of(IN_LINE), *(halves(cut) for cut in (MIDDLE, FAR, FARTHER)))
    assert not np.array_equal(first, second)
    assert any(np.array_equal(third, known) for known in (first, second))


def test_which_answer_is_repeated_follows_from_the_centres_that_are_asked():
    part = part_of(IN_LINE)
    first, _ = moments(part, halves(MIDDLE), halves(FAR))
    turned = replace(halves(NEXT), centres=halves(NEXT).centres[::-1].copy())
    one, other = moments(part, halves(NEXT), turned)
    assert np.array_equal(one, first)
    assert np.array_equal(other, first[::-1])


def test_a_stale_answer_is_an_earlier_one_in_every_field():
    part = part_of(IN_LINE)
    first, second = (part.sum_memberships(halves(cut)) for cut in (MIDDLE, NEXT))
    for name in sent.MembershipSums.declarations():
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert part.sum_memberships(halves(FAR)).moments[0].tolist() != first.moments[0].tolist()


def test_a_masked_ask_in_between_does_not_wipe_the_memory():
    part = part_of(IN_LINE)
    first = part.sum_memberships(halves(MIDDLE))
    part.masked = True
    part.sum_memberships(halves(NEXT))
    part.masked = False
    assert np.array_equal(part.sum_memberships(halves(NEXT)).moments, first.moments)


def test_another_number_of_clusters_is_another_fit():
    part = part_of(IN_LINE)
    part.sum_memberships(halves(MIDDLE))
    with pytest.raises(ConfigurationError, match="other clusters"):
        part.sum_memberships(NEAR_VICTIM)


@pytest.mark.parametrize("kind", [FedMVFCM, FedMVFPC])
def test_an_honest_fit_in_clear_moves_many_patients_or_none(kind, monkeypatch):
    released = []
    step = MVFCMSite.__mro__[1].__dict__["_answer_in_clear"]

    def record(self, given, distances):
        known = 0 if self.state.weights is None else len(self.state.weights)
        answer = step(self, given, distances)
        told = self.state.weights
        if known and len(told) > known:
            released.extend(np.abs(told[-1] - before) for before in told[:-1])
        return answer

    monkeypatch.setattr(MVFCMSite.__mro__[1], "_answer_in_clear", record)
    rng = np.random.default_rng(3)
    rows = 2 * np.eye(2, D)[rng.integers(0, 2, 3 * N)] + rng.normal(size=(3 * N, D))
    drawn = mc.data.MultiViewData({"blood": rows[:, :2], "image": rows[:, 2:]})
    sites = {f"site-{i}": drawn.take(np.arange(i, 3 * N, 3)) for i in range(3)}
    with mc.Federation.in_process(sites) as federation:
        kind(2, n_init=2).fit(federation)
    assert len(released) > 10
    for moved in released:
        changed = moved.max(axis=0) > 0
        shown = np.ones((len(moved), 2))
        assert not changed.any() or count_behind(moved[:, changed], shown).min() >= LEAST - 1e-6


def test_few_patients_are_refused_by_the_guard_and_hidden_by_masks():
    sites = {
        name: DATA.take(rows) for name, rows in {"a": range(60), "b": range(60, 115), "c": range(115, 120)}.items()
    }
    with mc.Federation.in_process(sites) as federation, pytest.raises(DisclosureRefused, match="secure_sum=True"):
        FedMVFCM(2, n_init=1).fit(federation)


BAD = {
    "centres of other columns": replace(NEAR_VICTIM, centres=np.zeros((2, D + 1))),
    "no centre": replace(NEAR_VICTIM, centres=np.zeros((0, D))),
    "too many centres": replace(NEAR_VICTIM, centres=np.zeros((limits.MOST_CLUSTERS + 1, D))),
    "far centres": replace(NEAR_VICTIM, centres=np.full((2, D), 1e12)),
    "weights of other views": replace(NEAR_VICTIM, view_weights=np.ones(3)),
    "a negative weight": replace(NEAR_VICTIM, view_weights=np.array([1.0, -1.0])),
    "no weight": replace(NEAR_VICTIM, view_weights=np.zeros(2)),
    "a huge weight": replace(NEAR_VICTIM, view_weights=np.array([1.0, 1e200])),
    "no fuzziness": replace(NEAR_VICTIM, fuzziness=1.0),
    "too little fuzziness": replace(NEAR_VICTIM, fuzziness=1.0 + 1e-12),
    "too much fuzziness": replace(NEAR_VICTIM, fuzziness=1e6),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("masked", [False, True])
def test_clusters_out_of_range_are_refused_before_anything_is_computed(name, masked):
    part = part_of(masked=masked)
    with pytest.raises(MessageError):
        part.sum_memberships(BAD[name].checked())
    assert part.state.n_asked == 0


def test_what_is_not_finite_never_reaches_a_site():
    with pytest.raises(MessageError, match="finite"):
        ask([np.nan] * D).checked()


def test_units_are_taken_once_and_only_sober_ones():
    for spread in (np.zeros(D), np.full(D, 1e-300), np.full(D, -1.0), np.ones(D + 1)):
        with pytest.raises(MessageError):
            MVFCMSite("lyon", DATA).prepare(replace(STANDARDS, spread=spread))
    part = part_of()
    part.prepare(STANDARDS)
    with pytest.raises(ConfigurationError, match="other units"):
        part.prepare(replace(STANDARDS, centre=np.ones(D)))


def test_units_of_sums_are_checked():
    part = MVFCMSite("lyon", DATA)
    for units in (np.zeros(D), np.full(D, -1.0), np.ones(2)):
        with pytest.raises(MessageError):
            part.column_totals(sent.Measured(*_layout(), units))
        with pytest.raises(MessageError):
            part.column_squares(sent.Centred(*_layout(), units, np.zeros(D)))


def _layout():
    return STANDARDS.views, STANDARDS.columns


@pytest.mark.parametrize(
    "layout",
    [
        sent.Layout(("blood",), {"blood": COLUMNS["blood"]}),
        sent.Layout(("blood", "image"), {**COLUMNS, "image": COLUMNS["image"][::-1]}),
        sent.Layout(("blood", "image", "image"), COLUMNS),
        sent.Layout(("blood", "image"), {**COLUMNS, "other": ("x",)}),
    ],
    ids=["a view is missing", "columns in another order", "a view twice", "a column of no view"],
)
def test_other_views_or_columns_are_refused(layout):
    with pytest.raises(SchemaMismatch):
        MVFCMSite("lyon", DATA).column_orders(layout)


def test_a_site_that_agreed_on_nothing_answers_nothing():
    with pytest.raises(ConfigurationError, match="agreed on nothing"):
        MVFCMSite("lyon", DATA).sum_memberships(NEAR_VICTIM)


def test_asks_without_end_are_refused(monkeypatch):
    monkeypatch.setattr(limits, "MOST_ASKED", 3)
    part = part_of()
    for _ in range(3):
        part.sum_memberships(halves(MIDDLE))
    with pytest.raises(ConfigurationError, match="n_rounds"):
        part.sum_memberships(halves(MIDDLE))


def test_a_site_describes_names_alone():
    told = MVFCMSite("lyon", DATA).describe(Nothing())
    assert told.views == ("blood", "image")
    assert not type(told).tells_of_patients()
