"""A view or column that too few sites have does not leave in a masked sum, with an honest coordinator or another."""

import dataclasses
import json

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.data.missing.values import Handling
from multicentre.errors import (
    IntegrityError,
    LeftOutWarning,
    MessageError,
    MulticentreError,
    RefusedByPolicy,
)
from multicentre.multiview import agreement as views
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.privacy.secure_sum import rounds
from multicentre.privacy.sites_per_field import SiteFields
from multicentre.survival.cox.site import CoxSite
from multicentre_papers import baselines

pytestmark = [
    pytest.mark.filterwarnings("ignore::multicentre.data.screening.DataWarning"),
    pytest.mark.filterwarnings("ignore::multicentre.errors.DisclosureWarning"),
    pytest.mark.filterwarnings("ignore:the rounds ended at max_iter"),
    pytest.mark.filterwarnings("ignore:missing_x2. the column carries no information"),
    pytest.mark.filterwarnings("ignore:.*less than a tenth of the variance lies within sites"),
]
N = 40
SITES = ("lyon", "oslo", "turin")


def rows(place, d=3):
    return np.random.default_rng(place).standard_normal((N, d)) + 10.0 * place


def viewed(n_with_scan, *, n_sites=3):
    """Return sites of which the first have the view "scan"."""
    sites = {}
    for place, name in enumerate((*SITES, "ghent")[:n_sites]):
        held = {"blood": rows(place)} | ({"scan": rows(place + 10, 2)} if place < n_with_scan else {})
        sites[name] = mc.data.MultiViewData(held)
    return sites


def emptied(n_with_entries, *, n_left=0):
    """Return sites with one view, whose last column has entries at the first sites and `n_left` at the others."""
    sites = {}
    for place, name in enumerate(SITES):
        values = rows(place)
        values[n_left if place >= n_with_entries else N :, 2] = np.nan
        sites[name] = mc.data.MultiViewData({"blood": values})
    return sites


def table(n_with_entries, *, n_left=0):
    sites = {}
    for place, name in enumerate(SITES):
        values, random = rows(place), np.random.default_rng(place)
        values[n_left if place >= n_with_entries else N :, 2] = np.nan
        sites[name] = mc.data.SurvivalData(values, random.exponential(1.0, N), np.ones(N, dtype=int))
    return sites


def federate(sites, **options):
    return mc.Federation.in_process(sites, **{"secure_sum": True, "one_row_per_patient": True, **options})


VIEW = r"got 1 for view 'scan' \(at lyon\)"
COLUMN = r"got 1 for view 'blood', column 'blood_2'"


@pytest.mark.parametrize("model", [mc.multiview.FedMvPPCA(1), baselines.FedMVFCM(2), baselines.FedMVFPC(2)])
def test_a_view_of_one_site_alone_is_refused_before_anything_is_summed(model):
    federation = federate(viewed(1))
    with pytest.raises(RefusedByPolicy, match=VIEW) as caught:
        model.fit(federation)
    assert "Leave the view or column out at every site" in str(caught.value)
    entries = federation.ledgers["lyon"].entries
    assert [entry for entry in entries if entry["event"] == "release" and entry["protection"] == "masked"] == []
    assert entries[-1]["event"] == "refusal"
    assert "1 for view 'scan' (at lyon)" in entries[-1]["reason"]


def test_views_of_enough_sites_and_of_all_go_through():
    for n_with_scan in (2, 3):
        model = mc.multiview.FedMvPPCA(1, max_iter=2).fit(federate(viewed(n_with_scan)))
        assert model.schema_.views == ("blood", "scan")


def test_the_policy_says_how_many_sites():
    strict, loose = mc.Policy(min_sites_in_sum=3), mc.Policy(min_sites_in_sum=1)
    with pytest.raises(RefusedByPolicy, match=r"got 2 for view 'scan' \(at lyon, oslo\)"):
        mc.multiview.FedMvPPCA(1).fit(federate(viewed(2), policy=strict))
    mc.multiview.FedMvPPCA(1, max_iter=2).fit(federate(viewed(1), policy=loose))


def test_a_column_without_entries_at_all_sites_but_one_is_refused():
    with pytest.raises(RefusedByPolicy, match=COLUMN):
        mc.multiview.FedMvPPCA(1).fit(federate(emptied(1)))
    mc.multiview.FedMvPPCA(1, max_iter=2).fit(federate(emptied(2)))


@pytest.mark.parametrize("missing", ["mean", "indicator"])
@pytest.mark.parametrize("n_left", [0, 9])
def test_a_column_of_a_table_that_one_site_alone_has_is_refused(missing, n_left):
    """Entries of fewer patients than the policy's minimum make no second site."""
    with pytest.raises(RefusedByPolicy, match=r"got 1 for column 'x2'"):
        mc.survival.FedCox(missing=missing).fit(federate(table(1, n_left=n_left)))
    mc.survival.FedCox(missing=missing).fit(federate(table(2, n_left=n_left)))
    mc.survival.FedCox(missing=missing).fit(federate(table(1, n_left=10)))


def test_sites_that_may_be_lost_do_not_count():
    """Two of four sites have the view: with a quorum of three one of them may be lost."""
    four = viewed(2, n_sites=4)
    mc.multiview.FedMvPPCA(1, max_iter=2).fit(federate(four))
    with pytest.raises(RefusedByPolicy, match=r"got 1 for view 'scan'"):
        mc.multiview.FedMvPPCA(1).fit(federate(four, quorum=3))


def people_of(values):
    return {
        name: mc.data.MultiViewData({"blood": own}).with_identifier([f"{name}{record}" for record in range(N)])
        for name, own in values.items()
    }


def test_records_of_a_selection_count_and_not_those_of_the_site():
    """At two of three sites the column has entries in fold 0 alone: without that fold it is one site's."""
    values = {name: rows(place) for place, name in enumerate(SITES)}
    federation = federate(people_of(values))
    plan = mc.validation.HashGroupKFold(2).plan(federation)
    for name in SITES[1:]:
        parts = federation.engine._runtimes[name].sessions.parts
        (folds,) = (part.folds for part in parts.values() if part.folds is not None)
        values[name][folds != 0, 2] = np.nan
    plan = mc.validation.HashGroupKFold(2).plan(federate(people_of(values)))
    mc.multiview.FedMvPPCA(1, max_iter=2).fit(plan.test(0))
    with pytest.raises(RefusedByPolicy, match=COLUMN):
        mc.multiview.FedMvPPCA(1, max_iter=2).fit(plan.train(0))


# --- a coordinator that cheats ---------------------------------------------------------------------------------------

STACKING = views.Stacking(("blood", "scan"), {"blood": 3, "scan": 2})


def lying(monkeypatch, change):
    """Have the coordinator change the lists that it passes on."""
    honest = rounds._stacked

    def stacked(terms, answers):
        public = honest(terms, answers)
        return dataclasses.replace(public, fields=tuple(change(json.loads(told)) for told in public.fields))

    monkeypatch.setattr(rounds, "_stacked", stacked)


@pytest.mark.parametrize("quorum", ["all", 2])
@pytest.mark.parametrize(
    "change",
    [
        lambda held: json.dumps({**held, "views": ["blood", "scan"]}),
        lambda held: json.dumps({**held, "views": ["blood"]}),
        lambda held: json.dumps({"views": [], "sparse": {}}),
        lambda held: "",
        lambda held: "[" * 10_000,
    ],
)
def test_a_list_that_was_changed_on_its_way_is_refused_by_every_site(monkeypatch, change, quorum):
    lying(monkeypatch, change)
    federation = federate(viewed(1), quorum=quorum)
    session = federation.begin(MvPPCASite)
    with pytest.raises(IntegrityError, match=r"signature|must be those that it sent"):
        session.sum(MvPPCASite.column_orders, STACKING)


def test_a_list_of_another_session_does_not_serve(monkeypatch):
    """Signed lists of a session in which a site had the view cannot be shown in another."""
    federation = federate(viewed(2))
    kept = {}
    honest = rounds._stacked

    def keep(terms, answers):
        kept.update(answers)
        return honest(terms, answers)

    monkeypatch.setattr(rounds, "_stacked", keep)
    federation.begin(MvPPCASite).sum(MvPPCASite.column_orders, STACKING)
    monkeypatch.setattr(rounds, "_stacked", lambda terms, answers: honest(terms, {**answers, "oslo": kept["oslo"]}))
    with pytest.raises(IntegrityError, match="the keys must have a valid signature of this site"):
        federation.begin(MvPPCASite).sum(MvPPCASite.column_orders, STACKING)


ASKS = {
    "ppca": (viewed, MvPPCASite.column_orders, STACKING),
    "cox": (table, CoxSite.count_gaps, Handling("mean", ("x0", "x1", "x2"))),
}


@pytest.mark.parametrize("name", ASKS)
def test_the_first_sum_of_a_session_is_refused_whatever_was_asked_before(name):
    sites, step, request = ASKS[name]
    session = federate(sites(1)).begin(step.part)
    session.ask(step.part.describe, Nothing())
    with pytest.raises(RefusedByPolicy, match="at least 2 sites must have each view and column of a masked sum"):
        session.sum(step, request)


@pytest.mark.parametrize("told", ["", "3", "[]", "{}", '{"views": 3}', '{"views": [], "sparse": []}', '{"views": [1]}'])
def test_a_site_that_signs_no_list_is_named(monkeypatch, told):
    monkeypatch.setattr("multicentre.privacy.sites_per_field.SiteFields.to_text", lambda held: told)
    session = federate(viewed(3)).begin(MvPPCASite)
    with pytest.raises(
        MulticentreError, match="the list of the site's fields must be JSON with views and sparse columns"
    ) as caught:
        session.sum(MvPPCASite.column_orders, STACKING)
    assert isinstance(caught.value, MessageError)


# --- a site that lies about its fields -------------------------------------------------------------------------------


def with_phantoms(monkeypatch, federation, phantom, *, site="lyon"):
    """Have one site sign that it has fields which it has not, and check nothing itself."""
    gate = federation.engine._runtimes[site]._gate
    monkeypatch.setattr(gate, "fields_of", lambda data: phantom)
    monkeypatch.setattr(gate, "check_sites_per_field", lambda *args: None)
    return federation


PHANTOMS = {
    "view": (viewed(0), SiteFields(("blood", "phantom"))),
    "column that is empty elsewhere": (emptied(0), SiteFields(("blood",))),
    "column of no view": (viewed(0, n_sites=2), SiteFields(("blood",), {"": ("phantom",)})),
}


@pytest.mark.parametrize("quorum", ["all", 2])
@pytest.mark.parametrize("name", PHANTOMS)
def test_a_site_that_claims_a_field_does_not_end_the_sums_of_the_others(monkeypatch, name, quorum):
    sites, phantom = PHANTOMS[name]
    federation = with_phantoms(monkeypatch, federate(sites, quorum=quorum), phantom)
    session = federation.begin(MvPPCASite)
    assert session.sum(MvPPCASite.column_orders, views.Stacking(("blood",), {"blood": 3})) is not None
    for ledger in federation.ledgers.values():
        assert "refusal" not in {entry["event"] for entry in ledger.entries}


@pytest.mark.parametrize("quorum", ["all", 2])
def test_the_site_that_alone_has_a_view_refuses_for_itself_and_is_named(quorum):
    federation = federate(viewed(1), quorum=quorum, refusing_sites="stop")
    with pytest.raises(RefusedByPolicy, match=r"got 1 for view 'scan' \(at lyon\)") as caught:
        federation.begin(MvPPCASite).sum(MvPPCASite.column_orders, STACKING)
    assert str(caught.value).startswith("lyon")
    for name in SITES[1:]:
        assert "refusal" not in {entry["event"] for entry in federation.ledgers[name].entries}


def test_the_others_go_on_without_the_site_that_alone_has_a_view():
    federation = federate(viewed(1), quorum=2, refusing_sites="leave_out")
    with pytest.warns(LeftOutWarning, match=r"lyon: .* got 1 for view 'scan'"):
        model = mc.multiview.FedMvPPCA(1, max_iter=2).fit(federation)
    assert list(model.left_out_) == ["lyon"]


def test_a_site_with_a_few_entries_of_a_column_refuses_and_one_with_none_does_not():
    sites = table(1, n_left=9)
    sites["turin"] = table(1)["turin"]
    with pytest.raises(RefusedByPolicy, match=r"lyon, oslo"):
        mc.survival.FedCox(missing="mean").fit(federate(sites))


def test_with_a_budget_no_column_is_named():
    policy = mc.Policy(epsilon=1.0)
    federation = federate(emptied(1), policy=policy)
    runtime = federation.engine._runtimes["oslo"]
    assert runtime._gate.fields_of(runtime.data).sparse == {}
    assert runtime._gate.fields_of(runtime.data).views == ("blood",)
