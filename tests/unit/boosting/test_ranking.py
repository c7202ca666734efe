"""The area under the curve from counts by cell next to scikit-learn's, with ties and with its stated error."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from multicentre.boosting.ranking import area, find_area


def counter(margins, y, requests):
    def count(borders):
        assert (np.diff(borders) > 0).all()
        requests.append(len(borders))
        cells = np.searchsorted(borders, margins, "right")
        return np.array([np.bincount(cells[y == place], minlength=len(borders) + 1) for place in (0, 1)])

    return count


@pytest.mark.parametrize("scale", [1e-3, 1.0, 4.0])
@pytest.mark.parametrize("n_values", [5, 300, 2**40])
def test_the_area_is_that_of_the_margins(scale, n_values):
    rng = np.random.default_rng(3)
    y = (rng.random(800) < 0.3).astype(int)
    places = np.round((0.5 + 0.1 * rng.normal(size=800) + 0.05 * y) * n_values) / n_values
    margins, requests = np.float32(scale * (places - 0.5)), []
    found, error = find_area(counter(margins, y, requests))
    expected = roc_auc_score(y, margins)
    assert abs(found - expected) <= error + 1e-12
    assert len(requests) <= 4
    assert max(requests) < 2**14
    if scale >= 1.0:
        assert found == pytest.approx(expected, abs=1e-8)


def test_margins_beyond_all_borders_count_as_tied_and_the_error_says_so():
    margins, y = np.float32([-40.0, -30.0, 30.0, 40.0]), np.array([0, 1, 0, 1])
    found, error = find_area(counter(margins, y, []))
    assert (found, error) == (0.5, 0.25)
    assert abs(found - roc_auc_score(y, margins)) <= error


def test_one_class_has_no_area():
    assert np.isnan(area(np.array([[0, 0], [1, 2]]))).all()
