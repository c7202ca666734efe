import dataclasses

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    MessageError,
    MulticentreError,
    RefusedByPolicy,
)
from multicentre.validation.stratifier import suggest_stratifier
from multicentre.validation.stratifier.site import Candidates, Cuts, StratifierSite, Trial

OPEN = mc.Policy(min_patients=0)
NAMES = ("quadratic", "linear", "nothing", "few", "holes")


def drawn_table(n, seed, outcome="class"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[:, 3] = rng.integers(0, 2, n)
    X[rng.random(n) < 0.1, 4] = np.nan
    signal = 2 * X[:, 0] ** 2 + X[:, 1] - 2
    if outcome == "time":
        time, end = rng.exponential(np.exp(-signal)), rng.exponential(2.0, n)
        return mc.data.SurvivalData(X, np.minimum(time, end), time <= end, columns=NAMES)
    y = signal + rng.normal(size=n)
    keys = {"person": [f"{seed}-{row}" for row in range(n)]}
    if outcome == "number":
        return mc.data.TableData(X, y, keys, columns=NAMES, outcome="number")
    return mc.data.TableData(X, (y > 0).astype(int), keys, columns=NAMES)


def sites_of(outcome="class", n=(300, 240, 260)):
    return {f"site-{i}": drawn_table(size, i, outcome) for i, size in enumerate(n)}


@pytest.fixture(scope="module")
def found():
    return suggest_stratifier(mc.Federation.in_process(sites_of()), n_rounds=10)


def by_name(suggestion):
    return {one.name: one for one in suggestion.candidates}


@pytest.mark.slow
def test_what_tells_nothing_is_preferred_and_a_square_is_seen(found):
    order = [one.name for one in found.candidates]
    assert order[:3] == ["nothing", "linear", "quadratic"]
    known = by_name(found)
    assert known["quadratic"].information > known["linear"].information > known["nothing"].information
    assert known["quadratic"].ratio < 0.95 < known["nothing"].ratio
    assert found.best == "nothing"


def test_columns_that_cannot_cut_folds_say_why(found):
    known = by_name(found)
    assert not known["few"].usable
    assert "too few different values" in known["few"].reason
    assert "missing" in known["holes"].reason
    share = np.mean(np.concatenate([np.isnan(data.X[:, 4]) for data in sites_of().values()]))
    assert known["holes"].missing == pytest.approx(share)
    assert np.isnan(known["few"].predicted_bias)


def test_the_predicted_bias_follows_from_the_pilot(found):
    one = by_name(found)["quadratic"]
    assert found.calibrated
    assert one.predicted_ratio == pytest.approx(0.096 + 0.902 * one.ratio)
    assert one.predicted_bias == pytest.approx(found.random_score * (one.predicted_ratio - 1), rel=1e-9)
    assert one.lower < one.predicted_bias < one.upper
    assert one.upper - one.lower > 2 * 1.95 * found.random_score * 0.006
    assert one.n_sites == 3


def test_hashes_come_first_where_sites_have_identifiers(found):
    frame = found.to_frame()
    assert frame.strategy[0] == "hash of person"
    assert frame.predicted_bias[0] == 0
    assert "HashGroupKFold" in found.advice
    assert found.advice in repr(found)
    bare = {name: data.without_identifier() for name, data in sites_of().items()}
    plain = suggest_stratifier(mc.Federation.in_process(bare), n_pilots=0)
    assert plain.identifiers == ()
    assert "HashGroupKFold" not in plain.advice
    assert "No site could run the pilot" in plain.advice


@pytest.mark.slow
def test_masked_sums_and_open_policies_say_the_same(found):
    plain = suggest_stratifier(mc.Federation.in_process(sites_of(), policy=OPEN, secure_sum=False), n_rounds=10)
    for ours, theirs in zip(found.candidates, plain.candidates, strict=True):
        assert (ours.name, ours.missing, ours.information) == (theirs.name, theirs.missing, theirs.information)
        np.testing.assert_allclose(ours.predicted_bias, theirs.predicted_bias, atol=1e-6)


def test_information_does_not_depend_on_the_split(found):
    pooled = list(sites_of().values())
    everyone = mc.data.TableData(
        np.vstack([data.X for data in pooled]), np.concatenate([data.y for data in pooled]), columns=NAMES
    )
    halves = {"a": everyone.take(np.arange(0, 800, 2)), "b": everyone.take(np.arange(1, 800, 2))}
    again = suggest_stratifier(mc.Federation.in_process(halves), n_pilots=0)
    assert {one.name: one.information for one in again.candidates} == {
        one.name: one.information for one in found.candidates
    }


def test_unmasked_cells_of_few_are_refused():
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        suggest_stratifier(mc.Federation.in_process(sites_of(), secure_sum=False), n_rounds=10)


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["number", "time"])
def test_other_outcomes(outcome):
    federation = mc.Federation.in_process(sites_of(outcome))
    suggestion = suggest_stratifier(federation, n_rounds=10, n_pilots=None)
    known = by_name(suggestion)
    assert suggestion.score == "concordance"
    assert not suggestion.calibrated
    assert known["quadratic"].information > known["nothing"].information
    assert known["quadratic"].predicted_ratio == known["quadratic"].ratio < known["nothing"].ratio
    assert known["quadratic"].predicted_bias < -0.02


def test_a_calibration_of_one_s_own():
    federation = mc.Federation.in_process(sites_of())
    one = suggest_stratifier(
        federation, candidates=["quadratic"], n_rounds=5, model="linear", calibration=(0.5, 0.4, 0.0)
    ).candidates[0]
    assert one.predicted_ratio == pytest.approx(0.5 + 0.4 * one.ratio)


@pytest.mark.slow
def test_several_records_of_a_patient_show_what_is_stable_and_stay_together():
    rng = np.random.default_rng(0)

    def site(seed):
        fixed = rng.normal(size=(100, 1)).repeat(2, axis=0)
        X = np.column_stack([fixed, fixed[:, 0] + rng.normal(0, 0.1, 200)])
        who = {"person": [f"{seed}-{row // 2}" for row in range(200)]}
        return mc.data.TableData(X, rng.integers(0, 2, 100).repeat(2), who, columns=["birth", "weight"])

    federation = mc.Federation.in_process({f"site-{i}": site(i) for i in range(3)})
    kept = suggest_stratifier(federation, person_key="person", n_rounds=40)
    apart = suggest_stratifier(federation, n_rounds=40)
    known = by_name(kept)
    assert known["birth"].stability == 1.0
    assert known["weight"].stability == 0.0
    assert not known["weight"].usable
    assert "several records" in known["weight"].reason
    assert np.isnan(by_name(apart)["birth"].stability)
    # Two records of a patient share columns and outcome: apart, random folds learn them by heart.
    assert kept.random_score < 0.65 < apart.random_score


@pytest.mark.slow
def test_small_sites_leave_the_pilot_out():
    sites = sites_of(n=(300, 240, 60))
    one = by_name(suggest_stratifier(mc.Federation.in_process(sites), n_rounds=5))["nothing"]
    assert one.n_sites == 2
    assert np.isfinite(one.predicted_bias)
    tiny = mc.Federation.in_process(sites_of(n=(60, 50, 40)))
    assert np.isnan(suggest_stratifier(tiny, n_rounds=5).candidates[0].predicted_bias)


def test_one_site_has_no_interval():
    sites = {"only": drawn_table(300, 0)}
    one = suggest_stratifier(mc.Federation.in_process(sites, policy=OPEN), n_rounds=5).candidates[0]
    assert np.isfinite(one.predicted_bias)
    assert np.isinf(one.upper)


def test_a_covariate_that_a_site_lacks():
    sites = sites_of()
    sites["site-1"] = sites["site-1"].keep_columns(["quadratic", "nothing"])
    federation = mc.Federation.in_process(sites)
    assert set(by_name(suggest_stratifier(federation, n_pilots=0))) == {"quadratic", "nothing"}
    with pytest.raises(DataError, match=r"site-1.*'linear'"):
        suggest_stratifier(federation, candidates=["linear"])


def test_outcomes_that_differ_in_kind():
    sites = {"a": drawn_table(100, 0), "b": drawn_table(100, 1, "number")}
    with pytest.raises(DataError, match="outcomes must have the same kind and classes at all sites"):
        suggest_stratifier(mc.Federation.in_process(sites))


def test_data_without_columns():
    views = {f"s{i}": mc.data.MultiViewData({"a": np.random.default_rng(i).normal(size=(30, 2))}) for i in range(2)}
    with pytest.raises(DataError, match="HashGroupKFold"):
        suggest_stratifier(mc.Federation.in_process(views))


@pytest.mark.parametrize(
    "terms", [{"n_splits": 1}, {"n_splits": 2.5}, {"model": "deep"}, {"n_rounds": 0}, {"n_pilots": -1}]
)
def test_parameters_out_of_range(terms):
    with pytest.raises(ConfigurationError):
        suggest_stratifier(mc.Federation.in_process(sites_of()), **terms)


@pytest.mark.parametrize("line", [(0.1, 0.9), (0.1, 0.9, -1.0), (0.1, np.nan, 0.0)])
def test_a_calibration_that_is_none(line):
    with pytest.raises(ConfigurationError):
        suggest_stratifier(mc.Federation.in_process(sites_of()), calibration=line)


def test_an_unknown_person_key():
    with pytest.raises(MulticentreError, match="nobody"):
        suggest_stratifier(mc.Federation.in_process(sites_of()), person_key="nobody")


def test_a_policy_can_leave_the_method_out():
    federation = mc.Federation.in_process(sites_of(), policy=mc.Policy(methods=("fed-cox",)))
    with pytest.raises(RefusedByPolicy):
        suggest_stratifier(federation)


@pytest.mark.slow
def test_a_run_is_taken_up(tmp_path):
    def run():
        federation = mc.Federation.in_process(sites_of(), folder=tmp_path)
        return suggest_stratifier(federation, n_rounds=5), federation.traffic

    first, asked = run()
    again, asked_again = run()
    assert repr(again) == repr(first)
    assert sum(asked_again.calls.values()) < sum(asked.calls.values())


class TestSite:
    @pytest.fixture
    def part(self):
        made = StratifierSite("oslo", drawn_table(200, 0))
        made.settle(Candidates(("linear", "nothing"), "", 4))
        return made

    def cuts(self, *columns):
        told = Cuts.of([np.array(column) for column in columns])
        return Cuts(told.values, told.first)

    def test_names_alone_are_told(self, part):
        told = part.describe(Nothing())
        assert told.columns == NAMES
        assert told.identifiers == ("person",)
        assert told.outcome == ("class", "0", "1")
        assert not type(told).tells_of_patients()

    def test_it_answers_one_ask_of_a_kind(self, part):
        part.screen(self.cuts([0.0], [0.0]))
        part.screen(self.cuts([0.0], [0.0]))
        with pytest.raises(ConfigurationError, match="must be identical"):
            part.screen(self.cuts([0.01], [0.0]))
        trial = Trial(("linear",), "linear", 3, 5, 0)
        part.pilot(trial)
        with pytest.raises(ConfigurationError, match="must be identical"):
            part.pilot(Trial(("linear",), "linear", 3, 5, 1))
        with pytest.raises(ConfigurationError, match="candidates must be those of the first request"):
            part.settle(Candidates(("linear",), "", 4))

    @pytest.mark.parametrize(
        "columns", [([0.0],), ([0.0], [1.0, 0.0]), ([0.0], [0.0, 0.0]), ([0.0], [0.0, 1.0, 2.0, 3.0]), ([], [], [])]
    )
    def test_thresholds_are_checked(self, part, columns):
        with pytest.raises(MessageError):
            part.screen(self.cuts(*columns))

    @pytest.mark.parametrize("first", [[1, 1, 1], [0, 2, 1], [0, 0, 2]])
    def test_places_of_thresholds_are_checked(self, part, first):
        with pytest.raises(MessageError):
            part.screen(Cuts(np.array([0.0]), np.array(first)))

    @pytest.mark.parametrize(
        "trial",
        [
            Trial(("quadratic",), "linear", 3, 5, 0),
            Trial(("linear", "linear"), "linear", 3, 5, 0),
            Trial(("linear",), "unknown", 3, 5, 0),
            Trial(("linear",), "linear", 1000, 5, 0),
            Trial(("linear",), "linear", 3, 10**9, 0),
        ],
    )
    def test_the_pilot_is_checked(self, part, trial):
        with pytest.raises(MessageError):
            part.pilot(trial)

    @pytest.mark.parametrize(
        "message",
        [
            Candidates((), "", 4),
            Candidates(("linear", "linear"), "", 4),
            Candidates(("x",), "", 4),
            Candidates(("linear",), "", 10**9),
        ],
    )
    def test_candidates_are_checked(self, message):
        with pytest.raises(MulticentreError):
            StratifierSite("oslo", drawn_table(50, 0)).settle(message)

    def test_nothing_is_answered_before_candidates_are_settled(self):
        with pytest.raises(ConfigurationError):
            StratifierSite("oslo", drawn_table(50, 0)).screen(self.cuts([0.0]))

    @pytest.mark.parametrize("fewest", [9, 10])
    def test_unmasked_counts_rest_on_the_smallest_cell(self, fewest):
        classes = np.repeat([0, 1, 0, 1], [40, fewest, 30, 50])
        column = np.repeat([-1.0, 1.0], [40 + fewest, 80])
        part = StratifierSite("oslo", mc.data.TableData(column[:, None], classes, columns=["x"]))
        part.settle(Candidates(("x",), "", 4))
        told = part.screen(self.cuts([0.0]))
        assert told.records[0, :2].tolist() == [[40, fewest], [30, 50]]
        assert told.patients == fewest

    @pytest.mark.parametrize("n_missing", [4, 15])
    def test_missing_values_are_counted_as_they_are(self, n_missing):
        X = drawn_table(200, 0).X.copy()
        X[:n_missing, 2] = np.nan
        part = StratifierSite("oslo", mc.data.TableData(X, np.arange(200) % 2, columns=NAMES))
        part.settle(Candidates(("nothing",), "", 4))
        told = part.screen(self.cuts([0.0]))
        assert told.missing.tolist() == [n_missing]
        assert told.records.sum() == 200 - n_missing

    def test_records_of_a_patient_stay_together_where_the_column_differs(self):
        rng = np.random.default_rng(0)
        birth = rng.normal(size=(100, 1)).repeat(2, axis=0)
        data = mc.data.TableData(np.column_stack([birth, rng.normal(size=200)]), rng.integers(0, 2, 100).repeat(2))
        ratio = {}
        for key in ("person", ""):
            part = StratifierSite("oslo", data.with_identifier({"person": [str(row // 2) for row in range(200)]}))
            part.settle(Candidates(("x0", "x1"), "person", 4))
            part.state = dataclasses.replace(part.state, person_key=key)
            told = part.pilot(Trial(("x1",), "boosting", 4, 60, 0))
            ratio[key] = float(told.ratio[0] / told.weight[0]), float(told.drawn[0] / told.weight[0])
        (kept, drawn_kept), (_, drawn_apart) = ratio["person"], ratio[""]
        assert drawn_kept < 0.6 < drawn_apart
        assert kept * drawn_kept < 0.6

    @pytest.mark.parametrize("masked", [False, True])
    def test_counts_are_exact(self, part, masked):
        part.masked = masked
        told = part.screen(self.cuts([-2.5, 0.0], [-3.0, 0.1, 2.4]))
        x, y = part.data.X[:, 1], part.data.y
        assert told.records[0, 1].tolist() == [int(((x > -2.5) & (x <= 0) & (y == place)).sum()) for place in (0, 1)]
        assert told.patients == (200 if masked else 1)

    def test_unmasked_few_who_differ_stand_behind_the_counts(self):
        value, person = np.repeat([0.0, 1.0], 100), [str(row // 2) for row in range(200)]
        value[:6:2] = 1.0
        data = mc.data.TableData(value[:, None], np.arange(200) // 50 % 2, {"person": person}, columns=["x"])
        for masked, patients in ((True, 200), (False, 3)):
            part = StratifierSite("oslo", data)
            part.settle(Candidates(("x",), "person", 4))
            part.masked = masked
            told = part.screen(self.cuts([0.5]))
            assert (told.repeated.tolist(), told.stable.tolist()) == ([100], [97])
            assert told.patients == patients
