"""From fits to lines: what is averaged over what."""

import dataclasses
import math

import pytest

from multicentre_papers.fed_mv_ppca.aggregate import Row, find, summarise
from multicentre_papers.fed_mv_ppca.measure import Figures


def row(mae_test, *, method="a", repetition=0, fold=0, converged=True):
    figures = Figures(0.1, mae_test, 0.9, -3.0, math.nan, math.nan, 7, converged, 0.5)
    return Row("sd", "IID", 3, method, repetition, fold, 5, figures)


def test_deviation_is_that_of_the_repetitions_means_over_folds():
    values = {0: (1.0, 3.0), 1: (4.0, 8.0), 2: (0.0, 2.0)}
    (line,) = summarise(row(v, repetition=r, fold=f) for r, folds in values.items() for f, v in enumerate(folds))
    assert line.mean["mae_test"] == pytest.approx(3.0)
    assert line.deviation["mae_test"] == pytest.approx(math.sqrt(7.0))
    assert (line.n_repetitions, line.n_fits) == (3, 6)


def test_unequal_numbers_of_folds_weigh_every_repetition_alike():
    (line,) = summarise([row(1.0), row(1.0, fold=1), row(4.0, repetition=1)])
    assert line.mean["mae_test"] == pytest.approx(2.5)


def test_one_repetition_has_no_deviation_and_an_absent_figure_stays_absent():
    (line,) = summarise([row(1.0), row(2.0, fold=1, converged=False)])
    assert math.isnan(line.deviation["mae_test"])
    assert math.isnan(line.mean["imputation_mae"])
    assert line.n_settled == 1


def test_lines_keep_the_order_of_the_rows_and_are_found_by_place():
    lines = summarise([row(1.0, method="b"), row(2.0, method="a"), row(3.0, method="b", repetition=1)])
    assert [line.method for line in lines] == ["b", "a"]
    assert find(lines, method="a", n_sites=3)[0].mean["mae_test"] == pytest.approx(2.0)
    assert find(lines, method="a", n_sites=6) == []


def test_a_flat_row_holds_every_field_once():
    flat = row(1.0).flat()
    fields = {field.name for kind in (Row, Figures) for field in dataclasses.fields(kind)} - {"figures"}
    assert set(flat) == fields
