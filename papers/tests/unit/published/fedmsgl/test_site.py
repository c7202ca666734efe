"""Requests that a site of both algorithms refuses."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.steps import Common
from multicentre.errors import MulticentreError, RefusedByPolicy
from multicentre_papers.published.fedmsgl.site import AsPrintedSite, AsPublishedSite, IterationRequest
from support.msgl_sites import NAMES, VIEWS

each_part = pytest.mark.parametrize("kind", [AsPublishedSite, AsPrintedSite])


def part(kind=AsPublishedSite):
    """Return the part of a site that has two of the views, aligned."""
    made = kind("lab", mc.data.MultiViewData({view: VIEWS[view] for view in ("view_1", "view_2")}, NAMES))
    made.common = Common(np.arange(60), 60, frozenset({"lab"}))
    return made


def iterating(**changes):
    request = {
        "lambda_1": 100.0,
        "lambda_2": 1.0,
        "lambda_3": 1e-4,
        "n_local": 2,
        "seed": 0,
        "is_first": True,
        "consensus": np.eye(60),
    }
    return IterationRequest(**request | changes)


@each_part
@pytest.mark.parametrize(
    "changes",
    [
        {"lambda_1": 0.0},
        {"lambda_3": -1.0},
        {"lambda_2": -1.0},
        {"n_local": 0},
        {"n_local": 10**9},
        {"seed": -1},
        {"is_first": False},
        {"consensus": np.eye(59)},
        {"consensus": np.full((60, 60), np.nan)},
    ],
)
def test_iterations_out_of_range_are_refused(kind, changes):
    with pytest.raises(MulticentreError):
        part(kind).iterate(iterating(**changes))


def test_rounds_are_taken_in_turn():
    made = part()
    made.iterate(iterating())
    with pytest.raises(RefusedByPolicy, match="must be consecutive"):
        made.iterate(iterating())
    made.iterate(iterating(is_first=False))


def test_a_site_offers_no_step_of_the_corrected_method():
    assert set(AsPublishedSite.steps()) == {"describe", "iterate", "sum_parts", "profile"}
