"""FedMVL over sites: the pooled fit, masks, lost sites, stragglers and bad input."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.clustering.metrics import clustering_scores
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, NotConverged, QuorumLost, RefusedByPolicy
from multicentre.linkage.alignment import align
from multicentre_papers.baselines.fedmvl import FedMVL

OPEN = mc.Policy(min_patients=0, relations="dense")
GROUP = np.repeat([0, 1, 2], 20)
NAMES = [f"p{number:02d}" for number in range(60)]
SIZES = {"blood": 8, "image": 70, "genes": 12}


def tables(seed=0, noise=0.6):
    """Return three views of sixty patients of three groups."""
    rng = np.random.default_rng(seed)
    return {view: rng.normal(size=(3, d))[GROUP] + noise * rng.normal(size=(60, d)) for view, d in SIZES.items()}


def split(views=None, order=None):
    views = tables() if views is None else views
    rows = np.arange(60) if order is None else order
    names = [NAMES[row] for row in rows]
    return {f"of-{view}": mc.data.MultiViewData({view: X[rows]}, names) for view, X in views.items()}


def pool(views=None):
    return {"all": mc.data.MultiViewData(tables() if views is None else views, NAMES)}


def fit(sites=None, *, policy=OPEN, **options):
    options.setdefault("max_iter", 12)
    made = {name: options.pop(name) for name in ("secure_sum", "quorum", "faults", "strict") if name in options}
    with mc.Federation.in_process(split() if sites is None else sites, policy=policy, **made) as federation:
        return FedMVL(3, **options).fit(federation)


def test_groups_that_all_views_show_are_found():
    model = fit(secure_sum=True, policy=mc.Policy())
    assert clustering_scores(GROUP, model.labels_for(NAMES))["acc"] == 1.0
    assert model.embedding_.shape == (60, 3)
    assert sum(model.view_weights_.values()) == pytest.approx(1.0)
    assert set(model.view_weights_) == {f"of-{view}/{view}" for view in SIZES}


@pytest.mark.parametrize(
    "options", [{}, {"start": "random"}, {"fraction": 0.4}, {"scale": "feature"}, {"view_evenness": 0.1}]
)
def test_views_at_several_sites_give_the_fit_of_one_site_that_has_all(options):
    views = dict(sorted(tables().items()))  # in the order of the sites
    apart, together = fit(secure_sum=False, **options), fit(pool(views), **options)
    assert apart.embedding_.tobytes() == together.embedding_.tobytes()
    assert apart.labels_.tolist() == together.labels_.tolist()
    assert list(apart.view_weights_.values()) == pytest.approx(list(together.view_weights_.values()), rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"start": "random", "max_iter": 10}, {"fraction": 0.4}])
def test_masked_sums_give_the_fit_in_clear(options):
    unmasked, masked = fit(secure_sum=False, **options), fit(**options)
    assert np.abs(unmasked.embedding_ - masked.embedding_).max() < 1e-6
    assert unmasked.labels_.tolist() == masked.labels_.tolist()


def test_the_factorisation_is_that_of_the_stacked_equations():
    """A driver of a dozen lines with dense systems gives the same V."""
    model = fit(
        view_evenness=0.5,
        consensus_penalty=0.4,
        guide_penalty=0.3,
        orthogonality_penalty=0.2,
        max_iter=6,
        start="random",
        tol=0.0,
    )
    with mc.Federation.in_process(split(), policy=OPEN) as federation:
        aligned = align(federation)
    order = np.argsort(as_places(aligned))
    V = drive([X[order] for X in tables().values()], lam=0.5, rho=0.4, varrho=0.3, mu=0.2, n_rounds=6)
    assert np.abs(model.embedding_ - V).max() < 1e-7


def as_places(aligned):
    from multicentre.linkage.alignment import find_places
    from multicentre.linkage.pseudonyms import PseudonymKey

    key = PseudonymKey.simulated(aligned.persons.study)
    return find_places(NAMES, aligned.pseudonyms, aligned.persons, key)


def drive(views, *, lam, rho, varrho, mu, n_rounds):
    from scipy.optimize import nnls

    n, c, k, r = 60, 3, len(views), 10.0**lam
    rho, varrho, mu = (penalty * n / c for penalty in (rho, varrho, mu))
    scaled = []
    for X in views:
        Z = (X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, ddof=1, keepdims=True)
        scaled.append(Z / np.sqrt((Z**2).sum() / n))
    V = np.random.default_rng(0).random((n, c))
    V /= np.linalg.norm(V, axis=0)
    G, psi = V.copy(), np.zeros((n, c))
    factors, phi, a = [V.copy() for _ in views], [np.zeros((n, c)) for _ in views], np.ones(k)
    for _ in range(n_rounds):
        errors = np.zeros(k)
        for m, X in enumerate(scaled):
            U = np.linalg.lstsq(factors[m], X, rcond=None)[0].T
            stacked = np.vstack([np.sqrt(a[m]) * U, np.sqrt(rho / 2) * np.eye(c)])
            target = np.hstack([np.sqrt(a[m]) * X, np.sqrt(rho / 2) * (V - phi[m] / rho)])
            factors[m] = np.array([nnls(stacked, row)[0] for row in target])
            errors[m] = ((X - factors[m] @ U.T) ** 2).sum()
        system = mu * G @ G.T + (varrho + k * rho) * np.eye(n)
        V = np.linalg.solve(system, (mu + varrho) * G - psi + sum(phi) + rho * sum(factors))
        G = np.linalg.solve(mu * V @ V.T + varrho * np.eye(n), (mu + varrho) * V + psi)
        psi = psi + varrho * (V - G)
        phi = [one + rho * (F - V) for one, F in zip(phi, factors, strict=True)]
        alpha = (r * errors) ** (1 / (1 - r))
        a = (k * alpha / alpha.sum()) ** r
    return V


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    one, two, other = fit(start="random"), fit(start="random"), fit(start="random", random_state=1)
    assert one.embedding_.tobytes() == two.embedding_.tobytes() != other.embedding_.tobytes()


def test_the_order_of_a_sites_rows_does_not_matter():
    shuffled = split(order=np.random.default_rng(0).permutation(60))
    one, two = fit(), fit(shuffled)
    assert one.embedding_.tobytes() == two.embedding_.tobytes()


def test_rounds_end_when_nothing_moves():
    model = fit(max_iter=300)
    assert model.converged_
    assert model.n_iter_ == len(model.history_) < 300
    last = model.history_[-1]
    assert max(last["gap"], last["change"]) <= 1e-3
    assert last["orthogonality"] < 0.5
    assert not fit(max_iter=2).converged_


def test_a_view_that_is_explained_better_weighs_more():
    views = tables()
    rng = np.random.default_rng(9)
    views["image"] = rng.normal(size=(60, 70))
    weights = fit(split(views)).view_weights_
    assert weights["of-image/image"] == min(weights.values())
    even = fit(split(views), view_evenness=2.5).view_weights_
    assert np.ptp(list(even.values())) < np.ptp(list(weights.values()))


def test_stragglers_change_the_way_but_find_the_groups():
    model = fit(fraction=0.2)
    assert clustering_scores(GROUP, model.labels_for(NAMES))["acc"] == 1.0
    assert not np.allclose(model.embedding_, fit().embedding_)


@pytest.mark.parametrize("secure", [False, True])
def test_a_fit_goes_on_without_a_site_that_is_lost_in_mid_run(secure):
    sites = {**split(), "of-more": mc.data.MultiViewData({"more": tables(5)["genes"]}, NAMES)}
    model = fit(sites, quorum=3, secure_sum=secure, faults=Faults(lose={"of-more": 20}))
    assert clustering_scores(GROUP, model.labels_for(NAMES))["acc"] == 1.0
    assert model.view_weights_["of-more/more"] == 0.0
    with pytest.raises(QuorumLost):
        fit(sites, secure_sum=secure, faults=Faults(lose={"of-more": 20}))


def test_sums_in_clear_need_a_policy_that_shows_all():
    with pytest.raises(RefusedByPolicy, match="dense"):
        fit(policy=mc.Policy(), secure_sum=False)
    with pytest.raises(RefusedByPolicy, match="relations"):
        fit(policy=mc.Policy(relations="none"), secure_sum=True)


def test_a_model_comes_back_from_its_folder(tmp_path):
    model = fit()
    model.save(tmp_path)
    again = FedMVL.load(tmp_path)
    assert again.labels_.tolist() == model.labels_.tolist()
    assert again.embedding_.tobytes() == model.embedding_.tobytes()
    assert again.view_weights_ == model.view_weights_
    assert (again.n_iter_, again.converged_) == (model.n_iter_, model.converged_)
    assert again.figures({}, {})[0].categories == list(model.view_weights_)


def test_constant_and_duplicate_samples_do_no_harm():
    views = tables()
    views["blood"][:5] = 1.0
    views["image"][10:14] = views["image"][10]
    views["genes"][:, 3] = 2.0
    model = fit(split(views))
    assert np.isfinite(model.embedding_).all()
    assert clustering_scores(GROUP, model.labels_for(NAMES))["acc"] > 0.9


def test_all_samples_alike_are_not_an_error():
    views = {view: np.tile(np.arange(float(d)), (60, 1)) for view, d in SIZES.items()}
    model = fit(split(views))
    assert np.isfinite(model.embedding_).all()


BAD = {
    "nan": ({"blood": np.where(np.eye(60, 8) > 0, np.nan, 1.5)}, DataError, "missing"),
    "constant view": ({"blood": np.full((60, 8), 3.0)}, DataError, "got a constant view"),
    "one column": ({"blood": np.arange(60.0)[:, None]}, DataError, "got a constant view"),
}


@pytest.mark.parametrize("name", BAD)
def test_views_that_cannot_be_used_are_named(name):
    changed, error, words = BAD[name]
    with pytest.raises(error, match=words) as caught:
        fit(split({**tables(), **changed}))
    assert "of-blood" in str(caught.value)


def test_one_column_can_be_used_when_columns_are_standardised():
    views = {**tables(), "blood": GROUP[:, None] + 0.1 * np.random.default_rng(0).normal(size=(60, 1))}
    model = fit(split(views), scale="feature")
    assert clustering_scores(GROUP, model.labels_for(NAMES))["acc"] > 0.9


def test_patients_whom_a_site_lacks_are_refused_unless_left_out():
    sites = split()
    sites["of-image"] = sites["of-image"].take(np.arange(3, 60))
    assert len(fit(sites).labels_) == 57
    with mc.Federation.in_process(sites, policy=OPEN) as federation:
        aligned = align(federation, incomplete=True)
        with pytest.raises(DataError, match="got missing entries or patients"):
            FedMVL(3).fit(aligned)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 1),
        ("n_clusters", 2.0),
        ("view_evenness", 0.0),
        ("view_evenness", float("nan")),
        ("consensus_penalty", -1.0),
        ("guide_penalty", 0.0),
        ("orthogonality_penalty", "1"),
        ("fraction", 0.0),
        ("max_iter", 0),
        ("tol", -1.0),
        ("scale", "view"),
        ("start", "zero"),
        ("n_init", True),
        ("random_state", -1),
    ],
)
def test_parameters_out_of_range_are_named(name, value):
    with mc.Federation.in_process(split(), policy=OPEN) as federation:
        model = FedMVL(**{"n_clusters": 3, name: value})
        with pytest.raises(ConfigurationError, match=name):
            model.fit(federation)


def test_more_clusters_than_patients_are_refused():
    with (
        mc.Federation.in_process(split(), policy=OPEN) as federation,
        pytest.raises(DataError, match="patients, 60; got 61"),
    ):
        FedMVL(61).fit(federation)


def test_a_factor_that_vanishes_ends_the_fit():
    model = FedMVL(3)
    rounds = type("Loop", (), {"number": 4})()
    zero = np.zeros((60, 3))
    from multicentre_papers.baselines.fedmvl import messages
    from multicentre_papers.baselines.fedmvl.maths import Penalties

    rounds.state = messages.Progress(zero, zero, zero, 3.0, 3.0, 0.0)
    sums = messages.Sums(zero, 3.0, 3.0, 0.0, 1.0, 0.0)
    with pytest.raises(NotConverged, match="not all 0"):
        model._advance(rounds, sums, Penalties(1.0, 1.0, 1.0))
