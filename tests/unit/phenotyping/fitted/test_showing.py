"""What a fitted model shows: tables, figures, communication, and fits repeated."""

import dataclasses
import json
import math
import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Bars, HeatMap, Lines, Table, read_figure
from multicentre.phenotyping import DPFact
from multicentre.phenotyping.fitted import figures, repeats
from multicentre.phenotyping.fitted.communication import communication_table
from multicentre.privacy.guarantee import Guarantee
from multicentre.reports.figures import draw
from multicentre.studies.serialisation import to_json
from multicentre.validation import FederatedKFold
from support.event_sites import simulate_events

SITES = simulate_events(160).sites(2)


def fit(federation=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DPFact(3, max_iter=3, **options).fit(federation or mc.Federation.in_process(SITES))


@pytest.fixture(scope="module")
def model():
    return fit(track_errors=True)


def by_title(shown):
    return {one.title: one for one in shown}


def test_table_of_a_fit(model):
    table = model.phenotypes(4)
    assert [one.weight for one in table] == model.weights_.tolist()
    assert [one.prevalence for one in table] == pytest.approx(model.members_ / model.n_patients_)
    code = table.phenotypes[1].codes["diagnosis"][0]
    assert code.weight == model.factors_["diagnosis"][:, 1].max()
    assert model.codes_["diagnosis"][model.factors_["diagnosis"][:, 1].argmax()] == code.code
    with pytest.raises(NotFittedError):
        DPFact().phenotypes()


@pytest.mark.slow
def test_figures_survive_the_run_folder_and_can_be_drawn(model):
    shown = model.figures(SITES, {})
    assert list(by_title(shown)) == [
        "Errors",
        "Change",
        "Communication",
        "Weights",
        "Phenotypes",
        "Phenotypes by site",
        "Memberships",
    ]
    for one in shown:
        again = read_figure(json.loads(to_json(one.to_dict())))
        assert type(again) is type(one)
        if not isinstance(again, Table):
            assert "<svg" in draw(again)
    assert list(by_title(model.figures({}, {}))) == list(by_title(shown))[:-2]


def test_learning_curves_stand_beside_the_model_that_says_zero(model):
    errors, change = figures.learning_curves(model.history_, model.reconstruction_errors_)
    assert isinstance(errors, Lines)
    counts = np.concatenate([data.counts for data in SITES.values()])
    zero = np.sqrt(np.mean(counts**2))
    assert errors.series["model that predicts zero"] == pytest.approx([zero] * 3)
    assert errors.series["all cells"][-1] == pytest.approx(model.reconstruction_errors_.rmse, rel=1e-2)
    assert errors.series["entries above zero"] == [entry["rmse_at_entries"] for entry in model.history_]
    assert f"{counts.std():.4g}" in errors.caption
    assert change.series == {"change": [entry["change"] for entry in model.history_]}


def test_curves_of_a_fit_that_tracks_no_error():
    elastic = fit(solver="easgd")
    assert [one.title for one in figures.learning_curves(elastic.history_, elastic.reconstruction_errors_)] == [
        "Change"
    ]
    assert figures.learning_curves([], elastic.reconstruction_errors_) == []


def test_values_of_few_patients_are_left_out():
    few = np.zeros((40, 3))
    few[:12, 0], few[:9, 1], few[:12, 2] = 2.0, 1.0, 2.0
    (shown,) = figures.site_profiles({"lyon": few}).values
    assert shown == [pytest.approx(2 * math.sqrt(12 / 40)), None, pytest.approx(2 * math.sqrt(12 / 40))]
    assert figures.site_profiles({"lyon": few[:, [1]], "oslo": few[:, [0]]}).high == shown[0]
    assert figures.site_profiles({"lyon": few[:0]}).values == [[None] * 3]


def test_histogram_of_memberships_leaves_few_out(model):
    rows = np.zeros((40, 3))
    rows[:20, 0], rows[:9, 1], rows[20:35, 1] = 3.0, 3.0, 1.0
    shown = figures.shares_of_phenotypes({"a": rows[:30], "b": rows[30:]}, model.phenotypes())
    assert isinstance(shown, Bars)
    first, second, third = shown.series.values()
    assert shown.categories[-1] == "75 to 100 %"
    assert first == [0.0, 0.0, 0.0, 0.0, 100 * 11 / 40]
    assert second == [0.0, 0.0, 0.0, 0.0, 100 * 15 / 40]
    assert third == [0.0] * 5


def test_table_of_phenotypes_leaves_small_prevalence_out(model):
    twin = dataclasses.replace(model.phenotypes().phenotypes[0], prevalence=None)
    shown = figures.leading_codes(dataclasses.replace(model.phenotypes(), phenotypes=(twin,)))
    assert shown.rows[0][2] is None
    assert shown.rows[0][3].startswith(f"{twin.codes['procedure'][0].title} (")


def test_private_fits_show_their_promise_and_nothing_of_single_sites(model):
    private = fit()
    private.privacy_ = Guarantee(1.0, 1e-5)
    private.noise_signal_ = 49.0
    shown = by_title(private.figures(SITES, {}))
    assert "Phenotypes by site" not in shown
    assert "Memberships" not in shown
    (_, kept), (_, signal) = shown["Differential privacy"].rows
    assert "epsilon 1" in kept
    assert signal.startswith("49 per phenotype; 100 or more")
    assert "memberships" not in shown["Weights"].caption


def test_profile_of_the_sites_is_in_the_order_of_the_model():
    sites = simulate_events(800).sites(2)  # large enough that no phenotype is hidden
    fitted = fit(mc.Federation.in_process(sites), random_state=3)
    frame = fitted.profile_sites()
    assert frame.index.tolist() == list(sites)
    shown = figures.site_profiles({site: fitted.transform(data) for site, data in sites.items()})
    assert isinstance(shown, HeatMap)
    assert frame.to_numpy() == pytest.approx(np.array(shown.values), rel=1e-2)
    lengths = np.array([len(data) for data in sites.values()])
    assert np.sqrt(lengths @ frame.to_numpy() ** 2) == pytest.approx(fitted.weights_)


def test_profile_of_the_sites_is_refused_under_epsilon():
    fitted = fit()
    fitted.epsilon = 1.0
    with pytest.raises(ConfigurationError, match="epsilon must be None"):
        fitted.profile_sites()


@pytest.mark.slow
def test_bytes_of_the_rounds_are_those_of_the_formula():
    federation = mc.Federation.in_process(SITES, secure_sum=False, policy=mc.Policy(min_patients=0))
    for solver, more in (("stat", 3 * 3 + 2), ("poisson", 3 + 2), ("easgd", 3), ("psgd", 0)):
        fitted = fit(federation, solver=solver)
        frame = communication_table(fitted).to_frame()
        factors = sum(map(len, fitted.codes_.values())) * 3
        rounds, formula = frame.loc["rounds"], frame.loc["rounds, by the formula"]
        sent = fitted.n_rounds_sent_ * 2 * 8 * (factors + more)
        assert fitted.n_rounds_sent_ == 3 + sum(start["rounds"] for start in fitted.starts_) > 3
        assert rounds["bytes_from_sites"] == formula["bytes_from_sites"] == sent
        assert rounds["bytes_from_site"] == rounds["bytes_from_sites"] / 2
        n_rounds = fitted.n_rounds_sent_
        assert formula["bytes_to_sites"] == n_rounds * 2 * 8 * factors * (2 if solver == "psgd" else 1)
        assert 0 < rounds["bytes_to_sites"] - formula["bytes_to_sites"] <= n_rounds * 2 * 8 * 12
        parts = frame.drop(index=["all", "rounds, by the formula"])
        assert frame.loc["all", "bytes_to_sites"] == parts["bytes_to_sites"].sum()
        assert formula["seconds"] == (formula["bytes_to_sites"] + formula["bytes_from_sites"]) / 15e6


def test_masked_sums_add_a_part_of_their_own():
    masked = communication_table(fit(mc.Federation.in_process(SITES))).to_frame()
    assert masked.loc["agreement on keys and noise", "bytes_from_sites"] > 0


def test_traffic_is_saved_with_the_model(model, tmp_path):
    model.save(tmp_path)
    again = DPFact.load(tmp_path)
    assert communication_table(again) == communication_table(model)
    assert again.reconstruction_errors_ == model.reconstruction_errors_


@pytest.mark.slow
def test_seeds_that_agree_match_and_lie_above_the_null_line():
    frame = repeats.seed_stability(DPFact(3, max_iter=200, tol=1e-6, init="random"), SITES, (0, 1, 2))
    assert frame.index.tolist() == [1, 2, 3]
    assert frame["match"].min() > 0.95 > 0.7 > frame["null"].max()
    assert frame.attrs["score"] > 0.95
    assert frame.attrs["seed"] in (0, 1, 2)


def test_patients_are_drawn_again_within_every_site():
    drawn = repeats.resample_patients(SITES, 3)
    assert {site: len(data) for site, data in drawn.items()} == {site: len(data) for site, data in SITES.items()}
    for site, data in SITES.items():
        originals = [records(data, row) for row in range(len(data))]
        copies = [records(drawn[site], row) for row in range(len(data))]
        assert set(copies) < set(originals)
        assert len(set(copies)) < 0.75 * len(set(originals))


def records(data, row):
    chosen = data.coordinates[:, 0] == row
    return tuple(map(tuple, data.coordinates[chosen, 1:])), tuple(data.counts[chosen])


class TestInstability:
    """Phenotypes of patients without structure do not recur, though one start would find them again."""

    @pytest.fixture
    def noise(self):
        tensor = mc.datasets.simulate_paper_tensor(200, (12, 15), density=0.025, random_state=0).tensor
        return {"a": tensor.take(np.arange(100)), "b": tensor.take(np.arange(100, 200))}

    @pytest.mark.slow
    @pytest.mark.parametrize("resample", [True, False])
    def test_it_is_found_in_data(self, noise, resample):
        model = DPFact(4, tol=1e-3, min_code_patients=1)
        frame = repeats.seed_stability(model, noise, (0, 1, 2), resample=resample)
        assert frame.attrs["score"] < 0.9
        assert frame.attrs["varied"] == ("starts and patients" if resample else "starts")

    def test_it_is_found_over_a_federation_by_starts_alone(self, noise):
        with mc.Federation.in_process(noise) as federation:
            frame = repeats.seed_stability(DPFact(4, n_starts=1, tol=1e-3, min_code_patients=1), federation, (0, 1))
        assert frame.attrs["score"] < 0.9
        assert frame.attrs["varied"] == "starts"

    def test_each_fit_can_have_its_own_federation(self, noise):
        halves = [{site: data.take(np.arange(k, 100, 2)) for site, data in noise.items()} for k in (0, 1)]
        federations = [mc.Federation.in_process(half) for half in halves]
        model = DPFact(2, tol=1e-2, min_code_patients=1)
        assert repeats.seed_stability(model, federations, (0, 1)).attrs["varied"] == "starts and patients"
        with pytest.raises(ConfigurationError, match="one federation per seed, 3; got 2"):
            repeats.seed_stability(model, federations, (0, 1, 2))

    def test_the_training_folds_of_a_plan_are_such_federations(self):
        with mc.Federation.in_process(SITES) as federation:
            plan = FederatedKFold(n_splits=2).plan(federation)
            frame = repeats.seed_stability(DPFact(2, tol=1e-2), [plan.train(k) for k in range(2)], (0, 1))
        assert frame.attrs["varied"] == "starts and patients"


@pytest.mark.filterwarnings("ignore::multicentre.errors.LeftOutWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_to_folds_that_begin_again_without_a_site_can_be_resumed(tmp_path):
    sites = mc.datasets.simulate_planted(420, {"drug": 8, "disease": 9}, n_phenotypes=2, n_sites=3).by_site()
    policy = dict.fromkeys(sites, mc.Policy())
    policy["centre-1"] = mc.Policy(methods=("random-folds",))

    def run(**options):
        with mc.Federation.in_process(sites, refusing_sites="leave_out", policy=policy, **options) as federation:
            plan = FederatedKFold(3).plan(federation)
            frame = repeats.seed_stability(DPFact(2, max_iter=3), [plan.train(fold) for fold in range(3)], (0, 1, 2))
            return frame.to_numpy().tobytes(), federation.traffic.round_trips

    wanted, n_round_trips = run()
    with pytest.raises(KeyboardInterrupt):
        run(folder=tmp_path, faults=Faults(interrupt_at=n_round_trips // 2))
    assert run(folder=tmp_path)[0] == wanted


@pytest.mark.parametrize("titles", ["icd9", 3, ["icd9"]])
def test_titles_that_are_no_titles_are_refused(model, titles):
    with pytest.raises(ConfigurationError, match="titles must be True, None or a mapping") as caught:
        model.phenotypes(titles=titles)
    assert "titles=True" in str(caught.value.hint)


def test_seeds_are_checked_and_spend_no_budget():
    with pytest.raises(ConfigurationError, match="two or more different"):
        repeats.seed_stability(DPFact(3), SITES, (1, 1))
    with pytest.raises(ConfigurationError, match="budget"):
        repeats.seed_stability(DPFact(3, epsilon=1.0), mc.Federation.in_process(SITES))


class Noised:
    """Fits that lose a phenotype below epsilon 2, over fewer codes."""

    def __init__(self, model):
        self.model = model

    def __call__(self, epsilon):
        twin = DPFact()
        twin._set_factors(self.model.factors_, self.model.weights_, self.model.codes_)
        if epsilon is not None and epsilon < 2:
            twin.factors_ = {mode: factor[1:] * [1, 1, 0] for mode, factor in twin.factors_.items()}
            twin.codes_ = {mode: codes[1:] for mode, codes in twin.codes_.items()}
        return twin


def test_privacy_curve_of_a_callable(model):
    cut = {mode: factor * (np.arange(len(factor)) > 0)[:, None] for mode, factor in model.factors_.items()}
    kept = np.prod([np.linalg.norm(factor, axis=0) for factor in cut.values()], axis=0)
    frame = repeats.privacy_curve(Noised(model), epsilons=(4, 1), n_repeats=2)
    assert frame.index.tolist() == [4.0, 1.0]
    assert frame["match"].tolist() == pytest.approx([1.0, kept[:2].sum() / 3])
    assert (frame["lowest"] == frame["highest"]).all()
    truth = {mode: factor[:, [2, 0, 1]] for mode, factor in model.factors_.items()}
    assert repeats.privacy_curve(Noised(model), epsilons=(4,), reference=truth).loc[4.0, "match"] == pytest.approx(1)


def test_privacy_curve_takes_data_and_not_a_federation():
    with pytest.raises(ConfigurationError, match="mapping of site to data"):
        repeats.privacy_curve(DPFact(3), mc.Federation.in_process(SITES))
    with pytest.raises(ConfigurationError, match="epsilons must be at least one number"):
        repeats.privacy_curve(Noised(None), epsilons=())
