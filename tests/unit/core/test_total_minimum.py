"""Totals over too few patients, and tables with small cells, are refused with the names of the values."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from multicentre.core.messages import array, arrays, texts
from multicentre.core.steps import Acknowledgement, Release
from multicentre.core.total_minimum import check_behind, check_cells, needs_minimum
from multicentre.errors import DisclosureRefused, IntegrityError


@dataclass(frozen=True)
class Tables(Release):
    """Two tables of patients, sums that are none, and sums by view."""

    events: np.ndarray = array("events by time", ("t",), dtype="i8", bound=1e6, counts=True)
    at_risk: np.ndarray = array("patients by time", ("t",), bound=1e6, counts=True)
    weights: np.ndarray = array("weights by time", ("t",), bound=1e6)
    sums: dict = arrays("sums by view", ("d",), bound=1e6)


@dataclass(frozen=True)
class Single(Release):
    """Values about single patients."""

    individual: ClassVar[bool] = True
    near: np.ndarray = array("how near", ("n",), bound=1.0)


@dataclass(frozen=True)
class Names(Release):
    """Names of columns."""

    columns: tuple = texts("names of columns", public=True)


def tables(events=(9, 9), at_risk=(9.0, 9.0), weights=(1.0, 2.0)):
    return Tables(np.array(events), np.array(at_risk), np.array(weights), {"blood": np.array([1.0])})


@pytest.mark.parametrize(("kind", "needed"), [(Tables, True), (Single, False), (Names, False)])
def test_sums_about_patients_need_a_minimum(kind, needed):
    assert needs_minimum(kind) is needed


BEHIND = {("events", ""): 7, ("sums", "blood"): 5, ("sums", "scan"): 0}


def test_zero_and_the_minimum_itself_are_enough():
    check_behind(Tables, BEHIND, 5)
    check_behind(Tables, {("events", ""): 2**40}, 5)
    check_behind(Tables, {}, 5)


def test_every_value_over_too_few_patients_is_named():
    with pytest.raises(DisclosureRefused) as caught:
        check_behind(Tables, {**BEHIND, ("sums", "genes"): 1, ("at_risk", ""): 7}, 6)
    assert caught.value.where == "Tables.sums[blood], Tables.sums[genes]"
    assert caught.value.what == "the total must rest on at least 6 patients of all sites; it rests on fewer"
    assert "min_patients_in_total" in caught.value.hint


@pytest.mark.parametrize("patients", [-1, 2**40 + 1])
def test_an_impossible_number_of_patients_is_a_wrong_number_of_a_site(patients):
    with pytest.raises(IntegrityError) as caught:
        check_behind(Tables, {("events", ""): 1, ("sums", "blood"): patients}, 5)
    assert caught.value.where == "Tables.sums[blood]"
    assert caught.value.what == "the number of patients behind a total must be from 0 to 2^40; it is outside"
    assert caught.value.hint == "One of the sites sent a wrong number; the masks hide which. Ask the stewards."


@pytest.mark.parametrize("cells", [(0, 5), (5, 6), (0, 0), ()])
def test_cells_of_zero_and_of_the_minimum_pass(cells):
    check_cells(tables(cells, np.array(cells, float), np.array(cells, float)), 5)


@pytest.mark.parametrize(("cell", "least"), [(1, 5), (4, 5), (1, 2), (8, 9)])
def test_a_small_cell_is_refused(cell, least):
    with pytest.raises(DisclosureRefused) as caught:
        check_cells(tables(events=(cell, least, 0)), least)
    assert caught.value.where == "Tables.events"
    assert caught.value.what == f"each cell of the total must be 0 or at least {least} patients; smaller cells: 1"
    assert "min_patients_in_total" in caught.value.hint


def test_every_table_is_named_with_the_number_of_its_small_cells():
    with pytest.raises(DisclosureRefused) as caught:
        check_cells(tables(events=(1, 4, 2), at_risk=(9.0, 3.5, 0.0)), 5)
    assert caught.value.where == "Tables.events, Tables.at_risk"
    assert caught.value.what.endswith("smaller cells: 3, 1")


def test_sums_that_are_no_table_may_be_small():
    check_cells(tables(weights=(0.5, 3.0)), 5)
    check_cells(Acknowledgement(), 5)
