import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from multicentre.data.records import fewest_different, is_dominated
from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Patients, Prepared, flatten_rare, rare_value

GAPS = st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.0, np.nan])
SHORT = arrays(np.float64, st.integers(1, 40), elements=GAPS)
TABLE = arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(1, 3)), elements=GAPS)


def differing(column):
    known = column[~np.isnan(column)]
    _, counts = np.unique(known, return_counts=True)
    return 0 if not len(known) else int(len(known) - counts.max())


@given(SHORT, st.integers(2, 50))
def test_a_value_is_rare_where_counting_all_of_them_says_so(column, least):
    known = column[~np.isnan(column)]
    found = rare_value(known, least)
    assert (found is not None) == (0 < differing(column) < least)
    if found is not None:
        assert np.count_nonzero(known != found) == differing(column)


@given(TABLE)
def test_the_fewest_who_stand_out_are_those_of_sorting_every_column(X):
    n_known = (~np.isnan(X)).sum(axis=0)
    counts = [*map(differing, X.T), *(n for n in n_known if n < len(X)), *(len(X) - n for n in n_known if n)]
    dominated = any(is_dominated(column[~np.isnan(column)]) for column in X.T)
    assert fewest_different(X) == (1 if dominated else min([n for n in counts if n] + [len(X)]))


@given(TABLE, st.integers(0, 12))
def test_what_only_a_few_have_of_a_column_is_left_out(X, least):
    flat = flatten_rare(X, least)
    for before, after in zip(X.T, flat.T, strict=True):
        n_known = int((~np.isnan(before)).sum())
        assert differing(after) == 0 or differing(after) >= least
        if n_known >= least and (least <= 1 or differing(before) == 0 or differing(before) >= least):
            np.testing.assert_array_equal(after, before)
        else:
            assert np.isnan(after).sum() == (len(X) if n_known < least else len(X) - n_known)


@given(TABLE)
def test_rows_scales_and_bins_are_those_of_the_whole_table(X):
    d = X.shape[1]
    centre, spread = np.linspace(0.4, 0.6, d), np.linspace(1.0, 2.0, d)
    edges, first = np.tile([0.5, 1.5], d), 2 * np.arange(d + 1)
    names = tuple(f"x{column}" for column in range(d))
    agreed = Prepared(names, "", 1, 1.0, 1.0, np.ones(1), centre, spread, edges, first)
    data = SurvivalData(np.zeros(X.shape), np.ones(len(X)), np.ones(len(X))).with_arrays(X=X)
    patients = Patients(data, agreed)
    filled = np.where(np.isnan(X), centre, X)
    np.testing.assert_array_equal(patients.rows, filled)
    np.testing.assert_array_equal(patients.standardised, (filled - centre) / spread)
    np.testing.assert_array_equal(patients.binned, (filled > 0.5).astype(int) + (filled > 1.5))
    assert patients.binned.flags.f_contiguous
    assert patients.rows.flags.c_contiguous
    assert patients.standardised is not patients.rows
