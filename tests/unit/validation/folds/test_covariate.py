"""Folds by a covariate: what duplicates share keeps them together, and what does not serve is refused."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, MessageError
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.validation.folds.covariate import CovariateFoldKFold, FoldStratifiedKFold
from multicentre.validation.folds.cut import CutFolds, Cutting, Dealing, deal_bins, order_bins
from multicentre.validation.folds.plan import FoldPlan
from support.engines import runtimes_of
from support.examples import examples

EXACT = mc.Policy(min_patients=0)
SCHEMES = ["threshold", "binned-hash", "hash"]


def shared_people(seed: int = 0, n_people: int = 600, n_copies: int = 150) -> dict[str, np.ndarray]:
    """Return the people at three sites; some are at two."""
    rng = np.random.default_rng(seed)
    home = np.arange(n_people) % 3
    visits = rng.choice(n_people, n_copies, replace=False)
    return {f"site-{i}": np.append(np.flatnonzero(home == i), visits[(home[visits] + 1) % 3 == i]) for i in range(3)}


def tables(
    people: dict[str, np.ndarray], values: np.ndarray, **identifiers: np.ndarray
) -> dict[str, mc.data.TableData]:
    """Return each site's records of its people, with a covariate called "age" and identifiers."""
    made = {}
    for site, here in people.items():
        X = np.column_stack([values[here], np.arange(len(here))])
        table = mc.data.TableData(X, here % 2, columns=["age", "x"])
        columns = {"person": [f"p{one}" for one in here], **{name: all_[here] for name, all_ in identifiers.items()}}
        made[site] = table.with_identifier(columns)
    return made


def folds_of(plan: FoldPlan) -> dict[str, np.ndarray]:
    """Return the fold of every record, which in one process can be looked up at the sites."""
    runtimes = runtimes_of(plan.session)
    return {
        site: next(
            part.folds
            for (session, _), part in runtimes[site].sessions.parts.items()
            if session == plan.session.name and part.folds is not None
        )
        for site in plan.present
    }


def violations(plan: FoldPlan, people: dict[str, np.ndarray]) -> int:
    """Return how many people are in several folds."""
    where: dict[int, set[int]] = {}
    for site, folds in folds_of(plan).items():
        for person, fold in zip(people[site].tolist(), folds.tolist(), strict=True):
            if fold >= 0:
                where.setdefault(person, set()).add(fold)
    return sum(len(folds) > 1 for folds in where.values())


@pytest.mark.slow
@examples(5)
@given(st.sampled_from(SCHEMES), st.integers(0, 99), st.sampled_from([0.0, 0.008]))
@example("hash", 17, 0.008)
@example("binned-hash", 17, 0.008)
def test_nobody_is_in_two_folds_and_arrays_give_the_same(scheme: str, seed: int, missing: float) -> None:
    people = shared_people(seed)
    rng = np.random.default_rng(seed)
    values = np.where(rng.random(600) < missing, np.nan, rng.normal(60, 12, 600))
    splitter = CovariateFoldKFold(4, covariate="age", scheme=scheme, max_missing=0.1)
    masked = splitter.plan(mc.Federation.in_process(tables(people, values)))
    plain = splitter.plan(mc.Federation.in_process(tables(people, values), policy=EXACT))
    assert violations(masked, people) == 0
    assert masked.counts.max() <= 1.25 * masked.counts.min()
    assert masked.facts == plain.facts
    folds = np.concatenate(list(folds_of(masked).values()))
    assert folds.tolist() == np.concatenate(list(folds_of(plain).values())).tolist()
    groups = values[np.concatenate(list(people.values()))]
    for fold, (train, test) in enumerate(splitter.split(np.zeros((len(groups), 1)), groups=groups)):
        assert np.flatnonzero(folds == fold).tolist() == test.tolist()
        assert np.flatnonzero((folds >= 0) & (folds != fold)).tolist() == train.tolist()
    assert masked.n_excluded == np.isnan(groups).sum() == (folds < 0).sum()


def test_thresholds_cut_stretches_and_bins_do_not() -> None:
    people, values = shared_people(), np.random.default_rng(1).normal(size=600)
    stretches = {}
    for scheme in SCHEMES:
        splitter = FoldStratifiedKFold(5, covariate="age", scheme=scheme)
        plan = splitter.plan(mc.Federation.in_process(tables(people, values)))
        folds = np.concatenate(list(folds_of(plan).values()))
        ordered = folds[np.argsort(values[np.concatenate(list(people.values()))], kind="stable")]
        stretches[scheme] = 1 + np.count_nonzero(np.diff(ordered))
    assert stretches["threshold"] == 5
    assert 12 <= stretches["binned-hash"] <= 20
    assert stretches["hash"] > 200


def test_copies_with_noise_stay_together_mostly_in_bins_and_seldom_by_a_hash() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=4000)
    values = np.append(first, first + 0.01 * rng.normal(size=4000))
    split = {}
    for scheme in SCHEMES:
        folds = np.empty(8000)
        for fold, (_, test) in enumerate(CovariateFoldKFold(5, scheme=scheme).split(values, groups=values)):
            folds[test] = fold
        split[scheme] = np.mean(folds[:4000] != folds[4000:])
    assert split["threshold"] < 0.02 < split["binned-hash"] < 0.08 < 0.7 < split["hash"]


def test_dates_among_the_identifiers_serve_however_a_site_writes_them() -> None:
    people = shared_people()
    days = np.datetime64("1930-01-01") + np.random.default_rng(2).integers(0, 20_000, 600)
    sites = tables(people, np.zeros(600), born=days.astype(str))
    turned = [
        None if one is None else "/".join(one.split("-")[::-1]) for one in sites["site-1"].identifier.column("born")
    ]
    sites["site-1"] = sites["site-1"].with_identifier({"born": turned})
    for scheme in SCHEMES:
        orders = {"site-1": "dmy"}
        splitter = CovariateFoldKFold(5, covariate="born", kind="date", date_order=orders, scheme=scheme)
        plan = splitter.plan(mc.Federation.in_process(sites))
        assert plan.n_excluded == 0
        assert violations(plan, people) == 0
    with pytest.raises(DataError, match='kind="date"'):
        CovariateFoldKFold(5, covariate="born").plan(mc.Federation.in_process(sites))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("values", [np.arange(600) % 2, np.arange(600) % 3 * 1.0, np.maximum(np.arange(600) - 400, 0)])
def test_few_values_are_refused_over_sites_and_on_arrays(scheme: str, values: np.ndarray) -> None:
    splitter = CovariateFoldKFold(5, covariate="age", scheme=scheme)
    sites = tables(shared_people(), values.astype(float))
    with pytest.raises(DataError, match="HashGroupKFold"):
        splitter.plan(mc.Federation.in_process(sites))
    with pytest.raises(DataError, match="HashGroupKFold"):
        list(splitter.split(values, groups=values))


def test_a_covariate_absent_at_one_site_names_the_site() -> None:
    sites = tables(shared_people(), np.arange(600.0))
    sites["site-2"] = sites["site-2"].keep_columns(["x"])
    with pytest.raises(DataError, match=r"site-2.*the covariate must be a column of the data or of the identifiers"):
        CovariateFoldKFold(5, covariate="age").plan(mc.Federation.in_process(sites))


def test_too_many_missing_values_are_refused() -> None:
    values = np.where(np.arange(600) % 20 == 0, np.nan, np.arange(600.0))
    sites = tables(shared_people(), values)
    with pytest.raises(DataError, match="lack the covariate"):
        CovariateFoldKFold(5, covariate="age").plan(mc.Federation.in_process(sites))
    with pytest.raises(DataError, match="lack the covariate"):
        list(CovariateFoldKFold(5).split(values, groups=values))


def test_records_of_a_patient_take_one_value_and_may_not_differ() -> None:
    people = shared_people()
    people["site-0"] = np.repeat(people["site-0"], 2)
    sites = tables(people, np.random.default_rng(3).normal(size=600))
    first = sites["site-0"]
    gaps = first.X.copy()
    gaps[::2, 0] = np.nan
    filled = mc.data.TableData(gaps, first.y, columns=first.columns).with_identifier(first.identifier)
    splitter = CovariateFoldKFold(3, covariate="age", patient_key="person")
    plan = splitter.plan(mc.Federation.in_process(sites | {"site-0": filled}))
    assert plan.n_excluded == 0
    assert violations(plan, people) == 0
    gaps[::2, 0] = first.X[::2, 0] + 1
    changed = mc.data.TableData(gaps, first.y, columns=first.columns).with_identifier(first.identifier)
    with pytest.raises(DataError, match=r"site-0.*the covariate must be the same in all records of a patient"):
        splitter.plan(mc.Federation.in_process(sites | {"site-0": changed}))
    groups = np.column_stack([gaps[:, 0], people["site-0"]]).astype(int)
    with pytest.raises(DataError, match="the covariate must be the same in all records of a patient"):
        list(splitter.split(gaps, groups=groups))


def test_unmasked_thresholds_are_refused_and_a_hash_is_not() -> None:
    rng = np.random.default_rng(4)
    people = {f"site-{i}": np.arange(600) for i in range(2)}
    sites = tables(people, rng.normal(size=600))
    unmasked = mc.Federation.in_process(sites, policy=mc.Policy(min_patients=5), secure_sum=False)
    for scheme in ("threshold", "binned-hash"):
        with pytest.raises(DisclosureRefused, match="secure_sum=True"):
            CovariateFoldKFold(3, covariate="age", scheme=scheme).plan(unmasked)
    plan = CovariateFoldKFold(3, covariate="age", scheme="hash").plan(unmasked)
    assert violations(plan, people) == 0


def test_a_resumed_plan_is_the_same(tmp_path) -> None:
    sites = tables(shared_people(), np.random.default_rng(5).normal(size=600))
    for scheme in SCHEMES:
        splitter = CovariateFoldKFold(4, covariate="age", scheme=scheme)
        plans = [
            splitter.plan(mc.Federation.in_process(sites, secure_sum=True, folder=tmp_path / scheme)) for _ in range(2)
        ]
        one, other = (np.concatenate(list(folds_of(plan).values())) for plan in plans)
        assert one.tolist() == other.tolist()
        assert plans[0].digest == plans[1].digest


def test_inner_folds_are_quantiles_of_the_outer_training_records() -> None:
    people = shared_people()
    values = np.random.default_rng(6).normal(size=600)
    for scheme in SCHEMES:
        splitter = CovariateFoldKFold(3, covariate="age", scheme=scheme)
        outer = splitter.plan(mc.Federation.in_process(tables(people, values)))
        inner = splitter.plan(outer.train(0))
        assert inner.counts.sum() == outer.counts[1:].sum()
        assert inner.counts.max() <= 1.25 * inner.counts.min()


def test_another_repeat_and_another_key_deal_bins_out_otherwise() -> None:
    values = np.random.default_rng(7).normal(size=500)

    def tests(**terms) -> list[list[int]]:
        splitter = CovariateFoldKFold(5, scheme="binned-hash", **terms)
        return [test.tolist() for _, test in splitter.split(values, groups=values)]

    assert tests() == tests() != tests(repeat=1)
    assert tests(key=PseudonymKey.generate()) != tests()


def test_bins_go_to_the_emptiest_fold() -> None:
    order = order_bins(PseudonymKey.generate(), "test", 20)
    assert sorted(order.tolist()) == list(range(20))
    folds = deal_bins(np.full(20, 7), order, 5)
    assert np.bincount(folds).tolist() == [4] * 5
    assert np.bincount(deal_bins(np.array([9, 1, 1, 1]), np.arange(4), 2), [9, 1, 1, 1]).tolist() == [9, 3]


def test_different_keys_are_refused_where_a_key_decides() -> None:
    sites = tables(shared_people(), np.random.default_rng(8).normal(size=600))
    keys = {site: PseudonymKey.generate() for site in sites}
    for scheme in ("binned-hash", "hash"):
        opened = mc.Federation.in_process(sites, secure_sum=True, pseudonym_key=keys)
        with pytest.raises(ConfigurationError, match="different keys"):
            CovariateFoldKFold(4, covariate="age", scheme=scheme).plan(opened)


@pytest.mark.parametrize(
    "wrong", [{"scheme": "other"}, {"kind": "name"}, {"scheme": "binned-hash", "n_bins": 3}, {"tol": 0}]
)
def test_parameters_out_of_range_are_refused(wrong: dict) -> None:
    sites = tables(shared_people(), np.arange(600.0))
    with pytest.raises(ConfigurationError):
        CovariateFoldKFold(5, covariate="age", **wrong).plan(mc.Federation.in_process(sites))


def test_a_site_checks_what_it_is_told_to_cut_by() -> None:
    told = CovariateFoldKFold(2, covariate="age")._request("study")
    fields = {name: getattr(told, name) for name in told.declarations()}
    part = CutFolds("lyon", tables({"lyon": np.arange(40)}, np.arange(40.0))["lyon"])
    part.masked = True
    for thresholds in (np.array([2.0, 1.0]), np.arange(2000.0)):
        with pytest.raises(MessageError, match="thresholds"):
            part.count_parts(Cutting(**fields, thresholds=thresholds))
    part = CutFolds("lyon", part.data)
    for sizes in (np.array([1]), np.array([-1, 2])):
        with pytest.raises(MessageError, match="parts"):
            part.cut(Dealing(**fields, thresholds=np.array([5.0]), sizes=sizes, permuted=False))
    with pytest.raises(ConfigurationError, match="the covariate must be set by survey before this step"):
        CutFolds("lyon", part.data).quantile_values()
    part.masked, part.least_behind = False, 5
    with pytest.raises(DisclosureRefused):
        part.count_parts(Cutting(**fields, thresholds=np.array([5.0])))
