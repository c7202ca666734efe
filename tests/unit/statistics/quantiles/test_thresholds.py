"""Thresholds found by sums of counts, against sorted values; and what a site refuses on the way."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, MessageError
from multicentre.statistics.quantiles import CountingPart, cuts_for_bins, find_thresholds
from multicentre.statistics.quantiles.site import Cells
from support.examples import examples

EXACT = mc.Policy(min_patients=0)


class Columns(CountingPart):
    """Holds rows of numbers."""

    method, holds, finest = "columns", np.ndarray, 48

    def quantile_values(self) -> np.ndarray:
        return self.data


class Singles(Columns):
    """Holds rows of single precision."""

    method, finest = "singles", 36


def dealt(values: np.ndarray, n_sites: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the rows of `values` at random sites, each with one at least."""
    where = np.random.default_rng(seed).integers(0, n_sites, len(values))
    where[:n_sites] = np.arange(n_sites)
    return {f"site-{i}": values[where == i] for i in range(n_sites)}


def begin(values: np.ndarray, part: type[CountingPart] = Columns, *, n_sites: int = 5, seed: int = 0, **terms):
    """Return an unmasked fit over rows at random sites, and a list in which the words of every sum are noted."""
    opened = mc.Federation.in_process(
        dealt(values, n_sites, seed), **{"policy": EXACT, "secure_sum": False} | terms
    ).begin(part)
    words: list[int] = []
    plain = opened.sum

    def noted(step, message):
        answer = plain(step, message)
        words.append(answer.below.size)
        return answer

    opened.sum = noted
    return opened, words


def find(values: np.ndarray, n_parts: int, **terms) -> np.ndarray:
    search = {key: terms.pop(key) for key in ("tol", "exact", "min_cell", "bits", "every_value") if key in terms}
    opened, _ = begin(values, **terms)
    return find_thresholds(opened, Columns, n_columns=1, n_parts=n_parts, **search)[0]


def sizes(thresholds: np.ndarray, values: np.ndarray) -> list[int]:
    known = values[~np.isnan(values)]
    return np.bincount(np.searchsorted(thresholds, known), minlength=len(thresholds) + 1).tolist()


def drawn(kind: str, n: int = 12_000) -> np.ndarray:
    rng = np.random.default_rng(3)
    values = {
        "normal": rng.normal(size=n),
        "cauchy": rng.standard_cauchy(n) * 1e200,
        "tiny": rng.exponential(size=n) * 1e-300,
        "dates": rng.integers(-15_000, 15_000, n).astype(float),
        "shifted": rng.normal(size=n) + 1e6 * (rng.random(n) < 0.2),
    }
    return values[kind][:, None]


@pytest.mark.parametrize("kind", ["normal", "cauchy", "tiny", "shifted"])
def test_without_tolerance_parts_are_those_of_the_sorted_values(kind: str) -> None:
    values = drawn(kind)
    opened, words = begin(values)
    (thresholds,) = find_thresholds(opened, Columns, n_columns=1, n_parts=5, tol=0, exact=True)
    assert sizes(thresholds, values[:, 0]) == [2400] * 5
    assert len(words) <= 16


@pytest.mark.parametrize("kind", ["normal", "cauchy", "tiny", "dates", "shifted"])
@pytest.mark.parametrize("bits", [1, 4])
def test_parts_differ_by_a_hundredth_and_no_threshold_is_a_record(kind: str, bits: int) -> None:
    values = drawn(kind)
    opened, words = begin(values)
    (thresholds,) = find_thresholds(opened, Columns, n_columns=1, n_parts=5, bits=bits)
    assert np.abs(np.array(sizes(thresholds, values[:, 0])) - 2400).max() <= 24
    assert not np.isin(thresholds, values).any()
    assert sum(words) <= 321
    assert len(words) <= 16 or bits == 1


def test_a_site_whose_values_lie_apart_does_not_matter() -> None:
    values = np.random.default_rng(0).normal(size=(1000, 1))
    apart = {"low": values - 1e3, "high": values + 1e3}
    opened = mc.Federation.in_process(apart).begin(Columns)
    (thresholds,) = find_thresholds(opened, Columns, n_columns=1, n_parts=2)
    assert sizes(thresholds, np.concatenate([values - 1e3, values + 1e3])[:, 0]) == [1000, 1000]
    assert -990 < thresholds[0] < 990


MIXED = st.one_of(
    st.floats(allow_infinity=False), st.integers(-5, 5).map(float), st.sampled_from([-0.0, 0.0, 5e-324, np.nan, 1.5])
)


# A threshold between -5e-324 and 0 would be -0.0, which 0 does not exceed.
SUBNORMAL = np.repeat([[-5e-324, 1.0], [0.0, -5e-324], [5e-324, 0.0], [1.0, -2.2250738585072014e-308]], 5, axis=0)


@pytest.mark.slow
@examples(10)
@given(
    arrays(np.float64, st.tuples(st.integers(12, 60), st.just(2)), elements=MIXED),
    st.integers(2, 6),
    st.integers(0, 99),
)
@example(SUBNORMAL, 3, 0)
def test_masked_plain_and_pooled_are_one_however_records_are_split(values: np.ndarray, n_parts: int, seed: int) -> None:
    search = {"n_columns": 2, "n_parts": n_parts, "tol": 0, "exact": True}
    pooled = find_thresholds(begin(values, n_sites=1)[0], Columns, **search)
    plain = find_thresholds(begin(values, n_sites=3, seed=seed)[0], Columns, **search)
    masked = find_thresholds(begin(values, n_sites=4, seed=seed, secure_sum=True)[0], Columns, **search)
    for column, thresholds in enumerate(pooled):
        assert thresholds.tolist() == plain[column].tolist() == masked[column].tolist()
        known = np.sort(values[~np.isnan(values[:, column]), column])
        known[np.abs(known) < np.finfo(np.float64).tiny] = 0.0
        assert (np.diff(thresholds) > 0).all()
        assert not len(known) or 0 not in sizes(thresholds, known)
        # Each wanted rank has the border nearest to it, as no tie may be split.
        borders = np.flatnonzero(np.diff(known) > 0) + 1
        counts = np.searchsorted(known, thresholds, side="right")
        for rank in np.arange(1, n_parts) * len(known) // n_parts if len(borders) else []:
            if rank:
                assert np.abs(counts - rank).min() == np.abs(borders - rank).min()


def test_ties_stay_together_and_thresholds_lie_between() -> None:
    ages = np.round(np.random.default_rng(0).normal(60, 12, (3000, 1)))
    thresholds = find(ages, 5)
    assert len(thresholds) == 4
    assert (thresholds % 1 != 0).all()


@pytest.mark.parametrize("share", [0.01, 0.3, 0.995])
def test_a_binary_column_has_its_cut_for_any_number_of_parts(share: float) -> None:
    values = (np.arange(4000) < share * 4000).astype(float)[:, None]
    for n_parts in (2, 5, 256):
        assert find(values, n_parts, every_value=True).tolist() == [0.5]
        (threshold,) = find(values, n_parts)
        assert 0 < threshold < 1


def test_a_constant_column_and_one_without_values_have_no_threshold() -> None:
    values = np.column_stack([np.full(50, 3.0), np.full(50, np.nan), np.arange(50.0)])
    found = find_thresholds(begin(values)[0], Columns, n_columns=3, n_parts=2)
    assert [len(each) for each in found] == [0, 0, 1]


def test_every_pair_of_neighbours_has_a_cut_where_values_are_few() -> None:
    rng = np.random.default_rng(2)
    values = np.repeat([0.0, 1.0, 2.0, 3.0, 7.0, 8.0], [9000, 20, 400, 20, 30, 530])[:, None]
    single = rng.normal(size=(10_000, 1)).astype(np.float32)
    both = rng.permutation(np.append(values, single, axis=1))
    opened, words = begin(both, Singles)
    few, many = cuts_for_bins(opened, Singles, n_columns=2, n_bins=256)
    assert few.tolist() == [0.5, 1.5, 2.5, 5.0, 7.5]
    assert len(words) <= 9
    counts = np.bincount(np.searchsorted(many, both[:, 1].astype(np.float32), side="right"))
    assert many.dtype == np.float32
    assert len(many) == 255
    assert np.abs(counts - 10_000 / 256).max() <= 0.05 * 10_000 / 256 + 1
    assert sum(words) < 24_000


@pytest.mark.parametrize("n_parts", [33, 64])
def test_rare_neighbours_have_a_cut_however_many_records_the_others_have(n_parts: int) -> None:
    values = np.arange(33.0) / 10
    counts = np.where(np.arange(33) % 3 == 0, 2000, 1 + np.arange(33) % 2)
    column = np.repeat(values, counts)[:, None]
    (cuts,) = cuts_for_bins(begin(column, Singles)[0], Singles, n_columns=1, n_bins=n_parts)
    assert np.diff(np.searchsorted(cuts, values.astype(np.float32), side="right")).tolist() == [1] * 32
    assert len(cuts) == 32
    # With fewer parts than values, sizes decide.
    assert len(cuts_for_bins(begin(column, Singles)[0], Singles, n_columns=1, n_bins=11)[0]) <= 10


def test_unmasked_a_rare_value_is_refused_and_masked_it_has_a_cut() -> None:
    values = np.repeat([0.0, 1.0, 2.0], [300, 3, 300])[:, None]

    def found(**terms) -> list:
        opened = mc.Federation.in_process({"lyon": values, "oslo": values}, **terms).begin(Singles)
        return cuts_for_bins(opened, Singles, n_columns=1)[0].tolist()

    assert found() == [0.5, 1.5]
    with pytest.raises(DisclosureRefused, match=r"secure_sum=True"):
        found(secure_sum=False)


def test_more_values_than_bins_are_cut_at_quantiles() -> None:
    values = np.arange(1000.0)[:, None]
    (cuts,) = cuts_for_bins(begin(values, Singles)[0], Singles, n_columns=1, n_bins=8, tol=0.01)
    assert np.bincount(np.searchsorted(cuts, values[:, 0], side="right")).tolist() == [125] * 8


def test_a_minimum_in_cells_leaves_few_records_together() -> None:
    values = np.arange(200.0)[:, None]
    opened, _ = begin(values)
    seen = []
    plain = opened.sum
    opened.sum = lambda step, message: seen.append(message.level) or plain(step, message)
    (thresholds,) = find_thresholds(opened, Columns, n_columns=1, n_parts=4, min_cell=20)
    assert np.abs(np.cumsum(sizes(thresholds, values[:, 0]))[:-1] - [50, 100, 150]).max() <= 10
    deep = find(values, 4, tol=0, exact=True)
    assert sizes(deep, values[:, 0]) == [50] * 4
    assert max(seen) < 6


def test_unmasked_counts_of_small_cells_are_refused() -> None:
    values = np.repeat([1.0, 2.0, 3.0], [60, 60, 40])[:, None]

    def found(**terms) -> list:
        opened = mc.Federation.in_process({"lyon": values, "oslo": values[:149]}, **terms).begin(Columns)
        return find_thresholds(opened, Columns, n_columns=1, n_parts=3)[0].tolist()

    assert found(policy=mc.Policy(min_patients=29), secure_sum=False) == found()
    with pytest.raises(DisclosureRefused, match=r"oslo.*secure_sum=True"):
        found(policy=mc.Policy(min_patients=30), secure_sum=False)


@pytest.mark.parametrize(("n_missing", "behind"), [(0, 60), (1, 1), (9, 9), (30, 30)])
def test_a_few_records_without_a_value_are_a_cell(n_missing: int, behind: int) -> None:
    part = Columns("lyon", np.repeat([1.0, 2.0, np.nan], [60, 60, n_missing])[:, None])
    assert part.count_below(cells(0, 0)).patients == behind
    part.masked = True
    assert part.count_below(cells(0, 0)).patients == 120 + n_missing


def test_a_site_lost_on_the_way_begins_the_search_anew() -> None:
    values = dealt(np.random.default_rng(5).normal(size=(900, 1)), 3)
    whole = mc.Federation.in_process(
        values, policy=EXACT, quorum=2, faults=mc.engines.faults.Faults(lose={"site-1": 3})
    ).begin(Columns)
    (thresholds,) = find_thresholds(whole, Columns, n_columns=1, n_parts=3)
    rest = mc.Federation.in_process({name: values[name] for name in ("site-0", "site-2")}, policy=EXACT).begin(Columns)
    assert whole.sites == ("site-0", "site-2")
    assert thresholds.tolist() == find_thresholds(rest, Columns, n_columns=1, n_parts=3)[0].tolist()


def test_a_resumed_run_takes_what_was_found(tmp_path) -> None:
    values = dealt(np.random.default_rng(6).normal(size=(300, 2)), 3)
    found = []
    for _ in range(2):
        opened = mc.Federation.in_process(values, folder=tmp_path).begin(Columns)
        found.append(find_thresholds(opened, Columns, n_columns=2, n_parts=4))
        opened.sum = None
        again = find_thresholds(opened, Columns, n_columns=2, n_parts=4)
        assert [each.tolist() for each in again] == [each.tolist() for each in found[0]]


# --- What a site refuses.


def cells(level: int, *prefix: int, n_parts: int = 3, column: int = 0, bits: int = 4) -> Cells:
    columns = np.full(len(prefix), column, dtype=np.int32)
    return Cells(n_parts, bits, level, columns, np.array(prefix, dtype=np.uint64))


def asked(least: int = 10, masked: bool = True) -> Columns:
    part = Columns("lyon", np.random.default_rng(0).normal(size=(100, 1)))
    part.masked, part.least_behind = masked, least
    return part


@pytest.mark.parametrize(
    "message",
    [
        cells(0, 0, bits=3),
        cells(0, 0, n_parts=1),
        cells(0, 0, n_parts=5000),
        cells(-1, 0),
        cells(16, 0),
        cells(0, 1),
        cells(0, 0, column=1),
        cells(0, 0, column=-1),
        cells(0),
        cells(0, 0, 0),
        cells(1, 3, 2),
        cells(1, 3, 16),
        cells(1, 1, 2, 3, 4),
    ],
)
def test_an_ask_that_is_out_of_range_is_refused(message: Cells) -> None:
    part = asked()
    if message.level == 1:
        part.count_below(cells(0, 0))
    with pytest.raises(MessageError):
        part.count_below(message)


@pytest.mark.parametrize(
    "message", [cells(2, 0x81), cells(3, 0xBFF), cells(2, 0x91), cells(1, 8), cells(2, 0xB1, n_parts=4), cells(1, 0xB)]
)
def test_cells_that_do_not_follow_from_those_before_are_refused(message: Cells) -> None:
    part = asked()
    part.count_below(cells(0, 0))
    part.count_below(cells(1, 0x4, 0xB))
    with pytest.raises(ConfigurationError, match="cells must be sub-cells of those of the previous request"):
        part.count_below(message)
    assert part.count_below(cells(1, 0x4, 0xB)).below.shape == (2, 16)
    assert part.count_below(cells(2, 0x4A, 0xB3)).below.shape == (2, 16)


class Few(Columns):
    """Is cut in four parts at most."""

    method = "few"

    def most_parts(self) -> int:
        return 4


def test_a_part_says_in_how_many_parts_its_columns_may_be_cut() -> None:
    part = Few("lyon", np.random.default_rng(0).normal(size=(100, 1)))
    assert part.count_below(cells(0, 0, n_parts=4)).below.shape == (1, 16)
    with pytest.raises(MessageError):
        part.count_below(cells(0, 0, n_parts=5))


@pytest.mark.parametrize("other", [cells(0, 0, n_parts=4), cells(0, 0, bits=8)])
def test_a_search_on_other_terms_is_refused_in_the_same_fit(other: Cells) -> None:
    part = asked()
    part.count_below(cells(0, 0))
    with pytest.raises(ConfigurationError, match="n_parts and bits must be those of the previous search of the fit"):
        part.count_below(other)


def test_a_site_answers_four_searches_in_a_fit() -> None:
    part = asked()
    for _ in range(4):
        part.count_below(cells(0, 0))
    with pytest.raises(ConfigurationError, match="a fit must search at most 4 times"):
        part.count_below(cells(0, 0))


@pytest.mark.parametrize("masked", [True, False])
def test_cells_as_fine_as_values_are_refused_where_the_policy_has_a_minimum(masked: bool) -> None:
    for least in (10, 0):
        part, prefix = asked(least, masked), 0
        for level in range(12):
            part.count_below(cells(level, prefix))
            prefix = prefix << 4
        if least:
            with pytest.raises(DisclosureRefused, match="48 digits"):
                part.count_below(cells(12, prefix))
        else:
            part.count_below(cells(12, prefix))


def test_protection_changes_no_count_and_says_how_few_are_in_a_cell() -> None:
    part = asked(least=30)
    masked = part.count_below(cells(0, 0))
    part.masked = False
    unmasked = part.count_below(cells(0, 0))
    counts = np.diff(unmasked.below, prepend=0)
    assert (masked.below == unmasked.below).all()
    assert (masked.patients, unmasked.patients) == (100, counts[counts > 0].min())


def test_infinite_values_are_refused() -> None:
    part = Columns("lyon", np.array([[1.0], [np.inf]]))
    with pytest.raises(DataError, match="values must be finite or missing; at least one is infinite"):
        part.count_below(cells(0, 0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"tol": 0},
        {"tol": -0.1},
        {"tol": 2},
        {"min_cell": -1},
        {"n_parts": 1},
        {"n_parts": 2000},
        {"bits": 5},
        {"n_columns": 0},
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict) -> None:
    opened, _ = begin(np.arange(20.0)[:, None])
    with pytest.raises(ConfigurationError):
        find_thresholds(opened, Columns, **{"n_columns": 1, "n_parts": 4} | wrong)


def test_an_answer_is_counts_alone() -> None:
    release = asked().count_below(cells(0, 0))
    assert set(release.declarations()) == {"below"}
    assert release.patients == 100
