"""Times that differ by rounding alone are one time, the earliest of them."""

import numpy as np
import pytest

from multicentre.core.ties import TIE, tied_times


@pytest.mark.parametrize(
    ("time", "tied"),
    [
        ([0.1 + 0.2, 0.3], [0.3, 0.3]),
        ([3.0, 1.0, 2.0], [3.0, 1.0, 2.0]),
        ([0.0, 1e-12], [0.0, 1e-12]),
        ([365.25 * (1 + 0.9 * TIE), 365.25, 365.25 * (1 + 1.1 * TIE)], [365.25, 365.25, 365.25 * (1 + 1.1 * TIE)]),
        ([0.0, 7.0, 7.0 * (1 + 0.5 * TIE)], [0.0, 7.0, 7.0]),  # each relative to its own neighbour
        ([], []),
    ],
)
def test_the_earliest_of_tied_times_stands_for_all(time, tied):
    result = tied_times(np.array(time))
    assert result.dtype == np.float64
    assert result.tolist() == tied


def test_a_chain_of_near_times_does_not_grow_beyond_the_tolerance():
    """Each is within 0.6e-9 of the one before; only the second is within 1e-9 of the first."""
    chain = 7.0 * (1.0 + 0.6 * TIE * np.arange(4))
    assert tied_times(chain).tolist() == [chain[0], chain[0], chain[2], chain[2]]


def test_the_tolerance_is_relative():
    assert tied_times(np.array([1e-15, 1.5e-15])).tolist() == [1e-15, 1.5e-15]
    assert tied_times(np.array([1e6, 1e6 + 5e-4])).tolist() == [1e6, 1e6]


def test_the_shape_is_kept():
    assert tied_times(np.array([[2.0, 1.0], [1.0, 2.0]])).tolist() == [[2.0, 1.0], [1.0, 2.0]]
