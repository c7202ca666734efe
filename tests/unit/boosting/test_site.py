"""What a site refuses of a coordinator, and how many records stand behind its answers."""

from dataclasses import replace

import numpy as np
import pytest

import multicentre as mc
from multicentre.boosting import messages
from multicentre.boosting.site import BoostingSite
from multicentre.core.messages import Nothing
from multicentre.core.wire import decode, encode
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, MessageError, SchemaMismatch


def i4(*values):
    return np.array(values, dtype=np.int32)


def f4(*values):
    return np.array(values, dtype=np.float32)


rng = np.random.default_rng(0)
X = np.round(rng.normal(size=(120, 2)), 2)
X[:7, 1] = np.nan
DATA = mc.data.TableData(X, (X[:, 0] > 0.3).astype(int))
NUMBERS = mc.data.TableData(X, 50 + X[:, 0], outcome="number")
START = messages.Start(
    cuts=f4(-1, 0, 1, 0), n_cuts=i4(3, 1), objective="binary:logistic", columns=("x0", "x1"), classes=("0", "1"),
    base=f4(0), positive=1.0, slope_exponent=-30, curvature_exponent=-30, loss_exponent=-30,
)  # fmt: skip
LEAF = messages.Trees(i4(0), i4(-1), i4(0), np.zeros(1, dtype=np.uint8), f4(0))
SPLIT = messages.Trees(i4(0), i4(0, -1, -1), i4(1, 0, 0), np.zeros(3, dtype=np.uint8), f4(0, -1, 1))


def begun(data=DATA, start=START):
    part = BoostingSite("lyon", data)
    part.begin(start)
    return part


def level(growing=LEAF, wanted=(0,), since=0, done=None, **changes):
    request = messages.Level.of(since, done or messages.Trees.none(), growing, list(wanted), counted=True)
    return replace(request, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"cuts": f4(0, -1, 1, 0)},
        {"cuts": f4(0, 0, 1, 0)},
        {"n_cuts": i4(3, 2)},
        {"n_cuts": i4(5, -1)},
        {"n_cuts": i4(4)},
        {"objective": "rank:ndcg"},
        {"objective": "multi:softprob"},
        {"base": f4(1e35)},
        {"base": f4(0, 0)},
        {"positive": 0.0},
        {"positive": 1e9},
        {"slope_exponent": 4000},
        {"loss_exponent": -900},
    ],
    ids=repr,
)
def test_a_start_that_is_out_of_range_is_refused(changes):
    with pytest.raises(MessageError):
        begun(start=replace(START, **changes))


@pytest.mark.parametrize("changes", [{"columns": ("x1", "x0")}, {"classes": ("no", "yes")}, {"classes": ()}], ids=repr)
def test_other_columns_or_classes_are_refused(changes):
    with pytest.raises(SchemaMismatch):
        begun(start=replace(START, **changes))


def test_a_fit_begins_once():
    part = begun()
    part.begin(START)
    with pytest.raises(ConfigurationError, match="settings must be those of the first request"):
        part.begin(replace(START, positive=2.0))


@pytest.mark.parametrize(
    "changes",
    [
        {"wanted": i4(0, 0)},
        {"wanted": i4(1)},
        {"wanted": i4(-1)},
        {"wanted": i4()},
        {"column": i4(0)},
        {"column": i4(-2)},
        {"roots": i4()},
        {"roots": i4(3)},
        {"since": 1},
        {"since": -1},
    ],
    ids=repr,
)
def test_a_level_that_is_out_of_range_is_refused(changes):
    with pytest.raises((MessageError, ConfigurationError)):
        begun().sum_gradients(level(**changes))


@pytest.mark.parametrize(
    "tree",
    [
        replace(SPLIT, column=i4(2, -1, -1)),
        replace(SPLIT, cut=i4(4, 0, 0)),
        replace(SPLIT, cut=i4(-2, 0, 0)),
        replace(SPLIT, column=i4(0, 0, -1)),
    ],
)
def test_trees_of_other_columns_or_bins_are_refused(tree):
    part = begun()
    with pytest.raises(MessageError):
        part.sum_gradients(level(tree, wanted=(1,)))
    with pytest.raises(MessageError):
        part.sum_losses(messages.Finished(**tree.fields, since=0))


def test_levels_whose_sums_are_too_large_are_refused():
    wide = mc.data.TableData(np.zeros((30, 10)), np.arange(30) % 2)
    cuts = np.tile(np.linspace(0, 1, 1000, dtype=np.float32), 10)
    start = replace(START, cuts=cuts, n_cuts=np.full(10, 1000, dtype=np.int32), columns=wide.columns)
    column = np.full(2**13 - 1, -1, dtype=np.int32)
    column[: 2**12 - 1] = 0
    zeros = np.zeros(len(column), dtype=np.int32)
    full = messages.Trees(i4(0), column, zeros, zeros.astype(np.uint8), zeros.astype(np.float32))
    part = begun(wide, start)
    part.sum_gradients(level(full, wanted=range(2**12 - 1, 2**12 + 9)))
    with pytest.raises(MessageError, match="sums must have at most"):
        part.sum_gradients(level(full, wanted=range(2**12 - 1, 2**13 - 1)))


def test_finished_trees_cannot_be_skipped_changed_or_taken_back():
    part = begun()
    part.sum_gradients(level(done=SPLIT))
    again = part.sum_gradients(level(done=SPLIT))
    np.testing.assert_array_equal(again.sums, part.sum_gradients(level(since=1)).sums)
    for request in (level(done=replace(SPLIT, value=f4(0, -2, 1))), level(since=2), level()):
        with pytest.raises(ConfigurationError):
            part.sum_gradients(request)


def test_what_a_site_remembers_makes_the_same_answers():
    part = begun()
    first = part.sum_gradients(level(done=SPLIT))
    again = BoostingSite("lyon", DATA)
    again.state = decode(messages.Memory, encode(part.state))
    second = again.sum_gradients(level(done=SPLIT))
    np.testing.assert_array_equal(first.sums, second.sums)
    np.testing.assert_array_equal(first.losses, second.losses)


def test_sums_are_those_of_the_records():
    part = begun()
    answer = part.sum_gradients(level(SPLIT, wanted=(2, 1)))
    left = X[:, 0] < 0
    slope = np.where(DATA.y == 1, -0.5, 0.5)
    assert answer.sums.shape == (2, 8, 3)
    first = part.memory.first
    for row, here in enumerate((~left, left)):
        for column in range(2):
            cells = answer.sums[row, first[column] : first[column + 1]].sum(axis=0)
            assert (cells / [2**30, 2**30, 1]).tolist() == [slope[here].sum(), 0.25 * here.sum(), here.sum()]
        assert answer.sums[row, first[2] - 1, 2] == np.isnan(X[here, 1]).sum()


def grouped(size):
    """Return records in groups of the same bins and outcome, the smallest of a given size."""
    rows = np.array([[-2.0, 0.5], [-0.5, -1.0], [0.5, np.nan], [2.0, 0.5], [2.0, 0.5]])
    place = np.repeat(np.arange(5), [30, 25, size, 20, 40])
    return mc.data.TableData(rows[place], np.array([0, 0, 1, 1, 0])[place])


@pytest.mark.parametrize("size", [9, 10])
def test_sums_of_every_round_rest_on_the_fewest_records_with_one_set_of_bins_and_one_outcome(size):
    part = begun(grouped(size))
    root = part.sum_gradients(level())
    deeper = part.sum_gradients(level(SPLIT, wanted=(1, 2), done=SPLIT))
    losses = part.sum_losses(messages.Finished(**SPLIT.fields, since=0))
    assert root.patients == deeper.patients == losses.patients == size
    part.masked = True
    assert part.sum_losses(messages.Finished(**SPLIT.fields, since=0)).patients == 115 + size


def test_records_of_two_outcomes_in_the_same_bins_are_two_groups():
    data = grouped(10)
    y = data.y.copy()
    y[np.flatnonzero(data.X[:, 0] == -2.0)[:3]] = 1
    assert begun(mc.data.TableData(data.X, y)).sum_gradients(level()).patients == 3


def test_sums_are_the_same_under_a_mask_and_without():
    part = begun()
    part.least_behind = 10
    unmasked = part.sum_gradients(level(SPLIT, wanted=(1, 2)))
    part.masked = True
    masked = part.sum_gradients(level(SPLIT, wanted=(1, 2)))
    np.testing.assert_array_equal(unmasked.sums, masked.sums)
    np.testing.assert_array_equal(unmasked.losses, masked.losses)
    assert (unmasked.patients, masked.patients) == (1, 120)


def test_classes_and_magnitudes_are_counted_as_they_are():
    rare = BoostingSite("lyon", mc.data.TableData(X, (np.arange(120) < 4).astype(int)))
    sizes = BoostingSite("lyon", mc.data.TableData(X, np.where(np.arange(120) < 4, 1e6, 1.0), outcome="number"))
    for part, step, request in ((rare, "count_classes", messages.OfClasses(2)), (sizes, "count_magnitudes", Nothing())):
        part.least_behind = 10
        answer = getattr(part, step)(request)
        assert sorted(answer.counts[answer.counts > 0].tolist()) == [4, 116]
        assert answer.patients == 4
        part.masked = True
        assert getattr(part, step)(request).patients == 120


def test_outcomes_are_summed_in_one_unit_and_a_unit_that_few_reach_counts_for_few():
    part = BoostingSite("lyon", NUMBERS)
    assert part.sum_outcomes(messages.InUnits(-20)).total[1] == 120
    with pytest.raises(ConfigurationError, match="that of the first request; got -21"):
        part.sum_outcomes(messages.InUnits(-21))
    outlier = mc.data.TableData(X, np.where(np.arange(120) == 5, 4e6, 1.0), outcome="number")
    part = BoostingSite("lyon", outlier)
    assert part.sum_outcomes(messages.InUnits(20)).patients == 1
    with pytest.raises(ConfigurationError, match="from -260 to 259"):
        BoostingSite("lyon", NUMBERS).sum_outcomes(messages.InUnits(10**6))


def test_outcomes_of_the_other_kind_and_negative_counts_are_refused():
    for step, request, data in (
        ("count_classes", messages.OfClasses(2), NUMBERS),
        ("count_classes", messages.OfClasses(1), DATA),
        ("count_magnitudes", Nothing(), DATA),
        ("sum_outcomes", messages.InUnits(0), DATA),
    ):
        with pytest.raises(SchemaMismatch):
            getattr(BoostingSite("lyon", data), step)(request)
    counts = replace(START, objective="count:poisson", classes=())
    with pytest.raises(DataError, match="outcomes must be at least 0 for count:poisson"):
        begun(mc.data.TableData(X, X[:, 0], outcome="number"), counts)


def test_values_beyond_single_precision_are_refused():
    with pytest.raises(DataError, match="single precision"):
        BoostingSite("lyon", mc.data.TableData([[1e39], [1.0]], [0, 1])).describe(Nothing())


def test_nothing_is_summed_before_a_fit_begins():
    with pytest.raises(ConfigurationError, match="the fit must begin with its settings"):
        BoostingSite("lyon", DATA).sum_gradients(level())


WEIGHTED = mc.data.TableData(np.column_stack([X, np.arange(120) / 8.0, X[:, 0]]), DATA.y)


def with_roles(data=WEIGHTED, *, masked=False, least=1, **changes):
    part = BoostingSite("lyon", data)
    part.masked, part.least_behind = masked, least
    part.assign_columns(messages.Roles(("x2",), ("x3",)))
    part.begin(replace(START, weights=("x2",), margins=("x3",), weight_exponent=-3.0, **changes))
    return part


def test_columns_with_a_role_are_no_features_and_have_one_role():
    part = with_roles()
    assert part.quantile_values().shape == (120, 2)
    part.assign_columns(messages.Roles(("x2",), ("x3",)))
    with pytest.raises(ConfigurationError, match="columns must have one role"):
        part.assign_columns(messages.Roles(("x3",), ()))
    again = BoostingSite("lyon", WEIGHTED)
    again.state = part.state
    with pytest.raises(ConfigurationError, match="columns must have one role"):
        again.assign_columns(messages.Roles((), ("x3",)))
    with pytest.raises(ConfigurationError, match="columns must have one role"):
        BoostingSite("lyon", WEIGHTED).assign_columns(messages.Roles(("x2",), ("x2",)))
    with pytest.raises(SchemaMismatch, match="must be columns of the data; got dose"):
        BoostingSite("lyon", WEIGHTED).assign_columns(messages.Roles(("dose",), ()))


def test_sums_of_weighted_records_are_those_of_their_weights():
    answer = with_roles().sum_losses(messages.Finished(**messages.Trees.none().fields, since=0))
    weights, margins = WEIGHTED.X[:, 2], np.float32(WEIGHTED.X[:, 3]).astype(float)
    losses = np.log1p(np.exp(np.where(DATA.y == 1, -margins, margins)))
    assert answer.losses[1] == weights.sum() * 8
    assert answer.losses[0] / 2**30 == pytest.approx((weights * losses).sum(), rel=1e-7)


@pytest.mark.parametrize("weight", [-1.0, 2e6, np.nan])
def test_weights_out_of_range_are_refused(weight):
    columns = WEIGHTED.X.copy()
    columns[5, 2] = weight
    with pytest.raises(DataError, match="weights must be numbers from 0"):
        with_roles(mc.data.TableData(columns, DATA.y))


@pytest.mark.parametrize("margin", [np.nan, 81.0])
def test_first_margins_out_of_range_are_refused(margin):
    columns = WEIGHTED.X.copy()
    columns[5, 3] = margin
    with pytest.raises(DataError, match="first margins must be numbers of at most 80"):
        with_roles(mc.data.TableData(columns, DATA.y))


@pytest.mark.parametrize(
    "changes",
    [
        {"subsample": 0.0, "seed": 1.0},
        {"subsample": 0.5},
        {"seed": 1.0},
        {"power": 1.5},
        {"objective": "reg:tweedie", "classes": ()},
        {"distribution": ("normal",)},
        {"events": ("x2",)},
        {"scale": 1.0},
        {"objective": "survival:aft", "classes": ()},
        {"objective": "survival:aft", "classes": (), "distribution": ("weibull",), "scale": 1.0},
        {"objective": "survival:aft", "classes": (), "distribution": ("normal",), "scale": 1e4},
        {"weight_exponent": 3.0},
        {"weights": ("x2",)},
        {"weights": ("x2", "x3"), "weight_exponent": 3.0},
        {"margins": ("x2", "x3")},
        {"margins": ("x2",), "base": f4(1)},
    ],
    ids=repr,
)
def test_options_that_do_not_fit_together_are_refused(changes):
    with pytest.raises(MessageError):
        messages.check_start(replace(START, **changes), 2)


def test_drawn_records_are_summed_only_under_a_mask_where_a_minimum_holds():
    sampled = replace(START, subsample=0.5, seed=3.0)
    part = BoostingSite("lyon", DATA)
    part.least_behind = 10
    with pytest.raises(DisclosureRefused, match="sums over drawn records must be masked"):
        part.begin(sampled)
    part.masked = True
    part.begin(sampled)
    first = part.sum_gradients(level()).sums[0, :5, 2].sum()
    second = part.sum_gradients(level(done=SPLIT)).sums[0, :5, 2].sum()
    assert 30 < first < 90
    assert 30 < second < 90
    assert part.sum_losses(messages.Finished(**SPLIT.fields, since=0)).losses[1] == 120


def test_records_are_counted_by_class_and_margin():
    part, borders = begun(), f4(-0.5, 0.5)
    ranking = messages.Ranking(**SPLIT.fields, since=0, borders=borders)
    sums = part.count_ranks(ranking).sums
    left = X[:, 0] < 0
    assert sums.tolist() == [
        [int(((DATA.y == place) & side).sum()) for side in (left, left & ~left, ~left)] for place in (0, 1)
    ]
    for wrong in (f4(), f4(0, 0), f4(1, 0), np.arange(2**14 + 1, dtype=np.float32)):
        with pytest.raises(MessageError, match="borders must be"):
            part.count_ranks(replace(ranking, borders=wrong))


def test_unmasked_counts_by_margin_rest_on_the_fewest_alike():
    part = begun(grouped(9))
    ranking = messages.Ranking(**SPLIT.fields, since=0, borders=f4(0))
    assert part.count_ranks(ranking).patients == 9
    part.masked = True
    assert part.count_ranks(ranking).patients == 124


def test_records_with_other_weights_are_other_groups():
    data = grouped(10)
    weights = np.ones(len(data))
    weights[0] = 2.0
    part = BoostingSite("lyon", mc.data.TableData(np.column_stack([data.X, weights]), data.y))
    part.assign_columns(messages.Roles(("x2",), ()))
    part.begin(replace(START, weights=("x2",), weight_exponent=0.0))
    assert part.sum_gradients(level()).patients == 1
    assert part.sum_outcomes(messages.InUnits(0, 1.0)).patients == 1
