"""A coordinator that forges trees singles nobody out, and learns of nobody from what a site refuses."""

from dataclasses import replace

import numpy as np
import pytest

import multicentre as mc
from multicentre.boosting import Ensemble, messages
from multicentre.boosting.site import BoostingSite
from multicentre.data.missing.filling import Means
from multicentre.data.missing.values import Handling
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError

LEAST, N = 10, 200


def i4(*values):
    return np.array(values, dtype=np.int32)


def f4(*values):
    return np.array(values, dtype=np.float32)


rng = np.random.default_rng(0)
X = rng.normal(60, 9, size=(N, 3))
CLASSES = mc.data.TableData(X, rng.integers(0, 2, N))
COUNTS = mc.data.TableData(X, rng.poisson(3, N), outcome="number")
FINE = np.unique(np.quantile(X[:, 0], np.linspace(0.45, 0.55, 60)).astype(np.float32))
COARSE = np.linspace(40, 80, 41, dtype=np.float32)
START = messages.Start(
    cuts=np.concatenate([FINE, COARSE, COARSE]), n_cuts=i4(len(FINE), 41, 41), objective="binary:logistic",
    columns=CLASSES.columns, classes=CLASSES.classes, base=f4(0), positive=1.0, slope_exponent=-20,
    curvature_exponent=-20, loss_exponent=-20,
)  # fmt: skip
ROOT = messages.Trees(i4(0), i4(-1), i4(0), np.zeros(1, dtype=np.uint8), f4(0))


def stump(cut, below=0.0, above=0.0, column=0):
    nodes = i4(column, -1, -1), i4(cut, 0, 0), np.zeros(3, dtype=np.uint8), f4(0, below, above)
    return messages.Trees(i4(0), *nodes)


def begun(data=CLASSES, start=START, *, masked=False):
    part = BoostingSite("lyon", data)
    part.masked, part.least_behind = masked, LEAST
    part.begin(start)
    return part


def sums_of(part, growing, wanted=(0,), finished=None, since=0):
    finished = finished or messages.Trees.none()
    return part.sum_gradients(messages.Level.of(since, finished, growing, list(wanted), counted=True))


def ensemble(objective, base, *trees):
    trees = trees or (ROOT,)
    both = messages.Trees.none()
    for tree in trees:
        both = both.followed_by(tree)
    classes = {"binary:logistic": ("0", "1"), "multi:softprob": ("0", "1")}.get(objective, ())
    zeros = np.zeros(len(both.column), dtype=np.float32)
    return Ensemble(
        objective, ("a", "b", "c"), classes, base, both.roots, np.zeros(len(trees), dtype=np.int32), both.column,
        zeros, both.default_left, both.value, zeros, zeros, zeros,
    )  # fmt: skip


@pytest.mark.parametrize("masked", [False, True])
def test_of_one_round_the_sums_of_one_tree_are_told(masked):
    part = begun(masked=masked)
    sums_of(part, stump(30), (1,))
    sums_of(part, stump(30), (2, 1))
    with pytest.raises(ConfigurationError, match="got changed splits"):
        sums_of(part, ROOT)
    for other in (stump(31), stump(30, column=1), replace(stump(30), default_left=np.ones(3, dtype=np.uint8))):
        with pytest.raises(ConfigurationError, match="got changed splits"):
            sums_of(part, other, (1,))
    deeper = messages.Trees(i4(0), i4(0, -1, 1, -1, -1), i4(30, 0, 5, 0, 0), np.zeros(5, dtype=np.uint8), f4(*[0] * 5))
    sums_of(part, deeper, (3, 4))
    renumbered = messages.Trees(
        i4(0), i4(0, 1, 1, *[-1] * 4), i4(30, 7, 5, *[0] * 4), np.zeros(7, dtype=np.uint8), f4(*[0] * 7)
    )
    with pytest.raises(ConfigurationError, match="got changed splits"):
        sums_of(part, renumbered, (3,))
    with pytest.raises(ConfigurationError, match="got different trees"):
        sums_of(part, ROOT, finished=stump(31))
    sums_of(part, ROOT, finished=deeper)


def alike(n_alike=LEAST):
    """Return records of which at least so many share their bins and their class."""
    made = np.random.default_rng(1)
    groups = np.repeat(X[:20], n_alike, axis=0)
    return mc.data.TableData(groups, np.repeat(made.integers(0, 2, 20), n_alike))


def kish(weights):
    return weights.sum() ** 2 / np.square(weights).sum() if weights.any() else len(weights)


def test_unmasked_sums_of_forged_trees_state_the_number_of_records_behind_them():
    made = np.random.default_rng(1)
    data = alike()
    for _ in range(20):
        finished = messages.Trees.none()
        for _ in range(3):
            finished = finished.followed_by(stump(made.integers(5, 35), *made.normal(0, 6, 2), made.integers(1, 3)))
        part, growing = begun(data), stump(int(made.integers(5, 35)), column=1)
        answer = sums_of(part, growing, (1, 2), finished)
        assert answer.patients >= LEAST
        records = part._records
        leaves = records._descend(growing, None)[0]
        slope, curvature = np.abs(records._derivatives[0].astype(float)).T
        for row, leaf in enumerate((1, 2)):
            for column, first in enumerate(START.first[:-1]):
                for cell in np.flatnonzero(answer.sums[row, first : START.first[column + 1], 2]):
                    here = (leaves == leaf) & (records._binned[:, column] == cell)
                    assert min(here.sum(), kish(slope[here]), kish(curvature[here])) >= LEAST - 1e-6


def test_forged_trees_change_nothing_in_how_few_records_an_unmasked_answer_is_said_to_rest_on():
    window = stump(16, 200, 0, 1).followed_by(stump(19, 0, -200, 1))
    finished = window.followed_by(stump(16, 60, 0, 2)).followed_by(stump(19, 0, 60, 2))
    part = begun(alike(LEAST - 1))
    assert sums_of(part, ROOT).patients == LEAST - 1
    assert sums_of(part, ROOT, finished=finished).patients == LEAST - 1
    with mc.Federation.in_process(dict.fromkeys(("lyon", "oslo"), alike(LEAST - 1)), secure_sum=False) as federation:
        opened = federation.begin(BoostingSite)
        opened.ask(BoostingSite.begin, START)
        with pytest.raises(DisclosureRefused, match="the answer must have at least 10 patients behind it"):
            opened.sum(BoostingSite.sum_gradients, messages.Level.of(0, messages.Trees.none(), ROOT, [0], counted=True))
        with pytest.raises(DisclosureRefused, match="the answer must have at least 10 patients behind it"):
            opened.sum(BoostingSite.sum_losses, messages.Finished(**messages.Trees.none().fields, since=0))


@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson"])
def test_trees_whose_values_add_up_to_too_much_are_refused_whatever_the_records(objective):
    base = f4(0, 0) if objective == "multi:softprob" else f4(0)
    largest = 200.0 if objective == "count:poisson" else 6e29
    ensemble(objective, base, stump(3, largest, 0)).check()
    for trees in ((stump(3, largest, 0), stump(4, 0, largest)), (stump(3, 0, 3e38), stump(3, 0, 3e38))):
        with pytest.raises(MessageError, match=r"margins must be at most 1e\+30 for any record"):
            ensemble(objective, base, *trees).check()
    with pytest.raises(MessageError, match=r"margins must be at most 1e\+30 for any record"):
        ensemble(objective, base + np.float32(1.5e30), stump(3)).check()


@pytest.mark.parametrize("inside", [True, False])
def test_a_fit_takes_in_no_value_too_large_whether_or_not_somebody_gets_it(inside):
    cut = 20 if inside else -1
    part = begun()
    with pytest.raises(MessageError, match=r"margins must be at most 1e\+30 for any record"):
        part.sum_losses(messages.Finished(**stump(cut, 2e30, 0).fields, since=0))
    part.sum_losses(messages.Finished(**stump(cut, 9e29, 0).fields, since=0))
    with pytest.raises(MessageError, match=r"margins must be at most 1e\+30 for any record"):
        part.sum_losses(messages.Finished(**stump(cut, 9e29, 0).fields, since=1))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson"])
def test_no_admissible_margin_makes_a_site_refuse(objective, masked):
    classes = objective in ("binary:logistic", "multi:softprob")
    start = replace(START, objective=objective, classes=CLASSES.classes if classes else (), slope_exponent=-260)
    many = objective == "multi:softprob"
    start = replace(start, base=f4(0, 0) if many else f4(0))
    sites = dict.fromkeys(("lyon", "oslo"), CLASSES if classes else COUNTS)
    for value in (-9e29, 250.0 if objective == "count:poisson" else 9e29):
        tree = stump(20, value, value, 1)
        trees = stump(20, value / 4, value / 4, 1) if many else tree
        finished = trees.followed_by(trees) if many else tree
        growing = ROOT.followed_by(ROOT) if many else ROOT
        with mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0), secure_sum=masked) as federation:
            opened = federation.begin(BoostingSite)
            opened.ask(BoostingSite.begin, start)
            wanted = [0, 1] if many else [0]
            opened.sum(BoostingSite.sum_gradients, messages.Level.of(0, finished, growing, wanted, counted=True))
            opened.sum(BoostingSite.sum_losses, messages.Finished(**finished.fields, since=0))


def test_sums_of_outcomes_in_any_unit_are_answered():
    for unit in (-260, -30, 0):
        assert BoostingSite("lyon", COUNTS).sum_outcomes(messages.InUnits(unit)).total[0] <= messages.MAX_SUM


def with_gaps(every=5):
    rows = X.copy()
    rows[::every, 0] = np.nan
    return mc.data.TableData(rows, CLASSES.y)


def test_missing_entries_are_filled_once_and_only_as_the_fit_agreed():
    """Filled a second time with other means, sums over the same records would differ by those who miss an entry."""
    means = Means(np.array([60.0, 60.0, 60.0]))
    columns = CLASSES.columns
    for missing in ("native", "complete", None):
        part = BoostingSite("lyon", with_gaps())
        part.masked = True
        if missing:
            part.count_gaps(Handling(missing, columns))
        with pytest.raises(ConfigurationError):
            part.fill_gaps(means)
    part = BoostingSite("lyon", with_gaps())
    part.masked = True
    part.count_gaps(Handling("mean", columns))
    with pytest.raises(ConfigurationError, match="means must match the columns"):
        part.fill_gaps(Means(np.array([60.0, 60.0])))
    part.fill_gaps(means)
    part.fill_gaps(means)
    with pytest.raises(ConfigurationError, match="means must be those of the first request"):
        part.fill_gaps(Means(np.array([61.0, 60.0, 60.0])))
    assert part.data.X[0].tolist() == [60.0, *X[0, 1:].tolist()]
    assert np.array_equal(part.data.X[1:5], X[1:5])


def test_unmasked_sums_of_columns_that_few_records_know_are_refused():
    few = X.copy()
    few[:, 0] = np.where(np.arange(N) < LEAST - 1, X[:, 0], np.nan)
    part = BoostingSite("lyon", mc.data.TableData(few, CLASSES.y))
    part.least_behind = LEAST
    assert part.count_gaps(Handling("mean", CLASSES.columns)).patients < LEAST
    sites = {"lyon": mc.data.TableData(few, CLASSES.y), "oslo": CLASSES}
    federation = mc.Federation.in_process(sites, secure_sum=False, one_row_per_patient=True)
    with federation, pytest.raises(DisclosureRefused, match="count_gaps"):
        mc.boosting.FedXGBClassifier(1, missing="mean").fit(federation)
