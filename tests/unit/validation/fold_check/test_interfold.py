"""The audit of plans, beside the folds that the same people have in one place."""

import itertools
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import multicentre as mc
from multicentre.core.steps import Acknowledgement, step
from multicentre.engines.faults import Faults, Faulty
from multicentre.errors import ConfigurationError, DisclosureRefused, QuorumLost
from multicentre.estimator.figures import read_figure
from multicentre.linkage import persons as keys
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.validation.fold_check import NOBODY_SHARED, check_interfold
from multicentre.validation.folds.by_site import FederatedKFold
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.site import Drawing, FoldPart
from multicentre.validation.folds.splitter import FoldSplitter
from support.engines import with_engine
from support.examples import examples

FREE = mc.Policy(min_patients=0)


pytestmark = pytest.mark.filterwarnings("ignore:.*its scores are unreliable")


def table(identifiers):
    n = len(next(iter(identifiers.values())))
    X = np.random.default_rng(n).normal(size=(n, 2))
    return mc.data.TableData(X, np.arange(n) % 2).with_identifier(identifiers)


def federation(sites, **terms):
    return mc.Federation.in_process(
        {name: table(columns) for name, columns in sites.items()}, **{"secure_sum": True, **terms}
    )


@pytest.fixture
def same_hashes(monkeypatch):
    """Make every run hash alike: a 95 % interval that is drawn leaves out the truth in one run of twenty."""
    drawn = itertools.count()  # both sites draw the same for a question
    monkeypatch.setattr(keys, "secrets", SimpleNamespace(token_bytes=lambda size: bytes([next(drawn) // 2]) * size))


class GivenFolds(FoldPart):
    """Folds that stand in a column of identifiers, so that a test knows them."""

    method = "given-folds"

    @step(releases=Acknowledgement, when="once")
    def divide(self, request: Drawing) -> Acknowledgement:
        """Take the folds as given."""
        self.settle(np.array([int(fold) for fold in self.identifiers("fold")]), request.n_splits, request)
        return Acknowledgement()


class GivenKFold(FoldSplitter):
    site_part = GivenFolds
    duplicate_safe = False
    needs_all_classes = False

    def __init__(self, n_splits):
        self.n_splits = n_splits

    def _divide(self, federation):
        federation.ask(GivenFolds.divide, Drawing(self.n_splits, 0, ""))
        return {}

    def _folds(self, X, y, groups):
        raise NotImplementedError


def violations(sites):
    """Return the persons in several folds, counted in one place."""
    folds = defaultdict(set)
    for columns in sites.values():
        for person, fold in zip(columns["identifier"], columns["fold"], strict=True):
            if person is not None and int(fold) >= 0:
                folds[person].add(fold)
    return sum(len(held) > 1 for held in folds.values())


SITE = st.lists(st.tuples(st.sampled_from([None, *(f"p{i}" for i in range(12))]), st.integers(-1, 3)), min_size=1)


@given(st.lists(SITE, min_size=1, max_size=4))
@examples(25)
def test_violations_are_those_of_the_same_people_in_one_place(drawn):
    sites = {
        f"site-{place}": {"identifier": [who for who, _ in site], "fold": [str(fold) for _, fold in site]}
        for place, site in enumerate([*drawn, [("p0", 0)]])
    }
    everywhere = federation(sites, policy=FREE, secure_sum=False)
    plan = GivenKFold(4).plan(everywhere)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *args, **kwargs: None)
        found = check_interfold(everywhere, plan)
    expected = violations(sites)
    assert found.n_violations == expected if expected == 0 else abs(found.n_violations - expected) <= 1
    assert found.passed == (expected == 0 and found.is_conclusive)
    assert found.is_partition
    assert found.n_excluded == sum(fold == "-1" for columns in sites.values() for fold in columns["fold"])
    assert found.n_missing == sum(
        who is None and fold != "-1"
        for columns in sites.values()
        for who, fold in zip(columns["identifier"], columns["fold"], strict=True)
    )


def shared_sites(n_sites=3, n=400, step_=250):
    return {f"site-{k}": {"identifier": [f"p{i}" for i in range(k * step_, k * step_ + n)]} for k in range(n_sites)}


@pytest.mark.parametrize("terms", [{"strict": True}, {"secure_sum": False, "policy": FREE}])
def test_hashed_folds_pass_and_random_ones_do_not(terms):
    everywhere = federation(shared_sites(), **terms)
    hashed = check_interfold(everywhere, HashGroupKFold(5).plan(everywhere))
    assert (hashed.n_violations, hashed.passed, hashed.n_split, hashed.n_repeated) == (0, True, 0, 0)
    assert hashed.n_shared == pytest.approx(300, abs=40)
    assert hashed.shared_interval[0] < hashed.n_shared < hashed.shared_interval[1]
    assert hashed.shared_interval[1] - hashed.shared_interval[0] < 60
    assert 0 < hashed.miss_probability < 1e-4
    drawn = check_interfold(everywhere, FederatedKFold(5).plan(everywhere))
    assert not drawn.passed
    assert drawn.n_violations == pytest.approx(300 * 0.8, abs=35)
    assert drawn.n_split == 0


@pytest.mark.slow
def test_many_violations_are_counted_closely():
    rng = np.random.default_rng(3)
    sites = {
        name: {"identifier": [f"p{i}" for i in range(3000)], "fold": [str(f) for f in rng.integers(0, 5, 3000)]}
        for name in ("lyon", "oslo", "nice")
    }
    everywhere = federation(sites)
    found = check_interfold(everywhere, GivenKFold(5).plan(everywhere))
    assert found.n_violations == pytest.approx(violations(sites), rel=0.01)


def test_one_violation_among_thousands_is_found():
    sites = {
        name: {"identifier": [f"p{i}" for i in range(3000)], "fold": [str(i % 5) for i in range(3000)]}
        for name in ("lyon", "oslo")
    }
    sites["oslo"]["fold"][1234] = str((1234 + 1) % 5)
    everywhere = federation(sites)
    assert check_interfold(everywhere, GivenKFold(5).plan(everywhere)).n_violations == 1


def test_patients_split_at_a_site_are_counted():
    columns = {
        "identifier": [f"p{i}" for i in range(100)],
        "patient": [f"local{i // 2}" for i in range(100)],
        "fold": ["0", "1"] * 50,
    }
    sites = {"lyon": columns, "oslo": columns}
    everywhere = federation(sites)
    found = check_interfold(everywhere, GivenKFold(2).plan(everywhere), patient_key="patient")
    assert (found.n_violations, found.n_split, found.passed) == (0, 100, False)


@pytest.mark.usefixtures("same_hashes")
def test_an_independent_key_shows_what_the_plan_rests_on():
    """Folds by a birth date that one site misspells split people whom their number recognises."""
    people = range(300)
    dates = [f"19{40 + i % 50}-0{1 + i % 9}-1{i % 9}" for i in people]
    wrong = [date[:-1] + "9" for date in dates]
    sites = {"lyon": {"identifier": [f"p{i}" for i in people], "birth_date": dates},
             "oslo": {"identifier": [f"p{i}" for i in people], "birth_date": wrong}}  # fmt: skip
    everywhere = federation(sites)
    plan = HashGroupKFold(5, person_key="birth_date", kind="date").plan(everywhere)
    by_number = {"person_key": "identifier", "kind": "identifier"}
    assert check_interfold(everywhere, plan, **by_number).n_violations > 150
    assert not check_interfold(everywhere, plan, **by_number).passed
    with pytest.warns(UserWarning, match="no person was found at two sites"):
        own = check_interfold(everywhere, plan)
    assert (own.n_violations, own.is_conclusive, own.passed) == (0, False, False)
    assert "inconclusive" in repr(own)


def test_inner_plans_are_audited_on_their_own_records():
    everywhere = federation(shared_sites())
    inner = HashGroupKFold(3).plan(HashGroupKFold(4).plan(everywhere).train(0))
    found = check_interfold(everywhere, inner)
    assert found.n_violations == 0
    assert found.passed


@pytest.mark.usefixtures("same_hashes")
def test_nobody_at_two_sites_is_a_warning():
    own = {name: {"identifier": [f"{name}{i}" for i in range(80)]} for name in ("lyon", "oslo")}
    everywhere = federation(own)
    plan = HashGroupKFold(3).plan(everywhere)
    with pytest.warns(UserWarning, match="no person was found at two sites") as warned:
        found = check_interfold(everywhere, plan)
    assert warned[0].filename == __file__
    assert found.warnings == (NOBODY_SHARED,)


def test_a_plan_that_no_longer_counts_every_record_is_found():
    everywhere = federation(shared_sites())
    plan = HashGroupKFold(3).plan(everywhere)
    fewer, other = plan.class_table.copy(), plan.digest[::-1]
    fewer[0, 0] -= 1
    object.__setattr__(plan, "class_table", fewer)
    object.__setattr__(plan, "digest", other)
    found = check_interfold(everywhere, plan)
    assert (found.is_partition, found.is_transparent, found.passed) == (False, False, False)


def test_what_is_shown_can_be_read_again():
    everywhere = federation(shared_sites())
    found = check_interfold(everywhere, HashGroupKFold(3).plan(everywhere))
    assert found.to_frame().loc["n_violations", "value"] == 0
    [shown] = found.figures()
    assert read_figure(shown.to_dict()) == shown
    assert repr(found).startswith("FoldCheck(passed: 0 violations")


def test_different_keys_clear_sums_and_foreign_plans_are_refused():
    keys = {f"site-{k}": PseudonymKey.generate() for k in range(3)}
    apart = federation(shared_sites(), pseudonym_key=keys)
    with pytest.raises(ConfigurationError, match="different keys"):
        check_interfold(apart, FederatedKFold(3).plan(apart))
    unmasked = federation(shared_sites(), secure_sum=False)
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        check_interfold(unmasked, FederatedKFold(3).plan(unmasked))
    foreign = federation({"rome": shared_sites()["site-0"], "nice": shared_sites()["site-1"]})
    with pytest.raises(ConfigurationError, match="plan must be a plan of this federation"):
        check_interfold(unmasked, FederatedKFold(3).plan(foreign))


def test_a_lost_site_is_an_error():
    everywhere = federation(shared_sites(), quorum=2)
    plan = HashGroupKFold(3).plan(everywhere)
    with_engine(plan.session, Faulty(plan.session.engine, Faults(lose={"site-2": "mark_folds"})))
    with pytest.raises(QuorumLost, match="site-2"):
        check_interfold(everywhere, plan)
