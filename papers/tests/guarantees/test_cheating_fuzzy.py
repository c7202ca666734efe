"""A coordinator that forges clusters singles nobody out, and asks for nothing that a site cannot check."""

from dataclasses import replace

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError, SchemaMismatch
from multicentre_papers.baselines.fuzzy import limits, messages
from multicentre_papers.baselines.fuzzy.estimator import FedMVFCM, FedMVFPC
from multicentre_papers.baselines.fuzzy.site import MVFCMSite

LEAST, N, D = 10, 120, 5
SIZES = {"blood": 2, "image": 3}
X = np.random.default_rng(0).normal(size=(N, D))
DATA = mc.data.MultiViewData({"blood": X[:, :2], "image": X[:, 2:]})
COLUMNS = {view: DATA.columns[view] for view in SIZES}
STANDARDS = messages.Standards(("blood", "image"), COLUMNS, np.zeros(D), np.ones(D))


def part_of(data=DATA, *, masked=False):
    """Return a site part that was told units of a coordinator's choice: the rows as they are."""
    part = MVFCMSite("lyon", data)
    part.masked = masked
    part.prepare(STANDARDS)
    return part


def ask(*centres, m=1.005):
    return messages.Clusters(np.array(centres, dtype=float), np.ones(2), m, False)


VICTIM = X[17]
NEAR_VICTIM = ask(VICTIM, *(VICTIM + 0.5 * np.vstack([np.eye(D), -np.eye(D)])))


def test_a_cluster_around_one_patient_counts_one_patient_unmasked():
    answer = part_of().sum_memberships(NEAR_VICTIM)
    assert np.allclose(answer.moments[0] / answer.masses[0, 0], VICTIM, atol=1e-3)
    assert answer.patients == 1
    assert part_of(masked=True).sum_memberships(NEAR_VICTIM).patients == N


LINE = np.column_stack([np.arange(N) / 10, 0.1 * X[:, 1:]])
IN_LINE = mc.data.MultiViewData({"blood": LINE[:, :2], "image": LINE[:, 2:]})
MIDDLE, NEXT = 6.05, 6.15


def halves(cut):
    """Return two clusters that part the patients at a value of the first column."""
    left, right = np.zeros(D), np.zeros(D)
    left[0], right[0] = cut - 1, cut + 1
    return replace(ask(left, right), view_weights=np.array([1.0, 0.0]))


def in_groups(size):
    """Return patients of whom so many have the same row."""
    rows = np.repeat(LINE[50:70], size, axis=0)
    return mc.data.MultiViewData({"blood": rows[:, :2], "image": rows[:, 2:]})


@pytest.mark.parametrize("size", [1, LEAST - 1, LEAST])
def test_a_difference_of_two_clusterings_is_of_as_many_patients_as_either_is_said_to_rest_on(size):
    part = part_of(in_groups(size))
    one, other = (part.sum_memberships(halves(cut)) for cut in (MIDDLE, NEXT))
    assert np.allclose((other.moments - one.moments)[0], size * LINE[61], atol=1e-2)
    assert one.patients == other.patients == size


@pytest.mark.parametrize("kind", [FedMVFCM, FedMVFPC])
def test_an_unmasked_fit_is_refused_at_its_first_round_unless_enough_patients_share_every_row(kind):
    for size in (LEAST - 1, LEAST):
        with mc.Federation.in_process(dict.fromkeys(("a", "b"), in_groups(size)), secure_sum=False) as federation:
            if size == LEAST:
                kind(2, n_init=1).fit(federation)
            else:
                with pytest.raises(DisclosureRefused, match="secure_sum=True"):
                    kind(2, n_init=1).fit(federation)
            told = [entry for entry in federation.ledgers["a"].entries if entry["event"] == "release"]
            assert ("sum_memberships" in {entry["step"] for entry in told}) == (size == LEAST)


def test_a_site_of_few_patients_is_refused():
    rows = {"a": range(60), "b": range(60, 115), "c": range(115, 120)}
    sites = {name: DATA.take(own) for name, own in rows.items()}
    with (
        mc.Federation.in_process(sites) as federation,
        pytest.raises(DisclosureRefused, match="policy's minimum of 10"),
    ):
        FedMVFCM(2, n_init=1).fit(federation)


BAD = {
    "centres of other columns": replace(NEAR_VICTIM, centres=np.zeros((2, D + 1))),
    "no centre": replace(NEAR_VICTIM, centres=np.zeros((0, D))),
    "too many centres": replace(NEAR_VICTIM, centres=np.zeros((limits.MAX_CLUSTERS + 1, D))),
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
    assert part.state.n_requests == 0


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
            part.column_totals(messages.Measured(*_layout(), units))
        with pytest.raises(MessageError):
            part.column_squares(messages.Centred(*_layout(), units, np.zeros(D)))


def _layout():
    return STANDARDS.views, STANDARDS.columns


@pytest.mark.parametrize(
    "layout",
    [
        messages.Layout(("blood",), {"blood": COLUMNS["blood"]}),
        messages.Layout(("blood", "image"), {**COLUMNS, "image": COLUMNS["image"][::-1]}),
        messages.Layout(("blood", "image", "image"), COLUMNS),
        messages.Layout(("blood", "image"), {**COLUMNS, "other": ("x",)}),
    ],
    ids=["a view is missing", "columns in another order", "a view twice", "a column of no view"],
)
def test_other_views_or_columns_are_refused(layout):
    with pytest.raises(SchemaMismatch):
        MVFCMSite("lyon", DATA).column_orders(layout)


def test_a_site_that_agreed_on_nothing_answers_nothing():
    with pytest.raises(ConfigurationError, match="without agreed units"):
        MVFCMSite("lyon", DATA).sum_memberships(NEAR_VICTIM)


def test_asks_without_end_are_refused(monkeypatch):
    monkeypatch.setattr(limits, "MAX_REQUESTS", 3)
    part = part_of()
    for _ in range(3):
        part.sum_memberships(halves(MIDDLE))
    with pytest.raises(ConfigurationError, match="max_iter"):
        part.sum_memberships(halves(MIDDLE))


def test_a_site_describes_names_alone():
    told = MVFCMSite("lyon", DATA).describe(Nothing())
    assert told.views == ("blood", "image")
    assert not type(told).tells_of_patients()
