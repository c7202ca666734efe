"""Hypothesis strategies shared by the tests."""

import unicodedata

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from multicentre.data import MultiViewData
from multicentre.datasets import LabelledMultiView

names = (
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=8)
    .map(lambda text: unicodedata.normalize("NFC", text))
    .filter(lambda text: text.strip() != "")
)
entries = st.floats(-1e6, 1e6, allow_nan=False)


@st.composite
def view_arrays(draw, n_patients, max_columns=4):
    """One view with missing entries and at least one entry in every column."""
    d = draw(st.integers(1, max_columns))
    values = draw(arrays(np.float64, (n_patients, d), elements=entries))
    missing = draw(arrays(np.bool_, (n_patients, d)))
    missing[draw(arrays(np.int64, d, elements=st.integers(0, n_patients - 1))), np.arange(d)] = False
    return np.where(missing, np.nan, values)


@st.composite
def multi_views(draw, max_patients=8, max_views=3):
    """Named arrays of the same patients."""
    n_patients = draw(st.integers(1, max_patients))
    view_names = draw(st.lists(names, min_size=1, max_size=max_views, unique=True))
    return {view: draw(view_arrays(n_patients)) for view in view_names}


@st.composite
def labelled_views(draw, min_groups=2, max_groups=5, min_per_group=14, max_more=40):
    """Three small views of labelled patients, with row numbers as identifiers."""
    n_groups = draw(st.integers(min_groups, max_groups))
    more = draw(st.lists(st.integers(0, n_groups - 1), max_size=max_more))
    groups = draw(st.permutations([*more, *list(range(n_groups)) * min_per_group]))
    values = np.arange(len(groups), dtype=float)[:, None]
    data = MultiViewData({f"view_{k}": values + k for k in range(3)}, ids=range(len(groups)))
    return LabelledMultiView(data, np.array([f"g{one}" for one in groups]), "drawn", "Drawn by a test.", "none")
