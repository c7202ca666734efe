"""A coordinator that searches, cuts and counts as it likes learns cells that do not depend on the data, no values."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.analytics.describe.messages import Groups
from multicentre.analytics.describe.site import DescribeSite
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError
from multicentre.privacy.identifier_normalisation import NORMALISATION
from multicentre.statistics.quantiles.maths import CODE_BITS, decode_doubles
from multicentre.statistics.quantiles.site import Cells
from multicentre.validation.folds import site as told
from multicentre.validation.folds.covariate import CovariateFoldKFold
from multicentre.validation.folds.cut import CutFolds, Cutting, Dealing
from multicentre.validation.stratifier import site as chosen
from multicentre.validation.stratifier.site import StratifierSite

N, BITS = 40, 4
MASKED = mc.Policy(secure_sums_only=True)
BORN = np.datetime64("1950-01-02")


def people(seed):
    rng = np.random.default_rng(seed)
    days = BORN + rng.integers(0, 15_000, N)
    names = {"nhs": [str(one) for one in rng.integers(4 * 10**9, 8 * 10**9, N)], "born": days.astype(str).tolist()}
    return mc.data.TableData(rng.normal(60, 9, (N, 2)), rng.integers(0, 2, N), names)


SITES = {f"site-{i}": people(i) for i in range(3)}


def opened(part, sites=SITES):
    return mc.Federation.in_process(sites, secure_sum=True, policy=MASKED).begin(part)


def hashing(column, kind="number", n_splits=100):
    return {
        "study": "s",
        "person_key": column,
        "kind": kind,
        "rules": NORMALISATION,
        "sites": (),
        "date_orders": (),
        "date_order": "iso",
        "n_splits": n_splits,
        "repeat": 0,
        "patient_key": "",
        "stratify": False,
    }


def deepest_cells(session, part, column, n_parts):
    """Follow as many records as there are cells to be had, as deep as the sites answer; return cells and digits."""
    cells, level = np.zeros(1, dtype=np.uint64), 0
    while True:
        request = Cells(n_parts, BITS, level, np.full(len(cells), column, dtype=np.int32), cells[:n_parts])
        try:
            counts = np.diff(session.sum(part.count_below, request).below, axis=1, prepend=0)
        except DisclosureRefused:
            return cells, level * BITS
        cell, digit = np.nonzero(counts)
        cells = ((cells[cell] << np.uint64(BITS)) | digit.astype(np.uint64))[:n_parts]
        level += 1


def values_in(cells, digits):
    first = cells << np.uint64(CODE_BITS - digits)
    return np.column_stack([decode_doubles(first), decode_doubles(first + np.uint64((1 << (CODE_BITS - digits)) - 1))])


def test_a_numeric_identifier_is_neither_searched_nor_counted_nor_used_as_a_covariate():
    session = opened(CutFolds)
    session.sum(CutFolds.survey, told.Hashing(**hashing("nhs")))
    with pytest.raises(DisclosureRefused, match="folds by thresholds must be cut by a column of the data or a date"):
        session.sum(CutFolds.count_below, Cells(100, BITS, 0, np.zeros(1, np.int32), np.zeros(1, np.uint64)))
    person = float(SITES["site-1"].identifier.column("nhs")[5])
    around = np.array([person - 0.5, person + 0.5])
    with pytest.raises(DisclosureRefused, match="folds by thresholds must be cut by a column of the data or a date"):
        session.sum(CutFolds.count_parts, Cutting(**hashing("nhs"), thresholds=around))
    dealing = Dealing(**hashing("nhs", n_splits=3), thresholds=around, sizes=np.zeros(3, dtype=int), permuted=False)
    with pytest.raises(DisclosureRefused, match="folds by thresholds must be cut by a column of the data or a date"):
        opened(CutFolds).ask(CutFolds.cut, dealing)
    plan = CovariateFoldKFold(2, covariate="nhs", scheme="hash").plan(opened(CutFolds).federation)
    assert plan.counts.sum() == 3 * N


def test_a_forged_search_ends_at_a_4096th_of_the_range():
    session = opened(CutFolds)
    session.sum(CutFolds.survey, told.Hashing(**hashing("x0")))
    cells, digits = deepest_cells(session, CutFolds, 0, 800)
    assert digits == 24
    found = values_in(cells, digits)
    assert (np.diff(found) >= 32 / 4096 * 0.99).all()


def stamps(seed, *, n_present=N):
    """Return a site of values with a large constant, one column with few entries, and one around 60."""
    rng = np.random.default_rng(seed)
    values = np.column_stack([1e7 + rng.normal(0, 9, N), 1e7 + rng.normal(0, 9, N), rng.normal(60, 9, N)])
    values[n_present:, 1] = np.nan
    return mc.data.TableData(values, rng.integers(0, 2, N))


@pytest.mark.parametrize("column", [0, 2])
def test_quartiles_are_followed_to_a_4096th_of_the_spread_whatever_the_constant(column):
    sites = {f"site-{i}": stamps(i) for i in range(3)}
    session = opened(DescribeSite, sites)
    session.sum(DescribeSite.find_magnitudes, Groups("", (), ("x0", "x1", "x2"), ()))
    cells, digits = deepest_cells(session, DescribeSite, column, 800)
    spread = max(float(data.X[:, column].std()) for data in sites.values())
    assert digits in ((24,) if column == 2 else (36, 40))
    assert (np.diff(values_in(cells, digits)) >= min(spread, 32.0) / 4096 * 0.99).all()


def test_few_values_of_a_site_are_not_followed_further_than_a_4096th_of_the_value():
    sites = {f"site-{i}": stamps(i, n_present=N if i else 5) for i in range(3)}
    session = opened(DescribeSite, sites)
    session.sum(DescribeSite.find_magnitudes, Groups("", (), ("x0", "x1", "x2"), ()))
    _, digits = deepest_cells(session, DescribeSite, 1, 800)
    assert digits == 24


def test_a_birth_date_is_located_to_a_week_at_most():
    born = np.concatenate([np.array(data.identifier.column("born"), dtype="datetime64[D]") for data in SITES.values()])
    weeks = np.floor(born.astype(int) / 7) * 7
    seen = np.concatenate([_values_seen(data, "born", "date") for data in SITES.values()])
    assert np.ptp(seen - weeks) <= 4
    assert (np.unique(seen, return_inverse=True)[1] == np.unique(weeks, return_inverse=True)[1]).all()


def _values_seen(data, column, kind):
    part = CutFolds("lyon", data)
    part.masked = True
    part.survey(told.Hashing(**hashing(column, kind)))
    return part.quantile_values()[:, 0]


@pytest.mark.parametrize(("column", "kind", "width"), [("x0", "number", 32 / 4096), ("born", "date", 7)])
def test_thresholds_about_one_value_see_no_more_than_its_cell(column, kind, width):
    """Sessions are cheap: with other thresholds in each, they tell where a cell begins and not where a value is."""
    data = SITES["site-1"]
    first = np.sort(_values_seen(data, column, kind))[5]
    below = set()
    for border in first + width * np.linspace(0, 0.99, 20):
        part = CutFolds("lyon", data)
        part.masked = True
        cutting = Cutting(**hashing(column, kind, 2), thresholds=np.array([border]))
        below.add(int(part.count_parts(cutting).records[0]))
    assert below == {6}
    raw = data.X[:, 0]
    if kind == "date":
        raw = np.array(data.identifier.column("born"), dtype="datetime64[D]").astype(int)
    assert first < np.sort(raw)[5] < first + width


def test_a_session_has_one_covariate_and_one_set_of_thresholds():
    session = opened(CutFolds)
    session.sum(CutFolds.survey, told.Hashing(**hashing("x0", n_splits=2)))
    with pytest.raises(ConfigurationError, match="the covariate must be the same throughout a session"):
        session.sum(CutFolds.survey, told.Hashing(**hashing("x1", n_splits=2)))
    cutting = {**hashing("x0", n_splits=2), "thresholds": np.array([60.0])}
    session.sum(CutFolds.count_parts, Cutting(**cutting))
    moved = {**cutting, "thresholds": np.array([60.5])}
    with pytest.raises(ConfigurationError, match="thresholds must be the same throughout a session"):
        session.sum(CutFolds.count_parts, Cutting(**moved))
    dealt = {"sizes": np.array([60, 60]), "permuted": False}
    with pytest.raises(ConfigurationError, match="thresholds must be the same throughout a session"):
        session.ask(CutFolds.cut, Dealing(**moved, **dealt))
    session.ask(CutFolds.cut, Dealing(**cutting, **dealt))
    with pytest.raises(ConfigurationError, match="they were split before"):
        session.ask(CutFolds.cut, Dealing(**cutting, **dealt))


def test_a_search_has_eight_cells_a_fold_at_most_and_thresholds_are_no_more():
    session = opened(CutFolds)
    session.sum(CutFolds.survey, told.Hashing(**hashing("x0", n_splits=5)))
    with pytest.raises(MessageError):
        session.sum(CutFolds.count_below, Cells(41, BITS, 0, np.zeros(1, np.int32), np.zeros(1, np.uint64)))
    for thresholds in (np.arange(40.0), np.array([1.0, np.nan]), np.array([np.nan])):
        with pytest.raises(MessageError, match="thresholds"):
            session.sum(CutFolds.count_parts, Cutting(**hashing("x0", n_splits=5), thresholds=thresholds))


def times(seed):
    rng = np.random.default_rng(seed)
    return mc.data.SurvivalData(rng.normal(60, 9, (N, 2)), rng.exponential(500, N).round(1) + 1, rng.integers(0, 2, N))


def test_no_search_and_no_table_tells_more_of_an_event_time_than_a_sixteenth():
    sites = {f"site-{i}": times(i) for i in range(3)}
    session = opened(StratifierSite, sites)
    session.ask(StratifierSite.settle, chosen.Candidates(("x0",), "", 80))
    cells, digits = deepest_cells(session, StratifierSite, 1, 80)
    happened = np.concatenate([data.time[data.event == 1] for data in sites.values()])
    assert digits == 24
    assert (cells & np.uint64(0xFF) == 0).all()
    assert len(cells) < len(np.unique(happened)) / 1.2
    with pytest.raises(MessageError):
        session.sum(StratifierSite.count_below, Cells(81, BITS, 0, np.zeros(1, np.int32), np.zeros(1, np.uint64)))


def test_forged_cuts_about_an_event_time_give_the_same_table():
    data = times(0)
    time = data.time[data.event == 1].max()
    tables = []
    for border in (time - 0.01, time + 0.01):
        part = StratifierSite("oslo", data)
        part.settle(chosen.Candidates(("x0",), "", 4))
        part.masked = True
        cuts = chosen.Cuts.of([np.array([60.0]), np.array([1.0, border])])
        tables.append(part.screen(chosen.Cuts(cuts.values, cuts.first)).records)
    assert (tables[0] == tables[1]).all()


@pytest.mark.parametrize("outcome", ["class", "number", "time"])
def test_unmasked_tables_rest_on_as_few_records_as_other_thresholds_could_set_apart(outcome):
    """Sessions are cheap: two tables whose thresholds have one record between them would tell its class."""
    rng = np.random.default_rng(7)
    values, time, event = rng.normal(60, 9, 20), rng.exponential(500, 20), rng.integers(0, 2, 20)
    for size in (1, 9, 10):
        X, times, flags = (np.repeat(each, size) for each in (values, time, event))
        data = mc.data.TableData(X[:, None], flags)
        if outcome != "class":
            data = mc.data.SurvivalData(X[:, None], times, flags)
        if outcome == "number":
            data = mc.data.TableData(X[:, None], times, outcome="number")
        tables = []
        for border in np.sort(values)[6:10] + 0.01:
            part = StratifierSite("oslo", data)
            part.settle(chosen.Candidates(("x0",), "", 9))
            cuts = chosen.Cuts.of([np.array([border]), *([] if outcome == "class" else [np.array([100.0, 400.0])])])
            told = part.screen(chosen.Cuts(cuts.values, cuts.first))
            assert told.patients == size
            tables.append(told.records[0, :2])
        steps = np.abs(np.diff(tables, axis=0))
        assert steps[steps > 0].min() == size


def test_a_pilot_is_not_told_of_by_a_site_whose_folds_are_below_its_policys_minimum():
    rng = np.random.default_rng(8)
    told_of = {}
    for least in (20, 60):
        part = StratifierSite("oslo", mc.data.TableData(rng.normal(size=(150, 1)), np.arange(150) % 2))
        part.settle(chosen.Candidates(("x0",), "", 9))
        part.masked, part.least_behind = True, least
        answer = part.pilot(chosen.Trial(("x0",), "linear", 3, 5, 0))
        told_of[least] = [float(answer.weight[0]), float(answer.drawn[0]) > 0]
    assert told_of == {20: [150.0, True], 60: [0.0, False]}
