"""DPFact without privacy: the pooled fit, its rounds, its start, and what it refuses."""

import dataclasses
import inspect
import itertools

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.data import EventTensor
from multicentre.engines.faults import Faults
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    NoiseWarning,
    SchemaMismatch,
)
from multicentre.phenotyping import DPFact
from multicentre.phenotyping.dpfact import messages
from multicentre.phenotyping.dpfact import rounds as loops
from multicentre.phenotyping.dpfact.maths import local as elastic
from multicentre.phenotyping.dpfact.maths.local import ElasticWarning
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.phenotyping.fitted.model import RareCodesWarning
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.kernels.poisson import fit_rates
from multicentre.phenotyping.scores import factor_match_score
from support.event_sites import simulate_events

OPEN = mc.Policy(min_patients=1)
unsettled = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def events():
    return simulate_events()


def fit(sites, rank=3, **parameters):
    parameters = {"vocabulary": next(iter(sites.values())).codes, **parameters}
    with mc.Federation.in_process(sites, policy=OPEN, secure_sum=False) as federation:
        return DPFact(rank, **parameters).fit(federation)


def dense(tensor):
    whole = np.zeros(tensor.shape)
    whole[tuple(tensor.coordinates.T)] = tensor.counts
    return whole


def reconstruct(memberships, factors):
    return np.einsum("ir,jr,kr->ijk", memberships, *factors)


@unsettled
@pytest.mark.parametrize("init", ["random", "cooccurrence"])
def test_the_exact_fit_is_the_same_however_patients_are_split(events, init):
    parameters = {"init": init, "max_iter": 20, "tol": 0.0}
    one, four = (fit(events.sites(n), **parameters) for n in (1, 4))
    for mode, factor in one.factors_.items():
        np.testing.assert_allclose(four.factors_[mode], factor, rtol=0, atol=1e-12)
    np.testing.assert_allclose(four.weights_, one.weights_, rtol=1e-12)
    assert four.reconstruction_errors_.squared_error == pytest.approx(
        one.reconstruction_errors_.squared_error, rel=1e-12
    )


@unsettled
def test_the_order_of_the_sites_does_not_matter(events):
    sites = events.sites(4)
    turned = {name: sites[name] for name in reversed(sites)}
    one, other = (fit(held, max_iter=20, tol=0.0) for held in (sites, turned))
    for mode, factor in one.factors_.items():
        np.testing.assert_allclose(other.factors_[mode], factor, rtol=0, atol=1e-12)


@unsettled
def test_the_exact_fit_is_alternating_least_squares_on_the_dense_tensor(events):
    """One sweep a problem, written out on the whole array."""
    found = fit(events.sites(3), init="random", n_starts=1, max_iter=8, n_sweeps=1, tol=0.0)
    whole = dense(events.tensor)
    rng = np.random.default_rng(0)
    b, c = (draw / np.linalg.norm(draw, axis=0) for draw in (rng.random((size, 3)) for size in whole.shape[1:]))
    a = np.ones((len(whole), 3))
    for _ in range(8):
        a = sweep(np.einsum("ijk,jr,kr->ir", whole, b, c), (b.T @ b) * (c.T @ c), a)
        b = sweep(np.einsum("ijk,ir,kr->jr", whole, a, c), (a.T @ a) * (c.T @ c), b)
        b /= np.linalg.norm(b, axis=0)
        c = sweep(np.einsum("ijk,ir,jr->kr", whole, a, b), (a.T @ a) * (b.T @ b), c)
        c /= np.linalg.norm(c, axis=0)
    match = factor_match_score([b, c], list(found.factors_.values()))
    for reference, factor in zip((b, c), found.factors_.values(), strict=True):
        np.testing.assert_allclose(factor[:, match.partners], reference, atol=1e-10)


def sweep(products, gram, factor):
    factor = np.maximum(factor, 1e-9)
    for r in range(gram.shape[0]):
        factor[:, r] = np.maximum(0, factor[:, r] + (products[:, r] - factor @ gram[:, r]) / gram[r, r])
    return factor


@pytest.mark.parametrize(
    "parameters", [{}, {"solver": "easgd", "tol": 0.001}, {"init": "random", "max_iter": 100}], ids=str
)
def test_planted_phenotypes_are_found(events, parameters):
    found = fit(events.sites(3), **parameters)
    assert found.converged_
    assert factor_match_score(events.factors, found.factors_).score > 0.9


def test_errors_are_those_of_the_whole_tensor(events):
    found = fit(events.sites(3))
    whole, memberships = dense(events.tensor), np.vstack([found.transform(d) for d in events.sites(3).values()])
    residual = whole - reconstruct(memberships, found.factors_.values())
    errors = found.reconstruction_errors_
    assert errors.n_cells == whole.size
    assert errors.squared_error == pytest.approx((residual**2).sum(), rel=1e-3)
    assert errors.squared_error_at_entries == pytest.approx((residual[whole > 0] ** 2).sum(), rel=1e-3)
    assert errors.rmse_of_zero == pytest.approx(np.sqrt((whole**2).sum() / (whole > 0).sum()))
    assert found.history_[-1]["rmse"] == pytest.approx(errors.rmse, rel=1e-3)


def test_the_error_never_rises(events):
    path = [entry["rmse"] for entry in fit(events.sites(3), init="random", n_starts=1, tol=1e-3).history_]
    assert len(path) > 3
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(path))


@pytest.mark.slow
@unsettled
def test_the_poisson_fit_is_the_pooled_one_and_its_loss_never_rises(events):
    one, four = (fit(events.sites(n), solver="poisson", max_iter=15, tol=0.0) for n in (1, 4))
    for mode, factor in one.factors_.items():
        np.testing.assert_allclose(four.factors_[mode], factor, rtol=0, atol=1e-10)
    path = [entry["loss"] for entry in one.history_]
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(path))
    whole, rates = dense(events.tensor), fit_rates_of(one, events.tensor)
    entries = whole > 0
    loss = (rates.sum() - (whole[entries] * np.log(rates[entries])).sum()) / entries.sum()
    assert loss == pytest.approx(path[-1], rel=1e-3)


def fit_rates_of(model, tensor):
    memberships = fit_rates(
        SparseTensor(tensor.coordinates, tensor.counts, tensor.shape),
        list(model.factors_.values()),
        np.ones((len(tensor), model.rank_)),
        200,
    )
    return reconstruct(memberships, model.factors_.values())


def test_weights_order_the_phenotypes_and_are_lengths_of_the_memberships(events):
    found = fit(events.sites(2))
    memberships = np.vstack([found.transform(data) for data in events.sites(2).values()])
    np.testing.assert_allclose(found.weights_, np.linalg.norm(memberships, axis=0), rtol=1e-2)
    assert (np.diff(found.weights_) <= 0).all()


@pytest.mark.slow
def test_four_modes(events):
    four = simulate_events(sizes=(6, 7, 5), rate=4.0, n_patients=400)
    for parameters in ({}, {"solver": "easgd", "tol": 1e-3}):
        found = fit(four.sites(2), **parameters)
        assert list(found.factors_) == ["procedure", "diagnosis", "drug"]
        assert factor_match_score(four.factors, found.factors_).score > 0.9


def test_many_codes_are_started_from_sketches(events, monkeypatch):
    whole = fit(events.sites(3))
    monkeypatch.setattr(loops, "MAX_DENSE", 0)
    sketched = fit(events.sites(3))
    assert {"multiply_cooccurrence"} <= set(sketched.session.traffic.calls)
    assert "sum_cooccurrence" not in sketched.session.traffic.calls
    assert factor_match_score(whole.factors_, sketched.factors_).score > 0.999


def test_free_factors_fit_at_least_as_well(events):
    bound, free = (fit(events.sites(2), nonnegative=flag, tol=1e-3) for flag in (True, False))
    assert free.history_[-1]["rmse"] <= bound.history_[-1]["rmse"] + 1e-9
    assert min(factor.min() for factor in bound.factors_.values()) >= 0
    assert min(factor.min() for factor in free.factors_.values()) < 0


class TestStarts:
    """Several starts are tried for a few rounds; the one with the lowest released loss is continued."""

    def test_the_lowest_loss_wins(self, events):
        found = fit(events.sites(3))
        assert [start["start"] for start in found.starts_] == ["cooccurrence"] + ["random"] * 4
        losses = [start["loss"] for start in found.starts_]
        assert [start["is_chosen"] for start in found.starts_] == [loss == min(losses) for loss in losses]
        assert found.history_[-1]["rmse"] <= min(losses) + 1e-9

    @unsettled
    def test_losses_are_those_of_fits_from_each_start(self, events):
        """The random start that is tried first is that of a fit with a single random start and the same seed."""
        found = fit(events.sites(3), tol=0.0, max_iter=1)
        alone = fit(events.sites(3), init="random", n_starts=1, tol=0.0, max_iter=loops.N_TRIAL_ROUNDS)
        assert found.starts_[1]["loss"] == pytest.approx(alone.history_[-1]["rmse"], rel=1e-12)

    def test_a_better_random_start_is_taken(self, events, monkeypatch):
        bad = {mode: np.ones((len(names), 3)) for mode, names in events.tensor.codes.items()}
        monkeypatch.setattr(loops, "find_start", lambda session, plan: messages.Factors(bad))
        found = fit(events.sites(3))
        (chosen,) = [start for start in found.starts_ if start["is_chosen"]]
        assert chosen["start"] == "random"
        assert factor_match_score(events.factors, found.factors_).score > 0.9

    @pytest.mark.parametrize(
        ("parameters", "n_trials"),
        [({"n_starts": 1}, 0), ({"init": "cooccurrence"}, 0), ({"init": "random"}, 5), ({"n_starts": 2}, 2)],
        ids=str,
    )
    def test_number_of_starts(self, events, parameters, n_trials):
        found = fit(events.sites(2), tol=1e-3, **parameters)
        assert len(found.starts_) == n_trials
        assert ("sum_cooccurrence" in found.session.traffic.calls) == (parameters.get("init") != "random")

    @pytest.mark.parametrize("solver", ["poisson", "easgd", "psgd"])
    def test_every_solver_compares_starts(self, events, solver):
        found = fit(events.sites(2), solver=solver, n_starts=2, tol=0.02, max_iter=50)
        assert len(found.starts_) == 2
        assert all(np.isfinite(start["loss"]) for start in found.starts_)

    def test_the_group_lasso_is_left_out_of_the_trials(self, events):
        plain, sparse = (fit(events.sites(2), sparsity=weight, tol=0.01) for weight in (0.0, 0.06))
        assert [one["loss"] for one in plain.starts_] == [one["loss"] for one in sparse.starts_]

    def test_real_codes_end_no_higher_than_the_start_from_cooccurrences(self):
        """Codes without structure have many local minima."""
        tensor = mc.datasets.simulate_paper_tensor(200, (12, 15), density=0.025, random_state=0).tensor
        listed = {"a": tensor}
        several, one = (
            fit(listed, rank=6, vocabulary=tensor.codes, tol=1e-3, **more) for more in ({}, {"init": "cooccurrence"})
        )
        assert several.reconstruction_errors_.rmse <= one.reconstruction_errors_.rmse + 1e-3

    def test_the_default_runs_until_converged(self, events):
        found = fit(events.sites(2))
        assert found.converged_
        assert found.history_[-1]["change"] < DPFact().tol

    def test_starts_are_saved(self, events, tmp_path):
        found = fit(events.sites(2), tol=1e-3)
        found.save(tmp_path)
        assert DPFact.load(tmp_path).starts_ == found.starts_ != []


class TestRareCodes:
    """The share of entries and codes that the minimum of patients per code leaves out is stated once."""

    def sites(self, n_rare):
        """Return two sites whose 40 patients have one frequent pair of codes each, and some a rare diagnosis."""
        places = [(patient, 0, 0) for patient in range(40)] + [(patient, 0, 1 + patient) for patient in range(n_rare)]
        codes = {"procedure": ["p"], "diagnosis": ["d", *(f"rare{k:02d}" for k in range(n_rare))]}
        data = EventTensor(places, np.ones(len(places)), codes)
        return {"a": data, "b": data}

    def fit(self, n_rare, **parameters):
        with mc.Federation.in_process(self.sites(n_rare), **parameters.pop("terms", {})) as federation:
            return DPFact(1, **parameters).fit(federation)

    def test_a_large_share_is_warned_of(self):
        with pytest.warns(RareCodesWarning, match=r"33 % of the entries and 91 % of an average site's codes") as told:
            found = self.fit(20)
        assert len(told) == 1
        assert found.rare_codes_ == {"entries": pytest.approx(40 / 120), "codes": pytest.approx(20 / 22)}
        for advice in ("roll_up_to_prefix", "vocabulary", "n_codes", "many small hospitals"):
            assert advice.lower() in str(told[0].message).lower()
        assert "33 % of the entries" in str(found)

    def test_a_small_share_is_not(self):
        found = self.fit(2)
        assert found.rare_codes_["entries"] == pytest.approx(4 / 84)

    def test_a_public_list_asks_for_no_counts(self):
        found = self.fit(20, vocabulary={"procedure": ["p"], "diagnosis": ["d"]})
        assert found.rare_codes_ is None
        assert "count_rare_codes" not in found.session.traffic.calls

    def test_unmasked_counts_of_few_patients_are_refused_and_the_fit_continues(self):
        found = self.fit(2, terms={"secure_sum": False})
        assert found.rare_codes_ is None
        assert found.converged_

    def test_many_small_hospitals_are_advised(self):
        places = [(patient, patient % 3, patient % 3) for patient in range(12)]
        codes = {"procedure": ["p", "q", "r"], "diagnosis": ["d", "e", "f"]}
        few = {f"site-{k}": EventTensor(places, np.ones(12), codes) for k in range(4)}
        with mc.Federation.in_process(few) as federation, pytest.raises(DataError) as caught:
            DPFact(1).fit(federation)
        assert "many small hospitals" in str(caught.value.hint)
        with mc.Federation.in_process(few) as federation:
            found = DPFact(1, vocabulary=codes, n_codes={"procedure": 2, "diagnosis": 2}).fit(federation)
        assert found.codes_ == {"procedure": ("p", "q"), "diagnosis": ("d", "e")}


class TestElasticAveraging:
    def paths(self, weight, n_rounds=60):
        """Return the distance of the global factor to the sites' optima when each contracts by kappa."""
        kappa, targets = 1 / (1 + 0.01 * 5.0), np.array([1.0, -1.0, 0.5])
        centre, local = np.array([7.0]), np.array([7.0, 3.0, -2.0])
        for _ in range(n_rounds):
            local = centre + kappa * (local - centre) + 0.0 * targets
            centre = elastic.move_to_mean(centre, local.mean(keepdims=True), weight)
        return float(np.abs(local - centre).max())

    def test_just_below_the_limit_it_settles_and_above_it_diverges(self):
        limit = elastic.largest_weight(1 / (1 + 0.01 * 5.0))
        assert limit == pytest.approx(2.05)
        assert self.paths(1.95) < 3.0
        assert self.paths(2.25) > 1e3

    def test_weights_beyond_the_limit_are_refused_and_above_one_warned_of(self, events):
        with pytest.raises(ConfigurationError, match="elastic_weight must be a number above 0 and below"):
            fit(events.sites(2), solver="easgd", elastic_weight=2.25)
        with pytest.warns(ElasticWarning):
            fit(events.sites(2), solver="easgd", elastic_weight=1.2, tol=0.01)


class TestSparsity:
    @pytest.mark.slow
    def test_absent_phenotypes_are_found(self):
        planted = mc.datasets.simulate_planted(random_state=0)
        sites, truth = planted.by_site(), planted.truth
        with mc.Federation.in_process(sites) as federation:
            found = DPFact(20, sparsity=0.06, tol=1e-2).fit(federation)
            profile = found.profile_sites()
        partners = factor_match_score(truth.factors, found.factors_).partners
        lengths = profile.loc[list(truth.sites)].to_numpy()
        off = np.isnan(lengths)[:, partners]
        assert (~truth.present).sum() == 32
        assert (off & ~truth.present).sum() >= 30
        assert (off & truth.present).sum() <= 1


class TestPairs:
    """Two codes may be frequent and their pair not."""

    def site(self):
        pairs = [(0, 0)] * 15 + [(1, 1)] * 15 + [(0, 1)]
        places = np.array([(patient, *pair) for patient, pair in enumerate(pairs)])
        return EventTensor(places, np.ones(len(pairs)), {"procedure": ["p1", "p2"], "diagnosis": ["d1", "d2"]})

    @pytest.mark.parametrize("masked", [False, True])
    def test_a_pair_of_one_patient_counts_and_the_sum_rests_on_that_patient_unless_masked(self, masked):
        part = DPFactSite("a", self.site())
        part.agree(messages.Prepared(self.site().codes))
        part.masked = masked
        found = part.sum_cooccurrence(Nothing())
        np.testing.assert_allclose(found.marginals, [15, 1, 0, 15])
        products = part.multiply_cooccurrence(messages.Directions(np.eye(4)))
        np.testing.assert_allclose(products.products[:2, 2:].ravel(), found.marginals)
        assert found.patients == products.patients == (31 if masked else 1)

    @pytest.mark.parametrize("dense_codes", [2**20, 0])
    def test_a_start_with_such_a_pair_is_refused_unmasked(self, monkeypatch, dense_codes):
        monkeypatch.setattr(loops, "MAX_DENSE", dense_codes)
        sites = {"a": self.site(), "b": self.site()}
        with (
            mc.Federation.in_process(sites, secure_sum=False) as federation,
            pytest.raises(DisclosureRefused, match=r"cooccurrence.*secure_sum=True"),
        ):
            DPFact(2).fit(federation)
        with mc.Federation.in_process(sites) as federation:
            assert DPFact(2).fit(federation).n_patients_ == 62


class TestTraffic:
    @unsettled
    def test_bytes_per_round_are_the_formula(self, events):
        """(J + K) R numbers down, (J + K) R + R^2 up."""
        found, more = (fit(events.sites(3), max_iter=n, tol=0.0) for n in (2, 5))
        down, up = (
            {step: sent[step] for step in ("fit_memberships", "sum_products")}
            for sent in (more.session.traffic.bytes_to_sites, more.session.traffic.bytes_from_sites)
        )
        earlier = found.session.traffic
        codes, rank, n_sites = 9 + 12, 3, 3
        assert sum(up.values()) - sum(earlier.bytes_from_sites[step] for step in up) == (
            3 * n_sites * 8 * (codes * rank + rank**2 + 2)
        )
        sent = sum(down.values()) - sum(earlier.bytes_to_sites[step] for step in down)
        matrices = 3 * n_sites * 8 * codes * rank
        assert matrices <= sent <= matrices + 3 * n_sites * 2 * 100


class TestAgreement:
    def test_sites_name_the_codes_of_enough_patients(self, events):
        sites = events.sites(3)
        found = fit(sites, vocabulary=None, min_code_patients=20)
        for mode, names in found.codes_.items():
            shown = {
                code
                for data in sites.values()
                for code, n in zip(data.codes[mode], data.patients_by_code(mode), strict=True)
                if n >= 20
            }
            assert set(names) == shown
            assert list(names) == sorted(names)

    def test_the_most_frequent_codes_are_kept(self, events):
        found = fit(events.sites(3), vocabulary=None, min_code_patients=1, n_codes={"diagnosis": 5})
        counts = events.tensor.patients_by_code("diagnosis")
        best = {events.tensor.codes["diagnosis"][place] for place in np.argsort(-counts, kind="stable")[:5]}
        assert set(found.codes_["diagnosis"]) == best
        assert len(found.codes_["procedure"]) > 5

    def test_a_public_list_asks_no_site_for_its_codes(self, events):
        found = fit(events.sites(2), vocabulary=events.tensor.codes)
        assert not {"name_codes", "count_codes"} & set(found.session.traffic.calls)
        assert found.codes_ == events.tensor.codes

    def test_a_code_of_one_patient_counts_as_in_the_pooled_fit(self, events):
        rare = EventTensor(
            np.vstack([events.tensor.coordinates, [[0, 9, 0]]]),
            np.append(events.tensor.counts, 50.0),
            {
                "procedure": [*events.tensor.codes["procedure"], "pr:rare"],
                "diagnosis": events.tensor.codes["diagnosis"],
            },
            n_patients=len(events.tensor),
        )
        listed = {mode: rare.codes[mode] for mode in rare.modes}
        pooled = fit({"only": rare}, vocabulary=listed)
        thirds = {f"site-{i}": rare.take(np.arange(i, len(rare), 3)) for i in range(3)}
        with mc.Federation.in_process(thirds) as federation:
            found = DPFact(3, vocabulary=listed).fit(federation)
        assert found.factors_["procedure"][found.codes_["procedure"].index("pr:rare")].max() > 0.01
        for mode, factor in pooled.factors_.items():
            np.testing.assert_allclose(found.factors_[mode], factor, rtol=0, atol=1e-5)
        assert found.members_.tolist() == pooled.members_.tolist()

    def test_codes_of_few_patients_are_refused_unmasked(self, events):
        few = {name: data.take(np.arange(15)) for name, data in events.sites(3).items()}
        with (
            mc.Federation.in_process(few, secure_sum=False) as federation,
            pytest.raises(DisclosureRefused, match="secure_sum=True"),
        ):
            DPFact(3, vocabulary=events.tensor.codes).fit(federation)

    def test_other_modes_are_named(self, events):
        odd = EventTensor([[0, 0, 0]], [1.0], {"procedure": ["p"], "drug": ["d"]})
        with pytest.raises(SchemaMismatch, match=r"site odd.*procedure, drug"):
            fit({"first": events.tensor, "odd": odd}, vocabulary=None)

    def test_a_list_of_other_modes(self, events):
        with pytest.raises(SchemaMismatch, match="vocabulary"):
            fit(events.sites(2), vocabulary={"procedure": ["pr:001"]})

    def test_no_common_codes(self, events):
        strange = {mode: [f"x{code}" for code in names] for mode, names in events.tensor.codes.items()}
        stranger = EventTensor(events.tensor.coordinates, events.tensor.counts, strange)
        with pytest.raises(DataError, match=r"odd.*at least one patient must have an agreed code"):
            fit({"first": events.tensor, "odd": stranger}, vocabulary=events.tensor.codes)

    def test_no_code_frequent_enough(self, events):
        with pytest.raises(DataError, match="at least one code must have"):
            fit(events.sites(2), vocabulary=None, min_code_patients=10_000)


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ({"solver": "sgd"}, "solver"),
        ({"rank": 0}, "rank"),
        ({"rank": 10}, "rank"),
        ({"rank": 2.5}, "rank"),
        ({"tol": float("nan")}, "tol"),
        ({"sparsity": -1.0}, "sparsity"),
        ({"n_codes": {"drug": 3}}, "n_codes"),
        ({"elastic_weight": 0.0}, "elastic_weight"),
        ({"nonnegative": False, "solver": "easgd"}, "nonnegative"),
    ],
)
def test_bad_parameters_are_named(events, parameters, place):
    parameters = {"rank": 3, **parameters}
    with pytest.raises(ConfigurationError, match=place):
        fit(events.sites(2), **parameters)


@unsettled
def test_rounds_that_do_not_settle_are_told(events):
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        fit(events.sites(2), init="random", max_iter=1, tol=1e-9)


def test_a_saved_fit_is_the_same(events, tmp_path):
    found = fit(events.sites(2))
    found.save(tmp_path)
    again = DPFact.load(tmp_path)
    np.testing.assert_array_equal(again.transform(events.tensor), found.transform(events.tensor))
    assert again.codes_ == found.codes_
    assert again.members_.tolist() == found.members_.tolist()


def test_held_out_patients_of_another_vocabulary(events):
    found = fit(events.sites(2))
    part = events.tensor.take(np.arange(50))
    turned = part.align({mode: names[::-1] for mode, names in part.codes.items()})
    np.testing.assert_allclose(found.transform(turned), found.transform(part))
    labels = [str(one) for one in part.outcomes]
    metrics = found.assess(
        part, labels, training=events.tensor, training_labels=[str(one) for one in events.tensor.outcomes]
    )
    assert set(metrics) == {"explained", "rmse", "auc"}
    assert metrics["auc"] > 0.6
    assert 0 < metrics["explained"] < 1


def test_the_ledger_shows_no_field_that_holds_a_patient(events):
    with mc.Federation.in_process(events.sites(3)) as federation:
        DPFact(3).fit(federation)
        lengths = {
            tuple(field["shape"])
            for ledger in federation.ledgers.values()
            for entry in ledger.entries
            for field in entry.get("fields", [])
        }
    n_patients = {len(data) for data in events.sites(3).values()}
    assert not n_patients & {side for shape in lengths for side in shape}


def test_plan_names_every_option_it_uses():
    """Every field of the rounds' plan is read by some loop."""
    source = inspect.getsource(loops)
    for field in dataclasses.fields(loops.Plan):
        assert f"plan.{field.name}" in source


class TestHostileCoordinator:
    """Nothing that a coordinator may ask makes an unmasked value rest on fewer patients than is said."""

    def patients(self):
        """Return 60 patients of whom every code has 20 or more, and one pair of codes one."""
        pairs = [(0, 1)] * 20 + [(1, 0)] * 20 + [(1, 1)] * 19 + [(0, 0)]
        places = np.array([(patient, *pair) for patient, pair in enumerate(pairs)])
        counts = np.ones(60)
        counts[-1] = 5.0
        return EventTensor(places, counts, {"procedure": ["p0", "p1"], "diagnosis": ["d0", "d1"]})

    def prepared(self, rank=1):
        part = DPFactSite("site", self.patients())
        part.agree(messages.Prepared(self.patients().codes))
        factors = {mode: np.eye(2)[:, :rank].copy() for mode in ("procedure", "diagnosis")}
        part.begin(messages.Begin(factors, 0))
        return part, factors

    def test_factors_that_fit_one_patient_rest_on_that_patient_unless_masked(self):
        part, factors = self.prepared()
        request = messages.UpdateAndFit("diagnosis", factors["diagnosis"], "procedure", 5, 0.0, True)
        answer = part.fit_memberships(request)
        assert (answer.gram.tolist(), answer.patients) == ([[25.0]], 1)
        part.masked = True
        assert part.fit_memberships(request).patients == 60

    def test_a_trace_of_a_phenotype_makes_nobody_a_member(self):
        part, _ = self.prepared()
        traced = {mode: np.array([[1.0], [1e-4]]) for mode in ("procedure", "diagnosis")}
        part.begin(messages.Begin(traced, 0))
        request = messages.UpdateAndFit("diagnosis", traced["diagnosis"], "procedure", 5, 0.0, True)
        assert part.fit_memberships(request).patients == 1
        assert not part.profile(messages.Penalty(0.0)).lengths.any()

    def test_a_profile_counts_members_and_not_what_a_start_left(self):
        part, _ = self.prepared()
        shown = part.profile(messages.Penalty(0.0))
        assert not shown.lengths.any()
        odd = {"procedure": np.array([[1.0, -1.0], [0.0, 0.0]]), "diagnosis": np.array([[1.0, 1.0], [0.0, 0.0]])}
        part.begin(messages.Begin(odd, 0))
        with pytest.raises(ConfigurationError, match="factors must be non-negative"):
            part.profile(messages.Penalty(0.0))

    def test_one_list_of_codes_a_fit(self):
        part, _ = self.prepared()
        with pytest.raises(ConfigurationError, match="got different codes"):
            part.agree(messages.Prepared({"procedure": ("p0",), "diagnosis": ("d0",)}))

    def test_factors_must_fit_the_codes(self):
        part, factors = self.prepared()
        for odd in ({"procedure": np.ones((3, 1))}, {**factors, "procedure": np.ones((2, 0))}):
            with pytest.raises(ConfigurationError, match="factors"):
                part.begin(messages.Begin(odd, 0))

    def test_noise_that_hides_nobody_counts_as_none(self):
        listed = {"procedure": ["p0"], "diagnosis": ["d0"]}
        sites, terms = {"a": self.patients(), "b": self.patients()}, {"secure_sum": False}
        with (
            mc.Federation.in_process(sites, **terms) as federation,
            pytest.raises(DisclosureRefused, match="at least 10 patients behind it"),
        ):
            DPFact(1, epsilon=1e6, vocabulary=listed).fit(federation)
        with mc.Federation.in_process(sites, **terms) as federation, pytest.warns(NoiseWarning):
            DPFact(1, epsilon=3.0, vocabulary=listed).fit(federation)


@unsettled
@pytest.mark.parametrize("solver", ["stat", "easgd", "poisson"])
@pytest.mark.parametrize("secure", [False, True])
def test_errors_are_those_of_the_sites_that_are_left(events, solver, secure):
    sites = simulate_events(300, rate=2.0).sites(3)
    options = {"policy": OPEN, "quorum": 2, "secure_sum": secure}
    with mc.Federation.in_process(sites, faults=Faults(lose={"site-2": 8}), **options) as federation:
        found = DPFact(3, solver=solver, max_iter=6, vocabulary=events.tensor.codes).fit(federation)
    left = [sites[name] for name in ("site-0", "site-1")]
    assert found.n_patients_ == sum(map(len, left))
    assert found.reconstruction_errors_.sum_squares == pytest.approx(
        sum(float(data.counts @ data.counts) for data in left)
    )


def test_phenotypes_that_nobody_has_are_told(events):
    with pytest.warns(UserWarning, match="have no patient"):
        fit(events.sites(2), sparsity=1e3, tol=0.5)


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ({"n_codes": {"procedure": 2.5}}, "n_codes"),
        ({"n_codes": 3}, "n_codes"),
        ({"vocabulary": 5}, "vocabulary"),
        ({"vocabulary": {"procedure": "abc", "diagnosis": ["d"]}}, "vocabulary"),
        ({"vocabulary": {"procedure": [1], "diagnosis": ["d"]}}, "vocabulary"),
    ],
)
def test_lists_of_codes_that_cannot_be_read(events, parameters, place):
    with pytest.raises(ConfigurationError, match=place):
        fit(events.sites(2), **parameters)


def test_a_list_that_no_entry_meets(events):
    with pytest.raises(DataError, match="at least one patient must have an agreed code"):
        fit(events.sites(2), rank=1, vocabulary={"procedure": ["x"], "diagnosis": ["y"]})


@unsettled
def test_memberships_of_a_poisson_fit_are_its_own(events):
    found = fit(events.sites(2), solver="poisson", max_iter=20, tol=0.0)
    rates = reconstruct(found.transform(events.tensor), found.factors_.values())
    whole = dense(events.tensor)
    entries = whole > 0
    told = (rates.sum() - (whole[entries] * np.log(rates[entries])).sum()) / entries.sum()
    assert told == pytest.approx(found.history_[-1]["loss"], rel=1e-2)
    assert told <= found.history_[-1]["loss"]
