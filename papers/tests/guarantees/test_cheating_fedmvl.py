"""A coordinator that asks for what an honest fit of FedMVL never would: columns do not show."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.core.steps import Common
from multicentre.errors import ConfigurationError, MessageError, MulticentreError, RefusedByPolicy
from multicentre.linkage.alignment import align
from multicentre_papers.baselines.fedmvl import FedMVL, messages
from multicentre_papers.baselines.fedmvl.site import FedMVLSite

N, C = 40, 3
NAMES = [f"p{number:02d}" for number in range(N)]
SIZES = {"lab": 4, "ward": 90, "clinic": 6}
OPEN = mc.Policy(min_patients=0, relations="dense")
TERMS = messages.Terms(C, "none", 0.5, 0.5, 1.0, 12, 0)


def tables(seed=0):
    rng = np.random.default_rng(seed)
    return {site: rng.normal(size=(N, d)) + 1.0 for site, d in SIZES.items()}


def rotated(views, seed=1):
    """Return other columns whose patients have the same products with each other."""
    rng = np.random.default_rng(seed)
    turns = {site: np.linalg.qr(rng.normal(size=(X.shape[1],) * 2))[0] for site, X in views.items()}
    return {site: X @ turns[site] for site, X in views.items()}


@pytest.fixture
def opened():
    """Return what opens a session of FedMVL over aligned sites."""
    federations = []

    def open_session(views=None, *, begin=True, terms=TERMS, policy=OPEN, **options):
        data = {site: mc.data.MultiViewData({"v": X}, NAMES) for site, X in (views or tables()).items()}
        federations.append(mc.Federation.in_process(data, policy=policy, **options))
        session = align(federations[-1]).federation.begin(FedMVLSite)
        if begin:
            session.ask(FedMVLSite.begin, terms)
        return session

    yield open_session
    for federation in federations:
        federation.close()


def common(number=1, V=None, *, n_views=3.0, total_term=1e9, reference=0.0):
    table = np.abs(np.random.default_rng(number).normal(size=(N, C))) if V is None else V
    return messages.Common(number, table, n_views, total_term, reference)


def crafted():
    """Return common factors that single patients out, one after another."""
    for number in range(1, 9):
        V = np.full((N, C), 1e-9)
        V[[number, 2 * number, 3 * number], [0, 1, 2]] = 2.0**9
        yield common(number, V)


def test_whatever_is_asked_the_answers_follow_from_products_of_rows_alone(opened):
    """Rotated columns, in which nothing is what it was, give the same sums: no ask can tell the columns apart."""
    one, other = opened(), opened(rotated(tables()))
    directions = np.eye(N)[:, : C + 5]
    asked = [
        (FedMVLSite.multiply, messages.Directions(directions)),
        *((FedMVLSite.renew, message) for message in crafted()),
    ]
    for step, message in asked:
        told = [session.sum(step, message) for session in (one, other)]
        for name, _, _, value in told[0].items():
            difference = np.abs(value - getattr(told[1], name)).max()
            assert difference <= 1e-7 * (1.0 + np.abs(value).max()), name


def test_columns_that_are_no_rotation_of_each_other_do_differ(opened):
    one, other = opened(), opened(tables(7))
    told = [session.sum(FedMVLSite.renew, common()).total for session in (one, other)]
    assert np.abs(told[0] - told[1]).max() > 1e-2


def test_no_answer_has_a_side_of_columns():
    for line in FedMVL.disclosure_card().lines:
        assert "d" not in line.field.split()
    for step in FedMVLSite.steps().values():
        for declaration in step.releases.declarations().values():
            assert set(declaration.shape) <= {"n", "c", "p", "k"}


def test_what_tells_of_single_patients_is_summed_and_needs_a_permission():
    for step in FedMVLSite.steps().values():
        for declaration in step.releases.declarations().values():
            if "n" in declaration.shape:
                assert step.summed
                assert step.releases.individual
                assert declaration.permission == "relations=summed"


@pytest.mark.parametrize("message", [messages.Directions(np.eye(N)[:, :1]), common()], ids=["multiply", "renew"])
def test_nothing_leaves_unmasked_under_the_usual_policy(opened, message):
    session = opened(policy=mc.Policy(), secure_sum=False)
    step = FedMVLSite.renew if isinstance(message, messages.Common) else FedMVLSite.multiply
    with pytest.raises(RefusedByPolicy, match="dense"):
        session.sum(step, message)


def test_nothing_is_told_before_the_terms(opened):
    session = opened(begin=False)
    for step, message in ((FedMVLSite.renew, common()), (FedMVLSite.multiply, messages.Directions(np.eye(N)[:, :1]))):
        with pytest.raises(ConfigurationError, match="a fit must begin before other steps"):
            session.sum(step, message)


def test_terms_are_taken_once(opened):
    session = opened()
    with pytest.raises(ConfigurationError, match="a fit must begin once"):
        session.ask(FedMVLSite.begin, dataclasses.replace(TERMS, max_iter=10_000))


@pytest.mark.parametrize(
    "odd",
    [
        {"n_clusters": 1},
        {"n_clusters": N + 1},
        {"scale": "columns"},
        {"lam": 0.0},
        {"lam": 50.0},
        {"rho": 0.0},
        {"rho": 1e300},
        {"fraction": 0.0},
        {"fraction": 2.0},
        {"max_iter": 0},
        {"max_iter": 10**9},
        {"seed": -1},
    ],
    ids=str,
)
def test_odd_terms_are_refused(opened, odd):
    with pytest.raises(MessageError, match=next(iter(odd))):
        opened(terms=dataclasses.replace(TERMS, **odd))


def test_a_round_is_answered_once_and_in_order(opened):
    session = opened()
    for number in (0, 2, -1):
        with pytest.raises(ConfigurationError, match="in order"):
            session.sum(
                FedMVLSite.renew, common(number) if number >= 0 else dataclasses.replace(common(), round_number=-1)
            )
    session.sum(FedMVLSite.renew, common(1))
    with pytest.raises(ConfigurationError, match="in order"):
        session.sum(FedMVLSite.renew, common(1))


def test_no_more_rounds_are_answered_than_were_agreed(opened):
    session = opened(terms=dataclasses.replace(TERMS, max_iter=2))
    for number in (1, 2):
        session.sum(FedMVLSite.renew, common(number))
    with pytest.raises(ConfigurationError, match="up to 2; got round 3"):
        session.sum(FedMVLSite.renew, common(3))


def test_products_are_told_a_few_times_and_never_after_the_first_round(opened):
    session, message = opened(), messages.Directions(np.eye(N)[:, :1])
    for _ in range(4):
        session.sum(FedMVLSite.multiply, message)
    with pytest.raises(ConfigurationError, match="at most 4 times"):
        session.sum(FedMVLSite.multiply, message)
    session = opened()
    session.sum(FedMVLSite.renew, common())
    with pytest.raises(ConfigurationError, match="at most 4 times"):
        session.sum(FedMVLSite.multiply, message)


@pytest.mark.parametrize("n_clusters", [N, N // 2, N // 10 + 1])
def test_so_many_clusters_that_products_tell_all_are_refused(opened, n_clusters):
    """With one cluster a patient one ask, all directions, gave the exact sum of the sites' products."""
    with pytest.raises(ConfigurationError, match="for 40 aligned patients"):
        opened(terms=dataclasses.replace(TERMS, n_clusters=n_clusters))


def test_products_of_one_fit_are_of_fewer_directions_than_patients(opened):
    """All that an honest start asks for, and no more, with as many clusters as are allowed."""
    c = N // 10
    session, n_told = opened(terms=dataclasses.replace(TERMS, n_clusters=c)), 0
    with pytest.raises(MessageError, match="1 to 9 columns"):
        session.sum(FedMVLSite.multiply, messages.Directions(np.eye(N)[:, : c + 6]))
    for start in range(0, N, c + 5):
        message = messages.Directions(np.eye(N)[:, start : start + c + 5])
        try:
            n_told += session.sum(FedMVLSite.multiply, message).products.shape[1]
        except ConfigurationError:
            break
    assert n_told == 4 * (c + 5) < N


@pytest.mark.parametrize("n_sites", [1, 2])
def test_two_sites_are_refused_since_each_could_take_its_own_factors_off(n_sites):
    data = {site: mc.data.MultiViewData({"v": X}, NAMES) for site, X in list(tables().items())[:n_sites]}
    policy = mc.Policy(relations="dense")
    with (
        mc.Federation.in_process(data, policy=policy, secure_sum=n_sites > 1) as federation,
        pytest.raises(RefusedByPolicy, match="at least 3 sites"),
    ):
        FedMVL(C, max_iter=2).fit(federation)


def test_sites_that_are_left_over_are_counted_anew():
    part = FedMVLSite("lab", mc.data.MultiViewData({"v": tables()["lab"]}, NAMES))
    part.common, part.least_behind, part.n_peers = Common(np.arange(N), N, frozenset(SIZES)), 10, 3
    part.begin(TERMS)
    part.n_peers = 2
    asked = ((part.multiply, messages.Directions(np.eye(N)[:, :1])), (part.renew, common()))
    for step, message in asked:
        with pytest.raises(RefusedByPolicy, match="at least 3 sites"):
            step(message)
    part.n_peers = 3
    for step, message in asked:
        assert isinstance(step(message), messages.Products | messages.Sums)


ODD_DIRECTIONS = {
    "as many as patients": np.eye(N),
    "none": np.zeros((N, 0)),
    "of other patients": np.eye(N + 1)[:, :2],
    "long": 1e6 * np.eye(N)[:, :2],
    "not finite": np.full((N, 2), np.nan),
}


@pytest.mark.parametrize("odd", ODD_DIRECTIONS)
def test_odd_directions_are_refused(opened, odd):
    with pytest.raises(MulticentreError) as caught:
        opened().sum(FedMVLSite.multiply, messages.Directions(ODD_DIRECTIONS[odd]))
    assert "failed (" not in str(caught.value)


ODD_COMMON = {
    "must be new and for 1 to": {"V": np.full((N, C), 1e9)},
    "other patients": {"V": np.ones((N - 1, C))},
    "more clusters": {"V": np.ones((N, C + 1))},
    "not finite": {"V": np.full((N, C), np.inf)},
    "no terms": {"total_term": float("nan")},
}


@pytest.mark.parametrize("odd", ODD_COMMON)
def test_odd_factors_are_refused(opened, odd):
    with pytest.raises(MulticentreError) as caught:
        opened().sum(FedMVLSite.renew, common(**ODD_COMMON[odd]))
    assert "failed (" not in str(caught.value)


@pytest.mark.parametrize(
    "odd", [{"total_term": 1e-9}, {"total_term": 0.0}, {"n_views": 0.0}, {"n_views": 1e300}], ids=str
)
def test_a_weight_beyond_that_of_all_views_is_refused(opened, odd):
    session = opened()
    session.sum(FedMVLSite.renew, common(1))
    with pytest.raises(MessageError, match="sum of weight terms"):
        session.sum(FedMVLSite.renew, common(2, **odd))


def test_references_beyond_reason_do_not_break_a_site(opened):
    session = opened()
    for number, reference in enumerate((1e308, -1e308, 0.0), start=1):
        told = session.sum(FedMVLSite.renew, common(number, reference=reference))
        assert np.isfinite(told.total).all()


def test_weights_are_told_as_shares(opened):
    session = opened()
    total = session.sum(FedMVLSite.renew, common()).term
    sites = tuple(session.sites)
    told = session.ask(FedMVLSite.send_weights, messages.Listing(sites, ("v",) * 3, total))
    assert [len(answer.weights) for answer in told.values()] == [1, 1, 1]
    assert sum(answer.weights.sum() for answer in told.values()) == pytest.approx(1.0)
    for listing in (messages.Listing(sites, ("v",), total), messages.Listing(sites, ("v",) * 3, 1e-12)):
        with pytest.raises(MessageError, match="list"):
            session.ask(FedMVLSite.send_weights, listing)


def test_records_that_are_not_aligned_are_not_worked_on():
    data = {site: mc.data.MultiViewData({"v": X}, NAMES) for site, X in tables().items()}
    with mc.Federation.in_process(data, policy=OPEN) as federation:
        session = federation.begin(FedMVLSite)
        with pytest.raises(ConfigurationError, match="records without an alignment"):
            session.ask(FedMVLSite.describe, Nothing())
        with pytest.raises(ConfigurationError, match="records without an alignment"):
            session.ask(FedMVLSite.begin, TERMS)
