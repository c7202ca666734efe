"""Two selections of one plan differ at a site by nobody or by many people, however many records each of them has."""

import itertools

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import DataError, DisclosureRefused
from multicentre.privacy.patient_counts import People
from multicentre.survival.agreement.messages import OfCause
from multicentre.survival.cox.site import CoxSite
from multicentre.validation.folds.by_site import DrawnFolds, FederatedKFold, SiteFolds
from multicentre.validation.folds.covariate import CovariateFoldKFold
from multicentre.validation.folds.cut import CutFolds
from multicentre.validation.folds.group_sizes import spare_few
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.keyed import HashedFolds
from multicentre.validation.folds.site import Drawing
from support.fold_sites import folds_of, table

LEAST = 10
SITES = ("lyon", "oslo", "turin")
POLICY = mc.Policy(min_patients=LEAST)


def survival_sites(n_people, n_records=12):
    """Return sites whose people have several records each, and the names of the people by site."""
    names = {site: [f"{site} {one}" for one in np.repeat(np.arange(n), n_records)] for site, n in n_people.items()}
    sites = {}
    for seed, (site, own) in enumerate(names.items()):
        rng = np.random.default_rng(seed)
        data = mc.data.SurvivalData(
            rng.normal(size=(len(own), 2)), rng.exponential(1.0, len(own)), np.ones(len(own), int)
        )
        sites[site] = data.with_identifier(own)
    return sites, names


def selections(n_splits):
    return [folds for size in range(n_splits + 1) for folds in itertools.combinations(range(n_splits), size)]


def differences(fold, n_splits, people, others=()):
    """Return by how many people any two selections of folds differ, and any of them and all records in `others`."""
    chosen = [np.isin(fold, folds) & (fold >= 0) for folds in selections(n_splits)] + list(others)
    return {n_people(people, one != other) for one, other in itertools.combinations(chosen, 2)}


def n_people(people, chosen):
    rows = np.flatnonzero(chosen)
    return people.among(rows).fewest(len(rows))


def sum_sizes(plan, folds, *, clear_site=""):
    federation = plan._select(list(folds), 0, {site: tuple(range(plan.n_splits)) for site in SITES})
    if clear_site:
        answers = federation.unmasked().begin(CoxSite).collect(CoxSite.sum_sizes, OfCause(1))
        return answers[clear_site].total
    return federation.begin(CoxSite).sum(CoxSite.sum_sizes, OfCause(1)).total


@pytest.mark.filterwarnings("ignore:FederatedKFold")
def test_two_sums_over_folds_of_one_person_each_do_not_tell_that_persons_own():
    """120 people with 12 records each in 100 folds: each fold has more records than the minimum, and one person."""
    sites, _ = survival_sites(dict.fromkeys(SITES, 120))
    federation = mc.Federation.in_process(sites, secure_sum=True, policy=POLICY)
    with pytest.raises(DataError, match="at least one site must have its policy's minimum of patients in a fold"):
        FederatedKFold(100, patient_key="identifier").plan(federation)


@pytest.mark.filterwarnings("ignore:FederatedKFold")
@pytest.mark.parametrize("clear_site", ["", "oslo"])
def test_sums_with_a_fold_and_without_it_differ_by_nobody_or_by_ten_people_of_each_site(clear_site):
    """At oslo four of twelve folds have nine people: they are emptied, also for what is asked unmasked afterwards."""
    sites, names = survival_sites({"lyon": 120, "oslo": 116, "turin": 130})
    federation = mc.Federation.in_process(sites, secure_sum=True, policy=POLICY)
    plan = FederatedKFold(12, patient_key="identifier").plan(federation)
    folds, whole = folds_of(plan), sum_sizes(plan, range(12), clear_site=clear_site)
    emptied = 0
    for left_out in range(12):
        part = sum_sizes(plan, [fold for fold in range(12) if fold != left_out], clear_site=clear_site)
        people = {site: len(set(np.array(names[site])[folds[site] == left_out])) for site in SITES}
        assert all(number == 0 or number >= LEAST for number in people.values())
        assert np.allclose(whole, part, atol=1e-5) == (people.get(clear_site) == 0)
        emptied += people["oslo"] == 0
    assert emptied == 4
    # Four folds of nine people: 36 are left out, so nobody of another fold has to join them.
    assert plan.n_left_out == 36 * 12


def test_in_clear_a_fold_of_few_people_with_many_records_is_refused_and_stays_unusable():
    sites, _ = survival_sites(dict.fromkeys(SITES, 120))
    federation = mc.Federation.in_process(sites, secure_sum=False, policy=POLICY)
    opened = federation.begin(DrawnFolds)
    opened.ask(DrawnFolds.draw, Drawing(60, 0, "identifier"))
    with pytest.raises(DisclosureRefused, match="every fold, and the records without a fold, must have at least 10"):
        opened.sum(DrawnFolds.count_folds, Nothing())
    with pytest.raises(DataError, match="must hold at least one record of this site"):
        opened.select([0], list(SITES)).begin(CoxSite).collect(CoxSite.sum_sizes, OfCause(1))


@pytest.mark.parametrize("owners", [(0, 1, 2, 3, 4), (0, 0, 1, 1, 2), (0, 0, 0, 1, 2), (0, -1, 1, 1, -1)])
@pytest.mark.parametrize("least", [1, 2, 3])
def test_of_every_small_plan_any_two_selections_differ_by_nobody_or_by_enough(owners, least):
    """Every division of five records into three folds or none, patients' records apart or together."""
    people = People(None if one < 0 else str(one) for one in owners)
    known = people.patient_numbers(all_named=False)
    for fold in map(np.array, itertools.product(range(-1, 3), repeat=len(owners))):
        spared = spare_few(fold, 3, least, np.arange(len(fold))[::-1], known)
        apart = differences(spared, 3, people, [fold >= 0])
        # Of fewer people than the minimum in all, every record is left out: nothing is selected.
        assert min(apart - {0}, default=least) >= least or (spared < 0).all()
        assert ((spared == fold) | (spared == -1)).all()
        # No record is left out for nothing: where all folds are of enough, all stay.
        if all(n_people(people, fold == k) in (0, *range(least, 6)) for k in range(3)):
            assert np.array_equal(spared, fold)


def drawn_people(rng, n_people, n_unnamed=0):
    """Return names of records: some people have many, most have one or two."""
    n_records = np.where(rng.random(n_people) < 0.2, rng.integers(5, 40, n_people), rng.integers(1, 3, n_people))
    names = [f"p{one:03d}" for one in np.repeat(np.arange(n_people), n_records)] + [None] * n_unnamed
    return [names[place] for place in rng.permutation(len(names))]


@pytest.mark.parametrize("kind", [DrawnFolds, HashedFolds, CutFolds, SiteFolds])
@pytest.mark.parametrize("masked", [True, False])
def test_a_part_counts_the_people_of_its_folds(kind, masked):
    """Records of one person lie in several folds here, as where a strategy knows them by another name."""
    rng, n_counted = np.random.default_rng(7), 0
    for turn in range(40):
        names = drawn_people(rng, int(rng.integers(30, 80)), n_unnamed=int(rng.integers(0, 4)))
        people, n_splits = People(names), int(rng.integers(2, 6))
        fold = rng.choice(n_splits, len(names), p=rng.dirichlet(np.ones(n_splits)))
        part = kind("lyon", table(rng, names, identifier=names))
        part.masked, part.least_behind, part.n_peers = masked, LEAST, 3
        part.persons = people.patient_numbers(all_named=False)
        part.settle(fold, n_splits, Nothing())
        few = any(0 < n_people(people, fold == k) < LEAST for k in range(n_splits))
        if not masked and few:
            with pytest.raises(
                DisclosureRefused, match="every fold, and the records without a fold, must have at least 10"
            ):
                part.count_folds(Nothing())
            assert part.folds is None
            continue
        part.count_folds(Nothing())
        n_counted += 1
        apart = differences(part.folds, n_splits, people, [np.ones(len(fold), dtype=bool)])
        assert min(apart - {0}) >= LEAST, turn
        told = part.find_presence(Nothing())
        inside = [n_people(people, part.folds == k) >= LEAST for k in range(n_splits)]
        outside = [n_people(people, (part.folds >= 0) & (part.folds != k)) >= LEAST for k in range(n_splits)]
        assert (told.inside.tolist(), told.outside.tolist()) == (inside, outside)
    assert n_counted


def table_sites(seed=0, n_people=90):
    """Return sites whose people have many records, a day of birth each, and the names of their records' people."""
    rng = np.random.default_rng(seed)
    names = {site: [f"{site} {one}" for one in drawn_people(rng, n_people)] for site in SITES}
    sites = {}
    for site, own in names.items():
        days = {
            one: f"19{rng.integers(30, 99)}-0{rng.integers(1, 10)}-{rng.integers(10, 28)}" for one in sorted(set(own))
        }
        sites[site] = table(rng, own, identifier=own, born=[days[one] for one in own])
    return sites, names


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "splitter",
    [
        FederatedKFold(4),
        FederatedKFold(9, patient_key="identifier"),
        HashGroupKFold(6),
        HashGroupKFold(6, stratify=False, patient_key="identifier"),
        CovariateFoldKFold(5, covariate="x0"),
        CovariateFoldKFold(4, covariate="born", kind="date", scheme="hash"),
    ],
    ids=["records", "patients", "hash", "hash of patients", "thresholds", "hash of birth"],
)
def test_selections_of_a_plan_and_of_one_within_it_differ_by_nobody_or_by_many_people(splitter):
    sites, names = table_sites()
    federation = mc.Federation.in_process(sites, secure_sum=True, policy=POLICY)
    outer = splitter.plan(federation)
    inner = FederatedKFold(4, patient_key="identifier").plan(outer.train(0))
    for site, fold in folds_of(outer).items():
        people = People(names[site])
        assert min(differences(fold, outer.n_splits, people, [np.ones(len(fold), dtype=bool)]) - {0}) >= LEAST
    for site, fold in folds_of(inner).items():
        rows = np.flatnonzero((folds_of(outer)[site] >= 0) & (folds_of(outer)[site] != 0))
        people = People([names[site][row] for row in rows])
        assert min(differences(fold, inner.n_splits, people, [np.ones(len(fold), dtype=bool)]) - {0}) >= LEAST


def test_in_clear_few_records_without_a_name_are_one_patient():
    """They may all be one person's, so leaving them out would tell of that person."""
    names = [None] * 12 + [f"p{one}" for one in range(200)]
    sites = {site: table(np.random.default_rng(seed), names, identifier=names) for seed, site in enumerate(SITES)}
    federation = mc.Federation.in_process(sites, secure_sum=False, policy=POLICY)
    with pytest.raises(
        DisclosureRefused, match="the patients without an identifier must be none or at least 10, because"
    ):
        HashGroupKFold(2, max_missing=0.1).plan(federation)


def test_where_nobody_has_two_records_folds_are_as_without_names():
    rng = np.random.default_rng(5)
    fold = rng.choice(5, 90, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    order = rng.permutation(90)
    known = People([f"p{one}" for one in rng.permutation(90)])
    assert known.patient_numbers(all_named=False) is None
    assert np.array_equal(spare_few(fold, 5, LEAST, order), spare_few(fold, 5, LEAST, order, np.arange(90)))
