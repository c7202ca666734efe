"""FedStack: the weights of pooled patients, what it does with hard cases, and what a site lets out."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.data.concatenate import concatenate
from multicentre.data.missing.values import MissingValues
from multicentre.errors import ConfigurationError, DisclosureRefused, MessageError, SchemaMismatch
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.estimator import SurvivalEstimator
from multicentre.survival.fitted_models import CoxModel, Mixture
from multicentre.survival.fitted_models.base import join
from multicentre.survival.scores.brier import Censoring
from multicentre.survival.stack import FedStack, split_held_out
from multicentre.survival.stack.maths import minimise_on_simplex
from multicentre.survival.stack.site import Candidates, StackSite
from multicentre.survival.times import to_bins

OPEN = mc.Policy(min_patients=0)
TIMES = np.array([1.0, 2.0, 4.0, 8.0])


class Fitted(SurvivalEstimator):
    """A model that needs no sites."""

    site_part = StackSite

    def __init__(self, slopes=(0.0, 0.0), times=None, columns=("x0", "x1"), unit="months", cause=1):
        self.slopes, self.times, self.columns, self.unit, self.cause = slopes, times, columns, unit, cause
        d, times = len(columns), TIMES if times is None else np.array(times)
        self.model_ = CoxModel(times, np.asarray(slopes, dtype=float), np.zeros(d), 0.12 * times)
        self.agreed_ = Prepared(
            columns, unit, cause, 300.0, 200.0, times, np.zeros(d), np.ones(d), np.zeros(0),
            np.zeros(d + 1, dtype=np.int64),
        )  # fmt: skip
        self.missing_values_ = MissingValues("mean", columns, (0,) * d, 300, 0)

    def _fit(self, federation):
        raise NotImplementedError


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    time = rng.exponential(8.0 * np.exp(-X[:, 0]))
    censored = rng.uniform(0, 14, n)
    return mc.data.SurvivalData(X, np.minimum(time, censored), time <= censored, unit="months")


SITES = {"lyon": simulate(90, 1), "nice": simulate(40, 2), "lille": simulate(130, 3)}
ESTIMATORS = [Fitted((1.6, 0.0)), Fitted((0.0, 0.0)), Fitted((0.5, 0.9))]


def stack(estimators=None, sites=None, *, weights="brier", shrinkage=0.0, **options):
    chosen = ESTIMATORS if estimators is None else estimators
    with mc.Federation.in_process(SITES if sites is None else sites, **{"policy": OPEN, **options}) as federation:
        return FedStack(chosen, weights=weights, shrinkage=shrinkage).fit(federation)


def pooled():
    X, time = (np.concatenate([getattr(d, name) for d in SITES.values()]) for name in ("X", "time"))
    return X, time, np.concatenate([d.event for d in SITES.values()]) == 1


def score_by_hand(curves):
    """The integrated Brier score over pooled patients, one patient and one time after the other."""
    _, time, event = pooled()
    bins = to_bins(time, TIMES)
    happened = event & (bins < 4)
    censoring = Censoring.estimate(bins.astype(float), happened)
    widths, total = np.diff(TIMES, prepend=0.0) / TIMES[-1], 0.0
    for i in range(len(time)):
        for k in range(4):
            if bins[i] > k:
                chance, outcome = censoring.at(np.array([float(k)]))[0], 1.0
            elif happened[i]:
                chance, outcome = censoring.at(np.array([bins[i] - 1.0]))[0] if bins[i] else 1.0, 0.0
            else:
                continue
            total += widths[k] * min(1 / chance, 10.0) * (curves[i, k] - outcome) ** 2
    return total / len(time)


@pytest.fixture(scope="module")
def fitted():
    return stack()


def test_the_scores_are_those_of_pooled_patients(fitted):
    X, *_ = pooled()
    curves = [each.model_.survival(X) for each in ESTIMATORS] + [fitted.model_.survival(X)]
    np.testing.assert_allclose(fitted.brier_, [score_by_hand(each) for each in curves], rtol=1e-10)


MEMBERS = [
    mc.survival.FedCox("grid", alpha=1.0),
    mc.survival.FedCox("grid", alpha=1e5),
    mc.survival.FedRSF(5, min_samples_leaf=20),
]
FOLDS = mc.validation.HashGroupKFold(3)
NAMED = {site: data.with_identifier([f"{site}-{row}" for row in range(len(data))]) for site, data in SITES.items()}


def cross_validated(sites=NAMED, members=MEMBERS, *, shrinkage=0.0, **options):
    with mc.Federation.in_process(sites, **{"policy": OPEN, **options}) as federation:
        return FedStack(members, weights="brier", cv=FOLDS, shrinkage=shrinkage).fit(federation)


@pytest.fixture(scope="module")
def chosen():
    return cross_validated(secure_sum=True)


def test_members_are_chosen_by_the_score_of_folds_that_their_fits_did_not_use(chosen):
    """The coefficients are the mean, by patients, of those of every fold under fits without it."""
    forms, n_patients = [], []
    with mc.Federation.in_process(NAMED, policy=OPEN) as federation:
        for training, held_out in FOLDS.plan(federation):
            fits = [type(one)(**one.get_params()).fit(training) for one in MEMBERS]
            forms.append(FedStack(fits, weights="brier", shrinkage=0.0).fit(held_out)._form)
            n_patients.append(forms[-1].n_patients)
        fits = [type(one)(**one.get_params()).fit(federation) for one in MEMBERS]
    assert sum(n_patients) == sum(map(len, NAMED.values()))
    products = np.average([form.products for form in forms], axis=0, weights=n_patients)
    targets = np.average([form.targets for form in forms], axis=0, weights=n_patients)
    np.testing.assert_allclose(chosen.weights_, minimise_on_simplex(products, targets), atol=1e-6)
    by_fold = [np.average([form.score(row) for form in forms], weights=n_patients) for row in np.eye(3)]
    np.testing.assert_allclose(chosen.brier_[:-1], by_fold, rtol=1e-6)
    assert chosen.brier_[-1] <= chosen.brier_[:-1].min() + 1e-9
    X, *_ = pooled()
    used = [(weight, one) for weight, one in zip(chosen.weights_, fits, strict=True) if weight > 0]
    with mc.Federation.in_process(NAMED, policy=OPEN) as federation:
        mean = FedStack([one for _, one in used], weights=[weight for weight, _ in used]).fit(federation)
    np.testing.assert_allclose(chosen.model_.survival(X), mean.model_.survival(X), atol=1e-6)


def test_a_poor_member_is_left_out(chosen):
    assert chosen.weights_[1] == 0
    assert len(chosen.model_.components) == (chosen.weights_ > 0).sum() < 3


def test_the_choice_does_not_depend_on_the_split_over_sites(chosen):
    everyone = concatenate(NAMED)
    order = np.argsort(everyone.time)
    by_time = {f"site-{k}": everyone.take(rows) for k, rows in enumerate(np.array_split(order, 4))}
    np.testing.assert_allclose(cross_validated(by_time).weights_, chosen.weights_, atol=1e-5)


def test_a_cross_validated_stack_is_saved_without_its_members(chosen, tmp_path):
    chosen.save(tmp_path)
    again = FedStack.load(tmp_path)
    X, *_ = pooled()
    assert np.array_equal(again.predict(X), chosen.predict(X))
    assert again.cv is None


@pytest.mark.parametrize(
    ("members", "weights", "message"),
    [
        ([mc.survival.FedCox(), ESTIMATORS[0]], "brier", "not fitted; got a fitted Fitted"),
        (["FedCox"], "brier", "not fitted; got str"),
        ([], "brier", "1 to 32"),
        (MEMBERS, "equal", "must be 'brier' with cv"),
    ],
)
def test_fitted_members_are_refused_with_folds(members, weights, message):
    """A fitted model has seen the records of every fold, so its score would be too good."""
    with mc.Federation.in_process(NAMED, policy=OPEN) as federation, pytest.raises(ConfigurationError, match=message):
        FedStack(members, weights=weights, cv=FOLDS).fit(federation)


@pytest.mark.slow
def test_the_weights_are_scipys_for_pooled_patients(fitted):
    X, *_ = pooled()
    curves = [each.model_.survival(X) for each in ESTIMATORS]
    found = minimize(
        lambda w: score_by_hand(sum(share * curve for share, curve in zip(w, curves, strict=True))),
        np.full(3, 1 / 3), method="SLSQP", bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, options={"ftol": 1e-12},
    )  # fmt: skip
    np.testing.assert_allclose(fitted.weights_, found.x, atol=1e-4)
    assert fitted.brier_[-1] <= found.fun + 1e-10


def test_no_single_model_is_better(fitted):
    assert fitted.brier_[-1] <= fitted.brier_[:-1].min() + 1e-12
    assert (fitted.weights_ > 0.05).sum() >= 2


@pytest.mark.parametrize("options", [{"secure_sum": True}, {"strict": True}])
def test_masks_and_the_wire_change_nothing(fitted, options):
    np.testing.assert_allclose(stack(**options).weights_, fitted.weights_, atol=1e-9)


def test_the_split_over_sites_changes_nothing(fitted):
    X, time, event = pooled()
    order = np.random.default_rng(0).permutation(len(X))
    parts = {
        f"site {k}": mc.data.SurvivalData(X[rows], time[rows], event[rows], unit="months")
        for k, rows in enumerate(np.array_split(order, 5))
    }
    np.testing.assert_allclose(stack(sites=parts).weights_, fitted.weights_, atol=1e-9)


def test_shrinkage_adds_the_stated_penalty_and_leads_to_equal_weights(fitted):
    def objective(weights):
        form, equal = fitted._form, np.full(3, 1 / 3)
        distance = np.mean([form.score(row) for row in np.eye(3)]) - form.score(equal)
        return form.score(weights) + 0.7 * distance * ((weights - equal) ** 2).sum()

    found = minimize(
        objective, np.full(3, 1 / 3), method="SLSQP", bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, options={"ftol": 1e-14},
    )  # fmt: skip
    np.testing.assert_allclose(stack(shrinkage=0.7).weights_, found.x, atol=1e-5)
    np.testing.assert_allclose(stack(shrinkage=1e6).weights_, 1 / 3, atol=1e-4)


def test_equal_weights_are_the_default():
    with mc.Federation.in_process(SITES, policy=OPEN) as federation:
        np.testing.assert_allclose(FedStack(ESTIMATORS).fit(federation).weights_, 1 / 3)


def test_one_model_is_itself():
    alone = stack(ESTIMATORS[:1])
    X, *_ = pooled()
    assert alone.weights_.tolist() == [1.0]
    curves = ESTIMATORS[0].model_.survival(X)
    np.testing.assert_allclose(alone.predict_survival_function(X, return_array=True), curves, rtol=1e-12)


def test_the_same_model_twice_shares_its_weight(fitted):
    twice = stack([*ESTIMATORS, ESTIMATORS[0]]).weights_
    np.testing.assert_allclose(twice, [fitted.weights_[0] / 2, *fitted.weights_[1:], fitted.weights_[0] / 2], atol=1e-4)


def test_equal_and_given_weights_ask_nothing():
    X, *_ = pooled()
    curves = [each.model_.survival(X) for each in ESTIMATORS]
    for weights, shares in (("equal", np.full(3, 1 / 3)), ([2.0, 0.0, 6.0], np.array([0.25, 0.0, 0.75]))):
        with mc.Federation.in_process(SITES) as federation:
            model = FedStack(ESTIMATORS, weights=weights).fit(federation)
            assert not model.session.traffic.calls
        expected = sum(share * curve for share, curve in zip(shares, curves, strict=True))
        np.testing.assert_allclose(model.predict_survival_function(X, return_array=True), expected, rtol=1e-12)
        assert model.planned_steps() == frozenset()
        assert not len(model.brier_)


def test_models_on_other_grids_meet(fitted):
    other = Fitted((0.5, 0.9), times=(0.5, 3.0, 6.0, 20.0))
    model = stack([*ESTIMATORS[:2], other])
    assert model.times_.tolist() == [0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0]
    assert model.brier_[-1] <= model.brier_[:-1].min() + 1e-12
    X, *_ = pooled()
    curves = model.predict_survival_function(X, return_array=True)
    assert (np.diff(curves, axis=1) <= 1e-12).all()


def test_a_mixture_predicts_for_whom_all_its_models_do():
    whole, filling = Fitted((1.6, 0.0)), Fitted((0.0, 1.0))
    whole.missing_values_ = replace(whole.missing_values_, missing="complete")
    rows = np.array([[0.0, 0.0], [np.nan, 0.0]])
    for models in ([whole, filling], [filling, whole]):
        mixture = FedStack(models, weights="equal").fit(mc.Federation.in_process(SITES))
        with pytest.warns(UserWarning, match="1 of 2 patients have missing values"):
            assert np.isnan(mixture.predict(rows)).tolist() == [False, True]


def test_only_named_steps_are_asked(fitted):
    unasked = {"handle_gaps", "add_indicators", "report_gaps"}
    assert set(fitted.session.traffic.calls) - {"advertise"} == fitted.planned_steps() - unasked


def test_a_saved_mixture_predicts_the_same(fitted, tmp_path):
    fitted.save(tmp_path)
    again, (X, *_) = FedStack.load(tmp_path), pooled()
    assert isinstance(again.model_, Mixture)
    assert again.predict(X).tobytes() == fitted.predict(X).tobytes()
    assert again.weights_.tobytes() == fitted.weights_.tobytes()
    assert fitted.estimators is not None
    assert fitted.to_frame()["estimator"].tolist() == ["Fitted"] * 3
    assert again.to_frame()["estimator"].tolist() == ["model 1", "model 2", "model 3"]
    given = stack(weights=np.array([1.0, 0.0, 1.0]))
    given.save(tmp_path)
    assert FedStack.load(tmp_path).weights == [1.0, 0.0, 1.0]


def test_an_unmasked_fit_is_refused_with_a_hint_and_a_masked_one_is_exact(fitted):
    with pytest.raises(DisclosureRefused, match=r"at least 10 patients.*secure_sum=True"):
        stack(policy=None, secure_sum=False)
    np.testing.assert_allclose(stack(policy=None).weights_, fitted.weights_, atol=1e-9)


def site_of(data=None, agreed=None):
    part = StackSite("lyon", SITES["lyon"] if data is None else data)
    part.agree(agreed or ESTIMATORS[0].agreed_)
    return part


@pytest.mark.parametrize("n_each", [9, 10])
def test_both_steps_rest_on_the_bin_with_the_fewest(n_each):
    times = ESTIMATORS[0].agreed_.times
    n = 2 * n_each * len(times)
    X = np.random.default_rng(0).normal(size=(n, len(SITES["lyon"].columns)))
    data = mc.data.SurvivalData(X, np.repeat(times, 2 * n_each), np.arange(n) % 2, columns=SITES["lyon"].columns,
                                unit="months")  # fmt: skip
    part = site_of(data)
    request = candidates(n_patients=float(n))
    for part.masked in (False, True):
        ends = part.count_ends(Nothing())
        assert {*ends.events, *ends.censored} == {n_each}
        assert {ends.patients, part.sum_errors(request).patients} == {n if part.masked else n_each}


def candidates(models=None, **changes):
    packed, lengths = join(models or [each.model_ for each in ESTIMATORS])
    return dataclasses.replace(Candidates(packed, lengths, np.array([1.0, 0.9, 0.8, 0.5]), 90.0), **changes)


def test_a_site_answers_for_one_set_of_models():
    part = site_of()
    once, again = part.sum_errors(candidates()), part.sum_errors(candidates())
    assert once.products.tobytes() == again.products.tobytes()
    assert np.abs(once.products).max() <= 10.0
    with pytest.raises(ConfigurationError, match="other models"):
        part.sum_errors(candidates([ESTIMATORS[0].model_]))


def test_rows_in_blocks_are_all_rows(monkeypatch):
    whole = site_of().sum_errors(candidates())
    monkeypatch.setattr("multicentre.survival.stack.site.N_ROWS", 7)
    blocks = site_of().sum_errors(candidates())
    np.testing.assert_allclose(blocks.products, whole.products, rtol=1e-12)
    np.testing.assert_allclose([*blocks.targets, blocks.constant], [*whole.targets, whole.constant], rtol=1e-12)


WRONG = {
    "chances that rise": {"staying": np.array([0.5, 0.6, 0.6, 0.6])},
    "a chance above 1": {"staying": np.array([1.5, 0.6, 0.6, 0.6])},
    "chances of another grid": {"staying": np.array([1.0])},
    "fewer patients than here": {"n_patients": 1.0},
    "no model": {"packed": np.zeros(0, dtype=np.uint8), "lengths": np.zeros(0, dtype=np.int64)},
    "bytes that are no model": {"packed": np.zeros(100, dtype=np.uint8), "lengths": np.array([100])},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_site_refuses_what_cannot_be(what):
    with pytest.raises((MessageError, ConfigurationError)):
        site_of().sum_errors(candidates(**WRONG[what]))


def test_a_site_refuses_models_on_another_grid_and_too_many():
    with pytest.raises(MessageError, match="another grid"):
        site_of().sum_errors(candidates([Fitted(times=(1.0, 2.0, 4.0, 9.0)).model_]))
    with pytest.raises(ConfigurationError, match="33 models"):
        site_of().sum_errors(candidates([ESTIMATORS[0].model_] * 33))


@pytest.mark.parametrize(
    ("estimators", "weights"),
    [
        ([], "brier"),
        ([FedStack()], "brier"),
        (["a forest"], "brier"),
        ([ESTIMATORS[0], Fitted(columns=("x0", "x2"))], "brier"),
        ([ESTIMATORS[0], Fitted(unit="days")], "brier"),
        ([ESTIMATORS[0], Fitted(cause=2)], "brier"),
        (ESTIMATORS, "best"),
        (ESTIMATORS, [1.0, 2.0]),
        (ESTIMATORS, [1.0, 2.0, -1.0]),
        (ESTIMATORS, [0.0, 0.0, 0.0]),
        (ESTIMATORS, [1.0, np.nan, 1.0]),
    ],
    ids=str,
)
def test_what_cannot_be_stacked_is_named_before_anything_is_asked(estimators, weights):
    with mc.Federation.in_process(SITES) as federation:
        with pytest.raises(ConfigurationError):
            FedStack(estimators, weights=weights).fit(federation)
        assert not federation.traffic.calls


def test_sites_with_other_columns_or_units_are_named():
    one = SITES["nice"]
    for other in (
        mc.data.SurvivalData(one.X, one.time, one.event, unit="days"),
        mc.data.SurvivalData(one.X, one.time, one.event, unit="months", columns=["x1", "x0"]),
    ):
        with pytest.raises(SchemaMismatch, match="nice"):
            stack(sites={**SITES, "nice": other})


def test_all_sites_without_censoring_or_without_events_give_weights():
    for event in (0, 1):
        sites = {
            name: mc.data.SurvivalData(d.X, d.time, np.full(len(d), event), unit="months") for name, d in SITES.items()
        }
        model = stack(sites=sites)
        assert model.weights_.sum() == pytest.approx(1.0)
        assert np.isfinite(model.brier_).all()


def test_held_out_patients_are_apart_and_as_often_with_an_event():
    ids = {name: [f"{name} {i}" for i in range(len(d))] for name, d in SITES.items()}
    named = {name: mc.data.SurvivalData(d.X, d.time, d.event, ids[name], unit="months") for name, d in SITES.items()}
    fitting, held_out = split_held_out(named, 0.3, random_state=4)
    for name, data in named.items():
        assert sorted([*fitting[name].ids, *held_out[name].ids]) == sorted(ids[name])
        assert abs(held_out[name].event.mean() - data.event.mean()) < 0.05
        assert len(held_out[name]) == pytest.approx(0.3 * len(data), abs=1)
    again, other = split_held_out(named, 0.3, random_state=4)[1], split_held_out(named, 0.3, random_state=5)[1]
    assert again["lyon"].ids.tolist() == held_out["lyon"].ids.tolist() != other["lyon"].ids.tolist()
    for share in (0.0, 1.0, 0.001):
        with pytest.raises(ConfigurationError):
            split_held_out(named, share)
