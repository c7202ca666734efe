"""The private fit: one patient's reach, what is read from noise, and what alone leaves a site."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, NoiseWarning, RefusedByPolicy
from multicentre.estimator.base import FederatedEstimator
from multicentre.multiview.ppca.maths import private
from multicentre.multiview.ppca.maths.gauge import sum_variances
from multicentre.multiview.ppca.maths.model import Layout, Parameters
from multicentre.multiview.ppca.maths.moments import reduce_rows
from multicentre.multiview.ppca.private import plan_noise
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.statistics.symmetric import pack_symmetric, unpack_symmetric
from support.examples import examples
from support.noise import seed_noise
from support.ppca_federations import SIZES, federate, law, small_sites
from support.ppca_private import FedMvPPCA, fit_privately, small_reference

# --- one patient's reach ------------------------------------------------------------------------------------------

entries = st.one_of(
    st.floats(-10, 10),
    st.floats(-1e300, 1e300),
    st.sampled_from([0.0, -0.0, 1e-308, 5e-324, 1e6, -1e6, 1e300, 1.7e308]),
)
widths = st.integers(1, 6)


@st.composite
def neighbours(draw):
    """Two data sets, the second with one row more, and what clips them; rows are repeated, scaled and set to zero."""
    d = draw(widths)
    rows = draw(hnp.arrays(np.float64, (draw(st.integers(0, 6)), d), elements=entries))
    one = draw(hnp.arrays(np.float64, (1, d), elements=entries))
    if draw(st.booleans()):
        one = np.clip(one, -1e300, 1e300) * draw(st.sampled_from([0.0, 1e-6, 1e6]))
    rows = np.concatenate([rows, np.repeat(one, draw(st.integers(0, 3)), axis=0)])
    place = draw(st.integers(0, len(rows)))
    radius = draw(st.sampled_from([1e-3, 0.5, 1.0, 8.0, 1e4]))
    return rows, np.insert(rows, place, one[0], axis=0), private.Clipping(radius, d)


def reach(fewer, more, clipping, clip=private.clip_rows):
    """How far one row moves what leaves."""
    one = private.sum_outer_products([more], clipping, clip) if len(more) else 0.0
    return np.linalg.norm(one - private.sum_outer_products([fewer], clipping, clip))


@given(neighbours())
@examples(300)
def test_no_patient_moves_the_release_by_more_than_its_sensitivity(pair):
    assert reach(*pair) <= 1.0


def far(d=5, length=1e6):
    return np.full((1, d), length)


@pytest.mark.parametrize("d", [1, 5, 40])
def test_a_patient_who_is_clipped_moves_it_by_nearly_as_much(d):
    assert 0.9 < reach(np.zeros((0, d)), far(d), private.Clipping(8.0, d)) <= 1.0


def unclipped(rows, radius):
    return rows


def clipped_by_column(rows, radius):
    return np.clip(rows, -radius, radius)


@pytest.mark.parametrize("broken", [unclipped, clipped_by_column])
def test_the_sensitivity_holds_because_of_the_clip(broken):
    assert reach(np.zeros((0, 5)), far(), private.Clipping(8.0, 5), broken) > 1.5


@given(hnp.arrays(np.float64, (5, 3), elements=st.floats(-100, 100)), st.floats(0.01, 50))
def test_clipping_shortens_and_does_not_turn(rows, radius):
    short = private.clip_rows(rows, radius)
    length, before = np.linalg.norm(short, axis=1), np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(length, np.minimum(before, radius), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(short * before[:, None], rows * length[:, None], rtol=1e-9, atol=1e-9)


def test_sums_are_exact_whatever_the_order_and_the_blocks():
    rows = np.random.default_rng(0).standard_normal((999, 4)) * 5
    clipping = private.Clipping(6.0, 4)
    whole = private.sum_outer_products([rows], clipping)
    assert whole.tobytes() == private.sum_outer_products([rows[500:][::-1], rows[:500]], clipping).tobytes()


def test_up_to_the_most_patients_a_site_may_have_the_sums_stay_exact():
    assert private.GRID**2 * 2.0**22 < 2.0**53


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_packing_keeps_the_norm_so_noise_on_the_packed_values_is_symmetric_noise(side, seed):
    packed = np.random.default_rng(seed).standard_normal(side * (side + 1) // 2)
    matrix = unpack_symmetric(packed)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert np.linalg.norm(matrix) == pytest.approx(np.linalg.norm(packed), rel=1e-12)
    np.testing.assert_allclose(pack_symmetric(matrix), packed, rtol=1e-12)


# --- what is read from the release --------------------------------------------------------------------------------


def test_patients_mean_and_covariance_are_read_back():
    rows = np.random.default_rng(1).standard_normal((400, 3)) + np.array([1.0, 0.0, -1.0])
    clipping = private.Clipping(12.0, 3)
    read = private.read_moments(private.sum_outer_products([rows], clipping), clipping, 0.0)
    assert read.n == pytest.approx(400, rel=1e-12)
    np.testing.assert_allclose(read.mean, rows.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(read.covariance, np.cov(rows.T, ddof=0), atol=1e-3)
    np.testing.assert_allclose(read.possible_covariance, read.covariance, atol=1e-12)


def test_noise_reaches_the_covariance_as_it_says():
    rows, clipping = np.zeros((500, 8)), private.Clipping(4.0, 8)
    clean, rng = private.sum_outer_products([rows], clipping), np.random.default_rng(2)
    reads = [private.read_moments(clean + 3.0 * rng.standard_normal(len(clean)), clipping, 3.0) for _ in range(300)]
    covariances = np.stack([read.covariance for read in reads])
    diagonal = np.diagonal(covariances, axis1=1, axis2=2)
    error = np.mean([read.error for read in reads])
    assert diagonal.std() == pytest.approx(error, rel=0.1)
    assert covariances[:, 0, 1:].std() == pytest.approx(error / np.sqrt(2), rel=0.1)


def test_what_noise_made_impossible_is_drawn_back():
    clipping = private.Clipping(4.0, 6)
    packed = 50 * np.random.default_rng(3).standard_normal(28)
    packed[-1] = -50.0
    read = private.read_moments(packed, clipping, 50.0)
    values = np.linalg.eigvalsh(read.possible_covariance)
    assert read.n == 1.0
    assert np.linalg.norm(read.mean) <= 4.0 * (1 + 1e-9)
    assert values.min() > 0
    assert values.sum() <= 16.0 * (1 + 1e-9)


@given(
    hnp.arrays(np.float64, st.integers(1, 6), elements=st.floats(-5, 5)),
    st.floats(0, 1),
    st.floats(0, 20),
    st.integers(0, 2**32 - 1),
)
def test_no_allowed_eigenvalues_are_nearer(values, floor, total, seed):
    d = len(values)
    found = private.project_eigenvalues(values, floor, total)
    target = max(total, d * floor)
    assert found.min() >= floor
    assert found.sum() == pytest.approx(target, abs=1e-9)
    others = floor + (target - d * floor) * np.random.default_rng(seed).dirichlet(np.ones(d), size=20)
    assert np.linalg.norm(found - values) <= np.linalg.norm(others - values, axis=1).min() + 1e-9


@pytest.mark.parametrize("strength", [0.5, 2.0, 4.0])
def test_the_expected_angle_is_that_of_a_spike_in_symmetric_noise(strength):
    d, rng = 300, np.random.default_rng(4)
    noise = rng.standard_normal((d, d)) / np.sqrt(d)
    noise = (noise + noise.T) / np.sqrt(2)
    spike = np.eye(d)[0]
    covariance = strength * np.outer(spike, spike) + 0.3 * np.eye(d) + noise
    moments = private.NoisedMoments(1000.0, np.zeros(d), covariance, np.sqrt(2.0 / d), 1.0)
    leading = np.linalg.eigh(covariance)[1][:, -1]
    found = np.degrees(np.arccos(abs(leading[0])))
    expected = moments.expected_angle(1)
    assert expected == pytest.approx(found, abs=5.0) if strength > 1 else min(expected, found) > 60.0


def test_variances_from_moments_are_those_from_rows():
    rng, layout = np.random.default_rng(5), Layout(("a", "b"), (3, 2))
    rows = rng.standard_normal((50, 5)) @ rng.standard_normal((5, 5)) + 1.0
    fitted = Parameters(rng.standard_normal((5, 2)), rng.standard_normal(5), rng.uniform(0.5, 1, 5))
    found = private.sum_moment_variances(reduce_rows(rows, layout)[0].moments, fitted, layout)
    expected = sum_variances(rows, fitted, layout)
    for name in ("total", "after_axis", "after_all", "counts"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)


# --- the fit ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    with pytest.MonkeyPatch.context() as patch:
        seed_noise(patch)
        return fit_privately(options={"secure_sum": True})


def test_it_is_a_fitted_model_like_any_other(model, tmp_path):
    data = small_sites()["site-0"]
    assert model.transform(data).shape == (40, 2)
    assert model.impute(data.drop(["image"]), "image").mean.shape == (40, 5)
    assert np.isfinite(model.assess(data)["mae"])
    assert {entry["phase"] for entry in model.history_} == {0.0}
    assert model.converged_
    assert model.n_patients_ == pytest.approx(120, abs=30)
    assert 0 <= model.noise_angle_ <= 90
    assert all(shares.shape == (2,) for shares in model.explained_variance_ratio_.values())
    assert model.privacy_.epsilon == pytest.approx(20.0, rel=1e-6)
    model.save(tmp_path)
    again = FederatedEstimator.load(tmp_path)
    np.testing.assert_array_equal(again.transform(data), model.transform(data))
    assert (again.noise_angle_, again.training_, again.n_patients_) == (
        model.noise_angle_,
        model.training_,
        model.n_patients_,
    )


def test_two_fits_differ_though_their_random_state_is_the_same():
    one, other = (fit_privately(options={"secure_sum": True}) for _ in range(2))
    assert np.abs(law(one) - law(other)).max() > 1e-6


@pytest.mark.parametrize("secure_sum", [False, True], ids=["unmasked", "masked"])
def test_names_and_one_noised_sum_are_all_that_leaves(secure_sum):
    federation = federate(small_sites(), secure_sum=secure_sum)
    FedMvPPCA(2, epsilon=50.0, reference=small_reference()).fit(federation)
    for ledger in federation.ledgers.values():
        steps = [entry["step"] for entry in ledger.entries if entry["event"] == "release" and _rests_on_patients(entry)]
        assert steps == ["describe", "sum_outer_products"]
        noised = [entry for entry in ledger.entries if entry.get("epsilon") is not None]
        assert [entry["step"] for entry in noised] == ["sum_outer_products"]
        assert [field["field"] for field in noised[0]["fields"]] == ["products"]
    assert federation.traffic.calls["sum_outer_products"] == 1


def _rests_on_patients(entry):
    return any(field["records"] is not None for field in entry["fields"])


def test_the_noise_is_what_epsilon_and_delta_ask_for():
    (planned,) = plan_noise(2.0, 1e-6).releases
    assert planned.noise.multipliers == {"products": pytest.approx(1 / np.sqrt(2 * rho_of_epsilon(2.0, 1e-6)))}
    assert planned.times == 1
    assert FedMvPPCA().privacy_plan() is None


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 20.0])
def test_a_budget_of_just_epsilon_suffices(epsilon, tmp_path):
    just, less = (mc.Policy(epsilon=share * epsilon, account=str(tmp_path / f"{share}.jsonl")) for share in (1, 0.99))
    model = fit_privately(epsilon=epsilon, options={"policy": just})
    assert 0.999 * epsilon < model.privacy_.epsilon <= epsilon
    with pytest.raises(RefusedByPolicy):
        fit_privately(epsilon=epsilon, options={"policy": less})


def test_a_run_taken_up_again_asks_and_spends_nothing(tmp_path):
    policy = mc.Policy(epsilon=25.0, account=str(tmp_path / "account"))
    first = fit_privately(options={"folder": tmp_path / "run", "policy": policy})
    again = fit_privately(options={"folder": tmp_path / "run", "policy": policy})
    assert law(again).tobytes() == law(first).tobytes()
    assert "sum_outer_products" not in again.session.traffic.calls
    with pytest.raises(RefusedByPolicy):
        fit_privately(options={"folder": tmp_path / "another", "policy": policy})


@pytest.mark.parametrize("secure_sum", [False, True], ids=["unmasked", "masked"])
def test_an_interruption_before_the_sum_is_made_good(secure_sum, tmp_path):
    options = {"folder": tmp_path, "secure_sum": secure_sum}
    with pytest.raises(KeyboardInterrupt):
        fit_privately(options={**options, "faults": Faults(interrupt_at=2)})
    assert np.isfinite(law(fit_privately(options=options))).all()


def lacking(view, *, rows=slice(None)):
    sites = small_sites()
    views = {name: sites["site-1"].array(name).copy() for name in SIZES}
    views[view][rows] = np.nan
    sites["site-1"] = MultiViewData(views)
    return sites


@pytest.mark.parametrize(
    "sites",
    [small_sites(lacking={1: "genes"}), lacking("genes", rows=slice(3, 4)), small_sites(hidden=0.1)],
    ids=["view", "patient's view", "entries"],
)
def test_a_site_with_anything_missing_refuses_before_the_sum(sites):
    federation = federate(sites)
    with pytest.raises(DataError, match=r"site-.*view '\w+'.*missing entries.*differential privacy"):
        FedMvPPCA(2, epsilon=5.0, reference=small_reference()).fit(federation)
    assert "sum_outer_products" not in federation.traffic.calls


@pytest.mark.usefixtures("seeded_noise")
def test_noise_that_drowns_the_patients_is_warned_of_and_ends_in_numbers():
    for _ in range(5):
        with pytest.warns(NoiseWarning, match="weakest of 2 latent dimensions"):
            model = FedMvPPCA(2, epsilon=0.05, reference=small_reference()).fit(federate(small_sites()))
        assert np.isfinite(law(model)).all()
        assert all(np.all(noise > 0) for noise in model.noise_variance_.values())
        assert model.noise_angle_ > 10


@pytest.mark.slow
@pytest.mark.usefixtures("seeded_noise")
def test_one_noise_for_all_sites_is_smaller_than_one_a_site():
    angles = {
        secure: np.mean([fit_privately(epsilon=50.0, options={"secure_sum": secure}).noise_angle_ for _ in range(5)])
        for secure in (False, True)
    }
    assert angles[True] < angles[False]


def test_errors_over_sites_are_refused(model):
    with pytest.raises(ConfigurationError, match="got a private fit"):
        model.evaluate(federate(small_sites()))


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"reference": None}, "reference"),
        ({"reference": {}}, "reference"),
        ({"reference": [1.0]}, "reference"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"clip": 0.0}, "clip"),
        ({"clip": float("nan")}, "clip"),
        ({"epsilon": None}, "reference"),
        ({"epsilon": None, "reference": None, "clip": 3.0}, "clip"),
        ({"method": "hierarchical"}, "method"),
        ({"waic": True}, "waic"),
        ({"n_components": [1, 2]}, "n_components"),
    ],
    ids=str,
)
def test_parameters_that_make_no_private_fit_are_named(parameters, where):
    federation = federate(small_sites())
    given = {"epsilon": 1.0, "reference": small_reference(), **parameters}
    with pytest.raises(ConfigurationError) as caught:
        FedMvPPCA(**{"n_components": 2, **given}).fit(federation)
    assert caught.value.where == where
    assert federation.traffic.calls == {}


def changed(view="blood", **values):
    reference = small_reference()
    reference[view] = {**reference[view], **values}
    return reference


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (changed(spread=[0.0] * 6), "above 0"),
        (changed(spread=[-1.0] * 6), "above 0"),
        (changed(centre=[float("nan")] * 6), "must be finite"),
        (changed(centre=["1"] * 6), "list of numbers"),
        (changed(centre=np.ones(6)), "tolist"),
        (changed(scale=[1.0] * 6), "centre and spread"),
        ({**small_reference(), "blood": {"centre": [1.0] * 6}}, "centre and spread"),
        (changed(centre=[1.0] * 5), "centre must hold 6 numbers, one per column; got 5"),
        ({**small_reference(), "urine": {"centre": [0.0], "spread": [1.0]}}, "urine"),
        (
            {view: known for view, known in small_reference().items() if view != "blood"},
            "must have the views of the sites",
        ),
    ],
)
def test_a_reference_that_does_not_fit_is_told_what_is_wrong(reference, told):
    federation = federate(small_sites())
    with pytest.raises(ConfigurationError, match=told):
        FedMvPPCA(2, epsilon=1.0, reference=reference).fit(federation)
    assert "sum_outer_products" not in federation.traffic.calls


def test_parameters_travel_as_json():
    model = FedMvPPCA(2, epsilon=1.0, reference=small_reference())
    assert json.loads(json.dumps(model.get_params()))["reference"] == small_reference()
