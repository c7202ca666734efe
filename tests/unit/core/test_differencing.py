"""A site answers unmasked only for plans of folds and selections that differ by many patients."""

import numpy as np
import pytest

from multicentre.core.differencing import Division, EarlierAnswers, EarlierPredictions, UnmaskedAnswers
from multicentre.core.steps import Pieces
from multicentre.errors import DisclosureRefused

N, LEAST = 60, 10
HALVES = np.repeat([0, 1], 30)


def division(folds=HALVES, *, digest="first", source="hash", smallest=1, rows=None):
    rows = np.arange(len(folds)) if rows is None else rows
    return Division(np.asarray(folds), rows, digest, Pieces(source, smallest))


def admit(memory, rows, *divisions, count_patients=len, least=LEAST):
    memory.admit(np.asarray(rows), N, divisions or (division(),), least, count_patients)


def test_selections_of_one_plan_pass_as_often_as_they_come():
    memory = UnmaskedAnswers()
    for _ in range(2):
        for rows in (np.arange(30), np.arange(30, N), np.arange(N)):
            admit(memory, rows)


@pytest.mark.parametrize("few", [0, 1, -1])
def test_folds_of_few_and_few_in_no_fold_are_refused(few):
    folds = np.where(np.arange(N) < LEAST - 1, few, 2)
    with pytest.raises(DisclosureRefused, match="each fold, and the records in no fold, must be of at least 10"):
        admit(UnmaskedAnswers(), np.flatnonzero(folds == 2), division(folds))
    many = np.where(np.arange(N) < LEAST, few, 2)
    admit(UnmaskedAnswers(), np.flatnonzero(many == 2), division(many))


def test_patients_count_not_records():
    def one_in_three(rows):
        return len(np.unique(rows // 3))

    with pytest.raises(DisclosureRefused, match="at least 20 patients"):
        admit(UnmaskedAnswers(), np.arange(30), count_patients=one_in_three, least=20)
    admit(UnmaskedAnswers(), np.arange(30), count_patients=one_in_three, least=10)


@pytest.mark.parametrize("moved", [0, 1, 15])
@pytest.mark.parametrize(("sizes", "fits"), [((1, 1), False), ((10, 9), False), ((9, 10), False), ((10, 10), True)])
def test_a_second_plan_of_the_same_pieces_passes_only_where_all_pieces_are_of_many(moved, sizes, fits):
    """Whether the piece that moved holds somebody must not show: 0 moved records are refused likewise."""
    memory = UnmaskedAnswers()
    admit(memory, np.arange(30), division(smallest=sizes[0]))
    other = np.where(np.arange(N) < 30 - moved, 0, 1)
    second = division(other, digest="second", smallest=sizes[1])
    if not fits:
        with pytest.raises(DisclosureRefused, match="one plan of folds"):
            admit(memory, np.flatnonzero(other == 0), second)
    elif moved != 1:
        admit(memory, np.flatnonzero(other == 0), second)


def test_a_refused_plan_does_not_replace_the_first():
    memory = UnmaskedAnswers()
    admit(memory, np.arange(30))
    for _ in range(2):
        with pytest.raises(DisclosureRefused):
            admit(memory, np.arange(15), division(np.arange(N) // 15, digest="second"))
    admit(memory, np.arange(30, N))


def test_an_outer_plan_is_checked_too():
    memory = UnmaskedAnswers()
    admit(memory, np.arange(30))
    rows = np.arange(15, N)
    inner = division(np.arange(45) // 15, source="inner", rows=rows)
    admit(memory, rows[:15], division(), inner)
    with pytest.raises(DisclosureRefused, match="one plan of folds"):
        admit(memory, rows[:15], division(digest="second"), inner)


@pytest.mark.parametrize(
    ("rows", "fits"),
    [
        (range(29), False),
        (range(21), False),
        (range(20), True),
        (range(31), False),
        (range(40), True),
        (range(1, 31), True),
        (range(N - 1), False),
    ],
)
def test_a_selection_within_another_differs_by_many_patients(rows, fits):
    memory = UnmaskedAnswers()
    admit(memory, np.arange(30), division(source=""))
    if fits:
        admit(memory, rows, division(source=""))
    else:
        with pytest.raises(DisclosureRefused, match="must differ by at least 10 patients"):
            admit(memory, rows, division(source=""))


def test_plans_by_independent_draws_pass():
    memory, rng = UnmaskedAnswers(), np.random.default_rng(0)
    for repeat in range(20):
        folds = rng.permutation(np.arange(N) % 3)
        for fold in range(3):
            admit(memory, np.flatnonzero(folds == fold), division(folds, source=f"repeat {repeat}"))
            admit(memory, np.flatnonzero(folds != fold), division(folds, source=f"repeat {repeat}"))


def test_the_hint_of_a_refusal_names_masks_where_other_sites_take_part():
    for n_sites, hint in ((1, "Use the existing plan"), (2, "Mask the sums (secure_sum=True). Use the existing plan")):
        memory = UnmaskedAnswers()
        admit(memory, np.arange(30), division(source=""))
        with pytest.raises(DisclosureRefused) as caught:
            memory.admit(np.arange(29), N, (division(source=""),), LEAST, len, n_sites)
        assert caught.value.hint.startswith(hint)
        assert caught.value.where == "records"


def test_a_policy_that_allows_single_patients_allows_every_selection():
    memory = UnmaskedAnswers()
    for rows in ([0], [0, 1], range(N - 1), range(N)):
        admit(memory, rows, least=1)


def test_a_plan_that_was_answered_for_is_not_counted_again():
    """Other rows, other folds or another request are another plan."""
    memory, counted = UnmaskedAnswers(), []

    def count_patients(rows):
        counted.append(len(rows))
        return len(rows)

    admit(memory, np.arange(30), count_patients=count_patients)
    assert counted[:2] == [30, 30]  # both folds
    for other, expected in (
        (division(), []),
        (division(smallest=LEAST, digest="second"), [30, 30]),
        (division(np.repeat([1, 0], 30)), [30, 30]),
        (division(rows=np.arange(N)[::-1]), [30, 30]),
    ):
        counted.clear()
        memory._plans["hash"] = division(smallest=LEAST)
        admit(memory, np.arange(30), other, count_patients=count_patients)
        assert counted == expected


# Predictions of models


RISING = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
LEVEL = np.full(6, 3.0)


def distances_of(earlier, predicted):
    """Return the distances from an earlier model as they are counted, one array each."""
    memory, distances = EarlierPredictions(), []
    memory.fewest_apart("rows", np.column_stack([earlier]), len)
    memory.fewest_apart("rows", np.column_stack([predicted]), lambda column: distances.append(column) or 0)
    return distances


@pytest.mark.parametrize(
    ("earlier", "predicted", "residuals", "ranks"),
    [
        (RISING, 2.0 * RISING + 7.0, [0.0] * 6, [0.0] * 6),
        (RISING, -RISING, [0.0] * 6, [5.0, 3.0, 1.0, -1.0, -3.0, -5.0]),
        (RISING, LEVEL, [0.0] * 6, [2.5, 1.5, 0.5, -0.5, -1.5, -2.5]),
        (0.1 * RISING, 0.3 * RISING, [0.0] * 6, [0.0] * 6),  # a variance below 1
        (LEVEL, RISING, [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]),
        (RISING, np.exp(RISING), None, [0.0] * 6),
        (RISING, np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1.0]), None, [0.5, 1.0, 1.0, 1.0, 1.0, -4.5]),
    ],
)
def test_models_are_compared_by_residuals_and_by_ranks(earlier, predicted, residuals, ranks):
    """Residuals of a least-squares line ignore shift and scale; ranks ignore any rising transformation."""
    by_line, by_rank = distances_of(earlier, predicted)
    if residuals is None:
        residuals = predicted - np.polyval(np.polyfit(earlier, predicted, 1), earlier)
    np.testing.assert_allclose(by_line, residuals, atol=1e-11)
    np.testing.assert_array_equal(by_rank, ranks)


def test_the_smallest_number_of_patients_apart_is_returned():
    """Every column of a prediction is compared with the same column of every earlier model of the same shape."""
    memory, numbers, seen = EarlierPredictions(), iter([0, 7, 4, 0, 9, 5, 0, 8]), []

    def count(column):
        seen.append(column)
        return next(numbers)

    first, second = np.column_stack([RISING, LEVEL]), np.column_stack([LEVEL, RISING])
    assert memory.fewest_apart("rows", first, count) == 0
    assert memory.fewest_apart("other rows", second, count) == 0
    assert memory.fewest_apart("rows", first.copy(), count) == 0
    assert memory.fewest_apart("rows", RISING[:, None], count) == 0
    assert seen == []
    assert memory.fewest_apart("rows", second, count) == 4
    assert len(seen) == 4
    assert memory.fewest_apart("other rows", first, count) == 5
    assert memory.fewest_apart("rows", second, count) == 0
    assert len(seen) == 8


def test_the_number_of_models_is_limited(monkeypatch):
    monkeypatch.setattr("multicentre.core.differencing.MAX_MODELS", 2)
    memory = EarlierPredictions()
    models = [RISING[:, None] ** power for power in (1, 2, 3)]
    for model in models[:2]:
        memory.fewest_apart("rows", model, len)
    with pytest.raises(DisclosureRefused, match="at most 2 models may be scored unmasked") as caught:
        memory.fewest_apart("rows", models[2], len)
    assert caught.value.where == "model"
    assert memory.fewest_apart("rows", models[0], len) == 0
    memory.fewest_apart("other rows", models[2], len)


# Aligned records


def patients(rows):
    """Count patients with two records each."""
    return len(np.unique(rows // 2))


@pytest.mark.parametrize(
    ("before", "after", "fits"),
    [
        (range(40), range(40), True),
        (range(40), range(60), True),
        (range(40), range(58), False),
        (range(40), range(2, 42), False),
        (None, range(40), True),
        (None, range(42), False),
        (range(42), None, False),
        (range(40), None, True),
        (None, None, True),
    ],
)
def test_aligned_records_differ_from_earlier_ones_by_many_patients(before, after, fits):
    """60 records of 30 patients; at least 10 patients must differ."""
    memory, data = EarlierAnswers(), np.zeros(N)
    rows = [None if one is None else np.array(one) for one in (before, after)]
    memory.admit(rows[0], data, LEAST, patients, "lyon")
    if fits:
        memory.admit(rows[1], data, LEAST, patients, "lyon")
    else:
        with pytest.raises(DisclosureRefused, match="or differ from them by at least 10 patients") as caught:
            memory.admit(rows[1], data, LEAST, patients, "lyon")
        assert caught.value.where == "lyon"


def test_records_are_remembered_once_and_refused_ones_not():
    memory, data = EarlierAnswers(), np.zeros(N)
    for rows in (range(40), range(40), range(20)):
        memory.admit(np.array(rows), data, LEAST, patients, "lyon")
    with pytest.raises(DisclosureRefused):
        memory.admit(np.arange(38), data, LEAST, patients, "lyon")
    assert [len(rows) for rows in memory.aligned] == [40, 20]
    assert not memory.includes_all
    memory.admit(None, data, LEAST, patients, "lyon")
    assert memory.includes_all
    assert [len(rows) for rows in memory.aligned] == [40, 20]
