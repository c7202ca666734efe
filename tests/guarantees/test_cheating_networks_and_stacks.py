"""A coordinator that makes up a network or a mixture's weights learns of no few patients unmasked."""

import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.data.missing.values import MissingValues
from multicentre.data.records import fewest_told_apart
from multicentre.errors import ConfigurationError, IntegrityError, MessageError
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.fitted_models import CoxModel, Mixture
from multicentre.survival.fitted_models.base import join, pack
from multicentre.survival.stack import FedStack
from multicentre.survival.stack import site as stacked
from multicentre.survival.stack.site import StackSite
from multicentre.survival.surv_boost import messages as boosting
from multicentre.survival.surv_boost.site import BoostSite
from multicentre_papers.baselines.deep_surv import FedDeepSurv
from multicentre_papers.baselines.deep_surv import site as deep
from multicentre_papers.baselines.deep_surv.site import DeepSite
from support.saved_models import store

LEAST = 10
TIMES = np.linspace(100.0, 2000.0, 20)


def patients(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return mc.data.SurvivalData(
        rng.normal(size=(n, 3)), np.ceil(rng.exponential(700, n)), rng.uniform(size=n) < 0.6, unit="days"
    )


def agreed_by(part, times=TIMES):
    data, d = part.data, len(part.data.columns)
    part.least_behind = LEAST
    part.agree(
        Prepared(data.columns, "days", 1, float(len(data)), float(data.event.sum()), times, np.zeros(d),
               np.ones(d), np.zeros(0), np.zeros(d + 1, dtype=np.int64))
    )  # fmt: skip
    return part


def linear(*parameters):
    return deep.Proposal(np.zeros(0, dtype=np.int64), "none", np.array(parameters))


def grouped(n_each=20, seed=0):
    """Return patients of whom so many have the event at each time of the grid, and as many do not."""
    n = 2 * n_each * len(TIMES)
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return mc.data.SurvivalData(X, np.repeat(TIMES, 2 * n_each), np.arange(n) % 2, unit="days")


def test_sums_at_risk_rest_on_one_patient_where_one_outweighs_the_others():
    assert agreed_by(DeepSite("lyon", grouped())).sum_risks(linear(0.0, 0.0, 0.0)).patients == 20
    assert agreed_by(DeepSite("lyon", grouped())).sum_risks(linear(6.5, 0.0, 0.0)).patients < 5
    part = agreed_by(DeepSite("lyon", grouped()))
    part.masked = True
    assert part.sum_risks(linear(6.5, 0.0, 0.0)).patients == 800


@pytest.mark.parametrize("n_each", [4, 5])
def test_sums_at_risk_rest_on_the_bin_with_the_fewest(n_each):
    """Of ten patients who leave in a bin, five have the event: both are cells."""
    assert agreed_by(DeepSite("lyon", grouped(n_each))).sum_risks(linear(0.0, 0.0, 0.0)).patients == n_each


def test_one_network_has_a_baseline_in_a_fit():
    part = agreed_by(DeepSite("lyon", patients(400)))
    part.sum_risks(linear(0.8, 0.0, 0.0))
    part.sum_risks(linear(0.8, 0.0, 0.0))
    with pytest.raises(ConfigurationError, match="must be identical"):
        part.sum_risks(linear(0.8, 0.1, 0.0))


def task(*parameters):
    return deep.Task(
        np.zeros(0, dtype=np.int64), "none", np.array(parameters), dropout=0.0, learning_rate=0.01, weight_decay=0.0,
        batch_size=256, n_epochs=1, proximal=0.0, seed=0, round_number=0,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.0, 6.5])
def test_an_unmasked_update_of_a_network_counts_one_patient(slope):
    """A unit that responds to one patient alone has that patient's row as its update, whatever the other units are."""
    pytest.importorskip("torch", reason="torch is not installed (extra: deep)")
    part = agreed_by(DeepSite("lyon", patients(300)))
    part.split(deep.Parts(0.5, 0))
    assert part.train(task(slope, 0.0, 0.0)).patients == 1
    part.masked = True
    assert part.train(task(slope, 0.0, 0.0)).patients == 300


@pytest.mark.parametrize(
    "proposal",
    [
        linear(1.0, 0.0),
        linear(1.0, 0.0, np.nan),
        linear(1.0, 0.0, 1e9),
        deep.Proposal(np.array([0]), "none", np.ones(3)),
    ],
    ids=["too few", "not a number", "must be new and for 1 to", "no width"],
)
def test_networks_that_do_not_fit_are_refused(proposal):
    with pytest.raises(ConfigurationError):
        agreed_by(DeepSite("lyon", patients())).sum_risks(proposal)


@pytest.mark.slow
def test_a_file_with_another_model_is_no_network(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed (extra: deep)")
    sites = {name: patients(60, seed) for seed, name in enumerate(("lyon", "oslo", "graz"))}
    with mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0)) as federation:
        model = FedDeepSurv((), norm="none", max_iter=1, n_times=5).fit(federation)
    cox = CoxModel(model.times_, np.ones(3), np.zeros(3), model.times_)
    for change in (
        {"model_": np.frombuffer(pack(cox), dtype=np.uint8)},
        {"model_": np.zeros(5)},
        {"agreed_.times": np.zeros(3)},
    ):
        check_refused(FedDeepSurv, model, change, tmp_path)


def check_refused(kind, model, change, folder):
    model.save(folder)
    with np.load(folder / "model.npz") as file:
        arrays = {**file, **change}
    store(folder, {name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(IntegrityError):
        kind.load(folder)


def flat(hazard=0.0):
    return CoxModel(TIMES, np.zeros(3), np.zeros(3), hazard * TIMES)


@pytest.mark.parametrize("n_each", [9, 10])
def test_weights_of_single_times_rest_on_the_patients_of_a_time(n_each):
    packed, lengths = join([flat()])
    data = grouped(n_each)
    part = agreed_by(StackSite("lyon", data))
    request = stacked.Candidates(packed, lengths, np.linspace(1.0, 0.2, 20), float(len(data)))
    assert part.count_ends(Nothing()).patients == part.sum_errors(request).patients == n_each
    part.masked = True
    assert part.sum_errors(request).patients == len(data)


def apart(data):
    """Return a made-up Cox model under which nobody has an event but the patient of the largest x0, who has."""
    first, second = np.sort(data.X[:, 0])[:-3:-1]
    slope = np.array([120 / (first - second), 0.0, 0.0])
    return CoxModel(TIMES, slope, np.array([(first + second) / 2, 0.0, 0.0]), 0.001 * TIMES)


def usual(slope=0.5):
    return CoxModel(TIMES, np.array([0.0, slope, 0.5]), np.zeros(3), 0.001 * TIMES)


def test_models_of_a_stack_that_tell_one_patient_apart_count_one_patient():
    """Their products with the outcomes are one patient's curve; so is the difference of two models."""
    data = grouped(10)
    for models, alone in (([usual(), usual(0.7)], False), ([usual(), apart(data)], True)):
        packed, lengths = join(models)
        part = agreed_by(StackSite("lyon", data))
        request = stacked.Candidates(packed, lengths, np.linspace(1.0, 0.2, 20), float(len(data)))
        assert (part.sum_errors(request).patients == 1) == alone
        part.masked = True
        assert part.sum_errors(request).patients == len(data)


def test_predictions_that_differ_for_one_patient_are_told_apart_by_their_difference():
    one = np.random.default_rng(0).normal(size=100)
    other = one + np.where(np.arange(100) == 3, 0.5, 0.0)
    assert fewest_told_apart(np.column_stack([one, other])) > LEAST
    assert fewest_told_apart(np.column_stack([one, other]), in_pairs=True) == 1


def test_losses_of_made_up_models_count_one_patient():
    data = grouped(10)
    for models, alone in (([usual(), usual(0.7)], False), ([usual(), apart(data)], True)):
        packed, lengths = join(models)
        part = agreed_by(BoostSite("lyon", data))
        part.begin(boosting.Begin(0, 0, 0, "brier", np.linspace(1.0, 0.2, 20)))
        request = boosting.Hypotheses(0.0, float("inf"), packed, lengths, np.eye(2))
        assert (part.judge(request).patients == 1) == alone
        part.masked = True
        assert part.judge(request).patients == len(data)


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
    stack.agreed_ = Prepared(**{name: getattr(part.agreed, name) for name in Prepared.declarations()})
    stack.weights_, stack.brier_, stack.history_ = np.array([0.25, 0.75]), np.zeros(0), []
    stack.privacy_, stack.missing_values_ = None, MissingValues("mean", (), (), 0, 0)
    stack.model_ = Mixture.of([flat(0.001), flat(0.002)], stack.weights_, 3)
    stack.save(tmp_path)
    assert FedStack.load(tmp_path).weights_.tolist() == [0.25, 0.75]
    cox = np.frombuffer(pack(flat(0.001)), dtype=np.uint8)
    for change in ({"weights_": np.array([0.5, 0.6])}, {"weights_": np.ones(5)}, {"brier_": np.ones(7)},
                   {"weights_": None}, {"model_": cox}):  # fmt: skip
        check_refused(FedStack, stack, change, tmp_path)
