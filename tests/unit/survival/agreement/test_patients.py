import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.patients import Patients, flatten_rare, hidden_columns, rare_value
from multicentre.survival.agreement.site import fewest_different

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
    assert fewest_different(X) == min([n for n in counts if n] + [len(X)])


@given(TABLE, st.integers(0, 12))
def test_columns_are_seen_as_they_may_leave(X, least):
    seen, hidden = flatten_rare(X, least), hidden_columns(X, least)
    for column in range(X.shape[1]):
        n_known = int((~np.isnan(X[:, column])).sum())
        assert differing(seen[:, column]) == 0 or differing(seen[:, column]) >= least
        if column in hidden:
            assert n_known < least or 0 < differing(X[:, column]) < least
            assert np.isnan(seen[:, column]).sum() == (len(X) if n_known < least else len(X) - n_known)
        else:
            np.testing.assert_array_equal(seen[:, column], X[:, column])


@given(TABLE)
def test_rows_scales_and_bins_are_those_of_the_whole_table(X):
    least, d = 5, X.shape[1]
    centre, spread = np.linspace(0.4, 0.6, d), np.linspace(1.0, 2.0, d)
    edges, first = np.tile([0.5, 1.5], d), 2 * np.arange(d + 1)
    names = tuple(f"x{column}" for column in range(d))
    agreed = Agreed(names, "", 1, False, 1.0, 1.0, np.ones(1), centre, spread, edges, first)
    patients = Patients(SurvivalData(X, np.ones(len(X)), np.ones(len(X))), agreed, least)
    seen = flatten_rare(X, least)
    filled = np.where(np.isnan(seen), centre, seen)
    np.testing.assert_array_equal(patients.rows, filled)
    np.testing.assert_array_equal(patients.standardised, (filled - centre) / spread)
    np.testing.assert_array_equal(patients.binned, (filled > 0.5).astype(int) + (filled > 1.5))
    assert patients.binned.flags.f_contiguous
    assert patients.rows.flags.c_contiguous
    assert patients.standardised is not patients.rows
