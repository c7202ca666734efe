"""A total over too few patients is not revealed: not to a method, not through any engine, not cell by cell."""

import contextlib
import dataclasses
import importlib
import pkgutil
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.calls import Mask
from multicentre.core.messages import Nothing, array, arrays, count
from multicentre.core.noise_plan import Noise, Plan, Planned
from multicentre.core.steps import Release, SitePart, step
from multicentre.core.total_minimum import check_cells
from multicentre.engines.remote import engine
from multicentre.errors import DisclosureRefused, IntegrityError, RefusedByPolicy
from multicentre.privacy.card import disclosure_card
from multicentre.privacy.secure_sum.messages import Masked
from multicentre.studies.disclosure_cards import study_card
from multicentre.studies.study_file import study_from_mapping
from support.engines import with_engine
from support.remote_sites import ByHand, RequestHandlers


@dataclass(frozen=True)
class Counted(Release):
    """Patients by cell, and sums over them."""

    cells: np.ndarray = array("patients by cell", ("c",), dtype="i8", bound=1e6, counts=True)
    weights: np.ndarray = array("weights by cell", ("c",), bound=1e6)
    n: int = count("patients", bound=1e6, sensitivity=1.0)


@dataclass(frozen=True)
class ByView(Release):
    """Sums of each view."""

    sums: dict = arrays("sums by view", ("d",), bound=1e6)


@dataclass(frozen=True)
class Noised(Release):
    """A sum that can leave with noise."""

    total: np.ndarray = array("sum", ("d",), bound=1e3, sensitivity=1.0)


@dataclass(frozen=True)
class Single(Release):
    """Values about single patients."""

    individual: ClassVar[bool] = True
    near: np.ndarray = array("how near", ("n",), bound=1.0, permission="relations=summed")


class CellSite(SitePart):
    """Holds the number of patients in each cell."""

    method = "cells"
    holds = np.ndarray

    @step(releases=Counted, summed=True)
    def add(self, request: Nothing) -> Counted:
        """Count the patients."""
        n = int(self.data.sum())
        return Counted(self.data, 0.5 * self.data, n, patients=n)

    @step(releases=ByView, summed=True)
    def add_views(self, request: Nothing) -> ByView:
        """Add up each view; a cell stands for a view."""
        views = [f"view-{i}" for i in range(len(self.data))]
        sums = {view: np.ones(2) * (n > 0) for view, n in zip(views, self.data, strict=True)}
        return ByView(sums, patients=dict(zip(views, map(int, self.data), strict=True)))

    @step(releases=Noised, summed=True)
    def add_noised(self, request: Nothing) -> Noised:
        """Add up."""
        return Noised(np.ones(2), patients=int(self.data.sum()))

    @step(releases=Single, summed=True)
    def relate(self, request: Nothing) -> Single:
        """Relate patients."""
        return Single(np.ones(2))


LOOSE = mc.Policy(min_patients=0)
FIVE = mc.Policy(min_patients=0, min_patients_in_total=5)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(engine, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(engine, "_CLOSING_S", 0.1)


def sites_of(*rows):
    return {f"site-{i}": np.array(row, dtype=np.int64) for i, row in enumerate(rows)}


def in_process(rows, tmp_path, policy=FIVE, **options):
    return mc.Federation.in_process(sites_of(*rows), policy=policy, **options)


def strict(rows, tmp_path, policy=FIVE, **options):
    return in_process(rows, tmp_path, policy, strict=True, **options)


def over_letters(rows, tmp_path, policy=FIVE, **options):
    sites = RequestHandlers(sites_of(*rows), tmp_path, policy=policy)
    return mc.Federation.over(ByHand(sites.handles), **options)


engines = pytest.mark.parametrize("make", [in_process, strict, over_letters])


def refusal(federation, which=CellSite.add):
    with federation, pytest.raises(DisclosureRefused) as caught:
        federation.begin(CellSite).sum(which, Nothing())
    return caught.value


@engines
@pytest.mark.parametrize("quorum", ["all", 2])
def test_a_masked_total_of_four_is_refused_and_of_five_revealed(make, quorum, tmp_path):
    error = refusal(make([[3], [1], [0]], tmp_path / "few", quorum=quorum))
    assert error.where == "Counted.cells, Counted.weights, Counted.n"
    assert error.what == "the total must rest on at least 5 patients of all sites; it rests on fewer"
    with make([[3], [1], [1]], tmp_path / "enough", quorum=quorum) as federation:
        total = federation.begin(CellSite).sum(CellSite.add, Nothing())
    assert (total.n, total.cells.tolist(), total.weights.tolist()) == (5, [5], [2.5])


@engines
def test_the_largest_minimum_of_any_site_counts(make, tmp_path):
    policies = {"site-0": LOOSE, "site-1": dataclasses.replace(FIVE, min_patients_in_total=7), "site-2": FIVE}
    assert "at least 7 patients" in refusal(make([[2], [2], [2]], tmp_path / "few", policies)).what
    with make([[2], [2], [3]], tmp_path / "enough", policies) as federation:
        assert federation.least_in_total == 7
        assert federation.begin(CellSite).sum(CellSite.add, Nothing()).n == 7


@engines
def test_a_table_is_refused_for_one_small_cell(make, tmp_path):
    error = refusal(make([[9, 2, 1, 0], [9, 2, 2, 0]], tmp_path / "few"))
    assert (error.where, error.what) == (
        "Counted.cells",
        "each cell of the total must be 0 or at least 5 patients; smaller cells: 2",
    )
    with make([[9, 2, 3, 0], [9, 3, 2, 0]], tmp_path / "enough") as federation:
        assert federation.begin(CellSite).sum(CellSite.add, Nothing()).cells.tolist() == [18, 5, 5, 0]


def test_a_field_that_is_no_table_of_patients_may_be_small():
    check_cells(Counted(np.array([9, 0]), np.array([1.0, 2.0]), 1), 5)


@engines
def test_each_view_needs_patients_of_its_own(make, tmp_path):
    error = refusal(make([[9, 3, 0, 2], [9, 1, 0, 3]], tmp_path / "few"), CellSite.add_views)
    assert error.where == "ByView.sums[view-1]"
    with make([[9, 3, 0, 2], [9, 2, 0, 3]], tmp_path / "enough") as federation:
        total = federation.begin(CellSite).sum(CellSite.add_views, Nothing())
    assert [int(total.sums[f"view-{i}"][0]) for i in range(4)] == [2, 2, 0, 2]


def test_a_total_of_no_patient_says_nothing_and_is_revealed(tmp_path):
    with in_process([[0, 0], [0, 0]], tmp_path) as federation:
        assert federation.begin(CellSite).sum(CellSite.add, Nothing()).n == 0


# Unmasked sums


@engines
def test_an_unmasked_summand_needs_as_many_patients(make, tmp_path):
    error = refusal(make([[5], [4]], tmp_path / "few", secure_sum=False))
    assert error.what.startswith("the answer must have at least 5 patients behind it")
    assert error.where.startswith("site-1, add")
    with make([[5], [5]], tmp_path / "enough", secure_sum=False) as federation:
        assert federation.begin(CellSite).sum(CellSite.add, Nothing()).n == 10


def test_cells_of_an_unmasked_total_are_checked_too(tmp_path):
    error = refusal(in_process([[9, 1], [9, 3]], tmp_path, secure_sum=False))
    assert (error.where, error.what[-16:]) == ("Counted.cells", "smaller cells: 1")


def test_a_single_site_whose_sums_are_not_masked_is_held_to_the_minimum(tmp_path):
    assert "at least 5 patients" in refusal(in_process([[4]], tmp_path)).what


def test_where_one_site_is_left_of_a_selection_the_minimum_stays(tmp_path):
    federation = in_process([[9, 1], [9, 9]], tmp_path)
    assert federation.unmasked().least_in_total == 5


# What travels


class Wiretap:
    """Wraps an engine, keeps masked values, and may change what sites are asked."""

    def __init__(self, engine, change=lambda site, call: call):
        self.engine, self.masked, self.change = engine, {}, change
        self.sites, self.run_command, self.close = engine.sites, engine.run_command, engine.close

    def exchange(self, calls, time_limit_s):
        calls = {site: self.change(site, call) for site, call in calls.items()}
        outcomes = self.engine.exchange(calls, time_limit_s)
        self.masked |= {site: out for site, out in outcomes.items() if isinstance(out, Masked)}
        return outcomes


def tapped(tmp_path, policy=FIVE, **options):
    federation = in_process([[3, 4], [9, 9]], tmp_path, policy)
    federation = with_engine(federation, Wiretap(federation.engine, **options))
    return federation.begin(CellSite)


def test_by_default_no_patients_are_counted(tmp_path):
    federation = tapped(tmp_path, policy=LOOSE)
    federation.sum(CellSite.add, Nothing())
    assert {len(out.vector) for out in federation.engine.masked.values()} == {2 + 2 + 1 + 1}
    assert "counted" not in federation.consortium.ledgers["site-0"].entries[-1]


def test_counts_travel_under_the_mask_and_stand_in_the_ledger(tmp_path):
    federation = tapped(tmp_path)
    federation.sum(CellSite.add, Nothing())
    vectors = {site: out.vector for site, out in federation.engine.masked.items()}
    assert {len(vector) for vector in vectors.values()} == {2 + 2 + 1 + 1 + 3}
    assert not np.isin(vectors["site-0"], [7]).any()
    assert np.add.reduce(list(vectors.values()))[-4:].tolist() == [0, 25, 25, 25]
    assert federation.consortium.ledgers["site-0"].entries[-1]["counted"] is True


def counting_at(chosen):
    def change(site, call):
        told = call.mask and dataclasses.replace(call.mask, counted=site == chosen)
        return dataclasses.replace(call, mask=told)

    return change


def test_a_coordinator_cannot_have_the_patients_of_one_site_counted(tmp_path):
    """The site that counts has other masks than the one that does not, so neither values nor counts can be read."""
    federation = tapped(tmp_path, policy=LOOSE, change=counting_at("site-0"))
    with pytest.raises(IntegrityError, match="receive the same requests"):
        federation.sum(CellSite.add, Nothing())
    one, other = (federation.engine.masked[site].vector for site in ("site-0", "site-1"))
    assert not np.isin(one[:6] + other, [12, 13, 25, 0]).any()
    assert not np.isin(one[6:], [7]).any()


def test_a_site_with_a_minimum_refuses_to_go_uncounted(tmp_path):
    federation = tapped(tmp_path, change=counting_at("nobody"))
    with pytest.raises(RefusedByPolicy, match=r"min_patients_in_total: the coordinator must count the patients"):
        federation.sum(CellSite.add, Nothing())
    assert not federation.engine.masked


def test_a_sum_with_masks_left_in_it_is_no_result(tmp_path):
    federation = tapped(tmp_path, policy=LOOSE)

    def spoil(calls, time_limit_s, exchange=federation.engine.exchange):
        outcomes = exchange(calls, time_limit_s)
        spoiled = {
            site: dataclasses.replace(out, vector=out.vector + np.uint64(site == "site-0"))
            for site, out in outcomes.items()
            if isinstance(out, Masked)
        }
        return outcomes | spoiled

    federation.engine.exchange = spoil
    with pytest.raises(IntegrityError, match=r"^Counted: the masks of the sites must cancel"):
        federation.sum(CellSite.add, Nothing())


def test_sums_about_single_patients_are_left_to_their_permission(tmp_path):
    with in_process([[3, 4], [9, 9]], tmp_path) as federation:
        assert federation.begin(CellSite).sum(CellSite.relate, Nothing()).near.tolist() == [2.0, 2.0]


# Noise takes the place of the minimum where it hides each patient


def planned(multiplier):
    return Plan((Planned(CellSite.add_noised, Noise("gaussian", {"total": multiplier})),))


def test_what_carries_noise_is_not_counted(tmp_path):
    federation = in_process([[2], [1]], tmp_path)
    federation = with_engine(federation, Wiretap(federation.engine))
    fit = federation.begin(CellSite, plan=planned(2.0))
    assert fit.sum(CellSite.add_noised, Nothing()).total.shape == (2,)
    assert {len(out.vector) for out in federation.engine.masked.values()} == {2 + 1}


def test_noise_that_hides_nobody_is_refused(tmp_path):
    fit = in_process([[20], [10]], tmp_path).begin(CellSite, plan=planned(0.4))
    with pytest.raises(RefusedByPolicy, match="the noised answers must be within epsilon 3 in total to replace a"):
        fit.sum(CellSite.add_noised, Nothing())


# The tables of the methods


def arms(n_few):
    """Return two sites whose patients all have an event at one of two times, `n_few` of them at the second."""
    times = [np.repeat([1.0, 2.0], [20, n_few]), np.repeat([1.0, 2.0], [20, 2])]
    return {
        f"site-{i}": mc.data.SurvivalData(np.zeros((len(time), 1)), time, np.ones(len(time), int), columns=["arm"])
        for i, time in enumerate(times)
    }


@pytest.mark.parametrize("exact_times", [False, True])
def test_a_survival_table_with_a_small_cell_is_refused(exact_times):
    policy = dataclasses.replace(FIVE, exact_times=exact_times)
    with pytest.raises(DisclosureRefused, match=r"Table\.events: each cell of the total must be 0 or at least 5"):
        mc.survival.KaplanMeier().fit(mc.Federation.in_process(arms(2), policy=policy))
    mc.survival.KaplanMeier().fit(mc.Federation.in_process(arms(3), policy=policy))


def parts_below(kind):
    return {kind}.union(*(parts_below(child) for child in kind.__subclasses__()))


def test_the_tables_that_are_checked_cell_by_cell_are_those_of_the_page():
    for one in pkgutil.walk_packages(mc.__path__, "multicentre."):
        if one.name.endswith((".site", ".cut", ".part", ".profiles", "._site")):
            with contextlib.suppress(ImportError):  # parts of extras that are not installed
                importlib.import_module(one.name)
    steps = [step for part in parts_below(SitePart) for step in part.steps().values()]
    found = {
        f"{step.releases.__name__}.{name}"
        for step in steps
        if step.releases.__module__.startswith("multicentre.")
        for name, declaration in step.releases.declarations().items()
        if declaration.counts
    }
    page = (Path(__file__).parents[3] / "docs" / "secure-sums.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+\.\w+)`", page.partition("## Totals over few patients")[2].partition("\n## ")[0]))
    assert found
    assert found == named


# What is said of it


def test_the_card_says_what_is_revealed():
    masked, unmasked = (
        disclosure_card(CellSite, protection=protection, n_sites=3, policy=FIVE)
        for protection in ("masked", "unmasked")
    )
    assert masked.sentences[1].endswith(
        "; a total, or a cell of a table, is revealed only with at least 5 patients of all sites behind it "
        "(min_patients_in_total); the values of relate are about single patients, whom no minimum protects."
    )
    assert masked.warnings[0] == (
        "min_patients_in_total is checked by the coordinator's process, which receives the number of patients behind "
        "each value as a masked sum."
    )
    assert unmasked.sentences[1].endswith(
        "; an unmasked share of a total leaves only with at least 5 patients behind it (min_patients_in_total)."
    )
    for card in (masked, unmasked):
        meanings = {line.field: line.what for line in card.lines if line.step == "add"}
        assert meanings["cells"] == "patients by cell (revealed only if each cell of the total is 0 or at least 5)"
        assert meanings["weights"] == "weights by cell"
    for without in (LOOSE, mc.Policy()):
        card = disclosure_card(CellSite, protection="masked", n_sites=3, policy=without)
        assert "min_patients_in_total" not in str(card)
        assert "revealed" not in str(card)


def test_the_card_of_a_fit_with_noise_says_nothing_of_it():
    card = disclosure_card(CellSite, protection="masked", n_sites=3, policy=FIVE, plan=planned(2.0))
    assert "min_patients_in_total" not in str(card)


@engines
def test_the_card_of_a_federation_names_the_largest_minimum(make, tmp_path):
    policies = {"site-0": LOOSE, "site-1": FIVE}
    with make([[9], [9]], tmp_path, policies) as federation:
        assert "at least 5 records of all sites" in str(federation.card(CellSite))


def test_the_card_of_a_study_names_it():
    study = study_from_mapping(
        {
            "study": {"name": "hips", "method": "fed-cox"},
            "data": {"survival": {"time": "months", "event": "dead"}},
            "sites": {"lyon": {"file": "lyon.csv"}, "nice": {"file": "nice.csv"}},
            "privacy": {"policy": {"min_patients_in_total": 7}},
        }
    )
    assert "at least 7 records of all sites" in str(study_card(study))


def test_a_mask_does_not_count_unless_it_says_so():
    assert Mask("first", 0, 2).counted is False
