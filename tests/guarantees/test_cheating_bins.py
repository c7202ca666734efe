"""Bins, times and cuts that a coordinator chooses around one patient's value reveal its public cell, not the value."""

from dataclasses import replace

import numpy as np
import pytest

import multicentre as mc
from multicentre.boosting import messages as grown
from multicentre.boosting.records import digitise
from multicentre.boosting.site import BoostingSite
from multicentre.errors import ConfigurationError
from multicentre.statistics.quantiles import cuts_for_bins
from multicentre.statistics.quantiles.maths import coarsen
from multicentre.survival.agreement.messages import Prepared, Scale
from multicentre.survival.agreement.site import SurvivalPart
from multicentre.survival.agreement.sketch import column_edges
from multicentre.survival.hazard_boost.site import HazardSite
from multicentre.survival.rsf.site import ForestSite
from multicentre.survival.stack.site import StackSite
from multicentre.survival.surv_boost.site import BoostSite
from multicentre_papers.baselines.deep_surv.site import DeepSite
from multicentre_papers.baselines.surf.site import ForestSite as TreeSite

N = 80
# Values lie from 16 to 128: the widest cell has a 4096th of 64, for boosted trees a 65,536th.
CELL = 64 / 4096
FINE_CELL = 64 / 65_536


def patients(seed):
    rng = np.random.default_rng(seed)
    values = np.clip(rng.normal(60, 12, (N, 1)), 17, 120)
    return mc.data.SurvivalData(values, rng.exponential(1.0, N), np.ones(N, dtype=int))


SITES = {f"site-{i}": patients(i) for i in range(3)}
POOLED = np.sort(np.concatenate([data.X[:, 0] for data in SITES.values()]))


def test_forged_centres_and_spreads_locate_a_patient_to_its_grid_cell_at_most():
    """Follow one patient of the masked total over five sessions, each about the narrowest bin with one patient."""
    federation = mc.Federation.in_process(SITES, secure_sum=True)
    centre, spread, widths = np.array([60.0]), np.array([12.0]), []
    for _ in range(5):
        session = federation.begin(ForestSite)
        counts = session.sum(ForestSite.count_columns, Scale(centre, spread)).counts[0]
        edges = column_edges(centre, spread)[0]
        alone = np.flatnonzero((counts[1:-1] > 0) & (counts[1:-1] <= 2)) + 1
        if not len(alone):
            break
        place = alone[np.argmin(edges[alone] - edges[alone - 1])]
        low, high = edges[place - 1], edges[place]
        widths.append(high - low)
        assert ((low < POOLED) & (high >= POOLED)).sum() == counts[place]
        centre, spread = np.array([(low + high) / 2]), np.array([(high - low) / 200])
    assert widths
    assert min(widths) >= CELL / 2 * 0.99


def agreement(*thresholds):
    edges, none = np.array(thresholds), np.array([1.0])
    first = np.array([0, len(edges)])
    return Prepared(("x0",), "", 1, 3.0 * N, 3.0 * N, np.array([1.0, 9.0]), none, none, edges, first)


@pytest.mark.parametrize("offset", [1e-9, 1e-6, 1e-4])
def test_forged_thresholds_separate_no_patient_from_its_grid_cell(offset):
    data = SITES["site-1"]
    value = np.sort(data.X[:, 0])[N // 2]
    binned = []
    for thresholds in ((value - offset,), (value + offset,)):
        part = ForestSite("oslo", data)
        part.agree(agreement(*thresholds))
        binned.append(part.patients.binned)
    assert (binned[0] == binned[1]).all()


def test_agreed_thresholds_of_an_honest_fit_bin_values_as_they_are():
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.normal(60, 12, 20_000), rng.integers(-3, 90, 1000).astype(float), np.zeros(100)])
    for centre, spread in ((60.0, 12.0), (0.0, 1.0), (60.0, 1e-3), (1e-300, 1e-290), (-60.0, 40.0)):
        edges = column_edges(np.array([centre]), np.array([spread]))[0]
        part = ForestSite("oslo", mc.data.SurvivalData(values[:, None], np.ones(len(values)), np.ones(len(values))))
        chosen = np.unique(edges)[::4][:255]
        part.agree(agreement(*chosen))
        np.testing.assert_array_equal(part.patients.binned[:, 0], np.searchsorted(chosen, values))


RECORDS = mc.data.TableData(POOLED.astype(np.float32)[:, None], np.arange(3 * N) % 2)
START = grown.Start(
    cuts=np.zeros(1, dtype=np.float32), n_cuts=np.ones(1, dtype=np.int32), objective="binary:logistic",
    columns=RECORDS.columns, classes=RECORDS.classes, base=np.zeros(1, dtype=np.float32), positive=1.0,
    slope_exponent=-20, curvature_exponent=-20, loss_exponent=-20,
)  # fmt: skip
ROOT = grown.Trees(*(np.array([value], dtype=np.int32) for value in (0, -1, 0)), np.zeros(1, np.uint8), START.base)


def records_below(cut, least=10):
    """Return how many records a masked sum of boosted trees counts below a cut that the coordinator chose."""
    part = BoostingSite("oslo", RECORDS)
    part.masked, part.least_behind = True, least
    part.begin(replace(START, cuts=np.array([cut], dtype=np.float32)))
    sums = part.sum_gradients(grown.Level.of(0, grown.Trees.none(), ROOT, [0], counted=True))
    return int(sums.sums[0, 0, 2])


def test_forged_cuts_of_boosted_trees_separate_no_patient_from_its_grid_cell():
    value = RECORDS.X[N, 0].astype(np.float32)
    first = coarsen(np.array([value], dtype=np.float64), BoostingSite.finest)[0]
    inside = [np.float32(first + share * FINE_CELL / 4) for share in (0.05, 0.3, 0.6, 0.9)]
    around = [np.nextafter(value, np.float32(0)), value, np.nextafter(value, np.float32(200))]
    assert len({records_below(cut) for cut in (*inside, *around)}) == 1
    # Without a minimum of patients the values themselves are compared, with other results next to this record.
    assert len({records_below(cut, 0) for cut in around}) == 2


def test_cuts_of_a_search_separate_the_records_that_values_do():
    rng = np.random.default_rng(4)
    sites = {}
    for name in ("oslo", "turin", "wien"):
        columns = (
            rng.normal(60, 9, 2000),
            rng.integers(-3, 4, 2000),
            rng.normal(0, 1e-3, 2000),
            rng.lognormal(0, 9, 2000),
        )
        sites[name] = mc.data.TableData(np.column_stack(columns).astype(np.float32), np.arange(2000) % 2)
    session = mc.Federation.in_process(sites, secure_sum=True).begin(BoostingSite)
    columns = cuts_for_bins(session, BoostingSite, n_columns=4)
    cuts = grown.Cuts(np.concatenate(columns), np.array([len(cut) for cut in columns], dtype=np.int32))
    for name, data in sites.items():
        part = BoostingSite(name, data)
        part.least_behind = 10
        part.begin(replace(START, cuts=cuts.cuts, n_cuts=cuts.n_cuts, columns=data.columns))
        X = data.X.astype(np.float32)
        kept = part._caught_up()
        np.testing.assert_array_equal(kept._binned, digitise(X, cuts))


@pytest.mark.parametrize("part", [BoostSite, DeepSite, ForestSite, HazardSite, StackSite, TreeSite])
def test_a_grid_as_fine_as_days_is_refused(part):
    """A step that counts by time, whichever it is, needs an agreement, and there is none on so many times."""
    data, times = SITES["site-0"], np.linspace(0.001, 4.0, 257)
    agreed = Prepared(
        data.columns, data.unit, 1, 1.0, 1.0, times, np.zeros(1), np.ones(1), np.zeros(1), np.array([0, 1])
    )
    session = mc.Federation.in_process(SITES, secure_sum=True, policy=mc.Policy(exact_times=True)).begin(part)
    with pytest.raises(ConfigurationError, match="257 times, which is too fine"):
        session.sum(part.agree, agreed)


def test_parts_that_may_agree_on_more_times_are_those_with_steps_that_need_permission():
    parts = {part for part in subclasses_of(SurvivalPart) if part.method}
    assert {part.method for part in parts if part.has_exact_steps} == {
        part.method for part in parts if any(needs_exact_times(step) for step in part.steps().values())
    }


def subclasses_of(kind):
    return {one for child in kind.__subclasses__() for one in {child, *subclasses_of(child)}}


def needs_exact_times(step):
    """Return whether a step needs the permission, but for the recorded times that all parts inherit."""
    declarations = step.releases.declarations().values()
    return step.name != "tell_times" and any(one.permission == "exact_times" for one in declarations)
