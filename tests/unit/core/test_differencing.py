"""A site answers unmasked only for plans of folds and selections that differ by many patients."""

import numpy as np
import pytest

from multicentre.core.differencing import Division, UnmaskedAnswers
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
