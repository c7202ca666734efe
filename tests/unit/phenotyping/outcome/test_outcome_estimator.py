"""The model of an outcome over sites: what it takes, what it refuses, what leaves, and what it shows."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.data import EventTensor
from multicentre.datasets.simulated_events import simulate_planted
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, SeparationWarning
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.kernels.patients import fit_memberships
from multicentre.phenotyping.outcome import PhenotypeFactors, PhenotypeOutcome
from multicentre.phenotyping.outcome.messages import PatientSubset, Prepare
from multicentre.phenotyping.outcome.phenotypes import refit_memberships
from multicentre.phenotyping.outcome.site import OutcomeSite
from multicentre.studies.comparison import compare
from multicentre.studies.site_patients import SiteData
from support.event_sites import simulate_events

DRAWN = simulate_events(360, seed=5)
SUMS = ("sum_moments", "sum_derivatives", "count_scores")
KNOWN = PhenotypeFactors(
    DRAWN.factors,
    DRAWN.tensor.codes,
    np.linalg.norm(DRAWN.memberships, axis=0),
    members=np.array([200.0, 5.0, 90.0]),
    n_patients=360.0,
)


def federate(sites, **options):
    return mc.Federation.in_process(sites, **options)


def with_outcomes(data, outcomes):
    return EventTensor(data.coordinates, data.counts, data.codes, n_patients=len(data), outcomes=outcomes)


def prepared(site, *, test_size=0.0):
    part = OutcomeSite("site-0", site)
    request = Prepare(KNOWN.codes, KNOWN.factors, nonnegative=True, test_size=test_size, seed=0, n_bins=200)
    part.prepare(request)
    return part


@pytest.fixture(scope="module")
def fitted():
    return PhenotypeOutcome(KNOWN, refit=True).fit(federate(DRAWN.sites(3)))


@pytest.fixture(scope="module")
def factorised():
    return mc.phenotyping.DPFact(3, tol=0.01).fit(federate(DRAWN.sites(3)))


def test_a_fitted_factorisation_and_its_folder_give_the_same_model(factorised, tmp_path):
    factorised.save(tmp_path / "dpfact")
    models = [PhenotypeOutcome(source).fit(federate(DRAWN.sites(3))) for source in (factorised, tmp_path / "dpfact")]
    assert (models[0].coef_ == models[1].coef_).all()
    rows = models[0].phenotypes_.memberships(DRAWN.tensor)
    np.testing.assert_allclose(rows, factorised.transform(DRAWN.tensor), rtol=0, atol=1e-9)


def test_a_saved_model_predicts_the_same_and_can_be_fitted_again(fitted, tmp_path):
    fitted.save(tmp_path)
    read = PhenotypeOutcome.load(tmp_path)
    assert (read.predict_proba(DRAWN.tensor) == fitted.predict_proba(DRAWN.tensor)).all()
    assert read.auc_bounds_ == fitted.auc_bounds_
    assert repr(read.phenotypes) == repr(fitted.phenotypes)
    assert read.to_frame().equals(fitted.to_frame())
    assert read.phenotype_table() == fitted.phenotype_table()
    again = clone(read).fit(federate(DRAWN.sites(3)))
    assert (again.coef_ == fitted.coef_).all()
    assert json.loads((tmp_path / "model.json").read_text())["parameters"]["phenotypes"] is None
    assert fitted.phenotypes is KNOWN


def test_a_checkpoint_of_other_phenotypes_is_refused(tmp_path):
    PhenotypeOutcome(KNOWN).fit(federate(DRAWN.sites(3), folder=tmp_path))
    factors = {mode: factor[:, ::-1].copy() for mode, factor in KNOWN.factors.items()}
    other = PhenotypeFactors(factors, KNOWN.codes, KNOWN.weights)
    with pytest.raises(ConfigurationError, match="other parameters"):
        PhenotypeOutcome(other).fit(federate(DRAWN.sites(3), folder=tmp_path))


def test_phenotypes_may_be_set_later(factorised):
    model = PhenotypeOutcome().set_params(phenotypes=factorised, alpha=2.0)
    assert isinstance(model.phenotypes, PhenotypeFactors)
    assert model.alpha == 2.0


@pytest.mark.parametrize("source", [mc.phenotyping.DPFact(3), "nothing", 3])
def test_phenotypes_that_were_not_fitted(source):
    with pytest.raises((ConfigurationError, mc.errors.IntegrityError)):
        PhenotypeOutcome(source)


def test_no_phenotypes():
    with pytest.raises(ConfigurationError, match="phenotypes"):
        PhenotypeOutcome().fit(federate(DRAWN.sites(3)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": -1.0},
        {"test_size": 1.0},
        {"test_size": 0.25},
        {"n_bins": 1},
        {"n_bins": 2**14 + 1},
        {"max_iter": 0},
        {"refit": 1},
        {"tol": float("nan")},
    ],
)
def test_parameters_out_of_range(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        PhenotypeOutcome(KNOWN, **wrong).fit(federate(DRAWN.sites(3)))


def test_a_site_without_outcomes_is_named():
    sites = DRAWN.sites(3)
    sites["site-1"] = with_outcomes(sites["site-1"], None)
    with pytest.raises(DataError, match=r"site-1.*must have outcomes"):
        PhenotypeOutcome(KNOWN).fit(federate(sites))


@pytest.mark.parametrize("outcome", [0, 1])
def test_one_outcome_overall(outcome):
    sites = {name: with_outcomes(data, np.full(len(data), outcome)) for name, data in DRAWN.sites(3).items()}
    with pytest.raises(DataError, match="patients must be both with and without the outcome"):
        PhenotypeOutcome(KNOWN).fit(federate(sites))


def test_a_site_where_nobody_has_the_outcome_takes_part():
    sites = DRAWN.sites(3)
    sites["site-2"] = with_outcomes(sites["site-2"], np.zeros(len(sites["site-2"])))
    model = PhenotypeOutcome(KNOWN).fit(federate(sites))
    assert model.n_patients_ == pytest.approx(0.6 * 360, abs=3)
    assert np.isfinite(list(model.auc_by_site().values())).tolist() == [True, True, False]


def few_outcomes():
    """Return sites of which the last has twelve patients with the outcome."""
    sites = DRAWN.sites(3)
    outcomes = np.zeros(len(sites["site-2"]))
    outcomes[:12] = 1
    return {**sites, "site-2": with_outcomes(sites["site-2"], outcomes)}


def test_a_site_with_few_outcomes_counts_under_a_mask_and_refuses_without_one():
    sites = few_outcomes()
    model = PhenotypeOutcome(KNOWN, test_size=0.0).fit(federate(sites))
    assert model.n_outcomes_ == sum(data.outcomes.sum() for data in sites.values())
    with pytest.raises(DisclosureRefused, match=r"site-2.*secure_sum=True"):
        PhenotypeOutcome(KNOWN, n_bins=2).fit(federate(sites, secure_sum=False))


def test_a_site_that_refuses_its_own_area_has_nan_and_the_others_keep_theirs():
    sites = few_outcomes()
    areas = PhenotypeOutcome(KNOWN).fit(federate(sites)).auc_by_site()
    exact = PhenotypeOutcome(KNOWN).fit(federate(sites, policy=mc.Policy(min_patients=0))).auc_by_site()
    assert np.isnan(areas.pop("site-2"))
    assert list(areas.refused) == ["site-2"]
    assert exact.pop("site-2") > 0
    assert areas == exact


def test_modes_differ():
    sites = DRAWN.sites(3)
    first = sites["site-0"]
    codes = {"drug": first.codes["procedure"], "diagnosis": first.codes["diagnosis"]}
    sites["site-0"] = EventTensor(
        first.coordinates, first.counts, codes, n_patients=len(first), outcomes=first.outcomes
    )
    with pytest.raises(DataError, match=r"site-0.*modes"):
        PhenotypeOutcome(KNOWN).fit(federate(sites))


def weakened(keep):
    """Return phenotypes without the first code of the first mode, as noise may leave them, or without any code."""
    factors = {mode: keep * factor for mode, factor in DRAWN.factors.items()}
    next(iter(factors.values()))[0] = 0.0
    return PhenotypeFactors(factors, DRAWN.tensor.codes, np.ones(3))


@pytest.mark.parametrize("policy", [mc.Policy(), mc.Policy(min_patients=0)], ids=["minimum", "none"])
def test_sites_whose_patients_have_no_phenotype_take_part(policy):
    sites = DRAWN.sites(3)
    first = sites["site-0"]
    alike = first.coordinates.copy()
    alike[:, 1] = 0
    coordinates, places = np.unique(alike, axis=0, return_inverse=True)
    counts = np.bincount(places.ravel(), weights=first.counts)
    sites["site-0"] = EventTensor(coordinates, counts, first.codes, n_patients=len(first), outcomes=first.outcomes)
    assert not weakened(1.0).memberships(sites["site-0"]).any()
    some = PhenotypeOutcome(weakened(1.0), test_size=0.4).fit(federate(sites, policy=policy))
    assert some.coef_.any()
    none = PhenotypeOutcome(weakened(0.0), test_size=0.4).fit(federate(sites, policy=policy))
    assert none.auc_ == 0.5
    assert not none.coef_.any()


def test_no_known_code():
    sites = DRAWN.sites(3)
    first = sites["site-0"]
    codes = {mode: [f"other:{name}" for name in names] for mode, names in first.codes.items()}
    sites["site-0"] = EventTensor(
        first.coordinates, first.counts, codes, n_patients=len(first), outcomes=first.outcomes
    )
    with pytest.raises(DataError, match=r"site-0.*at least one patient must have a code"):
        PhenotypeOutcome(KNOWN).fit(federate(sites))


def test_separation_is_warned_of_and_stays_finite():
    has = KNOWN.memberships(DRAWN.tensor)[:, 0] > np.median(KNOWN.memberships(DRAWN.tensor)[:, 0])
    tensor = with_outcomes(DRAWN.tensor, has.astype(np.int8))
    sites = {f"site-{i}": tensor.take(np.arange(i, 360, 3)) for i in range(3)}
    with pytest.warns(SeparationWarning):
        model = PhenotypeOutcome(KNOWN, alpha=1e-3, test_size=0.0).fit(
            federate(sites, policy=mc.Policy(min_patients=1))
        )
    assert np.isfinite(model.coef_).all()
    assert model.converged_
    with pytest.raises(DisclosureRefused, match="sum_derivatives"):
        PhenotypeOutcome(KNOWN, alpha=1e-3, test_size=0.0).fit(federate(sites))


def test_rounds_that_end_too_early_are_warned_of():
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        model = PhenotypeOutcome(KNOWN, max_iter=2).fit(federate(DRAWN.sites(3)))
    assert not model.converged_


def test_a_refit_is_on_everyone_and_the_area_stays_that_of_the_split():
    sites = simulate_events(1500, seed=1).sites(3)
    again, half, whole = (
        PhenotypeOutcome(KNOWN, **options).fit(federate(sites)) for options in ({"refit": True}, {}, {"test_size": 0.0})
    )
    assert again.n_patients_ == whole.n_patients_ == 1500
    assert half.n_patients_ < 1500
    np.testing.assert_allclose(again.coef_, whole.coef_, atol=1e-9)
    assert (again.auc_, again.auc_bounds_) == (half.auc_, half.auc_bounds_)
    assert (whole.auc_, whole.n_held_out_) == (None, 0.0)
    with pytest.raises(ConfigurationError, match="test_size must be above 0"):
        whole.auc_by_site()


def test_a_rare_phenotype_counts_and_a_sum_rests_on_its_patients_unless_masked():
    site = DRAWN.sites(3)["site-0"]
    found = KNOWN.memberships(site)
    cells = [found[:, r] * found[:, s] for r in range(3) for s in range(3)]
    behind = [np.floor(cell.sum() ** 2 / (cell**2).sum()) for cell in cells]  # Kish's effective number
    part = prepared(site)
    sums = part.sum_moments(PatientSubset(True))
    np.testing.assert_array_equal(sums.total, found.sum(axis=0))
    n_died = int(site.outcomes.sum())
    assert sums.patients == min(n_died, len(site) - n_died, *behind)
    part.masked = True
    assert part.sum_moments(PatientSubset(True)).patients == len(site)


@pytest.mark.parametrize("test_size", [0.0, 0.4])
def test_unmasked_a_fit_is_that_under_masks_or_refused_at_the_policys_minimum(test_size):
    """What an unmasked sum rests on is the fewest patients behind one of its cells, as the ledger says."""
    sites, options = DRAWN.sites(2), {"test_size": test_size, "n_bins": 2}
    masked = PhenotypeOutcome(KNOWN, **options).fit(federate(sites))

    def fit(least):
        federation = federate(sites, secure_sum=False, policy=mc.Policy(min_patients=least))
        return PhenotypeOutcome(KNOWN, **options).fit(federation), federation.ledgers

    unmasked, ledgers = fit(1)
    entries = [entry for ledger in ledgers.values() for entry in ledger.entries if entry["step"] in SUMS]
    fewest = min(field["records"] for entry in entries for field in entry["fields"])
    assert fewest >= 2
    assert fit(fewest)[0].coef_.tolist() == unmasked.coef_.tolist()
    np.testing.assert_allclose(unmasked.coef_, masked.coef_, rtol=0, atol=1e-6)
    assert unmasked.auc_ == masked.auc_
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        fit(fewest + 1)


def test_what_rounding_leaves_of_no_membership_is_nobody_s():
    everyone = simulate_planted(600, {"procedure": 30, "diagnosis": 50}, n_phenotypes=10, n_sites=1, random_state=3)
    factors, tensor = everyone.truth.factors, everyone.tensor
    raw = fit_memberships(
        SparseTensor(tensor.coordinates, tensor.counts, tensor.shape), list(factors.values()), np.ones((600, 10))
    )
    assert ((raw > 0) & (raw < 1e-12)).any()
    found = refit_memberships(tensor, tensor.codes, factors)
    assert found[found > 0].min() > 1e-9


def test_everyone_less_the_training_patients_counts_too():
    part = prepared(DRAWN.sites(3)["site-0"], test_size=0.2)
    held_out = part.memory.held_out
    for everyone in (True, False):
        assert part.sum_moments(PatientSubset(everyone)).patients <= held_out.sum() / 2


def test_an_area_of_a_sites_own_rests_on_the_rarer_outcome(fitted):
    part = prepared(DRAWN.sites(3)["site-0"], test_size=0.4)
    held_out = part.data.outcomes[part.memory.held_out]
    assert part.compute_site_auc(fitted._training_model).patients == min(held_out.sum(), (1 - held_out).sum())


def test_only_sums_leave_and_the_wire_holds_no_membership(fitted):
    ledgers = fitted.session.consortium.ledgers
    for ledger in ledgers.values():
        steps = {e["step"] for e in ledger.entries if any(f["records"] for f in e.get("fields", []))}
        assert steps <= {"sum_moments", "sum_derivatives", "count_scores", "compute_site_auc"}
        n_patients = 120
        assert all(n_patients not in field["shape"] for e in ledger.entries for field in e.get("fields", []))


def test_tables(fitted):
    frame = fitted.to_frame()
    assert frame.index.tolist() == [1, 2, 3]
    np.testing.assert_allclose(frame["odds_ratio"], np.exp(fitted.coef_))
    assert (frame["lower"] < frame["odds_ratio"]).all()
    assert frame.loc[1, "p_value"] < 0.001
    summary = fitted.phenotype_table().summary_frame()
    assert {"weight", "prevalence", "coefficient", "p_value"} <= set(summary.columns)
    assert summary.loc[1, "prevalence"] == pytest.approx(200 / 360)
    assert np.isnan(summary.loc[2, "prevalence"])
    (table,) = fitted.figures({}, {})
    assert len(table.rows) == 3


def test_assessment_on_held_out_patients(fitted):
    data = simulate_events(200, seed=5).tensor
    found = fitted.assess(data)
    assert set(found) == {"auc", "brier", "log_loss"} == set(fitted.metrics)
    assert found == fitted.assess(data, [str(one) for one in data.outcomes])
    chances = fitted.predict_proba(data)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert found["brier"] == pytest.approx(np.mean((chances[:, 1] - data.outcomes) ** 2))
    assert "auc" not in fitted.assess(data, ["0"] * 200)
    with pytest.raises(DataError, match="outcomes"):
        fitted.assess(with_outcomes(data, None))
    with pytest.raises(DataError, match="outcomes must be 0 or 1"):
        fitted.assess(data, ["died"] * 200)


def test_federated_pooled_and_site_alone_can_be_compared():
    sites = {name: SiteData(data) for name, data in DRAWN.sites(3).items()}
    found = compare(PhenotypeOutcome(KNOWN, test_size=0.0), sites)
    assert not found.notes
    assert found.federated["auc"] == pytest.approx(found.pooled["auc"], abs=1e-9)
    assert set(found.site_alone) == set(sites)
