"""What an event tensor refuses, each with an error that names the argument."""

import numpy as np
import pytest

from multicentre.data import EventTensor
from multicentre.errors import DataError

CODES = {"procedure": ["p1", "p2"], "diagnosis": ["d1", "d2"]}


def tensor(coordinates=((0, 0, 0), (1, 1, 1)), counts=(1.0, 2.0), codes=CODES, **more):
    return EventTensor(coordinates, counts, codes, **more)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"coordinates": [[0, 0, 0], [2**40, 0, 0]]},
            "coordinates must be at most 2147483647",
        ),
        (
            {"coordinates": [[0, 0, 0], [2**31, 0, 0]]},
            "coordinates must be at most 2147483647",
        ),
        (
            {"coordinates": [[0, 0, 0], [1, 2**32, 0]]},
            "coordinates must be at most 2147483647",
        ),
        (
            {"coordinates": [[0, 0, 0], [0, -(2**32), 0]]},
            "coordinates must be within the 1 x 2 x 2 tensor",
        ),
        ({"coordinates": [[0, 0, 0], [2**70, 0, 0]]}, "coordinates"),
        ({"coordinates": [[0, 0, 0], [1]]}, "coordinates must be an array of numbers"),
        ({"counts": ["x", 1.0]}, "counts must be an array of numbers"),
        ({"counts": [[1.0], 1.0]}, "counts must be an array of numbers"),
        ({"counts": 3.0}, "coordinates"),
        ({"counts": [1.0, 1e300]}, r"counts must be from 1e-06 to 2\^31"),
        ({"counts": [1.0, 2.0**31 + 1]}, r"counts must be from 1e-06 to 2\^31"),
        ({"counts": [1e-300, 1e-7]}, r"counts must be from 1e-06 to 2\^31"),
        ({"counts": [np.nan, np.inf]}, r"counts must be from 1e-06 to 2\^31"),
        ({"n_patients": "a"}, "n_patients"),
        ({"n_patients": 2.5}, "n_patients"),
        ({"n_patients": 2**40}, "n_patients"),
        ({"n_patients": -3}, "data must have at least one patient; got 0"),
        ({"n_patients": 1}, "coordinates must be within the 1 x 2 x 2 tensor; 1 are outside"),
        ({"codes": None}, "modes: codes must be a mapping of at least two modes to lists of codes"),
        (
            {"codes": [["p1", "p2"], ["d1", "d2"]]},
            "modes: codes must be a mapping of at least two modes to lists of codes",
        ),
        ({"codes": {**CODES, "procedure": None}}, "mode 'procedure': a mode must be text, with a list of codes"),
        ({"codes": {**CODES, "procedure": "p1"}}, "mode 'procedure': a mode must be text, with a list of codes"),
        ({"codes": {1: ["p1", "p2"], "diagnosis": ["d1", "d2"]}}, "mode 1: a mode must be text, with a list of codes"),
        (
            {"codes": {**CODES, "procedure": ["p1", "\ud800"]}},
            "codes must be valid Unicode",
        ),
        (
            {"codes": {"\udfff": ["p1", "p2"], "d": ["d1", "d2"]}},
            "codes must be valid Unicode",
        ),
        ({"outcomes": [[1], 0]}, "outcomes"),
        ({"outcomes": ["1", "0"]}, "outcomes"),
        ({"outcomes": [None, 1]}, "outcomes"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(given, says):
    with pytest.raises(DataError, match=says) as error:
        tensor(**given)
    str(error.value).encode()


def test_what_lies_just_within_is_taken():
    made = tensor(counts=[1e-6, 2.0**31], codes={**CODES, "diagnosis": ["d1", "é🩺\ud7ff"]}, n_patients=np.int64(3))
    assert made.counts.tolist() == [1e-6, 2.0**31]
    assert len(made) == 3
