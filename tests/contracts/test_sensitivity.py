"""What a release claims of its sensitivity holds for any patient, and would not without its clip."""

import importlib
import pkgutil

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import multicentre
from multicentre.core.steps import SitePart
from multicentre.errors import MulticentreError
from support.examples import examples
from support.private_cases import CASES

each_case = pytest.mark.parametrize("name", CASES)
extremes = st.sampled_from([0.0, 1e-9, 1.0, -1.0, 5.0, 1e3, -1e6, 1e12])
entries = st.one_of(extremes, st.floats(-10, 10, width=64))


def moved(case, rows, patient):
    """Return, for each field, by how much adding a patient moves the release, over what it declares."""
    before, after = case.release(rows), case.release(np.vstack([rows, patient]))
    declared = case.step.releases.declarations()
    orders = {"l1": 1, "l2": 2}
    return {
        field: np.linalg.norm(after[field] - before[field], orders[declared[field].norm]) / declared[field].sensitivity
        for field in before
    }


def rows_of(case, n):
    return np.random.default_rng(n).standard_normal((n, case.width))


@pytest.mark.filterwarnings("ignore::multicentre.data.screening.DataWarning")  # drawn entries may be -9
@each_case
@settings(examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_patient_moves_a_release_by_no_more_than_it_declares(name, data):
    case = CASES[name]
    patient = data.draw(npst.arrays(np.float64, (1, case.width), elements=entries))
    rows = rows_of(case, data.draw(st.sampled_from([3, 12])))
    if data.draw(st.booleans()):
        rows = np.vstack([rows, patient, patient])
    ratios = moved(case, rows, patient)
    assert max(ratios.values()) <= 1 + 1e-6


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@each_case
def test_no_ask_makes_a_patient_weigh_more_or_a_refusal_tell_of_one(name):
    case, answered = CASES[name], 0
    declared = case.step.releases.declarations()
    rows = rows_of(case, 12)
    for requests in case.hostile:
        for patient in (np.full((1, case.width), 3.0), 1e6 * np.ones((1, case.width)), np.zeros((1, case.width))):
            outcomes = [outcome(case, data, requests) for data in (rows, np.vstack([rows, patient]))]
            if isinstance(outcomes[0], dict) and isinstance(outcomes[1], dict):
                for field, before in outcomes[0].items():
                    moved_by = np.linalg.norm(outcomes[1][field] - before)
                    assert moved_by <= (1 + 1e-6) * declared[field].sensitivity, (requests, field)
                answered += 1
            assert type(outcomes[0]) is type(outcomes[1]), requests
    assert answered or not case.hostile


def outcome(case, rows, requests):
    try:
        return case.release(rows, requests)
    except MulticentreError as error:
        return error


@each_case
def test_the_claim_is_not_idle(name):
    case = CASES[name]
    patient = 1e3 * np.ones((1, case.width))
    assert max(moved(case, rows_of(case, 12), patient).values()) > 0.7


@each_case
def test_without_the_clip_the_claim_would_fail(name, monkeypatch):
    case = CASES[name]
    monkeypatch.setattr(case.clip, case.unclipped)
    patient = 1e3 * np.ones((1, case.width))
    assert max(moved(case, rows_of(case, 12), patient).values()) > 10


def test_every_release_that_declares_a_sensitivity_is_held_to_it():
    for module in pkgutil.walk_packages(multicentre.__path__, "multicentre."):
        if ".vae" not in module.name and "__main__" not in module.name:
            importlib.import_module(module.name)
    declared = {
        step.run
        for part in subclasses(SitePart)
        if part.__module__.startswith("multicentre.")
        for step in part.steps().values()
        if any(declaration.sensitivity is not None for declaration in step.releases.declarations().values())
    }
    covered = {case.step.run for case in CASES.values()}
    assert declared <= covered


def subclasses(kind):
    return {kind, *(deep for direct in kind.__subclasses__() for deep in subclasses(direct))}
