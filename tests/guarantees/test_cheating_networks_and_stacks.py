"""A coordinator that makes a network, or a mixture's weights, up learns of no few patients in clear."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.federation.errors import ConfigurationError, IntegrityError, MessageError
from multicentre.federation.messages import Nothing
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.deep import FedDeepSurv
from multicentre.survival.deep import messages as deep
from multicentre.survival.deep.site import DeepSite
from multicentre.survival.models import CoxModel, Mixture
from multicentre.survival.models.packing import join, pack
from multicentre.survival.stack import FedStack
from multicentre.survival.stack import messages as stacked
from multicentre.survival.stack.site import StackSite

LEAST = 10
TIMES = np.linspace(100.0, 2000.0, 20)


def patients(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return mc.data.SurvivalData(
        rng.normal(size=(n, 3)), np.ceil(rng.exponential(700, n)), rng.uniform(size=n) < 0.6, unit="days"
    )


def agreed_by(part, times=TIMES, masked=False):
    data, d = part.data, len(part.data.columns)
    part.least_behind = LEAST
    part.agree(
        Agreed(data.columns, "days", 1, masked, float(len(data)), float(data.event.sum()), times, np.zeros(d),
               np.ones(d), np.zeros(0), np.zeros(d + 1, dtype=np.int64))
    )  # fmt: skip
    return part


def linear(*parameters):
    return deep.Proposal(np.zeros(0, dtype=np.int64), "none", np.array(parameters))


def effective(ratios):
    return ratios.sum() ** 2 / (ratios @ ratios)


@pytest.mark.parametrize("masked", [False, True])
def test_sums_at_risk_show_no_extreme_patient_in_clear(masked):
    data = patients()
    part = agreed_by(DeepSite("lyon", data), masked=masked)
    assert effective(np.exp(6.5 * data.X[:, 0])) < LEAST
    found = part.sum_risks(linear(6.5, 0.0, 0.0))
    assert not found.at_risk.any()
    assert not found.events.any()


def test_sums_of_mild_risks_rest_on_so_many_in_effect_in_every_bin():
    data = patients(400)
    found = agreed_by(DeepSite("lyon", data)).sum_risks(linear(0.8, 0.0, 0.0))
    told = np.flatnonzero(np.diff(found.at_risk, append=0.0))
    assert len(told) >= 3
    assert found.events.sum() == (data.event[data.time <= TIMES[-1]] == 1).sum()
    assert found.events[found.events > 0].min() >= LEAST
    assert found.patients >= LEAST


def test_one_network_has_a_baseline_in_a_fit():
    part = agreed_by(DeepSite("lyon", patients(400)))
    part.sum_risks(linear(0.8, 0.0, 0.0))
    part.sum_risks(linear(0.8, 0.0, 0.0))
    with pytest.raises(ConfigurationError, match="another ask"):
        part.sum_risks(linear(0.8, 0.1, 0.0))


def task(*parameters):
    return deep.Task(
        np.zeros(0, dtype=np.int64), "none", np.array(parameters), dropout=0.0, learning_rate=0.01, weight_decay=0.0,
        batch_size=256, n_epochs=1, proximal=0.0, seed=0, round_number=0,
    )  # fmt: skip


def judged(part, *parameters):
    return part.train(task(*parameters)).log_likelihood * part.agreed.n_events


def test_the_likelihood_shows_no_extreme_patient_in_clear():
    pytest.importorskip("torch", reason="torch is not installed (extra: deep)")
    X = np.array(patients(300).X)
    part = agreed_by(DeepSite("lyon", mc.data.SurvivalData(X, patients(300).time, patients(300).event, unit="days")))
    part.split(deep.Parts(0.5, 0))
    held_out = np.flatnonzero(part.state.held_out)
    largest = held_out[np.argmax(X[held_out, 0])]
    moved = np.array(X)
    moved[largest, 0] += 1.0
    other = agreed_by(DeepSite("lyon", mc.data.SurvivalData(moved, part.data.time, part.data.event, unit="days")))
    other.state = dataclasses.replace(part.state)
    assert judged(part, 6.5, 0.0, 0.0) == pytest.approx(judged(other, 6.5, 0.0, 0.0), rel=1e-12)
    part.masked = other.masked = True
    assert abs(judged(part, 6.5, 0.0, 0.0) - judged(other, 6.5, 0.0, 0.0)) > 1.0


@pytest.mark.parametrize(
    "proposal",
    [
        linear(1.0, 0.0),
        linear(1.0, 0.0, np.nan),
        linear(1.0, 0.0, 1e9),
        deep.Proposal(np.array([0]), "none", np.ones(3)),
    ],
    ids=["too few", "not a number", "too large", "no width"],
)
def test_networks_that_do_not_fit_are_refused(proposal):
    with pytest.raises(ConfigurationError):
        agreed_by(DeepSite("lyon", patients())).sum_risks(proposal)


def test_a_file_with_another_model_is_no_network(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed (extra: deep)")
    sites = {name: patients(60, seed) for seed, name in enumerate(("lyon", "oslo", "graz"))}
    with mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0)) as federation:
        model = FedDeepSurv((), norm="none", max_rounds=1, n_times=5).fit(federation)
    cox = CoxModel(model.times_, np.ones(3), np.zeros(3), model.times_)
    for change in (
        {"model": np.frombuffer(pack(cox), dtype=np.uint8)},
        {"model": np.zeros(5)},
        {"agreed": np.zeros(3)},
    ):
        check_refused(FedDeepSurv, model, change, tmp_path)


def check_refused(kind, model, change, folder):
    model.save(folder)
    with np.load(folder / "model.npz") as file:
        arrays = {**file, **change}
    np.savez(folder / "model.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(IntegrityError):
        kind.load(folder)


def flat(hazard=0.0):
    return CoxModel(TIMES, np.zeros(3), np.zeros(3), hazard * TIMES)


def test_weights_of_single_times_count_no_few_patients_in_a_stack():
    data = patients()
    part = agreed_by(StackSite("lyon", data))
    bins, happened = part._followed()
    for group in (bins[happened], bins):
        counts = np.bincount(group, minlength=21)[:20]
        assert counts[counts > 0].min() >= LEAST
    ends = part.count_ends(Nothing())
    np.testing.assert_array_equal(ends.events, np.bincount(bins[happened], minlength=21)[:20])


@pytest.mark.parametrize("agreed_masked", [False, True])
def test_a_stack_sees_single_patients_under_a_mask_only(agreed_masked):
    data = patients()
    moved = np.array(data.time)
    lone = np.flatnonzero((data.event == 1) & (moved > 420) & (moved < 480))[0]
    moved[lone] -= 100.0
    packed, lengths = join([flat()])
    ask = stacked.Candidates(packed, lengths, np.linspace(1.0, 0.2, 20), float(len(data)))

    def answer(times, masked):
        sites = StackSite("lyon", mc.data.SurvivalData(data.X, times, data.event, unit="days"))
        part = agreed_by(sites, masked=agreed_masked)
        part.masked = masked
        return part.sum_errors(ask)

    near, far = answer(data.time, True), answer(moved, True)
    assert near.products[0, 0] != far.products[0, 0]
    bins = agreed_by(StackSite("lyon", data), masked=agreed_masked)._followed()[0]
    assert np.bincount(bins)[np.bincount(bins) > 0].min() >= LEAST


def test_a_stack_is_asked_on_a_coarse_grid_for_patients_that_are_there():
    packed, lengths = join([flat()])
    part = agreed_by(StackSite("lyon", patients()))
    for wrong in ({"staying": np.full(20, np.nan)}, {"n_patients": np.nan}, {"lengths": lengths + 1}):
        with pytest.raises((MessageError, ConfigurationError)):
            part.sum_errors(dataclasses.replace(stacked.Candidates(packed, lengths, np.ones(20), 200.0), **wrong))
    fine = np.linspace(1.0, 2000.0, 300)
    packed, lengths = join([CoxModel(fine, np.zeros(3), np.zeros(3), fine / 1000)])
    with pytest.raises(ConfigurationError, match="too fine"):
        agreed_by(StackSite("lyon", patients()), fine).sum_errors(
            stacked.Candidates(packed, lengths, np.ones(300), 200.0)
        )


def test_a_stack_whose_file_was_tampered_with_is_refused(tmp_path):
    stack = FedStack(weights=[0.25, 0.75])
    part = agreed_by(StackSite("lyon", patients()))
    stack.agreed_ = Agreed(**{name: getattr(part.agreed, name) for name in Agreed.declarations()})
    stack.weights_, stack.brier_, stack.history_ = np.array([0.25, 0.75]), np.zeros(0), []
    stack.privacy_ = None
    stack.model_ = Mixture.of([flat(0.001), flat(0.002)], stack.weights_, 3)
    stack.save(tmp_path)
    assert FedStack.load(tmp_path).weights_.tolist() == [0.25, 0.75]
    cox = np.frombuffer(pack(flat(0.001)), dtype=np.uint8)
    for change in ({"weights": np.array([0.5, 0.6])}, {"weights": np.ones(5)}, {"brier": np.ones(7)},
                   {"weights": None}, {"model": cox}):  # fmt: skip
        check_refused(FedStack, stack, change, tmp_path)
