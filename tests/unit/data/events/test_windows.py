import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data.events.windows import join

side = st.sets(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=8)


@given(st.lists(side, min_size=2, max_size=4), st.integers(0, 5))
def test_a_join_finds_every_choice_that_lies_close(sides, reach):
    ordered = [np.array(sorted(one), dtype=np.int64).reshape(-1, 2) for one in sides]
    place, *codes = join([(rows[:, 0], rows[:, 1]) for rows in ordered], reach)
    found = sorted(zip(place.tolist(), *(column.tolist() for column in codes), strict=True))
    expected = sorted(
        (choice[0][0], *(code for _, code in choice))
        for choice in itertools.product(*sides)
        if max(place for place, _ in choice) - min(place for place, _ in choice) <= reach
    )
    assert found == expected
