"""Patients as models show them that one site fits alone."""

import numpy as np
import pytest

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Patients, Prepared
from multicentre.survival.learners.cohort import group_for_travel

GRID = np.arange(1.0, 257.0)


def agreed_for(data):
    d = len(data.columns)
    return Prepared(
        data.columns, "", 1, 1.0, 1.0, GRID, np.zeros(d), np.ones(d), np.zeros(0), np.zeros(d + 1, dtype=np.int64)
    )


def test_no_place_shows_a_recorded_day():
    rng = np.random.default_rng(0)
    shown = set()
    for _ in range(20):
        data = SurvivalData(np.zeros((40, 1)), rng.choice(GRID, 40, replace=False), np.ones(40))
        patients = group_for_travel(data, agreed_for(data), 10)
        assert np.bincount(patients.bins, minlength=256)[np.unique(patients.bins)].min() >= 10
        shown |= set(np.unique(patients.bins).tolist())
    assert all((place + 1) % 2 == 0 for place in shown)


@pytest.mark.parametrize("n_rare", [9, 10])
def test_a_column_that_too_few_differ_in_is_constant(n_rare):
    X = np.column_stack([np.arange(60.0), np.arange(60) < n_rare])
    data = SurvivalData(X, np.arange(60.0), np.ones(60))
    patients = group_for_travel(data, agreed_for(data), 10)
    np.testing.assert_array_equal(patients.rows[:, 0], X[:, 0])
    assert patients.rows[:, 1].sum() == (n_rare if n_rare == 10 else 0)


@pytest.mark.parametrize("n_events", [9, 10])
def test_too_few_events_are_none(n_events):
    data = SurvivalData(np.zeros((60, 1)), np.arange(60.0), np.arange(60) < n_events)
    assert group_for_travel(data, agreed_for(data), 10).happened.sum() == (n_events if n_events == 10 else 0)


def test_without_a_minimum_they_are_as_they_are():
    rng = np.random.default_rng(1)
    data = SurvivalData(rng.normal(size=(30, 2)), rng.exponential(90.0, 30), rng.random(30) < 0.5)
    plain, grouped = Patients(data, agreed_for(data)), group_for_travel(data, agreed_for(data), 1)
    for name in ("bins", "happened", "rows"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(grouped, name))
