"""What Fed-mv-PPCA promises whoever lends it data: only sums leave, small sites are refused, runs can be taken up."""

import functools
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.core.steps import Acknowledgement
from multicentre.data import MultiViewData
from multicentre.engines.faults import Faults
from multicentre.errors import DataError, DisclosureRefused, DisclosureWarning, QuorumLost, RefusedByPolicy
from multicentre.multiview.agreement import Description
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.privacy.secure_sum.messages import Advertisement, Masked
from support.engines import with_engine
from support.ppca_federations import SIZES, federate, law, make, small_sites

METHODS = ("invariant", "hierarchical", "as published")
SMALL = {"max_iter": 4}


def local_iterations(method):
    return {} if method == "invariant" else {"n_local_iter": 3}


by_method = pytest.mark.parametrize("method", METHODS)


class Wiretap:
    """Wraps an engine and keeps every outcome that passes to the coordinator."""

    def __init__(self, engine):
        self.engine, self.heard = engine, []
        self.sites, self.run_command, self.close = engine.sites, engine.run_command, engine.close

    def exchange(self, calls, time_limit_s):
        outcomes = self.engine.exchange(calls, time_limit_s)
        self.heard += [(site, outcome) for site, outcome in outcomes.items()]
        return outcomes


def run(sites, method="invariant", **options):
    """Fit few rounds; return the model and its federation."""
    options.setdefault("faults", Faults())
    federation = federate(sites, **options)
    return fit_over(federation, method), federation


def fit_over(federation, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DisclosureWarning)
        return make(2, method=method, **SMALL, **local_iterations(method)).fit(federation)


@pytest.fixture(scope="module")
def partial():
    return small_sites(lacking={1: "image"})


# --- only sums ----------------------------------------------------------------------------------------------------


@by_method
def test_no_array_of_a_single_site_reaches_the_coordinator(method, partial):
    federation = federate(partial)
    tap = Wiretap(federation.engine)
    federation = with_engine(federation, tap)
    fit_over(federation, method)
    unmasked = [outcome for _, outcome in tap.heard if not isinstance(outcome, Advertisement | Masked)]
    assert {type(outcome) for outcome in unmasked} == {Description, Acknowledgement}
    assert not any(isinstance(value, np.ndarray | float) for outcome in unmasked for _, _, _, value in outcome.items())
    assert sum(isinstance(outcome, Masked) for _, outcome in tap.heard) > 3 * SMALL["max_iter"]


def test_every_step_but_names_and_units_is_a_sum():
    single = {step.name for step in MvPPCASite.steps().values() if not step.summed}
    assert single == {"describe", "prepare", "check_enough_rows"}


@pytest.mark.parametrize(("method", "allowed"), [("invariant", 1e-6), ("as published", 1e-6), ("hierarchical", 2e-3)])
def test_masked_sums_change_loadings_by_no_more_than_the_fixed_point(method, allowed, partial):
    """Between-centre variances near zero are below the fixed point's grain, which the hierarchical fit feels."""
    unmasked, masked = (run(partial, method, secure_sum=secure)[0] for secure in (False, True))
    for view in SIZES:
        difference = (unmasked.loadings_[view] - masked.loadings_[view]) / unmasked.layout.split(unmasked._spread)[
            view
        ][:, None]
        assert np.abs(difference).max() < allowed
    assert masked.training_["mae"] == pytest.approx(unmasked.training_["mae"], abs=allowed)


# --- small sites --------------------------------------------------------------------------------------------------


def refusals(federation, site):
    return [entry for entry in federation.ledgers[site].entries if entry["event"] == "refusal"]


@by_method
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_twelve_patients_are_refused_where_twenty_are_asked_for(method, secure):
    sites = {"lyon": small_sites(1)["site-0"], "oslo": small_sites(1)["site-0"].take(np.arange(12))}
    federation = federate(sites, policy=mc.Policy(min_patients=20), secure_sum=secure)
    with pytest.raises(DisclosureRefused) as caught:
        fit_over(federation, method)
    assert caught.value.where.startswith("oslo")
    assert "20" in caught.value.what
    refusals = {
        name: [e for e in ledger.entries if e["event"] == "refusal"] for name, ledger in federation.ledgers.items()
    }
    assert len(refusals["oslo"]) == 1
    assert refusals["oslo"][0]["method"] == make(method=method).site_part.method
    assert refusals["lyon"] == []


def test_a_view_that_too_few_patients_have_is_refused_too():
    sites = small_sites()
    image = sites["site-1"].array("image").copy()
    image[8:] = np.nan
    views = {view: sites["site-1"].array(view) for view in SIZES} | {"image": image}
    sites["site-1"] = MultiViewData(views)
    with pytest.raises(DisclosureRefused, match="site-1"):
        run(sites, policy=mc.Policy(min_patients=10))


@pytest.mark.parametrize(
    ("gap", "passes"),
    [
        (np.s_[:9, :], True),  # nine patients lack the view: under masks nobody sees by how much sums differ
        (np.s_[:31, 0], False),  # nine have an entry in the column
        (np.s_[:30, 0], True),
    ],
)
def test_each_column_rests_on_enough_entries_or_is_refused(gap, passes):
    sites = small_sites()
    views = {view: sites["site-1"].array(view).copy() for view in SIZES}
    views["image"][gap] = np.nan
    sites["site-1"] = MultiViewData(views)
    if passes:
        run(sites)
    else:
        with pytest.raises(DisclosureRefused, match=r"site-1.*the answer must have at least 10 patients behind it"):
            run(sites)


@pytest.mark.parametrize("n_missing", [9, 10])
def test_unmasked_those_who_lack_a_column_are_enough_or_the_sums_are_refused(n_missing):
    sites = small_sites()
    views = {view: sites["site-1"].array(view).copy() for view in SIZES}
    views["image"][:n_missing, 0] = np.nan
    sites["site-1"] = MultiViewData(views)
    if n_missing == 10:
        run(sites, secure_sum=False)
    else:
        with pytest.raises(DisclosureRefused, match=r"site-1.*secure_sum=True"):
            run(sites, secure_sum=False)


def test_two_views_that_few_patients_have_together_are_refused():
    sites = small_sites()
    views = {view: sites["site-1"].array(view).copy() for view in SIZES}
    views["image"][20:] = np.nan
    views["genes"][9:20] = np.nan
    sites["site-1"] = MultiViewData(views)
    with pytest.raises(DisclosureRefused, match=r"site-1.*the answer must have at least 10 patients behind it"):
        run(sites)


def test_a_method_that_is_not_allowed_leaves_nothing():
    federation = federate(small_sites(), policy=mc.Policy(methods=("describe",)))
    with pytest.raises(RefusedByPolicy):
        fit_over(federation, "invariant")
    assert all(entry["event"] != "release" for ledger in federation.ledgers.values() for entry in ledger.entries)


# --- taken up again -----------------------------------------------------------------------------------------------


@functools.cache
def uninterrupted(method, secure):
    model, federation = run(small_sites(lacking={1: "image"}), method, secure_sum=secure)
    return law(model), model.history_, federation.engine.exchanges


@by_method
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("part", [0.1, 0.4, 0.6, 0.8, 0.95])
def test_a_run_broken_off_and_taken_up_is_the_same_bit_for_bit(method, secure, part, partial, tmp_path):
    expected, history, n_exchanges = uninterrupted(method, secure)
    faults = Faults(interrupt_at=round(part * n_exchanges))
    with pytest.raises(KeyboardInterrupt):
        run(partial, method, secure_sum=secure, folder=tmp_path, faults=faults)
    model, federation = run(partial, method, secure_sum=secure, folder=tmp_path)
    assert law(model).tobytes() == expected.tobytes()
    assert model.history_ == history
    if part > 0.5:
        assert federation.engine.exchanges < n_exchanges


def test_a_run_that_is_complete_asks_for_no_round_again(partial, tmp_path):
    first, before = run(partial, folder=tmp_path)
    again, after = run(partial, folder=tmp_path)
    assert law(first).tobytes() == law(again).tobytes()
    assert after.engine.exchanges < before.engine.exchanges / 3


# --- a lost site --------------------------------------------------------------------------------------------------


@by_method
@pytest.mark.parametrize("lost", ["site-0", "site-1", "site-2"])
def test_a_lost_site_does_not_end_a_run_within_its_quorum(method, lost, partial):
    at = uninterrupted(method, False)[2] - SMALL["max_iter"]
    model, _ = run(partial, method, quorum=2, secure_sum=False, faults=Faults(lose={lost: at}))
    assert len(model.session) == 2
    assert np.isfinite(law(model)).all()
    assert model.n_patients_ == 80


@by_method
def test_the_only_site_with_a_view_may_be_lost(method):
    sites = small_sites(lacking={1: "image", 2: "image"})
    at = uninterrupted(method, False)[2] - SMALL["max_iter"]
    model, _ = run(sites, method, quorum=2, secure_sum=False, faults=Faults(lose={"site-0": at}))
    assert np.isfinite(law(model)).all()


@pytest.mark.parametrize("at", range(1, 6))
def test_a_view_that_is_lost_before_the_first_round_is_named(at):
    sites = small_sites(lacking={1: "image", 2: "image"})
    with pytest.raises(DataError, match="no site") as caught:
        run(sites, quorum=2, faults=Faults(lose={"site-0": at}), policy=mc.Policy(min_sites_in_sum=1))
    assert "image" in str(caught.value)


def test_a_lost_site_ends_a_run_that_needs_all(partial):
    with pytest.raises(QuorumLost, match="site-1"):
        run(partial, faults=Faults(lose={"site-1": 5}))
