"""A coordinator that forges buckets, maps and rosters parts nobody off, and learns no fold of anybody."""

import dataclasses
import itertools

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    IntegrityError,
    RefusedByPolicy,
)
from multicentre.linkage.persons import Persons
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.secret_files import Secret
from multicentre.validation.folds import rounds
from multicentre.validation.folds.by_site import DrawnFolds, SiteFolds
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.keyed import HashedFolds, is_halving, purpose_of
from multicentre.validation.folds.site import Bucketing, Drawing, Hashing, Marking, Packing, Roster, Unshared
from support.fold_sites import EXACT, folds_of, people_sites, table

LEAST, N = 10, 200
KEY = PseudonymKey(Secret(bytes(range(32))))
DATA = table(np.random.default_rng(0), np.arange(N))


def part_of(kind=HashedFolds, data=DATA, *, masked=False, least=LEAST):
    part = kind("lyon", data)
    part.key, part.masked, part.least_behind, part.n_peers = KEY, masked, least, 200
    return part


def packing(fold_of_bucket, n_splits=2, **told):
    hashing = HashGroupKFold(n_splits, **told)._request("study")
    return Packing(**rounds._fields(hashing), fold_of_bucket=np.asarray(fold_of_bucket, dtype=np.int64))


def assigned(fold_of_bucket, n_splits=2, **options):
    part = part_of(**options)
    part.assign(packing(fold_of_bucket, n_splits))
    return part


def persons():
    told = HashGroupKFold(2)._request("study")
    return {name: getattr(told, name) for name in Persons.declarations()}


def buckets_at(part, n_buckets, n_splits=2):
    return part._pseudonyms(HashGroupKFold(n_splits)._request("study")).buckets(n_buckets)


def one_alone(n_buckets=4096):
    """Return a map that puts the one person of some bucket into a fold alone."""
    sizes = np.bincount(buckets_at(part_of(), n_buckets), minlength=n_buckets)
    return np.where(np.arange(n_buckets) == np.flatnonzero(sizes == 1)[0], 1, 0)


def test_a_person_alone_in_a_fold_is_neither_counted_nor_selected_unmasked():
    part = assigned(one_alone())
    with pytest.raises(DisclosureRefused, match="every fold, and the records without a fold, must have at least 10"):
        part.count_folds(Nothing())
    assert part.folds is None
    exact = assigned(one_alone(), least=0)
    assert exact.count_folds(Nothing()).records.sum(axis=1).tolist() == [N - 1, 1]


def test_few_in_no_fold_are_not_counted_nor_left_out_in_clear():
    few = DATA.with_identifier([None] * 3 + [f"p{number}" for number in range(3, N)])
    part = assigned([0, 1], data=few)
    with pytest.raises(DisclosureRefused, match="every fold, and the records without a fold, must have at least 10"):
        part.count_folds(Nothing())
    assert part.folds is None
    many = DATA.with_identifier([None] * 12 + [f"p{number}" for number in range(12, N)])
    assert assigned([0, 1], data=many).count_folds(Nothing()).excluded == 12


@pytest.mark.parametrize("kept", [1, 25])
def test_who_is_left_out_by_forged_marks_is_not_left_out_in_clear(kept):
    told = persons()
    part = part_of(SiteFolds)
    part.take_unshared(Unshared(**told, roster=("lyon", "oslo"), shared=np.arange(50) >= kept))
    with pytest.raises(DisclosureRefused, match="every fold, and the records without a fold, must have at least 10"):
        part.count_folds(Nothing())


@pytest.mark.parametrize("n_buckets", [0, -1, 2**22 + 1, 2**40])
def test_marks_of_numbers_of_buckets_that_are_none_are_refused(n_buckets):
    told = persons()
    with pytest.raises(ConfigurationError, match="number of buckets"):
        part_of(SiteFolds, masked=True).mark_people(Marking(**told, n_buckets=n_buckets))
    with pytest.raises(ConfigurationError, match="number of buckets"):
        part_of(SiteFolds).take_unshared(Unshared(**told, roster=("lyon",), shared=np.zeros(0, dtype=bool)))


def test_nobody_can_ask_whether_a_bucket_holds_somebody():
    """Maps of one bucket a time would else tell, site by site, which buckets are occupied: as good as tokens."""
    sizes = np.bincount(buckets_at(part_of(), 4096), minlength=4096)
    answers = set()
    for bucket in (np.flatnonzero(sizes == 0)[0], np.flatnonzero(sizes == 1)[0]):
        part = assigned(np.arange(4096) == bucket, masked=True)
        with pytest.raises(ConfigurationError, match="must be counted before this step"):
            part.find_presence(Nothing())
        part.count_folds(Nothing())
        told = part.find_presence(Nothing())
        answers.add((*told.inside.tolist(), *told.outside.tolist()))
        refused = assigned(np.arange(4096) == bucket)
        with pytest.raises(ConfigurationError, match="must be counted before this step"):
            refused.find_presence(Nothing())
    assert answers == {(True, False, False, True)}


@pytest.mark.parametrize("masked", [False, True])
def test_presence_in_folds_by_values_is_not_told(masked):
    """A search with many thresholds would else find a named site's smallest value."""
    part = part_of(masked=masked)
    part.settle(np.arange(N) % 2, 2, Nothing(), movable=1)
    if masked:
        part.count_folds(Nothing())
        part.masked = False
    with pytest.raises(
        (ConfigurationError, DisclosureRefused),
        match=r"must be counted before this step|must depend on values of at least 10 patients",
    ):
        part.find_presence(Nothing())


def test_under_masks_one_person_alone_in_a_fold_is_in_none_and_many_with_them():
    part = assigned(one_alone(), masked=True)
    before = part.state.fold
    for _ in range(2):
        counts = part.count_folds(Nothing())
        assert counts.records.sum(axis=1).tolist() == [N - LEAST, 0]
        assert counts.excluded == counts.left_out == LEAST
    assert (part.folds[before == 1] == -1).all()
    again = assigned(one_alone(), masked=True)
    again.count_folds(Nothing())
    assert np.array_equal(part.folds, again.folds)


def test_selections_of_one_plan_differ_by_no_record_or_by_many():
    rng = np.random.default_rng(3)
    for _ in range(10):
        n_splits = int(rng.integers(2, 6))
        forged = np.where(rng.random(4096) < 0.7, 0, rng.integers(n_splits, size=4096))
        part = part_of(masked=True)
        part.assign(packing(forged, n_splits))
        part.count_folds(Nothing())
        chosen = [
            np.isin(part.folds, folds)
            for size in range(n_splits + 1)
            for folds in itertools.combinations(range(n_splits), size)
        ]
        chosen.append(np.ones(N, dtype=bool))
        apart = {int((one != other).sum()) for one, other in itertools.combinations(chosen, 2)}
        assert min(apart - {0}) >= LEAST


def tables_of(plan, selections, asked):
    return [plan.session.select(folds, plan.session.sites).begin(HashedFolds).sum(*asked) for folds in selections]


def test_tables_of_two_selections_cannot_be_matched():
    """A table of a part would else show whose class each bucket is."""
    sites, _ = people_sites(200, 3, shared=0)
    told = rounds._fields(HashGroupKFold(3)._request("study"))
    asked = (HashedFolds.count_buckets, Bucketing(**told, n_buckets=24))
    federation = mc.Federation.in_process(sites, policy=EXACT, secure_sum=True, pseudonym_key=KEY)
    plan = HashGroupKFold(3).plan(federation)
    whole = federation.begin(HashedFolds).sum(*asked).records
    parts = [part.records for part in tables_of(plan, [[0, 1, 2], [1, 2], [1, 2]], asked)]
    assert np.array_equal(parts[1], parts[2])
    assert parts[0].sum() == whole.sum()
    assert not np.array_equal(parts[0], whole)
    assert (parts[1] > parts[0]).any()
    again = HashGroupKFold(3).plan(mc.Federation.in_process(sites, policy=EXACT, secure_sum=True, pseudonym_key=KEY))
    assert np.array_equal(tables_of(again, [[1, 2]], asked)[0].records, parts[1])


def test_marks_of_two_selections_cannot_be_laid_side_by_side():
    sites, _ = people_sites(200, 2, shared=0)
    federation = mc.Federation.in_process(sites, policy=EXACT, pseudonym_key=KEY)
    plan = HashGroupKFold(2).plan(federation)
    asked = (SiteFolds.mark_people, Marking(**persons(), n_buckets=4096))
    whole = federation.begin(SiteFolds).sum(*asked).sites
    chosen = plan.session.select([0, 1], federation.sites).begin(SiteFolds).sum(*asked).sites
    assert not np.array_equal(whole, chosen)


def test_a_session_counts_one_table_or_the_coarsest():
    part, told = part_of(masked=True), rounds._fields(HashGroupKFold(2)._request("study"))
    part.count_buckets(Bucketing(**told, n_buckets=50))
    part.count_buckets(Bucketing(**told, n_buckets=50))
    for other in ({"n_buckets": 51}, {"n_buckets": 50, "repeat": 1}):
        with pytest.raises(ConfigurationError, match="the table must be the same throughout a session"):
            part.count_buckets(Bucketing(**{**told, **other}))
    part.count_buckets(Bucketing(**told, n_buckets=16))


def test_more_buckets_than_records_serve_are_refused_and_a_plan_of_fewer_is_made():
    part, told = part_of(masked=True), rounds._fields(HashGroupKFold(2)._request("study"))
    part.n_peers = 3
    for request in (Bucketing(**told, n_buckets=77), packing(np.arange(77) % 2)):
        with pytest.raises(RefusedByPolicy, match="n_buckets must be at most 76 for sites of this size"):
            (part.count_buckets if isinstance(request, Bucketing) else part.assign)(request)
    part.count_buckets(Bucketing(**told, n_buckets=76))
    sites = {name: table(np.random.default_rng(9), range(5000 * name, 5000 * name + 3000)) for name in (1, 2)}
    sites = {"large": sites[1], "other": sites[2], "small": table(np.random.default_rng(8), range(200))}
    federation = mc.Federation.in_process(sites, secure_sum=True)
    plan = HashGroupKFold(2).plan(federation)
    assert plan.facts["n_buckets"] == 16
    assert plan.imbalance() < 1


def test_plans_that_read_identifiers_otherwise_are_hashed_apart():
    """One person's corrected identifier would else be all by which two plans differ."""
    told = HashGroupKFold(2)._request("study")
    ways = [{}, {"person_key": "nr"}, {"kind": "name"}, {"patient_key": "nr"}, {"date_order": "dmy"}]
    ways += [{"sites": ("oslo",), "date_orders": ("dmy",)}, {"rules": "v0"}]
    assert len({purpose_of(dataclasses.replace(told, **way)) for way in ways}) == len(ways)
    given = {"identifier": [f"p{i}" for i in range(N)], "nr": [f"p{i + N * (i == 7)}" for i in range(N)]}
    folds = []
    for person_key in given:
        part = part_of(data=DATA.with_identifier(given))
        part.assign(packing([0, 1], person_key=person_key))
        folds.append(part.state.fold)
    assert LEAST <= (folds[0] != folds[1]).sum() <= N - LEAST


def moved(fold_of_bucket, bucket):
    other = np.array(fold_of_bucket)
    other[bucket] = 1 - other[bucket]
    return other


@pytest.mark.parametrize("n_buckets", [2, 3, 4, 8, 16, 100, 4096])
def test_two_plans_in_clear_differ_by_many_of_a_sites_records_or_not_at_all(n_buckets):
    whole = np.arange(n_buckets) % 2
    exact = assigned(whole, least=0)
    exact.count_folds(Nothing())
    changes = []
    for bucket in range(min(n_buckets, 30)):
        part = assigned(moved(whole, bucket))
        try:
            part.count_folds(Nothing())
        except DisclosureRefused:
            continue
        changes.append(int((part.folds != exact.folds).sum()))
    assert all(change >= LEAST for change in changes)
    sizes = np.bincount(buckets_at(exact, n_buckets), minlength=n_buckets)
    assert bool(changes) == (is_halving(n_buckets, 2) and sizes.min() >= LEAST)


def test_plans_of_other_numbers_of_folds_are_hashed_apart():
    folds = {n_splits: assigned(np.arange(n_splits), n_splits, least=0).state.fold for n_splits in range(2, 8)}
    for (n_a, a), (n_b, b) in itertools.combinations(folds.items(), 2):
        apart = [int(((a == i) != (b == j)).sum()) for i in range(n_a) for j in range(n_b)]
        assert min(apart) >= LEAST
    by_one_hash = {k: (buckets_at(part_of(), 60) * k) // 60 for k in (5, 6)}
    assert int(((by_one_hash[5] == 0) != (by_one_hash[6] == 0)).sum()) < LEAST


def test_min_difference_refuses_masked_plans_that_differ_by_one_bucket(monkeypatch):
    sites, people = people_sites(200, 3, shared=20)
    named = {
        name: mc.data.TableData(data.X, data.y, data.identifier.column("identifier"), ids=people[name])
        for name, data in sites.items()
    }
    pack = rounds.pack_buckets
    for least, refused in ((0, False), (10, True)):
        policy = mc.Policy(min_difference=least)
        federation = mc.Federation.in_process(named, policy=policy, secure_sum=True)
        plans = [HashGroupKFold(3).plan(federation)]
        monkeypatch.setattr(
            rounds, "pack_buckets", lambda table, k: (pack(table, k) + (np.arange(len(table)) == 5)) % k
        )
        plans.append(HashGroupKFold(3).plan(federation))
        monkeypatch.undo()
        differences = [
            int((one != other).sum()) for one, other in zip(*(folds_of(p).values() for p in plans), strict=True)
        ]
        assert 0 < min(differences) < 10
        shifted = int(np.flatnonzero(plans[0].counts != plans[1].counts)[0])
        HashGroupKFold(2).plan(plans[0].train(shifted))
        if refused:
            with pytest.raises(
                DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 10"
            ):
                HashGroupKFold(2).plan(plans[1].train(shifted))
        else:
            HashGroupKFold(2).plan(plans[1].train(shifted))


@pytest.mark.parametrize(
    "fold_of_bucket",
    [[], [0], [0, 2], [0, -1], [-1] * 40, [0] * 4097, [2**62] * 4, [0, 1, 1, -(2**62)]],
    ids=["none", "one", "high", "excluded", "all excluded", "too many", "huge", "deep"],
)
def test_maps_that_are_none_are_refused(fold_of_bucket):
    part = part_of(least=0)
    with pytest.raises(ConfigurationError):
        part.assign(packing(fold_of_bucket))
    assert part.state is None
    with pytest.raises(ConfigurationError, match="must be split before this step"):
        part.count_folds(Nothing())


@pytest.mark.parametrize("n_splits", [-1, 0, 1, 101, 2**40])
def test_numbers_of_folds_that_are_none_are_refused(n_splits):
    told = rounds._fields(HashGroupKFold(2)._request("study"))
    told["n_splits"] = n_splits
    for step, request in (
        ("assign", Packing(**told, fold_of_bucket=np.zeros(8, dtype=np.int64))),
        ("count_buckets", Bucketing(**told, n_buckets=16)),
        ("find_fineness", Hashing(**told)),
    ):
        with pytest.raises(ConfigurationError, match="n_splits must be an integer from 2 to 100"):
            getattr(part_of(), step)(request)
    with pytest.raises(ConfigurationError, match="n_splits must be an integer from 2 to 100"):
        part_of(DrawnFolds).draw(Drawing(n_splits, 0, ""))


def test_a_session_has_one_map():
    part = assigned([0, 1])
    with pytest.raises(ConfigurationError, match="the records must be split once per plan"):
        part.assign(packing([1, 0]))
    part.count_folds(Nothing())
    with pytest.raises(ConfigurationError, match="the records must be split once per plan"):
        part.assign(packing([1, 0]))


@pytest.mark.parametrize("n_buckets", [16, 17, 50, 4096])
def test_tables_with_counts_of_few_do_not_leave_in_clear(n_buckets):
    sites = {"lyon": DATA, "oslo": table(np.random.default_rng(1), np.arange(N))}
    told = Bucketing(**rounds._fields(HashGroupKFold(2)._request("study")), n_buckets=n_buckets)
    federation = mc.Federation.in_process(sites, secure_sum=False)
    with pytest.raises((DisclosureRefused, ConfigurationError, RefusedByPolicy)):
        federation.begin(HashedFolds).sum(HashedFolds.count_buckets, told)
    masked = mc.Federation.in_process(sites, secure_sum=True, policy=EXACT)
    assert masked.begin(HashedFolds).sum(HashedFolds.count_buckets, told).records.sum() == 2 * N


def test_the_finest_table_that_a_site_offers_is_one_that_it_lets_out():
    part = part_of()
    told = rounds._fields(HashGroupKFold(2)._request("study"))
    fine = part.find_fineness(Hashing(**told)).n_buckets
    counts = part.count_buckets(Bucketing(**told, n_buckets=fine))
    assert counts.patients >= LEAST
    assert part_of().count_buckets(Bucketing(**told, n_buckets=2 * fine)).patients < LEAST


def test_no_message_of_a_site_contains_a_token_a_key_or_a_fold():
    part, seen = part_of(least=0), []
    told = rounds._fields(HashGroupKFold(2)._request("study"))
    for step, request in (
        ("describe_key", Hashing(**told)),
        ("count_missing", Hashing(**told)),
        ("count_buckets", Bucketing(**told, n_buckets=16)),
        ("assign", packing(np.arange(16) % 2)),
        ("send_digest", Nothing()),
        ("count_folds", Nothing()),
        ("find_presence", Nothing()),
    ):
        seen.append(getattr(part, step)(request))
    longest = max(np.size(value) for release in seen for _, _, _, value in release.items())
    assert longest <= 32
    assert all("person" not in name for release in seen for name in release.declarations())


def test_only_folds_of_a_counted_plan_can_be_selected():
    sites, _ = people_sites()
    federation = mc.Federation.in_process(sites, policy=EXACT)
    opened = federation.begin(HashedFolds)
    opened.ask(HashedFolds.assign, packing([0, 1]))
    with pytest.raises(DataError, match="must hold at least one record of this site"):
        opened.select([0], list(sites)).begin(SiteFolds).ask(SiteFolds.take_place, Roster(tuple(sites)))
    given = {**sites, "site-0": sites["site-0"].with_identifier([None] * 20 + [f"p{i}" for i in range(80)])}
    plan = HashGroupKFold(2, max_missing=0.1).plan(mc.Federation.in_process(given, policy=EXACT, secure_sum=False))
    with pytest.raises(DataError, match="must hold at least one record of this site"):
        HashGroupKFold(2).plan(plan.session.select([-1], ["site-0"]))


def test_sites_that_were_told_different_maps_are_found_out(monkeypatch):
    sites, _ = people_sites()
    assign = HashedFolds.assign.run

    def misled(part, request: Packing):
        forged = np.roll(request.fold_of_bucket, part.site == "site-1")
        return assign(part, packing(forged, request.n_splits))

    monkeypatch.setattr(HashedFolds, "assign", dataclasses.replace(HashedFolds.assign, run=misled))
    with pytest.raises(IntegrityError, match="must use the same split"):
        HashGroupKFold(4).plan(mc.Federation.in_process(sites, policy=EXACT))


@pytest.mark.parametrize("sites", [(), ("oslo", "paris"), ("lyon", "oslo", "lyon"), ("lyon", *map(str, range(20_000)))])
def test_rosters_that_do_not_name_a_site_once_are_refused(sites):
    with pytest.raises(ConfigurationError, match="roster"):
        part_of(SiteFolds).take_place(Roster(sites))


def test_the_draw_of_random_folds_cannot_be_foretold():
    """Who knows the seed alone could look for two seeds whose folds differ by one record."""
    others = mc.data.TableData(DATA.X + 1e-9, DATA.y, DATA.identifier)
    folds = []
    for data in (DATA, DATA, others):
        part = part_of(DrawnFolds, data)
        part.draw(Drawing(2, 7, ""))
        folds.append(part.state.fold)
    assert np.array_equal(folds[0], folds[1])
    assert not np.array_equal(folds[0], folds[2])
